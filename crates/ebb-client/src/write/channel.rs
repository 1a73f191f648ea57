//! What a lease holder knows of one metablock and its members, and what it does next. Pure: results come in, steps
//! come out; `drive.rs` carries them out.
//!
//! ```text
//!  pending:  settled < [ synced by some | received | in flight | not sent ] <= last
//! ```
//! Invariant: a write leaves `pending` only when every member of the recorded set has synced it.
//! Invariant: while a member has failed, no new write is sent to any ("stop writing to this metablock"), nor while one lags;
//! but who sleeps now and then lags by plan. Where there is such a member each is sent what it lacks by itself, and syncs it
//! while it is awake: the others do not wait for its next wake, nor it for theirs.

use std::collections::VecDeque;
use std::sync::Arc;

use ebb_runtime::Moment;
use ebb_types::{BootId, Epoch, Error, ErrorKind, MetablockId, Result, Version, err};
use ebb_wire::{convert, pb};

use crate::read::gather::Gather;
use crate::write::members::Heard;
use crate::write::outgoing::{Content, Outgoing};

mod sets;

pub(crate) use sets::{Asked, Copies, Repaired, WentOn};

/// Writes in flight at a time for each metablock; for each member of one where members sleep.
pub(crate) const WINDOW: usize = 8;
/// Bytes sent after which a write also asks for a sync.
pub(crate) const SYNC_BYTES: usize = 8 << 20;
/// Failed attempts to reach a member before it is replaced. With the waits between them (see [`retry_wait_ms`])
/// they last long enough for a restart of its process.
const TRIES_MAX: u32 = 5;

/// Wait before an attempt, in milliseconds: 0, 50, 200, 450, 800.
pub(crate) fn retry_wait_ms(tries: u32) -> u64 {
    u64::from(tries * tries) * 50
}

/// A member of the set, as its holder knows it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Who.
    pub member: pb::Member,
    /// The process that received what it received.
    boot: Option<BootId>,
    /// Processes before that one: what still comes from them is void.
    old_boots: Vec<BootId>,
    /// In its memory, by `boot`.
    pub received: Version,
    /// On its stable storage.
    pub synced: Version,
    /// Highest version that was on its way to it.
    handed: Version,
    tries: u32,
    busy: bool,
    /// Why it must be replaced.
    pub failed: Option<Error>,
    /// It has not failed, and is to be replaced only because its node is gray.
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
    /// No plan lets any of them sleep: each write goes to all of them at once.
    Together,
    /// Some sleep now and then: each is sent what it lacks when it is awake, whatever the others have.
    InTurns,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing, or nothing before a result comes in.
    None,
    /// Send a write to all members.
    Send {
        /// The write.
        write: Arc<Outgoing>,
        /// Ask for a sync with it.
        sync: bool,
    },
    /// Send to one member, in order, what it lacks, and have it synced.
    CatchUp {
        /// Which member.
        peer: usize,
        /// Wait this long first.
        wait_ms: u64,
        /// The writes.
        writes: Vec<Arc<Outgoing>>,
        /// Up to here they were on their way to it before.
        handed: Version,
    },
    /// Ask members to sync.
    Sync {
        /// Which members.
        peers: Vec<usize>,
        /// Up to here.
        version: Version,
    },
    /// Replace failed members; no other step comes before [`Channel::on_repaired`].
    Repair,
}

/// One metablock under a write lease.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Its id.
    pub id: MetablockId,
    /// Tells this channel from one that had its place before.
    pub serial: u64,
    /// Of the set.
    pub generation: u64,
    /// The members.
    pub peers: Vec<Peer>,
    /// Highest version given out.
    pub last: Version,
    /// Synced by every member.
    pub settled: Version,
    /// Logged on other nodes, in place of members that sleep.
    pub logged: Version,
    /// Told to be cut from there.
    pub cut: Version,
    /// Recorded by the master.
    pub committed: Version,
    /// Bytes in it after the last write.
    pub length: u64,
    /// Bytes in it after the last settled write.
    pub settled_length: u64,
    /// Set when trouble outlasted the deadline; flushes fail with it until the trouble is over.
    pub gave_up: Option<Error>,
    /// When the trouble began.
    pub trouble_since: Option<Moment>,
    epoch: Epoch,
    pending: VecDeque<Arc<Outgoing>>,
    /// Highest version handed to a flight.
    sent: Version,
    /// Highest version sent with a wish to sync.
    sync_asked: Version,
    /// Up to here somebody waits for a sync.
    sync_wanted: Version,
    unsynced_bytes: usize,
    flights: usize,
    /// Some member did not take a write: nothing new goes out until all have caught up.
    hold: bool,
    repairing: bool,
    /// There are fewer members than wanted: a failed one was dropped without a replacement, here or by who had the file
    /// before. One is sought before the next write; where writes may go on without it, only every now and then.
    pub shrunk: bool,
    /// Writes up to here may go to fewer members than a write needs: their failure has been told.
    shrunk_upto: Version,
    min: usize,
    went_on: Option<WentOn>,
    /// A change of the set whose answer is missing: whether it was recorded is found out before anything else is done.
    pub asked: Option<Asked>,
    /// A member on a gray node is not displaced before, and how often none was offered in its place.
    displace_after: Option<Moment>,
    displaced_in_vain: u32,
}

