//! The possible contents of the kernel's page cache, as plain state.
//!
//! The kernel has no call that lists its pages. But every page comes from a read that this process
//! served, and this process knows when it made the kernel drop pages. So the state has:
//! - the ranges that were served since then;
//! - the files that are being changed.

use std::collections::BTreeMap;

use ebb_types::{InodeId, WallTime};

use crate::abi::init::Mappable;
use crate::vfs::{Access, Attr};

/// Maximum number of tracked files. Beyond it the kernel is made to drop files that are not open.
const FILES_MAX: usize = 1 << 16;
/// Maximum number of ranges of a file. Beyond it the whole file counts as served.
const RANGES_MAX: usize = 16;

/// Path of reads and writes through a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Through the page cache.
    Cached,
    /// Around the page cache: each read and write is a request to this process.
    Direct,
}

/// Origin of a change to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changer {
    /// A program on this mount.
    ThisMount,
    /// Another mount.
    OtherMount,
}

/// Ranges that may have entered the page cache since the kernel last dropped its pages.
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

/// State of a file's data, as attributes show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Bytes.
    pub size: u64,
    /// Time of the last change of the data. A program may set it back.
    pub mtime: WallTime,
    /// Time of the last change of anything.
    pub ctime: WallTime,
}

impl Shown {
    /// The state that `attr` shows.
    pub fn of(attr: &Attr) -> Self {
        Self { size: attr.size, mtime: attr.mtime, ctime: attr.ctime }
    }
}

/// Difference between the kernel's state of a file and an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Behind {
    /// Pages that may be older than the answer.
    pub pages: Served,
    /// The kernel's size may be less than that of the answer.
    pub grows: bool,
}

/// What to do before an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Adapt {
    /// Nothing.
    Done,
    /// Wait until the kernel has done what it is being notified of.
    Wait,
    /// Make the kernel catch up. Then call [`Pages::adapted`], and [`Pages::notified`] in any case.
    Do(Behind),
}

#[derive(Debug, Default)]
struct File {
    /// Number of descriptors.
    open: usize,
    /// Number of descriptors that go through the cache.
    cached: usize,
    /// Number of descriptors that write.
    writers: usize,
    served: Served,
    /// Ranges that were served through descriptors that go around the cache. A mapping of such a
    /// descriptor puts pages into the cache, and its reads look like any others.
    around: Served,
    guards: usize,
    /// Number of notifications under way: drops of ranges that are no longer in `served` or `around`, and sizes.
    notices: usize,
    /// The kernel has no pages that are older than this, and no smaller size.
    shown: Option<Shown>,
}

impl File {
    fn is_forgettable(&self) -> bool {
        self.open == 0
            && self.guards == 0
            && self.notices == 0
            && self.served == Served::Nothing
            && self.around == Served::Nothing
    }
}

/// All tracked files.
#[derive(Debug, Default)]
pub struct Pages {
    files: BTreeMap<InodeId, File>,
}

impl Pages {
    /// Chooses the way of a new descriptor, and counts the descriptor.
    ///
    /// If the kernel can map only cached files, the answer is `asked`. Otherwise these descriptors
    /// go around the cache:
    /// - A descriptor that writes. The kernel changes cached pages before it sends the write. Other
    ///   programs on this host would see bytes that no other host sees, and the write may fail.
    /// - A descriptor of a file that is open for writing here, or is being changed.
    pub fn open(&mut self, inode: InodeId, access: Access, asked: Way, maps: Mappable) -> Way {
        let file = self.entry(inode);
        file.open += 1;
        file.writers += usize::from(access.writes());
        let way = if maps == Mappable::All && (file.writers > 0 || file.guards > 0) { Way::Direct } else { asked };
        file.cached += usize::from(way == Way::Cached);
        self.tidy(inode);
        way
    }

    /// Uncounts a closed descriptor. If too many files are tracked, returns one that is not in use,
    /// whose pages the kernel should drop.
    pub fn close(&mut self, inode: InodeId, access: Access, way: Way) -> Option<InodeId> {
        let file = self.entry(inode);
        file.open = file.open.saturating_sub(1);
        file.writers = file.writers.saturating_sub(usize::from(access.writes()));
        file.cached = file.cached.saturating_sub(usize::from(way == Way::Cached));
        self.tidy(inode);
        if self.files.len() <= FILES_MAX {
            return None;
        }
        let unused = |file: &File| file.open == 0 && file.guards == 0 && file.notices == 0;
        self.files.iter().find(|(_, file)| unused(file)).map(|(inode, _)| *inode)
    }

