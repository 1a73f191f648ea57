//! The power-balanced layout: copies far apart on the circle of nodes in the order in which they wake (BlinkFS, Sec.
//! 4.2), so that few neighbours have to be awake for every block to be in reach.
//!
//! The paper draws the first copy's node at random. Here it is the one whose circle of copies has least so far, which
//! keeps all nodes equally full.

use ebb_types::NodeId;

use crate::chain::ChainView;
use crate::field::{Candidate, Field, Spread};
use crate::rng::{Rng, hash};
use crate::targets::ring;
use crate::{Ask, Plan, Reason};

/// Places missing copies. The field has at least as many candidates; the ask has a chain.
pub fn place(field: &Field<'_>, ask: &Ask) -> Plan {
    let chain = &**ask.chain.as_ref().expect("`choose` asked for the chain");
    let mut rng = Rng::new(&[ask.seed, ask.inode.raw(), ask.index]);
    let mut spread = field.spread();
    let mut plan = Plan::default();
    let mut places = places(field, chain, ask);
    for _ in 0..ask.missing() {
        let (node, reason) = next(field, chain, &spread, &mut places);
        plan.members.push(spread.place_on(node.pick_volume(&mut rng), reason));
    }
    plan
}

/// Places of all copies, those that are taken left out: of the circles that most present members fit, the one that
/// has least.
fn places(field: &Field<'_>, chain: &ChainView, ask: &Ask) -> Vec<usize> {
    let count = u32::try_from(chain.nodes().len()).expect("a cluster has fewer than 2^32 nodes");
    let replicas = u32::try_from(ask.replicas).unwrap_or(u32::MAX).min(count);
    let present: Vec<usize> = ask.present.iter().filter_map(|(node, _)| chain.place_of(*node)).collect();
    let is_open = |place: usize| field.candidates.iter().any(|node| node.node == chain.nodes()[place]);
    let rank = |first: u32| {
        let places: Vec<usize> = ring::halving(count, replicas, first).into_iter().map(|at| at as usize).collect();
        let kept = places.iter().filter(|place| present.contains(place)).count();
        let open = places.iter().filter(|place| !present.contains(place) && is_open(**place)).count();
        let stored: u64 = places.iter().map(|place| chain.tally.on(chain.nodes()[*place])).sum();
        let first_has = chain.tally.on(chain.nodes()[first as usize]);
        let tie = hash(&[u64::from(first), ask.inode.raw(), ask.index, ask.seed]);
        let rank = (std::cmp::Reverse(kept), std::cmp::Reverse(open), stored, first_has, tie);
        (rank, places)
    };
    let best = (0..count).map(rank).min_by_key(|ranked| ranked.0).map(|ranked| ranked.1);
    best.into_iter().flatten().filter(|place| !present.contains(place)).collect()
}

/// The node at the next place, or the one nearest behind it that can take a copy.
fn next<'f, 'a>(
    field: &'f Field<'a>,
    chain: &ChainView,
    spread: &Spread<'a>,
    places: &mut Vec<usize>,
) -> (&'f Candidate<'a>, Reason) {
    let open: Vec<_> = field.candidates.iter().filter(|node| !spread.has_node(node.node)).collect();
    let own_host: Vec<_> = open.iter().copied().filter(|node| !spread.has_host(node.host)).collect();
    let hosts = if own_host.is_empty() { &open } else { &own_host };
    let at = |node: NodeId| hosts.iter().copied().find(|candidate| candidate.node == node);
    while !places.is_empty() {
        let place = places.remove(0);
        if let Some(node) = at(chain.nodes()[place]) {
            let reason = if own_host.is_empty() { Reason::SharedHost } else { Reason::CirclePlace };
            return (node, reason);
        }
        let (before, behind) = chain.nodes().split_at(place);
        if let Some(node) = behind.iter().chain(before).find_map(|node| at(*node)) {
            return (node, Reason::CircleNext);
        }
    }
    (hosts.first().expect("the survey counted enough candidates"), Reason::RunGivenUp)
}
