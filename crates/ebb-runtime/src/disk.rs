//! Files and directories.
//!
//! Durability is POSIX's at its weakest: written bytes may be lost, in any order and torn, until [`File::sync_data`]
//! has returned; a new, renamed or removed name may be lost until [`Disk::sync_dir`] of its directory has returned (for
//! a rename: of the target's). After a failed sync it is not known which bytes are on stable storage, and the next one
//! may succeed all the same. The virtual disk loses exactly that at a crash.
//!
//! Cancel-safety: an operation on a disk is carried out even if its future is dropped.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use ebb_types::Result;

use crate::backend::Work;

/// The alignment of offsets, lengths and places in memory that a disk needs to take bytes from where they are. It is
/// more than any disk needs (`STATX_DIOALIGN` of statx(2)).
pub const ALIGNMENT: usize = 4096;

/// Pieces of at least this size go to the disk from where they are, around the page cache, if they lie right: three block
/// servers that copied a GiB each into it spent two thirds of their time with that.
pub(crate) const DIRECT_MIN: usize = 256 << 10;

/// An empty buffer with room for `len` bytes; a large one begins at a multiple of [`ALIGNMENT`]. Bytes that are on their
/// way to a disk belong in one: large writes of such go there without a copy.
#[must_use]
pub fn transfer_buffer(len: usize) -> BytesMut {
    if len < DIRECT_MIN {
        return BytesMut::with_capacity(len);
    }
    let mut buffer = BytesMut::with_capacity(len + ALIGNMENT - 1);
    let pad = buffer.as_ptr().align_offset(ALIGNMENT);
    buffer.resize(pad, 0);
    buffer.advance(pad);
    buffer
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// It must exist, and is only read: it may belong to others. Changes of it fail.
    ReadOnly,
    /// It must exist. As in the next two, it is read and written.
    Existing,
    /// It is made if it does not exist.
    Create,
    /// It must not exist.
    CreateNew,
}

/// Space of the file system behind a path, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// In all.
    pub capacity_bytes: u64,
    /// That this process may still use.
    pub free_bytes: u64,
    /// Of the file system: two paths of one number share its space, also if they belong to different volumes or
    /// processes. 0: not known.
    pub device: u64,
}

/// A method of compression that a file system has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Deflate.
    Zlib,
    /// Quick, and half of the gain.
    Lzo,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// Its usual name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
        }
    }

    /// The method of this name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Zlib, Self::Lzo, Self::Zstd].into_iter().find(|method| method.name() == name)
    }
}

/// A file of a back end.
// An empty file is nothing special here.
#[allow(clippy::len_without_is_empty)]
pub trait FileBackend: Send + Sync + 'static {
    /// See [`File::read_at`].
    fn read_at(&self, offset: u64, len: usize) -> Work<'_, Result<Bytes>>;
    /// See [`File::will_read`].
    fn will_read(&self, offset: u64, len: u64) -> Work<'_, ()>;
    /// See [`File::write_at`].
    fn write_at(&self, offset: u64, data: Vec<Bytes>) -> Work<'_, Result<()>>;
    /// See [`File::sync_data`].
    fn sync_data(&self) -> Work<'_, Result<()>>;
    /// See [`File::set_len`].
    fn set_len(&self, len: u64) -> Work<'_, Result<()>>;
    /// See [`File::len`].
    fn len(&self) -> Work<'_, Result<u64>>;
    /// See [`File::punch_hole`].
    fn punch_hole(&self, offset: u64, len: u64) -> Work<'_, Result<()>>;
    /// See [`File::allocate`].
    fn allocate(&self, offset: u64, len: u64) -> Work<'_, Result<()>>;
    /// See [`File::allocated_bytes`].
    fn allocated_bytes(&self) -> Work<'_, Result<u64>>;
    /// See [`File::compress`].
    fn compress(&self, method: Compression) -> Work<'_, Result<()>>;
    /// The descriptor, in the real world: for `sendfile` and for passing to another process.
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>>;
}

/// An open file: a capability, valid for as long as it is held. Cheap to clone.
#[derive(Clone)]
pub struct File {
    backend: Arc<dyn FileBackend>,
    path: Arc<Path>,
}

#[allow(clippy::len_without_is_empty)]
impl File {
    /// Wraps a back end's file.
    pub fn new(backend: impl FileBackend, path: &Path) -> Self {
        Self { backend: Arc::new(backend), path: path.into() }
    }

