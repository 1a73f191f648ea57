//! Encodes answers to the kernel.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use ebb_types::{FileKind, InodeId, NAME_LEN_MAX, WallTime};

use crate::invalidate::Range;
use crate::vfs::{Attr, DirEntry, Lock, LockKind, StatFs};

/// How long the kernel may cache an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validity {
    /// Validity of the link from the name to the inode.
    pub entry: Duration,
    /// Validity of the attributes.
    pub attr: Duration,
}

/// Bits of `st_mode` for a kind of file.
#[must_use]
pub fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
    }
}

/// Kind of file from bits of `st_mode`. No bits mean a regular file (mknod(2)).
#[must_use]
pub fn kind_of_bits(mode: u32) -> Option<FileKind> {
    Some(match mode & libc::S_IFMT {
        0 | libc::S_IFREG => FileKind::File,
        libc::S_IFDIR => FileKind::Directory,
        libc::S_IFLNK => FileKind::Symlink,
        libc::S_IFIFO => FileKind::Fifo,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFCHR => FileKind::CharDevice,
        libc::S_IFBLK => FileKind::BlockDevice,
        _ => return None,
    })
}

/// Smallest and largest transfer size that programs see, in bytes.
const TRANSFER_MIN: u64 = 4096;
const TRANSFER_MAX: u64 = 1 << 20;

fn split(time: WallTime) -> (i64, u32) {
    (time.0.div_euclid(1_000_000_000), time.0.rem_euclid(1_000_000_000) as u32)
}

/// `st_blksize`. Programs allocate buffers of this size, so the size of a large block is limited.
fn transfer_size(attr: &Attr) -> u32 {
    match attr.kind {
        FileKind::File => attr.storage.geometry.block_size.clamp(TRANSFER_MIN, TRANSFER_MAX) as u32,
        _ => TRANSFER_MIN as u32,
    }
}

fn put_attr(out: &mut BytesMut, attr: &Attr) {
    let (atime, mtime, ctime) = (split(attr.atime), split(attr.mtime), split(attr.ctime));
    out.put_u64_ne(attr.inode.raw());
    out.put_u64_ne(attr.size);
    out.put_u64_ne(attr.allocated_bytes.div_ceil(512));
    out.put_i64_ne(atime.0);
    out.put_i64_ne(mtime.0);
    out.put_i64_ne(ctime.0);
    out.put_u32_ne(atime.1);
    out.put_u32_ne(mtime.1);
    out.put_u32_ne(ctime.1);
    out.put_u32_ne(kind_bits(attr.kind) | attr.mode);
    out.put_u32_ne(attr.links);
    out.put_u32_ne(attr.uid);
    out.put_u32_ne(attr.gid);
    out.put_u32_ne(attr.rdev);
    out.put_u32_ne(transfer_size(attr));
    out.put_u32_ne(0);
}

fn put_entry(out: &mut BytesMut, attr: &Attr, validity: Validity) {
    out.put_u64_ne(attr.inode.raw());
    // Inode numbers are never reused, so one generation is enough.
    out.put_u64_ne(0);
    out.put_u64_ne(validity.entry.as_secs());
    out.put_u64_ne(validity.attr.as_secs());
    out.put_u32_ne(validity.entry.subsec_nanos());
    out.put_u32_ne(validity.attr.subsec_nanos());
    put_attr(out, attr);
}

/// `struct fuse_entry_out` of a name that was found or made.
#[must_use]
pub fn entry(attr: &Attr, validity: Validity) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    put_entry(&mut out, attr, validity);
    out.freeze()
}

/// `struct fuse_entry_out` of a name that does not exist. The kernel may cache it for `validity`.
#[must_use]
pub fn missing(validity: Duration) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    // Inode 0 stands for no inode.
    out.put_bytes(0, 16);
    out.put_u64_ne(validity.as_secs());
    out.put_u64_ne(0);
    out.put_u32_ne(validity.subsec_nanos());
    out.put_bytes(0, 4 + 88);
    out.freeze()
}

