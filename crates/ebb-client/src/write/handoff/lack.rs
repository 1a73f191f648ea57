//! The writes that members lack, as calls to logs.

use std::collections::BTreeMap;

use bytes::Bytes;
use ebb_types::{LOG_COPIES_MIN, MetablockId, Result, Version, bail};
use ebb_wire::pb;

use super::late_channels;
use crate::inode::Inode;
use crate::shared::Shared;
use crate::write::channel::Channel;
use crate::write::flush::Goal;

/// Most bytes that are logged for one flush. With more it waits for the members.
const BYTES_MAX: usize = 8 << 20;

/// The writes to be logged.
pub(super) struct Lack {
    /// In order: no write stands before its predecessor. None, if all are logged already.
    pub calls: Vec<LogCall>,
    /// (index, serial of its channel, version up to which it is logged afterwards, version up to which it is cut).
    pub marks: Vec<(u64, u64, Version, Version)>,
    /// Logs that the writes are to be in.
    pub copies: usize,
}

/// A call to a log. Each is short, so that a log syncs one while the next one comes.
#[derive(Clone)]
pub(super) struct LogCall {
    /// Some of the writes. The first call has the cuts.
    pub message: pb::LogWrites,
    /// Their bytes.
    pub payload: Vec<Bytes>,
}

impl Shared {
    /// The writes of the goal's channels that are neither synced by all members nor logged. `None` if no member sleeps.
    pub(super) fn lack(&self, inode: &Inode, goal: &Goal) -> Result<Option<Lack>> {
        let core = inode.core.lock();
        let late: Vec<_> = late_channels(&core, goal).collect();
        if !late.iter().any(|(_, channel)| self.sleeps_long(channel)) {
            return Ok(None);
        }
        if let Some((_, channel)) = late.iter().find(|(_, channel)| channel.is_ailing()) {
            bail!(Unavailable, "a member of {} is being replaced", channel.id);
        }
        let message = pb::LogWrites { inode: inode.id.raw(), epoch: goal.epoch().raw(), ..pb::LogWrites::default() };
        let mut calls = Calls::new(message, self.options.sizes.log_call_max);
        let mut marks = Vec::new();
        for ((index, serial, version), channel) in late {
            calls.add_channel(channel, *version)?;
            let cut = calls.add_cut(channel);
            marks.push((*index, *serial, *version, cut));
        }
        let bytes = calls.bytes();
        if bytes > BYTES_MAX {
            bail!(Overloaded, "{bytes} bytes wait for nodes that sleep, and at most {BYTES_MAX} can be logged");
        }
        let copies = core.attr.as_ref().map_or(LOG_COPIES_MIN, |attr| attr.storage.log_copies) as usize;
        Ok(Some(Lack { calls: calls.into_calls(), marks, copies }))
    }
}

/// Calls that are being put together.
struct Calls {
    /// The file and its epoch.
    head: pb::LogWrites,
    bytes_max: usize,
    calls: Vec<LogCall>,
    cuts: Vec<pb::LogCut>,
}

impl Calls {
    const fn new(head: pb::LogWrites, bytes_max: usize) -> Self {
        Self { head, bytes_max, calls: Vec::new(), cuts: Vec::new() }
    }

    /// Adds the writes up to `upto` that are neither logged nor synced by all members.
    fn add_channel(&mut self, channel: &Channel, upto: Version) -> Result<()> {
        let lacks = channel.peers.iter().filter(|peer| peer.synced < upto);
        let nodes: Vec<u64> = lacks.map(|peer| peer.member.node).collect();
        let base = channel.logged.max(channel.settled);
        for write in channel.pending(base, upto) {
            if write.elsewhere().is_some() {
                bail!(Unavailable, "the bytes of a direct write to {} are being fetched back", channel.id);
            }
            let (logged, bytes) = write.to_message(channel.id);
            let call = self.call_for(&bytes);
            call.payload.extend(bytes);
            call.message.writes.push(logged);
            if call.message.lacks.last().is_none_or(|lack| lack.metablock != channel.id.raw()) {
                let metablock = channel.id.raw();
                call.message.lacks.push(pb::LogLack { metablock, nodes: nodes.clone() });
                call.message.bases.push(pb::LogCut { metablock, version: Some(base.into()) });
            }
        }
        Ok(())
    }

    /// The last call, if it has room for these bytes, or else another one.
    fn call_for(&mut self, bytes: &[Bytes]) -> &mut LogCall {
        let size = |bytes: &[Bytes]| bytes.iter().map(Bytes::len).sum::<usize>();
        let has_room = |call: &LogCall| size(&call.payload) + size(bytes) <= self.bytes_max;
        if !self.calls.last().is_some_and(has_room) {
            self.calls.push(LogCall { message: self.head.clone(), payload: Vec::new() });
        }
        self.calls.last_mut().expect("one was added")
    }

    /// Has the logs drop what all members of a channel have; up to where.
    fn add_cut(&mut self, channel: &Channel) -> Version {
        let cut = channel.settled.min(channel.logged).max(channel.cut);
        if cut > channel.cut {
            self.cuts.push(pb::LogCut { metablock: channel.id.raw(), version: Some(cut.into()) });
        }
        cut
    }

    fn bytes(&self) -> usize {
        self.calls.iter().flat_map(|call| &call.payload).map(Bytes::len).sum()
    }

    fn into_calls(mut self) -> Vec<LogCall> {
        if let Some(first) = self.calls.first_mut() {
            first.message.cuts = std::mem::take(&mut self.cuts);
        }
        self.assert_order();
        self.calls
    }

    /// A write that stood before its predecessor would wait for it in vain.
    fn assert_order(&self) {
        let mut last: BTreeMap<MetablockId, Version> = BTreeMap::new();
        for write in self.calls.iter().flat_map(|call| &call.message.writes) {
            let version = ebb_wire::convert::version(write.version);
            let before = last.insert(MetablockId::new(write.metablock), version);
            assert!(before.is_none_or(|before| before < version), "{version} is logged behind {before:?}");
        }
    }
}
