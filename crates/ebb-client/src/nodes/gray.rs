//! Finds members that take far longer than their peers, for this client and for its reports to the master.
//!
//! The same write, or the same sync, goes to all members of a set at a time. The times that they take are a *round*.
//! A member is slow if it takes five times as long as most of the others, and 50 ms. So no member is blamed for a
//! client that gets no processor, for a file that takes long everywhere, or for a busy cluster. Rounds are counted in
//! slots of half a second, by their sums, because many answers at one moment say no more than one. A member is slow
//! if it was slow in nearly all slots for three seconds.
//!
//! A member that stops again and again, and is quick between its stops, has few slow rounds, but callers spend most
//! of their time in these. So the time of a round is also weighted by itself: as a moment drawn at random sees it.
//!
//! A member that is not written to any more, because it was slow, is asked something small twice a second, and another one with it.
//! Plain values: moments come in as arguments. Whether a node counts as gray, the master decides.

mod run;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ebb_runtime::Moment;

pub(crate) use run::{Gray, Round, run};

/// Less is not slow, whatever others take.
const FLOOR: Duration = Duration::from_millis(50);
/// A member is slow from this multiple of most others' time.
const RATIO: u32 = 5;
/// A member whose rounds are short in the mean is slow if callers waited for it this long within a slot: half of it.
const HELD_UP: Duration = Duration::from_millis(250);
/// Length of a slot: rounds in it are counted together.
pub(crate) const SLOT: Duration = Duration::from_millis(500);
/// Slots that are remembered.
const SLOTS: u64 = 24;
/// Number of slow slots for a verdict, and least number of slots from the first to the last. A member that takes seconds for
/// each round has few of them.
const SLOW_MIN: usize = 3;
const APART_MIN: u64 = 6;
/// Least number of slow slots among a hundred with rounds.
const SLOW_PERCENT: usize = 75;
/// A node without writes is well after this many answered pings, with this many quick ones in a hundred.
const ASKED_MIN: usize = 12;
const QUICK_PERCENT: usize = 90;

/// What rounds took at a node, by time, and at its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Figure {
    pub took: Duration,
    pub peers: Duration,
}

/// The rounds of half a second.
#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    rounds: u32,
    /// All rounds together.
    took: Duration,
    peers: Duration,
    /// The squares of what rounds took, in square seconds.
    squares: f64,
}

impl Slot {
    fn is_slow(&self) -> bool {
        let is_long = self.took >= FLOOR * self.rounds;
        let stops = self.took_by_time() >= FLOOR && self.took.saturating_sub(self.peers) >= HELD_UP;
        self.took >= self.peers * RATIO && (is_long || stops)
    }

    /// The mean over time, not over rounds.
    fn took_by_time(&self) -> Duration {
        by_time(self.squares, self.took)
    }
}

/// What rounds with these squares and this sum take, as a moment drawn at random sees it.
fn by_time(squares: f64, took: Duration) -> Duration {
    if took.is_zero() { took } else { Duration::from_secs_f64(squares / took.as_secs_f64()) }
}

#[derive(Debug, Default)]
struct Node {
    slots: VecDeque<Slot>,
    /// Slots in which it was asked something small, and whether it answered quickly.
    asked: VecDeque<(u64, bool)>,
    slow: Option<Figure>,
}

/// This client's recent timings.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    nodes: BTreeMap<u64, Node>,
}

fn slot_of(now: Moment) -> u64 {
    u64::try_from(now.since(Moment::default()).as_millis() / SLOT.as_millis()).unwrap_or(u64::MAX)
}

impl Evidence {
    /// The members of a set have answered the same write or sync, each after its time.
    pub fn on_round(&mut self, answers: &[(u64, Duration)], now: Moment) {
        if answers.len() < 2 {
            return;
        }
        for (node, took) in answers {
            let mut others: Vec<Duration> =
                answers.iter().filter(|(other, _)| other != node).map(|(_, took)| *took).collect();
            others.sort_unstable();
            // Of two the slower one: it is not to be blamed that one is very quick.
            let peers = others[others.len() / 2];
            self.nodes.entry(*node).or_default().add(slot_of(now), *took, peers);
        }
    }

