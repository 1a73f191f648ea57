//! Connections within a host: parcels arrive at once and in order, and the process's end closes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use ebb_types::{Result, bail, err};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::executor::{Executor, GroupId};
use super::net::HostId;
use crate::backend::Work;
use crate::disk::{Compression, File, FileBackend};
use crate::local::{
    LocalAccept, LocalListener, LocalPeer, LocalRead, LocalReceive, LocalSend, LocalStream, LocalWrite, Parcel,
    PeerBackend, Thing, Words, WordsBackend,
};

/// Parcels on their way in one direction.
const PARCELS_MAX: usize = 64;
/// Connections that the listener has not accepted yet.
const BACKLOG: usize = 64;

/// Names of listening sockets on all hosts.
#[derive(Default)]
pub(super) struct Locals(Mutex<BTreeMap<(HostId, PathBuf), Name>>);

/// A name that a process listens on.
struct Name {
    process: VirtualPeer,
    sender: mpsc::Sender<LocalStream>,
}

impl Locals {
    /// Takes a name, also one whose listener is gone.
    pub(super) fn listen(&self, process: VirtualPeer, host: HostId, path: &Path) -> Result<LocalListener> {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let mut names = self.0.lock();
        let key = (host, path.to_owned());
        if names.get(&key).is_some_and(|other| !other.sender.is_closed()) {
            bail!(Busy, "cannot listen on {}: another process does", path.display());
        }
        names.insert(key, Name { process, sender });
        Ok(LocalListener::new(VirtualAccept(tokio::sync::Mutex::new(receiver))))
    }

    pub(super) fn connect(&self, process: VirtualPeer, host: HostId, path: &Path) -> Result<LocalStream> {
        let names = self.0.lock();
        let target = names.get(&(host, path.to_owned())).map(|name| (name.process.clone(), name.sender.clone()));
        drop(names);
        let Some((listening, sender)) = target else { return Err(unreachable(path)) };
        let (ours, theirs) = pair(process, listening);
        sender.try_send(theirs).map_err(|_| unreachable(path))?;
        Ok(ours)
    }
}

fn unreachable(path: &Path) -> ebb_types::Error {
    err!(Unreachable, "cannot connect to {}: no process listens there", path.display())
}

/// Both ends of a connection: the first is for the process `a`, whose peer is `b`.
fn pair(a: VirtualPeer, b: VirtualPeer) -> (LocalStream, LocalStream) {
    let ((to_a, from_b), (to_b, from_a)) = (mpsc::channel(PARCELS_MAX), mpsc::channel(PARCELS_MAX));
    let end = |read, write, peer| LocalStream {
        read: LocalRead::new(VirtualRead(read)),
        write: LocalWrite::new(VirtualWrite(write)),
        peer: LocalPeer::new(peer),
    };
    (end(from_b, to_b, b), end(from_a, to_a, a))
}

/// One life of a process.
#[derive(Clone)]
pub(super) struct VirtualPeer {
    pub(super) executor: Arc<Executor>,
    pub(super) group: GroupId,
}

/// Between looks at whether a process has ended.
const LOOK_NS: u64 = 1_000_000;

impl PeerBackend for VirtualPeer {
    fn ended(&self) -> Work<'_, ()> {
        Box::pin(async move {
            while self.executor.is_alive(self.group) {
                self.executor.sleep_until(self.executor.now_ns() + LOOK_NS).await;
            }
        })
    }
}

struct VirtualAccept(tokio::sync::Mutex<mpsc::Receiver<LocalStream>>);

impl LocalAccept for VirtualAccept {
    fn accept(&self) -> Work<'_, Result<LocalStream>> {
        Box::pin(async move {
            self.0.lock().await.recv().await.ok_or_else(|| err!(ShuttingDown, "the listening socket is closed"))
        })
    }
}

struct VirtualRead(mpsc::Receiver<Parcel>);

impl LocalReceive for VirtualRead {
    fn receive(&mut self) -> Work<'_, Result<Option<Parcel>>> {
        Box::pin(async move { Ok(self.0.recv().await) })
    }
}

struct VirtualWrite(mpsc::Sender<Parcel>);

impl LocalSend for VirtualWrite {
    fn send(&mut self, parcel: Parcel) -> Work<'_, Result<()>> {
        Box::pin(async move {
            let things = parcel.things.into_iter().map(as_received).collect();
            let sent = self.0.send(Parcel { things, ..parcel }).await;
            sent.map_err(|_| err!(Disconnected, "sending within the host: the other side has closed"))
        })
    }
}

fn as_received(thing: Thing) -> Thing {
    match thing {
        Thing::File(file) => {
            let path = file.path().to_owned();
            Thing::File(File::new(ReadOnly(file), &path))
        }
        words @ Thing::Words(_) => words,
    }
}

/// Numbers that the processes of a world share.
pub(super) struct VirtualWords(Arc<[AtomicU64]>);

impl VirtualWords {
    pub(super) fn make(count: usize) -> Words {
        Words::new(Self((0..count).map(|_| AtomicU64::new(0)).collect()))
    }
}

impl WordsBackend for VirtualWords {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn load(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::SeqCst)
    }

    fn store(&self, index: usize, value: u64) {
        self.0[index].store(value, Ordering::SeqCst);
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// A file that was passed.
struct ReadOnly(File);

fn refuse<'a, T: Send + 'a>() -> Work<'a, Result<T>> {
    Box::pin(async { Err(err!(Io, "the file was opened for reading only")) })
}

impl FileBackend for ReadOnly {
    fn read_at(&self, offset: u64, len: usize) -> Work<'_, Result<Bytes>> {
        Box::pin(self.0.read_at(offset, len))
    }

    fn will_read(&self, offset: u64, len: u64) -> Work<'_, ()> {
        Box::pin(self.0.will_read(offset, len))
    }

    fn write_at(&self, _offset: u64, _data: Vec<Bytes>) -> Work<'_, Result<()>> {
        refuse()
    }

    fn sync_data(&self) -> Work<'_, Result<()>> {
        Box::pin(self.0.sync_data())
    }

    fn set_len(&self, _len: u64) -> Work<'_, Result<()>> {
        refuse()
    }

    fn len(&self) -> Work<'_, Result<u64>> {
        Box::pin(self.0.len())
    }

    fn punch_hole(&self, _offset: u64, _len: u64) -> Work<'_, Result<()>> {
        refuse()
    }

    fn allocate(&self, _offset: u64, _len: u64) -> Work<'_, Result<()>> {
        refuse()
    }

    fn allocated_bytes(&self) -> Work<'_, Result<u64>> {
        Box::pin(self.0.allocated_bytes())
    }

    fn compress(&self, _method: Compression) -> Work<'_, Result<()>> {
        refuse()
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}
