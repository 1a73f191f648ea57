//! Connections under TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use ebb_identity::tls::Wire;
use ebb_identity::{Holder, Subject, explain};
use ebb_runtime::net::StreamWrite;
use ebb_runtime::{File, ReadHalf, Work, WriteHalf};
use ebb_types::{Error, Result, bail, err};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::identity::Proven;

/// Bytes taken from the socket at once. rustls alone would take 4 KiB.
const READ_LEN: usize = 64 << 10;
/// Bytes of records that wait for the socket; more makes the writer wait.
const WRITE_LEN: usize = 512 << 10;

/// Both ends of a connection as one.
pub(crate) struct Joined {
    read: BufReader<ReadHalf>,
    write: WriteHalf,
}

impl Joined {
    pub fn new(read: ReadHalf, write: WriteHalf) -> Self {
        Self { read: BufReader::with_capacity(READ_LEN, read), write }
    }

    /// The two ends again, behind the handshake.
    pub fn part(self) -> Result<(ReadHalf, WriteHalf)> {
        if !self.read.buffer().is_empty() {
            bail!(Protocol, "bytes came before the hello was answered");
        }
        Ok((self.read.into_inner(), self.write))
    }
}

/// A connection whose two sides have proved themselves by certificates.
pub(crate) struct Secured {
    pub stream: TlsStream<Joined>,
    pub peer: Proven,
}

/// Proves this process to a server, and the server to this process.
pub(crate) async fn connect(joined: Joined, address: &str, holder: &Holder) -> Result<Secured> {
    let settings = holder.settings();
    let connecting = TlsConnector::from(settings.client).connect(settings.name, joined);
    Secured::new(connecting.await.map(TlsStream::from), address, holder)
}

/// Proves this process to a client, and the client to this process.
pub(crate) async fn accept(joined: Joined, address: &str, holder: &Holder) -> Result<Secured> {
    let accepting = TlsAcceptor::from(holder.settings().server).accept(joined);
    Secured::new(accepting.await.map(TlsStream::from), address, holder)
}

impl Secured {
    fn new(shaken: io::Result<TlsStream<Joined>>, address: &str, holder: &Holder) -> Result<Self> {
        let mut stream = shaken.map_err(|error| explain(&error, address))?;
        match &mut stream {
            TlsStream::Client(stream) => stream.get_mut().1.set_buffer_limit(Some(WRITE_LEN)),
            TlsStream::Server(stream) => stream.get_mut().1.set_buffer_limit(Some(WRITE_LEN)),
        }
        let Some([certificate, ..]) = stream.get_ref().1.peer_certificates() else {
            bail!(Unauthorized, "{address} has no certificate")
        };
        let (subject, serial, validity) =
            Subject::of_certificate(certificate).map_err(|error| error.context(address))?;
        let cluster = holder.subject().cluster;
        if subject.cluster != cluster {
            bail!(Unauthorized, "{address} belongs to cluster {}, this process to {cluster}", subject.cluster);
        }
        Ok(Self { stream, peer: Proven { subject, serial, validity, holder: holder.clone() } })
    }

    /// The ends for what follows the hellos.
    pub fn part(self) -> Result<(ReadHalf, WriteHalf)> {
        if self.peer.holder.wire() == Wire::Plain {
            return match self.stream {
                TlsStream::Client(stream) => stream.into_inner().0.part(),
                TlsStream::Server(stream) => stream.into_inner().0.part(),
            };
        }
        let (read, write) = tokio::io::split(self.stream);
        Ok((ReadHalf::new(TlsRead(read)), WriteHalf::new(TlsWrite(write))))
    }
}

impl AsyncRead for Joined {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(cx, buf)
    }
}

impl AsyncWrite for Joined {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }
}

/// The reading end. It ends as that of a plain connection does, with or without the peer's farewell: frames carry their
/// length, so a cut stream is not taken for a whole one.
struct TlsRead(tokio::io::ReadHalf<TlsStream<Joined>>);

impl AsyncRead for TlsRead {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_read(cx, buf) {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

/// The writing end.
struct TlsWrite(tokio::io::WriteHalf<TlsStream<Joined>>);

impl AsyncWrite for TlsWrite {
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

impl StreamWrite for TlsWrite {
    /// The bytes pass through memory: this kernel's sockets do not encrypt.
    fn send_file<'a>(&'a mut self, file: &'a File, offset: u64, len: u64) -> Work<'a, Result<()>> {
        Box::pin(async move {
            let piece = file.read_at(offset, usize::try_from(len).expect("a piece of a frame")).await?;
            if (piece.len() as u64) < len {
                let end = offset + len;
                return Err(err!(Io, "{} ended before byte {end}, which was to be sent", file.path().display()));
            }
            let written = self.0.write_all(&piece).await;
            written.map_err(|error| Error::from_io(&error, format_args!("sending {}", file.path().display())))
        })
    }
}

impl Drop for TlsWrite {
    fn drop(&mut self) {
        // As with a plain connection, the peer reads to the end although the other half still lives. What the socket does
        // not take at once is given up, as this end is.
        let _ = Pin::new(&mut self.0).poll_shutdown(&mut Context::from_waker(Waker::noop()));
    }
}
