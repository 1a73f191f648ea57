//! A file: its state as programs see it, its state on the platter, and the changes between.

use bytes::Bytes;

use super::content::Content;
use crate::virt::Dice;

/// The unit that a disk writes as one: a crash tears writes at its borders.
pub(super) const SECTOR: u64 = 512;

/// A change that is in the page cache and may not be on the platter.
#[derive(Clone)]
pub(super) enum Change {
    Write { offset: u64, data: Vec<Bytes> },
    SetLen(u64),
    Punch { offset: u64, len: u64 },
    Allocate { offset: u64, len: u64 },
}

impl Change {
    pub(super) fn apply(&self, content: &mut Content) {
        match self {
            Self::Write { offset, data } => {
                let mut at = *offset;
                for buffer in data {
                    content.write(at, buffer);
                    at += buffer.len() as u64;
                }
            }
            Self::SetLen(len) => content.set_len(*len),
            Self::Punch { offset, len } => content.punch(*offset, *len),
            Self::Allocate { offset, len } => content.allocate(*offset, *len),
        }
    }

    /// Offset and length of the range that it touches.
    pub(super) fn range(&self) -> (u64, u64) {
        match self {
            Self::Write { offset, .. } => (*offset, self.weight()),
            Self::SetLen(len) => (0, *len),
            Self::Punch { offset, len } | Self::Allocate { offset, len } => (*offset, *len),
        }
    }

    /// Bytes that the disk has to take for it.
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Write { data, .. } => data.iter().map(|buffer| buffer.len() as u64).sum(),
            _ => 0,
        }
    }

    /// Bytes that the change would add to the file's space.
    pub(super) fn missing_bytes(&self, content: &Content) -> u64 {
        match self {
            Self::Write { offset, .. } => content.missing_bytes(*offset, self.weight()),
            Self::Allocate { offset, len } => content.missing_bytes(*offset, *len),
            Self::SetLen(_) | Self::Punch { .. } => 0,
        }
    }
}

/// The effect of a crash on unsynced changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Toll {
    pub(super) lost: u64,
    pub(super) torn: u64,
    pub(super) kept: u64,
}

/// A file.
///
/// Invariant: `current` is `durable` with `pending` applied in order, unless a failed sync has made some changes
/// unsavable; those are in `current` alone.
#[derive(Clone, Default)]
pub(super) struct Inode {
    pub(super) current: Content,
    pub(super) durable: Content,
    /// With their numbers, which grow.
    pub(super) pending: Vec<(u64, Change)>,
    /// Pending changes that went around the page cache, and their bytes: a sync need not move them any more.
    direct: Vec<(u64, u64)>,
    pub(super) open_count: usize,
    /// The one that it lies on.
    pub(super) spindle: usize,
}

impl Inode {
    /// An empty file.
    pub(super) fn on(spindle: usize) -> Self {
        Self { spindle, ..Self::default() }
    }

    /// Applies a change to the state that programs see.
    pub(super) fn change(&mut self, number: u64, change: Change) {
        change.apply(&mut self.current);
        self.pending.push((number, change));
    }

    /// The last change went around the page cache. It is no more durable for that: the disk has a cache of its own.
    pub(super) fn mark_direct(&mut self) {
        self.direct.extend(self.pending.last().map(|(number, change)| (*number, change.weight())));
    }

