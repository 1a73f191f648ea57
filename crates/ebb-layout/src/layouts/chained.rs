//! The layouts on an expansion chain: `simple`, `equal-work`, `geared` (Rabbit, Sec. 3.1 and 3.5).
//!
//! The first copy goes to a primary, each further one to its own run of the chain (under gears: to its recovery group's
//! column). Within a run the node is taken that is furthest below its share so far: of all blocks, and of those that
//! share this block's primary, so that every node draws evenly from every primary. No node is then ever more than a few
//! blocks away from its target, with any earlier placements and any number of writers.
//!
//! Neither the writer's host nor write affinity matters: a chain's load is to be even at every number of active nodes.

use ebb_types::NodeId;

use crate::chain::ChainView;
use crate::field::{Candidate, Field, Spread};
use crate::rng::{Rng, hash};
use crate::{Ask, Plan, Reason};

/// Blocks by which a node in another rack may lack less than the one that lacks most, and is taken all the same.
const RACK_LACK: f64 = 1.0;

/// Places missing copies. The field has at least as many candidates; the ask has a chain.
pub fn place(field: &Field<'_>, ask: &Ask) -> Plan {
    let chain = &**ask.chain.as_ref().expect("`choose` asked for the chain");
    let mut rng = Rng::new(&[ask.seed, ask.inode.raw(), ask.index]);
    let mut work = Work { field, chain, spread: field.spread(), copies: fill(chain, ask), ask };
    let mut plan = Plan::default();
    for _ in 0..ask.missing() {
        let copy = work.copies.iter().position(Option::is_none);
        let (node, reason) = work.next(copy);
        if let Some(copy) = copy {
            // A copy off the chain stands for its copy all the same.
            work.copies[copy] = Some(chain.place_of(node.node).unwrap_or(usize::MAX));
        }
        plan.members.push(work.spread.place_on(node.pick_volume(&mut rng), reason));
    }
    plan
}

struct Work<'f, 'a> {
    field: &'f Field<'a>,
    chain: &'f ChainView,
    ask: &'f Ask,
    spread: Spread<'a>,
    /// Place of each copy that there is.
    copies: Vec<Option<usize>>,
}

/// Which copies the present members are: each stands for the first copy whose run it is in.
fn fill(chain: &ChainView, ask: &Ask) -> Vec<Option<usize>> {
    let mut copies = vec![None; chain.replicas() as usize];
    let mut places: Vec<usize> = ask.present.iter().filter_map(|(node, _)| chain.place_of(*node)).collect();
    places.sort_unstable();
    for place in places {
        let primary = copies.first().copied().flatten().unwrap_or(0);
        let fits = |copy: &usize| copies[*copy].is_none() && chain.run(*copy, primary).iter().any(|at| at.0 == place);
        let free = |copy: &usize| copies[*copy].is_none();
        let copy = (0..copies.len()).find(fits).or_else(|| (0..copies.len()).rev().find(free));
        if let Some(copy) = copy {
            copies[copy] = Some(place);
        }
    }
    copies
}

impl<'f, 'a> Work<'f, 'a> {
    /// The node for a copy; none for one beyond those that the chain was made for.
    fn next(&self, copy: Option<usize>) -> (&'f Candidate<'a>, Reason) {
        let open: Vec<_> = self.field.candidates.iter().filter(|node| !self.spread.has_node(node.node)).collect();
        let own_host: Vec<_> = open.iter().copied().filter(|node| !self.spread.has_host(node.host)).collect();
        let hosts = if own_host.is_empty() { &open } else { &own_host };
        let primary = self.copies.first().copied().flatten().filter(|place| *place < self.chain.primaries() as usize);
        let run = copy.map_or(&[][..], |copy| self.chain.run(copy, primary.unwrap_or(0)));
        let in_run = |node: &&&Candidate<'_>| {
            self.chain.place_of(node.node).is_some_and(|place| run.binary_search_by_key(&place, |at| at.0).is_ok())
        };
        let runners = hosts.iter().filter(in_run);
        let reason = if copy == Some(0) { Reason::Primary } else { Reason::ChainRun };
        let scored = runners.map(|node| (*node, self.lack(node.node, primary))).collect();
        // The most important conditions are given up last: another host, then the run, then another rack.
        if let Some(node) = self.most(self.leaving(scored)) {
            return (node, if own_host.is_empty() { Reason::SharedHost } else { reason });
        }
        let on_chain = hosts.iter().copied().filter(|node| self.chain.place_of(node.node).is_some());
        let scored = on_chain.map(|node| (node, self.lack_of_all(node.node))).collect();
        let node =
            self.most(self.leaving(scored)).or_else(|| self.most(hosts.iter().map(|node| (*node, 0.0)).collect()));
        (node.expect("the survey counted enough candidates"), Reason::RunGivenUp)
    }

    /// Where all copies so far are in one rack, those outside it, if one of them lacks nearly as much as anybody: the
    /// rule about racks never takes a chain off its targets.
    fn leaving(&self, scored: Vec<(&'f Candidate<'a>, f64)>) -> Vec<(&'f Candidate<'a>, f64)> {
        let Some(rack) = self.spread.only_rack() else { return scored };
        let most = scored.iter().map(|one| one.1).fold(f64::NEG_INFINITY, f64::max);
        let leaves = |one: &&(&Candidate<'_>, f64)| one.0.rack != rack && one.1 >= most - RACK_LACK;
        let outside: Vec<_> = scored.iter().filter(leaves).copied().collect();
        if outside.is_empty() { scored } else { outside }
    }

    /// The node that lacks most; of equals the one that the metablock's hash comes to, so that ties favour no node.
    fn most(&self, scored: Vec<(&'f Candidate<'a>, f64)>) -> Option<&'f Candidate<'a>> {
        let tie = |node: NodeId| hash(&[node.raw(), self.ask.inode.raw(), self.ask.index, self.ask.seed]);
        let most = |one: &(&Candidate<'_>, f64), other: &(&Candidate<'_>, f64)| {
            one.1.total_cmp(&other.1).then_with(|| tie(one.0.node).cmp(&tie(other.0.node)))
        };
        scored.into_iter().max_by(most).map(|(node, _)| node)
    }

    /// Blocks that a node lacks, of all and of those of this block's primary: of all copies, as a node where one run ends
    /// and the next begins has a part in both.
    fn lack(&self, node: NodeId, primary: Option<usize>) -> f64 {
        let of_primary = primary.zip(self.chain.place_of(node)).map_or(0.0, |(primary, place)| {
            let share = self.chain.share_of_primary(place, primary);
            let primary = self.chain.nodes()[primary];
            let blocks = self.chain.tally.pair(primary, primary) + 1;
            share * blocks as f64 - self.chain.tally.pair(primary, node) as f64
        });
        self.lack_of_all(node) + of_primary
    }

    fn lack_of_all(&self, node: NodeId) -> f64 {
        let share = self.chain.place_of(node).map_or(0.0, |place| self.chain.share(place));
        share * (self.chain.tally.blocks() + 1) as f64 - self.chain.tally.on(node) as f64
    }
}