/// `struct fuse_attr_out`.
#[must_use]
pub fn attr(attr: &Attr, validity: Validity) -> Bytes {
    let mut out = BytesMut::with_capacity(104);
    out.put_u64_ne(validity.attr.as_secs());
    out.put_u32_ne(validity.attr.subsec_nanos());
    out.put_u32_ne(0);
    put_attr(&mut out, attr);
    out.freeze()
}

/// `struct fuse_statx_out`: all attributes, with the time of birth.
#[must_use]
pub fn statx(attr: &Attr, validity: Validity) -> Bytes {
    let mut out = BytesMut::with_capacity(288);
    out.put_u64_ne(validity.attr.as_secs());
    out.put_u32_ne(validity.attr.subsec_nanos());
    out.put_bytes(0, 4 + 16);
    out.put_u32_ne(libc::STATX_BASIC_STATS | libc::STATX_BTIME);
    out.put_u32_ne(transfer_size(attr));
    out.put_u64_ne(0);
    for word in [attr.links, attr.uid, attr.gid] {
        out.put_u32_ne(word);
    }
    out.put_u16_ne((kind_bits(attr.kind) | attr.mode) as u16);
    out.put_u16_ne(0);
    for long in [attr.inode.raw(), attr.size, attr.allocated_bytes.div_ceil(512), 0] {
        out.put_u64_ne(long);
    }
    for time in [attr.atime, attr.btime, attr.ctime, attr.mtime] {
        let (seconds, nanos) = split(time);
        out.put_i64_ne(seconds);
        out.put_u32_ne(nanos);
        out.put_u32_ne(0);
    }
    out.put_u32_ne(libc::major(u64::from(attr.rdev)));
    out.put_u32_ne(libc::minor(u64::from(attr.rdev)));
    out.put_bytes(0, 8 + 14 * 8);
    out.freeze()
}

/// `struct fuse_open_out`.
#[must_use]
pub fn open(file: u64, flags: u32) -> Bytes {
    let mut out = BytesMut::with_capacity(16);
    put_open(&mut out, file, flags);
    out.freeze()
}

fn put_open(out: &mut BytesMut, file: u64, flags: u32) {
    out.put_u64_ne(file);
    out.put_u32_ne(flags);
    out.put_u32_ne(0);
}

/// `struct fuse_entry_out` and `struct fuse_open_out`, for CREATE.
#[must_use]
pub fn created(attr: &Attr, validity: Validity, file: u64, flags: u32) -> Bytes {
    let mut out = BytesMut::with_capacity(144);
    put_entry(&mut out, attr, validity);
    put_open(&mut out, file, flags);
    out.freeze()
}

/// `struct fuse_write_out`, and the size of an extended attribute.
#[must_use]
pub fn size(size: u32) -> Bytes {
    let mut out = BytesMut::with_capacity(8);
    out.put_u32_ne(size);
    out.put_u32_ne(0);
    out.freeze()
}

/// `struct fuse_lseek_out`, and the count of a wide COPY_FILE_RANGE.
#[must_use]
pub fn long(long: u64) -> Bytes {
    Bytes::copy_from_slice(&long.to_ne_bytes())
}

/// `struct fuse_statfs_out`, in blocks of 4 KiB.
#[must_use]
pub fn stat_fs(stat: &StatFs) -> Bytes {
    const BLOCK: u64 = 4096;
    // The namespace has no table of inodes that could run full; a large round number keeps tools content.
    const INODES_FREE: u64 = 1 << 40;
    let mut out = BytesMut::with_capacity(80);
    let blocks = |bytes: u64| bytes / BLOCK;
    let (all, free) = (stat.of_one_copy(stat.capacity_bytes), stat.of_one_copy(stat.free_bytes));
    for long in [blocks(all), blocks(free), blocks(stat.available_bytes), stat.inodes + INODES_FREE, INODES_FREE] {
        out.put_u64_ne(long);
    }
    for word in [BLOCK as u32, NAME_LEN_MAX as u32, BLOCK as u32, 0] {
        out.put_u32_ne(word);
    }
    out.put_bytes(0, 24);
    out.freeze()
}

