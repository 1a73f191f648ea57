//! Reservations: room that is set aside for writers and not used yet.
//!
//! A write succeeds only where room is reserved on every member. So ENOSPC and EDQUOT come from `write`, and never
//! after `close`. A grant reserves its metablock. The first grant of a new file reserves only a block, because most
//! files are small. A holder near the end of its room asks for more.
//!
//! Uncommitted reservations are subtracted from the free space that volumes report, and count against the dataset's
//! quota. The count errs on the safe side: written but uncommitted bytes count twice for a moment, and recently
//! committed bytes count until the volume has reported its free space twice more.
//!
//! Reservations also show how much each node still has to write. `Reservations::find_overloaded` finds nodes with too
//! much, so that others write for them (`ebb_layout::overload`).
//!
//! A holder's reservation lasts until its recovery has finished, because the members may have all of it.
//!
//! Plain values; soft state. A new master process starts with guesses about files that are held or in recovery, until
//! their holders reclaim their reservations. Where a quota binds, the guess is the most that may have been reserved.

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

/// Reservations of all files that are held or in recovery.
#[derive(Debug, Default)]
pub struct Reservations {
    files: BTreeMap<InodeId, File>,
    volumes: BTreeMap<VolumeId, Reserved>,
    datasets: BTreeMap<DatasetId, u64>,
    spans: Spans,
    overloaded: BTreeSet<NodeId>,
}

#[derive(Debug)]
struct File {
    dataset: DatasetId,
    /// Bytes by which the last commit grew the file. `None` means no commit since it is held.
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
    /// Offset in the metablock up to which the holder may write.
    reserved: u64,
    /// Committed length.
    length: u64,
    volumes: Vec<VolumeId>,
    /// Bytes that it adds to the queue of each of its volumes.
    waits: u64,
    /// Span of time to which these bytes belong.
    span: u64,
    /// Whether `reserved` is the most that an earlier master process may have reserved, where a quota binds. A guess is
    /// never shown to the holder.
    is_guess: bool,
}

/// Bytes of a placement that is being logged. They already count as waiting for its volumes.
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
struct Reserved {
    bytes: u64,
    /// Bytes committed since the last heartbeat, and between the two before it. The reported free space may not include
    /// them yet.
    fading: [u64; 2],
    waiting: Waiting,
}

impl Reservations {
    /// The guesses of a new master process about reservations of earlier ones.
    #[must_use]
    pub fn of_held(machine: &Machine) -> Self {
        let mut all = Self::default();
        for inode in machine.uncommitted_files() {
            let (Ok(blocks), Ok(dataset)) = (machine.metablocks(inode), machine.dataset_of(inode)) else {
                continue;
            };
            for block in &blocks {
                // Without a quota a low guess is safe: the volume's reported free space shows the difference. With one,
                // a low guess would let the quota be exceeded.
                let small = block.index == 0 && block.length <= dataset.block_size && dataset.quota_bytes == 0;
                let reserved = if small { dataset.block_size } else { dataset.metablock_size };
                all.reserve(inode, DatasetId::new(dataset.id), block, reserved);
            }
            let blocks = all.files.get_mut(&inode).into_iter().flat_map(|file| file.blocks.values_mut());
            blocks.for_each(|block| block.is_guess = dataset.quota_bytes != 0);
        }
        // Which of these files are being written is unknown. Their next writes show it.
        all.volumes.values_mut().for_each(|reserved| reserved.waiting = Waiting::default());
        all
    }

    /// Advances the time: old unused reservations stop counting as waiting. Call this before any count is read.
    pub fn on_time(&mut self, now: Moment) {
        self.spans.at(now);
    }

    /// Lets the holder write a metablock up to `reserved` bytes. A larger earlier reservation stays.
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

    /// Replaces guesses by the holder's own record of its reservations. `reclaimed` has an offset for each metablock. A
    /// metablock that it lacks keeps its committed length only. An offset beyond the guess is false, and counts as the
    /// guess. Without a record every guess becomes a reservation.
    pub fn on_reclaimed(&mut self, inode: InodeId, reclaimed: Option<&BTreeMap<MetablockId, u64>>) {
        let blocks = self.files.get(&inode).into_iter().flat_map(|file| &file.blocks);
        let guesses: Vec<_> =
            blocks.filter(|(_, block)| block.is_guess).map(|(id, block)| (*id, block.clone())).collect();
        for (id, guess) in guesses {
            // I-100: a holder may send any number, and the sums of a volume must not overflow by it.
            let bounded = |offset: u64| offset.min(guess.reserved).max(guess.length);
            let reserved =
                reclaimed.map_or(guess.reserved, |known| bounded(known.get(&id).copied().unwrap_or_default()));
            self.put(inode, id, Some(Block { reserved, is_guess: false, ..guess }));
        }
    }

    /// Whether the metablock's reservation is a guess, because the holder has not reclaimed it yet.
    #[must_use]
    pub fn is_guess(&self, inode: InodeId, block: MetablockId) -> bool {
        self.files.get(&inode).and_then(|file| file.blocks.get(&block)).is_some_and(|block| block.is_guess)
    }

