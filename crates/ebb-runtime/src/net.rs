//! Byte streams between processes.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use ebb_types::Result;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::backend::Work;
use crate::disk::File;

/// A connection whose bytes the other side's kernel does not acknowledge for so long, or has no room for, breaks.
///
/// Without it a kernel tries for a quarter of an hour, with pauses that double up to two minutes (tcp(7), `tcp_retries2`). So after a
/// cut of the network had healed, calls on an old connection would wait for its next attempt, while a new one is made in a moment.
pub const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(6);

/// A reading end of a back end.
pub trait StreamRead: AsyncRead + Send + Unpin + 'static {}
impl<T: AsyncRead + Send + Unpin + 'static> StreamRead for T {}

/// A writing end of a back end.
pub trait StreamWrite: AsyncWrite + Send + Unpin + 'static {
    /// Sends `len` bytes of `file` from `offset` without a copy through user space where the kernel allows it.
    fn send_file<'a>(&'a mut self, file: &'a File, offset: u64, len: u64) -> Work<'a, Result<()>>;
}

/// A listening socket of a back end.
pub trait Accept: Send + Sync + 'static {
    /// See [`Listener::accept`].
    fn accept(&self) -> Work<'_, Result<Stream>>;
    /// See [`Listener::address`].
    fn address(&self) -> String;
}

/// A listening socket.
pub struct Listener(Box<dyn Accept>);

impl Listener {
    /// Wraps a back end's socket.
    pub fn new(accept: impl Accept) -> Self {
        Self(Box::new(accept))
    }

    /// Waits for the next connection.
    pub async fn accept(&self) -> Result<Stream> {
        self.0.accept().await
    }

    /// The address that was bound, with the port that was chosen.
    #[must_use]
    pub fn address(&self) -> String {
        self.0.address()
    }
}

/// A connection.
pub struct Stream {
    /// The reading end.
    pub read: ReadHalf,
    /// The writing end.
    pub write: WriteHalf,
    /// Address of the other side, for messages to people.
    pub peer: String,
}

/// The reading end of a connection; use tokio's `AsyncReadExt`.
pub struct ReadHalf(Box<dyn StreamRead>);

impl ReadHalf {
    /// Wraps a back end's reading end.
    pub fn new(read: impl StreamRead) -> Self {
        Self(Box::new(read))
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

/// The writing end of a connection; use tokio's `AsyncWriteExt`. Dropping it closes the connection.
pub struct WriteHalf(Box<dyn StreamWrite>);

impl WriteHalf {
    /// Wraps a back end's writing end.
    pub fn new(write: impl StreamWrite) -> Self {
        Self(Box::new(write))
    }

    /// Sends `len` bytes of `file` from `offset` without a copy through user space where the kernel allows it.
    /// The virtual back end copies.
    pub async fn send_file(&mut self, file: &File, offset: u64, len: u64) -> Result<()> {
        self.0.send_file(file, offset, len).await
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> std::task::Poll<std::io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.peer)
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.address())
    }
}
