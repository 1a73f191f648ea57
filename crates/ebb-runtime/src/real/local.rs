//! Unix sockets that pass descriptors.
//!
//! ```text
//! | bytes u32, little-endian | things u8 | kind of each: u8 x 3, 0 for none | message ... |
//! ```
//! Descriptors go with the first byte of their frame, so that descriptors that come with a byte belong to its frame
//! (unix(7)).

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use bytes::{Bytes, BytesMut};
use ebb_types::{Error, ErrorKind, Result, bail, err};
use rustix::fs::{Mode, OFlags, fstat};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use super::file::RealFile;
use super::words::RealWords;
use crate::backend::Work;
use crate::disk::File;
use crate::local::{
    LocalAccept, LocalListener, LocalPeer, LocalRead, LocalReceive, LocalSend, LocalStream, LocalWrite,
    PARCEL_BYTES_MAX, PARCEL_THINGS_MAX, Parcel, PeerBackend, Thing, Words,
};

const HEAD: usize = 8;
const FILE: u8 = 1;
const WORDS: u8 = 2;

/// Bytes taken from the socket at once.
const READ_BYTES: usize = 64 << 10;

pub(super) async fn listen(path: &Path) -> Result<LocalListener> {
    let failed = |error: io::Error| Error::from_io(&error, format_args!("cannot listen on {}", path.display()));
    let short = ShortPath::new(path).map_err(failed)?;
    // The socket of an earlier process: no process listens there, or its directory would be locked.
    match rustix::fs::unlink(path) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(errno) => return Err(failed(errno.into())),
    }
    let listener = UnixListener::bind(&short.path).map_err(failed)?;
    rustix::fs::chmod(path, Mode::from_raw_mode(0o600)).map_err(|errno| failed(errno.into()))?;
    Ok(LocalListener::new(UnixAccept(listener)))
}

pub(super) async fn connect(path: &Path) -> Result<LocalStream> {
    let failed = |error: io::Error| err!(Unreachable, "cannot connect to {}: {error}", path.display());
    let short = ShortPath::new(path).map_err(failed)?;
    UnixStream::connect(&short.path).await.map(wrap).map_err(failed)
}

/// A socket's address holds 107 bytes: longer paths are reached by way of the open directory.
struct ShortPath {
    path: std::path::PathBuf,
    _directory: Option<OwnedFd>,
}

impl ShortPath {
    fn new(path: &Path) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if path.as_os_str().len() < 100 {
            return Ok(Self { path: path.to_owned(), _directory: None });
        }
        let directory = rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let number = std::os::fd::AsRawFd::as_raw_fd(&directory);
        Ok(Self { path: Path::new(&format!("/proc/self/fd/{number}")).join(name), _directory: Some(directory) })
    }
}

fn wrap(stream: UnixStream) -> LocalStream {
    let peer = LocalPeer::new(UnixPeer::of(&stream));
    let (read, write) = stream.into_split();
    LocalStream {
        peer,
        read: LocalRead::new(UnixRead { socket: read, bytes: BytesMut::new(), descriptors: VecDeque::new() }),
        write: LocalWrite::new(UnixWrite(write)),
    }
}

/// The process that called connect(2), or listen(2) on the connecting side: a descriptor of it, if the kernel gives one.
struct UnixPeer(Option<OwnedFd>);

impl UnixPeer {
    /// If the process has ended already and its number was given to another one, that one is watched instead: its end
    /// comes after the end that is waited for. So the report is late, but true.
    fn of(stream: &UnixStream) -> Self {
        let process = stream.peer_cred().ok().and_then(|credentials| Pid::from_raw(credentials.pid()?));
        Self(process.and_then(|process| pidfd_open(process, PidfdFlags::NONBLOCK).ok()))
    }
}

impl PeerBackend for UnixPeer {
    fn ended(&self) -> Work<'_, ()> {
        Box::pin(async move {
            if let Some(process) = &self.0 {
                // SAFETY: the descriptor is borrowed from this peer, so it stays open, and the same, for as long.
                let process = unsafe { AsyncFd::register_with_interest(process.as_fd(), Interest::READABLE) };
                // Readable means that it has ended (pidfd_open(2)).
                if let Ok(process) = process
                    && process.readable().await.is_ok()
                {
                    return;
                }
            }
            std::future::pending().await
        })
    }
}

struct UnixAccept(UnixListener);

impl LocalAccept for UnixAccept {
    fn accept(&self) -> Work<'_, Result<LocalStream>> {
        Box::pin(async move {
            match self.0.accept().await {
                Ok((stream, _)) => Ok(wrap(stream)),
                Err(error) => Err(err!(Overloaded, "cannot accept a connection of this host: {error}")),
            }
        })
    }
}

struct UnixWrite(OwnedWriteHalf);

impl LocalSend for UnixWrite {
    fn send(&mut self, parcel: Parcel) -> Work<'_, Result<()>> {
        Box::pin(async move {
            let mut kinds = [0; PARCEL_THINGS_MAX];
            let mut passed = Vec::new();
            for (kind, thing) in kinds.iter_mut().zip(&parcel.things) {
                let (number, descriptor) = to_pass(thing)?;
                *kind = number;
                passed.push(descriptor);
            }
            let mut frame = BytesMut::with_capacity(HEAD + parcel.bytes.len());
            frame.extend_from_slice(&(parcel.bytes.len() as u32).to_le_bytes());
            frame.extend_from_slice(&[parcel.things.len() as u8]);
            frame.extend_from_slice(&kinds);
            frame.extend_from_slice(&parcel.bytes);
            let mut at = self.send_some(&frame, &passed).await?;
            while at < frame.len() {
                at += self.send_some(&frame[at..], &[]).await?;
            }
            Ok(())
        })
    }
}

