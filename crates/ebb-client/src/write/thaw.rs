//! Writes to what is frozen: an heir gets its bytes, and takes its place (docs/raid.md, Writes).
//!
//! The members of the heir copy what the frozen metablock shows. If no member of that can be asked now, they decode it. If they
//! cannot, members that sleep are waited for, and a member of the heir that has the bytes gives them to another one: it may be
//! awake together with one that never meets the frozen metablock's. The heir is recorded when all of them have it. Nothing is
//! written to it before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::SeededBug;
use ebb_types::deadlines::{PULL_DEADLINE_LAST, REPLACE_PAUSE};
use ebb_types::{Epoch, Error, ErrorKind, Result, Version, bail, err};
use ebb_wire::convert;
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Grant, Op, Swap};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;

use crate::inode::Inode;
use crate::lease::hold::Lease;
use crate::read::degraded;
use crate::shared::Shared;
use crate::write::members;

/// Metablocks of a file that are thawed at a time.
const AT_A_TIME: usize = 4;
/// A member that serves within this time is waited for, and nothing is decoded.
const SOON: Duration = Duration::from_millis(50);

/// What an heir could not get, and from whom.
enum Failed {
    /// The member does not take it.
    Target(u64, Error),
    /// Nobody gives it.
    Source(Error),
    /// No node with the bytes is ever awake together with the member.
    Parted(u64, Error),
}

/// Members of an heir, by what is known of them.
#[derive(Default)]
struct Known {
    /// They have the bytes.
    filled: Vec<pb::Member>,
    /// Nodes that are never awake together with one that has the bytes. They are in no later heir.
    parted: BTreeSet<u64>,
}

/// A source of the bytes: a member of the frozen metablock, or of the heir.
struct Giver {
    metablock: u64,
    member: pb::Member,
    serves_in: Duration,
}

impl Shared {
    /// Thaws what is frozen in `start..end` of a file under its write lease. Where nothing is frozen it does nothing.
    pub async fn ensure_thawed(self: &Arc<Self>, inode: &Arc<Inode>, start: u64, end: u64) -> Result<()> {
        let frozen: Vec<u64> = {
            let core = inode.core.lock();
            let span = core.geometry().metablock_size;
            let range = start / span..end.div_ceil(span).max(start / span);
            core.map.range(range).filter(|(_, record)| record.frozen.is_some()).map(|(index, _)| *index).collect()
        };
        for index in frozen {
            let start = index * inode.core.lock().geometry().metablock_size;
            self.ensure_granted(inode, start, start + 1).await?;
        }
        Ok(())
    }

    /// Fills heirs that were granted, and puts them in the places of the frozen metablocks. The caller has the turn for
    /// grants of this file.
    pub(super) async fn thaw(self: &Arc<Self>, inode: &Inode, epoch: Epoch, heirs: Vec<pb::Metablock>) -> Result<()> {
        let thaws = heirs.into_iter().map(|heir| self.thaw_one(inode, epoch, heir));
        let done: Vec<Result<()>> = stream::iter(thaws).buffer_unordered(AT_A_TIME).collect().await;
        done.into_iter().collect()
    }

