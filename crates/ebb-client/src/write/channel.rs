//! A lease holder's state of one metablock and its members, and its next step. It is pure: results come in, and steps
//! come out. `drive.rs` carries them out.
//!
//! ```text
//!  pending:  settled < [ synced by some | received | in flight | not sent ] <= last
//! ```
//! Invariant: a write leaves `pending` only when every member of the recorded set has synced it.
//!
//! Invariant: while a member has failed or lags, no new write is sent to any member. There is one exception: a member
//! that sleeps by plan lags by plan. In such a set, each member gets the writes that it lacks by itself, and syncs
//! them while it is awake. No member waits for another one's wake.

use std::collections::VecDeque;
use std::sync::Arc;

use ebb_runtime::Moment;
use ebb_types::{BootId, Epoch, Error, MetablockId, Version};
use ebb_wire::pb;

use crate::read::gather::Gather;
use crate::session::masters::is_transient;
use crate::write::outgoing::{Content, Outgoing};

mod answers;
mod puts;
mod sets;

pub(crate) use sets::{Asked, Copies, Repaired, WentOn};

/// Most writes in flight of one metablock. If its members sleep, the bound holds for each member.
pub(crate) const WINDOW: usize = 8;
/// After so many bytes, a write also asks for a sync.
pub(crate) const SYNC_BYTES: usize = 8 << 20;

/// Wait before an attempt, in milliseconds: 0, 50, 200, 450, 800.
pub(crate) fn retry_wait_ms(tries: u32) -> u64 {
    u64::from(tries * tries) * 50
}

/// What the holder knows of a member of the set.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Node, volume and incarnation.
    pub member: pb::Member,
    /// The process that has `received` in its memory.
    boot: Option<BootId>,
    /// Earlier processes of the member. Versions that they report as received are void.
    old_boots: Vec<BootId>,
    /// Highest version in the memory of process `boot`.
    pub received: Version,
    /// Highest version on its stable storage.
    pub synced: Version,
    /// Highest version that was ever sent to it.
    handed: Version,
    tries: u32,
    busy: bool,
    /// The error because of which it is to be replaced.
    pub failed: Option<Error>,
    /// It has not failed. It is to be replaced only because its node is gray.
    pub displaced: bool,
}

impl Peer {
    fn new(member: pb::Member, at: Version) -> Self {
        Self {
            member,
            boot: None,
            old_boots: Vec::new(),
            received: at,
            synced: at,
            handed: at,
            tries: 0,
            busy: false,
            failed: None,
            displaced: false,
        }
    }
}

/// Whether the members of a set are awake all the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rhythm {
    /// No plan lets a member sleep. Each write goes to all members at once.
    Together,
    /// Some members sleep now and then. Each gets the writes that it lacks while it is awake, whatever the others
    /// have.
    InTurns,
}

/// The next thing to do.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing before a result comes in.
    None,
    /// Send a write to all members.
    Send {
        /// The write.
        write: Arc<Outgoing>,
        /// Ask for a sync with it.
        sync: bool,
    },
    /// Send one member the writes that it lacks, in order, and have them synced.
    CatchUp {
        /// Place of the member in the set.
        peer: usize,
        /// Wait before the first write, in milliseconds.
        wait_ms: u64,
        /// The writes.
        writes: Vec<Arc<Outgoing>>,
        /// Up to this version, the writes were sent to it before.
        handed: Version,
    },
    /// Ask members to sync.
    Sync {
        /// Places of the members in the set.
        peers: Vec<usize>,
        /// Sync up to this version.
        version: Version,
    },
    /// Replace failed members. No other step comes before [`Channel::on_repaired`].
    Repair,
}

