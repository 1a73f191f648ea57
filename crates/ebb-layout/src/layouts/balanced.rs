//! The power-balanced layout: copies far apart on the circle of nodes in the order in which they wake (BlinkFS, Sec.
//! 4.2), so that few neighbours have to be awake for every block to be in reach.
//!
//! The copies that a dataset has for good lie at equal distances: on the places of one *spacing*. A copy beyond that
//! number, of a block that is read often, halves a widest gap. It leaves the spacing's places free, so that it is never
//! in the way of a copy that belongs there.
//!
//! The paper draws the first copy's node at random. Here the spacings take turns, which keeps all nodes equally full.
//!
//! Where a node is missing, the copy of its place lies beside that place. So when the node is back, this copy alone has
//! to move. Of the nodes that could take it, it is one that leaves the widest gap between *living* nodes narrowest,
//! because only living nodes take turns. Of several it is the one that has least.

use std::cmp::Reverse;

use ebb_types::NodeId;

use crate::chain::ChainView;
use crate::chain::circle::Circle;
use crate::field::{Candidate, Field, Spread};
use crate::rng::{Rng, hash};
use crate::targets::ring::{Openness, widest_gap_after};
use crate::{Ask, Plan, Reason};

mod turns;

/// Places missing copies. The field has at least as many candidates; the ask has a chain.
pub fn place(field: &Field<'_>, ask: &Ask) -> Plan {
    let chain = &**ask.chain.as_ref().expect("`choose` asked for the chain");
    let mut rng = Rng::new(&[ask.seed, ask.inode.raw(), ask.index]);
    let mut plan = Plan::default();
    let mut work = Work::new(field, chain, ask);
    for _ in 0..ask.missing() {
        let (node, reason) = work.next();
        work.taken.extend(chain.place_of(node.node));
        work.missing = work.missing.saturating_sub(1);
        plan.members.push(work.spread.place_on(node.pick_volume(&mut rng), reason));
    }
    plan
}

/// Copies being placed.
struct Work<'f, 'a> {
    field: &'f Field<'a>,
    chain: &'f ChainView,
    spread: Spread<'a>,
    /// Places with a copy.
    taken: Vec<usize>,
    /// All places of the block's spacing, from one on that is drawn for the block: first copies are on all nodes.
    spacing: Vec<usize>,
    /// By place: how many living nodes the circle has up to it.
    turns: Vec<u32>,
    /// Copies that the block lacks of those that it has for good.
    missing: u32,
    /// The widest gap with all nodes, and every copy in its place.
    evenly: u32,
    /// Whether the copies are beyond the number that the dataset has for good.
    is_extra: bool,
}

impl<'f, 'a> Work<'f, 'a> {
    fn new(field: &'f Field<'a>, chain: &'f ChainView, ask: &Ask) -> Self {
        let circle = chain.circle().expect("the power-balanced layout has a circle");
        let taken: Vec<usize> = ask.present.iter().filter_map(|(node, _)| chain.place_of(*node)).collect();
        let mut spacing = choose_spacing(field, chain, circle, &taken, ask);
        let turned = hash(&[ask.seed, ask.inode.raw(), ask.index]) % spacing.len().max(1) as u64;
        spacing.rotate_left(usize::try_from(turned).expect("below a length that is a usize"));
        let mut living = 0;
        let turn = |node: &NodeId| {
            living += u32::from(field.usable.contains(node));
            living
        };
        let turns = chain.nodes().iter().map(turn).collect();
        let count = |count: usize| u32::try_from(count).expect("a cluster has fewer than 2^32 nodes");
        let missing = chain.replicas().saturating_sub(count(ask.present.len()));
        let evenly = count(chain.nodes().len()).div_ceil(chain.replicas().max(1));
        let is_extra = ask.replicas > chain.replicas() as usize;
        Self { field, chain, spread: field.spread(), taken, spacing, turns, missing, evenly, is_extra }
    }

