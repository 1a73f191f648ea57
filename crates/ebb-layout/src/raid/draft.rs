//! A RAID set while it is filled: which metablocks are in it, and which of their members stay.
//!
//! Metablocks are added one by one. The members that stay are a matching, so one that is added may make others keep
//! another member. The rows are in it from the start, as items that may lie on any node for rows: so a draft never fills
//! the hosts that its rows need. Where they lie in the end is chosen when the slots are known.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::NodeId;

use super::matching::{Matching, Offer};
use super::rows::{RowNode, row_nodes};
use super::rule::Frame;
use super::work::{FIRST_WORTH, Work, row_room_bytes};
use crate::{Reason, VolumeView};

/// One way in which a metablock can be a slot.
#[derive(Clone, Debug)]
pub(super) struct Stay<'a> {
    /// Where the members are that stay: as many as the code wants.
    pub volumes: Vec<&'a VolumeView>,
    /// Why each of them.
    pub reasons: Vec<Reason>,
    /// Less is better.
    pub cost: i64,
}

/// A metablock that may become a slot.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub len_bytes: u64,
    pub stays: Vec<Stay<'a>>,
}

/// A RAID set with some of its slots.
#[derive(Clone, Debug)]
pub(super) struct Draft<'a> {
    pub frame: Frame,
    matching: Matching,
    /// Items of the matching before the first slot.
    rows: usize,
    /// By slot: of each offer, the member that would stay.
    slots: Vec<Vec<Stay<'a>>>,
    /// With two copies: the spot of each pair of hosts.
    pairs: BTreeMap<(usize, usize), usize>,
}

/// Frames that are tried for one RAID set.
const FRAMES: usize = 4;
/// Hosts of the row that are tried for one RAID set of two copies.
const ROW_HOSTS: usize = 8;
/// More rows than this on a node are as bad.
const ROWS_MAX: u64 = 1 << 24;
/// A place on the circle nearer to a turn's outweighs any number of members.
const PLACE_WORTH: i64 = 1 << 42;

impl<'a> Draft<'a> {
    /// Without slots; none if the rows find no nodes.
    fn new(work: &Work<'a>, frame: Frame, room_bytes: u64) -> Option<Self> {
        let code = work.rule.spread.code;
        let of_rows: Vec<Vec<RowNode<'a>>> =
            (0..code.rows).map(|row| row_nodes(work, frame, row, room_bytes)).collect();
        if code.copies > 1 {
            let has_row = of_rows.iter().all(|nodes| !nodes.is_empty());
            let matching = Matching::of_spots(0);
            return has_row.then_some(Self { frame, matching, rows: 0, slots: Vec::new(), pairs: BTreeMap::new() });
        }
        let mut matching = Matching::new(work.sites.racks_by_host().to_vec(), work.rule.rack_most());
        for nodes in of_rows {
            // A row counts as much against a node's share of rows as so many slots against its share of slots.
            let mut costs: BTreeMap<usize, u64> = BTreeMap::new();
            for node in nodes {
                let cost = node.rows.min(ROWS_MAX) * u64::from(code.slots) / u64::from(code.rows);
                costs.entry(node.host).and_modify(|least| *least = cost.min(*least)).or_insert(cost);
            }
            let offers = costs.into_iter().map(|(spot, cost)| Offer { spot, cost: cost.cast_signed() });
            if !matching.add(offers.collect()) {
                return None;
            }
        }
        Some(Self { frame, matching, rows: code.rows as usize, slots: Vec::new(), pairs: BTreeMap::new() })
    }