    /// Whether some guess may exceed the true reservation.
    #[must_use]
    pub fn has_guesses(&self) -> bool {
        self.files.values().any(|file| file.blocks.values().any(|block| block.is_guess && block.open() > 0))
    }

    /// Offset up to which the holder may write a metablock; 0 without a reservation.
    #[must_use]
    pub fn reserved(&self, inode: InodeId, block: MetablockId) -> u64 {
        self.files.get(&inode).and_then(|file| file.blocks.get(&block)).map_or(0, |block| block.reserved)
    }

    /// Files with unused room that are unlikely to use it soon, the longest idle first, at most `most`. Such a file got
    /// no room and did not grow for a whole span.
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

    /// Whether the file has unused room.
    #[must_use]
    pub fn has_open(&self, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(File::has_open)
    }

    /// Takes over the file's lengths, sets, holder or removal from the log.
    pub fn refresh(&mut self, machine: &Machine, inode: InodeId) {
        let now = self.spans.number();
        let Some(file) = self.files.get_mut(&inode) else { return };
        let counts = machine.may_have_uncommitted(inode);
        // A file that is neither held nor in recovery has no writer, so its reservations end.
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
            // Invariant: spans only advance, or the bytes would be subtracted from the wrong one.
            assert!(before.span <= span, "{id} was counted in span {}, and now is span {span}", before.span);
            for volume in &before.volumes {
                let reserved = self.volumes.entry(*volume).or_default();
                reserved.bytes = reserved.bytes.saturating_sub(before.open());
                // Data take space whether or not the volume's reported free space shows it yet.
                let grown = now.as_ref().map_or(0, |now| now.length.min(now.reserved).saturating_sub(before.length));
                reserved.fading[0] += grown;
                reserved.waiting.subtract(before.waits, before.span, span);
            }
            let count = self.datasets.entry(dataset).or_default();
            *count = count.saturating_sub(before.open());
        }
        if let Some(now) = now {
            for volume in &now.volumes {
                let reserved = self.volumes.entry(*volume).or_default();
                reserved.bytes += now.open();
                reserved.waiting.add(now.waits, now.span, span);
            }
            *self.datasets.entry(dataset).or_default() += now.open();
        }
    }

    /// Records that a volume has reported its free space.
    pub fn on_heartbeat(&mut self, volume: VolumeId) {
        let span = self.spans.number();
        if let Some(reserved) = self.volumes.get_mut(&volume) {
            reserved.fading = [0, reserved.fading[0]];
            if reserved.bytes == 0 && reserved.fading == [0, 0] && reserved.waiting.bytes(span) == 0 {
                self.volumes.remove(&volume);
            }
        }
    }

    /// Bytes of a volume that are reserved, or too new for its reported free space.
    #[must_use]
    pub fn on_volume(&self, volume: VolumeId) -> u64 {
        self.volumes.get(&volume).map_or(0, |reserved| reserved.bytes + reserved.fading.iter().sum::<u64>())
    }

    /// Uncommitted bytes that a volume has been given to write and that are likely to be written soon.
    #[must_use]
    pub fn waiting(&self, volume: VolumeId) -> u64 {
        self.volumes.get(&volume).map_or(0, |reserved| reserved.waiting.bytes(self.spans.number()))
    }

    /// Counts the bytes of a placement that is being logged, until [`Reservations::forget_expected`].
    pub(crate) fn expect(&mut self, members: &[pb::Member], bytes: u64) -> OnItsWay {
        let (volumes, span): (Vec<_>, _) = (members.iter().map(pb::Member::volume_id).collect(), self.spans.number());
        for volume in &volumes {
            self.volumes.entry(*volume).or_default().waiting.add(bytes, span, span);
        }
        OnItsWay { volumes, bytes, span }
    }

    /// Ends the count of a placement that is now reserved, or was given up.
    pub(crate) fn forget_expected(&mut self, on_its_way: &OnItsWay) {
        let now = self.spans.number();
        for volume in &on_its_way.volumes {
            let reserved = self.volumes.entry(*volume).or_default();
            reserved.waiting.subtract(on_its_way.bytes, on_its_way.span, now);
        }
    }

    /// Nodes with too much to write, for metablocks of `metablock_bytes`. The result is also the next call's starting
    /// point, for hysteresis.
    pub(crate) fn find_overloaded(
        &mut self,
        rule: &OverloadRule,
        queues: &BTreeMap<NodeId, Queue>,
        metablock_bytes: u64,
    ) -> BTreeSet<NodeId> {
        let overloaded = choose_overloaded(rule, queues, &self.overloaded, metablock_bytes);
        for node in overloaded.difference(&self.overloaded) {
            tracing::debug!(%node, "the node has too much to write: others write for it");
        }
        self.overloaded.clone_from(&overloaded);
        overloaded
    }

    /// Reserved and uncommitted bytes in a dataset, of one copy.
    #[must_use]
    pub fn in_dataset(&self, dataset: DatasetId) -> u64 {
        self.datasets.get(&dataset).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
