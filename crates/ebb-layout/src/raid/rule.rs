//! A dataset's rule for RAID sets: its layout, its code, and where slots and rows may lie.
//!
//! | layout | a slot stays | row `i` lies |
//! |---|---|---|
//! | `random`, `striped` | with any of its members | on any other host |
//! | `simple`, `equal-work` | with its primary | in the run of the copy after those that stay, `i` runs on |
//! | `geared` | with its primary | there, in one column for all rows of a RAID set |
//! | `power-balanced` | at a place of a *turn* | at another place of the turn |
//!
//! On a chain the primaries alone have everything at hand, and rows sleep behind them. A **turn** is as many places at
//! equal distances on the circle as a RAID set has members: of `K` neighbours that are awake among `N`, `k` members are
//! from `K / N = k / n` on. With two copies there are no turns: a slot keeps two members of its spacing.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_types::{NodeId, RaidCode, Result, bail};

use super::Sites;
use super::matching::{Matching, Offer};
use super::spread::{Racks, SpreadRule};
use crate::targets::ring;
use crate::{ChainView, LayoutKind};

/// How the RAID sets of one dataset lie.
#[derive(Clone, PartialEq, Debug)]
pub struct RaidRule {
    pub(super) layout: LayoutKind,
    pub(super) chain: Option<Arc<ChainView>>,
    pub(super) spread: SpreadRule,
}

/// What distinguishes RAID sets of one rule before any member is chosen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Frame {
    /// Nothing.
    Anywhere,
    /// The column of gears in which the rows lie.
    Column(usize),
    /// The turn of the circle, by its first place.
    Turn(usize),
    /// The same, but members may lie beside their places.
    NearTurn(usize),
    /// The host of the row, which no slot of two copies may share.
    RowOn(usize),
}

impl RaidRule {
    /// `Invalid` if a layout on a chain has none, or if the code is out of bounds.
    ///
    /// Whether racks count depends on all nodes that there are: one that is down changes no rule, and its RAID sets wait.
    pub fn new(sites: &Sites<'_>, layout: LayoutKind, chain: Option<Arc<ChainView>>, code: RaidCode) -> Result<Self> {
        if let Err(why) = code.check() {
            bail!(Invalid, "{why}");
        }
        if layout.has_chain() && chain.is_none() {
            bail!(Invalid, "the layout {layout} places along an expansion chain, and none was given");
        }
        let mut rule = Self { layout, chain, spread: SpreadRule { code, racks: Racks::Enough } };
        if !rule.is_possible(sites) {
            rule.spread.racks = Racks::TooFew;
        }
        Ok(rule)
    }

    /// The rule for the members of its RAID sets.
    #[must_use]
    pub const fn spread(&self) -> SpreadRule {
        self.spread
    }

    /// The same rule where racks do not count: for a member that finds no node otherwise.
    #[must_use]
    pub fn on_any_racks(&self) -> Self {
        let spread = SpreadRule { racks: Racks::TooFew, ..self.spread };
        Self { spread, ..self.clone() }
    }

    /// The chain, if slots stay with its primaries.
    pub(super) fn primaries(&self) -> Option<&ChainView> {
        self.chain.as_deref().filter(|_| self.layout.has_primaries())
    }

    /// The circle, if members lie on its turns.
    pub(super) fn turns(&self) -> Option<&ChainView> {
        self.chain.as_deref().filter(|_| self.layout == LayoutKind::PowerBalanced && self.spread.code.copies == 1)
    }

    /// Places of a turn, in ascending order.
    pub(super) fn turn(&self, first: usize) -> Vec<usize> {
        let (members, nodes) = (self.spread.code.slots + self.spread.code.rows, self.chain_len());
        let first = u32::try_from(first).expect("a place of a circle that was counted in 32 bits");
        let mut places: Vec<usize> =
            ring::evenly(nodes, members, first).into_iter().map(|place| place as usize).collect();
        places.sort_unstable();
        places
    }

    fn chain_len(&self) -> u32 {
        let nodes = self.chain.as_ref().map_or(0, |chain| chain.nodes().len());
        u32::try_from(nodes).expect("a cluster has fewer than 2^32 nodes")
    }

    /// Nodes on which a row may lie by the layout, and the part of all rows that each should have of it, by any unit;
    /// none: any node, as large as it is.
    pub(super) fn row_nodes(&self, frame: Frame, row: u32) -> Option<Vec<(NodeId, f64)>> {
        let chain = self.chain.as_deref()?;
        match frame {
            Frame::Turn(first) => Some(self.turn(first).iter().map(|place| (chain.nodes()[*place], 1.0)).collect()),
            _ if self.layout.has_primaries() => {
                let columns = match frame {
                    Frame::Column(column) => column..column + 1,
                    _ => 0..chain.columns(),
                };
                let copy = (row + self.spread.code.copies) as usize;
                let run = columns.flat_map(|column| chain.run(copy, column));
                Some(run.map(|(place, share)| (chain.nodes()[*place], *share)).collect())
            }
            _ if self.layout.has_chain() => Some(chain.nodes().iter().map(|node| (*node, 1.0)).collect()),
            _ => None,
        }
    }

