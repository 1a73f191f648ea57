//! Localized storage nodes (LSNs) with the disks of their sub-racks (Krish et al., Sec. III).
//!
//! The first copy of a metablock lies on the LSN of its writer, one hop from every task of that sub-rack. A stream goes over
//! all disks of the LSN in turn, metablock by metablock. A writer without an LSN, such as a client
//! outside, gets one by the room that LSNs have for each of their hosts. Its file stays with that one.
//!
//! The second copy lies in the other *half* of the LSNs ([`Half`]), in another rack if there is one there, and with each of
//! its nodes in turn. So one half holds everything and is enough when power is short, and the load of an LSN that fails is
//! borne by all nodes of the other half.

use ebb_types::{HostName, NodeId};

use crate::chain::ChainView;
use crate::chain::halves::Half;
use crate::field::{Candidate, Field, Spread};
use crate::rng::{Rng, hash};
use crate::{Ask, Plan, Reason, SubRacks, VolumeView};

/// Places missing copies. The field has at least as many candidates; the ask has a chain.
pub fn place(field: &Field<'_>, ask: &Ask) -> Plan {
    let chain = &**ask.chain.as_ref().expect("`choose` asked for the chain");
    let mut plan = Plan::default();
    let mut work =
        Work { field, chain, ask, spread: field.spread(), copies: ask.present.iter().map(|(node, _)| *node).collect() };
    for _ in 0..ask.missing() {
        let (node, turn, reason) = if work.copies.is_empty() { work.first() } else { work.further() };
        work.copies.push(node.node);
        plan.members.push(work.spread.place_on(volume_in_turn(node, turn), reason));
    }
    plan
}

/// The node's volumes take turns.
fn volume_in_turn<'a>(node: &Candidate<'a>, turn: u64) -> &'a VolumeView {
    node.volumes[at(turn, node.volumes.len())]
}

/// The place of a turn among so many.
fn at(turn: u64, count: usize) -> usize {
    let count = u64::try_from(count).expect("a length fits in 64 bits");
    usize::try_from(turn % count).expect("below a length that is a usize")
}

/// Copies being placed.
struct Work<'f, 'a> {
    field: &'f Field<'a>,
    chain: &'f ChainView,
    ask: &'f Ask,
    spread: Spread<'a>,
    /// Nodes with a copy.
    copies: Vec<NodeId>,
}

/// A node, the turn that decides its volume, and why it was chosen.
type Choice<'f, 'a> = (&'f Candidate<'a>, u64, Reason);

impl<'f, 'a> Work<'f, 'a> {
    /// The metablock's turn in its file. Files begin at different disks.
    fn turn(&self) -> u64 {
        hash(&[self.ask.inode.raw()]).wrapping_add(self.ask.index)
    }

    fn first(&self) -> Choice<'f, 'a> {
        let sub_racks = self.field.sub_racks;
        let preferred = self.ask.preferred_host().map(|host| (host, Reason::PreferredLsn));
        let wishes = preferred.into_iter().chain([(&self.ask.writer, Reason::WriterLsn)]);
        let lsns = wishes.filter_map(|(host, reason)| Some((sub_racks.lsn_of(host.as_str())?, reason)));
        let mut wanted = None;
        for (lsn, reason) in lsns {
            let on_it: Vec<_> = self.open().filter(|node| node.host == lsn).collect();
            if !on_it.is_empty() {
                return (on_it[at(self.turn(), on_it.len())], self.turn(), reason);
            }
            wanted = wanted.or(Some(lsn));
        }
        let Some(lsn) = wanted else {
            return (self.roomiest(|_| true), self.turn(), Reason::RoomForHosts);
        };
        // It is full, or away. The second copy then goes where it would have gone.
        let half = self.half_of_host(lsn);
        let is_in_it = |node: &Candidate<'a>| half.is_none_or(|half| half.has_any(self.chain, &[node.node]));
        (self.roomiest(is_in_it), self.turn(), Reason::RunGivenUp)
    }

