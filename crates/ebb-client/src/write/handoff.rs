//! `fsync` while members sleep: the writes that they lack are logged on nodes that are awake
//! (docs/power/sleeping-nodes.md, "Stand-ins").
//!
//! The lease holder keeps the writes, and has each member get them when it wakes (`write/feed.rs`). If the lease holder
//! dies before that, recovery reads the log.
//!
//! - `lack`: what is logged, in calls.
//! - `logs`: where, and the calls.

use std::sync::Arc;
use std::time::Duration;

use ebb_types::{Result, Version, bail};

use crate::inode::{Core, Inode};
use crate::shared::Shared;
use crate::shared_file::direct;
use crate::write::channel::Channel;
use crate::write::flush::{Versions, stage_and_ask};

mod lack;
mod logs;

use lack::Lack;
use logs::Tried;

/// A flush waits for members that wake within this time.
const PATIENCE: Duration = Duration::from_millis(50);
/// The pause after an attempt that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after an attempt that found no room.
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl Shared {
    /// Returns when everything written before the call is synced by every member of every set. Where members sleep, it
    /// is enough that the writes are in as many logs as the dataset wants.
    pub async fn make_safe(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        let Some(goal) = stage_and_ask(inode) else { return Ok(()) };
        // Cancel-safety: the log servers drop logged writes later, once they are not needed.
        tokio::select! {
            biased;
            reached = self.flushed(inode, &goal) => reached,
            () = self.log_until_done(inode, &goal.versions) => Ok(()),
        }
    }

    /// Returns when the writes up to the goal that members lack are in as many logs as the dataset wants. Never, if no
    /// member sleeps for long.
    pub async fn log_until_done(self: &Arc<Self>, inode: &Arc<Inode>, goal: &Versions) {
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
    async fn log(self: &Arc<Self>, inode: &Arc<Inode>, goal: &Versions, tried: &mut Tried) -> Result<bool> {
        let Some(mut lack) = self.lack(inode, goal)? else { return Ok(false) };
        if let Some(keepers) = &lack.keepers
            && !self.can_log_by_name(inode.id, keepers, lack.copies, tried)
        {
            self.fetch_back_goal(inode, goal).await;
            let Some(fetched) = self.lack(inode, goal)? else { return Ok(false) };
            lack = fetched;
            if lack.keepers.is_some() {
                bail!(Unavailable, "the bytes of a direct write to {} are not to be had now", inode.id);
            }
        }
        let is_sent = !lack.calls.is_empty();
        let Lack { calls, marks, copies, keepers } = lack;
        if is_sent {
            self.log_on_nodes(calls, copies, keepers.as_ref(), tried).await?;
        }
        // Ordering: the writes are logged, and then the lease is checked. If it is still held, no recovery had begun
        // when the writes were logged. A later recovery finds them.
        if !self.session.is_trusted() {
            bail!(SessionExpired, "leases may not be believed now");
        }
        let mut core = inode.core.lock();
        let mut dropped = Vec::new();
        if !core.hold.is_write_of(goal.epoch) {
            bail!(StaleEpoch, "the write lease was lost");
        }
        for (index, serial, logged, cut) in marks {
            if let Some(channel) = core.channels.get_mut(&index).filter(|channel| channel.serial == serial) {
                channel.logged = channel.logged.max(logged);
                channel.cut = if is_sent { channel.cut.max(cut) } else { channel.cut };
                dropped.push(direct::over(channel, &[]));
            }
        }
        drop(core);
        dropped.into_iter().for_each(|dropped| direct::drop_put(self, dropped));
        Ok(true)
    }

    /// Whether a member that lacks writes of the goal sleeps for long.
    fn has_sleepers(&self, inode: &Inode, goal: &Versions) -> bool {
        let core = inode.core.lock();
        late_channels(&core, goal).any(|(_, channel)| self.sleeps_long(channel))
    }

    fn sleeps_long(&self, channel: &Channel) -> bool {
        let is_long = |node: u64| self.wakes_in(node).is_none_or(|wait| wait > PATIENCE);
        channel.peers.iter().any(|peer| is_long(peer.member.node))
    }
}

/// The goal's channels whose members have not all synced up to it.
fn late_channels<'a>(
    core: &'a Core,
    goal: &'a Versions,
) -> impl Iterator<Item = (&'a (u64, u64, Version), &'a Channel)> {
    goal.channels.iter().filter_map(|wanted| {
        let (index, serial, version) = wanted;
        let channel = core.channels.get(index)?;
        (channel.serial == *serial && channel.settled < *version).then_some((wanted, channel))
    })
}