    /// Number of its slots so far.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// The members that stay of a slot, and why.
    pub fn stay(&self, slot: usize) -> &Stay<'a> {
        &self.slots[slot][self.matching.offer(self.rows + slot)]
    }

    /// Adds a slot; false, and nothing is changed, if it does not fit, or costs as much as this.
    fn add(&mut self, work: &Work<'a>, entry: &Entry<'a>, limit: i64) -> bool {
        if self.len() >= work.rule.spread.code.slots as usize {
            return false;
        }
        let mut stays = Vec::new();
        let mut offers = Vec::new();
        for stay in &entry.stays {
            let Some((cost, is_beside)) = frame_cost(work, self.frame, stay) else { continue };
            offers.push(Offer { spot: self.spot(work, stay), cost: stay.cost + cost });
            let mut stay = stay.clone();
            if let Some(is_beside) = is_beside {
                stay.reasons =
                    vec![if is_beside { Reason::CircleNext } else { Reason::CirclePlace }; stay.reasons.len()];
            }
            stays.push(stay);
        }
        let is_added = self.matching.add_below(offers, limit);
        if is_added {
            self.slots.push(stays);
        }
        is_added
    }

    /// The host, or the pair of hosts, that a slot would take.
    fn spot(&mut self, work: &Work<'a>, stay: &Stay<'a>) -> usize {
        let host = |volume: &VolumeView| work.sites.host_of(volume.node).expect("a volume of the view has a host");
        match stay.volumes[..] {
            [one, two] => {
                let (one, two) = (host(one), host(two));
                *self.pairs.entry((one.min(two), one.max(two))).or_insert_with(|| self.matching.add_spot())
            }
            _ => host(stay.volumes[0]),
        }
    }

    /// Adds several slots, or none of them.
    fn add_all(&mut self, work: &Work<'a>, entries: &[Entry<'a>], limit: i64) -> bool {
        let before = (entries.len() > 1).then(|| self.clone());
        let are_added = entries.iter().all(|entry| self.add(work, entry, limit));
        if !are_added && let Some(before) = before {
            *self = before;
        }
        are_added
    }
}

/// What a member costs beyond itself in a frame, and on the circle whether it is beside its place; none: it may not stay.
fn frame_cost(work: &Work<'_>, frame: Frame, stay: &Stay<'_>) -> Option<(i64, Option<bool>)> {
    match frame {
        Frame::Anywhere | Frame::Column(_) => Some((0, None)),
        Frame::RowOn(host) => {
            let is_taken = |volume: &&VolumeView| work.sites.host_of(volume.node) == Some(host);
            (!stay.volumes.iter().any(is_taken)).then_some((0, None))
        }
        Frame::Turn(first) | Frame::NearTurn(first) => {
            let chain = work.rule.turns()?;
            let places = stay.volumes.iter().map(|volume| chain.place_of(volume.node)).collect::<Option<Vec<_>>>()?;
            let turn = work.rule.turn(first);
            let off: usize = places.iter().map(|place| distance(chain.nodes().len(), &turn, *place)).sum();
            let is_near = off == 0 || matches!(frame, Frame::NearTurn(_));
            is_near.then_some((i64::try_from(off).unwrap_or(1 << 16) * PLACE_WORTH, Some(off > 0)))
        }
    }
}

/// Places from one on the circle to the nearest of these.
pub(super) fn distance(nodes: usize, turn: &[usize], place: usize) -> usize {
    let apart = |other: usize| place.abs_diff(other).min(nodes - place.abs_diff(other));
    turn.iter().map(|other| apart(*other)).min().unwrap_or(nodes)
}

/// The fullest draft of these parties: each comes as a whole or not at all, the first one must come. With it, which came.
///
/// `is_loose`: members may lie beside their places on the circle.
pub(super) fn draft<'a>(
    work: &Work<'a>,
    parties: &[Vec<Entry<'a>>],
    is_loose: bool,
) -> Option<(Draft<'a>, Vec<usize>)> {
    let code = work.rule.spread.code;
    let longest = parties.iter().flatten().map(|entry| entry.len_bytes).max()?;
    let room = row_room_bytes(longest, code.slots);
    let mut best: Option<(Draft<'a>, Vec<usize>)> = None;
    let limit = usual_cost(work, parties);
    for frame in frames(work, parties, is_loose, room) {
        let Some(mut draft) = Draft::new(work, frame, room) else { continue };
        if !parties.first().is_some_and(|party| draft.add_all(work, party, i64::MAX)) {
            continue;
        }
        let mut came = vec![0];
        // First those that keep a member on a node with no more slots than usual. Shorter ones than these would make
        // padding, and come in their turn.
        let is_long = |entry: &Entry<'_>| entry.len_bytes >= longest - longest / 8;
        for limit in [limit, i64::MAX] {
            for (number, party) in parties.iter().enumerate().skip(1) {
                let is_open = draft.len() < code.slots as usize && !came.contains(&number);
                let is_first = limit == i64::MAX || party.iter().all(is_long);
                if is_open && is_first && draft.add_all(work, party, limit) {
                    came.push(number);
                }
            }
        }
        if best.as_ref().is_some_and(|(best, _)| best.len() >= draft.len()) {
            continue;
        }
        let is_full = draft.len() >= code.slots as usize;
        best = Some((draft, came));
        if is_full {
            break;
        }
    }
    best
}

/// A slot that costs as much lies on nodes with more slots than the mean of those that have members of these parties.
fn usual_cost(work: &Work<'_>, parties: &[Vec<Entry<'_>>]) -> i64 {
    let volumes = parties.iter().flatten().flat_map(|entry| &entry.stays).flat_map(|stay| &stay.volumes);
    let nodes: BTreeSet<NodeId> = volumes.map(|volume| volume.node).collect();
    let thin: u64 = nodes.iter().map(|node| work.held.thin_on(*node)).sum();
    let mean = (thin * u64::from(work.rule.spread.code.copies)).div_ceil(nodes.len().max(1) as u64);
    i64::try_from(mean).unwrap_or(i64::MAX).saturating_add(FIRST_WORTH + 2)
}

