//! Back to the chain's distribution after a failure (Rabbit, Sec. 3.5: availability, then durability, then *layout*).
//!
//! While a node of the chain is gone its copies are made again where the layout finds room for them. When it is back,
//! or another stands in its place, they lie where they do not belong, and it has less than its share. [`choose_shift`]
//! names one copy of a block that is to go elsewhere, and where to: every step brings a copy into its run, or two nodes
//! nearer to their shares, so that the steps come to an end. Blocks that were written while a primary was gone have
//! their first copy with another one, and under gears all others in that one's columns: such blocks change over, their
//! first copy first. [`check_off`] counts the moves that are left. The circle of the power-balanced layout has no runs;
//! its rule is in `on_circle`. That of localized storage nodes is in `between_halves`.

use std::fmt;

use ebb_types::NodeId;

use crate::LayoutKind;
use crate::chain::ChainView;

mod between_halves;
mod on_circle;

/// A node that is away from its share by less than this part of it, or by less than so many blocks for each further copy, is
/// where online placement leaves it.
const SLACK_PART: f64 = 0.02;
const SLACK_BLOCKS: f64 = 2.0;
/// Blocks that a column may lack more than another one, for each copy that a block would have to leave behind there.
const COPY_WEIGHT: f64 = SLACK_BLOCKS;
/// Blocks that a node of a column may have beyond that, when no column has enough to give one away.
const COLUMN_SLACK: f64 = 1.0;
/// Blocks that a column may lack more than another one, for each further copy that would have to wait for a node there: more than
/// online placement leaves.
const WAIT_WEIGHT: f64 = SLACK_BLOCKS + COLUMN_SLACK;
/// So that rounding sends no block back to where it came from, and calls none misplaced.
const ROUNDING: f64 = 0.01;

/// One copy to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shift {
    /// The node whose copy goes.
    pub from: NodeId,
    /// The node that gets it.
    pub to: NodeId,
    /// Why.
    pub reason: ShiftReason,
}

/// Why a copy is to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShiftReason {
    /// It lies on a node that none of this block's copies may lie on.
    OutOfRun,
    /// Its node has more than its share, or the other one less.
    Share,
    /// Its primary's columns have too many blocks; the further copies follow.
    Column,
    /// It lies off the places on the circle that its block is for.
    OffCircle,
    /// These places on the circle have too many blocks; the further copies follow.
    Spacing,
    /// All copies lie in one half of the localized storage nodes.
    OneHalf,
}

impl fmt::Display for ShiftReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfRun => "the copy lies outside its run",
            Self::Share => "the copy's node has more of its share than the other",
            Self::Column => "the primary's columns have more of their share than the other's",
            Self::OffCircle => "the copy lies off its block's places on the circle",
            Self::OneHalf => "all copies lie in one half of the localized storage nodes",
            Self::Spacing => "the block's places on the circle have more blocks than others",
        })
    }
}

/// Whether a block's copies, by their homes in the order of its record, are all within their runs, or in their places on
/// the circle.
#[must_use]
pub fn is_in_runs(chain: &ChainView, homes: &[NodeId]) -> bool {
    if let Some(circle) = chain.circle() {
        return on_circle::is_whole(chain, circle, homes);
    }
    if chain.layout() == LayoutKind::Lsn {
        return between_halves::is_whole(chain, homes);
    }
    !chain.layout().has_primaries()
        || columns(chain).any(|column| Fit::of(chain, homes, column).matched >= chain.replicas() as usize)
}

/// How many copies have to move at least so that each node has its share, as near as online placement comes. Of layouts
/// that place anywhere, or by the writer: none.
#[must_use]
pub fn check_off(chain: &ChainView) -> u64 {
    if !chain.layout().has_chain() || chain.layout() == LayoutKind::Lsn {
        return 0;
    }
    // Others lack a node's surplus, but not each of them by more than it may: the larger of the two is to move.
    let beyond = |sign: f64, more: f64| -> f64 {
        let over = |node: &NodeId| sign * lack(chain, *node) - slack(chain, *node) - more - ROUNDING;
        chain.nodes().iter().map(|node| over(node).max(0.0).ceil()).sum()
    };
    // Columns keep a surplus that is smaller than the worth of a change over.
    let more = if chain.circle().is_some() { 0.0 } else { COLUMN_SLACK };
    beyond(1.0, 0.0).max(beyond(-1.0, more)) as u64
}

