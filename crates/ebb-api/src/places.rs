//! Where a file's bytes lie, and whether they can be read there now: what a scheduler needs to send work to data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_client::{BlinkState, Client};
use ebb_layout::SubRacks;
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
    /// Its rack, and its sub-rack in a cluster with such ([`SubRacks::path_of`]).
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
pub struct Hosts {
    nodes: BTreeMap<u64, (HostName, Serves)>,
    sub_racks: Arc<SubRacks>,
}

impl Hosts {
    /// As the client has heard last.
    #[must_use]
    pub fn of(client: &Client) -> Self {
        let known = |node: pb::Node| {
            let serves = Serves::of(&client.blink_state(NodeId::new(node.id)));
            (node.id, (HostName::new(node.host), serves))
        };
        Self { nodes: client.nodes().into_iter().map(known).collect(), sub_racks: client.sub_racks() }
    }

    /// Where a replica is near: the host that has it; of a localized storage node also the hosts that it serves, as declared, in
    /// turn from one that the metablock decides. Schedulers take the first hosts that they are told.
    // I-71
    fn near(&self, member: &pb::Member, turn: u64) -> Vec<HostPlace> {
        let Some((own, serves)) = self.nodes.get(&member.node) else { return Vec::new() };
        let served = self.sub_racks.served_by(own.as_str());
        let first = usize::try_from(turn % served.len().max(1) as u64).expect("below a length");
        let near = served[first..].iter().chain(&served[..first]).chain([own]);
        let rack = |host: &HostName| self.sub_racks.path_of(host.as_str()).unwrap_or_default();
        let place = |host: &HostName| HostPlace {
            host: host.clone(),
            rack: rack(host),
            volume: member.volume,
            serves: *serves,
        };
        near.map(place).collect()
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
        let near = |member: &pb::Member| hosts.near(member, index);
        let mut found: Vec<HostPlace> = members.iter().chain(extra).flat_map(near).collect();
        found.sort_by_key(|place| place.serves);
        Place { offset, length: unit.min(attr.size - offset), hosts: found }
    };
    (0..attr.size.div_ceil(unit)).map(place).collect()
}

#[cfg(test)]
mod tests {
    use ebb_types::{Declared, Epoch, FileKind, Geometry, InodeId, Storage, Version};

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
        let nodes = known.map(|(node, serves)| (node, (HostName::new(format!("h{node}")), serves)));
        let hosts = Hosts { nodes: nodes.into(), ..Hosts::default() };
        let geometry = Geometry { metablock_size: 100, ..Geometry::default() };
        let storage = Storage { geometry, ..Storage::default() };
        let attr = Attr { size: 250, storage, ..Attr::empty(InodeId::new(5), FileKind::File) };
        let map = [block(0, &[1, 2, 3, 4]), block(2, &[9, 3])];
        let places = of_map(&map, &attr, &hosts);
        let shown: Vec<(u64, u64, Vec<&str>)> = places
            .iter()
            .map(|place| (place.offset, place.length, place.hosts.iter().map(|one| one.host.as_str()).collect()))
            .collect();
        assert_eq!(shown, [(0, 100, vec!["h3", "h4", "h2", "h1"]), (100, 100, vec![]), (200, 50, vec!["h3"])]);
        assert_eq!(places[0].hosts[0].volume, 30);
        assert!(of_map(&[], &Attr { size: 0, ..attr }, &Hosts::default()).is_empty());
    }

    #[test]
    fn a_localized_storage_node_is_near_to_the_hosts_that_it_serves() {
        let serves: Vec<String> = ["a1", "a2", "a3"].map(str::to_owned).into();
        let declared = |node: u64, host, serves| Declared { node: Some(NodeId::new(node)), host, rack: "r1", serves };
        let sub_racks = Arc::new(SubRacks::new([declared(1, "lsn1", &serves), declared(2, "b", &[])]));
        let node = |host: &str| (HostName::new(host), Serves::Now);
        let hosts = Hosts { nodes: [(1, node("lsn1")), (2, node("b"))].into(), sub_racks };
        let near = |node: u64, turn| {
            let member = pb::Member { node, volume: 7, ..Default::default() };
            let near = hosts.near(&member, turn);
            near.into_iter().map(|one| (one.host.to_string(), one.rack)).collect::<Vec<_>>()
        };
        let at = |host: &str, rack: &str| (host.to_owned(), rack.to_owned());
        let sub_rack = |hosts: [&str; 4]| hosts.map(|host| at(host, "r1/lsn1"));
        assert_eq!(near(1, 0), sub_rack(["a1", "a2", "a3", "lsn1"]));
        assert_eq!(near(1, 5), sub_rack(["a3", "a1", "a2", "lsn1"]), "each has its turn to be the first");
        assert_eq!(near(2, 5), [at("b", "r1/none")]);
        assert!(near(9, 0).is_empty());
    }
}
