//! Direct writes on the side of the lease holder, which is the proxy. Members have the bytes before these have a
//! version, because the writer has put them there (`put.rs`).
//!
//! Such a write is like any other in its channel, except for its bytes: a member gets the name under which it has them.
//! A member that lost them needs them again, and so does a log for a sleeping member. Then they are fetched back from
//! any member. Each member keeps them until all have synced the write. They are never rebuilt from a member's
//! metablock: its bytes may be newer, and a version once sent never carries other bytes.

use std::sync::Arc;

use bytes::Bytes;
use ebb_types::deadlines::WRITE_DEADLINE;
use ebb_types::{Error, ErrorKind, Result, err};
use ebb_wire::pb;

use crate::client::Client;
use crate::inode::Inode;
use crate::lease::Entry;
use crate::lease::hold::Lease;
use crate::plan::grants_needed;
use crate::shared::Shared;
use crate::types::{Handle, Privileges};
use crate::write::channel::Channel;
use crate::write::drive::{Target, drive};
use crate::write::flush::Goal;
use crate::write::members;
use crate::write::outgoing::{Content, Outgoing, checksum_runs};
use crate::write::{FILE_SIZE_MAX, loses_privileges};

/// Names to be dropped, and the members that keep them.
type Dropped = Option<(Vec<pb::Member>, Vec<pb::StagedName>)>;

impl Client {
    /// The members for the bytes of a direct write through a pinned handle, with room for the bytes granted. An empty
    /// list: not now, because a member sleeps, may sleep soon, or is being replaced. The bytes then have to come here.
    pub async fn prepare_direct(&self, handle: Handle, offset: u64, len: u64) -> Result<Vec<pb::DirectPart>> {
        let file = self.shared().handles.get(handle)?;
        let (shared, inode) = (self.shared(), &file.inode);
        let Entry::Lease(_gate) = shared.enter(inode, Lease::Write, file.pinned).await? else { return Ok(Vec::new()) };
        file.check_sticky()?;
        let end = offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX);
        let Some(end) = end.filter(|_| len > 0) else {
            return Err(err!(FileTooLarge, "a write of {len} bytes at {offset} ends beyond the largest file"));
        };
        shared.ensure_granted(inode, offset, end).await?;
        let mut core = inode.core.lock();
        let mut parts = Vec::new();
        for piece in core.geometry().pieces(offset, len).collect::<Vec<_>>() {
            let Some(channel) = core.channel(piece.metablock_index) else { return Ok(Vec::new()) };
            if channel.is_ailing() || channel.peers.iter().any(|peer| !shared.takes_direct(&peer.member)) {
                return Ok(Vec::new());
            }
            parts.push(pb::DirectPart {
                metablock: channel.id.raw(),
                offset: piece.offset,
                length: piece.len,
                members: channel.peers.iter().map(|peer| peer.member).collect(),
            });
        }
        Ok(parts)
    }

    /// Gives the put bytes their versions, in one step for all their metablocks, and has the members write them. False:
    /// nothing was done, because the file has other metablocks there by now.
    pub async fn apply_direct(
        &self,
        handle: Handle,
        offset: u64,
        ticket: pb::Ticket,
        parts: &[pb::DirectPart],
        privileges: Privileges,
    ) -> Result<bool> {
        let file = self.shared().handles.get(handle)?;
        let (shared, inode) = (self.shared(), &file.inode);
        let Entry::Lease(_gate) = shared.enter(inode, Lease::Write, file.pinned).await? else { return Ok(false) };
        file.check_sticky()?;
        let _order = inode.order.lock().await;
        let end = offset + parts.iter().map(|part| part.length).sum::<u64>();
        let touched = {
            let mut core = inode.core.lock();
            if let Some(error) = core.channels.values().find_map(|channel| channel.gave_up.clone()) {
                return Err(error);
            }
            let indexes: Vec<u64> =
                core.geometry().pieces(offset, end - offset).map(|piece| piece.metablock_index).collect();
            let is_same = |(index, part): (&u64, &pb::DirectPart)| {
                core.map.get(index).is_some_and(|record| record.id == part.metablock)
            };
            let is_granted = grants_needed(&core.map, core.geometry(), offset, end).is_empty();
            if core.hold.lease() != Lease::Write || !is_granted || !indexes.iter().zip(parts).all(is_same) {
                return Ok(false);
            }
            // Earlier writes come first.
            core.stage(offset, end);
            for (index, part) in indexes.iter().zip(parts) {
                let channel = core.channel(*index).expect("its record was just seen");
                channel.push(Content::put(part.offset, part.length, ticket));
            }
            core.size = core.size.max(end);
            core.touch(shared.runtime.wall());
            let takes = privileges == Privileges::Taken || !file.privileged;
            let may_have = core.attr_stale || core.attr.as_ref().is_some_and(|attr| loses_privileges(attr.mode));
            core.unrecorded.privileges |= takes && may_have;
            indexes
        };
        shared.queue.mark(inode.id, shared.runtime.now());
        for index in touched {
            drive(shared, inode, index);
        }
        shared.grant_ahead(inode, end);
        shared.take_privileges(inode).await;
        Ok(true)
    }

    /// Returns when a range can be read: all members have synced the bytes in it that only members have.
    pub async fn settle_direct(&self, handle: Handle, offset: u64, len: u64) -> Result<()> {
        let file = self.shared().handles.get(handle)?;
        let is_elsewhere = {
            let core = file.inode.core.lock();
            let pieces = core.geometry().pieces(offset, len.min(core.size.saturating_sub(offset)));
            let mut channels = pieces.filter_map(|piece| Some((core.channels.get(&piece.metablock_index)?, piece)));
            channels.any(|(channel, piece)| channel.is_elsewhere(piece.offset, piece.offset + piece.len))
        };
        if is_elsewhere { self.shared().flush(&file.inode).await } else { Ok(()) }
    }

    /// Has members drop the bytes of a ticket, which will never be written. Does not wait for them.
    pub fn drop_direct(&self, ticket: pb::Ticket, parts: &[pb::DirectPart]) {
        for part in parts {
            let name = pb::StagedName { ticket: Some(ticket), metablock: part.metablock };
            drop_put(self.shared(), Some((part.members.clone(), vec![name])));
        }
    }
}