    /// Bytes that a sync now would move.
    pub(super) fn dirty_bytes(&self) -> u64 {
        let pending: u64 = self.pending.iter().map(|(_, change)| change.weight()).sum();
        pending - self.direct.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// Makes changes up to `number` durable.
    pub(super) fn sync(&mut self, number: u64) {
        let count = self.pending.partition_point(|(pending, _)| *pending <= number);
        for (_, change) in self.pending.drain(..count) {
            change.apply(&mut self.durable);
        }
        self.direct.retain(|(direct, _)| *direct > number);
    }

    /// A sync that failed: each change it was to save is saved or never will be. Returns how many never will be.
    pub(super) fn fail_sync(&mut self, number: u64, dice: &mut Dice) -> u64 {
        let count = self.pending.partition_point(|(pending, _)| *pending <= number);
        let mut lost = 0;
        for (_, change) in self.pending.drain(..count) {
            if dice.coin() {
                change.apply(&mut self.durable);
            } else {
                lost += 1;
            }
        }
        self.direct.retain(|(direct, _)| *direct > number);
        lost
    }

    /// It is empty, and stays open where it is.
    pub(super) fn lose_everything(&mut self) {
        *self = Self { open_count: self.open_count, ..Self::on(self.spindle) };
    }

    /// No change is pending any more, whatever has become of it.
    pub(super) fn forget_unsynced(&mut self) {
        self.pending.clear();
        self.direct.clear();
    }

    /// Power is lost: each unsynced change is lost, kept or, if it is a write, torn, independent of the others.
    pub(super) fn crash(&mut self, dice: &mut Dice) -> Toll {
        let mut toll = Toll::default();
        self.direct.clear();
        for (_, change) in std::mem::take(&mut self.pending) {
            match dice.below(3) {
                0 => {
                    toll.lost += 1;
                    self.grow_without_data(&change, dice);
                }
                1 => {
                    toll.kept += 1;
                    change.apply(&mut self.durable);
                }
                _ => match &change {
                    Change::Write { offset, data } if change.weight() > 0 => {
                        toll.torn += 1;
                        tear(&mut self.durable, *offset, data, dice);
                    }
                    _ => {
                        toll.kept += 1;
                        change.apply(&mut self.durable);
                    }
                },
            }
        }
        self.current = self.durable.clone();
        toll
    }

    /// The length is metadata: a file system may have made it durable before the bytes, which then read as zero.
    fn grow_without_data(&mut self, change: &Change, dice: &mut Dice) {
        if let Change::Write { offset, .. } = change {
            let end = offset + change.weight();
            if end > self.durable.len() && dice.chance(0.25) {
                self.durable.set_len(end);
            }
        }
    }

    /// Flips one bit in each of these stored bytes, as a medium does that ages. Returns how many were stored.
    pub(super) fn flip(&mut self, offset: u64, len: u64) -> u64 {
        let mut flipped = 0;
        for at in offset..offset.saturating_add(len).min(self.current.len()) {
            flipped += u64::from(self.current.flip(at));
            self.durable.flip(at);
        }
        flipped
    }

    /// Space that the file takes: the larger one of its state as programs see it and its state on the platter.
    pub(super) fn used_bytes(&self) -> u64 {
        self.current.allocated_bytes().max(self.durable.allocated_bytes())
    }
}

/// Keeps each sector of a write or not, by chance; at least one is kept and, if there are two, one is lost.
fn tear(content: &mut Content, offset: u64, data: &[Bytes], dice: &mut Dice) {
    let whole: Vec<u8> = data.iter().flat_map(|buffer| buffer.iter().copied()).collect();
    let end = offset + whole.len() as u64;
    let count = end.div_ceil(SECTOR) - offset / SECTOR;
    let mut keep: Vec<bool> = (0..count).map(|_| dice.coin()).collect();
    let sure = dice.index(keep.len());
    keep[sure] = true;
    if count > 1 && keep.iter().all(|kept| *kept) {
        let other = (sure + 1 + dice.index(keep.len() - 1)) % keep.len();
        keep[other] = false;
    }
    for (sector, _) in keep.iter().enumerate().filter(|(_, kept)| **kept) {
        let start = ((offset / SECTOR + sector as u64) * SECTOR).max(offset);
        let stop = ((offset / SECTOR + sector as u64 + 1) * SECTOR).min(end);
        content.write(start, &whole[(start - offset) as usize..(stop - offset) as usize]);
    }
    if content.len() < end && dice.coin() {
        content.set_len(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, byte: u8, len: usize) -> Change {
        Change::Write { offset, data: vec![Bytes::from(vec![byte; len])] }
    }

    #[test]
    fn a_torn_write_keeps_some_sectors_and_loses_others() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed, "tear");
            let mut content = Content::default();
            content.write(0, &[1; 8192]);
            tear(&mut content, 700, &[Bytes::from(vec![2; 4000])], &mut dice);
            let data = content.read(0, 8192);
            assert!(
                data[..700].iter().chain(&data[4700..]).all(|byte| *byte == 1),
                "seed {seed}: outside of the write"
            );
            let kept = data[700..4700].iter().filter(|byte| **byte == 2).count();
            assert!(kept > 0 && kept < 4000, "seed {seed}: {kept} of 4000 bytes");
            for sector in 0..16 {
                let from = (sector * 512).clamp(700, 4700);
                let to = ((sector + 1) * 512).clamp(700, 4700);
                assert!(
                    data[from..to].windows(2).all(|pair| pair[0] == pair[1]),
                    "seed {seed}: sector {sector} is torn"
                );
            }
        }
    }

    #[test]
    fn synced_changes_survive_whatever_becomes_of_later_ones() {
        let mut tolls = Toll::default();
        for seed in 0..200 {
            let mut inode = Inode::default();
            inode.change(1, write(0, 1, 4096));
            inode.change(2, write(0, 2, 1000));
            inode.sync(1);
            inode.change(3, Change::SetLen(10_000));
            let toll = inode.crash(&mut Dice::new(seed, "crash"));
            let data = inode.current.read(0, 4096);
            assert!(data[1000..].iter().all(|byte| *byte == 1), "seed {seed}");
            assert!(data[..1000].iter().all(|byte| *byte == 1 || *byte == 2), "seed {seed}");
            assert_eq!(toll.lost + toll.torn + toll.kept, 2);
            tolls.lost += toll.lost;
            tolls.torn += toll.torn;
            tolls.kept += toll.kept;
        }
        assert!(tolls.lost > 50 && tolls.torn > 30 && tolls.kept > 50, "{tolls:?}");
    }

    #[test]
    fn a_failed_sync_hides_the_loss_until_the_crash() {
        let mut lost = 0;
        for seed in 0..50 {
            let mut dice = Dice::new(seed, "sync");
            let mut inode = Inode::default();
            inode.change(1, write(0, 9, 512));
            lost += inode.fail_sync(1, &mut dice);
            inode.sync(1);
            assert_eq!(inode.current.read(0, 512)[0], 9);
            inode.crash(&mut dice);
            assert!(inode.current.len() == 0 || inode.current.read(0, 512)[0] == 9);
        }
        assert!((10..40).contains(&lost), "{lost} of 50");
    }
}