/// One metablock under a write lease.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Its id.
    pub id: MetablockId,
    /// Number that distinguishes this channel from earlier ones in its place.
    pub serial: u64,
    /// Generation of the set.
    pub generation: u64,
    /// The members.
    pub peers: Vec<Peer>,
    /// Highest version that a write has.
    pub last: Version,
    /// Highest version that every member has synced.
    pub settled: Version,
    /// Highest version that other nodes have logged, in place of members that sleep.
    pub logged: Version,
    /// Up to this version, no node has to keep the bytes of direct writes any more.
    released: Version,
    /// Highest version that those nodes were asked to drop from their logs.
    pub cut: Version,
    /// Version that the master has recorded.
    pub committed: Version,
    /// Bytes in it after the last write.
    pub length: u64,
    /// Bytes in it after the last settled write.
    pub settled_length: u64,
    /// Set when a trouble has outlasted the deadline. Flushes fail with it until the trouble is over.
    pub gave_up: Option<Error>,
    /// Start of the present trouble.
    pub trouble_since: Option<Moment>,
    /// Until then, all writes were logged in spite of the trouble.
    pub logged_until: Option<Moment>,
    epoch: Epoch,
    pending: VecDeque<Arc<Outgoing>>,
    /// Highest version that was sent.
    sent: Version,
    /// Highest version that was sent with a request to sync.
    sync_asked: Version,
    /// A caller waits for a sync up to this version.
    sync_wanted: Version,
    unsynced_bytes: usize,
    flights: usize,
    /// Most writes in flight; as of [`WINDOW`].
    pub window: usize,
    /// Some member lacks a write. No new write is sent before all members have caught up.
    hold: bool,
    repairing: bool,
    /// The set has fewer members than wanted. A failed member was removed without a replacement, by this holder or an
    /// earlier one. A member is sought before the next write. If writes may go on without it, it is sought only now and
    /// then.
    pub shrunk: bool,
    /// Writes up to this version may go to fewer members than a write needs: their failure has been reported.
    shrunk_upto: Version,
    min: usize,
    went_on: Option<WentOn>,
    /// A change of the set whose answer is missing. The next repair finds out first whether it was recorded.
    pub asked: Option<Asked>,
    /// No member on a gray node is displaced before this moment.
    displace_after: Option<Moment>,
    displaced_in_vain: u32,
}

impl Channel {
    /// The channel of a recorded metablock, for a holder of `epoch`. `copies` are those of the file. All members have
    /// synced `at`.
    ///
    /// Invariant: what an fsync acknowledges is on as many members as a write needs. It is on as many as wanted if
    /// there are nodes. An earlier holder or a recovery may have left fewer members: further ones are sought before the
    /// first write.
    pub fn new(record: &pb::Metablock, at: Version, epoch: Epoch, serial: u64, copies: Copies) -> Self {
        Self {
            id: record.metablock_id(),
            serial,
            generation: record.generation,
            peers: record.members.iter().map(|member| Peer::new(*member, at)).collect(),
            last: at,
            settled: at,
            logged: at,
            released: at,
            cut: at,
            committed: record.min_version(),
            length: record.length,
            settled_length: record.length,
            gave_up: None,
            trouble_since: None,
            logged_until: None,
            epoch,
            pending: VecDeque::new(),
            sent: at,
            sync_asked: at,
            sync_wanted: at,
            unsynced_bytes: 0,
            flights: 0,
            window: WINDOW,
            hold: false,
            repairing: false,
            shrunk: record.members.len() < copies.wanted,
            shrunk_upto: Version::ZERO,
            asked: None,
            displace_after: None,
            displaced_in_vain: 0,
            min: copies.min,
            went_on: None,
        }
    }

    /// Queues a write, and returns its version.
    pub fn push(&mut self, content: Content) -> Version {
        let is_complete = self.pending.back().map_or(self.settled, |write| write.version) == self.last;
        assert!(
            is_complete,
            "the queue of {} does not end at {}: a write would have a gap before it",
            self.id, self.last
        );
        // I-7: the version is given out once, here, and the write under it never changes.
        let version = self.last.successor(self.epoch);
        let write = Outgoing::new(version, self.last, content, self.length);
        self.last = version;
        self.length = write.length_after;
        self.pending.push_back(Arc::new(write));
        version
    }

    /// The version that the next write will get.
    pub fn next_version(&self) -> Version {
        self.last.successor(self.epoch)
    }

    /// Requests a sync of all writes so far.
    pub fn want_sync(&mut self) {
        // A wish, and no step: `send` turns it into `sync_asked` with the write that reaches it, or `sync` asks by
        // itself. So several wishes while writes are under way cost one sync.
        self.sync_wanted = self.last;
    }

    /// Whether some member has not synced some write.
    pub fn is_unsettled(&self) -> bool {
        self.settled < self.last
    }

    /// Highest version that every member has, in memory or on disk.
    pub fn received(&self) -> Version {
        let of = |peer: &Peer| peer.received.max(peer.synced);
        self.peers.iter().map(of).min().unwrap_or(self.settled)
    }

