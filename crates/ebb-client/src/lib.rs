//! What programs use of Ebb: names, files, leases, caches and retries, below the mount, the command line and workers.
//!
//! [`Client`] is a session with the master. Namespace calls go by inode, as the kernel's do. Files are opened to a
//! [`Handle`]; all handles of one inode share its lease and caches. Everything has a deadline and bounded memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_rpc::{Connector, Counters};
use ebb_runtime::Runtime;
use ebb_types::{Credentials, HostName, InodeId, Result, SessionId, WallTime};
use ebb_wire::pb;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Masters' addresses.
    pub masters: Vec<String>,
    /// Declared host; decides which replica is nearest and where first copies go.
    pub host: HostName,
    /// "mount", "cli", "worker".
    pub role: String,
    /// Bytes of read-ahead and cached blocks.
    pub read_cache_bytes: usize,
    /// Bytes written and not yet synced by all members; more makes writers wait.
    pub dirty_bytes_max: usize,
    /// How long a write may stay only in memory.
    pub commit_interval: Duration,
    /// How long an operation is retried before it fails.
    pub operation_deadline: Duration,
}

/// Told when another client's doing makes kernel caches stale. Called from a task that holds no lock of the client;
/// the recall goes on only when the call has returned.
pub trait CacheListener: Send + Sync + 'static {
    /// Data and attributes of this inode are no longer what was served.
    fn invalidate_inode(&self, inode: InodeId);
}

/// Attributes to set; `None` leaves a field alone.
#[derive(Clone, Debug, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// The caller has the file open for writing (ftruncate): its mode is not checked again.
    pub by_handle: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The master's now.
    Now,
    /// This.
    At(WallTime),
}

/// What an open file may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Write (and read-modify-write by the cache).
    Write,
    /// Both.
    ReadWrite,
}

/// What fallocate is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Reserve space; grow the file if the range passes its end.
    Reserve,
    /// Reserve space, keep the size.
    ReserveKeepSize,
    /// Free the range; it reads as zero.
    PunchHole,
    /// The range reads as zero and stays reserved; grow the file if it passes its end.
    Zero,
    /// The same, keep the size.
    ZeroKeepSize,
}

/// An open file. Closing is explicit ([`Client::close`]); all work on it goes through the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(pub u64);

/// Where one metablock of a file lies.
#[derive(Clone, Debug)]
pub struct Location {
    /// The master's record.
    pub metablock: pb::Metablock,
    /// Hosts of its members, in order.
    pub hosts: Vec<HostName>,
}

/// A session with a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Client {}

#[allow(unused_variables, clippy::unused_async)]
impl Client {
    /// Opens a session and starts its background tasks.
    pub async fn connect(runtime: Runtime, connector: Connector, options: ClientOptions) -> Result<Self> { unreachable!() }
    /// Flushes, commits, gives everything back, ends the session.
    pub async fn disconnect(&self) -> Result<()> { unreachable!() }
    /// Who this is to the master.
    pub fn session(&self) -> SessionId { unreachable!() }
    /// Who wants to hear of invalidations; at most one.
    pub fn set_listener(&self, listener: Arc<dyn CacheListener>) { unreachable!() }
    /// What its connections carried.
    pub fn counters(&self) -> Counters { unreachable!() }
    /// The nodes as last heard.
    pub fn nodes(&self) -> Vec<pb::Node> { unreachable!() }
    /// Connections, for calls beyond the client's own.
    pub fn connector(&self) -> &Connector { unreachable!() }
    /// A namespace request as it stands (administration, tests): session and request id are filled in, retries done.
    pub async fn meta(&self, credentials: &Credentials, op: pb::meta_op::Op) -> Result<pb::MetaReply> { unreachable!() }

