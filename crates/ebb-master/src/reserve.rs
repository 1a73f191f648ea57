//! Room that writers have been promised and not yet used.
//!
//! A write succeeds only where room is reserved on every member, so that ENOSPC and EDQUOT come from `write`, and never
//! after `close`. A grant reserves its metablock (the first one of a new file: a block, for most files are small), and a
//! holder that comes to the end of what it has asks for more. What is reserved and not yet committed is taken off the
//! free space that volumes tell, and counts for the dataset's quota. The count is loose where that is safe: bytes that
//! are written and not committed count twice for a moment, and what was committed lately counts until the volume has
//! told its free space twice again.
//!
//! What is reserved is also what nodes have been given to write and have not yet: which of them have too much of it, so that
//! others write for them, is seen here (`ebb_layout::overload`).
//!
//! What a holder was promised stays promised until its recovery has finished: its members may have all of it.
//!
//! Plain values; soft state: a new master process begins with guesses about the files that are held or being recovered, and
//! their holders tell it what they were promised. Where a quota binds, a guess is the most that may have been.

mod offer;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};

use ebb_layout::{OverloadRule, Queue, choose_overloaded};
use ebb_meta::Machine;
use ebb_runtime::Moment;
use ebb_types::{DatasetId, InodeId, MetablockId, NodeId, VolumeId};
use ebb_wire::pb;
pub use offer::{Offer, Short, choose_reserved};
use waiting::{Spans, Waiting, expected};

/// Reservations of all files that are held or being recovered.
#[derive(Debug, Default)]
pub struct Reservations {
    files: BTreeMap<InodeId, File>,
    volumes: BTreeMap<VolumeId, Promised>,
    datasets: BTreeMap<DatasetId, u64>,
    spans: Spans,
    overloaded: BTreeSet<NodeId>,
}

#[derive(Debug)]
struct File {
    dataset: DatasetId,
    /// By how many bytes the last commit made it grow; `None`: nothing was committed since it is held.
    grew: Option<u64>,
    blocks: BTreeMap<MetablockId, Block>,
}

impl File {
    fn has_open(&self) -> bool {
        self.blocks.values().any(|block| block.open() > 0)
    }
}

#[derive(Clone, Debug)]
struct Block {
    /// The holder may write up to here.
    reserved: u64,
    /// Committed.
    length: u64,
    volumes: Vec<VolumeId>,
    /// Bytes that it counts for in what waits for its volumes, and the span of time that they belong to.
    waits: u64,
    span: u64,
    /// Not what was promised, but what may have been, by a master process before this one, where a quota binds. The holder is
    /// told nothing of it.
    is_guess: bool,
}

/// A placement that is on its way into the log: what will wait for its volumes.
#[derive(Debug)]
pub(crate) struct OnItsWay {
    volumes: Vec<VolumeId>,
    bytes: u64,
    span: u64,
}

