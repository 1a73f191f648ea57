//! How the set of a channel changes: members that are replaced, that are missing, and that are only slow.

use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{Error, Version, min_copies};
use ebb_wire::pb;

use super::{Channel, Peer};

/// A set that went on with fewer members looks for a further one again after this, if the node map has changed, and after that
/// in any case.
const SEEK_AGAIN_MIN: Duration = Duration::from_secs(1);
const SEEK_AGAIN: Duration = Duration::from_secs(10);

/// Between two times that a member of a set is displaced; doubled each time that no other node was to be had.
pub(super) const DISPLACE_PAUSE: Duration = Duration::from_secs(10);
const DISPLACE_DOUBLINGS_MAX: u32 = 5;

/// How many members a set is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Copies {
    /// Unless nodes are missing.
    pub wanted: usize,
    /// Before a write is acknowledged, whatever is missing.
    pub min: usize,
}

/// When a set was last told to go on with fewer members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WentOn {
    /// When.
    pub at: Moment,
    /// Version of the node map then.
    pub map: u64,
}

/// How a repair ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repaired {
    /// All members are there.
    Whole,
    /// There is none for the place of one that failed, and a write may be acknowledged with those that are left.
    Fewer(WentOn),
    /// There is none, a write may not be acknowledged with those that are left, and flushes were told so.
    GaveUp,
}

/// A change of a set that the master is asked to record.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Asked {
    pub members: Vec<pb::Member>,
    /// Committed with it.
    pub version: Version,
    /// What new members have.
    pub at: Version,
    /// Whether it is whole then.
    pub repaired: Repaired,
}

impl Copies {
    /// Of a file with these attributes.
    pub fn of(attr: Option<&pb::Attr>) -> Self {
        let of = |attr: &pb::Attr| Self {
            wanted: attr.replicas as usize,
            min: min_copies(attr.min_copies, attr.replicas) as usize,
        };
        attr.map_or(Self { wanted: 0, min: 1 }, of)
    }
}

impl Channel {
    /// Time has passed, or the node map has changed: whether a further member is to be sought.
    pub fn on_time(&mut self, now: Moment, map: u64) {
        let is_due = |before: &WentOn| {
            let passed = now.since(before.at);
            passed >= SEEK_AGAIN || (map != before.map && passed >= SEEK_AGAIN_MIN)
        };
        self.went_on = self.went_on.filter(|before| !is_due(before));
    }

    /// Members that a write needs before it is acknowledged.
    pub fn min(&self) -> usize {
        self.min
    }

    /// Whether a further member is to be found before the next write.
    pub(super) fn seeks(&self) -> bool {
        let is_allowed = match self.peers.len() < self.min {
            true => self.last <= self.shrunk_upto,
            false => self.went_on.is_some(),
        };
        self.shrunk && self.sent < self.last && !is_allowed
    }

    /// Whether a member on a gray node may be displaced now.
    pub fn may_displace(&self, now: Moment) -> bool {
        self.displace_after.is_none_or(|after| now >= after)
    }

    /// A member is to be replaced although it has not failed: its node is gray.
    pub fn displace(&mut self, index: usize, why: Error, now: Moment) {
        let pause = DISPLACE_PAUSE * (1 << self.displaced_in_vain.min(DISPLACE_DOUBLINGS_MAX));
        self.displace_after = Some(now.after(pause));
        self.peers[index].displaced = true;
        self.fail(index, why);
    }

    /// A displaced member keeps its place: there is no other node, or another member has failed. True: there was one.
    pub fn keep_displaced(&mut self) -> bool {
        let displaced = self.peers.iter().position(|peer| peer.displaced);
        if let Some(index) = displaced {
            self.displaced_in_vain += 1;
            self.revive(index);
        }
        displaced.is_some()
    }

    /// The node that is to be replaced only because it is gray, if no other member has failed or is missing.
    pub fn only_displaced(&self) -> Option<u64> {
        let mut failed = self.peers.iter().filter(|peer| peer.failed.is_some());
        let (first, second) = (failed.next()?, failed.next());
        (first.displaced && second.is_none() && !self.shrunk).then_some(first.member.node)
    }

    /// The end of a repair: the recorded set. Members that stay keep what is known of them, new ones have `at`.
    pub fn on_repaired(&mut self, members: &[pb::Member], generation: u64, at: Version, repaired: Repaired) {
        let known = std::mem::take(&mut self.peers);
        for member in members {
            let peer = known.iter().find(|peer| peer.member == *member && peer.failed.is_none());
            self.peers.push(peer.cloned().unwrap_or_else(|| Peer::new(*member, at)));
        }
        self.generation = generation;
        (self.asked, self.displaced_in_vain) = (None, 0);
        self.shrunk = repaired != Repaired::Whole;
        self.shrunk_upto = if repaired == Repaired::GaveUp { self.last } else { Version::ZERO };
        self.went_on = None;
        self.trouble_since = None;
        if let Repaired::Fewer(went_on) = repaired {
            self.on_went_on(went_on);
        }
        self.on_revived();
    }

    /// Nothing has failed, and the set goes on with fewer members than wanted. The master knows how many a write needs now.
    pub fn on_went_on(&mut self, went_on: WentOn) {
        self.went_on = Some(went_on);
        self.min = self.min.min(self.peers.len());
        self.on_revived();
    }

    /// The end of a repair that found every member well again. Whether it is shows when something settles: until then the
    /// trouble goes on, for a member may answer and take nothing.
    pub fn on_revived(&mut self) {
        self.repairing = false;
        self.hold = true;
        self.gave_up = None;
        if !self.is_unsettled() {
            self.trouble_since = None;
        }
    }
}