    /// Whether the nodes that there are, well or not, can hold a full RAID set by this rule.
    pub(super) fn is_possible(&self, sites: &Sites<'_>) -> bool {
        let code = self.spread.code;
        if let Some(chain) = self.primaries()
            && code.copies + code.rows > chain.replicas()
        {
            return false;
        }
        if code.copies > 1 { self.has_pairs(sites) } else { self.has_hosts(sites) }
    }

    fn has_hosts(&self, sites: &Sites<'_>) -> bool {
        let code = self.spread.code;
        if self.turns().is_some() {
            let all: Vec<usize> = (0..self.chain_len() as usize).collect();
            let members = (code.slots + code.rows) as usize;
            let in_racks = |first: &usize| {
                let places = self.turn(*first);
                self.spread.racks == Racks::TooFew || places.len() == self.hold(sites, Frame::Turn(*first), &places)
            };
            return all.len() >= members
                && self.hold(sites, Frame::Anywhere, &all) == members
                && all.iter().all(in_racks);
        }
        let Some(chain) = self.primaries() else {
            // Slots stay on localized storage nodes, whatever other nodes there are.
            let places =
                if self.layout == LayoutKind::Lsn { (0..self.chain_len() as usize).collect() } else { Vec::new() };
            return self.hold(sites, Frame::Anywhere, &places) == (code.slots + code.rows) as usize;
        };
        let primaries: Vec<usize> = (0..chain.primaries() as usize).collect();
        let members = (code.slots + code.rows) as usize;
        (0..chain.columns()).any(|column| self.hold(sites, Frame::Column(column), &primaries) == members)
    }

    /// How many of the members of a full RAID set find a host; slots may lie at these places of the chain, or anywhere.
    fn hold(&self, sites: &Sites<'_>, frame: Frame, places: &[usize]) -> usize {
        let code = self.spread.code;
        let mut matching = Matching::new(sites.racks_by_host().to_vec(), self.rack_most());
        let on = |nodes: &mut dyn Iterator<Item = NodeId>| -> Vec<Offer> {
            nodes.filter_map(|node| Some(Offer { spot: sites.host_of(node)?, cost: 0 })).collect()
        };
        let anywhere = || on(&mut sites.nodes().map(|(node, _)| node));
        let slot = match &self.chain {
            Some(chain) if !places.is_empty() => on(&mut places.iter().map(|place| chain.nodes()[*place])),
            _ => anywhere(),
        };
        let row = |row: u32| match self.row_nodes(frame, row) {
            Some(nodes) => on(&mut nodes.into_iter().map(|one| one.0)),
            None => slot.clone(),
        };
        let rows = (0..code.rows).map(row);
        let items: Vec<Vec<Offer>> = rows.chain((0..code.slots).map(|_| slot.clone())).collect();
        items.into_iter().map(|item| usize::from(matching.add(item))).sum()
    }

    /// Most members of one RAID set in a rack.
    pub(super) fn rack_most(&self) -> usize {
        match self.spread.racks {
            Racks::Enough => self.spread.code.rows as usize,
            Racks::TooFew => usize::MAX,
        }
    }

    /// Whether beside some row there are as many pairs of hosts as slots.
    fn has_pairs(&self, sites: &Sites<'_>) -> bool {
        let rows: Vec<usize> = match self.row_nodes(Frame::Anywhere, 0) {
            Some(nodes) => nodes.into_iter().filter_map(|(node, _)| sites.host_of(node)).collect(),
            None => (0..sites.host_count()).collect(),
        };
        rows.into_iter().any(|row| self.pairs_beside(sites, row) >= self.spread.code.slots as usize)
    }

    /// Pairs of hosts on which a slot of two copies may lie, where the row is on this one.
    fn pairs_beside(&self, sites: &Sites<'_>, row: usize) -> usize {
        let racks = sites.racks_by_host();
        let is_pair = |(one, two): &(usize, usize)| {
            let is_apart = self.spread.racks == Racks::TooFew || racks[*one] != racks[*two];
            one != two && *one != row && *two != row && is_apart
        };
        match self.chain.as_deref() {
            None => {
                let hosts = 0..sites.host_count();
                let all = hosts.clone().flat_map(|one| (one + 1..hosts.end).map(move |two| (one, two)));
                all.filter(is_pair).count()
            }
            Some(chain) => {
                let host = |place: usize| sites.host_of(chain.nodes()[place]);
                let pairs = self.chain_pairs(chain).into_iter();
                let pairs = pairs.filter_map(|(one, two)| Some((host(one)?, host(two)?))).filter(is_pair);
                pairs.map(|(one, two)| (one.min(two), one.max(two))).collect::<BTreeSet<_>>().len()
            }
        }
    }

    /// Pairs of places that two copies of a block have: a primary and one of the next run, or two of a spacing.
    fn chain_pairs(&self, chain: &ChainView) -> Vec<(usize, usize)> {
        if let Some(circle) = chain.circle() {
            let of_spacing = |spacing: usize| {
                let places = circle.places(spacing);
                places.iter().enumerate().flat_map(|(at, one)| places[at + 1..].iter().map(|two| (*one, *two)))
            };
            return circle.all().flat_map(of_spacing).collect();
        }
        let primaries = 0..chain.primaries() as usize;
        primaries.flat_map(|primary| chain.run(1, primary).iter().map(move |(place, _)| (primary, *place))).collect()
    }
}
