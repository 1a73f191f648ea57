//! Contents of a log: writes by file, and the epochs below which writes are refused. Pure.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use ebb_types::{Epoch, InodeId, MetablockId, Result, Version, bail};
use ebb_wire::{convert, pb};

/// Limit of the files with a remembered epoch. For older ones only the holder's own check is left: after a write was
/// logged, it checks that it still has the lease.
const PROMISES_MAX: usize = 1 << 16;
/// Bytes of memory that a write takes beyond its data.
const OVERHEAD: usize = 256;

/// A logged write: the message to a member, without the names of volumes.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    /// Metablock, version, predecessor, kind, place, checksums.
    pub write: pb::WriteReplica,
    /// Its bytes.
    pub data: Bytes,
}

impl Logged {
    /// Its version.
    #[must_use]
    pub fn version(&self) -> Version {
        convert::version(self.write.version)
    }

    /// The version that it follows.
    #[must_use]
    pub fn predecessor(&self) -> Version {
        convert::version(self.write.predecessor)
    }

    /// Its metablock.
    #[must_use]
    pub const fn metablock(&self) -> MetablockId {
        MetablockId::new(self.write.metablock)
    }

    fn weight(&self) -> usize {
        self.data.len() + self.write.checksums.len() * 4 + OVERHEAD
    }
}

/// The writes of one file under one epoch.
#[derive(Clone, Debug, Default, PartialEq)]
struct FileLog {
    epoch: Epoch,
    writes: BTreeMap<(MetablockId, Version), Logged>,
}

/// Everything that a log holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Book {
    files: BTreeMap<InodeId, FileLog>,
    promised: BTreeMap<InodeId, Epoch>,
    /// Oldest promise first.
    order: VecDeque<InodeId>,
    bytes: usize,
}

impl Book {
    /// Bytes that it holds, with headers.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it holds no write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether a holder of this epoch may log writes of the file.
    pub fn check(&self, inode: InodeId, epoch: Epoch) -> Result<()> {
        let promised = self.promised.get(&inode).copied().unwrap_or_default();
        let held = self.files.get(&inode).map_or(Epoch::default(), |file| file.epoch);
        let least = promised.max(held);
        if epoch < least {
            bail!(StaleEpoch, "{inode}: epoch {epoch} is over, {least} is known here: the lease is lost");
        }
        Ok(())
    }

    /// Adds writes that were checked. The first write of a later epoch removes the writes of an earlier one, because
    /// its holder began with a state that all members had.
    pub fn apply_append(&mut self, inode: InodeId, epoch: Epoch, writes: impl IntoIterator<Item = Logged>) {
        if self.files.get(&inode).is_some_and(|file| file.epoch < epoch) {
            self.apply_drop(inode, epoch);
        }
        let file = self.files.entry(inode).or_default();
        file.epoch = epoch;
        for write in writes {
            let key = (write.metablock(), write.version());
            // A version once sent never carries other bytes, so a repetition changes nothing. If a sender breaks that
            // rule, the new size counts, or more space would be freed than was taken.
            self.bytes += write.weight();
            self.bytes -= file.writes.insert(key, write).map_or(0, |before| before.weight());
        }
        if file.writes.is_empty() {
            self.files.remove(&inode);
        }
    }

    /// The first of these writes that is not behind one that it holds, or that is among them before it, or that `bases`
    /// count as safe. None: they leave no gap. Metablocks that `bases` does not name are not looked at.
    pub fn gap(&self, inode: InodeId, epoch: Epoch, bases: &[pb::LogCut], writes: &[Logged]) -> Option<Version> {
        let bases: BTreeMap<u64, Version> =
            bases.iter().map(|base| (base.metablock, convert::version(base.version))).collect();
        // Writes of an earlier epoch go when the first of a later one comes.
        let held = self.files.get(&inode).filter(|file| file.epoch == epoch);
        let mut last: BTreeMap<MetablockId, Version> = BTreeMap::new();
        writes.iter().find_map(|write| {
            let (metablock, before) = (write.metablock(), write.predecessor());
            let base = *bases.get(&metablock.raw())?;
            let is_behind = before <= base
                || last.get(&metablock) == Some(&before)
                || held.is_some_and(|file| file.writes.contains_key(&(metablock, before)));
            last.insert(metablock, write.version());
            (!is_behind).then(|| write.version())
        })
    }