impl Channel {
    /// The channel of a recorded metablock for a holder of `epoch`, of a file that asks for so many `copies`. `at` is the
    /// version that all members have synced.
    ///
    /// Invariant: what an fsync acknowledges is on as many members as a write needs, and on as many as wanted if there are
    /// nodes. An earlier holder or a recovery may have left fewer: they are sought before the first write.
    pub fn new(record: &pb::Metablock, at: Version, epoch: Epoch, serial: u64, copies: Copies) -> Self {
        Self {
            id: record.metablock_id(),
            serial,
            generation: record.generation,
            peers: record.members.iter().map(|member| Peer::new(*member, at)).collect(),
            last: at,
            settled: at,
            logged: at,
            cut: at,
            committed: record.min_version(),
            length: record.length,
            settled_length: record.length,
            gave_up: None,
            trouble_since: None,
            epoch,
            pending: VecDeque::new(),
            sent: at,
            sync_asked: at,
            sync_wanted: at,
            unsynced_bytes: 0,
            flights: 0,
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

    /// Gives a write its version and queues it.
    pub fn push(&mut self, content: Content) -> Version {
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

    /// Everything given out so far is to be synced soon.
    pub fn want_sync(&mut self) {
        self.sync_wanted = self.last;
    }

    /// Whether there is something that not all members have synced.
    pub fn is_unsettled(&self) -> bool {
        self.settled < self.last
    }

    /// In the memory of every member, or on its disk.
    pub fn received(&self) -> Version {
        let of = |peer: &Peer| peer.received.max(peer.synced);
        self.peers.iter().map(of).min().unwrap_or(self.settled)
    }

    /// Bytes kept for resending.
    pub fn weight(&self) -> usize {
        self.pending.iter().map(|write| write.weight()).sum()
    }

    /// Whether the set holds exactly what was synced and nothing else is under way.
    pub fn is_quiet(&self) -> bool {
        !self.is_unsettled() && self.flights == 0 && !self.repairing && !self.peers.iter().any(|peer| peer.busy)
    }

    /// Writes after `after`, up to `upto`, that not all members have synced.
    pub fn pending(&self, after: Version, upto: Version) -> Vec<Arc<Outgoing>> {
        self.pending.iter().filter(|write| write.version > after && write.version <= upto).cloned().collect()
    }

    /// Whether the bytes of a write to `start..end` of it, that not all members have synced, are not here.
    pub fn is_elsewhere(&self, start: u64, end: u64) -> bool {
        let overlaps = |write: &Outgoing| write.offset < end && start < write.offset + write.length;
        self.pending.iter().any(|write| write.staged.is_some() && overlaps(write))
    }

    /// Whether no member has this version, as far as is known here.
    pub fn is_nowhere(&self, version: Version) -> bool {
        self.peers.iter().all(|peer| peer.received.max(peer.synced) < version)
    }

    /// Bytes that each member has not synced, with its node.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.peers.iter().map(|peer| {
            let lacks = self.pending.iter().rev().take_while(|write| write.version > peer.synced);
            (peer.member.node, lacks.map(|write| write.weight() as u64).sum())
        })
    }

    /// Whether a member failed, or one that writes need is missing, and is being replaced.
    pub fn is_ailing(&self) -> bool {
        self.peers.len() < self.min || self.repairing || self.peers.iter().any(|peer| peer.failed.is_some())
    }

    /// Gives `gather` what pending writes put into the metablock at file offset `base`.
    pub fn offer(&self, base: u64, span: u64, gather: &mut Gather) {
        for write in self.pending.iter().rev() {
            if gather.is_complete() {
                return;
            }
            write.offer(base, span, gather);
        }
    }

