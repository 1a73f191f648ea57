//! `fsync` while members sleep: the writes that they lack are logged on nodes that are awake
//! (docs/power/sleeping-nodes.md, "Stand-ins").
//!
//! The lease holder keeps the writes, and sends them to each member when it wakes. If the lease holder dies before
//! that, recovery reads the log.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::deadlines::WRITE_DEADLINE;
use ebb_types::{ErrorKind, LOG_COPIES_MIN, NodeId, Result, Version, bail, err};
use ebb_wire::pb;

use crate::inode::{Core, Inode};
use crate::nodes::Hop;
use crate::shared::Shared;
use crate::write::channel::Channel;
use crate::write::flush::{Goal, stage_and_ask};
use crate::write::members;

/// A flush waits for members that wake within this time.
const PATIENCE: Duration = Duration::from_millis(50);
/// The pause after an attempt that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after an attempt that found no room.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A node that stays awake for less than this is not asked, in milliseconds.
const LEAST_AWAKE_MS: u64 = 100;
/// Most bytes that one call logs. A flush with more waits for the members.
const CALL_BYTES_MAX: usize = 8 << 20;

/// Results of the attempts so far.
#[derive(Default)]
struct Tried {
    /// Nodes that refused the writes, or did not answer.
    refused: BTreeSet<u64>,
    /// The always-on node's log was full, or members that sleep could not take more.
    is_full: bool,
}

/// The writes to be logged.
struct Lack {
    message: pb::LogWrites,
    payload: Vec<Bytes>,
    /// (index, serial of its channel, version up to which it is logged afterwards, version up to which it is cut).
    marks: Vec<(u64, u64, Version, Version)>,
    copies: usize,
}

impl Shared {
    /// Returns when everything written before the call is synced by every member of every set. Where members sleep, it
    /// is enough that the writes are in as many logs as the dataset wants.
    pub async fn make_safe(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        let Some(goal) = stage_and_ask(inode) else { return Ok(()) };
        // Cancel-safety: the log servers drop logged writes later, once they are not needed.
        tokio::select! {
            biased;
            reached = self.flushed(inode, &goal) => reached,
            () = self.log_until_done(inode, &goal) => Ok(()),
        }
    }

    async fn log_until_done(self: &Arc<Self>, inode: &Arc<Inode>, goal: &Goal) {
        let mut tried = Tried::default();
        let mut pause = PAUSE;
        // Members that are awake sync soon by themselves, and then nothing is fetched or logged in vain.
        if !self.has_sleepers(inode, goal) {
            self.runtime.sleep(PATIENCE).await;
        }
        loop {
            match self.log(inode, goal, &mut tried).await {
                Ok(true) => return,
                Ok(false) => pause = PATIENCE,
                Err(error) => {
                    tracing::debug!(inode = %inode.id, %error, "writes are not logged");
                    pause = if tried.is_full { (pause * 2).clamp(PAUSE, PAUSE_MAX) } else { PAUSE };
                }
            }
            self.runtime.sleep(pause).await;
        }
    }

    /// One attempt. False: no member sleeps for long.
    async fn log(self: &Arc<Self>, inode: &Arc<Inode>, goal: &Goal, tried: &mut Tried) -> Result<bool> {
        self.fetch_back_goal(inode, goal).await;
        let Some(lack) = self.lack(inode, goal)? else { return Ok(false) };
        let is_sent = !lack.message.writes.is_empty();
        if is_sent {
            self.log_on_nodes(&lack, tried).await?;
        }
        // Ordering: the writes are logged, and then the lease is checked. If it is still held, no recovery had begun
        // when the writes were logged. A later recovery finds them.
        if !self.session.is_trusted() {
            bail!(SessionExpired, "leases may not be believed now");
        }
        let mut core = inode.core.lock();
        if !core.hold.is_write_of(goal.epoch()) {
            bail!(StaleEpoch, "the write lease was lost");
        }
        for (index, serial, logged, cut) in lack.marks {
            if let Some(channel) = core.channels.get_mut(&index).filter(|channel| channel.serial == serial) {
                channel.logged = channel.logged.max(logged);
                channel.cut = if is_sent { channel.cut.max(cut) } else { channel.cut };
            }
        }
        Ok(true)
    }

    /// Whether a member that lacks writes of the goal sleeps for long.
    fn has_sleepers(&self, inode: &Inode, goal: &Goal) -> bool {
        let core = inode.core.lock();
        late_channels(&core, goal).any(|(_, channel)| self.sleeps_long(channel))
    }

    fn sleeps_long(&self, channel: &Channel) -> bool {
        let is_long = |node: u64| self.wakes_in(node).is_none_or(|wait| wait > PATIENCE);
        channel.peers.iter().any(|peer| is_long(peer.member.node))
    }