impl Block {
    fn open(&self) -> u64 {
        self.reserved.saturating_sub(self.length)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Promised {
    bytes: u64,
    /// Committed since the last heartbeat, and between the two before: the free space told may not show it yet.
    fading: [u64; 2],
    waiting: Waiting,
}

impl Reservations {
    /// Those of a master process that begins: what holders may have been promised before.
    #[must_use]
    pub fn of_held(machine: &Machine) -> Self {
        let mut all = Self::default();
        for inode in machine.uncommitted_files() {
            let (Ok(blocks), Ok(dataset)) = (machine.metablocks(inode), machine.dataset_of(inode)) else {
                continue;
            };
            for block in &blocks {
                // A guess that is too low shows in the volume's free space; a quota would be passed.
                let small = block.index == 0 && block.length <= dataset.block_size && dataset.quota_bytes == 0;
                let reserved = if small { dataset.block_size } else { dataset.metablock_size };
                all.reserve(inode, DatasetId::new(dataset.id), block, reserved);
            }
            let blocks = all.files.get_mut(&inode).into_iter().flat_map(|file| file.blocks.values_mut());
            blocks.for_each(|block| block.is_guess = dataset.quota_bytes != 0);
        }
        // Who of them writes is not known: what they write from now on will tell.
        all.volumes.values_mut().for_each(|promised| promised.waiting = Waiting::default());
        all
    }

    /// Time passes: what was handed out long ago, and not used, is not waited for any more. To be told before anything is
    /// counted or looked at.
    pub fn on_time(&mut self, now: Moment) {
        self.spans.at(now);
    }

    /// The holder may write this metablock up to `reserved` from now on. Never takes anything back.
    pub fn reserve(&mut self, inode: InodeId, dataset: DatasetId, block: &pb::Metablock, reserved: u64) {
        let id = block.metablock_id();
        let file = self.files.entry(inode).or_insert_with(|| File { dataset, grew: None, blocks: BTreeMap::new() });
        let before = file.blocks.get(&id).cloned();
        let is_guess = before.as_ref().is_some_and(|before| before.is_guess);
        let reserved = before.as_ref().map_or(reserved, |before| before.reserved.max(reserved));
        let volumes = block.members.iter().map(pb::Member::volume_id).collect();
        let waits = expected(reserved.saturating_sub(block.length), file.grew);
        let span = self.spans.number();
        self.put(inode, id, Some(Block { reserved, length: block.length, volumes, waits, span, is_guess }));
    }

    /// The holder of a file tells up to where it may write its metablocks, by what an earlier master process promised: those that
    /// it does not name, no further than they are written, or as far as was guessed if it tells nothing of any.
    pub fn on_reclaimed(&mut self, inode: InodeId, told: Option<&BTreeMap<MetablockId, u64>>) {
        let blocks = self.files.get(&inode).into_iter().flat_map(|file| &file.blocks);
        let guesses: Vec<_> =
            blocks.filter(|(_, block)| block.is_guess).map(|(id, block)| (*id, block.clone())).collect();
        for (id, guess) in guesses {
            let reserved =
                told.map_or(guess.reserved, |told| told.get(&id).copied().unwrap_or_default().max(guess.length));
            self.put(inode, id, Some(Block { reserved, is_guess: false, ..guess }));
        }
    }

    /// Whether it is not known how far the holder may write a metablock, because it has not told yet.
    #[must_use]
    pub fn is_guess(&self, inode: InodeId, block: MetablockId) -> bool {
        self.files.get(&inode).and_then(|file| file.blocks.get(&block)).is_some_and(|block| block.is_guess)
    }

    /// Whether more may be taken for promised in a dataset than is.
    #[must_use]
    pub fn has_guesses(&self) -> bool {
        self.files.values().any(|file| file.blocks.values().any(|block| block.is_guess && block.open() > 0))
    }

    /// Up to where the holder may write a metablock, if that was promised.
    #[must_use]
    pub fn reserved(&self, inode: InodeId, block: MetablockId) -> u64 {
        self.files.get(&inode).and_then(|file| file.blocks.get(&block)).map_or(0, |block| block.reserved)
    }

    /// Files with room that was promised, is not used, and is not likely to be soon: for a whole span nothing was handed out to
    /// them, and they did not grow. Who is idle longest comes first.
    #[must_use]
    pub fn idle(&self, most: usize) -> Vec<InodeId> {
        let now = self.spans.number();
        let idle = self.files.iter().filter_map(|(inode, file)| {
            let last = file.blocks.values().map(|block| block.span).max()?;
            (file.has_open() && last + 2 <= now).then_some((last, *inode))
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable();
        idle.truncate(most);
        idle.into_iter().map(|(_, inode)| inode).collect()
    }

    /// Whether room is promised to the file that it does not use.
    #[must_use]
    pub fn has_open(&self, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(File::has_open)
    }

    /// Something about the file has changed: its lengths, sets, holder, or that it exists.
    pub fn refresh(&mut self, machine: &Machine, inode: InodeId) {
        let now = self.spans.number();
        let Some(file) = self.files.get_mut(&inode) else { return };
        let counts = machine.may_have_uncommitted(inode);
        let record = |id: &MetablockId| machine.find_metablock(*id).filter(|(owner, _)| counts && *owner == inode);
        let blocks: Vec<(MetablockId, Block, Option<pb::Metablock>)> =
            file.blocks.iter().map(|(id, block)| (*id, block.clone(), record(id).map(|(_, found)| found))).collect();
        let growth = |(_, old, record): &(MetablockId, Block, Option<pb::Metablock>)| {
            record.as_ref().map_or(0, |record| record.length.saturating_sub(old.length))
        };
        let grew: u64 = blocks.iter().map(growth).sum();
        if grew > 0 {
            file.grew = Some(grew);
        }
        for (id, old, record) in blocks {
            let block = record.map(|record| {
                let open = old.reserved.saturating_sub(record.length);
                let volumes = record.members.iter().map(pb::Member::volume_id).collect();
                let (waits, span) =
                    if grew > 0 { (expected(open, Some(grew)), now) } else { (old.waits.min(open), old.span) };
                Block { length: record.length, volumes, waits, span, ..old }
            });
            self.put(inode, id, block);
        }
    }

    fn put(&mut self, inode: InodeId, id: MetablockId, now: Option<Block>) {
        tracing::trace!(%inode, metablock = %id, room = ?now.as_ref().map(|block| (block.reserved, block.length, block.is_guess)), "room");
        let span = self.spans.number();
        let Some(file) = self.files.get_mut(&inode) else { return };
        let before = match &now {
            Some(block) => file.blocks.insert(id, block.clone()),
            None => file.blocks.remove(&id),
        };
        let dataset = file.dataset;
        if file.blocks.is_empty() {
            self.files.remove(&inode);
        }
        if let Some(before) = before {
            for volume in &before.volumes {
                let promised = self.volumes.entry(*volume).or_default();
                promised.bytes = promised.bytes.saturating_sub(before.open());
                // What became data is not free any more, whether or not the volume has said so.
                let grown = now.as_ref().map_or(0, |now| now.length.min(now.reserved).saturating_sub(before.length));
                promised.fading[0] += grown;
                promised.waiting.subtract(before.waits, before.span, span);
            }
            let count = self.datasets.entry(dataset).or_default();
            *count = count.saturating_sub(before.open());
        }
        if let Some(now) = now {
            for volume in &now.volumes {
                let promised = self.volumes.entry(*volume).or_default();
                promised.bytes += now.open();
                promised.waiting.add(now.waits, now.span, span);
            }
            *self.datasets.entry(dataset).or_default() += now.open();
        }
    }

    /// A volume told its free space.
    pub fn on_heartbeat(&mut self, volume: VolumeId) {
        let span = self.spans.number();
        if let Some(promised) = self.volumes.get_mut(&volume) {
            promised.fading = [0, promised.fading[0]];
            if promised.bytes == 0 && promised.fading == [0, 0] && promised.waiting.bytes(span) == 0 {
                self.volumes.remove(&volume);
            }
        }
    }

    /// Bytes of a volume that look free and are not.
    #[must_use]
    pub fn on_volume(&self, volume: VolumeId) -> u64 {
        self.volumes.get(&volume).map_or(0, |promised| promised.bytes + promised.fading.iter().sum::<u64>())
    }

    /// Bytes that a volume has been given to write and that are not committed, as far as somebody is likely to write them.
    #[must_use]
    pub fn waiting(&self, volume: VolumeId) -> u64 {
        self.volumes.get(&volume).map_or(0, |promised| promised.waiting.bytes(self.spans.number()))
    }

    /// Counts what a placement that is on its way into the log will bring, until [`Reservations::settle`].
    pub(crate) fn expect(&mut self, members: &[pb::Member], bytes: u64) -> OnItsWay {
        let (volumes, span): (Vec<_>, _) = (members.iter().map(pb::Member::volume_id).collect(), self.spans.number());
        for volume in &volumes {
            self.volumes.entry(*volume).or_default().waiting.add(bytes, span, span);
        }
        OnItsWay { volumes, bytes, span }
    }

    /// It has come, and is counted as reserved, or never will.
    pub(crate) fn forget_expected(&mut self, on_its_way: &OnItsWay) {
        let now = self.spans.number();
        for volume in &on_its_way.volumes {
            let promised = self.volumes.entry(*volume).or_default();
            promised.waiting.subtract(on_its_way.bytes, on_its_way.span, now);
        }
    }

    /// Which nodes have too much to write, for metablocks of so many bytes; remembered until the next look.
    pub(crate) fn find_overloaded(
        &mut self,
        rule: &OverloadRule,
        queues: &BTreeMap<NodeId, Queue>,
        metablock_bytes: u64,
    ) -> BTreeSet<NodeId> {
        let overloaded = choose_overloaded(rule, queues, &self.overloaded, metablock_bytes);
        for node in overloaded.difference(&self.overloaded) {
            tracing::debug!(%node, "has too much to write: others write for it");
        }
        self.overloaded.clone_from(&overloaded);
        overloaded
    }

    /// Bytes (of one copy) that are promised in a dataset and not committed.
    #[must_use]
    pub fn in_dataset(&self, dataset: DatasetId) -> u64 {
        self.datasets.get(&dataset).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
