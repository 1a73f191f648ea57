//! What the kernel may have in its page cache, as plain state: which requests it served, which files change.
//!
//! The kernel cannot be asked. But it reads only what this process served, through descriptors that were opened to read
//! by way of the cache, and it is known when it was made to drop everything.

use std::collections::BTreeMap;

use ebb_types::InodeId;

use crate::abi::init::Mappable;
use crate::vfs::Access;

/// Files of which something is known: beyond that the kernel is made to drop what nobody has open.
const FILES_MAX: usize = 1 << 16;
/// Ranges that are told apart; beyond that everything is taken as served.
const RANGES_MAX: usize = 16;

/// How a descriptor goes to its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Reads by way of the page cache.
    Cached,
    /// Around it, each read and write to this process.
    Direct,
}

/// Who changes a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changer {
    /// A program on this mount.
    ThisMount,
    /// Another mount.
    OtherMount,
}

/// What may have been put into the page cache since it was last made to drop.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Served {
    /// Nothing.
    #[default]
    Nothing,
    /// Offsets and lengths.
    Ranges(Vec<(u64, u64)>),
    /// Anything.
    Anything,
}

impl Served {
    fn add(&mut self, offset: u64, len: u64) {
        match self {
            Self::Nothing => *self = Self::Ranges(vec![(offset, len)]),
            Self::Ranges(ranges) if ranges.len() < RANGES_MAX => ranges.push((offset, len)),
            Self::Ranges(_) | Self::Anything => *self = Self::Anything,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, one) | (one, Self::Nothing) => one,
            (Self::Ranges(ranges), Self::Ranges(more)) => Self::Ranges(ranges.into_iter().chain(more).collect()),
            _ => Self::Anything,
        }
    }
}

#[derive(Debug, Default)]
struct File {
    /// Descriptors that read by way of the cache.
    cached: usize,
    /// Descriptors that write.
    writers: usize,
    served: Served,
    /// The same through descriptors that go around the cache: a mapping puts in what it reads through one, and nobody is told
    /// that it was a mapping's.
    around: Served,
    guards: usize,
}

impl File {
    fn is_forgettable(&self) -> bool {
        self.cached == 0
            && self.writers == 0
            && self.guards == 0
            && self.served == Served::Nothing
            && self.around == Served::Nothing
    }
}

/// All files of which anything is known.
#[derive(Debug, Default)]
pub struct Pages {
    files: BTreeMap<InodeId, File>,
}

impl Pages {
    /// Decides how a new descriptor goes that asked to go `asked`, and counts it. A kernel that maps cached files only
    /// gets what was asked for.
    ///
    /// Who writes goes around: the kernel changes cached pages before it asks, so that other programs here would see
    /// what nobody else can see yet, and what may fail. And so does who opens a file that is open for writing here.
    pub fn open(&mut self, inode: InodeId, access: Access, asked: Way, maps: Mappable) -> Way {
        let file = self.entry(inode);
        file.writers += usize::from(access.writes());
        let way = if maps == Mappable::All && (file.writers > 0 || file.guards > 0) { Way::Direct } else { asked };
        file.cached += usize::from(way == Way::Cached);
        self.tidy(inode);
        way
    }

    /// A descriptor is gone. Returns a file whose pages the kernel had better drop, as too many are kept.
    pub fn close(&mut self, inode: InodeId, access: Access, way: Way) -> Option<InodeId> {
        let file = self.entry(inode);
        file.writers = file.writers.saturating_sub(usize::from(access.writes()));
        file.cached = file.cached.saturating_sub(usize::from(way == Way::Cached));
        self.tidy(inode);
        if self.files.len() <= FILES_MAX {
            return None;
        }
        let unused = |file: &File| file.cached == 0 && file.writers == 0 && file.guards == 0;
        self.files.iter().find(|(_, file)| unused(file)).map(|(inode, _)| *inode)
    }

    /// A read through a descriptor that goes this way is being answered.
    pub fn serve(&mut self, inode: InodeId, way: Way, offset: u64, len: u64) {
        let file = self.entry(inode);
        match way {
            Way::Cached => file.served.add(offset, len),
            Way::Direct => file.around.add(offset, len),
        }
    }

    /// Whether the kernel may have, or get, pages of a file: a change of it needs a guard.
    pub fn may_have(&self, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(|file| file.cached > 0 || file.served != Served::Nothing)
    }

