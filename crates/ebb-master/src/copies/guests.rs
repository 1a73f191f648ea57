//! What is away from home: guests, what becomes of each of them, and who is told.
//!
//! [`choose_move`] is pure: what the plans make of a guest's host and of its home in, what to do now out. A guest goes home when
//! the home serves for long enough to take it, in idle time; at once if its host is about to be switched off. It does not go
//! to a home that is about to be switched off itself: the plan was made for where the data are. A guest whose home is lost becomes a member
//! like others. Which guests are looked at is in `look`.

pub(crate) mod look;

use std::collections::BTreeMap;

use ebb_meta::Machine;
use ebb_power::{Awake, Timetable};
use ebb_types::{DatasetId, MetablockId, NodeId};
use ebb_wire::pb;

/// What the power plans make of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prospect {
    /// No plan wakes it.
    pub is_off: bool,
    /// The plan that follows the one in force wakes it no more.
    pub goes_off: bool,
    /// How long it serves on end from now on, or, if it sleeps, from when it wakes.
    pub awake: Awake,
}

impl Prospect {
    /// As far as the plans reach.
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

/// One guest, and where it belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestView {
    /// Where it is.
    pub host: Prospect,
    /// Where it belongs; `None`: that node is dead, being drained, or not known any more.
    pub home: Option<Prospect>,
    /// How long the copy takes at most, in milliseconds.
    pub need_ms: u64,
}

/// What is to be done with a guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// It becomes a member like others, where it is.
    Adopt,
    /// It goes home when both nodes are idle.
    Home,
    /// It goes home now: its host is about to be switched off.
    HomeNow,
}

/// What to do with one guest now; `None`: it stays where it is.
#[must_use]
pub fn choose_move(guest: &GuestView) -> Option<Move> {
    let Some(home) = guest.home else { return Some(Move::Adopt) };
    if home.is_off || home.goes_off || !home.awake.serves_for(guest.need_ms) {
        return None;
    }
    Some(if guest.host.goes_off { Move::HomeNow } else { Move::Home })
}

/// Metablocks and bytes that are away, by home, and how many each node has as guests; of one dataset or of all. What was
/// granted and never written lies nowhere.
pub(crate) fn tell(machine: &Machine, dataset: Option<DatasetId>) -> (Vec<pb::Away>, BTreeMap<NodeId, u64>) {
    let (mut away, mut guests) = (BTreeMap::<NodeId, pb::Away>::new(), BTreeMap::new());
    for (home, metablock) in machine.away_from(NodeId::default(), MetablockId::default()) {
        let Some((inode, record)) = machine.find_metablock(metablock) else { continue };
        let counts = dataset.is_none_or(|dataset| machine.dataset_of(inode).is_ok_and(|of| of.id == dataset.raw()));
        if !counts || !record.is_written() {
            continue;
        }
        let told = away.entry(home).or_insert_with(|| pb::Away { home: home.raw(), ..pb::Away::default() });
        told.metablocks += 1;
        told.bytes += record.length;
        for guest in record.members.iter().filter(|member| member.is_guest() && member.home_id() == home) {
            *guests.entry(guest.node_id()).or_default() += 1;
        }
    }
    (away.into_values().collect(), guests)
}

#[cfg(test)]
mod tests;