/// `struct fuse_lk_out`: the conflicting lock. No lock is encoded as an unlock.
#[must_use]
pub fn lock(found: Option<&Lock>) -> Bytes {
    let mut out = BytesMut::with_capacity(24);
    let kind = match found.map(|lock| lock.kind) {
        Some(LockKind::Shared) => libc::F_RDLCK,
        Some(LockKind::Exclusive) => libc::F_WRLCK,
        Some(LockKind::Unlock) | None => libc::F_UNLCK,
    };
    let (start, end, pid) = found.map_or((0, 0, 0), |lock| {
        // The kernel's largest offset stands for the end of the file.
        (lock.start, lock.last_byte().min(i64::MAX as u64), lock.pid.unwrap_or(0))
    });
    out.put_u64_ne(start);
    out.put_u64_ne(end);
    out.put_u32_ne(kind as u32);
    out.put_u32_ne(pid);
    out.freeze()
}

/// A listing of a directory, with at most the number of bytes that the kernel requested.
#[derive(Debug)]
pub struct Listing {
    out: BytesMut,
    size: usize,
    plus: Option<Validity>,
}

impl Listing {
    /// An empty listing of at most `size` bytes. With `plus`, entries carry attributes with this
    /// validity.
    #[must_use]
    pub fn new(size: u32, plus: Option<Validity>) -> Self {
        // The kernel requests a few pages. A hostile size must not allocate more.
        let size = (size as usize).min(1 << 20);
        Self { out: BytesMut::with_capacity(size), size, plus }
    }

    /// Number of entries that is enough to fill the rest of the listing, even with short names.
    #[must_use]
    pub fn room(&self) -> u32 {
        ((self.size - self.out.len()) / self.entry_size(8)) as u32 + 1
    }

    fn entry_size(&self, name_len: usize) -> usize {
        let attributes = if self.plus.is_some() { 128 } else { 0 };
        attributes + (24 + name_len).next_multiple_of(8)
    }

    /// Adds an entry. False: the entry does not fit, and the listing is full.
    pub fn add(&mut self, entry: &DirEntry) -> bool {
        if self.out.len() + self.entry_size(entry.name.len()) > self.size {
            return false;
        }
        match (self.plus, &entry.attr) {
            (Some(validity), Some(attr)) => put_entry(&mut self.out, attr, validity),
            // Inode 0 in the attributes means that this entry has none.
            (Some(_), None) => self.out.put_bytes(0, 128),
            (None, _) => {}
        }
        self.out.put_u64_ne(entry.inode.raw());
        self.out.put_u64_ne(entry.cookie);
        self.out.put_u32_ne(entry.name.len() as u32);
        self.out.put_u32_ne(kind_bits(entry.kind) >> 12);
        self.out.put_slice(&entry.name);
        self.out.put_bytes(0, self.out.len().next_multiple_of(8) - self.out.len());
        true
    }

    /// Whether the listing has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Returns the encoded listing.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.out.freeze()
    }
}

/// A notification that makes the kernel drop a range of data of an inode, and its attributes.
#[must_use]
pub fn invalidate_range(range: Range) -> [u8; 40] {
    let mut out = [0; 40];
    out[..4].copy_from_slice(&40_u32.to_ne_bytes());
    out[4..8].copy_from_slice(&super::NOTIFY_INVAL_INODE.to_ne_bytes());
    out[16..24].copy_from_slice(&range.inode.raw().to_ne_bytes());
    out[24..32].copy_from_slice(&range.offset.to_ne_bytes());
    // Length 0 means up to the end.
    out[32..40].copy_from_slice(&range.len.unwrap_or(0).to_ne_bytes());
    out
}

/// A notification that makes the kernel request the attributes of an inode again. Pages stay: the
/// kernel compares them with the new attributes before it uses them.
#[must_use]
pub fn invalidate_attributes(inode: InodeId) -> [u8; 40] {
    let mut out = invalidate_range(Range::whole(inode));
    // A negative offset means no pages.
    out[24..32].copy_from_slice(&(-1_i64).to_ne_bytes());
    out
}