/// The next move for one block, whose copies are at home; none: it is as it should be, or no node for which `may_take`
/// holds would bring it nearer. Blocks that lack copies are repair's.
#[must_use]
pub fn choose_shift(chain: &ChainView, homes: &[NodeId], may_take: impl Fn(NodeId) -> bool) -> Option<Shift> {
    if !chain.layout().has_chain() || homes.len() != chain.replicas() as usize {
        return None;
    }
    if let Some(circle) = chain.circle() {
        return on_circle::choose_shift(chain, circle, homes, &may_take);
    }
    if chain.layout() == LayoutKind::Lsn {
        return between_halves::choose_shift(chain, homes, &may_take);
    }
    let fits = columns(chain).map(|column| Fit::of(chain, homes, column));
    let weight = |fit: &Fit| fit.weight(chain, homes, &may_take);
    // Of equals the first: the same question has one answer.
    let better = |one: Fit, other: Fit| if weight(&other) > weight(&one) { other } else { one };
    if fits.clone().any(|fit| fit.matched == homes.len()) {
        return to_share(chain, homes, &may_take);
    }
    // A node that cannot take it now may be able to later: another column would have too many then.
    fits.reduce(better)?.fill_run(chain, homes, &may_take)
}

/// Moves the first copy of a block that is in its runs to a primary of a column that lacks blocks, or a copy to other
/// places on the circle; none: there are no such columns or places. To be asked when no block lies outside its runs,
/// for until then columns lack copies that are about to come. A block moved in this way lies outside its runs itself,
/// and [`choose_shift`] has its further copies follow.
#[must_use]
pub fn choose_change(chain: &ChainView, homes: &[NodeId], may_take: impl Fn(NodeId) -> bool) -> Option<Shift> {
    if !chain.layout().has_chain() || homes.len() != chain.replicas() as usize {
        return None;
    }
    if let Some(circle) = chain.circle() {
        return on_circle::choose_change(chain, circle, homes, &may_take);
    }
    if chain.layout() == LayoutKind::Lsn {
        return None;
    }
    let whole = columns(chain).map(|column| Fit::of(chain, homes, column)).find(|fit| fit.matched == homes.len())?;
    let from = whole.copies.first().copied().flatten()?;
    // With one block more here and one less there this column still weighs more than the one that has all further copies.
    let apart = slack_blocks(chain) + ROUNDING;
    let lacks_more = |column: &usize| column_lack(chain, *column) - column_lack(chain, whole.column) >= apart;
    let fits = columns(chain).filter(lacks_more).map(|column| Fit::of(chain, homes, column));
    // A block whose further copies could not follow would lie between two columns.
    let fits = fits.filter(|fit| fit.waiting(chain, homes, &may_take) == 0);
    let needy = fits.filter_map(|fit| fit.neediest(chain, homes, 0, &may_take));
    let most = needy.reduce(|one, other| if other.1 > one.1 { other } else { one });
    let due = |(to, lacks): &(NodeId, f64)| {
        let over = -lack(chain, from);
        lacks + over >= apart && (*lacks > slack(chain, *to) || over > slack(chain, from))
    };
    most.filter(due).map(|(to, _)| Shift { from, to, reason: ShiftReason::Column })
}

/// Blocks that the primaries of a column have less than their shares.
fn column_lack(chain: &ChainView, column: usize) -> f64 {
    let primaries = chain.nodes().iter().take(chain.primaries() as usize).skip(column).step_by(chain.columns());
    primaries.map(|node| lack(chain, *node)).sum()
}

/// Moves a copy from a node with too much to a node with too little, so that all of them are in runs still. Which copy
/// a node in two runs has does not matter.
fn to_share(chain: &ChainView, homes: &[NodeId], may_take: &impl Fn(NodeId) -> bool) -> Option<Shift> {
    let others = chain.nodes().iter().filter(|node| !homes.contains(node) && may_take(**node));
    let mut needy: Vec<(NodeId, f64)> = others.map(|node| (*node, lack(chain, *node))).collect();
    needy.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    let mut richest: Vec<(NodeId, f64)> = homes.iter().map(|node| (*node, -lack(chain, *node))).collect();
    richest.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    let pairs = needy.iter().flat_map(|needy| richest.iter().map(move |rich| (*needy, *rich)));
    // The sum of all nodes' squared distances from their shares falls with each step: so the steps come to an end. A
    // node that has its share may pass a copy on, for where two runs meet a surplus of one comes to the other in two
    // steps.
    let mut due = pairs.filter(|((to, lack), (from, over))| {
        lack + over >= 2.0 && (*lack > slack(chain, *to) || *over > slack(chain, *from))
    });
    let fits = |from: NodeId, to: NodeId| {
        let moved: Vec<NodeId> = homes.iter().map(|node| if *node == from { to } else { *node }).collect();
        is_in_runs(chain, &moved)
    };
    let found = due.find(|((to, _), (from, _))| fits(*from, *to));
    found.map(|((to, _), (from, _))| Shift { from, to, reason: ShiftReason::Share })
}

/// Columns that a block's primary may be in.
fn columns(chain: &ChainView) -> impl Iterator<Item = usize> + Clone {
    0..chain.columns()
}

