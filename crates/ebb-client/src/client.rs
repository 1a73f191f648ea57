//! The interface.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ebb_rpc::{Connector, Counters};
use ebb_runtime::Runtime;
use ebb_types::{BLOCK_SIZE_DEFAULT, Credentials, HostName, InodeId, Result, SessionId, bail, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{self, Op};

use crate::metrics::Metrics;
use crate::names::LOCATIONS_XATTR;
use crate::names::known::Name;
use crate::nodes::gray;
use crate::power::inspect::POWER_XATTR;
use crate::power::rest;
use crate::read::{READ_MAX, fetch};
use crate::session::masters::Masters;
use crate::session::{ATTEMPT, Session, poll, suspend, witness};
use crate::shared::Shared;
use crate::types::{Access, Allocate, CacheListener, Handle, Location, Privileges, SetAttr};
use crate::write::{Place, committer};
use crate::{ClientOptions, HostPower};

/// Blocks that [`Client::read_by_map`] asks for at a time, and that [`Client::copy_range`] has under way ahead of what it writes.
const READS_AHEAD: usize = 4;

/// A session with a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

impl Client {
    /// Opens a session and starts its background tasks.
    pub async fn connect(runtime: Runtime, connector: Connector, options: ClientOptions) -> Result<Self> {
        let masters = Masters::new(runtime.clone(), connector.clone(), options.masters.clone())?;
        let session = Session::new(runtime.clone(), masters, options.operation_deadline);
        let shared = Arc::new(Shared::new(runtime.clone(), connector, options, session));
        shared.open_session().await?;
        // The node map comes with a version only from a poll; it also tells which master process this is.
        shared.poll_once(0, poll::PollNews::default()).await?;
        runtime.spawn("client poll", poll::run(shared.clone()));
        runtime.spawn("client commits", committer::run(shared.clone()));
        runtime.spawn("client rests", rest::run(shared.clone()));
        runtime.spawn("client times members", gray::run(shared.clone()));
        if shared.options.short_circuit {
            runtime.spawn("client witnesses", witness::run(shared.clone()));
        }
        Ok(Self { shared })
    }

    /// Flushes, commits, gives everything back, ends the session. What could not be flushed is told.
    pub async fn disconnect(&self) -> Result<()> {
        let shared = &self.shared;
        let mut verdict = Ok(());
        for handle in shared.handles.all() {
            shared.close(handle);
        }
        shared.release_all().await;
        for inode in shared.inodes() {
            let _gate = inode.gate.write().await;
            let finished = shared.finish(&inode).await.and(shared.sync_everywhere(&inode).await);
            if let Err(error) = &finished {
                tracing::warn!(inode = %inode.id, %error, "disconnecting with unsynced writes");
                // Its session ends, and the members are made equal by a recovery.
                shared.lose_lease(&inode, error);
            }
            verdict = verdict.and(finished);
        }
        shared.give_back_idle().await;
        shared.closing.store(true, Ordering::Relaxed);
        shared.queue.wake();
        let close = pb::CloseSession { session: shared.session.name().id.raw() };
        let closed = shared.session.masters.call(&close, ATTEMPT, shared.session.deadline()).await.result;
        shared.session.on_expired();
        verdict.and(closed.map(drop))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Who this is to the master.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.shared.session.name().id
    }

    /// Whether the session certainly lives: what it holds, leases and locks, may be believed now.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.shared.session.is_trusted()
    }

    /// Who wants to hear of invalidations; at most one.
    pub fn set_listener(&self, listener: Arc<dyn CacheListener>) {
        suspend::listen(&self.shared, listener);
    }

    /// What its connections carried.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.connector.counters().clone()
    }

    /// What went wrong and was dealt with.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics.read().with_ahead(self.shared.cache.ahead())
    }

    /// The nodes as last heard.
    #[must_use]
    pub fn nodes(&self) -> Vec<pb::Node> {
        self.shared.nodes.all()
    }

    /// Connections, for calls beyond the client's own.
    #[must_use]
    pub fn connector(&self) -> &Connector {
        &self.shared.connector
    }

    /// What the power plans make of a host.
    #[must_use]
    pub fn host_power(&self, host: &HostName) -> HostPower {
        self.shared.host_power(host)
    }

    /// A namespace request as it stands (administration, tests): session and request id are filled in, retries done.
    pub async fn meta(&self, credentials: &Credentials, op: Op) -> Result<pb::MetaReply> {
        if op.is_query() {
            self.shared.session.meta(credentials, op).await
        } else {
            self.shared.change(credentials, op).await
        }
    }

    async fn make(&self, credentials: &Credentials, op: Op) -> Result<pb::Attr> {
        self.shared.change_attr(credentials, op).await
    }

    // Names.

    /// Attributes of a name.
    pub async fn lookup(&self, credentials: &Credentials, parent: InodeId, name: &[u8]) -> Result<pb::Attr> {
        self.shared.lookup(credentials, parent, name).await
    }

    /// Attributes of a path. Symbolic links on the way are followed, the last one if `follow_last`.
    pub async fn resolve(&self, credentials: &Credentials, path: &[u8], follow_last: bool) -> Result<pb::Attr> {
        let op = meta_op::Resolve { path: path.to_vec(), follow_last };
        self.shared.ask_attr(credentials, Op::Resolve(op)).await
    }

    /// Attributes, with this client's unsynced size and times.
    pub async fn get_attr(&self, credentials: &Credentials, inode: InodeId) -> Result<pb::Attr> {
        self.shared.get_attr(credentials, inode).await
    }

    /// Attributes that need not be asked for, and for how long at most: until a [`CacheListener`] hears otherwise, or
    /// this time is over.
    #[must_use]
    pub fn kept_attr(&self, inode: InodeId) -> Option<(pb::Attr, Duration)> {
        let left = self.shared.session.kernel_trust();
        self.shared.kept_attr(inode).filter(|_| !left.is_zero()).map(|attr| (attr, left))
    }

    /// The same for a name: where it leads, or that it is not there.
    #[must_use]
    pub fn kept_name(&self, parent: InodeId, name: &[u8]) -> Option<(Option<InodeId>, Duration)> {
        let left = self.shared.session.kernel_trust();
        match self.shared.kept_name(parent, name) {
            _ if left.is_zero() => None,
            Name::Unknown => None,
            Name::Missing => Some((None, left)),
            Name::Leads(inode) => Some((Some(inode), left)),
        }
    }

    /// Where an inode is, for people, as far as names are kept. Looks at everything that is kept.
    #[must_use]
    pub fn kept_path(&self, inode: InodeId) -> Option<String> {
        if inode == InodeId::ROOT {
            return Some("/".into());
        }
        self.shared.known.paths(&BTreeSet::from([inode])).remove(&inode)
    }

    /// Sets attributes; a new size takes the write lease.
    pub async fn set_attr(&self, credentials: &Credentials, inode: InodeId, set: SetAttr) -> Result<pb::Attr> {
        self.shared.set_attr(credentials, inode, &set).await
    }

    /// Entries after `cookie`, at most `limit`, with attributes if `plus`; true: the end was reached.
    pub async fn read_dir(
        &self,
        credentials: &Credentials,
        inode: InodeId,
        cookie: u64,
        limit: u32,
        plus: bool,
    ) -> Result<(Vec<pb::DirEntry>, bool)> {
        let read = meta_op::ReadDir { inode: inode.raw(), cookie, limit, plus, ..Default::default() };
        self.shared.read_dir(credentials, read).await
    }

    /// Target of a symbolic link.
    pub async fn read_link(&self, credentials: &Credentials, inode: InodeId) -> Result<Vec<u8>> {
        Ok(self.meta(credentials, Op::ReadLink(meta_op::ReadLink { inode: inode.raw() })).await?.value)
    }

    /// Makes a directory.
    pub async fn make_dir(
        &self,
        credentials: &Credentials,
        parent: InodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Result<pb::Attr> {
        let op = meta_op::MakeDir { parent: parent.raw(), name: name.to_vec(), mode, umask };
        self.make(credentials, Op::MakeDir(op)).await
    }

    /// Makes a file, FIFO, socket or device. The kind is in the mode, as with mknod(2).
    pub async fn make_node(
        &self,
        credentials: &Credentials,
        parent: InodeId,
        name: &[u8],
        mode_with_kind: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<pb::Attr> {
        let kind = kind_of_mode(mode_with_kind)?;
        let mode = mode_with_kind & 0o7777;
        let op = meta_op::MakeNode { parent: parent.raw(), name: name.to_vec(), kind, mode, umask, rdev };
        self.make(credentials, Op::MakeNode(op)).await
    }

    /// Makes a symbolic link.
    pub async fn symlink(
        &self,
        credentials: &Credentials,
        parent: InodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<pb::Attr> {
        let op = meta_op::Symlink { parent: parent.raw(), name: name.to_vec(), target: target.to_vec() };
        self.make(credentials, Op::Symlink(op)).await
    }

    /// Makes a hard link. The attributes have this client's unsynced size and times: kernels take the size from here
    /// without a question, and drop what they have mapped beyond it.
    pub async fn link(
        &self,
        credentials: &Credentials,
        inode: InodeId,
        parent: InodeId,
        name: &[u8],
    ) -> Result<pb::Attr> {
        let op = meta_op::Link { inode: inode.raw(), parent: parent.raw(), name: name.to_vec() };
        self.make(credentials, Op::Link(op)).await
    }

    /// Removes a name that is not a directory's.
    pub async fn unlink(&self, credentials: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> {
        let op = meta_op::Unlink { parent: parent.raw(), name: name.to_vec() };
        self.shared.displacing(credentials, Op::Unlink(op)).await
    }

    /// Removes an empty directory.
    pub async fn remove_dir(&self, credentials: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> {
        let op = meta_op::RemoveDir { parent: parent.raw(), name: name.to_vec() };
        self.shared.displacing(credentials, Op::RemoveDir(op)).await
    }

    /// renameat2 with NOREPLACE and EXCHANGE.
    pub async fn rename(&self, credentials: &Credentials, rename: meta_op::Rename) -> Result<()> {
        self.shared.displacing(credentials, Op::Rename(rename)).await
    }

    /// Value of an extended attribute. Computed are `user.ebb.locations`, the replicas' hosts, and `user.ebb.power`, which
    /// of them serve.
    pub async fn get_xattr(&self, credentials: &Credentials, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        if name == LOCATIONS_XATTR {
            return self.shared.locations_text(inode).await;
        }
        if name == POWER_XATTR {
            return self.shared.power_text(inode).await;
        }
        let known_spaces = [&b"user."[..], b"trusted.", b"security."];
        if known_spaces.iter().any(|space| name.len() > space.len() && name.starts_with(space))
            && self.shared.has_no_xattrs(inode)
        {
            bail!(NoAttribute, "{inode} has no attribute {}", String::from_utf8_lossy(name));
        }
        let op = meta_op::GetXattr { inode: inode.raw(), name: name.to_vec() };
        Ok(self.meta(credentials, Op::GetXattr(op)).await?.value)
    }

    /// Names of extended attributes. The computed ones are not listed, so that copies of a file do not carry
    /// them.
    pub async fn list_xattr(&self, credentials: &Credentials, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        if self.shared.has_no_xattrs(inode) {
            return Ok(Vec::new());
        }
        Ok(self.meta(credentials, Op::ListXattr(meta_op::ListXattr { inode: inode.raw() })).await?.names)
    }

    /// Sets an extended attribute.
    pub async fn set_xattr(
        &self,
        credentials: &Credentials,
        inode: InodeId,
        name: &[u8],
        value: Bytes,
        create: bool,
        replace: bool,
    ) -> Result<()> {
        if [LOCATIONS_XATTR, POWER_XATTR].contains(&name) {
            bail!(NotPermitted, "{} is computed: it cannot be set", String::from_utf8_lossy(name));
        }
        let op = meta_op::SetXattr { inode: inode.raw(), name: name.to_vec(), value, create, replace };
        self.meta(credentials, Op::SetXattr(op)).await.map(drop)
    }

    /// Removes an extended attribute.
    pub async fn remove_xattr(&self, credentials: &Credentials, inode: InodeId, name: &[u8]) -> Result<()> {
        let op = meta_op::RemoveXattr { inode: inode.raw(), name: name.to_vec() };
        self.meta(credentials, Op::RemoveXattr(op)).await.map(drop)
    }

    /// Space and counts, from the volumes: raw bytes. Divided by `replicas` they are user bytes.
    pub async fn stat_fs(&self, inode: InodeId) -> Result<pb::StatFsReply> {
        let reply = self.shared.own_meta(Op::StatFs(meta_op::StatFs { inode: inode.raw() })).await?;
        reply.stat_fs.ok_or_else(|| err!(Protocol, "StatFs was answered without numbers"))
    }

    // Files.

    /// Opens a file that exists.
    pub async fn open(&self, credentials: &Credentials, inode: InodeId, access: Access) -> Result<(Handle, pb::Attr)> {
        let (shared, credentials) = (self.shared.clone(), credentials.clone());
        let work = async move { shared.open(&credentials, inode, access).await };
        self.opening(work, |opened| opened.0).await
    }

    /// Opens or makes a file; true: it was made. `hosts`: write affinity (G7), empty for the default.
    #[allow(clippy::too_many_arguments)]
    pub async fn create(
        &self,
        credentials: &Credentials,
        parent: InodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
        exclusive: bool,
        access: Access,
        hosts: Vec<HostName>,
    ) -> Result<(Handle, pb::Attr, bool)> {
        let (parent, name) = (parent.raw(), name.to_vec());
        let create = meta_op::Create { parent, name, mode, umask, exclusive, ..Default::default() };
        let (shared, credentials) = (self.shared.clone(), credentials.clone());
        let work = async move { shared.create(&credentials, create, access, hosts).await };
        self.opening(work, |opened| opened.0).await
    }

    /// Makes a file without a name, in the dataset of a directory: gone once it is closed, unless it gets a name by
    /// [`Client::link`] before, which needs `linkable` (O_TMPFILE of open(2), `linkable`: without O_EXCL).
    pub async fn create_unnamed(
        &self,
        credentials: &Credentials,
        directory: InodeId,
        mode: u32,
        umask: u32,
        linkable: bool,
        access: Access,
    ) -> Result<(Handle, pb::Attr)> {
        let create =
            meta_op::Create { parent: directory.raw(), mode, umask, unnamed: true, linkable, ..Default::default() };
        let (shared, credentials) = (self.shared.clone(), credentials.clone());
        let work = async move { shared.create(&credentials, create, access, Vec::new()).await };
        self.opening(work, |opened| opened.0).await.map(|(handle, attr, _)| (handle, attr))
    }

    /// Runs an open to its end even if the caller goes away, and then closes what it opened: the master counts it.
    async fn opening<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
        handle: impl Fn(&T) -> Handle + Send + 'static,
    ) -> Result<T> {
        let (tell, hear) = tokio::sync::oneshot::channel();
        let shared = self.shared.clone();
        self.shared.runtime.run_or_spawn("open a file", async move {
            if let Err(Ok(opened)) = tell.send(work.await) {
                shared.close(handle(&opened));
            }
        });
        hear.await.map_err(|_| err!(ShuttingDown, "the client is shutting down"))?
    }

    /// What close(2) reports: an error of earlier background work that this handle has not been told. Data goes on in
    /// the background. A reader is told nothing, and takes the news from no writer (as Linux's NFS client, fs/nfs/file.c).
    pub async fn flush(&self, handle: Handle) -> Result<()> {
        let file = self.shared.handles.get(handle)?;
        if file.access == Access::Read { Ok(()) } else { file.check_sticky() }
    }

    /// Forgets the handle.
    pub async fn close(&self, handle: Handle) {
        self.shared.close(handle);
    }

    /// The same, from where nothing can be awaited.
    pub fn close_now(&self, handle: Handle) {
        self.shared.close(handle);
    }

    /// Bytes from `offset`, fewer only at the end of the file.
    pub async fn read(&self, handle: Handle, offset: u64, len: u32) -> Result<Bytes> {
        let file = self.shared.handles.get(handle)?;
        let len = u64::from(len);
        if len <= READ_MAX {
            let data = self.shared.read(&file, offset, len).await?;
            self.shared.served.count(&file, data.len());
            return Ok(data);
        }
        let mut out = BytesMut::new();
        while (out.len() as u64) < len {
            let wanted = (len - out.len() as u64).min(READ_MAX);
            let part = self.shared.read(&file, offset + out.len() as u64, wanted).await?;
            out.extend_from_slice(&part);
            if (part.len() as u64) < wanted {
                break;
            }
        }
        self.shared.served.count(&file, out.len());
        Ok(out.freeze())
    }

    /// Writes all of `data`.
    pub async fn write(&self, handle: Handle, offset: u64, data: Bytes) -> Result<()> {
        self.write_counted(handle, Place::At(offset), data, Privileges::OfOpener).await.map(drop)
    }

    /// Writes at the end of the file as it is when the write lease is held; returns where.
    pub async fn append(&self, handle: Handle, data: Bytes) -> Result<u64> {
        self.write_counted(handle, Place::End, data, Privileges::OfOpener).await
    }

    /// Writes all of `data` at `offset` or, without one, at the end of the file; returns where. Set-user-id and
    /// set-group-id go with the bytes: nobody sees these with those still set.
    pub async fn write_unprivileged(&self, handle: Handle, offset: Option<u64>, data: Bytes) -> Result<u64> {
        self.write_counted(handle, offset.map_or(Place::End, Place::At), data, Privileges::Taken).await
    }

    async fn write_counted(&self, handle: Handle, place: Place, data: Bytes, privileges: Privileges) -> Result<u64> {
        let (file, len) = (self.shared.handles.get(handle)?, data.len());
        let at = self.shared.write(&file, place, data, privileges).await?;
        self.shared.served.count(&file, len);
        Ok(at)
    }

    /// Returns when everything written is on stable storage of every member of every set.
    pub async fn fsync(&self, handle: Handle) -> Result<()> {
        let file = self.shared.handles.get(handle)?;
        self.shared.fsync(&file).await
    }

    /// fallocate(2).
    pub async fn allocate(&self, handle: Handle, what: Allocate, offset: u64, len: u64) -> Result<()> {
        let file = self.shared.handles.get(handle)?;
        self.shared.allocate(&file, what, offset, len).await
    }

    /// Next data (`hole` false) or hole at or after `offset`; kind `NoSuchOffset` beyond the end.
    pub async fn seek(&self, handle: Handle, offset: u64, hole: bool) -> Result<u64> {
        let file = self.shared.handles.get(handle)?;
        self.shared.seek(&file, offset, hole).await
    }

    /// Copies a range between two open files, block by block through the caches, reading ahead of what it writes;
    /// returns how many bytes.
    pub async fn copy_range(
        &self,
        source: Handle,
        source_offset: u64,
        target: Handle,
        target_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let (mut done, mut asked) = (0, 0);
        let mut reads = VecDeque::new();
        loop {
            while reads.len() < READS_AHEAD && asked < len {
                let (client, offset) = (self.clone(), source_offset + asked);
                let wanted = (len - asked).min(BLOCK_SIZE_DEFAULT);
                let read = async move { client.read(source, offset, wanted as u32).await };
                reads.push_back((wanted, self.shared.runtime.spawn("read to copy", read)));
                asked += wanted;
            }
            let Some((wanted, read)) = reads.pop_front() else { return Ok(done) };
            let data = read.join().await??;
            let count = data.len() as u64;
            if count > 0 {
                self.write(target, target_offset + done, data).await?;
                done += count;
            }
            if count < wanted {
                return Ok(done);
            }
        }
    }

    /// Takes or releases a lock; waits if `wait`. Dropping the future gives the wait up.
    pub async fn set_lock(&self, inode: InodeId, lock: pb::FileLock, wait: bool) -> Result<()> {
        self.shared.set_lock(inode, lock, wait).await
    }

    /// The lock in the way, if any.
    pub async fn test_lock(&self, inode: InodeId, lock: pb::FileLock) -> Result<Option<pb::FileLock>> {
        let op = meta_op::TestLock { inode: inode.raw(), lock: Some(lock) };
        Ok(self.shared.own_meta(Op::TestLock(op)).await?.lock)
    }

    /// Where a file's metablocks lie.
    pub async fn locations(&self, inode: InodeId) -> Result<Vec<Location>> {
        self.shared.locations(inode).await
    }

    // Beside the lease path.

    /// Reads a range by a map that the caller brings (a split): no call to the master as long as the map holds.
    /// `file_size` bounds it. Kind `StaleVersion` or `NoReplica` from every member: the map is out of date.
    pub async fn read_by_map(
        &self,
        metablocks: &[pb::Metablock],
        metablock_size: u64,
        file_size: u64,
        offset: u64,
        len: u64,
    ) -> Result<Bytes> {
        let block_size = BLOCK_SIZE_DEFAULT.min(metablock_size);
        let geometry = ebb_types::Geometry { block_size, metablock_size };
        geometry.check().map_err(|why| err!(Invalid, "the map of a split: {why}"))?;
        let end = offset.saturating_add(len).min(file_size);
        let pieces: Vec<_> = geometry.block_pieces(offset, end.saturating_sub(offset)).collect();
        let mut parts = Vec::with_capacity(pieces.len());
        for some in pieces.chunks(READS_AHEAD) {
            let tasks: Vec<_> = some
                .iter()
                .map(|piece| {
                    let record = metablocks.iter().find(|block| block.index == piece.metablock_index).cloned();
                    let (shared, piece) = (self.shared.clone(), *piece);
                    self.shared.runtime.spawn("read by a map", async move {
                        fetch::by_map(&shared, record.as_ref(), piece.offset, piece.len).await
                    })
                })
                .collect();
            for task in tasks {
                parts.push(task.join().await??);
            }
        }
        self.shared.served.add(parts.iter().map(Bytes::len).sum());
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        let mut out = BytesMut::with_capacity(end.saturating_sub(offset) as usize);
        parts.iter().for_each(|part| out.extend_from_slice(part));
        Ok(out.freeze())
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.session())
    }
}

/// The kind in a mode (inode(7), S_IFMT); none means a regular file, as with mknod(2).
fn kind_of_mode(mode: u32) -> Result<u32> {
    use ebb_types::FileKind as Kind;
    Ok(match mode & 0o170_000 {
        0 | 0o100_000 => Kind::File,
        0o010_000 => Kind::Fifo,
        0o140_000 => Kind::Socket,
        0o020_000 => Kind::CharDevice,
        0o060_000 => Kind::BlockDevice,
        other => bail!(Invalid, "no node of type {other:o} can be made"),
    }
    .raw())
}
