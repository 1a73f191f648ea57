//! Changes of a channel's set: members that are replaced, missing, or only slow.

use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{Attr, Error, Version};
use ebb_wire::pb;

use super::{Channel, Peer};

/// After this, a set that went on with fewer members seeks a further one, if the node map has changed.
const SEEK_AGAIN_MIN: Duration = Duration::from_secs(1);
const SEEK_AGAIN: Duration = Duration::from_secs(10);

/// Pause between two displacements in a set. It doubles each time that there was no other node.
pub(super) const DISPLACE_PAUSE: Duration = Duration::from_secs(10);
const DISPLACE_DOUBLINGS_MAX: u32 = 5;

/// Number of members of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Copies {
    /// Members that the file asks for. A set has fewer only if nodes are missing.
    pub wanted: usize,
    /// Members that need to have a write before it is acknowledged.
    pub min: usize,
}

/// The moment when a set last went on with fewer members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WentOn {
    /// Time of the decision.
    pub at: Moment,
    /// Version of the node map at that time.
    pub map: u64,
}

/// How a repair ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repaired {
    /// All members are there.
    Whole,
    /// A failed member has no replacement, and the rest are enough to acknowledge a write.
    Fewer(WentOn),
    /// A failed member has no replacement, and the rest are not enough to acknowledge a write. Flushes have failed.
    GaveUp,
}

/// A change of a set that the master is asked to record.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Asked {
    pub members: Vec<pb::Member>,
    /// Version that is committed with the change.
    pub version: Version,
    /// Version that new members have.
    pub at: Version,
    /// State of the set after the change.
    pub repaired: Repaired,
}

impl Copies {
    /// Copies of a file with these attributes. Without attributes, one is enough.
    pub fn of(attr: Option<&Attr>) -> Self {
        attr.map_or(Self { wanted: 0, min: 1 }, |attr| Self {
            wanted: attr.storage.replicas as usize,
            min: attr.storage.min_copies as usize,
        })
    }
}

impl Channel {
    /// Checks whether a further member is to be sought, after time has passed or the node map has changed.
    pub fn on_time(&mut self, now: Moment, map: u64) {
        let is_due = |before: &WentOn| {
            let passed = now.since(before.at);
            passed >= SEEK_AGAIN || (map != before.map && passed >= SEEK_AGAIN_MIN)
        };
        self.went_on = self.went_on.filter(|before| !is_due(before));
    }

    /// Number of members that a write needs before it is acknowledged.
    pub fn min(&self) -> usize {
        self.min
    }

    /// Whether a further member is to be sought before the next write.
    pub(super) fn seeks(&self) -> bool {
        // I-104: below what a write needs, only writes up to the reported failure go out. Above it, time has to pass.
        let is_allowed = match self.peers.len() < self.min {
            true => self.last <= self.shrunk_upto,
            false => self.went_on.is_some(),
        };
        self.shrunk && self.sent < self.last && !is_allowed
    }

    /// Whether a member on a gray node may be displaced at this moment.
    pub fn may_displace(&self, now: Moment) -> bool {
        self.displace_after.is_none_or(|after| now >= after)
    }

    /// Marks a member for replacement although it has not failed: its node is gray.
    pub fn displace(&mut self, index: usize, why: Error, now: Moment) {
        let pause = DISPLACE_PAUSE * (1 << self.displaced_in_vain.min(DISPLACE_DOUBLINGS_MAX));
        assert!(self.peers[index].failed.is_none(), "a failed member of {} is to be replaced as only slow", self.id);
        self.displace_after = Some(now.after(pause));
        self.peers[index].displaced = true;
        self.fail(index, why);
    }

    /// Lets a displaced member keep its place, as there is no other node, or another member has failed. True if there
    /// was one.
    pub fn keep_displaced(&mut self) -> bool {
        let displaced = self.peers.iter().position(|peer| peer.displaced);
        if let Some(index) = displaced {
            self.displaced_in_vain += 1;
            self.revive(index);
        }
        displaced.is_some()
    }

    /// The node of the only member that is to be replaced, if it is replaced because it is gray. None if another member
    /// has failed or is missing.
    pub fn only_displaced(&self) -> Option<u64> {
        let mut failed = self.peers.iter().filter(|peer| peer.failed.is_some());
        let (first, second) = (failed.next()?, failed.next());
        (first.displaced && second.is_none() && !self.shrunk).then_some(first.member.node)
    }

    /// Ends a repair with the recorded set. The state of members that stay is kept. New members have `at`.
    pub fn on_repaired(&mut self, members: &[pb::Member], generation: u64, at: Version, repaired: Repaired) {
        assert!(!members.is_empty(), "the set of {} has no members: nothing could settle", self.id);
        assert!(self.flights == 0, "the set of {} changes while answers of its members are on their way", self.id);
        let known = std::mem::take(&mut self.peers);
        let is_busy = known.iter().any(|peer| peer.busy);
        assert!(!is_busy, "the set of {} changes while a member is asked: its answer would count for another", self.id);
        for member in members {
            // A failed member that is in the set again is a new replica: it has `at`, whatever the old one had.
            let peer = known.iter().find(|peer| peer.member == *member && peer.failed.is_none());
            self.peers.push(peer.cloned().unwrap_or_else(|| Peer::new(*member, at)));
        }
        self.generation = generation;
        (self.asked, self.displaced_in_vain) = (None, 0);
        self.shrunk = repaired != Repaired::Whole;
        // I-43: only writes whose failure is known may go to fewer members than a write needs.
        self.shrunk_upto = if repaired == Repaired::GaveUp { self.last } else { Version::ZERO };
        self.went_on = None;
        self.trouble_since = None;
        if let Repaired::Fewer(went_on) = repaired {
            self.on_went_on(went_on);
        }
        self.on_revived();
    }

    /// Goes on with fewer members than wanted, as none has failed. The master knows how many a write needs now.
    pub fn on_went_on(&mut self, went_on: WentOn) {
        self.went_on = Some(went_on);
        // At least one: without any member a write would be acknowledged that is nowhere.
        self.min = self.min.min(self.peers.len().max(1));
        self.on_revived();
    }

    /// Ends a repair that found every member well. A member may answer and accept nothing. So the trouble lasts until a
    /// write settles.
    pub fn on_revived(&mut self) {
        self.repairing = false;
        self.hold = true;
        self.gave_up = None;
        if !self.is_unsettled() {
            self.trouble_since = None;
        }
    }
}