    /// Where it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Up to `len` bytes from `offset`; fewer only at the end of the file.
    pub async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.backend.read_at(offset, len).await
    }

    /// Gives the disk a hint: this range is read next in pieces, so that it reads the range without going elsewhere in between.
    /// What is wrong with the range shows when it is read. Returns when the disk has it.
    pub async fn will_read(&self, offset: u64, len: u64) {
        self.backend.will_read(offset, len).await;
    }

    /// Writes all of `data` from `offset`, one buffer after the other. Not durable before [`File::sync_data`].
    pub async fn write_at(&self, offset: u64, data: Vec<Bytes>) -> Result<()> {
        self.backend.write_at(offset, data).await
    }

    /// Returns when everything written before the call is on stable storage (fdatasync).
    pub async fn sync_data(&self) -> Result<()> {
        self.backend.sync_data().await
    }

    /// Cuts or grows the file; the new part reads as zero.
    pub async fn set_len(&self, len: u64) -> Result<()> {
        self.backend.set_len(len).await
    }

    /// Length in bytes.
    pub async fn len(&self) -> Result<u64> {
        self.backend.len().await
    }

    /// Frees the space of a range, which then reads as zero; the length stays.
    pub async fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.backend.punch_hole(offset, len).await
    }

    /// Reserves space for a range without changing contents or length (fallocate KEEP_SIZE).
    pub async fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.backend.allocate(offset, len).await
    }

    /// Space that the file takes on disk.
    pub async fn allocated_bytes(&self) -> Result<u64> {
        self.backend.allocated_bytes().await
    }

    /// Has the file system keep what is in the file in compressed form, and returns when that is on stable storage. Contents
    /// and length stay, also after a crash at any moment. What is written later is kept as it comes. A file that was compressed
    /// by this method before costs nothing. Fails if its [`FileSystem::compression`] never named a method.
    pub async fn compress(&self, method: Compression) -> Result<()> {
        self.backend.compress(method).await
    }

    /// The descriptor, in the real world.
    #[must_use]
    pub fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.backend.descriptor()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({})", self.path.display())
    }
}

/// A set of disks of a back end.
pub trait DiskBackend: Send + Sync + 'static {
    /// See [`Disk::open`].
    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode) -> Work<'a, Result<File>>;
    /// See [`Disk::create_dir_all`].
    fn create_dir_all<'a>(&'a self, path: &'a Path) -> Work<'a, Result<()>>;
    /// See [`Disk::read_dir`].
    fn read_dir<'a>(&'a self, path: &'a Path) -> Work<'a, Result<Vec<String>>>;
    /// See [`Disk::rename`].
    fn rename<'a>(&'a self, source: &'a Path, target: &'a Path) -> Work<'a, Result<()>>;
    /// See [`Disk::remove_file`].
    fn remove_file<'a>(&'a self, path: &'a Path) -> Work<'a, Result<()>>;
    /// See [`Disk::exists`].
    fn exists<'a>(&'a self, path: &'a Path) -> Work<'a, Result<bool>>;
    /// See [`Disk::sync_dir`].
    fn sync_dir<'a>(&'a self, path: &'a Path) -> Work<'a, Result<()>>;
    /// See [`Disk::space`].
    fn space<'a>(&'a self, path: &'a Path) -> Work<'a, Result<Space>>;
    /// See [`Disk::lock_dir`].
    fn lock_dir<'a>(&'a self, path: &'a Path) -> Work<'a, Result<DirLock>>;
    /// See [`Disk::file_system`].
    fn file_system<'a>(&'a self, path: &'a Path) -> Work<'a, Result<FileSystem>>;
}

/// A file system of a back end.
pub trait FileSystemBackend: Send + Sync + 'static {
    /// See [`FileSystem::sync_all`].
    fn sync_all(&self) -> Work<'_, Result<()>>;
    /// See [`FileSystem::compression`].
    fn compression(&self) -> Work<'_, Result<Option<Compression>>>;
}

/// The file system that a directory is on. Cheap to clone.
#[derive(Clone)]
pub struct FileSystem(Arc<dyn FileSystemBackend>);