/// The copies of one block, if its primary were in this column.
struct Fit {
    column: usize,
    /// The node that has each copy, if there is one in its run.
    copies: Vec<Option<NodeId>>,
    matched: usize,
}

impl Fit {
    fn of(chain: &ChainView, homes: &[NodeId], column: usize) -> Self {
        let mut left: Vec<(usize, NodeId)> =
            homes.iter().filter_map(|node| Some((chain.place_of(*node)?, *node))).collect();
        // Runs follow each other and share a node at most: it is left for the second run. Of the others the one with most blocks
        // beyond its share is left, so that its copy is the one to go.
        let take = |copy: usize| {
            let is_shared = |place: usize| is_in_run(chain, copy + 1, column, place);
            let homes = left.iter().enumerate().filter(|(_, (place, _))| is_in_run(chain, copy, column, *place));
            let (at, _) = homes.min_by(|(_, (place, node)), (_, (other_place, other))| {
                let by_lack = lack(chain, *other).total_cmp(&lack(chain, *node));
                is_shared(*place).cmp(&is_shared(*other_place)).then(by_lack).then(place.cmp(other_place))
            })?;
            Some(left.swap_remove(at).1)
        };
        let copies: Vec<Option<NodeId>> = (0..chain.replicas() as usize).map(take).collect();
        let matched = copies.iter().flatten().count();
        Self { column, copies, matched }
    }

    /// The weight of this column: the blocks that its primaries lack, the copies that are there already, and those that would
    /// have to wait.
    fn weight(&self, chain: &ChainView, homes: &[NodeId], may_take: &impl Fn(NodeId) -> bool) -> f64 {
        let waiting = self.waiting(chain, homes, may_take) as f64;
        column_lack(chain, self.column) + COPY_WEIGHT * self.matched as f64 - WAIT_WEIGHT * waiting
    }

    /// Number of further copies that no node of their run can take now. A primary is soon on.
    fn waiting(&self, chain: &ChainView, homes: &[NodeId], may_take: &impl Fn(NodeId) -> bool) -> usize {
        let lacking = (1..self.copies.len()).filter(|copy| self.copies[*copy].is_none());
        lacking.filter(|copy| self.neediest(chain, homes, *copy, may_take).is_none()).count()
    }

    /// Brings a copy that is in no run into the first that has none.
    fn fill_run(&self, chain: &ChainView, homes: &[NodeId], may_take: &impl Fn(NodeId) -> bool) -> Option<Shift> {
        let copy = self.copies.iter().position(Option::is_none)?;
        let (to, _) = self.neediest(chain, homes, copy, may_take)?;
        let strays = homes.iter().copied().filter(|node| !self.copies.contains(&Some(*node)));
        let from = strays.min_by(|one, other| lack(chain, *one).total_cmp(&lack(chain, *other)))?;
        Some(Shift { from, to, reason: ShiftReason::OutOfRun })
    }

    /// The node that lacks most, of those that a copy may lie on and that have none of this block.
    fn neediest(
        &self,
        chain: &ChainView,
        homes: &[NodeId],
        copy: usize,
        may_take: &impl Fn(NodeId) -> bool,
    ) -> Option<(NodeId, f64)> {
        let run = chain.run(copy, self.column).iter().map(|(place, _)| *place);
        let places = run.filter(|place| is_in_run(chain, copy, self.column, *place));
        let nodes = places.map(|place| chain.nodes()[place]).filter(|node| !homes.contains(node) && may_take(*node));
        let scored = nodes.map(|node| (node, lack(chain, node)));
        scored.max_by(|one, other| one.1.total_cmp(&other.1).then(other.0.cmp(&one.0)))
    }
}

/// Whether a copy may lie at a place if its primary is in this column; of the primaries those in the column are meant.
fn is_in_run(chain: &ChainView, copy: usize, column: usize, place: usize) -> bool {
    let is_own = copy > 0 || place % chain.columns() == column;
    is_own && chain.run(copy, column).binary_search_by_key(&place, |at| at.0).is_ok()
}

/// Blocks that a node has less than its share; below zero: more.
fn lack(chain: &ChainView, node: NodeId) -> f64 {
    share(chain, node) - chain.tally.on(node) as f64
}

fn slack(chain: &ChainView, node: NodeId) -> f64 {
    (share(chain, node) * SLACK_PART).max(slack_blocks(chain))
}

fn slack_blocks(chain: &ChainView) -> f64 {
    SLACK_BLOCKS * f64::from(chain.replicas().max(2) - 1)
}

fn share(chain: &ChainView, node: NodeId) -> f64 {
    chain.place_of(node).map_or(0.0, |place| chain.share(place)) * chain.tally.blocks() as f64
}

#[cfg(test)]
mod tests;
