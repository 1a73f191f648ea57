//! Where a file's bytes lie, and whether they can be read there now: what a scheduler needs to send work to data.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_client::{BlinkState, Client};
use ebb_types::{Attr, HostName, NodeId};
use ebb_wire::pb;

/// A part of a file, and the hosts that have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// First byte of the file that lies there.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Its hosts: those that serve now first, then those that serve soonest. None of a hole.
    pub hosts: Vec<HostPlace>,
}

/// A host that has a part of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPlace {
    /// The host.
    pub host: HostName,
    /// Its rack; empty if there are none.
    pub rack: String,
    /// The volume there.
    pub volume: u64,
    /// When it serves.
    pub serves: Serves,
}

/// When a host serves, by the power plans.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Serves {
    /// Now.
    Now,
    /// In this time.
    In(Duration),
    /// No plan wakes it.
    Never,
}

impl Serves {
    fn of(state: &BlinkState) -> Self {
        match state.wakes_in {
            Some(Duration::ZERO) => Self::Now,
            Some(wait) => Self::In(wait),
            None => Self::Never,
        }
    }
}

/// What is known of each node.
#[derive(Clone, Debug, Default)]
pub struct Hosts(BTreeMap<u64, (HostName, String, Serves)>);

impl Hosts {
    /// As the client has heard last.
    #[must_use]
    pub fn of(client: &Client) -> Self {
        let known = |node: pb::Node| {
            let serves = Serves::of(&client.blink_state(NodeId::new(node.id)));
            (node.id, (HostName::new(node.host), node.rack, serves))
        };
        Self(client.nodes().into_iter().map(known).collect())
    }
}

/// The places of a file by its map. Metablocks without a record are holes, and have places without hosts.
#[must_use]
pub fn of_map(map: &[pb::Metablock], attr: &Attr, hosts: &Hosts) -> Vec<Place> {
    let unit = attr.storage.geometry.metablock_size.max(1);
    let by_index: BTreeMap<u64, &pb::Metablock> =
        map.iter().filter(|block| block.is_written()).map(|block| (block.index, block)).collect();
    let place = |index: u64| {
        let offset = index * unit;
        let members = by_index.get(&index).map_or(&[][..], |block| &block.members);
        let extra = by_index.get(&index).map_or(&[][..], |block| &block.extra);
        let known = |member: &pb::Member| {
            let (host, rack, serves) = hosts.0.get(&member.node)?.clone();
            Some(HostPlace { host, rack, volume: member.volume, serves })
        };
        let mut found: Vec<HostPlace> = members.iter().chain(extra).filter_map(known).collect();
        found.sort_by_key(|place| place.serves);
        Place { offset, length: unit.min(attr.size - offset), hosts: found }
    };
    (0..attr.size.div_ceil(unit)).map(place).collect()
}

#[cfg(test)]
mod tests {
    use ebb_types::{Epoch, FileKind, Geometry, InodeId, Storage, Version};

    use super::*;

    fn block(index: u64, nodes: &[u64]) -> pb::Metablock {
        let member = |node: &u64| pb::Member { node: *node, volume: node * 10, ..Default::default() };
        let members = nodes.iter().map(member).collect();
        pb::Metablock {
            id: 7,
            index,
            members,
            length: 1,
            version: Some(Version { epoch: Epoch::new(1), seq: 1 }.into()),
            ..Default::default()
        }
    }

    #[test]
    fn hosts_that_serve_come_first_and_holes_have_none() {
        let wait = |seconds| Serves::In(Duration::from_secs(seconds));
        let known = [(1, Serves::Never), (2, wait(9)), (3, Serves::Now), (4, wait(3))];
        let hosts = known.map(|(node, serves)| (node, (HostName::new(format!("h{node}")), "r1".to_owned(), serves)));
        let geometry = Geometry { metablock_size: 100, ..Geometry::default() };
        let storage = Storage { geometry, ..Storage::default() };
        let attr = Attr { size: 250, storage, ..Attr::empty(InodeId::new(5), FileKind::File) };
        let map = [block(0, &[1, 2, 3, 4]), block(2, &[9, 3])];
        let places = of_map(&map, &attr, &Hosts(hosts.into()));
        let shown: Vec<(u64, u64, Vec<&str>)> = places
            .iter()
            .map(|place| (place.offset, place.length, place.hosts.iter().map(|one| one.host.as_str()).collect()))
            .collect();
        assert_eq!(shown, [(0, 100, vec!["h3", "h4", "h2", "h1"]), (100, 100, vec![]), (200, 50, vec!["h3"])]);
        assert_eq!(places[0].hosts[0].volume, 30);
        assert!(of_map(&[], &Attr { size: 0, ..attr }, &Hosts::default()).is_empty());
    }
}