/// The frames to try, the best first.
fn frames(work: &Work<'_>, parties: &[Vec<Entry<'_>>], is_loose: bool, room: u64) -> Vec<Frame> {
    let Some(first) = parties.first() else { return Vec::new() };
    if work.rule.spread.code.copies > 1 {
        let mut nodes = row_nodes(work, Frame::Anywhere, 0, room);
        let has_stay = |entry: &Entry<'_>, host: usize| {
            entry.stays.iter().any(|stay| frame_cost(work, Frame::RowOn(host), stay).is_some())
        };
        nodes.retain(|node| first.iter().all(|entry| has_stay(entry, node.host)));
        nodes.sort_by_key(|node| (node.rows, node.node));
        let mut seen = BTreeSet::new();
        return nodes
            .iter()
            .filter(|node| seen.insert(node.host))
            .map(|node| Frame::RowOn(node.host))
            .take(ROW_HOSTS)
            .collect();
    }
    if let Some(chain) = work.rule.turns() {
        let places = first.iter().flat_map(|entry| &entry.stays).flat_map(|stay| &stay.volumes);
        let places = places.filter_map(|volume| chain.place_of(volume.node));
        return turns(work, parties, places.collect(), is_loose);
    }
    if let Some(chain) = work.rule.primaries() {
        let fewest = |column: usize| {
            row_nodes(work, Frame::Column(column), 0, room).iter().map(|node| node.rows).min().unwrap_or(u64::MAX)
        };
        let mut columns: Vec<(u64, usize)> = (0..chain.columns()).map(|column| (fewest(column), column)).collect();
        columns.sort_unstable();
        return columns.into_iter().take(FRAMES).map(|(_, column)| Frame::Column(column)).collect();
    }
    vec![Frame::Anywhere]
}

/// The turns with one of these places: first those that most metablocks have a member on, then those whose nodes have
/// least.
fn turns(work: &Work<'_>, parties: &[Vec<Entry<'_>>], places: BTreeSet<usize>, is_loose: bool) -> Vec<Frame> {
    let chain = work.rule.turns().expect("turns are of a circle");
    let starts = 0..chain.nodes().len();
    let mut ranked = Vec::new();
    for start in starts {
        let turn = work.rule.turn(start);
        if !places.iter().any(|place| turn.binary_search(place).is_ok()) {
            continue;
        }
        let fits = |entry: &Entry<'_>| {
            let places = |stay: &Stay<'_>| {
                stay.volumes
                    .iter()
                    .all(|volume| chain.place_of(volume.node).is_some_and(|place| turn.binary_search(&place).is_ok()))
            };
            entry.stays.iter().any(places)
        };
        let slots = work.rule.spread.code.slots as usize;
        let fitting = parties.iter().flatten().filter(|entry| fits(entry)).count().min(slots);
        let thin: u64 = turn.iter().map(|place| work.held.thin_on(chain.nodes()[*place])).sum();
        ranked.push((std::cmp::Reverse(fitting), thin, turn, start));
    }
    ranked.sort();
    // Of turns that have the same places one is enough.
    ranked.dedup_by(|one, other| one.2 == other.2);
    let starts: Vec<usize> = ranked.into_iter().map(|(.., start)| start).take(FRAMES).collect();
    let strict = starts.iter().map(|start| Frame::Turn(*start));
    let loose = starts.iter().filter(|_| is_loose).map(|start| Frame::NearTurn(*start));
    strict.chain(loose).collect()
}
