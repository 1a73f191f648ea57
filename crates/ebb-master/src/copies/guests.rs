//! Guests: copies away from home, and the decision about each of them.
//!
//! [`choose_move`] is pure. It takes the power plans for a guest's host and home, and returns the move to make now. A
//! guest goes home in idle time, when its home serves for long enough to receive it. It goes at once if its host is
//! about to be switched off. It does not go to a home that is about to be switched off, because the plan was made for
//! the present places of the data. A guest whose home is lost becomes an ordinary member. The module `look` chooses the
//! guests to assess.

pub(crate) mod look;

use std::collections::BTreeMap;

use ebb_meta::Machine;
use ebb_power::{Awake, Timetable};
use ebb_types::{DatasetId, MetablockId, NodeId};
use ebb_wire::pb;

use super::Task;

/// Power of a node by the plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prospect {
    /// Whether no plan wakes it.
    pub is_off: bool,
    /// Whether the plan after the one in force no longer wakes it.
    pub goes_off: bool,
    /// Time for which it serves without a break, from now or from its next wake-up.
    pub awake: Awake,
}

impl Prospect {
    /// The prospect by the known plans.
    #[must_use]
    pub fn of(plans: &Timetable, node: NodeId, now_ms: u64) -> Self {
        let is_off = plans.next_wake_ms(node, now_ms).is_none();
        let follows = plans.next(now_ms);
        Self {
            is_off,
            goes_off: !is_off && follows.is_some_and(|next| next.next_wake_ms(node, next.start_ms).is_none()),
            awake: plans.next_wake_ms(node, now_ms).map_or(Awake::Asleep, |wake_ms| plans.awake_for(node, wake_ms)),
        }
    }
}

/// The prospects of one guest's host and home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestView {
    /// The node that has the guest.
    pub host: Prospect,
    /// The node that the copy belongs to. `None` means that it is dead, being drained, or unknown.
    pub home: Option<Prospect>,
    /// Maximum time of the copy, in milliseconds.
    pub need_ms: u64,
}

/// A move of a guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// It becomes an ordinary member where it is.
    Adopt,
    /// It goes home when both nodes are idle.
    Home,
    /// It goes home at once, because its host is about to be switched off.
    HomeNow,
}

/// Chooses the move of a guest. `None` means that it stays.
#[must_use]
pub fn choose_move(guest: &GuestView) -> Option<Move> {
    let Some(home) = guest.home else { return Some(Move::Adopt) };
    if home.is_off || home.goes_off || !home.awake.serves_for(guest.need_ms) {
        return None;
    }
    Some(if guest.host.goes_off { Move::HomeNow } else { Move::Home })
}

/// Counts metablocks and bytes away from each home, and guests on each node, of one dataset or of all. Metablocks
/// without committed bytes do not count.
pub(crate) fn count(machine: &Machine, dataset: Option<DatasetId>) -> (Vec<pb::Away>, BTreeMap<NodeId, u64>) {
    let (mut away, mut guests) = (BTreeMap::<NodeId, pb::Away>::new(), BTreeMap::new());
    for (home, metablock) in machine.away_from(NodeId::default(), MetablockId::default()) {
        let Some(Task { record, dataset: of, .. }) = Task::of(machine, metablock) else { continue };
        let counts = dataset.is_none_or(|dataset| of.id == dataset.raw());
        if !counts || !record.is_written() {
            continue;
        }
        let of_home = away.entry(home).or_insert_with(|| pb::Away { home: home.raw(), ..pb::Away::default() });
        of_home.metablocks += 1;
        of_home.bytes += record.length;
        for guest in record.members.iter().filter(|member| member.is_guest() && member.home_id() == home) {
            *guests.entry(guest.node_id()).or_default() += 1;
        }
    }
    (away.into_values().collect(), guests)
}

#[cfg(test)]
mod tests;