    /// A slow node was asked something small, and another one with it; none: no answer.
    pub fn on_asked(&mut self, node: u64, took: Option<Duration>, other: Option<Duration>, now: Moment) {
        let Some(known) = self.nodes.get_mut(&node) else { return };
        let is_quick = took.is_some_and(|took| took < FLOOR / 2 || other.is_some_and(|other| took < other * 2));
        known.asked.push_back((slot_of(now), is_quick));
    }

    /// This process got no processor for a while: its timings since then mean nothing.
    pub fn on_starved(&mut self, since: Moment) {
        let first = slot_of(since);
        for node in self.nodes.values_mut() {
            node.slots.retain(|slot| slot.number < first);
            node.asked.retain(|(number, _)| *number < first);
        }
    }

    /// Computes the slow members anew. True: they have changed.
    pub fn find_slow(&mut self, now: Moment) -> bool {
        let oldest = slot_of(now).saturating_sub(SLOTS);
        let mut is_news = false;
        for node in self.nodes.values_mut() {
            node.slots.retain(|slot| slot.number >= oldest);
            node.asked.retain(|(number, _)| *number >= oldest);
            let slow = node.find();
            is_news |= slow.is_some() != node.slow.is_some();
            if node.slow.is_some() && slow.is_none() {
                node.asked.clear();
            }
            node.slow = slow;
        }
        self.nodes.retain(|_, node| node.slow.is_some() || !node.slots.is_empty());
        is_news
    }

    /// Whether there is nothing to judge.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Slow nodes.
    pub fn slow(&self) -> impl Iterator<Item = (u64, Figure)> + '_ {
        self.nodes.iter().filter_map(|(node, known)| Some((*node, known.slow?)))
    }

    /// Nodes that were timed in several slots lately, and are not slow.
    pub fn well(&self) -> impl Iterator<Item = u64> + '_ {
        let is_well = |known: &Node| {
            let quick = known.slots.iter().filter(|slot| !slot.is_slow()).count();
            known.slow.is_none() && quick >= SLOW_MIN && quick * 2 > known.slots.len()
        };
        self.nodes.iter().filter(move |(_, known)| is_well(known)).map(|(node, _)| *node)
    }
}

impl Node {
    fn add(&mut self, number: u64, took: Duration, peers: Duration) {
        if self.slots.back().is_none_or(|slot| slot.number != number) {
            let empty = Slot { number, rounds: 0, took: Duration::ZERO, peers: Duration::ZERO, squares: 0.0 };
            self.slots.push_back(empty);
        }
        let slot = self.slots.back_mut().expect("pushed just now");
        slot.rounds += 1;
        slot.took += took;
        slot.squares += took.as_secs_f64().powi(2);
        slot.peers += peers;
    }

    /// The time that a member takes, if it is slow: by its rounds, or without any, by its answers to pings.
    fn find(&self) -> Option<Figure> {
        let slow: Vec<&Slot> = self.slots.iter().filter(|slot| slot.is_slow()).collect();
        let is_nearly_all = slow.len() * 100 >= self.slots.len() * SLOW_PERCENT;
        let apart = slow.last().zip(slow.first()).map_or(0, |(last, first)| last.number - first.number);
        if slow.len() >= SLOW_MIN && is_nearly_all && apart >= APART_MIN {
            let rounds = slow.iter().map(|slot| slot.rounds).sum::<u32>();
            let squares = slow.iter().map(|slot| slot.squares).sum();
            let took = by_time(squares, slow.iter().map(|slot| slot.took).sum());
            let peers = slow.iter().map(|slot| slot.peers).sum::<Duration>() / rounds;
            return Some(Figure { took, peers });
        }
        let quick = self.asked.iter().filter(|(_, is_quick)| *is_quick).count();
        let is_well = match self.slots.len() {
            0 => self.asked.len() >= ASKED_MIN && quick * 100 >= self.asked.len() * QUICK_PERCENT,
            timed => timed >= SLOW_MIN && slow.is_empty(),
        };
        self.slow.filter(|_| !is_well)
    }
}
