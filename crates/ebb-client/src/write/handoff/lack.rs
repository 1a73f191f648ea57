//! The writes that members lack, as calls to logs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use ebb_types::{LOG_COPIES_MIN, MetablockId, Result, Version, bail};
use ebb_wire::pb;

use super::late_channels;
use crate::inode::Inode;
use crate::shared::Shared;
use crate::write::channel::Channel;
use crate::write::flush::Versions;

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
    /// Nodes that keep the bytes of all direct writes among them: these are named, and not sent. `None`: all bytes are
    /// here.
    pub keepers: Option<BTreeSet<u64>>,
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
    pub(super) fn lack(&self, inode: &Inode, goal: &Versions) -> Result<Option<Lack>> {
        let core = inode.core.lock();
        let late: Vec<_> = late_channels(&core, goal).collect();
        if !late.iter().any(|(_, channel)| self.sleeps_long(channel)) {
            return Ok(None);
        }
        if let Some((_, channel)) = late.iter().find(|(_, channel)| !self.holds_settled(channel)) {
            bail!(Unavailable, "too few members of {} have what its logged writes follow", channel.id);
        }
        let message = pb::LogWrites { inode: inode.id.raw(), epoch: goal.epoch.raw(), ..pb::LogWrites::default() };
        let mut calls = Calls::new(message, self.options.sizes.log_call_max);
        let mut marks = Vec::new();
        for ((index, serial, version), channel) in late {
            calls.add_channel(channel, *version);
            let cut = calls.add_cut(channel);
            marks.push((*index, *serial, *version, cut));
        }
        let bytes = calls.load;
        if bytes > BYTES_MAX {
            bail!(Overloaded, "{bytes} bytes wait for nodes that sleep, and at most {BYTES_MAX} can be logged");
        }
        let copies = core.attr.as_ref().map_or(LOG_COPIES_MIN, |attr| attr.storage.log_copies) as usize;
        let keepers = calls.keepers.take();
        Ok(Some(Lack { calls: calls.into_calls(), marks, copies, keepers }))
    }

    /// Whether as many members as a write needs have what all had synced, as far as is known: those that are well, and
    /// those that failed because their nodes sleep or are off by a plan. What is logged follows it.
    fn holds_settled(&self, channel: &Channel) -> bool {
        let is_away = |node: u64| self.wakes_in(node) != Some(Duration::ZERO) && !self.nodes.is_dead(node);
        channel.holders(is_away) >= channel.min()
    }
}

/// Calls that are being put together.
struct Calls {
    /// The file and its epoch.
    head: pb::LogWrites,
    bytes_max: usize,
    calls: Vec<LogCall>,
    cuts: Vec<pb::LogCut>,
    /// Bytes of all writes, and of those in the last call.
    load: usize,
    load_of_last: usize,
    keepers: Option<BTreeSet<u64>>,
}

impl Calls {
    const fn new(head: pb::LogWrites, bytes_max: usize) -> Self {
        Self { head, bytes_max, calls: Vec::new(), cuts: Vec::new(), load: 0, load_of_last: 0, keepers: None }
    }

    /// Adds the writes up to `upto` that are neither logged nor synced by all members.
    fn add_channel(&mut self, channel: &Channel, upto: Version) {
        let lacks = channel.peers.iter().filter(|peer| peer.synced < upto);
        let nodes: Vec<u64> = lacks.map(|peer| peer.member.node).collect();
        let base = channel.logged.max(channel.settled);
        for write in channel.pending(base, upto) {
            let (logged, bytes) = write.to_message(channel.id);
            if logged.staged.is_some()
                && let Some(put) = &write.staged
            {
                let known = self.keepers.take();
                let is_common = |node: &u64| known.as_ref().is_none_or(|known| known.contains(node));
                self.keepers = Some(put.keepers.iter().copied().filter(is_common).collect());
            }
            let call = self.call_for(write.load());
            call.payload.extend(bytes);
            call.message.writes.push(logged);
            if call.message.lacks.last().is_none_or(|lack| lack.metablock != channel.id.raw()) {
                let metablock = channel.id.raw();
                call.message.lacks.push(pb::LogLack { metablock, nodes: nodes.clone() });
                call.message.bases.push(pb::LogCut { metablock, version: Some(base.into()) });
            }
        }
    }

    /// The last call, if it has room for a write of so many bytes, or else another one.
    fn call_for(&mut self, bytes: usize) -> &mut LogCall {
        if self.calls.is_empty() || self.load_of_last + bytes > self.bytes_max {
            self.calls.push(LogCall { message: self.head.clone(), payload: Vec::new() });
            self.load_of_last = 0;
        }
        self.load += bytes;
        self.load_of_last += bytes;
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