    async fn thaw_one(self: &Arc<Self>, inode: &Inode, epoch: Epoch, mut heir: pb::Metablock) -> Result<()> {
        let (started, index) = (self.runtime.now(), heir.index);
        let waiting = self.enter_wait("a copy of what is frozen");
        let mut known = Known::default();
        let mut patience = self.session.deadline();
        loop {
            let frozen = inode.core.lock().map.get(&index).cloned();
            let frozen = frozen.filter(|record| record.frozen.is_some() && record.id == heir.heir_of);
            let Some(frozen) = frozen else { bail!(Io, "{}: the write lease was lost during a thaw", inode.id) };
            let had = known.filled.len();
            let failed = match self.runtime.has_bug(SeededBug::SwapUnfilled) {
                true => Vec::new(),
                false => self.fill(epoch, &frozen, &heir, &mut known).await,
            };
            if failed.is_empty() {
                return self.swap(inode, epoch, &frozen, &heir).await;
            }
            let (mut exclude, mut last) = (BTreeSet::new(), None);
            for failed in failed {
                last = Some(match failed {
                    Failed::Target(node, error) => {
                        exclude.insert(node);
                        error
                    }
                    // One that has the bytes by now may meet it.
                    Failed::Parted(node, error) if known.filled.len() == had => {
                        exclude.insert(node);
                        known.parted.insert(node);
                        error
                    }
                    Failed::Source(error) | Failed::Parted(_, error) => error,
                });
            }
            let error = last.unwrap_or_else(|| err!(Internal, "nothing failed"));
            tracing::debug!(inode = %inode.id, index, %error, "a thaw is tried again");
            // A member that sleeps now wakes once for the copy, and once more to give it to another one.
            patience = patience.max(self.session.deadline() + self.longest_sleep(&frozen, &heir) * 2);
            if self.runtime.now().since(started) > patience {
                bail!(Io, "{}: what is frozen at metablock {index} could not be copied: {error}", inode.id);
            }
            waiting.set(format!("a copy of what is frozen: {error}"));
            self.runtime.sleep(REPLACE_PAUSE).await;
            if !exclude.is_empty() {
                heir = self.other_heir(inode, epoch, index, &exclude, &mut known).await?;
            }
        }
    }

    /// Time until the last of these members wakes that do so by a plan.
    fn longest_sleep(&self, frozen: &pb::Metablock, heir: &pb::Metablock) -> Duration {
        let members = frozen.members.iter().chain(&heir.members);
        members.filter_map(|member| self.wakes_in(member.node)).max().unwrap_or_default()
    }

    /// An heir without these nodes, and without those that are parted from the bytes if there are enough others.
    async fn other_heir(
        self: &Arc<Self>,
        inode: &Inode,
        epoch: Epoch,
        index: u64,
        exclude: &BTreeSet<u64>,
        known: &mut Known,
    ) -> Result<pb::Metablock> {
        // Another heir is another metablock, of which no node has anything.
        known.filled.clear();
        let without = exclude | &known.parted;
        match self.grant_heir(inode, epoch, index, &without).await {
            Err(error) if error.kind() == ErrorKind::NoSpace && !known.parted.is_empty() => {
                known.parted.clear();
                self.grant_heir(inode, epoch, index, exclude).await
            }
            granted => granted,
        }
    }

    async fn grant_heir(
        self: &Arc<Self>,
        inode: &Inode,
        epoch: Epoch,
        index: u64,
        exclude: &BTreeSet<u64>,
    ) -> Result<pb::Metablock> {
        let exclude_nodes = exclude.iter().copied().chain(self.nodes.silent()).collect();
        let (id, hosts) = (inode.id, inode.core.lock().affinity.clone());
        let grant = Grant { inode: id.raw(), epoch: epoch.raw(), indexes: vec![index], hosts, exclude_nodes };
        let reply = self.own_meta(Op::Grant(grant)).await.inspect_err(|error| self.note_lease_error(inode, error))?;
        let heir = reply.metablocks.into_iter().find(|record| record.index == index && record.heir_of != 0);
        heir.ok_or_else(|| err!(Protocol, "a grant for the frozen metablock {index} of {id} brought no heir"))
    }

    /// Has each member of an heir get the bytes that does not have them.
    async fn fill(
        self: &Arc<Self>,
        epoch: Epoch,
        frozen: &pb::Metablock,
        heir: &pb::Metablock,
        known: &mut Known,
    ) -> Vec<Failed> {
        let lacks = |member: &&pb::Member| !known.filled.iter().any(|filled| filled.is_at(member));
        let lacking: Vec<pb::Member> = heir.members.iter().filter(lacks).copied().collect();
        let filled = lacking.iter().map(|member| self.fill_one(epoch, frozen, heir.id, member, &known.filled));
        let done = join_all(filled).await;
        let mut failed = Vec::new();
        for (member, done) in lacking.into_iter().zip(done) {
            match done {
                Ok(()) => known.filled.push(member),
                Err(error) => failed.push(error),
            }
        }
        failed
    }

