//! Bytes of direct writes that the lease holder needs after all: for a member that has lost them or was asleep when they
//! were put, for a log with too few keepers, and for a reader.

use std::sync::Arc;

use bytes::Bytes;
use ebb_types::deadlines::WRITE_DEADLINE;
use ebb_types::{Error, ErrorKind, MetablockId, NodeId, Result, err};
use ebb_wire::{convert, pb};

use crate::inode::Inode;
use crate::shared::Shared;
use crate::write::drive::Target;
use crate::write::flush::Versions;
use crate::write::members;
use crate::write::outgoing::{Outgoing, checksum_runs};

impl Shared {
    /// Fetches the bytes of direct writes back before writes are logged for sleeping members. If the bytes of a write
    /// cannot be fetched, the log waits.
    pub async fn fetch_back_goal(self: &Arc<Self>, inode: &Arc<Inode>, goal: &Versions) {
        for (index, serial, version) in &goal.channels {
            let target = Target { shared: self.clone(), inode: inode.clone(), index: *index, serial: *serial };
            if !target.may_sleep() {
                continue;
            }
            let writes = target.with(|channel| channel.pending(channel.settled, *version)).unwrap_or_default();
            for write in writes {
                if let Err(error) = target.fetch_back(&write).await {
                    tracing::debug!(inode = %inode.id, %error, "the bytes of a direct write are not to be had now");
                }
            }
        }
    }
}

impl Target {
    /// Whether a plan lets a member sleep.
    pub fn may_sleep(&self) -> bool {
        self.members().iter().any(|member| !self.shared.awake_for(member.node_id()).is_always())
    }

    /// Makes sure that the bytes of a direct write are here. `Unavailable`: a keeper did not answer. `NoReplica`: no keeper
    /// has them any more, and no log.
    pub async fn fetch_back(&self, write: &Outgoing) -> Result<()> {
        let Some(put) = write.elsewhere() else { return Ok(()) };
        let Some((id, logged)) = self.with(|channel| (channel.id, channel.logged)) else { return Ok(()) };
        let message = pb::ReadStaged { name: Some(pb::StagedName { ticket: Some(put.ticket), metablock: id.raw() }) };
        let mut unheard = None;
        for node in put.keepers.iter().copied() {
            let asked = async {
                if self.shared.awake_for(NodeId::new(node)).is_asleep() {
                    return Err(err!(Unavailable, "n{node} sleeps"));
                }
                let hop = self.shared.nodes.hop(&pb::Member { node, ..pb::Member::default() })?;
                members::read_put(&self.shared, &hop, &message, write.length as usize).await
            };
            match asked.await {
                Ok(reply) if !reply.message.found => {}
                Ok(reply) if is_whole(write, &reply.payload, &reply.message.checksums) => {
                    self.on_fetched(write, reply.payload);
                    return Ok(());
                }
                Ok(_) => unheard = Some(err!(Corrupt, "n{node} keeps other bytes than were put")),
                Err(error) => unheard = Some(error),
            }
        }
        if write.version <= logged {
            match self.read_logged(id, write).await {
                Ok(bytes) => {
                    self.on_fetched(write, bytes);
                    return Ok(());
                }
                // All members may have it by now, and then the log has dropped it.
                Err(error) => unheard = Some(error),
            }
        }
        Err(match unheard {
            Some(error) => Error::new(ErrorKind::Unavailable, format!("bytes that were put for {id}: {error}")),
            None => err!(NoReplica, "no node keeps what was put as {} of {id} any more", write.version),
        })
    }

    fn on_fetched(&self, write: &Outgoing, bytes: Bytes) {
        // Another task may have fetched the same bytes first.
        let _ = write.fetched.set(bytes);
        self.shared.metrics.fetched_back_writes.add(1);
    }

    /// The bytes of a write, from the always-on node's log.
    async fn read_logged(&self, id: MetablockId, write: &Outgoing) -> Result<Bytes> {
        let message = pb::ReadLogged {
            inode: self.inode.id.raw(),
            metablock: id.raw(),
            after: Some(write.predecessor.into()),
            upto: Some(write.version.into()),
            page_bytes: write.length,
        };
        let masters = &self.shared.session.masters;
        let answer = masters.call_with(&message, Vec::new(), WRITE_DEADLINE).await?;
        let found = answer.message.writes.into_iter().find(|found| convert::version(found.version) == write.version);
        match found {
            Some(found) if is_whole(write, &answer.payload, &found.checksums) => Ok(answer.payload),
            Some(_) => Err(err!(Corrupt, "the log keeps other bytes than were put as {} of {id}", write.version)),
            None => Err(err!(Unavailable, "{} of {id} is not in the log", write.version)),
        }
    }
}

fn is_whole(write: &Outgoing, bytes: &Bytes, checksums: &[u32]) -> bool {
    bytes.len() as u64 == write.length && checksum_runs(write.offset, std::slice::from_ref(bytes)) == checksums
}
