//! TCP.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use ebb_types::{Error, ErrorKind, Result, err};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_user_timeout;
use socket2::SockRef;
use tokio::io::{AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::backend::Work;
use crate::disk::File;
use crate::net::{Accept, Listener, ReadHalf, Stream, StreamWrite, UNACKNOWLEDGED_MAX, WriteHalf};

/// Connections that the kernel keeps for us until we accept them; it cuts this to `net.core.somaxconn`.
const BACKLOG: u32 = 1024;

/// Bytes that wait in the kernel for their turn on the link. What waits here can still be given up, and its wait is known: that
/// of bytes in the kernel is not. More would not make a fast link faster.
const NOT_SENT_MAX: u32 = 256 << 10;

/// Bytes for one `sendfile`: bounds how long a call can hold its thread if pages have left the cache again.
const SEND_FILE_MAX: u64 = 1 << 20;

pub(super) async fn listen(address: &str) -> Result<Listener> {
    let target = resolve(address).await?;
    let socket = if target.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let bound = socket.and_then(|socket| {
        // Without it a restart has to wait until connections of the process before have left TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(target)?;
        socket.listen(BACKLOG)
    });
    match bound {
        Ok(listener) => Ok(Listener::new(TcpAccept(listener))),
        Err(error) => Err(listen_error(address, &error)),
    }
}

fn listen_error(address: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            err!(Busy, "cannot listen on {address}: another process has this port; stop it or choose another port")
        }
        io::ErrorKind::AddrNotAvailable => {
            err!(Invalid, "cannot listen on {address}: no interface of this machine has this address")
        }
        io::ErrorKind::PermissionDenied => {
            err!(AccessDenied, "cannot listen on {address}: ports below 1024 need CAP_NET_BIND_SERVICE")
        }
        _ => Error::from_io(error, format_args!("cannot listen on {address}")),
    }
}

pub(super) async fn connect(address: &str) -> Result<Stream> {
    let target = resolve(address).await?;
    match TcpStream::connect(target).await {
        Ok(stream) => wrap(stream, target),
        Err(error) => Err(connect_error(address, &error)),
    }
}

/// Nothing was sent yet, so every failure is safe to repeat: `Unreachable`, also where the kernel says time-out.
fn connect_error(address: &str, error: &io::Error) -> Error {
    let kind = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => return Error::from_io(error, format_args!("cannot connect to {address}")),
        Some(Errno::NOBUFS | Errno::NOMEM) => ErrorKind::Overloaded,
        Some(Errno::INVAL | Errno::AFNOSUPPORT) => ErrorKind::Invalid,
        _ => ErrorKind::Unreachable,
    };
    Error::new(kind, format!("cannot connect to {address}: {error}"))
}

/// An `ip:port` costs no look-up; a name goes through the system's resolver, and its first address is taken.
async fn resolve(address: &str) -> Result<SocketAddr> {
    if let Ok(target) = address.parse() {
        return Ok(target);
    }
    match tokio::net::lookup_host(address).await {
        Ok(mut found) => found
            .next()
            .ok_or_else(|| err!(Unreachable, "the name in {address} has no address: check it, or give an ip")),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Err(err!(Invalid, "{address:?} is no address: write ip:port, as in 127.0.0.1:7001"))
        }
        Err(error) => Err(err!(Unreachable, "cannot look up {address}: {error}")),
    }
}

fn wrap(stream: TcpStream, peer: SocketAddr) -> Result<Stream> {
    // Requests are small and wait for answers: Nagle's algorithm (RFC 896) would hold them back.
    let failed = |error: io::Error| Error::from_io(&error, format_args!("connection with {peer}"));
    stream.set_nodelay(true).map_err(failed)?;
    SockRef::from(&stream).set_tcp_notsent_lowat(NOT_SENT_MAX).map_err(failed)?;
    let longest = u32::try_from(UNACKNOWLEDGED_MAX.as_millis()).expect("a few seconds");
    set_tcp_user_timeout(&stream, longest).map_err(|errno| failed(errno.into()))?;
    let (read, write) = stream.into_split();
    Ok(Stream { read: ReadHalf::new(read), write: WriteHalf::new(TcpWrite(write)), peer: peer.to_string() })
}