    /// What was served so far; the kernel is about to drop it. For another mount also what went around the cache. A
    /// change by this mount needs not ask for that, for the kernel looks through mappings before it writes around them.
    pub fn take_served(&mut self, inode: InodeId, changer: Changer) -> Served {
        let Some(file) = self.files.get_mut(&inode) else { return Served::Nothing };
        let mut served = std::mem::take(&mut file.served);
        if changer == Changer::OtherMount {
            served = served.and(std::mem::take(&mut file.around));
        }
        self.tidy(inode);
        served
    }

    /// From now on who begins to read waits.
    pub fn guard(&mut self, inode: InodeId) {
        self.entry(inode).guards += 1;
    }

    /// One guard less. True: it was the last.
    pub fn unguard(&mut self, inode: InodeId) -> bool {
        let file = self.entry(inode);
        file.guards -= 1;
        let last = file.guards == 0;
        self.tidy(inode);
        last
    }

    /// Whether who begins to read waits.
    pub fn is_guarded(&self, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(|file| file.guards > 0)
    }

    fn entry(&mut self, inode: InodeId) -> &mut File {
        self.files.entry(inode).or_default()
    }

    fn tidy(&mut self, inode: InodeId) {
        if self.files.get(&inode).is_some_and(File::is_forgettable) {
            self.files.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: InodeId = InodeId::new(1);

    #[test]
    fn who_writes_goes_around_the_cache_and_so_does_who_reads_meanwhile() {
        let mut pages = Pages::default();
        assert_eq!(pages.open(A, Access::Read, Way::Cached, Mappable::All), Way::Cached);
        assert_eq!(pages.open(A, Access::Write, Way::Cached, Mappable::All), Way::Direct);
        assert_eq!(pages.open(A, Access::Read, Way::Cached, Mappable::All), Way::Direct);
        pages.close(A, Access::Write, Way::Direct);
        assert_eq!(pages.open(A, Access::Read, Way::Cached, Mappable::All), Way::Cached);
        assert_eq!(
            pages.open(A, Access::Write, Way::Cached, Mappable::Cached),
            Way::Cached,
            "a kernel that cannot map what goes around"
        );
    }

    #[test]
    fn what_was_served_outlives_the_descriptor_until_the_kernel_drops_it() {
        let mut pages = Pages::default();
        pages.open(A, Access::Read, Way::Cached, Mappable::All);
        pages.serve(A, Way::Cached, 0, 10);
        assert_eq!(pages.close(A, Access::Read, Way::Cached), None);
        assert!(pages.may_have(A));
        assert_eq!(pages.take_served(A, Changer::ThisMount), Served::Ranges(vec![(0, 10)]));
        assert!(!pages.may_have(A) && pages.files.is_empty());
        (0..=RANGES_MAX as u64).for_each(|at| pages.serve(A, Way::Cached, at, 1));
        assert_eq!(pages.take_served(A, Changer::ThisMount), Served::Anything);
    }

    #[test]
    fn what_went_around_the_cache_is_dropped_for_others_alone() {
        let mut pages = Pages::default();
        pages.open(A, Access::Read, Way::Direct, Mappable::All);
        pages.serve(A, Way::Direct, 0, 10);
        assert!(!pages.may_have(A), "a change by this mount costs nothing more");
        assert_eq!(pages.take_served(A, Changer::ThisMount), Served::Nothing);
        pages.serve(A, Way::Cached, 20, 10);
        assert_eq!(pages.take_served(A, Changer::OtherMount), Served::Ranges(vec![(20, 10), (0, 10)]));
        pages.close(A, Access::Read, Way::Direct);
        assert!(pages.files.is_empty());
    }

    #[test]
    fn a_guard_keeps_new_descriptors_away_from_the_cache() {
        let mut pages = Pages::default();
        pages.guard(A);
        pages.guard(A);
        assert_eq!(pages.open(A, Access::Read, Way::Cached, Mappable::All), Way::Direct);
        pages.close(A, Access::Read, Way::Direct);
        assert!(!pages.unguard(A) && pages.is_guarded(A));
        assert!(pages.unguard(A) && pages.files.is_empty());
    }

    #[test]
    fn files_that_nobody_has_open_are_dropped_when_there_are_too_many() {
        let mut pages = Pages::default();
        for id in 0..=FILES_MAX as u64 {
            pages.serve(InodeId::new(id + 10), Way::Cached, 0, 1);
        }
        pages.open(A, Access::Read, Way::Cached, Mappable::All);
        pages.serve(A, Way::Cached, 0, 1);
        let dropped = pages.close(A, Access::Read, Way::Cached).unwrap();
        assert_ne!(pages.take_served(dropped, Changer::OtherMount), Served::Nothing);
        assert!(pages.files.len() <= FILES_MAX + 1);
    }
}