impl Shared {
    /// Whether bytes may be put with a member: it answers, and no plan lets it sleep.
    fn takes_direct(&self, member: &pb::Member) -> bool {
        let nodes = &self.nodes;
        self.awake_for(member.node_id()).is_always()
            && !nodes.is_dead(member.node)
            && nodes.check_answers(member.node).is_ok()
    }

    /// Fetches the bytes of direct writes back before writes are logged for sleeping members. If the bytes of a write
    /// cannot be fetched, the log waits.
    pub async fn fetch_back_goal(self: &Arc<Self>, inode: &Arc<Inode>, goal: &Goal) {
        for (index, serial, version) in goal.channels() {
            let target = Target { shared: self.clone(), inode: inode.clone(), index: *index, serial: *serial };
            let may_sleep = |member: &pb::Member| !self.awake_for(member.node_id()).is_always();
            if !target.members().iter().any(may_sleep) {
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
    /// Makes sure that the bytes of a direct write are here. `Unavailable`: a member that may have them did not answer.
    /// `NoReplica`: no member has them any more.
    pub async fn fetch_back(&self, write: &Outgoing) -> Result<()> {
        let Some(ticket) = write.elsewhere() else { return Ok(()) };
        let Some(id) = self.with(|channel| channel.id) else { return Ok(()) };
        let message = pb::ReadStaged { name: Some(pb::StagedName { ticket: Some(ticket), metablock: id.raw() }) };
        let mut unheard = None;
        for member in self.members() {
            let asked = async {
                if self.shared.awake_for(member.node_id()).is_asleep() {
                    return Err(err!(Unavailable, "n{} sleeps", member.node));
                }
                let hop = self.shared.nodes.hop(&member)?;
                members::read_put(&self.shared, &hop, &message, write.length as usize).await
            };
            match asked.await {
                Ok(reply) if !reply.message.found => {}
                Ok(reply) if is_whole(write, &reply.payload, &reply.message.checksums) => {
                    // Another task may have fetched the same bytes first.
                    let _ = write.fetched.set(reply.payload);
                    self.shared.metrics.fetched_back_writes.add(1);
                    return Ok(());
                }
                Ok(_) => unheard = Some(err!(Corrupt, "n{} keeps other bytes than were put", member.node)),
                Err(error) => unheard = Some(error),
            }
        }
        Err(match unheard {
            Some(error) => Error::new(ErrorKind::Unavailable, format!("bytes that were put for {id}: {error}")),
            None => err!(NoReplica, "no member of {id} keeps what was put as {} any more", write.version),
        })
    }
}

fn is_whole(write: &Outgoing, bytes: &Bytes, checksums: &[u32]) -> bool {
    bytes.len() as u64 == write.length && checksum_runs(write.offset, std::slice::from_ref(bytes)) == checksums
}

/// The direct writes among `settled`, whose bytes members need not keep any more: every member has synced them.
pub(crate) fn over(channel: &Channel, settled: &[Arc<Outgoing>]) -> Dropped {
    let metablock = channel.id.raw();
    let name = |write: &Arc<Outgoing>| Some(pb::StagedName { ticket: Some(write.staged?), metablock });
    let names: Vec<_> = settled.iter().filter_map(name).collect();
    (!names.is_empty()).then(|| (channel.peers.iter().map(|peer| peer.member).collect(), names))
}

/// Has each member drop the names. It asks once and does not wait: a member that misses the call drops them later.
pub(crate) fn drop_put(shared: &Arc<Shared>, dropped: Dropped) {
    let Some((members, names)) = dropped else { return };
    for member in members {
        let Ok(hop) = shared.nodes.hop(&member) else { continue };
        let (own, message) = (shared.clone(), pb::DropStaged { names: names.clone() });
        shared.runtime.spawn("drop what was put", async move {
            let answer = own.connector.channel(&hop.address).call(&message, WRITE_DEADLINE).await;
            if let Err(error) = answer {
                tracing::debug!(node = member.node, %error, "a member keeps what was put a while longer");
            }
        });
    }
}
