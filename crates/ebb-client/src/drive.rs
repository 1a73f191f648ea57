//! Carries out the steps that channels decide on, and brings the results back to them.

use std::sync::Arc;
use std::time::Duration;

use ebb_types::{ErrorKind, Result, Version, err};
use ebb_wire::pb;

use crate::channel::{Channel, Step};
use crate::direct;
use crate::inode::Inode;
use crate::outgoing::Outgoing;
use crate::plan::SINGLE_SOURCE_MAX;
use crate::shared::Shared;
use crate::{members, repair};

/// One metablock's channel, named so that a result does not reach another that took its place.
#[derive(Clone)]
pub(crate) struct Target {
    pub shared: Arc<Shared>,
    pub inode: Arc<Inode>,
    pub index: u64,
    pub serial: u64,
}

/// Lets a channel do what it can do now. Called after everything that may give it something to do.
pub(crate) fn drive(shared: &Arc<Shared>, inode: &Arc<Inode>, index: u64) {
    loop {
        let (target, step) = {
            let mut core = inode.core.lock();
            let Some(channel) = core.channels.get_mut(&index) else { return };
            let target = Target { shared: shared.clone(), inode: inode.clone(), index, serial: channel.serial };
            (target, channel.next())
        };
        let runtime = &shared.runtime;
        match step {
            Step::None => return,
            Step::Send { write, sync } => {
                runtime.spawn("write to members", target.send(write, sync));
            }
            Step::CatchUp { peer, wait_ms, writes } => {
                runtime.spawn("catch a member up", target.catch_up(peer, Duration::from_millis(wait_ms), writes));
            }
            Step::Sync { peers, version } => {
                for peer in peers {
                    runtime.spawn("sync a member", target.clone().sync(peer, version));
                }
            }
            Step::Repair => {
                runtime.spawn("replace a member", repair::run(target));
            }
        }
    }
}

impl Target {
    /// Looks at the channel, if it still is the one.
    pub fn with<T>(&self, look: impl FnOnce(&mut Channel) -> T) -> Option<T> {
        let mut core = self.inode.core.lock();
        let channel = core.channels.get_mut(&self.index).filter(|channel| channel.serial == self.serial)?;
        Some(look(channel))
    }

    /// Brings a result to the channel, takes out what is settled, and goes on.
    pub fn land(&self, apply: impl FnOnce(&mut Channel) -> Result<()>) {
        let (weight, verdict, dropped) = {
            let mut core = self.inode.core.lock();
            let Some(channel) = core.channels.get_mut(&self.index).filter(|channel| channel.serial == self.serial)
            else {
                return;
            };
            let verdict = apply(channel);
            let settled = channel.settle();
            let dropped = direct::over(channel, &settled);
            (core.retire(&self.shared.cache, self.inode.id, self.index, &settled), verdict, dropped)
        };
        self.shared.budget.give(weight);
        direct::drop_put(&self.shared, dropped);
        if let Err(error) = verdict {
            self.shared.lose_lease(&self.inode, &error);
            return;
        }
        self.inode.progress.notify_waiters();
        drive(&self.shared, &self.inode, self.index);
    }

    pub(crate) fn members(&self) -> Vec<pb::Member> {
        self.with(|channel| channel.peers.iter().map(|peer| peer.member).collect()).unwrap_or_default()
    }

    fn is_single_source(&self, write: &Outgoing) -> bool {
        let by_dataset = self.inode.core.lock().attr.as_ref().is_some_and(|attr| attr.single_source);
        // Members that take turns to be awake cannot pass anything on to each other: each is sent to when it wakes.
        let blinks = |member: &pb::Member| self.shared.awake_left_ms(member.node) != u64::MAX;
        by_dataset || write.weight() <= SINGLE_SOURCE_MAX || self.members().iter().any(blinks)
    }

    /// Sends a write to all members: to each from here, or to the nearest with the others as its chain.
    async fn send(self, write: Arc<Outgoing>, sync: bool) {
        let members = self.members();
        let results = if members.len() == 1 || self.is_single_source(&write) {
            self.send_to_each(&members, &write, sync).await
        } else {
            self.send_through(&members, &write, sync).await
        };
        self.land(|channel| channel.on_sent(write.version, &results));
    }

