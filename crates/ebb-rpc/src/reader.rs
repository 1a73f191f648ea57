//! Frames from a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use ebb_runtime::{ReadHalf, Runtime, transfer_buffer};
use ebb_types::{Result, bail, err};
use ebb_wire::{FrameHeader, HEADER_LEN};
use tokio::io::AsyncReadExt;

use crate::counters::Link;

/// Bytes taken from the socket at once when looking for headers: several small frames, little of a big one.
const BUFFER_LEN: usize = 16 << 10;

/// Reads frames. Headers and small messages come through a buffer, so that a burst of them costs one system call;
/// everything long is read from the socket straight into a buffer of its exact size, which can then be handed on
/// uncopied.
///
/// Cancel-safety: none. A reader whose future was dropped in the middle of a frame is only good for dropping.
pub(crate) struct FrameReader {
    read: ReadHalf,
    buffer: BytesMut,
    link: Link,
    peer: String,
    runtime: Runtime,
    /// A peer that sends not one byte for this long in the middle of a frame is given up.
    stall: Option<Duration>,
    /// Bytes that have arrived so far: a sign of life for those who wait.
    arrived: Arc<AtomicU64>,
}

impl FrameReader {
    pub fn new(read: ReadHalf, link: Link, peer: &str, runtime: Runtime, stall: Option<Duration>) -> Self {
        let buffer = BytesMut::with_capacity(BUFFER_LEN);
        Self { read, buffer, link, peer: peer.to_owned(), runtime, stall, arrived: Arc::default() }
    }

    /// Bytes that have arrived, for those who want to know whether the peer says anything at all.
    pub fn arrived(&self) -> Arc<AtomicU64> {
        self.arrived.clone()
    }

    /// Waits for the next frame's header; `None` if the peer closed the connection between two frames.
    pub async fn header(&mut self) -> Result<Option<FrameHeader>> {
        while self.buffer.len() < HEADER_LEN {
            self.buffer.reserve(BUFFER_LEN);
            let read = self.read.read_buf(&mut self.buffer).await;
            let count = self.count(read)?;
            if count == 0 && self.buffer.is_empty() {
                return Ok(None);
            }
            if count == 0 {
                bail!(Disconnected, "{} closed the connection within a header", self.peer);
            }
        }
        let bytes = self.buffer.first_chunk().expect("filled above");
        let header = FrameHeader::decode(bytes).map_err(|error| error.context(&self.peer))?;
        self.buffer.advance(HEADER_LEN);
        Ok(Some(header))
    }

    /// The next `len` bytes of the frame, in a buffer of their own.
    pub async fn bytes(&mut self, len: usize) -> Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        // What is long is often on its way to a disk.
        let mut out = transfer_buffer(len);
        loop {
            let buffered = self.buffer.len().min(len - out.len());
            out.extend_from_slice(&self.buffer[..buffered]);
            self.buffer.advance(buffered);
            let rest = len - out.len();
            if rest == 0 {
                return Ok(out.freeze());
            }
            // A short rest goes through the buffer: what follows it comes along for free.
            let direct = (rest >= BUFFER_LEN / 2).then_some((&mut out, rest));
            self.read_more(direct).await?;
        }
    }

    /// Passes over the next `len` bytes without keeping them.
    pub async fn skip(&mut self, len: usize) -> Result<()> {
        let mut left = len;
        loop {
            let count = self.buffer.len().min(left);
            self.buffer.advance(count);
            left -= count;
            if left == 0 {
                return Ok(());
            }
            self.read_more(None).await?;
        }
    }

    /// Reads at least a byte of the frame: into `direct`, at most as many as it names, or else into the buffer.
    async fn read_more(&mut self, direct: Option<(&mut BytesMut, usize)>) -> Result<()> {
        let (read, buffer) = (&mut self.read, &mut self.buffer);
        let reading = async {
            if let Some((out, rest)) = direct {
                let mut limited = out.limit(rest);
                read.read_buf(&mut limited).await
            } else {
                buffer.reserve(BUFFER_LEN);
                read.read_buf(buffer).await
            }
        };
        let read = match self.stall {
            None => reading.await,
            Some(stall) => tokio::select! {
                biased;
                read = reading => read,
                () = self.runtime.sleep(stall) => {
                    bail!(Timeout, "{} sent no byte for {} ms within a frame", self.peer, stall.as_millis())
                }
            },
        };
        if self.count(read)? == 0 {
            bail!(Disconnected, "{} closed the connection within a frame", self.peer);
        }
        Ok(())
    }

    fn count(&self, read: std::io::Result<usize>) -> Result<usize> {
        // Whatever ails a connection that stood, its calls may have been done: the kind is always the same.
        let count = read.map_err(|error| err!(Disconnected, "connection to {}: {error}", self.peer))?;
        self.link.received(count as u64);
        self.arrived.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
