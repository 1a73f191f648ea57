//! Carries out the steps that channels decide on, and hands the results to the channels.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Owned;
use ebb_types::{Error, ErrorKind, Result, Version, err};
use ebb_wire::pb;

use crate::inode::Inode;
use crate::nodes::Hop;
use crate::nodes::gray::Round;
use crate::shared::Shared;
use crate::shared_file::direct;
use crate::write::channel::{Channel, Rhythm, SYNC_BYTES, Step};
use crate::write::members::Heard;
use crate::write::outgoing::Outgoing;
use crate::write::{members, repair};

/// A member that has answered within this time counts as alive, even if the master calls its node dead.
const ANSWERED: Duration = Duration::from_secs(2);

/// One metablock's channel. The serial keeps a result from a later channel of the same metablock.
#[derive(Clone)]
pub(crate) struct Target {
    pub shared: Arc<Shared>,
    pub inode: Arc<Inode>,
    pub index: u64,
    pub serial: u64,
}

/// The writes that one member lacks.
struct Lack {
    peer: usize,
    /// The pause before the first write is sent.
    wait: Duration,
    writes: Vec<Arc<Outgoing>>,
    /// Writes up to this version have been sent to the member before.
    handed: Version,
}

/// A write on its way to a member that lacks it.
struct UnderWay {
    about: Version,
    /// The error, if no member has its bytes any more.
    lost: Option<Error>,
    answer: Owned<Heard>,
}

impl Shared {
    fn rhythm(&self, channel: &Channel) -> Rhythm {
        let sleeps = channel.peers.iter().any(|peer| !self.awake_for(peer.member.node_id()).is_always());
        if sleeps { Rhythm::InTurns } else { Rhythm::Together }
    }
}

/// Lets a channel carry out all steps that are possible now. Called after each event that may make a step possible.
pub(crate) fn drive(shared: &Arc<Shared>, inode: &Arc<Inode>, index: u64) {
    loop {
        let (target, rhythm, step) = {
            let mut core = inode.core.lock();
            let Some(channel) = core.channels.get_mut(&index) else { return };
            let target = Target { shared: shared.clone(), inode: inode.clone(), index, serial: channel.serial };
            if channel.shrunk {
                channel.on_time(shared.runtime.now(), shared.nodes.version());
            }
            let rhythm = shared.rhythm(channel);
            shared.displace_gray(channel, rhythm);
            channel.window = shared.own_link.window(shared.runtime.now());
            (target, rhythm, channel.next(rhythm))
        };
        let runtime = &shared.runtime;
        match step {
            Step::None => return,
            // Ordering: long writes are handed to the connection here, in their order. A member takes a write only behind
            // the one before, so its disk would wait for one that came late.
            Step::Send { write, sync } if write.weight() > shared.options.sizes.single_source_max => {
                runtime.run_or_spawn("write to members", target.send(write, sync));
            }
            Step::Send { write, sync } => {
                runtime.spawn("write to members", target.send(write, sync));
            }
            Step::CatchUp { peer, wait_ms, writes, handed } => {
                let lack = Lack { peer, wait: Duration::from_millis(wait_ms), writes, handed };
                let work = async move { target.unless_in_the_way(peer, target.catch_up(lack)).await };
                runtime.spawn("catch a member up", work);
            }
            Step::Sync { peers, version } => {
                let round = (rhythm == Rhythm::Together).then(|| Round::new(shared));
                for peer in peers {
                    let (target, round) = (target.clone(), round.clone());
                    let work = async move { target.unless_in_the_way(peer, target.sync(peer, version, round)).await };
                    runtime.spawn("sync a member", work);
                }
            }
            Step::Repair => {
                runtime.spawn("replace a member", repair::run(target));
            }
        }
    }
}

impl Target {
    /// Calls `look` with the channel. `None` if another channel has taken its place.
    pub fn with<T>(&self, look: impl FnOnce(&mut Channel) -> T) -> Option<T> {
        let mut core = self.inode.core.lock();
        let channel = core.channels.get_mut(&self.index).filter(|channel| channel.serial == self.serial)?;
        Some(look(channel))
    }