    async fn send_to_each(
        &self,
        members: &[pb::Member],
        write: &Arc<Outgoing>,
        sync: bool,
    ) -> Vec<Result<pb::MemberResult>> {
        let Some((last, others)) = members.split_last() else { return Vec::new() };
        let tasks: Vec<_> = others
            .iter()
            .map(|member| {
                let (target, member, write) = (self.clone(), *member, write.clone());
                self.shared
                    .runtime
                    .spawn("write to a member", async move { target.send_one(&member, &write, sync).await })
            })
            .collect();
        // The last one goes from this task: one less to start.
        let own = self.send_one(last, write, sync).await;
        let mut results = Vec::with_capacity(members.len());
        for task in tasks {
            results.push(task.join().await.and_then(|result| result));
        }
        results.push(own);
        results
    }

    async fn send_one(&self, member: &pb::Member, write: &Outgoing, sync: bool) -> Result<pb::MemberResult> {
        let hop = self.shared.nodes.hop(member)?;
        let id = self.with(|channel| channel.id).ok_or_else(gone)?;
        members::write(&self.shared, id, std::slice::from_ref(&hop), write, sync).await.remove(0)
    }

    async fn send_through(
        &self,
        members: &[pb::Member],
        write: &Outgoing,
        sync: bool,
    ) -> Vec<Result<pb::MemberResult>> {
        let Some(id) = self.with(|channel| channel.id) else { return Vec::new() };
        let mut results: Vec<Option<Result<pb::MemberResult>>> = vec![None; members.len()];
        let mut hops = Vec::with_capacity(members.len());
        for (place, member) in members.iter().enumerate() {
            // One that is silent would keep the hop before it waiting.
            let hop = self.shared.nodes.check_answers(member.node).and_then(|()| self.shared.nodes.hop(member));
            match hop {
                Ok(hop) => hops.push((place, hop)),
                Err(error) => results[place] = Some(Err(error)),
            }
        }
        hops.sort_by_key(|(_, hop)| hop.host != self.shared.options.host.as_str());
        let route: Vec<pb::Hop> = hops.iter().map(|(_, hop)| hop.clone()).collect();
        let answers = members::write(&self.shared, id, &route, write, sync).await;
        for ((place, _), answer) in hops.iter().zip(answers) {
            results[*place] = Some(answer);
        }
        results.into_iter().map(|result| result.unwrap_or_else(|| Ok(pb::MemberResult::default()))).collect()
    }

    /// Sends one member what it lacks, in order, up to the first failure.
    async fn catch_up(self, peer: usize, wait: Duration, writes: Vec<Arc<Outgoing>>) {
        let Some(member) = self.with(|channel| channel.peers[peer].member) else { return };
        let nodes = &self.shared.nodes;
        let gone = match nodes.is_dead(member.node) {
            true => Err(err!(Unreachable, "node n{} is dead, says the master", member.node)),
            false => nodes.check_answers(member.node),
        };
        if let Err(error) = gone {
            self.land(|channel| {
                let verdict = channel.on_caught_up(peer, Version::ZERO, &Err(error.clone()));
                channel.fail(peer, error);
                verdict
            });
            return;
        }
        if !wait.is_zero() {
            self.shared.runtime.sleep(wait).await;
        }
        let (mut about, mut lost) = (Version::ZERO, None);
        let mut result = Ok(pb::MemberResult::default());
        for (at, write) in writes.iter().enumerate() {
            about = write.version;
            // Where they are not to be had, the member may have them.
            lost = self.fetch_back(write).await.err().filter(|error| error.kind() == ErrorKind::NoReplica);
            result = self.send_one(&member, write, at + 1 == writes.len()).await;
            self.shared.metrics.resent_writes.add(1);
            match &result {
                Ok(answer) if answer.failure.as_ref().is_none_or(|failure| failure.kind == 0) => {}
                _ => break,
            }
        }
        if let Err(error) = &result {
            tracing::debug!(node = member.node, %error, "member does not take writes");
        }
        self.land(|channel| {
            channel.on_caught_up(peer, about, &result)?;
            // A recovery makes the members equal, and whoever has the file open is told.
            match lost {
                Some(error) if channel.is_nowhere(about) => Err(error.context("every member has lost a direct write")),
                _ => Ok(()),
            }
        });
    }

    async fn sync(self, peer: usize, version: Version) {
        let Some((id, member)) = self.with(|channel| (channel.id, channel.peers[peer].member)) else { return };
        let result = members::sync(&self.shared, id, &member, version).await;
        self.land(|channel| channel.on_synced(peer, &result));
    }
}

fn gone() -> ebb_types::Error {
    err!(Stale, "the metablock is not written any more")
}
