//! Frames onto a connection.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use ebb_runtime::{File, Runtime, WriteHalf};
use ebb_types::{Error, Result, bail, err};
use ebb_wire::frame::{MESSAGE_LEN_MAX, PAYLOAD_LEN_MAX};
use ebb_wire::{FrameHeader, FrameKind, Message};
use tokio::io::AsyncWriteExt;

use crate::counters::Link;
use crate::departure::Movement;
use crate::pace::{Course, Pace};

/// Buffers handed to the kernel at once.
const SLICES_MAX: usize = 64;
/// Pieces shorter than this are copied together: cheaper than one more buffer for the kernel to walk.
const SMALL_PIECE: usize = 1024;
/// Bytes of a file sent at a time: while they are on the wire, the disk reads the next ones. So a reader waits for the disk
/// alone only for the first of them.
const FILE_STEP: u64 = 256 << 10;
/// Bytes that the disk reads at one go, so that several readers do not make it seek for each of their pieces.
const DISK_STEP: u64 = 2 << 20;

/// A frame on its way out.
#[derive(Debug)]
pub(crate) struct Frame {
    header: FrameHeader,
    message: Bytes,
    body: Body,
}

/// Raw bytes of a frame.
#[derive(Debug)]
pub(crate) enum Body {
    Buffers(Vec<Bytes>),
    /// File, offset, length.
    Files(Vec<(File, u64, u64)>),
}

impl Body {
    pub fn len(&self) -> u64 {
        match self {
            Self::Buffers(buffers) => buffers.iter().map(|buffer| buffer.len() as u64).sum(),
            Self::Files(ranges) => ranges.iter().map(|(_, _, len)| *len).sum(),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Self::Buffers(buffers) => buffers.iter().map(Bytes::len).sum(),
            Self::Files(_) => 0,
        }
    }
}

impl Frame {
    /// Bytes that wait in memory.
    pub fn memory(&self) -> usize {
        self.message.len() + self.body.memory()
    }

    /// All its bytes but the header.
    pub fn len(&self) -> u64 {
        self.message.len() as u64 + self.body.len()
    }

    /// Which call it is of.
    pub fn method(&self) -> u16 {
        self.header.method
    }

    /// The number of its request.
    pub fn request(&self) -> u64 {
        self.header.request
    }

    /// Whether it costs less to send it than to think about it.
    pub fn is_small(&self) -> bool {
        self.len() < SMALL_PIECE as u64
    }
}

/// An encoded message that fits in a frame. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Draft(Bytes);

impl Draft {
    /// Encodes `message`; kind `Invalid` if it is longer than a frame takes.
    pub fn encode(message: &impl Message) -> Result<Self> {
        Self::check(message.encoded_len())?;
        Ok(Self(message.encode_to_vec().into()))
    }

    /// A message that is encoded already.
    pub fn of(encoded: Vec<u8>) -> Result<Self> {
        Self::check(encoded.len())?;
        Ok(Self(encoded.into()))
    }

    fn check(len: usize) -> Result<()> {
        if len > MESSAGE_LEN_MAX {
            bail!(Invalid, "a message of {len} bytes is above the cap of {MESSAGE_LEN_MAX}: ask for less at once");
        }
        Ok(())
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The finished frame. The body has been checked with [`check_payload_len`].
    pub fn seal(self, kind: FrameKind, method: u16, request: u64, deadline_ms: u32, body: Body) -> Frame {
        let header = FrameHeader {
            kind,
            method,
            request,
            message_len: u32::try_from(self.len()).expect("checked against the cap when it was encoded"),
            payload_len: u32::try_from(body.len()).expect("checked against the cap before sealing"),
            deadline_ms,
        };
        Frame { header, message: self.0, body }
    }
}

/// Fails with kind `Invalid` if a payload is longer than a frame takes.
pub(crate) fn check_payload_len(len: u64) -> Result<()> {
    if len > PAYLOAD_LEN_MAX as u64 {
        bail!(Invalid, "a payload of {len} bytes is above the cap of {PAYLOAD_LEN_MAX}: send less at once");
    }
    Ok(())
}

/// Writes frames: many small ones with one system call, payloads from where they are.
///
/// Cancel-safety: none. A writer whose future was dropped in the middle of a frame is only good for dropping.
pub(crate) struct FrameWriter {
    write: WriteHalf,
    link: Link,
    peer: String,
    runtime: Runtime,
    /// A peer that takes bytes more slowly is given up.
    pace: Option<Pace>,
    movement: Movement,
    /// The next bytes to write, in order.
    buffers: VecDeque<Bytes>,
    /// Headers and small pieces behind `buffers`, copied together: one buffer for the kernel instead of many.
    small: BytesMut,
}

impl FrameWriter {
    pub fn new(write: WriteHalf, link: Link, peer: &str, runtime: Runtime, pace: Option<Pace>) -> Self {
        let (peer, movement) = (peer.to_owned(), Movement::default());
        Self { write, link, peer, runtime, pace, movement, buffers: VecDeque::new(), small: BytesMut::new() }
    }