    // Names.
    /// Attributes of a name.
    pub async fn lookup(&self, credentials: &Credentials, parent: InodeId, name: &[u8]) -> Result<pb::Attr> { unreachable!() }
    /// Attributes of a path, and the inode of its directory.
    pub async fn resolve(&self, credentials: &Credentials, path: &[u8], follow_last: bool) -> Result<pb::Attr> { unreachable!() }
    /// Attributes, with this client's unsynced size and times.
    pub async fn get_attr(&self, credentials: &Credentials, inode: InodeId) -> Result<pb::Attr> { unreachable!() }
    /// Sets attributes; a new size takes the write lease.
    pub async fn set_attr(&self, credentials: &Credentials, inode: InodeId, set: SetAttr) -> Result<pb::Attr> { unreachable!() }
    /// Entries after `cookie`, at most `limit`, with attributes if `plus`; true: the end was reached.
    pub async fn read_dir(&self, credentials: &Credentials, inode: InodeId, cookie: u64, limit: u32, plus: bool) -> Result<(Vec<pb::DirEntry>, bool)> { unreachable!() }
    /// Target of a symbolic link.
    pub async fn read_link(&self, credentials: &Credentials, inode: InodeId) -> Result<Vec<u8>> { unreachable!() }
    /// Makes a directory.
    pub async fn make_dir(&self, credentials: &Credentials, parent: InodeId, name: &[u8], mode: u32, umask: u32) -> Result<pb::Attr> { unreachable!() }
    /// Makes a file, FIFO, socket or device.
    pub async fn make_node(&self, credentials: &Credentials, parent: InodeId, name: &[u8], mode_with_kind: u32, umask: u32, rdev: u32) -> Result<pb::Attr> { unreachable!() }
    /// Makes a symbolic link.
    pub async fn symlink(&self, credentials: &Credentials, parent: InodeId, name: &[u8], target: &[u8]) -> Result<pb::Attr> { unreachable!() }
    /// Makes a hard link.
    pub async fn link(&self, credentials: &Credentials, inode: InodeId, parent: InodeId, name: &[u8]) -> Result<pb::Attr> { unreachable!() }
    /// Removes a name that is not a directory's.
    pub async fn unlink(&self, credentials: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> { unreachable!() }
    /// Removes an empty directory.
    pub async fn remove_dir(&self, credentials: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> { unreachable!() }
    /// renameat2 with NOREPLACE and EXCHANGE.
    pub async fn rename(&self, credentials: &Credentials, rename: pb::meta_op::Rename) -> Result<()> { unreachable!() }
    /// Value of an extended attribute (`user.ebb.locations` is computed: the replicas' hosts).
    pub async fn get_xattr(&self, credentials: &Credentials, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> { unreachable!() }
    /// Names of extended attributes.
    pub async fn list_xattr(&self, credentials: &Credentials, inode: InodeId) -> Result<Vec<Vec<u8>>> { unreachable!() }
    /// Sets an extended attribute.
    pub async fn set_xattr(&self, credentials: &Credentials, inode: InodeId, name: &[u8], value: Bytes, create: bool, replace: bool) -> Result<()> { unreachable!() }
    /// Removes an extended attribute.
    pub async fn remove_xattr(&self, credentials: &Credentials, inode: InodeId, name: &[u8]) -> Result<()> { unreachable!() }
    /// Space and counts, from the volumes.
    pub async fn stat_fs(&self, inode: InodeId) -> Result<pb::StatFsReply> { unreachable!() }

    // Files.
    /// Opens a file that exists.
    pub async fn open(&self, credentials: &Credentials, inode: InodeId, access: Access) -> Result<(Handle, pb::Attr)> { unreachable!() }
    /// Opens or makes a file; true: it was made. `hosts`: write affinity (G7), empty for the default.
    pub async fn create(&self, credentials: &Credentials, parent: InodeId, name: &[u8], mode: u32, umask: u32, exclusive: bool, access: Access, hosts: Vec<HostName>) -> Result<(Handle, pb::Attr, bool)> { unreachable!() }
    /// Closes at once; data goes on in the background. Reports a sticky error of earlier background work.
    pub async fn flush(&self, handle: Handle) -> Result<()> { unreachable!() }
    /// Forgets the handle.
    pub async fn close(&self, handle: Handle) { unreachable!() }
    /// Bytes from `offset`, fewer only at the end of the file.
    pub async fn read(&self, handle: Handle, offset: u64, len: u32) -> Result<Bytes> { unreachable!() }
    /// Writes all of `data`.
    pub async fn write(&self, handle: Handle, offset: u64, data: Bytes) -> Result<()> { unreachable!() }
    /// Writes at the end of the file as it is when the write lease is held; returns where.
    pub async fn append(&self, handle: Handle, data: Bytes) -> Result<u64> { unreachable!() }
    /// Returns when everything written is on stable storage of every member of every set.
    pub async fn fsync(&self, handle: Handle) -> Result<()> { unreachable!() }
    /// fallocate(2).
    pub async fn allocate(&self, handle: Handle, what: Allocate, offset: u64, len: u64) -> Result<()> { unreachable!() }
    /// Next data (`hole` false) or hole at or after `offset`; kind `NoSuchOffset` beyond the end.
    pub async fn seek(&self, handle: Handle, offset: u64, hole: bool) -> Result<u64> { unreachable!() }
    /// Copies a range between two open files; returns how many bytes.
    pub async fn copy_range(&self, source: Handle, source_offset: u64, target: Handle, target_offset: u64, len: u64) -> Result<u64> { unreachable!() }
    /// Takes or releases a lock; waits if `wait`. Dropping the future gives the wait up.
    pub async fn set_lock(&self, inode: InodeId, lock: pb::FileLock, wait: bool) -> Result<()> { unreachable!() }
    /// The lock in the way, if any.
    pub async fn test_lock(&self, inode: InodeId, lock: pb::FileLock) -> Result<Option<pb::FileLock>> { unreachable!() }
    /// Where a file's metablocks lie.
    pub async fn locations(&self, inode: InodeId) -> Result<Vec<Location>> { unreachable!() }

    // Beside the lease path.
    /// Reads a range by a map that the caller brings (a split): no call to the master as long as the map holds.
    /// `file_size` bounds it. Kind `StaleVersion` or `NoReplica` from every member: the map is out of date.
    pub async fn read_by_map(&self, metablocks: &[pb::Metablock], metablock_size: u64, file_size: u64, offset: u64, len: u64) -> Result<Bytes> { unreachable!() }
}
