//! Where the rows of a RAID set lie.

use ebb_types::{MetablockId, NodeId};

use super::draft::distance;
use super::matching::{Matching, Offer};
use super::rule::Frame;
use super::work::{Work, tie};
use crate::{Chosen, Reason, VolumeView};

/// A node that could take a row.
#[derive(Clone, Debug)]
pub(super) struct RowNode<'a> {
    pub node: NodeId,
    pub host: usize,
    pub volume: &'a VolumeView,
    /// Rows of this length that it would have with this one, if all nodes had the same share. Rounded: rows that differ
    /// in length a little are equals.
    pub rows: u64,
}

/// The nodes that could take a row by layout, room and state, by id.
pub(super) fn row_nodes<'a>(work: &Work<'a>, frame: Frame, row: u32, room_bytes: u64) -> Vec<RowNode<'a>> {
    let by_layout = work.rule.row_nodes(frame, row);
    let nodes = match by_layout {
        Some(nodes) => nodes,
        None => work.sites.nodes().map(|(node, site)| (node, site.capacity_bytes() as f64)).collect(),
    };
    let is_on_host = |host: usize| !matches!(frame, Frame::RowOn(on) if on != host);
    let open = nodes.into_iter().filter_map(|(node, share)| {
        let host = work.sites.host_of(node).filter(|host| is_on_host(*host))?;
        Some((node, host, work.roomiest(node, room_bytes)?, share))
    });
    let open: Vec<_> = open.collect();
    let mean = open.iter().map(|one| one.3).sum::<f64>() / open.len().max(1) as f64;
    let len = room_bytes.max(1) as f64;
    let rows = |node: NodeId, share: f64| {
        let bytes = work.held.check_bytes_on(node) as f64 + len;
        (bytes / len * mean / share.max(f64::MIN_POSITIVE)).round() as u64
    };
    let node = |(node, host, volume, share)| RowNode { node, host, volume, rows: rows(node, share) };
    let mut nodes: Vec<RowNode<'a>> = open.into_iter().map(node).collect();
    nodes.sort_by_key(|node| node.node);
    nodes
}

/// A node for each row, beside slots on these hosts. None if they find no hosts.
///
/// Fewest check bytes against a node's share come first. Of equals it is a node in the rack that has fewest members.
pub(super) fn choose_rows<'a>(
    work: &Work<'a>,
    frame: Frame,
    slot_hosts: &[usize],
    room_bytes: u64,
    first: MetablockId,
) -> Option<Vec<(&'a VolumeView, Chosen)>> {
    let code = work.rule.spread.code;
    let offers: Vec<Vec<RowNode<'a>>> = (0..code.rows).map(|row| row_nodes(work, frame, row, room_bytes)).collect();
    let racks = work.sites.racks_by_host();
    let mut hosts = slot_hosts.to_vec();
    let mut chosen = Vec::new();
    for row in 0..offers.len() {
        let in_rack = |host: usize| hosts.iter().filter(|other| racks[**other] == racks[host]).count();
        let mut open: Vec<&RowNode<'a>> = offers[row].iter().filter(|node| !hosts.contains(&node.host)).collect();
        open.sort_by_key(|node| {
            (off_turn(work, frame, node.node), node.rows, in_rack(node.host), tie(node.node, first))
        });
        let fits = |node: &&&RowNode<'a>| {
            code.copies > 1 || {
                let with: Vec<usize> = hosts.iter().copied().chain([node.host]).collect();
                leaves_hosts(work, &with, &offers[row + 1..])
            }
        };
        let node = *open.iter().find(fits)?;
        hosts.push(node.host);
        let reason = match frame {
            Frame::Turn(_) => Reason::CirclePlace,
            Frame::NearTurn(_) if off_turn(work, frame, node.node) == 0 => Reason::CirclePlace,
            Frame::NearTurn(_) => Reason::CircleNext,
            _ if work.rule.primaries().is_some() => Reason::RowRun,
            _ => Reason::FewestChecks,
        };
        let VolumeView { volume, incarnation, .. } = *node.volume;
        chosen.push((node.volume, Chosen { node: node.node, volume, incarnation, home: node.node, reason }));
    }
    Some(chosen)
}

/// Whether the other rows find hosts, too, if these are taken.
fn leaves_hosts(work: &Work<'_>, taken: &[usize], others: &[Vec<RowNode<'_>>]) -> bool {
    let mut matching = Matching::new(work.sites.racks_by_host().to_vec(), work.rule.rack_most());
    let taken = taken.iter().map(|host| vec![Offer { spot: *host, cost: 0 }]);
    let others =
        others.iter().map(|nodes| nodes.iter().map(|node| Offer { spot: node.host, cost: 0 }).collect::<Vec<_>>());
    taken.chain(others).all(|offers| matching.add(offers))
}

/// Places from a turn's nearest one.
fn off_turn(work: &Work<'_>, frame: Frame, node: NodeId) -> usize {
    match (frame, work.rule.turns()) {
        (Frame::NearTurn(first) | Frame::Turn(first), Some(chain)) => {
            let place = chain.place_of(node).unwrap_or(0);
            distance(chain.nodes().len(), &work.rule.turn(first), place)
        }
        _ => 0,
    }
}