    /// Records the range of a read that is about to be answered.
    pub fn serve(&mut self, inode: InodeId, way: Way, offset: u64, len: u64) {
        let file = self.entry(inode);
        match way {
            Way::Cached => file.served.add(offset, len),
            Way::Direct => file.around.add(offset, len),
        }
    }

    /// Whether the kernel may have pages of a file, or get them. Then a change needs a guard.
    pub fn may_have(&self, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(|file| file.cached > 0 || file.served != Served::Nothing)
    }

    /// Takes the served ranges, which the kernel is about to drop. Unless there are none,
    /// [`Pages::notified`] has to be called afterwards. `whole`: the kernel drops the whole file.
    ///
    /// For a change by another mount they include the ranges that went around the cache. A change
    /// by this mount leaves those out: the kernel checks mappings before it writes around them.
    pub fn begin_drop(&mut self, inode: InodeId, changer: Changer, whole: bool) -> Served {
        let file = self.entry(inode);
        let mut served = std::mem::take(&mut file.served);
        if changer == Changer::OtherMount {
            served = served.and(std::mem::take(&mut file.around));
        }
        if whole {
            served = Served::Anything;
        }
        file.notices += usize::from(served != Served::Nothing);
        self.tidy(inode);
        served
    }

    /// Ends what [`Pages::begin_drop`] or [`Pages::adapt`] began. `left`: the ranges that the kernel may not have dropped.
    pub fn notified(&mut self, inode: InodeId, left: Served) {
        let file = self.entry(inode);
        assert!(file.notices > 0, "each notification about {inode} ends once");
        file.notices -= 1;
        file.served = std::mem::take(&mut file.served).and(left);
        self.tidy(inode);
    }

    /// How far the kernel is behind an answer that shows `now`. A program that has the file open may
    /// read right after the answer.
    ///
    /// The kernel itself compares its pages and its size with an answer. But it ignores answers that
    /// were overtaken. See [`Invalidator::grow`](crate::invalidate::Invalidator::grow).
    pub fn adapt(&mut self, inode: InodeId, now: Shown) -> Adapt {
        let Some(file) = self.files.get_mut(&inode) else { return Adapt::Done };
        // What is being dropped is on record no more, and the kernel may have it until that is done.
        if file.notices > 0 {
            return Adapt::Wait;
        }
        let differs = file.shown != Some(now);
        let grows = file.open > 0 && file.shown.map_or(0, |shown| shown.size) < now.size;
        let mut pages = if differs { std::mem::take(&mut file.served) } else { Served::Nothing };
        // A mapping that goes around the cache puts pages into it, which cached descriptors read. If the kernel is
        // notified of anything, it does not compare these pages with this answer.
        if differs && (file.cached > 0 || grows || pages != Served::Nothing) {
            pages = pages.and(std::mem::take(&mut file.around));
        }
        if pages == Served::Nothing && !grows {
            file.shown = Some(now);
            return Adapt::Done;
        }
        file.notices += 1;
        Adapt::Do(Behind { pages, grows })
    }

    /// The kernel has no pages that are older than `shown`, and no smaller size.
    pub fn adapted(&mut self, inode: InodeId, shown: Shown) {
        self.entry(inode).shown = Some(shown);
    }

    /// The kernel takes a size without a comparison: from the answer to a change of attributes, for
    /// instance.
    pub fn overwrite_size(&mut self, inode: InodeId) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.shown = None;
        }
    }

    /// A program on this mount wrote up to `end`, so the kernel's size is at least that.
    pub fn on_written(&mut self, inode: InodeId, end: u64) {
        if let Some(shown) = self.files.get_mut(&inode).and_then(|file| file.shown.as_mut()) {
            shown.size = shown.size.max(end);
        }
    }

    /// Adds a guard. While a file has one, a program that begins to read waits.
    pub fn guard(&mut self, inode: InodeId) {
        self.entry(inode).guards += 1;
    }

    /// Removes a guard. True: it was the last one.
    pub fn unguard(&mut self, inode: InodeId) -> bool {
        let file = self.entry(inode);
        file.guards -= 1;
        let last = file.guards == 0;
        self.tidy(inode);
        last
    }

    /// Whether the file has a guard, so that a program that begins to read waits.
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
mod tests;
