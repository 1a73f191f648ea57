//! Frames from a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use ebb_runtime::{ReadHalf, Runtime, transfer_buffer};
use ebb_types::{Result, bail, err};
use ebb_wire::{FrameHeader, HEADER_LEN};
use tokio::io::AsyncReadExt;

use crate::counters::Link;
use crate::departure::Movement;
use crate::pace::{Course, Pace};

/// Bytes taken from the socket at once when looking for headers: several small frames, little of a big one.
const BUFFER_LEN: usize = 16 << 10;

/// Reads frames. Headers and small messages come through a buffer, so that a burst of them costs one system call. Long
/// messages are read from the socket straight into a buffer of their exact size, which can then be handed on uncopied.
///
/// Cancel-safety: a reader whose future was dropped in the middle of a frame can pass over the frame's rest
/// ([`FrameReader::skip_rest`]), and no more.
pub(crate) struct FrameReader {
    read: ReadHalf,
    buffer: BytesMut,
    link: Link,
    peer: String,
    runtime: Runtime,
    /// A peer that is slower in the middle of a frame is given up.
    pace: Option<Pace>,
    course: Option<Course>,
    /// Bytes of the frame that have not been handed out.
    rest: usize,
    /// Bytes that have arrived so far: a sign of life for waiting calls.
    arrived: Arc<AtomicU64>,
    movement: Movement,
}

impl FrameReader {
    pub fn new(read: ReadHalf, link: Link, peer: &str, runtime: Runtime, pace: Option<Pace>) -> Self {
        let buffer = BytesMut::with_capacity(BUFFER_LEN);
        let (peer, arrived, movement) = (peer.to_owned(), Arc::default(), Movement::default());
        Self { read, buffer, link, peer, runtime, pace, course: None, rest: 0, arrived, movement }
    }

    /// Bytes that have arrived. They show whether the peer sends anything at all.
    pub fn arrived(&self) -> Arc<AtomicU64> {
        self.arrived.clone()
    }

    /// Tells when bytes arrive.
    pub fn movement(&self) -> Movement {
        self.movement.clone()
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
        self.rest = header.message_len as usize + header.payload_len as usize;
        self.course = self.pace.map(|pace| pace.start_course(self.rest as u64, self.runtime.now()));
        Ok(Some(header))
    }

    /// The peer's time for the frame begins now: it was this side that did not read.
    pub fn restart_clock(&mut self) {
        self.course = self.pace.map(|pace| pace.start_course(self.rest as u64, self.runtime.now()));
    }

    /// The next `len` bytes of the frame, in a buffer of their own.
    pub async fn bytes(&mut self, len: usize) -> Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        // Long data are often on their way to a disk.
        let mut out = transfer_buffer(len);
        loop {
            let buffered = self.buffer.len().min(len - out.len());
            out.extend_from_slice(&self.buffer[..buffered]);
            self.buffer.advance(buffered);
            self.rest -= buffered;
            let rest = len - out.len();
            if rest == 0 {
                return Ok(out.freeze());
            }
            // A short rest goes through the buffer: the bytes behind it come along for free.
            let direct = (rest >= BUFFER_LEN / 2).then_some((&mut out, rest));
            self.read_more(direct).await?;
        }
    }

    /// Reads and drops the rest of the frame.
    pub async fn skip_rest(&mut self) -> Result<()> {
        loop {
            let count = self.buffer.len().min(self.rest);
            self.buffer.advance(count);
            self.rest -= count;
            if self.rest == 0 {
                return Ok(());
            }
            self.read_more(None).await?;
        }
    }

    /// Reads and drops all bytes until the peer closes the connection.
    pub async fn drop_rest(&mut self) {
        loop {
            self.buffer.clear();
            self.buffer.reserve(BUFFER_LEN);
            let read = self.read.read_buf(&mut self.buffer).await;
            if !matches!(self.count(read), Ok(1..)) {
                return;
            }
        }
    }

    /// Reads at least a byte of the frame: into `direct`, at most as many as it names, or else into the buffer.
    ///
    /// Cancel-safety: dropped before it is done, it has read nothing.
    async fn read_more(&mut self, direct: Option<(&mut BytesMut, usize)>) -> Result<()> {
        let (read, buffer) = (&mut self.read, &mut self.buffer);
        let is_direct = direct.is_some();
        let reading = async {
            if let Some((out, rest)) = direct {
                let mut limited = out.limit(rest);
                read.read_buf(&mut limited).await
            } else {
                buffer.reserve(BUFFER_LEN);
                read.read_buf(buffer).await
            }
        };
        let read = match self.course {
            None => reading.await,
            Some(course) => tokio::select! {
                biased;
                read = reading => read,
                () = self.runtime.sleep(course.patience(self.runtime.now())) => {
                    bail!(Timeout, "{} {}", self.peer, course.reproach(self.runtime.now()))
                }
            },
        };
        let count = self.count(read)?;
        if count == 0 {
            bail!(Disconnected, "{} closed the connection within a frame", self.peer);
        }
        if is_direct {
            self.rest -= count;
        }
        Ok(())
    }

    fn count(&self, read: std::io::Result<usize>) -> Result<usize> {
        // On a connection that stood, calls may have been done, independent of the error: the kind is always the same.
        let count = read.map_err(|error| err!(Disconnected, "connection to {}: {error}", self.peer))?;
        self.link.received(count as u64);
        self.arrived.fetch_add(count as u64, Ordering::Relaxed);
        self.movement.set_last(self.runtime.now());
        Ok(count)
    }
}
