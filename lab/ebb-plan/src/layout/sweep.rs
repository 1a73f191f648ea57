//! Reading a dataset at every number of active nodes (Rabbit, Figs. 1b and 5).

use super::balance::{self, Optimal};
use super::fluid;
use super::placement::Placement;
use super::{Layout, Setting};
use ebb_layout::targets::{equal_work, ring, simple};

/// One number of active nodes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Active nodes.
    pub active: u32,
    /// Share of blocks that some active node holds.
    pub accessible_fraction: f64,
    /// Speed of a full read in units of one server's, if everything can be read.
    pub throughput: Option<f64>,
    /// Increase of the read time against equal parts, as a share.
    pub read_time_increase: Option<f64>,
}

/// The formulas' answer for `1..=nodes` active nodes, failure-free. The geared layout has structure that shares alone
/// do not show: its whole gears count, and a gear that is not complete counts as off.
#[must_use]
pub fn fluid(setting: &Setting) -> Vec<Point> {
    let shares = shares(setting);
    let nearest = nearest_copies(setting);
    (1..=setting.nodes()).map(|active| fluid_point(setting, &shares, &nearest, active)).collect()
}

fn shares(setting: &Setting) -> Vec<f64> {
    match (setting.grid(), setting.chain()) {
        (Some(grid), _) => grid.shares(),
        (None, Some(chain)) if setting.layout() == Layout::Simple => simple::shares(chain),
        (None, Some(chain)) => equal_work::shares(chain),
        (None, None) => vec![f64::from(setting.replicas()) / f64::from(setting.nodes()); setting.nodes() as usize],
    }
}

fn fluid_point(setting: &Setting, shares: &[f64], nearest: &[u32], active: u32) -> Point {
    let primaries = setting.primaries();
    let counted = match setting.grid() {
        Some(grid) if active > primaries => active - (active - primaries) % grid.gear_size(),
        _ => active,
    };
    let accessible_fraction = match setting.layout() {
        Layout::Random => {
            let (nodes, off) = (setting.nodes().into(), (setting.nodes() - active).into());
            1.0 - fluid::inaccessible(nodes, off, setting.replicas().into())
        }
        // Neighbours on the circle are awake together: those before the place `active`.
        Layout::PowerBalanced => nearest.partition_point(|place| *place < active) as f64 / f64::from(setting.nodes()),
        _ => (f64::from(active) / f64::from(primaries)).min(1.0),
    };
    let whole = active >= setting.min_active();
    let busiest = if whole { fluid::busiest(&shares[..counted as usize]) } else { None };
    let throughput = busiest.map(|level| 1.0 / level);
    Point {
        active,
        accessible_fraction,
        throughput,
        read_time_increase: throughput.map(|speed| (f64::from(active) / speed - 1.0).max(0.0)),
    }
}

/// For each place of a first copy on the circle, the lowest place that has some copy, in ascending order.
fn nearest_copies(setting: &Setting) -> Vec<u32> {
    if setting.layout() != Layout::PowerBalanced {
        return Vec::new();
    }
    let lowest = |first| ring::evenly(setting.nodes(), setting.replicas(), first).into_iter().min().unwrap_or(0);
    let mut nearest: Vec<u32> = (0..setting.nodes()).map(lowest).collect();
    nearest.sort_unstable();
    nearest
}

/// One number of active nodes, block by block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Placed {
    /// Active nodes.
    pub active: u32,
    /// Blocks that no active node holds.
    pub unreadable: u64,
    /// Blocks that the busiest node serves, assigned optimally.
    pub busiest: u64,
    /// Blocks that the busiest node serves by the greedy balancer. `None` if a block is unreadable, or the balancer did
    /// not run.
    pub greedy_busiest: Option<u64>,
    /// Speed of a full read in units of one server's, if everything can be read.
    pub throughput: Option<f64>,
}

/// Whether the greedy balancer runs too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Greedy {
    /// It does.
    Too,
    /// It does not: it costs as much as the rest.
    No,
}

/// Laid-out blocks, nodes switched on in the order of `order`; a point after each node.
#[must_use]
pub fn placed(placement: &Placement, order: &[usize], greedy: Greedy, mut progress: impl FnMut(usize)) -> Vec<Placed> {
    let mut optimal = Optimal::new(placement);
    let mut active = vec![false; placement.nodes];
    let blocks = placement.holders.len();
    let mut points = Vec::with_capacity(order.len());
    for (index, node) in order.iter().enumerate() {
        active[*node] = true;
        optimal.switch_on(*node);
        optimal.even_out_loads();
        let busiest = optimal.loads().into_iter().max().unwrap_or(0);
        let unreadable = optimal.unreadable() as u64;
        let served = (greedy == Greedy::Too).then(|| balance::greedy(placement, &active, 0..blocks)).flatten();
        points.push(Placed {
            active: index as u32 + 1,
            unreadable,
            busiest,
            greedy_busiest: served.and_then(|loads| loads.into_iter().max()),
            throughput: (unreadable == 0).then(|| blocks as f64 / busiest.max(1) as f64),
        });
        progress(index + 1);
    }
    points
}

/// The order in which nodes are switched on: along the chain. After failures of the first `failed` primaries the nodes
/// with their data come first. With gears these are their recovery groups, without gears all nodes of the second copy.
#[must_use]
pub fn order(setting: &Setting, failed: u32) -> Vec<usize> {
    let chain: Vec<usize> = (failed as usize..setting.nodes() as usize).collect();
    if failed == 0 {
        return chain;
    }
    let primaries = setting.primaries() as usize;
    let woken: Vec<usize> = match setting.grid() {
        Some(grid) => (0..grid.recovery_group())
            .flat_map(|gear| (0..grid.gear_size()).map(move |column| (gear, column)))
            .filter(|(_, column)| (0..failed).any(|primary| grid.column(primary) == *column))
            .map(|(gear, column)| grid.node(gear, column))
            .collect(),
        None => {
            let after = setting.min_active_after_failure().unwrap_or(0) as usize + 1;
            (primaries..after.min(setting.nodes() as usize)).collect()
        }
    };
    let rest = chain.iter().copied().filter(|node| *node >= primaries && !woken.contains(node));
    chain.iter().copied().filter(|node| *node < primaries).chain(woken.iter().copied()).chain(rest).collect()
}