    /// From a member that serves soon, else by decoding, else from one that is waited for.
    async fn fill_one(
        self: &Arc<Self>,
        epoch: Epoch,
        frozen: &pb::Metablock,
        heir: u64,
        target: &pb::Member,
        filled: &[pb::Member],
    ) -> Result<(), Failed> {
        let sources = self.sources(frozen, heir, target, filled);
        let (soon, later): (Vec<Giver>, Vec<Giver>) =
            sources.into_iter().partition(|giver| !frozen.is_in_raid_set() || giver.serves_in <= SOON);
        let first = match self.fill_from(epoch, frozen, heir, target, &soon).await {
            Ok(()) => return Ok(()),
            // It may be the target that has another volume by now.
            Err(Failed::Source(error)) if !frozen.is_in_raid_set() && error.kind().is_copy_lost() => {
                return Err(Failed::Target(target.node, error));
            }
            Err(failed) if matches!(failed, Failed::Target(..)) || !frozen.is_in_raid_set() => return Err(failed),
            Err(failed) => failed,
        };
        let decoded = match self.decode_heir(epoch, frozen, heir, target).await {
            Ok(()) => return Ok(()),
            Err(error) if is_of_target(&error) || error.kind().is_copy_lost() => {
                return Err(Failed::Target(target.node, error));
            }
            Err(error) => error,
        };
        let with = |error: Error| err!(Unavailable, "{error}; nor can it be decoded: {decoded}");
        let is_parted = soon.is_empty() || matches!(first, Failed::Parted(..));
        let last =
            if later.is_empty() { Err(first) } else { self.fill_from(epoch, frozen, heir, target, &later).await };
        last.map_err(|failed| match failed {
            Failed::Parted(node, error) if is_parted => Failed::Parted(node, with(error)),
            Failed::Source(error) | Failed::Parted(_, error) => Failed::Source(with(error)),
            failed @ Failed::Target(..) => failed,
        })
    }

    /// From the first of these that gives it.
    async fn fill_from(
        self: &Arc<Self>,
        epoch: Epoch,
        frozen: &pb::Metablock,
        heir: u64,
        target: &pb::Member,
        givers: &[Giver],
    ) -> Result<(), Failed> {
        let mut last = err!(Unavailable, "no member of m{} can be asked now", frozen.id);
        let mut is_parted = !givers.is_empty();
        for giver in givers {
            let parted = self.parted(giver.member.node, target.node);
            // Cancel-safety: as if the deadline had passed. A replica that comes to be is the heir's all the same.
            let pulled = tokio::select! {
                biased;
                parted = parted => {
                    last = parted;
                    continue;
                }
                pulled = async {
                    self.meeting(giver.member.node, target.node).await;
                    self.pull_heir(epoch, frozen, heir, giver, target).await
                } => pulled,
            };
            is_parted = false;
            match pulled {
                Ok(()) => return Ok(()),
                Err(error) if is_of_target(&error) => return Err(Failed::Target(target.node, error)),
                Err(error) => {
                    if error.kind() == ErrorKind::Corrupt && giver.metablock == frozen.id {
                        members::report(self, frozen.metablock_id(), giver.member, &error);
                    }
                    last = error;
                }
            }
        }
        Err(if is_parted { Failed::Parted(target.node, last) } else { Failed::Source(last) })
    }

    /// Members of a frozen metablock, and of its heir those that have the bytes. The soonest first, without those that are lost or
    /// wake by no plan.
    fn sources(&self, frozen: &pb::Metablock, heir: u64, target: &pb::Member, filled: &[pb::Member]) -> Vec<Giver> {
        let of = |metablock: u64, members: &[pb::Member]| -> Vec<(u64, pb::Member)> {
            members.iter().map(|member| (metablock, *member)).collect()
        };
        let all = [of(frozen.id, &frozen.members), of(heir, filled)].concat();
        let giver = |(metablock, member): (u64, pb::Member)| {
            let is_there = !self.nodes.is_lost(member.node);
            let serves_in = match self.wakes_in(member.node) {
                // Nothing else could give it.
                None if !frozen.is_in_raid_set() => Some(Duration::MAX),
                serves_in => serves_in,
            };
            serves_in.filter(|_| is_there).map(|serves_in| Giver { metablock, member, serves_in })
        };
        let mut givers: Vec<Giver> = all.into_iter().filter_map(giver).collect();
        // Of those that serve as soon as others, the one on the target's own node: no link carries its bytes.
        givers.sort_by_key(|giver| (giver.serves_in, giver.member.node != target.node));
        givers
    }