impl FileSystem {
    /// Wraps a back end's file system.
    pub fn new(backend: impl FileSystemBackend) -> Self {
        Self(Arc::new(backend))
    }

    /// Returns when all that was written to any file of it, and every change of names, before the call is on stable
    /// storage (syncfs(2)), by any process. Fails, once, if something that was written since this value was made could
    /// not be stored, also by others. For very many files it costs a fraction of syncing each.
    pub async fn sync_all(&self) -> Result<()> {
        self.0.sync_all().await
    }

    /// The method by which new files of the directory are to be compressed, as its administrator has set it. None also if the
    /// file system cannot compress.
    pub async fn compression(&self) -> Result<Option<Compression>> {
        self.0.compression().await
    }
}

impl fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileSystem")
    }
}

/// The disks of a process. Cheap to clone.
#[derive(Clone)]
pub struct Disk(Arc<dyn DiskBackend>);

impl Disk {
    /// Wraps a back end's disks.
    pub fn new(backend: impl DiskBackend) -> Self {
        Self(Arc::new(backend))
    }

    /// Opens a file for reading and writing. A new name is durable only after [`Disk::sync_dir`]. A new file is for its owner
    /// alone.
    pub async fn open(&self, path: &Path, mode: OpenMode) -> Result<File> {
        self.0.open(path, mode).await
    }

    /// Makes a directory and those above it, for the owner alone; one that is there and lets others in is narrowed. Unlike
    /// other names they are durable on return.
    pub async fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.0.create_dir_all(path).await
    }

    /// The names in a directory, sorted.
    pub async fn read_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.0.read_dir(path).await
    }

    /// Renames a file over the file that has the target's name, if there is one.
    pub async fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        self.0.rename(source, target).await
    }

    /// Removes a file's name. A process that holds it open can still read it.
    pub async fn remove_file(&self, path: &Path) -> Result<()> {
        self.0.remove_file(path).await
    }

    /// Whether there is a file or directory of this name.
    pub async fn exists(&self, path: &Path) -> Result<bool> {
        self.0.exists(path).await
    }

    /// Makes names added to, changed in or removed from this directory durable.
    pub async fn sync_dir(&self, path: &Path) -> Result<()> {
        self.0.sync_dir(path).await
    }

    /// Space of the file system that the path is on.
    pub async fn space(&self, path: &Path) -> Result<Space> {
        self.0.space(path).await
    }

    /// Takes a directory for this process; fails with `Busy` if another process has it. Held until dropped.
    pub async fn lock_dir(&self, path: &Path) -> Result<DirLock> {
        self.0.lock_dir(path).await
    }

    /// The file system that a directory is on.
    pub async fn file_system(&self, path: &Path) -> Result<FileSystem> {
        self.0.file_system(path).await
    }

    /// Reads a whole small file.
    pub async fn read(&self, path: &Path) -> Result<Bytes> {
        let file = self.open(path, OpenMode::Existing).await?;
        let len = file.len().await?;
        file.read_at(0, usize::try_from(len).expect("a file that fits in memory")).await
    }

    /// Reads a whole small file that [`Disk::replace`] has written, perhaps in an earlier process. The bytes that it
    /// returns also survive a crash: the sync behind the rename may have failed, and then only the cache has the new
    /// name.
    pub async fn read_replaced(&self, path: &Path) -> Result<Bytes> {
        let data = self.read(path).await?;
        self.sync_dir(parent(path)).await?;
        Ok(data)
    }

    /// Replaces a small file as one step: after a crash it has the old or the new contents, and after return the new.
    pub async fn replace(&self, path: &Path, data: Bytes) -> Result<()> {
        let temporary: PathBuf = path.with_extension("new");
        let file = self.open(&temporary, OpenMode::Create).await?;
        file.set_len(0).await?;
        file.write_at(0, vec![data]).await?;
        // Ordering: contents before the name, the name before return.
        file.sync_data().await?;
        self.rename(&temporary, path).await?;
        self.sync_dir(parent(path)).await
    }
}

/// The directory that a name is in. An empty parent is how a relative path spells the working directory.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

/// A directory that this process has taken; released when dropped.
pub struct DirLock(#[allow(dead_code)] Box<dyn Send + Sync>);

impl DirLock {
    /// Wraps the value that keeps the lock.
    pub fn new(guard: impl Send + Sync + 'static) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for DirLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirLock")
    }
}