    fn half_of_host(&self, lsn: &HostName) -> Option<Half> {
        let nodes: Vec<NodeId> = self.field.nodes_on(lsn).collect();
        Half::ALL.into_iter().find(|half| half.has_any(self.chain, &nodes))
    }

    /// One of the nodes for which `is_meant` holds, or of all if there is none, drawn by the file. Room for each host weighs.
    fn roomiest(&self, is_meant: impl Fn(&Candidate<'a>) -> bool) -> &'f Candidate<'a> {
        let meant: Vec<_> = self.open().filter(|node| is_meant(node)).collect();
        let among = [meant, self.open().collect(), self.field.candidates.iter().collect()];
        let among = among.into_iter().find(|nodes| !nodes.is_empty()).expect("the survey counted enough candidates");
        let weights: Vec<u64> = among.iter().map(|node| room_for_each_host(self.field.sub_racks, node)).collect();
        // The draw is the file's alone: its metablocks stay together as long as room does not change much.
        let mut draw = Rng::new(&[self.ask.inode.raw()]).below(weights.iter().sum());
        let chosen = weights.iter().position(|weight| match draw.checked_sub(*weight) {
            Some(left) => {
                draw = left;
                false
            }
            None => true,
        });
        among[chosen.expect("the draw is below the sum of the weights")]
    }

    fn further(&self) -> Choice<'f, 'a> {
        let own_host = || self.open().filter(|node| !self.spread.has_host(node.host));
        let half = Half::without(self.chain, &self.copies);
        let is_in_half = |node: &&Candidate<'a>| half.is_none_or(|half| half.has_any(self.chain, &[node.node]));
        let in_half: Vec<_> = own_host().filter(is_in_half).collect();
        if !in_half.is_empty() {
            let (node, turn) = self.in_turn(&in_half);
            return (node, turn, if half.is_some() { Reason::OtherHalf } else { Reason::FurtherLsn });
        }
        let others = self.field.candidates.iter().filter(|node| !self.spread.has_node(node.node));
        let on_hosts: Vec<_> = others.clone().filter(|node| !self.spread.has_host(node.host)).collect();
        let choices = [
            (own_host().collect(), Reason::RunGivenUp),
            (on_hosts, Reason::RunGivenUp),
            (others.collect(), Reason::SharedHost),
        ];
        let (nodes, reason): (Vec<_>, _) =
            choices.into_iter().find(|choice| !choice.0.is_empty()).expect("the survey counted enough candidates");
        let (node, turn) = self.in_turn(&nodes);
        (node, turn, reason)
    }

    /// One of the nodes in racks without a copy, or of all, in turn; and the turn among its volumes.
    fn in_turn(&self, nodes: &[&'f Candidate<'a>]) -> (&'f Candidate<'a>, u64) {
        let is_apart = |node: &&Candidate<'a>| self.spread.rack_copies(node.rack) == 0;
        let apart: Vec<_> = nodes.iter().copied().filter(is_apart).collect();
        let nodes = if apart.is_empty() { nodes } else { &apart };
        (nodes[at(self.turn(), nodes.len())], self.turn() / nodes.len() as u64)
    }

    /// Nodes of the chain that could take a copy, in its order.
    fn open(&self) -> impl Iterator<Item = &'f Candidate<'a>> + '_ {
        let find = |node: &NodeId| {
            let place = self.field.candidates.binary_search_by_key(node, |candidate| candidate.node).ok()?;
            Some(&self.field.candidates[place])
        };
        self.chain.nodes().iter().filter_map(find).filter(|node| !self.spread.has_node(node.node))
    }
}

/// Free space above the reserve in MiB, for each host of the sub-rack; never 0.
fn room_for_each_host(sub_racks: &SubRacks, node: &Candidate<'_>) -> u64 {
    let free = node.volumes.iter().map(|volume| volume.free_bytes.saturating_sub(volume.reserve_bytes()) >> 20);
    let hosts = 1 + sub_racks.served_by(node.host.as_str()).len() as u64;
    free.sum::<u64>() / hosts + 1
}

#[cfg(test)]
mod tests;