    /// The writes of a metablock after one version, up to another.
    pub fn between(
        &self,
        inode: InodeId,
        metablock: MetablockId,
        (after, upto): (Version, Version),
    ) -> impl Iterator<Item = &Logged> + '_ {
        let is_wanted = move |logged: &&Logged| {
            logged.metablock() == metablock && logged.version() > after && logged.version() <= upto
        };
        self.writes(inode).filter(is_wanted)
    }

    /// Bytes of writes that it does not hold yet, by metablock.
    pub fn news<'a>(&self, inode: InodeId, writes: impl Iterator<Item = &'a Logged>) -> BTreeMap<MetablockId, u64> {
        let held = self.files.get(&inode);
        let mut news = BTreeMap::new();
        for write in writes {
            let (metablock, bytes) = (write.metablock(), write.data.len() as u64);
            if held.is_none_or(|file| !file.writes.contains_key(&(metablock, write.version()))) {
                *news.entry(metablock).or_insert(0) += bytes;
            }
        }
        news
    }

    /// Refuses writes of the file below this epoch from now on.
    pub fn apply_promise(&mut self, inode: InodeId, epoch: Epoch) {
        match self.promised.insert(inode, epoch) {
            Some(before) => {
                self.promised.insert(inode, before.max(epoch));
            }
            None => self.order.push_back(inode),
        }
        while self.order.len() > PROMISES_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.promised.remove(&oldest);
            }
        }
    }

    /// Removes writes of the metablock up to `upto`, because every member has them.
    pub fn apply_cut(&mut self, inode: InodeId, metablock: MetablockId, upto: Version) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        let bytes = &mut self.bytes;
        file.writes.retain(|(of, version), write| {
            let is_needed = *of != metablock || *version > upto;
            *bytes -= if is_needed { 0 } else { write.weight() };
            is_needed
        });
        if file.writes.is_empty() {
            self.files.remove(&inode);
        }
    }

    /// Removes all writes of the file below `epoch`.
    pub fn apply_drop(&mut self, inode: InodeId, epoch: Epoch) {
        if self.files.get(&inode).is_some_and(|file| file.epoch < epoch)
            && let Some(file) = self.files.remove(&inode)
        {
            self.bytes -= file.writes.values().map(Logged::weight).sum::<usize>();
        }
    }

    /// The logged writes of a file, by metablock and version.
    pub fn writes(&self, inode: InodeId) -> impl Iterator<Item = &Logged> + '_ {
        self.files.get(&inode).into_iter().flat_map(|file| file.writes.values())
    }

    /// Files with writes, and the epoch of these writes.
    pub fn files(&self) -> impl Iterator<Item = (InodeId, Epoch)> + '_ {
        self.files.iter().map(|(inode, file)| (*inode, file.epoch))
    }

    /// Files with writes, their epoch, and the last version of each metablock.
    pub fn marks(&self) -> impl Iterator<Item = pb::LoggedFile> + '_ {
        self.files.iter().map(|(inode, file)| {
            let last: BTreeMap<MetablockId, Version> = file.writes.keys().copied().collect();
            let cut = |(metablock, version): (MetablockId, Version)| pb::LogCut {
                metablock: metablock.raw(),
                version: Some(version.into()),
            };
            pb::LoggedFile { inode: inode.raw(), epoch: file.epoch.raw(), last: last.into_iter().map(cut).collect() }
        })
    }

    /// Files with promises, oldest first.
    pub fn promises(&self) -> impl Iterator<Item = (InodeId, Epoch)> + '_ {
        self.order.iter().filter_map(|inode| Some((*inode, *self.promised.get(inode)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId::new(7);
    const ONE: MetablockId = MetablockId::new(1);

    fn version(epoch: u64, seq: u64) -> Version {
        Version::new(Epoch::new(epoch), seq)
    }

    fn logged(metablock: u64, epoch: u64, seq: u64) -> Logged {
        let write = pb::WriteReplica {
            metablock,
            version: Some(version(epoch, seq).into()),
            predecessor: Some(version(epoch, seq - 1).into()),
            ..Default::default()
        };
        Logged { write, data: Bytes::from(vec![seq as u8; 100]) }
    }

    fn seqs(book: &Book) -> Vec<(u64, u64)> {
        book.writes(FILE).map(|write| (write.metablock().raw(), write.version().seq)).collect()
    }

    #[test]
    fn writes_that_all_members_have_are_cut_and_space_comes_back() {
        let mut book = Book::default();
        book.apply_append(FILE, Epoch::new(2), [logged(1, 2, 1), logged(1, 2, 2), logged(3, 2, 1)]);
        let full = book.bytes();
        book.apply_append(FILE, Epoch::new(2), [logged(1, 2, 2)]);
        assert_eq!((book.bytes(), seqs(&book)), (full, vec![(1, 1), (1, 2), (3, 1)]));
        book.apply_cut(FILE, ONE, version(2, 1));
        assert_eq!(seqs(&book), [(1, 2), (3, 1)]);
        book.apply_cut(FILE, ONE, version(2, 9));
        book.apply_cut(FILE, MetablockId::new(3), version(2, 9));
        assert_eq!((book.bytes(), book.is_empty()), (0, true));
    }

    #[test]
    fn a_holder_of_an_earlier_epoch_is_refused_and_its_writes_end_with_the_next_one() {
        let mut book = Book::default();
        book.apply_append(FILE, Epoch::new(2), [logged(1, 2, 1)]);
        assert!(book.check(FILE, Epoch::new(2)).is_ok());
        book.apply_promise(FILE, Epoch::new(3));
        assert_eq!(book.check(FILE, Epoch::new(2)).unwrap_err().kind(), ebb_types::ErrorKind::StaleEpoch);
        assert_eq!(seqs(&book), [(1, 1)], "recovery still needs it");
        book.apply_promise(FILE, Epoch::new(2));
        assert!(book.check(FILE, Epoch::new(2)).is_err(), "a promise is never taken back");
        book.apply_append(FILE, Epoch::new(4), [logged(1, 4, 1)]);
        assert_eq!(book.writes(FILE).map(Logged::version).collect::<Vec<_>>(), [version(4, 1)]);
        assert!(book.check(FILE, Epoch::new(3)).is_err());
        book.apply_drop(FILE, Epoch::new(4));
        assert!(!book.is_empty(), "it is of this epoch");
        book.apply_drop(FILE, Epoch::new(5));
        assert_eq!((book.is_empty(), book.bytes()), (true, 0));
    }

    #[test]
    fn a_write_is_taken_behind_the_one_before_it() {
        let mut book = Book::default();
        let base = |seq| [pb::LogCut { metablock: 1, version: Some(version(2, seq).into()) }];
        let epoch = Epoch::new(2);
        let writes = [logged(1, 2, 3), logged(1, 2, 4)];
        assert_eq!(book.gap(FILE, epoch, &base(2), &writes), None, "the one before is safe");
        assert_eq!(book.gap(FILE, epoch, &base(1), &writes), Some(version(2, 3)));
        assert_eq!(book.gap(FILE, epoch, &[], &writes), None, "no base is given");
        assert_eq!(book.gap(FILE, epoch, &base(1), &[logged(1, 2, 2), logged(1, 2, 4)]), Some(version(2, 4)));
        assert_eq!(book.gap(FILE, epoch, &base(1), &[logged(2, 2, 7)]), None, "another metablock");
        book.apply_append(FILE, epoch, [logged(1, 2, 2)]);
        assert_eq!(book.gap(FILE, epoch, &base(1), &writes), None, "the one before is logged");
        let next = [pb::LogCut { metablock: 1, version: Some(version(2, 1).into()) }];
        let of_next = Logged {
            write: pb::WriteReplica { predecessor: Some(version(2, 2).into()), ..logged(1, 3, 1).write },
            ..logged(1, 3, 1)
        };
        let found = book.gap(FILE, Epoch::new(3), &next, std::slice::from_ref(&of_next));
        assert_eq!(found, Some(version(3, 1)), "what an earlier epoch logged goes");
    }

    #[test]
    fn writes_of_one_metablock_between_two_versions_are_found() {
        let mut book = Book::default();
        book.apply_append(FILE, Epoch::new(2), (1..6).map(|seq| logged(1, 2, seq)).chain([logged(3, 2, 3)]));
        let between = |after, upto| -> Vec<u64> {
            let range = (version(2, after), version(2, upto));
            book.between(FILE, ONE, range).map(|write| write.version().seq).collect()
        };
        assert_eq!(between(2, 4), [3, 4]);
        assert_eq!(between(5, 9), [] as [u64; 0]);
        assert_eq!(book.between(InodeId::new(8), ONE, (version(0, 0), version(9, 9))).count(), 0);
    }

    #[test]
    fn a_version_that_comes_again_with_other_bytes_is_counted_as_it_is_now() {
        let mut book = Book::default();
        let short = Logged { data: Bytes::new(), ..logged(1, 2, 1) };
        book.apply_append(FILE, Epoch::new(2), [short.clone()]);
        let empty = book.bytes();
        book.apply_append(FILE, Epoch::new(2), [logged(1, 2, 1)]);
        assert_eq!(book.bytes(), empty + 100);
        book.apply_append(FILE, Epoch::new(2), [short]);
        assert_eq!(book.bytes(), empty);
        book.apply_append(FILE, Epoch::new(2), [logged(1, 2, 1)]);
        book.apply_cut(FILE, ONE, version(2, 9));
        assert_eq!(book.bytes(), 0);
    }

    #[test]
    fn promises_are_bounded_and_the_oldest_go_first() {
        let mut book = Book::default();
        for inode in 0..PROMISES_MAX as u64 + 10 {
            book.apply_promise(InodeId::new(inode), Epoch::new(5));
        }
        assert_eq!(book.promises().count(), PROMISES_MAX);
        assert!(book.check(InodeId::new(3), Epoch::new(1)).is_ok());
        assert!(book.check(InodeId::new(10), Epoch::new(1)).is_err());
    }
}