    async fn pull_heir(
        self: &Arc<Self>,
        epoch: Epoch,
        frozen: &pb::Metablock,
        heir: u64,
        giver: &Giver,
        target: &pb::Member,
    ) -> Result<()> {
        let hop = self.nodes.hop(target)?;
        let message = pb::PullReplica {
            metablock: heir,
            volume: target.volume,
            incarnation: target.incarnation,
            epoch: epoch.raw(),
            source: Some(self.nodes.hop(&giver.member)?.to_message()),
            at: Some(frozen.min_version().into()),
            rate_bytes_per_sec: 0,
            source_metablock: giver.metablock,
            raid_set: 0,
            front_bytes: if self.runtime.has_bug(SeededBug::ThawsTheCut) { 0 } else { frozen.length },
        };
        let reply = members::call(self, &hop, &message, Vec::new(), PULL_DEADLINE_LAST).await?.message;
        if self.runtime.has_bug(SeededBug::ThawsTheCut) {
            return Ok(());
        }
        check_filled(frozen, convert::version(reply.version), reply.length)
    }

    async fn decode_heir(
        self: &Arc<Self>,
        epoch: Epoch,
        frozen: &pb::Metablock,
        heir: u64,
        target: &pb::Member,
    ) -> Result<()> {
        let hop = self.nodes.hop(target)?;
        let parts = degraded::rebuild_message(self, frozen).await?;
        let message = pb::RebuildReplica {
            metablock: frozen.id,
            volume: target.volume,
            incarnation: target.incarnation,
            epoch: epoch.raw(),
            heir,
            front_bytes: frozen.length,
            ..parts
        };
        let reply = members::ask(self, &hop, &message, Vec::new(), PULL_DEADLINE_LAST).await?.message;
        check_filled(frozen, convert::version(reply.version), reply.length)
    }

    /// Records the heir in the frozen one's place.
    async fn swap(
        self: &Arc<Self>,
        inode: &Inode,
        epoch: Epoch,
        frozen: &pb::Metablock,
        heir: &pb::Metablock,
    ) -> Result<()> {
        let swap = Swap {
            inode: inode.id.raw(),
            epoch: epoch.raw(),
            metablock: frozen.id,
            heir: heir.id,
            version: frozen.version,
            length: frozen.length,
        };
        let reply = self.own_meta(Op::Swap(swap)).await.inspect_err(|error| self.note_lease_error(inode, error))?;
        let record = reply.metablocks.into_iter().find(|record| record.id == heir.id);
        let record = record.ok_or_else(|| err!(Protocol, "a swap of {} brought no record", inode.id))?;
        let mut core = inode.core.lock();
        if core.hold.lease() != Lease::Write || !core.hold.is_write_of(epoch) {
            bail!(Io, "{}: the write lease was lost during a thaw", inode.id);
        }
        // I-63: nothing was written to the frozen one.
        assert!(!core.channels.contains_key(&heir.index), "{} was written while it was frozen", inode.id);
        self.metrics.thawed_metablocks.add(1);
        self.metrics.thawed_bytes.add(frozen.length);
        tracing::debug!(inode = %inode.id, frozen = frozen.id, heir = heir.id, "thawed");
        let reserved = record.reserved.max(heir.reserved);
        core.map.insert(heir.index, pb::Metablock { reserved, ..record });
        Ok(())
    }
}

/// Whether the heir's member is at fault, and not one that should give it the bytes.
fn is_of_target(error: &Error) -> bool {
    use ErrorKind as K;
    matches!(error.kind(), K::Unreachable | K::Disconnected | K::Timeout | K::NoSpace | K::Busy)
}

/// I-63: exactly what the frozen one shows.
fn check_filled(frozen: &pb::Metablock, version: Version, length: u64) -> Result<()> {
    if version != frozen.min_version() || length != frozen.length {
        bail!(
            StaleVersion,
            "an heir of m{} has {length} bytes at {version}, not {} at {}",
            frozen.id,
            frozen.length,
            frozen.min_version()
        );
    }
    Ok(())
}
