//! Direct writes on the side of the lease holder, which is the proxy. Members have the bytes before these have a
//! version, because the writer has put them there (`put.rs`).
//!
//! Such a write is like any other in its channel, except for its bytes: a member gets the name under which it has them.
//! While members sleep, those that are awake keep the bytes. A keeper's node logs them by their name, for the members
//! that sleep. A member that lost them needs them again, and so does a log that has too few keepers. Then they are
//! fetched back from a keeper, or from the always-on node's log. Each keeper has them until all members have synced the
//! write. They are never rebuilt from a member's metablock: its bytes may be newer, and a version once sent never
//! carries other bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_types::deadlines::WRITE_DEADLINE;
use ebb_types::{LOG_COPIES_MIN, Piece, Result, err};
use ebb_wire::pb;

use crate::client::Client;
use crate::lease::Entry;
use crate::lease::hold::Lease;
use crate::plan::grants_needed;
use crate::shared::Shared;
use crate::types::{Handle, Privileges};
use crate::write::channel::Channel;
use crate::write::drive::{Target, drive};
use crate::write::outgoing::{Content, Outgoing, Put};
use crate::write::{FILE_SIZE_MAX, loses_privileges};

/// A member that is awake for less than this is given no bytes, in milliseconds. Put, report and write take some
/// milliseconds.
const LEAST_AWAKE_MS: u64 = 500;

/// Names to be dropped, by the node that keeps their bytes.
pub(crate) type Dropped = BTreeMap<u64, Vec<pb::StagedName>>;

impl Client {
    /// The members for the bytes of a direct write through a pinned handle, with room for the bytes granted: those that
    /// are awake. An empty list: not now, because too few are awake, or one does not answer, is switched off or is being
    /// replaced. The bytes then have to come here.
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
        let copies = core.attr.as_ref().map_or(LOG_COPIES_MIN, |attr| attr.storage.log_copies);
        let mut parts = Vec::new();
        for piece in core.geometry().pieces(offset, len).collect::<Vec<_>>() {
            let Some(channel) = core.channel(piece.metablock_index) else { return Ok(Vec::new()) };
            let Some(members) = shared.keepers(channel, copies) else { return Ok(Vec::new()) };
            parts.push(pb::DirectPart {
                metablock: channel.id.raw(),
                offset: piece.offset,
                length: piece.len,
                members,
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
                let keepers = part.members.iter().map(|member| member.node).collect();
                channel.push(Content::put(part.offset, part.length, Put { ticket, keepers }));
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

    /// Returns when a range can be read: all members have synced the bytes in it that only members have, or these are
    /// here. They are fetched back if a member sleeps.
    pub async fn settle_direct(&self, handle: Handle, offset: u64, len: u64) -> Result<()> {
        let file = self.shared().handles.get(handle)?;
        let (shared, inode) = (self.shared(), &file.inode);
        let elsewhere: Vec<_> = {
            let core = inode.core.lock();
            let pieces = core.geometry().pieces(offset, len.min(core.size.saturating_sub(offset)));
            let of_piece = |piece: Piece| {
                let index = piece.metablock_index;
                let channel = core.channels.get(&index)?;
                let writes = channel.elsewhere(piece.offset, piece.offset + piece.len);
                (!writes.is_empty()).then_some((index, channel.serial, writes))
            };
            pieces.filter_map(of_piece).collect()
        };
        if elsewhere.is_empty() {
            return Ok(());
        }
        for (index, serial, writes) in elsewhere {
            let target = Target { shared: shared.clone(), inode: inode.clone(), index, serial };
            if !target.may_sleep() {
                return shared.flush(inode).await;
            }
            for write in writes {
                if target.fetch_back(&write).await.is_err() {
                    return shared.flush(inode).await;
                }
            }
        }
        Ok(())
    }

    /// Has members drop the bytes of a ticket, which will never be written. Does not wait for them.
    pub fn drop_direct(&self, ticket: pb::Ticket, parts: &[pb::DirectPart]) {
        let mut dropped = Dropped::new();
        for part in parts {
            let name = pb::StagedName { ticket: Some(ticket), metablock: part.metablock };
            part.members.iter().for_each(|member| dropped.entry(member.node).or_default().push(name));
        }
        drop_put(self.shared(), dropped);
    }
}

impl Shared {
    /// The members of a set that bytes may be put with: those that are awake for long enough. None: the bytes have to
    /// come here, because a member fails or is switched off, or a log for a sleeping one would have too few keepers.
    fn keepers(&self, channel: &Channel, log_copies: u32) -> Option<Vec<pb::Member>> {
        let (nodes, members) = (&self.nodes, || channel.peers.iter().map(|peer| peer.member));
        let answers = |member: &pb::Member| {
            let is_well = !nodes.is_dead(member.node) && nodes.check_answers(member.node).is_ok();
            is_well && self.wakes_in(member.node).is_some()
        };
        if channel.is_ailing() || !members().all(|member| answers(&member)) {
            return None;
        }
        let keepers: Vec<_> =
            members().filter(|member| self.awake_for(member.node_id()).serves_for(LEAST_AWAKE_MS)).collect();
        let may_sleep = members().any(|member| !self.awake_for(member.node_id()).is_always());
        // The always-on node's log gets the bytes from a keeper.
        let least = if may_sleep { log_copies.saturating_sub(1).max(1) as usize } else { channel.peers.len() };
        (keepers.len() >= least).then_some(keepers)
    }
}

/// The direct writes whose bytes need not be kept any more: every member has synced those that are `settled`. Others are
/// logged, and with every keeper.
pub(crate) fn over(channel: &mut Channel, settled: &[Arc<Outgoing>]) -> Dropped {
    let mut dropped = Dropped::new();
    // Those that were released before are dropped already.
    let mut over: Vec<_> = settled.iter().filter(|write| channel.is_kept(write)).cloned().collect();
    over.extend(channel.take_released());
    for put in over.iter().filter_map(|write| write.staged.as_ref()) {
        let name = pb::StagedName { ticket: Some(put.ticket), metablock: channel.id.raw() };
        put.keepers.iter().for_each(|node| dropped.entry(*node).or_default().push(name));
    }
    dropped
}

/// Has each node drop the names. It asks once and does not wait: a node that misses the call drops them later.
pub(crate) fn drop_put(shared: &Arc<Shared>, dropped: Dropped) {
    for (node, names) in dropped {
        let Some(address) = shared.nodes.address(node) else { continue };
        let (own, message) = (shared.clone(), pb::DropStaged { names });
        shared.runtime.spawn("drop what was put", async move {
            let answer = own.connector.channel(&address).call(&message, WRITE_DEADLINE).await;
            if let Err(error) = answer {
                tracing::debug!(node, %error, "a node keeps what was put a while longer");
            }
        });
    }
}