/// A notification that stores one byte at the end of a file of `size` bytes, without the byte. The
/// kernel raises its size of the file before it fetches the byte.
///
/// # Panics
/// If the file is empty: it has no last byte.
#[must_use]
pub fn store_last_byte(inode: InodeId, size: u64) -> [u8; 40] {
    assert!(size > 0, "{inode} is empty and has no last byte");
    let mut out = [0; 40];
    // The length includes the byte.
    out[..4].copy_from_slice(&41_u32.to_ne_bytes());
    out[4..8].copy_from_slice(&super::NOTIFY_STORE.to_ne_bytes());
    out[16..24].copy_from_slice(&inode.raw().to_ne_bytes());
    out[24..32].copy_from_slice(&(size - 1).to_ne_bytes());
    out[32..36].copy_from_slice(&1_u32.to_ne_bytes());
    out
}

/// A notification that makes the kernel look up each name again before its next use.
#[must_use]
pub fn invalidate_names() -> [u8; 16] {
    let mut out = [0; 16];
    out[..4].copy_from_slice(&16_u32.to_ne_bytes());
    out[4..8].copy_from_slice(&super::NOTIFY_INC_EPOCH.to_ne_bytes());
    out
}

#[cfg(test)]
mod tests {
    use ebb_types::{Geometry, Storage};

    use super::*;

    fn some_attr() -> Attr {
        Attr {
            mode: 0o644,
            uid: 1,
            gid: 2,
            size: 1025,
            allocated_bytes: 1025,
            atime: WallTime(-1),
            mtime: WallTime(1_500_000_000),
            ..Attr::empty(InodeId::new(9), FileKind::File)
        }
    }

    #[test]
    fn structures_have_the_sizes_of_the_kernel() {
        let (some, validity) = (some_attr(), Validity::default());
        assert_eq!(entry(&some, validity).len(), 128);
        assert_eq!(missing(Duration::from_secs(1)).len(), 128);
        assert_eq!(attr(&some, validity).len(), 104);
        assert_eq!(statx(&some, validity).len(), 288);
        assert_eq!(created(&some, validity, 1, 0).len(), 144);
        assert_eq!(stat_fs(&StatFs::default()).len(), 80);
        assert_eq!(lock(None).len(), 24);
    }

    #[test]
    fn times_before_1970_keep_their_nanoseconds_positive() {
        assert_eq!(split(WallTime(-1)), (-1, 999_999_999));
        assert_eq!(split(WallTime(1_500_000_000)), (1, 500_000_000));
    }

    #[test]
    fn a_listing_never_passes_its_size() {
        for size in [0, 24, 32, 33, 200, 4096] {
            for plus in [None, Some(Validity::default())] {
                let mut listing = Listing::new(size, plus);
                let entry = |cookie: u64| DirEntry {
                    name: vec![b'n'; (cookie % 30) as usize + 1],
                    inode: InodeId::new(5),
                    kind: FileKind::File,
                    cookie,
                    attr: Some(some_attr()),
                    map: None,
                };
                let added = (1..1000).take_while(|cookie| listing.add(&entry(*cookie))).count();
                assert_eq!(listing.is_empty(), added == 0);
                let bytes = listing.finish();
                assert!(bytes.len() <= size as usize && bytes.len().is_multiple_of(8));
            }
        }
    }

    #[test]
    fn a_transfer_size_suits_buffers() {
        let of = |kind, block_size| {
            let geometry = Geometry { block_size, ..Geometry::default() };
            let storage = Storage { geometry, ..Storage::default() };
            transfer_size(&Attr { storage, ..Attr::empty(InodeId::ROOT, kind) })
        };
        assert_eq!([0, 1 << 16, 16 << 20].map(|size| of(FileKind::File, size)), [4096, 1 << 16, 1 << 20]);
        assert_eq!(of(FileKind::Directory, 1 << 16), 4096);
    }

    #[test]
    fn kinds_survive_the_bits_of_a_mode() {
        for raw in 1..=7 {
            let kind = FileKind::from_raw(raw).unwrap();
            assert_eq!(kind_of_bits(kind_bits(kind) | 0o777), Some(kind));
        }
        assert_eq!(kind_of_bits(0o644), Some(FileKind::File));
        assert_eq!(kind_of_bits(0o170_000), None);
    }
}
