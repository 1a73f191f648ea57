//! One direction of a connection, as the two kernels see it.
//!
//! ```text
//!   writer ──▶ flight (send buffer and wire) ──delivery──▶ buffer (receive buffer) ──▶ reader
//!              bounded together by the window
//! ```

use std::collections::VecDeque;
use std::io;
use std::task::Waker;

use bytes::Bytes;

use super::HostId;
use crate::virt::executor::GroupId;

/// The content of a segment.
#[derive(Debug)]
pub(super) enum Item {
    Data(Bytes),
    /// The writer is done.
    End,
    /// The writer's kernel knows nothing of this connection any more.
    Reset,
}

/// An item and when it reaches the other kernel.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) ready_ns: u64,
    pub(super) item: Item,
}

/// A segment that does not get through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    pub(super) since_ns: u64,
    pub(super) tries: u32,
    /// When it is tried next.
    pub(super) retry_ns: u64,
}

/// An end of a pipe.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) host: HostId,
    pub(super) group: GroupId,
    /// The program has dropped it, or has died.
    pub(super) gone: bool,
    pub(super) waker: Option<Waker>,
    /// The error of the program's next call.
    pub(super) error: Option<io::ErrorKind>,
}

impl Side {
    fn new(host: HostId, group: GroupId) -> Self {
        Self { host, group, gone: false, waker: None, error: None }
    }
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) writer: Side,
    pub(super) reader: Side,
    pub(super) flight: VecDeque<Segment>,
    pub(super) buffer: VecDeque<Bytes>,
    /// In `flight` and `buffer`.
    pub(super) bytes: usize,
    /// The writer has said that it is done, or its kernel has.
    pub(super) closed: bool,
    /// The end has reached the reader's kernel.
    pub(super) ended: bool,
    /// The first segment does not get through.
    pub(super) held: Option<Stuck>,
    /// Nothing arrives before this: the order of a stream.
    pub(super) last_ready_ns: u64,
}

impl Pipe {
    pub(super) fn new(writer: (HostId, GroupId), reader: (HostId, GroupId)) -> Self {
        Self {
            writer: Side::new(writer.0, writer.1),
            reader: Side::new(reader.0, reader.1),
            flight: VecDeque::new(),
            buffer: VecDeque::new(),
            bytes: 0,
            closed: false,
            ended: false,
            held: None,
            last_ready_ns: 0,
        }
    }

    /// Takes up to `want` bytes that have arrived.
    pub(super) fn take_bytes(&mut self, want: usize) -> Bytes {
        let Some(front) = self.buffer.front_mut() else { return Bytes::new() };
        let count = want.min(front.len());
        let taken = front.split_to(count);
        if front.is_empty() {
            self.buffer.pop_front();
        }
        self.bytes -= taken.len();
        taken
    }

    /// Bytes that have arrived and were not read.
    pub(super) fn unread_bytes(&self) -> usize {
        self.buffer.iter().map(Bytes::len).sum()
    }

    /// Forgets the segments under way from segment `keep` on: the sender's kernel is gone.
    pub(super) fn truncate(&mut self, keep: usize) {
        for segment in self.flight.drain(keep..) {
            if let Item::Data(data) = segment.item {
                self.bytes -= data.len();
            }
        }
    }

    /// Whether this direction will never be used again.
    pub(super) fn is_over(&self) -> bool {
        self.writer.gone && self.reader.gone && self.flight.is_empty()
    }
}
