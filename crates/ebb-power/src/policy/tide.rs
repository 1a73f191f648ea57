//! Gear down, then blink: Ebb's own policy.
//!
//! While the cover can be powered, it is activation: whole nodes without a transition, and every block in reach at
//! every moment. With less power the nodes of the cover take turns around the circle. All nodes take turns instead if
//! that gives a better chance that a block can be read at once. Then more copies blink, but each node's turn is
//! shorter, and more of it goes into transitions. One layout serves both.
//!
//! A few nodes can go around their circle in less time than all nodes would. The length of a turn with all nodes
//! blinking is worth a wake, so the nodes of the cover get turns of that length, and several rounds in an interval.
//! Reads then wait for a part of the time, no node wakes for a shorter time than when all blink, and the cluster has no
//! more starts.

use std::collections::BTreeSet;

use ebb_types::NodeId;

use super::activation::{choose_active, on_for_good};
use super::circular::{blink, most_at_once};
use super::fit::even_share;
use super::{Ask, Schedule, Timing};
use crate::chain::{ChainShape, DatasetChain};

/// Shorter intervals are not divided, because wakes would have to be exact to fractions of a second.
const DIVIDED_MS_LEAST: u64 = 10_000;

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    let cover = cover(ask);
    if ask.affords(ask.extra_of(&cover)) {
        let active = choose_active(ask);
        let why = format!("{} of {} nodes on, {} hold everything", active.on.len(), ask.living().len(), cover.len());
        return on_for_good(ask, active, why);
    }
    let all = ask.turns();
    let cover: Vec<NodeId> =
        all.iter().copied().filter(|node| cover.contains(node) || ask.late.contains(node)).collect();
    let few = blink(ask, &cover);
    if all.len() == cover.len() || cover.is_empty() {
        return few;
    }
    let many = blink(ask, &all);
    let (of_few, of_many) = (chance(ask, &few, &cover, Blinking::Cover), chance(ask, &many, &all, Blinking::All));
    if of_many > of_few { many } else { in_rounds(ask, &cover, all.len()).unwrap_or(few) }
}

/// The cover's nodes with turns as long as those of all nodes would be, in several rounds in an interval. `None` if
/// only one round fits.
fn in_rounds(ask: &Ask<'_>, cover: &[NodeId], all: usize) -> Option<Schedule> {
    let (interval_ms, at_once) = (ask.timing.interval_ms, most_at_once(ask, cover) as u64);
    let turn_ms = |rounds: u64| interval_ms * at_once / (rounds * cover.len() as u64);
    // The time of every node if all of them blinked (BlinkFS, Sec. 4.2).
    let least_ms = ((interval_ms as f64 * even_share(ask)) as u64).max(ask.least_active_of(cover) + 1);
    let most = (all / cover.len()) as u64;
    let fits = |rounds: &u64| interval_ms.is_multiple_of(*rounds) && turn_ms(*rounds) >= least_ms;
    let rounds = (2..=most).rev().find(fits).filter(|_| at_once > 0 && interval_ms >= DIVIDED_MS_LEAST)?;
    let timing = Timing { interval_ms: interval_ms / rounds, ..ask.timing };
    let mut schedule = blink(&Ask { timing, ..*ask }, cover);
    schedule.why.push_str(&format!(", {rounds} rounds in {interval_ms} ms"));
    Some(schedule)
}

/// Nodes that together hold everything, in blink order.
fn cover(ask: &Ask<'_>) -> Vec<NodeId> {
    let needed: BTreeSet<NodeId> = ask.chains.iter().flat_map(|chain| chain.cover(ask.dead)).collect();
    if ask.chains.is_empty() {
        return ask.living();
    }
    ask.living().into_iter().filter(|node| needed.contains(node)).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Blinking {
    /// The cover: it has at least one copy of each block.
    Cover,
    /// All nodes, all copies.
    All,
}

/// Chance that a block can be read at once, as the mean of the datasets: the chance that one of its copies is powered,
/// times the share of powered time in which a node serves.
fn chance(ask: &Ask<'_>, schedule: &Schedule, nodes: &[NodeId], blinking: Blinking) -> f64 {
    let active = |node: &NodeId| schedule.duties.get(node).map_or(0, |duty| duty.active_ms(schedule.interval_ms));
    let powered: u64 = nodes.iter().map(active).sum();
    if powered == 0 {
        return 0.0;
    }
    let lost: u64 = nodes.iter().filter(|node| active(node) > 0).map(|node| ask.power(*node).transition_ms()).sum();
    let serving = powered.saturating_sub(lost) as f64 / powered as f64;
    let share = powered as f64 / (schedule.interval_ms as f64 * nodes.len() as f64);
    let at_once = most_at_once(ask, nodes);
    let of = |chain: &DatasetChain| match blinking {
        Blinking::Cover => share,
        Blinking::All if at_once == 0 => (share * f64::from(chain.replicas())).min(1.0),
        Blinking::All => awake_copy(chain, at_once, nodes.len()),
    };
    let sum: f64 = ask.chains.iter().map(of).sum();
    serving * sum / ask.chains.len().max(1) as f64
}

/// Chance that one of a block's copies is among `at_once` of `nodes` neighbours.
fn awake_copy(chain: &DatasetChain, at_once: usize, nodes: usize) -> f64 {
    let (copies, count) = (f64::from(chain.replicas()), nodes as f64);
    match chain.shape() {
        // Copies are far apart, so the windows in which they are awake hardly overlap.
        ChainShape::Ring => (copies * at_once as f64 / count).min(1.0),
        // Copies anywhere: `1 - C(n - k, r) / C(n, r)`.
        _ => {
            1.0 - (0..chain.replicas())
                .map(|copy| {
                    let left = (count - at_once as f64 - f64::from(copy)).max(0.0);
                    left / (count - f64::from(copy)).max(1.0)
                })
                .product::<f64>()
        }
    }
}
