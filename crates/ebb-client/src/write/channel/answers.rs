//! Answers of members, and their effects on a channel.

use ebb_types::{Error, ErrorKind, Result, Version, err};
use ebb_wire::{convert, pb};

use super::Channel;
use crate::write::members::Heard;

/// Failed attempts after which a member is replaced. With the waits between them (see [`super::retry_wait_ms`]) they
/// last long enough for a restart of its process.
const TRIES_MAX: u32 = 5;

impl Channel {
    /// Takes the answers to a [`super::Step::Send`], one for each member in order. Fails if the lease is lost.
    pub fn on_sent(&mut self, version: Version, results: &[Heard]) -> Result<()> {
        assert!(self.flights > 0, "an answer without a flight on {}", self.id);
        assert!(
            results.len() == self.peers.len(),
            "{} answers of {} members on {}",
            results.len(),
            self.peers.len(),
            self.id
        );
        self.flights -= 1;
        let mut verdict = Ok(());
        for (index, result) in results.iter().enumerate() {
            // Every answer counts, also after one that says that the lease is lost.
            verdict = verdict.and(self.on_member(index, version, result));
        }
        verdict
    }

    /// Takes an answer within a [`super::Step::CatchUp`], to a write that was accepted. Others are under way.
    pub fn on_taken(&mut self, peer: usize, version: Version, result: &Heard) -> Result<()> {
        self.on_member(peer, version, result)
    }

    /// Takes the last answer of a [`super::Step::CatchUp`], and the version that it is about.
    pub fn on_caught_up(&mut self, peer: usize, version: Version, result: &Heard) -> Result<()> {
        self.set_idle(peer);
        // Writes may have gone to the others meanwhile, so its missing writes are computed again.
        self.hold = true;
        self.on_member(peer, version, result)
    }

    /// Takes one member's answer to a [`super::Step::Sync`].
    pub fn on_synced(&mut self, peer: usize, result: &Result<pb::SyncReplicasReply>) -> Result<()> {
        self.set_idle(peer);
        self.note_synced(peer, result)
    }

    /// The answer of a member that has fallen asleep is not waited for. It has what it had, as far as is known.
    pub fn on_given_up(&mut self, peer: usize) {
        self.set_idle(peer);
        self.hold = true;
    }

    fn set_idle(&mut self, peer: usize) {
        let peer = &mut self.peers[peer];
        assert!(peer.busy, "n{} answers on {} and was not asked", peer.member.node, self.id);
        peer.busy = false;
    }

    /// Takes a member's answer to a sync that a repair asked for.
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
        // Versions of a later epoch are a recovery's or another holder's work. This holder's writes may be gone from
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
            // The answer is from a process that is gone. Its synced writes are on the disk, and its others are lost.
            // If answers of several processes overtook each other, it may be from the present one: catching up finds
            // out.
            peer.synced = peer.synced.max(synced);
            self.hold = true;
            return Ok(());
        }
        // What an earlier process had synced, if this is a new process.
        let mut synced_before = None;
        // A failure without a process has no versions either.
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
        let is_of_replica = failure.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::Gap);
        if let Some(had) = synced_before
            && is_of_replica
            && received.max(synced) < had
        {
            // The process that lost its synced writes has them in no memory, so asking again is of no use.
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
                // It lacks an earlier write. Everything that is not known to be on its disk is sent again.
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
                // It is not known whether the write was received. A member answers a repeated write without applying it
                // again.
                peer.received = peer.synced.max(settled);
                // A time-out has cost seconds, so it counts for several attempts.
                peer.tries += if error.kind() == Kind::Timeout { 3 } else { 1 };
            }
            _ => peer.tries = TRIES_MAX,
        }
        if peer.tries >= TRIES_MAX {
            peer.failed = Some(error);
        }
        Ok(())
    }
}