impl UnixWrite {
    async fn send_some(&self, bytes: &[u8], passed: &[OwnedFd]) -> Result<usize> {
        let descriptors: Vec<BorrowedFd<'_>> = passed.iter().map(AsFd::as_fd).collect();
        let socket: &UnixStream = self.0.as_ref();
        let sent = socket.async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PARCEL_THINGS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() {
                let fits = control.push(SendAncillaryMessage::ScmRights(&descriptors));
                assert!(fits, "there is room for as many as a parcel has");
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?)
        });
        sent.await.map_err(|error| Error::new(ErrorKind::Disconnected, format!("sending within the host: {error}")))
    }
}

/// The descriptor to pass: of a file one that can only read.
fn to_pass(thing: &Thing) -> Result<(u8, OwnedFd)> {
    let (kind, descriptor) = match thing {
        Thing::File(file) => (FILE, file.descriptor()),
        Thing::Words(words) => (WORDS, words.descriptor()),
    };
    let Some(descriptor) = descriptor else { bail!(Unsupported, "there is no descriptor to pass") };
    let passed = match thing {
        Thing::File(_) => {
            let number = std::os::fd::AsRawFd::as_raw_fd(&descriptor);
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            rustix::fs::open(format!("/proc/self/fd/{number}"), flags, Mode::empty())
        }
        Thing::Words(_) => rustix::io::fcntl_dupfd_cloexec(descriptor, 0),
    };
    let passed = passed.map_err(|errno| Error::from_io(&errno.into(), "cannot make a descriptor to pass"))?;
    Ok((kind, passed))
}

struct UnixRead {
    socket: OwnedReadHalf,
    /// Bytes of frames that are not whole yet.
    bytes: BytesMut,
    descriptors: VecDeque<OwnedFd>,
}

impl LocalReceive for UnixRead {
    fn receive(&mut self) -> Work<'_, Result<Option<Parcel>>> {
        Box::pin(async move {
            loop {
                if let Some(parcel) = self.take_parcel()? {
                    return Ok(Some(parcel));
                }
                if self.read_some().await? == 0 {
                    return match self.bytes.is_empty() {
                        true => Ok(None),
                        false => Err(err!(Disconnected, "a connection of this host ended within a message")),
                    };
                }
            }
        })
    }
}

impl UnixRead {
    fn take_parcel(&mut self) -> Result<Option<Parcel>> {
        let Some(head) = self.bytes.first_chunk::<HEAD>() else { return Ok(None) };
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let count = usize::from(head[4]);
        let kinds = [head[5], head[6], head[7]];
        if len > PARCEL_BYTES_MAX || count > PARCEL_THINGS_MAX || self.descriptors.len() < count {
            let came = self.descriptors.len();
            bail!(Protocol, "a message of {len} bytes and {count} things came with {came} descriptors");
        }
        if self.bytes.len() < HEAD + len {
            return Ok(None);
        }
        let things = kinds[..count].iter().zip(self.descriptors.drain(..count)).map(received);
        let things = things.collect::<Result<Vec<Thing>>>()?;
        let bytes: Bytes = self.bytes.split_to(HEAD + len).freeze().slice(HEAD..);
        Ok(Some(Parcel { bytes, things }))
    }

    async fn read_some(&mut self) -> Result<usize> {
        let (bytes, descriptors) = (&mut self.bytes, &mut self.descriptors);
        let mut buffer = vec![0; READ_BYTES];
        let socket: &UnixStream = self.socket.as_ref();
        let came = socket.async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PARCEL_THINGS_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let message = recvmsg(socket, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags)?;
            for passed in control.drain() {
                if let RecvAncillaryMessage::ScmRights(passed) = passed {
                    descriptors.extend(passed);
                }
            }
            if message.flags.contains(ReturnFlags::CTRUNC) {
                return Err(io::Error::other("descriptors were lost: too many are open"));
            }
            Ok(message.bytes)
        });
        let came = came.await.map_err(|error| err!(Disconnected, "receiving within the host: {error}"))?;
        bytes.extend_from_slice(&buffer[..came]);
        Ok(came)
    }
}

fn received((kind, descriptor): (&u8, OwnedFd)) -> Result<Thing> {
    match *kind {
        FILE => {
            let mode = fstat(&descriptor).map_or(0, |stat| stat.st_mode);
            if mode & libc::S_IFMT != libc::S_IFREG {
                bail!(Protocol, "a descriptor came that is no file");
            }
            let path = Path::new("(a file of another process)");
            Ok(Thing::File(File::new(RealFile::new(descriptor, path), path)))
        }
        WORDS => Ok(Thing::Words(Words::new(RealWords::receive(descriptor)?))),
        other => bail!(Protocol, "a thing of unknown kind {other} came"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    fn peer_of(child: &std::process::Child) -> UnixPeer {
        let process = Pid::from_raw(child.id() as i32).unwrap();
        UnixPeer(Some(pidfd_open(process, PidfdFlags::NONBLOCK).unwrap()))
    }

    async fn has_ended(peer: &UnixPeer) -> bool {
        tokio::time::timeout(Duration::from_millis(50), peer.ended()).await.is_ok()
    }

    #[tokio::test]
    async fn a_process_has_ended_when_it_is_killed_and_not_when_it_is_stopped() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let peer = peer_of(&child);
        let process = Pid::from_raw(child.id() as i32).unwrap();
        assert!(!has_ended(&peer).await);
        rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
        assert!(!has_ended(&peer).await, "it may go on");
        child.kill().unwrap();
        peer.ended().await;
        child.wait().unwrap();
        peer.ended().await;
        assert!(!has_ended(&UnixPeer(None)).await, "of some nothing is known");
    }
}