    /// The node for the next copy.
    fn next(&self) -> (&'f Candidate<'a>, Reason) {
        let open: Vec<_> = self.field.candidates.iter().filter(|node| !self.spread.has_node(node.node)).collect();
        let own_host: Vec<_> = open.iter().copied().filter(|node| !self.spread.has_host(node.host)).collect();
        let hosts = if own_host.is_empty() { &open } else { &own_host };
        let on_circle = hosts.iter().copied().filter_map(|node| Some((self.chain.place_of(node.node)?, node)));
        let best = match self.is_extra {
            false => on_circle.min_by_key(|(place, node)| self.rank(*place, node.node)),
            true => on_circle.min_by_key(|(place, node)| self.rank_extra(*place, node.node)),
        };
        let Some((place, node)) = best else {
            return (hosts.first().expect("the survey counted enough candidates"), Reason::RunGivenUp);
        };
        let reason = match (self.is_extra, self.spacing.contains(&place)) {
            (true, _) => Reason::CircleGap,
            (false, true) if own_host.is_empty() => Reason::SharedHost,
            (false, true) => Reason::CirclePlace,
            (false, false) => Reason::CircleNext,
        };
        (node, reason)
    }

    /// The spacing's places without a copy, in order.
    fn due(&self) -> impl Iterator<Item = usize> + '_ {
        self.spacing.iter().copied().filter(|place| !self.taken.contains(place))
    }

    /// The lesser, the better a place is for a copy that the block has for good. First, no gap may become wider than with
    /// all nodes, when the copies that still lack have come too. Then a place of the spacing counts, then a narrow gap,
    /// then the node that has least.
    fn rank(&self, place: usize, node: NodeId) -> impl Ord + use<> {
        let (nodes, copies) = self.with(place);
        let widest = widest_gap_after(nodes, &copies, self.missing.saturating_sub(1));
        let openness = Openness::of(nodes, &copies);
        let turn = self.due().position(|due| due == place).map(|turn| (openness, turn));
        (widest.max(self.evenly), turn.is_none(), turn, widest, self.chain.tally.on(node), openness, place)
    }

    /// The same for a copy beyond them. A place that another copy of the block belongs to is the last to take.
    fn rank_extra(&self, place: usize, node: NodeId) -> impl Ord + use<> {
        let (nodes, copies) = self.with(place);
        (self.due().any(|due| due == place), Openness::of(nodes, &copies), self.chain.tally.on(node), place)
    }

    /// How many nodes take turns, and which of them have a copy with one more at this place.
    fn with(&self, place: usize) -> (u32, Vec<u32>) {
        let is_living = |place: &usize| self.field.usable.contains(&self.chain.nodes()[*place]);
        let copies = self.taken.iter().copied().filter(is_living).chain([place]);
        let copies = copies.map(|place| self.turns[place].saturating_sub(1)).collect();
        (self.turns.last().copied().unwrap_or(1).max(1), copies)
    }
}

/// The places that a block's copies are for. With copies on the circle: the spacing of the first one that most of them
/// are in ([`Circle::aim`]), and of several one whose other nodes can take a copy. A new block has the next in turn.
fn choose_spacing(field: &Field<'_>, chain: &ChainView, circle: &Circle, taken: &[usize], ask: &Ask) -> Vec<usize> {
    let mut open = vec![false; chain.nodes().len()];
    field.candidates.iter().filter_map(|node| chain.place_of(node.node)).for_each(|place| open[place] = true);
    let due = |number: usize| circle.places(number).iter().copied().filter(|place| !taken.contains(place));
    let missing = |number: usize| due(number).filter(|place| !open[*place]).count();
    let stored = |number: usize| due(number).map(|place| chain.tally.on(chain.nodes()[place])).sum::<u64>();
    let tie = |number: usize| hash(&[number as u64, ask.inode.raw(), ask.index, ask.seed]);
    let chosen = match taken.first() {
        Some(lead) => circle.with(*lead).iter().copied().min_by_key(|number| {
            (Reverse(circle.matched(*number, taken)), missing(*number), stored(*number), tie(*number))
        }),
        None => {
            let turns = turns::of(chain, circle, &open).into_iter();
            turns.min_by_key(|(number, came)| (*came, stored(*number), tie(*number))).map(|(number, _)| number)
        }
    };
    chosen.map_or_else(Vec::new, |number| circle.places(number).to_vec())
}

#[cfg(test)]
mod tests;