    /// The writes of the goal's channels that are neither synced by all members nor logged. `None` if no member sleeps.
    fn lack(&self, inode: &Inode, goal: &Goal) -> Result<Option<Lack>> {
        let core = inode.core.lock();
        let late: Vec<_> = late_channels(&core, goal).collect();
        if !late.iter().any(|(_, channel)| self.sleeps_long(channel)) {
            return Ok(None);
        }
        if let Some((_, channel)) = late.iter().find(|(_, channel)| channel.is_ailing()) {
            bail!(Unavailable, "a member of {} is being replaced", channel.id);
        }
        let mut message =
            pb::LogWrites { inode: inode.id.raw(), epoch: goal.epoch().raw(), ..pb::LogWrites::default() };
        let (mut payload, mut marks) = (Vec::new(), Vec::new());
        for ((index, serial, version), channel) in late {
            for write in channel.pending(channel.logged.max(channel.settled), *version) {
                if write.elsewhere().is_some() {
                    bail!(Unavailable, "the bytes of a direct write to {} are being fetched back", channel.id);
                }
                let (logged, bytes) = write.to_message(channel.id);
                payload.extend(bytes);
                message.writes.push(logged);
            }
            let lacks = channel.peers.iter().filter(|peer| peer.synced < *version);
            let nodes = lacks.map(|peer| peer.member.node).collect();
            message.lacks.push(pb::LogLack { metablock: channel.id.raw(), nodes });
            let cut = channel.settled.min(channel.logged).max(channel.cut);
            if cut > channel.cut {
                message.cuts.push(pb::LogCut { metablock: channel.id.raw(), version: Some(cut.into()) });
            }
            marks.push((*index, *serial, *version, cut));
        }
        let bytes: usize = payload.iter().map(Bytes::len).sum();
        if bytes > CALL_BYTES_MAX {
            bail!(Overloaded, "{bytes} bytes wait for nodes that sleep, and at most {CALL_BYTES_MAX} can be logged");
        }
        let copies = core.attr.as_ref().map_or(LOG_COPIES_MIN, |attr| attr.storage.log_copies) as usize;
        Ok(Some(Lack { message, payload, marks, copies }))
    }

    /// Logs on the always-on node, and on the nodes that are awake soonest.
    async fn log_on_nodes(self: &Arc<Self>, lack: &Lack, tried: &mut Tried) -> Result<()> {
        let mut nodes: Vec<(Duration, pb::Node)> = self
            .nodes
            .all()
            .into_iter()
            .filter(|node| !tried.refused.contains(&node.id) && !self.nodes.is_lost(node.id))
            // A node that is about to sleep refuses.
            .filter(|node| {
                let awake = self.awake_for(NodeId::new(node.id));
                awake.is_asleep() || awake.serves_for(LEAST_AWAKE_MS)
            })
            .filter_map(|node| Some((self.wakes_in(node.id)?, node)))
            .collect();
        nodes.sort_by_key(|(wait, node)| (*wait, node.id));
        // Where there are fewer nodes than copies, each has one.
        nodes.truncate(lack.copies - 1);
        if nodes.is_empty() {
            tried.refused.clear();
            return Err(err!(Unavailable, "no node with a handoff log is awake, and none wakes"));
        }
        // If the always-on node's log was full, it is asked alone first. The other disks are then not filled in vain.
        let asked_before = if tried.is_full { Some(self.log_always_on(lack, tried).await) } else { None };
        if let Some(Err(error)) = asked_before {
            return Err(error);
        }
        let tasks: Vec<_> = nodes
            .into_iter()
            .map(|(_, node)| {
                let message = pb::LogWrites { lacks: Vec::new(), ..lack.message.clone() };
                let (own, payload) = (Arc::clone(self), lack.payload.clone());
                let call = async move { own.log_on(&node, &message, payload).await.map_err(|error| (node.id, error)) };
                self.runtime.spawn("log writes on a node", call)
            })
            .collect();
        let always_on = match asked_before {
            Some(answer) => answer,
            None => self.log_always_on(lack, tried).await,
        };
        let logs = tasks.len() as u64 + 1;
        let mut worst = always_on.err();
        for task in tasks {
            if let Err((node, error)) = task.join().await? {
                tried.refused.insert(node);
                worst = Some(error);
            }
        }
        match worst {
            None => {
                let writes = lack.message.writes.len() as u64;
                self.metrics.logged_writes.add(writes);
                self.metrics.log_copies.add(writes * logs);
                Ok(())
            }
            Some(error) => Err(error),
        }
    }

    async fn log_always_on(&self, lack: &Lack, tried: &mut Tried) -> Result<()> {
        let answer = self.session.masters.call_with(&lack.message, lack.payload.clone(), WRITE_DEADLINE).await;
        tried.is_full = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Overloaded);
        answer.map(drop)
    }

    async fn log_on(self: &Arc<Self>, node: &pb::Node, message: &pb::LogWrites, payload: Vec<Bytes>) -> Result<()> {
        let member = pb::Member { node: node.id, ..pb::Member::default() };
        let hop = Hop::new(member, node);
        members::ask(self, &hop, message, payload, WRITE_DEADLINE).await.map(drop)
    }
}

/// The goal's channels whose members have not all synced up to it.
fn late_channels<'a>(core: &'a Core, goal: &'a Goal) -> impl Iterator<Item = (&'a (u64, u64, Version), &'a Channel)> {
    goal.channels().iter().filter_map(|wanted| {
        let (index, serial, version) = wanted;
        let channel = core.channels.get(index)?;
        (channel.serial == *serial && channel.settled < *version).then_some((wanted, channel))
    })
}