struct TcpAccept(TcpListener);

impl Accept for TcpAccept {
    fn accept(&self) -> Work<'_, Result<Stream>> {
        Box::pin(async move {
            loop {
                match self.0.accept().await {
                    Ok((stream, peer)) => match wrap(stream, peer) {
                        Ok(stream) => return Ok(stream),
                        // It broke before it was looked at; the next one may be good.
                        Err(error) => tracing::debug!(%error, "drop an accepted connection"),
                    },
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        return Err(err!(Overloaded, "cannot accept connections on {}: {error}", self.address()));
                    }
                }
            }
        })
    }

    fn address(&self) -> String {
        self.0.local_addr().map_or_else(|_| "an unknown address".to_owned(), |address| address.to_string())
    }
}

/// Whether `accept` reports the end of the connection it was about to return (accept(2), "Error handling").
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// The writing end. Dropping it sends FIN, so the peer reads to the end of the stream.
struct TcpWrite(OwnedWriteHalf);

impl AsyncWrite for TcpWrite {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}

impl StreamWrite for TcpWrite {
    fn send_file<'a>(&'a mut self, file: &'a File, offset: u64, len: u64) -> Work<'a, Result<()>> {
        Box::pin(async move {
            let end = super::file::range_end(file, offset, len)?;
            let mut at = offset;
            while at < end {
                let count = (end - at).min(SEND_FILE_MAX);
                let sent = match file.descriptor() {
                    Some(_) => self.send_chunk(file, at, count).await?,
                    None => None,
                };
                at += match sent {
                    Some(0) => return Err(too_short(file, end)),
                    Some(sent) => sent,
                    None => self.copy_chunk(file, at, count, end).await?,
                };
            }
            Ok(())
        })
    }
}

impl TcpWrite {
    /// One `sendfile`; how many bytes went, or `None` if the kernel cannot do it for this file.
    ///
    /// `sendfile` waits for the disk like a read does, and a socket cannot be asked whether the file is in the cache:
    /// so the pages are brought in from the blocking pool first, if they are not there. Pages that are thrown out
    /// in between hold up this thread for as long as it takes to read `SEND_FILE_MAX` bytes; that is accepted.
    async fn send_chunk(&self, file: &File, at: u64, count: u64) -> Result<Option<u64>> {
        super::file::warm(file, at, count).await?;
        let socket: &TcpStream = self.0.as_ref();
        let sent = socket
            .async_io(Interest::WRITABLE, || {
                let descriptor = file.descriptor().expect("the caller saw that this file has a descriptor");
                let mut position = at;
                loop {
                    // A count of at most SEND_FILE_MAX fits in usize on every Linux that Ebb runs on.
                    match sendfile(socket, descriptor, Some(&mut position), count as usize) {
                        Err(Errno::INTR) => {}
                        result => return result.map_err(io::Error::from),
                    }
                }
            })
            .await;
        match sent {
            Ok(sent) => Ok(Some(sent as u64)),
            Err(error) if is_unsupported(&error) => Ok(None),
            Err(error) => Err(Error::from_io(&error, format_args!("sending {}", file.path().display()))),
        }
    }

    async fn copy_chunk(&mut self, file: &File, at: u64, count: u64, end: u64) -> Result<u64> {
        let data = file.read_at(at, count as usize).await?;
        if data.is_empty() {
            return Err(too_short(file, end));
        }
        let context = format_args!("sending {}", file.path().display()).to_string();
        self.0.write_all(&data).await.map_err(|error| Error::from_io(&error, context))?;
        Ok(data.len() as u64)
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP))
}

fn too_short(file: &File, end: u64) -> Error {
    err!(Io, "{} ended before byte {end}, which was to be sent", file.path().display())
}