    /// Applies a result to the channel, takes out the settled writes, and drives the channel on.
    pub fn land(&self, apply: impl FnOnce(&mut Channel) -> Result<()>) {
        let (weight, verdict, dropped) = {
            let mut core = self.inode.core.lock();
            let Some(channel) = core.channels.get_mut(&self.index).filter(|channel| channel.serial == self.serial)
            else {
                return;
            };
            let verdict = apply(channel);
            let settled = channel.take_synced();
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
        let by_dataset = self.inode.core.lock().attr.as_ref().is_some_and(|attr| attr.storage.single_source);
        by_dataset || write.weight() <= self.shared.options.sizes.single_source_max
    }

    /// Sends a write to all members: to each from here, or to the nearest with the others as its pipeline.
    async fn send(self, write: Arc<Outgoing>, sync: bool) {
        let members = self.members();
        let results = if members.len() == 1 || self.is_single_source(&write) {
            self.send_to_each(&members, &write, sync).await
        } else {
            self.send_through(&members, &write, sync).await
        };
        self.land(|channel| channel.on_sent(write.version, &results));
    }

    async fn send_to_each(&self, members: &[pb::Member], write: &Arc<Outgoing>, sync: bool) -> Vec<Heard> {
        let Some((last, others)) = members.split_last() else { return Vec::new() };
        // An answer about received bytes alone says nothing of a disk.
        let round = sync.then(|| Round::new(&self.shared));
        let tasks: Vec<_> = others
            .iter()
            .map(|member| {
                let (target, member, write, round) = (self.clone(), *member, write.clone(), round.clone());
                let sent = async move { target.send_timed(&member, &write, sync, round).await };
                self.shared.runtime.spawn("write to a member", sent)
            })
            .collect();
        // The last one goes from this task: one less to start.
        let own = self.send_timed(last, write, sync, round).await;
        let mut results = Vec::with_capacity(members.len());
        for task in tasks {
            results.push(task.join().await.and_then(|result| result));
        }
        results.push(own);
        results
    }

    async fn send_timed(&self, member: &pb::Member, write: &Outgoing, sync: bool, round: Option<Arc<Round>>) -> Heard {
        let sent = self.shared.runtime.now();
        let result = self.send_one(member, write, sync).await;
        if let (Some(round), Ok(Some(answer))) = (round, &result)
            && !answer.has_failed()
        {
            round.add(member.node, sent);
        }
        result
    }

    async fn send_one(&self, member: &pb::Member, write: &Outgoing, sync: bool) -> Heard {
        let hop = self.shared.nodes.hop(member)?;
        let id = self.with(|channel| channel.id).ok_or_else(gone)?;
        members::write(&self.shared, id, std::slice::from_ref(&hop), write, sync).await.remove(0)
    }

    async fn send_through(&self, members: &[pb::Member], write: &Outgoing, sync: bool) -> Vec<Heard> {
        let Some(id) = self.with(|channel| channel.id) else { return Vec::new() };
        let mut results: Vec<Heard> = vec![Ok(None); members.len()];
        let mut hops = Vec::with_capacity(members.len());
        for (place, member) in members.iter().enumerate() {
            // A silent member would keep the hop before it waiting.
            let hop = self.shared.nodes.check_answers(member.node).and_then(|()| self.shared.nodes.hop(member));
            match hop {
                Ok(hop) => hops.push((place, hop)),
                Err(error) => results[place] = Err(error),
            }
        }
        hops.sort_by_key(|(_, hop)| hop.host != self.shared.options.host.as_str());
        let route: Vec<Hop> = hops.iter().map(|(_, hop)| hop.clone()).collect();
        let answers = members::write(&self.shared, id, &route, write, sync).await;
        for ((place, _), answer) in hops.iter().zip(answers) {
            results[*place] = answer;
        }
        results
    }

    /// Asks a member, and gives that up if another one is to be replaced and this one sleeps: a repair, and with it the
    /// writer, waits until no member is asked.
    async fn unless_in_the_way(&self, peer: usize, work: impl Future<Output = ()>) {
        // Cancel-safety: as if the answer had got lost. What the member has taken it takes again.
        tokio::select! {
            biased;
            () = work => {}
            () = self.in_the_way(peer) => {
                self.land(|channel| {
                    channel.on_given_up(peer);
                    Ok(())
                });
            }
        }
    }

    /// Returns when a repair waits, and this member sleeps.
    async fn in_the_way(&self, peer: usize) {
        let Some(member) = self.with(|channel| channel.peers[peer].member) else { return };
        loop {
            let progress = self.inode.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if self.with(|channel| channel.needs_repair()) == Some(false) {
                progress.await;
                continue;
            }
            self.shared.fallen_asleep(member.node).await;
            if self.with(|channel| channel.needs_repair()) != Some(false) {
                return;
            }
        }
    }

    /// Sends one member the writes that it lacks, in order, up to the first failure. Each answer is applied as it
    /// comes.
    async fn catch_up(&self, lack: Lack) {
        let Lack { peer, wait, writes, handed } = lack;
        let Some(member) = self.with(|channel| channel.peers[peer].member) else { return };
        let nodes = &self.shared.nodes;
        // A node that the master calls dead, and that has just answered here, is cut off from the master alone.
        let answers = nodes.has_answered_within(member.node, ANSWERED, self.shared.runtime.now());
        let gone = match nodes.is_dead(member.node) && !answers {
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
        let (writes, fed) = self.feed(peer, &member, writes).await;
        let mut rest = writes.into_iter().peekable();
        let (mut under_way, mut unsynced) = (VecDeque::<UnderWay>::new(), 0);
        let (mut about, mut lost, mut result) = (Version::ZERO, None, Ok(None));
        if let Some((version, answer)) = fed {
            (about, result) = (version, Ok(Some(answer)));
        }
        loop {
            // With nothing under way, the next write waits for the member to wake. The others follow it.
            let window = self.shared.own_link.window(self.shared.runtime.now());
            while (under_way.is_empty() || (under_way.len() < window && self.is_reached(&member)))
                && let Some(write) = rest.next()
            {
                unsynced += write.load();
                let sync = rest.peek().is_none() || unsynced >= SYNC_BYTES;
                unsynced = if sync { 0 } else { unsynced };
                if write.version <= handed {
                    self.shared.metrics.resent_writes.add(1);
                }
                under_way.push_back(self.send_lacked(member, write, sync, handed).await);
            }
            let Some(first) = under_way.pop_front() else { break };
            (about, lost) = (first.about, first.lost);
            result = first.answer.join().await.and_then(|answer| answer);
            match &result {
                Ok(Some(answer)) if answer.has_failed() => break,
                Ok(_) if under_way.is_empty() && rest.peek().is_none() => break,
                Ok(_) => self.land(|channel| channel.on_taken(peer, about, &result)),
                Err(error) => {
                    tracing::debug!(node = member.node, %error, "member does not take writes");
                    break;
                }
            }
        }
        // After a failure the member takes no later write. They are sent again, and a member answers "done" for each
        // that it has.
        drop(under_way);
        self.land(|channel| {
            channel.on_caught_up(peer, about, &result)?;
            // A recovery makes the members equal, and each open handle of the file gets the error.
            match lost {
                Some(error) if channel.is_nowhere(about) => Err(error.context("every member has lost a direct write")),
                _ => Ok(()),
            }
        });
    }

    /// Whether a member can be sent to now: it is awake, or a proxy waits for it.
    fn is_reached(&self, member: &pb::Member) -> bool {
        self.shared.wakes_in(member.node) == Some(Duration::ZERO) || self.shared.is_out_of_step(member.node)
    }

    async fn send_lacked(&self, member: pb::Member, write: Arc<Outgoing>, sync: bool, handed: Version) -> UnderWay {
        // A keeper that is sent the write again may have lost the bytes.
        let keeps = write.version > handed && write.elsewhere().is_some_and(|put| put.keepers.contains(&member.node));
        // If the bytes cannot be fetched, this member may still have them.
        let fetched = if keeps { Ok(()) } else { self.fetch_back(&write).await };
        let lost = fetched.err().filter(|error| error.kind() == ErrorKind::NoReplica);
        let (about, own) = (write.version, self.clone());
        let sent = async move { own.send_one(&member, &write, sync).await };
        let answer = Owned::new(self.shared.runtime.spawn("send a member what it lacks", sent));
        UnderWay { about, lost, answer }
    }

    async fn sync(&self, peer: usize, version: Version, round: Option<Arc<Round>>) {
        let Some((id, member)) = self.with(|channel| (channel.id, channel.peers[peer].member)) else { return };
        let sent = self.shared.runtime.now();
        let result = members::sync(&self.shared, id, &member, version).await;
        if let (Some(round), Ok(_)) = (round, &result) {
            round.add(member.node, sent);
        }
        self.land(|channel| channel.on_synced(peer, &result));
    }
}

pub(crate) fn gone() -> Error {
    err!(Stale, "the metablock is not written any more")
}