    /// Bytes that are kept to be sent again.
    pub fn weight(&self) -> usize {
        self.pending.iter().map(|write| write.weight()).sum()
    }

    /// Whether every write is synced by the whole set, and nothing is under way.
    pub fn is_quiet(&self) -> bool {
        !self.is_unsettled() && self.flights == 0 && !self.repairing && !self.peers.iter().any(|peer| peer.busy)
    }

    /// Writes after `after`, up to `upto`, that some member has not synced.
    pub fn pending(&self, after: Version, upto: Version) -> Vec<Arc<Outgoing>> {
        self.pending.iter().filter(|write| write.version > after && write.version <= upto).cloned().collect()
    }

    /// Whether no member is known to have this version.
    pub fn is_nowhere(&self, version: Version) -> bool {
        self.peers.iter().all(|peer| peer.received.max(peer.synced) < version)
    }

    /// For each member, its node and the bytes that it has not synced.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.peers.iter().map(|peer| {
            let lacks = self.pending.iter().rev().take_while(|write| write.version > peer.synced);
            (peer.member.node, lacks.map(|write| write.weight() as u64).sum())
        })
    }

    /// How many members have what has settled, as far as is known. A member that only failed to answer has it as well if
    /// its node is away by a plan.
    pub fn holders(&self, is_away: impl Fn(u64) -> bool) -> usize {
        let has_it = |peer: &&Peer| match &peer.failed {
            None => true,
            Some(error) => is_transient(error.kind()) && is_away(peer.member.node),
        };
        self.peers.iter().filter(has_it).count()
    }

    /// Whether all writes are logged that some member has not synced.
    pub fn is_logged(&self) -> bool {
        self.logged.max(self.settled) == self.last
    }

    /// Whether a member has failed or is being replaced, or the set has fewer members than a write needs.
    pub fn is_ailing(&self) -> bool {
        self.peers.len() < self.min || self.repairing || self.peers.iter().any(|peer| peer.failed.is_some())
    }

    /// Gives `gather` the bytes of pending writes to the metablock at file offset `base`.
    pub fn offer(&self, base: u64, span: u64, gather: &mut Gather) {
        for write in self.pending.iter().rev() {
            if gather.is_complete() {
                return;
            }
            write.offer(base, span, gather);
        }
    }

    /// Decides the next step, and records that it is under way.
    pub fn next(&mut self, rhythm: Rhythm) -> Step {
        self.assert_order();
        if self.repairing {
            return Step::None;
        }
        let busy = self.peers.iter().any(|peer| peer.busy);
        if self.needs_repair() {
            // Ordering: peers are known by their places, so no answer may be on its way when a repair changes them.
            // Answers of nodes that sleep are given up on meanwhile ([`Self::on_given_up`]).
            if self.flights > 0 || busy {
                return Step::None;
            }
            self.repairing = true;
            self.peers.iter_mut().for_each(|peer| peer.old_boots.clear());
            return Step::Repair;
        }
        if rhythm == Rhythm::InTurns && self.sent < self.last {
            // All members lack the write, and none waits for another.
            self.sent = self.last;
            self.hold = true;
        }
        if self.hold {
            if self.flights > 0 {
                return Step::None;
            }
            if let Some(step) = self.catch_up() {
                return step;
            }
            if busy {
                // A member that is awake and idle may have received something that is to be synced. Its wake would be
                // over before the others are done.
                return if rhythm == Rhythm::InTurns { self.sync() } else { Step::None };
            }
            self.hold = false;
        }
        if self.flights < self.window && self.sent < self.last {
            return self.send();
        }
        self.sync()
    }

    /// Whether a member has failed, or a further one is to be sought, and that is not under way.
    pub fn needs_repair(&self) -> bool {
        !self.repairing && (self.peers.iter().any(|peer| peer.failed.is_some()) || self.seeks())
    }

    /// Invariant: settled <= sent <= last, no sync is asked for beyond the writes that were sent, and a repair is
    /// alone.
    fn assert_order(&self) {
        let Self { id, settled, sent, last, .. } = self;
        assert!(settled <= sent && sent <= last, "{id} is out of order: settled {settled}, sent {sent}, last {last}");
        assert!(self.sync_asked <= self.sent, "{id} asked for a sync of {}, and {sent} is sent", self.sync_asked);
        assert!(self.sync_wanted <= self.last, "{id} waits for a sync of {}, and {last} is the last", self.sync_wanted);
        assert!(!self.repairing || self.flights == 0, "{id} is repaired while writes are on their way");
    }

    fn catch_up(&mut self) -> Option<Step> {
        let sent = self.sent;
        let index = self.peers.iter().position(|peer| !peer.busy && peer.received < sent)?;
        let peer = &mut self.peers[index];
        peer.busy = true;
        // Nothing older is on its way, so the present process gives the next answer.
        peer.old_boots.clear();
        let received = peer.received;
        let wait_ms = retry_wait_ms(peer.tries);
        let handed = std::mem::replace(&mut peer.handed, sent);
        // I-9: in order and without a gap, from the last write it received to the last that others were sent.
        let missing = self.pending.iter().filter(|write| write.version > received && write.version <= sent);
        Some(Step::CatchUp { peer: index, wait_ms, writes: missing.cloned().collect(), handed })
    }

    fn send(&mut self) -> Step {
        let at = self.pending.partition_point(|write| write.version <= self.sent);
        let write = self.pending[at].clone();
        // I-9: a member refuses a write whose predecessor it lacks.
        assert!(
            write.predecessor == self.sent,
            "{} follows {}, and {} is sent",
            write.version,
            write.predecessor,
            self.sent
        );
        self.sent = write.version;
        self.peers.iter_mut().for_each(|peer| peer.handed = write.version);
        self.flights += 1;
        self.unsynced_bytes += write.load();
        let wanted = self.sync_wanted > self.sync_asked && write.version >= self.sync_wanted;
        let sync = wanted || self.unsynced_bytes >= SYNC_BYTES;
        if sync {
            self.unsynced_bytes = 0;
            self.sync_asked = write.version;
        }
        Step::Send { write, sync }
    }

    fn sync(&mut self) -> Step {
        if self.sync_wanted <= self.settled || self.flights > 0 || self.sent < self.sync_wanted {
            return Step::None;
        }
        // Up to `sent`, not to `wanted`: the sync costs the same, and later writes need none of their own.
        let (wanted, version) = (self.sync_wanted, self.sent);
        let mut peers = Vec::new();
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if !peer.busy && peer.synced < wanted {
                peer.busy = true;
                peer.old_boots.clear();
                peers.push(index);
            }
        }
        if peers.is_empty() {
            return Step::None;
        }
        self.unsynced_bytes = 0;
        Step::Sync { peers, version }
    }

    /// Marks a member as failed without further attempts: its node is known to be dead.
    pub fn fail(&mut self, index: usize, error: Error) {
        self.peers[index].failed = Some(error);
        self.hold = true;
    }

    /// A failed member has answered again, and stays.
    pub fn revive(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.failed = None;
        peer.displaced = false;
        peer.tries = 0;
        self.hold = true;
    }

    /// Removes the writes that every member has synced, and returns them.
    pub fn take_synced(&mut self) -> Vec<Arc<Outgoing>> {
        let synced = self.peers.iter().map(|peer| peer.synced).min().unwrap_or(self.settled);
        // An answer may name a version that was never sent. Such a word of a member settles nothing.
        let synced = synced.min(self.sent);
        let mut done = Vec::new();
        while let Some(write) = self.pending.front().filter(|write| write.version <= synced) {
            assert!(write.version > self.settled, "{} settles after {}", write.version, self.settled);
            // I-5, I-6: every member of the set has synced it.
            self.settled = write.version;
            self.settled_length = write.length_after;
            done.push(write.clone());
            self.pending.pop_front();
        }
        assert!(self.settled <= self.sent, "{} settled and only {} is sent", self.settled, self.sent);
        // A repair asks members one after the other: what settles in its course does not end the trouble.
        if !done.is_empty() && !self.repairing {
            self.trouble_since = None;
        }
        done
    }

    /// The record of the metablock, as the holder knows it.
    pub fn record(&self, index: u64) -> pb::Metablock {
        pb::Metablock {
            id: self.id.raw(),
            index,
            version: Some(self.settled.into()),
            length: self.settled_length,
            generation: self.generation,
            members: self.peers.iter().map(|peer| peer.member).collect(),
            // The caller fills this in.
            reserved: 0,
            // I-56: while there is a holder, there are no extra copies.
            extra: Vec::new(),
            // The other parts are the master's alone.
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests;
