//! Connections between processes of one host that carry open files and shared memory beside bytes (unix(7), SCM_RIGHTS).
//!
//! The receiver can only read a passed file, even if the sender opened it for writing.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;
use ebb_types::Result;

use crate::backend::Work;
use crate::disk::File;

/// Most bytes of one parcel.
pub const PARCEL_BYTES_MAX: usize = 1 << 20;

/// Most things in one parcel.
pub const PARCEL_THINGS_MAX: usize = 3;

/// Bytes and things that are sent in one piece.
#[derive(Clone, Debug, Default)]
pub struct Parcel {
    /// A message.
    pub bytes: Bytes,
    /// Things that go with it, in order.
    pub things: Vec<Thing>,
}

/// A thing that can be passed to another process.
#[derive(Clone, Debug)]
pub enum Thing {
    /// An open file. The receiver can read it for as long as it holds it, also when its name is gone.
    File(File),
    /// Memory that both see from then on.
    Words(Words),
}

/// The memory of a back end.
// There is always some.
#[allow(clippy::len_without_is_empty)]
pub trait WordsBackend: Send + Sync + 'static {
    /// See [`Words::len`].
    fn len(&self) -> usize;
    /// See [`Words::load`].
    fn load(&self, index: usize) -> u64;
    /// See [`Words::store`].
    fn store(&self, index: usize, value: u64);
    /// The descriptor, in the real world.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Numbers in memory that several processes see; zero at first. Only the process that made them changes them. Cheap to
/// clone.
#[derive(Clone)]
pub struct Words(Arc<dyn WordsBackend>);

// There are always some.
#[allow(clippy::len_without_is_empty)]
impl Words {
    /// Wraps a back end's memory.
    pub fn new(backend: impl WordsBackend) -> Self {
        Self(Arc::new(backend))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The number at `index`. Ordering: sequentially consistent, as [`Words::store`] is.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn load(&self, index: usize) -> u64 {
        self.0.load(index)
    }

    /// Changes the number at `index`, for every process that shares it.
    ///
    /// # Panics
    /// If there are not so many, or if another process made them.
    pub fn store(&self, index: usize, value: u64) {
        self.0.store(index, value);
    }

    /// The descriptor, in the real world.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({})", self.len())
    }
}

/// A listening socket of a back end.
pub trait LocalAccept: Send + Sync + 'static {
    /// See [`LocalListener::accept`].
    fn accept(&self) -> Work<'_, Result<LocalStream>>;
}

/// A sending end of a back end.
pub trait LocalSend: Send + 'static {
    /// See [`LocalWrite::send`].
    fn send(&mut self, parcel: Parcel) -> Work<'_, Result<()>>;
}

/// A receiving end of a back end.
pub trait LocalReceive: Send + 'static {
    /// See [`LocalRead::receive`].
    fn receive(&mut self) -> Work<'_, Result<Option<Parcel>>>;
}

/// A listening socket of this host. Its name goes with the process.
pub struct LocalListener(Box<dyn LocalAccept>);

impl LocalListener {
    /// Wraps a back end's socket.
    pub fn new(accept: impl LocalAccept) -> Self {
        Self(Box::new(accept))
    }

    /// Waits for the next connection.
    pub async fn accept(&self) -> Result<LocalStream> {
        self.0.accept().await
    }
}

/// A connection within a host.
pub struct LocalStream {
    /// The receiving end.
    pub read: LocalRead,
    /// The sending end.
    pub write: LocalWrite,
    /// The process at the other end.
    pub peer: LocalPeer,
}

/// A process at the other end, in a back end.
pub trait PeerBackend: Send + Sync + 'static {
    /// See [`LocalPeer::ended`].
    fn ended(&self) -> Work<'_, ()>;
}

/// The process that made the other end of a connection within a host. It outlives the connection.
pub struct LocalPeer(Box<dyn PeerBackend>);

impl LocalPeer {
    /// Wraps a back end's peer.
    pub fn new(peer: impl PeerBackend) -> Self {
        Self(Box::new(peer))
    }

    /// Returns once the process has ended, by the word of the kernel: all its threads are gone, and nothing of it will
    /// ever run again. A process that is frozen, or has only closed the connection, has not ended. Never returns if the
    /// kernel does not report it.
    pub async fn ended(&self) {
        self.0.ended().await;
    }
}

impl fmt::Debug for LocalPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalPeer")
    }
}

/// The receiving end of a connection within a host.
pub struct LocalRead(Box<dyn LocalReceive>);

impl LocalRead {
    /// Wraps a back end's receiving end.
    pub fn new(receive: impl LocalReceive) -> Self {
        Self(Box::new(receive))
    }

    /// The next parcel; none when the other side has closed, or its process has ended.
    ///
    /// Errors: `Protocol` for bytes that are no parcel, `Disconnected`.
    ///
    /// Cancel-safety: a dropped future loses nothing that has come.
    pub async fn receive(&mut self) -> Result<Option<Parcel>> {
        self.0.receive().await
    }
}

/// The sending end of a connection within a host. Dropping it closes the connection.
pub struct LocalWrite(Box<dyn LocalSend>);

impl LocalWrite {
    /// Wraps a back end's sending end.
    pub fn new(send: impl LocalSend) -> Self {
        Self(Box::new(send))
    }

    /// Sends a parcel; waits while the other side does not read.
    ///
    /// Errors: `Invalid` for too large a parcel, `Disconnected`. Cancel-safety: a dropped future may have sent a part,
    /// after which the connection is of no use.
    pub async fn send(&mut self, parcel: Parcel) -> Result<()> {
        let (bytes, things) = (parcel.bytes.len(), parcel.things.len());
        if bytes > PARCEL_BYTES_MAX || things > PARCEL_THINGS_MAX {
            ebb_types::bail!(Invalid, "a parcel of {bytes} bytes and {things} things is too large");
        }
        self.0.send(parcel).await
    }
}

impl fmt::Debug for LocalListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalListener")
    }
}

impl fmt::Debug for LocalStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalStream")
    }
}

impl fmt::Debug for LocalRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalRead")
    }
}

impl fmt::Debug for LocalWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalWrite")
    }
}