    /// Tells when bytes leave.
    pub fn movement(&self) -> Movement {
        self.movement.clone()
    }

    /// Writes all frames, in order.
    pub async fn write(&mut self, frames: impl IntoIterator<Item = Frame>) -> Result<()> {
        for frame in frames {
            self.small.extend_from_slice(&frame.header.encode());
            self.push(frame.message);
            match frame.body {
                Body::Buffers(buffers) => buffers.into_iter().for_each(|buffer| self.push(buffer)),
                Body::Files(ranges) => {
                    self.write_buffers().await?;
                    for (file, offset, len) in ranges {
                        self.write_file(&file, offset, len).await?;
                    }
                }
            }
        }
        self.write_buffers().await?;
        let course = self.start_course(0);
        let flushed = bounded(&self.runtime, course, &self.peer, async { self.write.flush().await }).await;
        flushed.map_err(|error| self.broken(&error))
    }

    fn push(&mut self, bytes: Bytes) {
        if bytes.len() < SMALL_PIECE {
            self.small.extend_from_slice(&bytes);
        } else {
            self.close_small();
            self.buffers.push_back(bytes);
        }
    }

    fn close_small(&mut self) {
        if !self.small.is_empty() {
            self.buffers.push_back(self.small.split().freeze());
        }
    }

    async fn write_buffers(&mut self) -> Result<()> {
        self.close_small();
        let course = self.start_course(self.buffers.iter().map(|buffer| buffer.len() as u64).sum());
        while !self.buffers.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut used = 0;
            for (slice, buffer) in slices.iter_mut().zip(&self.buffers) {
                *slice = IoSlice::new(buffer);
                used += 1;
            }
            let writing = self.write.write_vectored(&slices[..used]);
            let written = bounded(&self.runtime, course, &self.peer, writing).await;
            let count = written.map_err(|error| self.broken(&error))?;
            if count == 0 {
                bail!(Disconnected, "{} takes no more bytes", self.peer);
            }
            self.movement.set_last(self.runtime.now());
            self.link.sent(count as u64);
            self.advance(count);
        }
        Ok(())
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let first = self.buffers.front_mut().expect("no more was written than was there");
            if count < first.len() {
                first.advance(count);
                return;
            }
            count -= first.len();
            self.buffers.pop_front();
        }
    }

    async fn write_file(&mut self, file: &File, offset: u64, len: u64) -> Result<()> {
        let end = offset + len;
        let (mut at, mut told) = (offset, offset);
        while at < end {
            let step = FILE_STEP.min(end - at);
            // The disk hears of the next range while half of this one is still to be sent.
            let is_due = len > FILE_STEP && told < end && at + DISK_STEP / 2 >= told;
            let next = if is_due { DISK_STEP.min(end - told) } else { 0 };
            let course = self.start_course(step);
            let sending = async {
                if next > 0 {
                    file.will_read(told, next).await;
                }
                self.write.send_file(file, at, step).await
            };
            match course {
                Some(course) => self.runtime.timeout(course.allowed, &self.peer, sending).await?,
                None => sending.await?,
            }
            told += next;
            self.link.sent(step);
            at += step;
        }
        Ok(())
    }

    /// The next frame has so many bytes.
    fn start_course(&self, len: u64) -> Option<Course> {
        self.pace.map(|pace| pace.start_course(len, self.runtime.now()))
    }

    fn broken(&self, error: &std::io::Error) -> Error {
        // On a connection that stood, calls may have been done, independent of the error: the kind is always the same.
        err!(Disconnected, "connection to {}: {error}", self.peer)
    }
}

/// Waits for a write as long as the peer takes bytes fast enough.
async fn bounded<T>(
    runtime: &Runtime,
    course: Option<Course>,
    peer: &str,
    writing: impl Future<Output = std::io::Result<T>>,
) -> std::io::Result<T> {
    let Some(course) = course else { return writing.await };
    tokio::select! {
        biased;
        done = writing => done,
        () = runtime.sleep(course.patience(runtime.now())) => {
            let reason = format!("{peer} {}", course.reproach(runtime.now()));
            Err(std::io::Error::new(std::io::ErrorKind::TimedOut, reason))
        }
    }
}
