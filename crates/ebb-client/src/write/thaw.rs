//! Writes to what is frozen: an heir gets its bytes, and takes its place (docs/raid.md, Writes).
//!
//! The members of the heir copy what the frozen metablock shows. If no member of that can be asked now, they decode it.
//! The heir is recorded when all of them have it. Nothing is written to it before.

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
        let mut exclude = BTreeSet::new();
        loop {
            let frozen = inode.core.lock().map.get(&index).cloned();
            let frozen = frozen.filter(|record| record.frozen.is_some() && record.id == heir.heir_of);
            let Some(frozen) = frozen else { bail!(Io, "{}: the write lease was lost during a thaw", inode.id) };
            let failed = match self.runtime.has_bug(SeededBug::SwapUnfilled) {
                true => Vec::new(),
                false => self.fill(epoch, &frozen, &heir).await,
            };
            if failed.is_empty() {
                return self.swap(inode, epoch, &frozen, &heir).await;
            }
            let mut last = None;
            for failed in failed {
                last = Some(match failed {
                    Failed::Target(node, error) => {
                        exclude.insert(node);
                        error
                    }
                    Failed::Source(error) => error,
                });
            }
            let error = last.unwrap_or_else(|| err!(Internal, "nothing failed"));
            tracing::debug!(inode = %inode.id, index, %error, "a thaw is tried again");
            if self.runtime.now().since(started) > self.session.deadline() {
                bail!(Io, "{}: what is frozen at metablock {index} could not be copied: {error}", inode.id);
            }
            waiting.set(format!("a copy of what is frozen: {error}"));
            self.runtime.sleep(REPLACE_PAUSE).await;
            if !exclude.is_empty() {
                heir = self.other_heir(inode, epoch, index, &exclude).await?;
                exclude.clear();
            }
        }
    }

    /// An heir without these nodes.
    async fn other_heir(
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

    /// Has each member of an heir get the bytes.
    async fn fill(self: &Arc<Self>, epoch: Epoch, frozen: &pb::Metablock, heir: &pb::Metablock) -> Vec<Failed> {
        let filled = heir.members.iter().map(|member| self.fill_one(epoch, frozen, heir.id, member));
        join_all(filled).await.into_iter().filter_map(Result::err).collect()
    }

    async fn fill_one(
        self: &Arc<Self>,
        epoch: Epoch,
        frozen: &pb::Metablock,
        heir: u64,
        target: &pb::Member,
    ) -> Result<(), Failed> {
        let mut last = err!(Unavailable, "no member of m{} can be asked now", frozen.id);
        for source in self.sources(frozen) {
            let parted = self.parted(source.node, target.node);
            // Cancel-safety: as if the deadline had passed. A replica that comes to be is the heir's all the same.
            let pulled = tokio::select! {
                biased;
                parted = parted => Err(parted),
                pulled = self.pull_heir(epoch, frozen, heir, &source, target) => pulled,
            };
            match pulled {
                Ok(()) => return Ok(()),
                Err(error) if is_of_target(&error) => return Err(Failed::Target(target.node, error)),
                Err(error) => {
                    if error.kind() == ErrorKind::Corrupt {
                        members::report(self, frozen.metablock_id(), source, &error);
                    }
                    last = error;
                }
            }
        }
        if !frozen.is_in_raid_set() {
            // It may be the target that has another volume by now.
            return Err(if last.kind().is_copy_lost() {
                Failed::Target(target.node, last)
            } else {
                Failed::Source(last)
            });
        }
        match self.decode_heir(epoch, frozen, heir, target).await {
            Ok(()) => Ok(()),
            Err(error) if is_of_target(&error) || error.kind().is_copy_lost() => {
                Err(Failed::Target(target.node, error))
            }
            Err(error) => Err(Failed::Source(err!(Unavailable, "{last}; nor can it be decoded: {error}"))),
        }
    }

    /// Members of a frozen metablock that serve now or soon, the soonest first. If it can be decoded, the others are not
    /// waited for.
    fn sources(&self, frozen: &pb::Metablock) -> Vec<pb::Member> {
        let is_decoded = frozen.is_in_raid_set();
        let serves_in = |member: &pb::Member| self.wakes_in(member.node).unwrap_or(Duration::MAX);
        let is_there =
            |member: &&pb::Member| !self.nodes.is_lost(member.node) && (!is_decoded || serves_in(member) <= SOON);
        let mut sources: Vec<pb::Member> = frozen.members.iter().filter(is_there).copied().collect();
        sources.sort_by_key(serves_in);
        sources
    }

    async fn pull_heir(
        self: &Arc<Self>,
        epoch: Epoch,
        frozen: &pb::Metablock,
        heir: u64,
        source: &pb::Member,
        target: &pb::Member,
    ) -> Result<()> {
        let hop = self.nodes.hop(target)?;
        let message = pb::PullReplica {
            metablock: heir,
            volume: target.volume,
            incarnation: target.incarnation,
            epoch: epoch.raw(),
            source: Some(self.nodes.hop(source)?.to_message()),
            at: Some(frozen.min_version().into()),
            rate_bytes_per_sec: 0,
            source_metablock: frozen.id,
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