    /// Decides, and notes that it is being done.
    pub fn next(&mut self, rhythm: Rhythm) -> Step {
        if self.repairing {
            return Step::None;
        }
        let busy = self.peers.iter().any(|peer| peer.busy);
        let failed = self.peers.iter().any(|peer| peer.failed.is_some());
        if failed || self.seeks() {
            if self.flights > 0 || busy {
                return Step::None;
            }
            self.repairing = true;
            self.peers.iter_mut().for_each(|peer| peer.old_boots.clear());
            return Step::Repair;
        }
        if rhythm == Rhythm::InTurns && self.sent < self.last {
            // Everybody lacks it, and nobody waits for anybody.
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
                // Who is awake and idle may have received something that is to be synced: its wake would be over before the
                // others are done.
                return if rhythm == Rhythm::InTurns { self.sync() } else { Step::None };
            }
            self.hold = false;
        }
        if self.flights < WINDOW && self.sent < self.last {
            return self.send();
        }
        self.sync()
    }

    fn catch_up(&mut self) -> Option<Step> {
        let sent = self.sent;
        let index = self.peers.iter().position(|peer| !peer.busy && peer.received < sent)?;
        let peer = &mut self.peers[index];
        peer.busy = true;
        // Nothing older is on its way: whoever answers now is the present process.
        peer.old_boots.clear();
        let received = peer.received;
        let wait_ms = retry_wait_ms(peer.tries);
        let handed = std::mem::replace(&mut peer.handed, sent);
        let missing = self.pending.iter().filter(|write| write.version > received && write.version <= sent);
        Some(Step::CatchUp { peer: index, wait_ms, writes: missing.cloned().collect(), handed })
    }

    fn send(&mut self) -> Step {
        let at = self.pending.partition_point(|write| write.version <= self.sent);
        let write = self.pending[at].clone();
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

    /// Answers to a [`Step::Send`], one for each member in order. Fails if the lease is lost.
    pub fn on_sent(&mut self, version: Version, results: &[Heard]) -> Result<()> {
        assert!(self.flights > 0, "an answer without a flight on {}", self.id);
        self.flights -= 1;
        let mut verdict = Ok(());
        for (index, result) in results.iter().enumerate().take(self.peers.len()) {
            verdict = verdict.and(self.on_member(index, version, result));
        }
        verdict
    }

    /// An answer within a [`Step::CatchUp`], to a write that was taken; others are under way.
    pub fn on_taken(&mut self, peer: usize, version: Version, result: &Heard) -> Result<()> {
        self.on_member(peer, version, result)
    }

    /// The end of a [`Step::CatchUp`]: the last answer, and the version that it was about.
    pub fn on_caught_up(&mut self, peer: usize, version: Version, result: &Heard) -> Result<()> {
        self.peers[peer].busy = false;
        self.hold = true;
        self.on_member(peer, version, result)
    }

    /// The answer of one member to a [`Step::Sync`].
    pub fn on_synced(&mut self, peer: usize, result: &Result<pb::SyncReplicasReply>) -> Result<()> {
        self.peers[peer].busy = false;
        self.note_synced(peer, result)
    }

    /// The same, when a repair asked.
    pub fn note_synced(&mut self, peer: usize, result: &Result<pb::SyncReplicasReply>) -> Result<()> {
        let about = self.peers[peer].synced;
        let result = match result {
            Ok(reply) => match reply.replicas.iter().find(|replica| replica.metablock == self.id.raw()) {
                Some(replica) => Ok(Some(pb::MemberResult {
                    node: self.peers[peer].member.node,
                    volume: self.peers[peer].member.volume,
                    boot: reply.boot,
                    received: replica.synced,
                    synced: replica.synced,
                    failure: replica.failure.clone(),
                })),
                None => Err(Error::new(ErrorKind::Protocol, "the answer to a sync names no replica")),
            },
            Err(error) => Err(error.clone()),
        };
        self.on_member(peer, about, &result)
    }

    fn on_member(&mut self, index: usize, version: Version, result: &Heard) -> Result<()> {
        match result {
            Ok(Some(answer)) => self.on_answer(index, version, answer),
            Ok(None) => {
                self.compare_received(index, version);
                Ok(())
            }
            Err(error) => self.on_failure(index, error.clone()),
        }
    }

    fn on_answer(&mut self, index: usize, version: Version, answer: &pb::MemberResult) -> Result<()> {
        let peer = &mut self.peers[index];
        // Versions of a later epoch are a recovery's or another holder's work: what this holder sent may be gone from
        // there, so such an answer acknowledges nothing (`SyncIgnoresEpoch` in the protocol model).
        let (received, synced) = (convert::version(answer.received), convert::version(answer.synced));
        let highest = received.max(synced);
        if highest.epoch > self.epoch {
            return Err(err!(
                StaleEpoch,
                "n{} is at {highest}, past epoch {}: the lease is lost",
                answer.node,
                self.epoch
            ));
        }
        let boot = answer.boot_id();
        if boot.is_some_and(|boot| peer.old_boots.contains(&boot)) {
            // Of a process that is gone. What it synced is on the disk, what it received is not.
            // (Or of the present one, if answers of several overtook each other: catching up finds out.)
            peer.synced = peer.synced.max(synced);
            self.hold = true;
            return Ok(());
        }
        // What a process before this one had synced, if this is a new one.
        let mut synced_before = None;
        // A failure that says nothing of a process says nothing of versions either.
        if let Some(boot) = boot {
            match peer.boot.replace(boot) {
                Some(before) if before != boot => {
                    peer.old_boots.push(before);
                    synced_before = Some(peer.synced);
                    peer.synced = peer.synced.max(synced);
                    peer.received = received.max(peer.synced);
                    self.hold = true;
                }
                _ => {
                    peer.synced = peer.synced.max(synced);
                    peer.received = peer.received.max(received).max(synced);
                }
            }
        }
        let failure = convert::failure(answer.failure.clone());
        let tells_of_replica = failure.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::Gap);
        if let Some(had) = synced_before
            && tells_of_replica
            && received.max(synced) < had
        {
            // What it had synced is in no memory any more, so asking again is of no use.
            let node = peer.member.node;
            let error =
                err!(StaleVersion, "n{node} is at {received} and had synced {had}: its disk has gone back in time");
            return self.on_failure(index, error);
        }
        if let Err(error) = failure {
            return self.on_failure(index, error);
        }
        self.compare_received(index, version);
        Ok(())
    }

    /// After a member was sent `version`, and nothing failed.
    fn compare_received(&mut self, index: usize, version: Version) {
        let peer = &mut self.peers[index];
        if peer.received < version {
            self.hold = true;
        } else {
            peer.tries = 0;
        }
    }

    fn on_failure(&mut self, index: usize, error: Error) -> Result<()> {
        use ErrorKind as Kind;
        let settled = self.settled;
        let peer = &mut self.peers[index];
        self.hold = true;
        match error.kind() {
            Kind::StaleEpoch => return Err(error),
            Kind::Gap => {
                // It has not what came before: everything that is not known to be on its disk goes again.
                peer.received = peer.synced.max(settled);
                peer.tries += 1;
            }
            Kind::Timeout
            | Kind::Disconnected
            | Kind::Unreachable
            | Kind::Overloaded
            | Kind::ShuttingDown
            | Kind::Unavailable
            | Kind::Interrupted => {
                // Whether it was received is not known; sent again it is answered as done.
                peer.received = peer.synced.max(settled);
                // A time-out has already cost seconds.
                peer.tries += if error.kind() == Kind::Timeout { 3 } else { 1 };
            }
            _ => peer.tries = TRIES_MAX,
        }
        if peer.tries >= TRIES_MAX {
            peer.failed = Some(error);
        }
        Ok(())
    }

    /// A member that must be replaced without further attempts (its node is known to be dead).
    pub fn fail(&mut self, index: usize, error: Error) {
        self.peers[index].failed = Some(error);
        self.hold = true;
    }

    /// A failed member answered again: it stays.
    pub fn revive(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.failed = None;
        peer.displaced = false;
        peer.tries = 0;
        self.hold = true;
    }

    /// Takes out what every member has synced.
    pub fn take_synced(&mut self) -> Vec<Arc<Outgoing>> {
        let synced = self.peers.iter().map(|peer| peer.synced).min().unwrap_or(self.settled);
        let mut done = Vec::new();
        while let Some(write) = self.pending.front().filter(|write| write.version <= synced) {
            self.settled = write.version;
            self.settled_length = write.length_after;
            done.push(write.clone());
            self.pending.pop_front();
        }
        if !done.is_empty() && !self.repairing {
            self.trouble_since = None;
        }
        done
    }

    /// The record as this holder knows it.
    pub fn record(&self, index: u64) -> pb::Metablock {
        pb::Metablock {
            id: self.id.raw(),
            index,
            version: Some(self.settled.into()),
            length: self.settled_length,
            generation: self.generation,
            members: self.peers.iter().map(|peer| peer.member).collect(),
            // Whoever puts the record in place knows.
            reserved: 0,
            // While somebody may write there are none.
            extra: Vec::new(),
            left_out: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
