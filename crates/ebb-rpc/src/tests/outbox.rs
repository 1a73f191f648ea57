//! The writer of a frame, the order of frames, and the effect of a broken connection on later callers.

use std::io::{Error, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ebb_runtime::net::StreamWrite;
use ebb_runtime::{File, Runtime, WriteHalf};
use ebb_types::{HostName, Result};
use ebb_wire::{FrameHeader, FrameKind, HEADER_LEN};
use parking_lot::Mutex;
use tokio::io::AsyncWrite;

use super::{real, virt};
use crate::Counters;
use crate::counters::Link;
use crate::outbox::{Outbox, Outgoing};
use crate::writer::{Body, Draft, Frame, FrameWriter};

/// A socket that takes as many bytes as it is allowed to.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    bytes: Vec<u8>,
    calls: usize,
    room: usize,
    is_broken: bool,
    waker: Option<Waker>,
}

impl Socket {
    fn with_room(room: usize) -> Self {
        let socket = Self::default();
        socket.0.lock().room = room;
        socket
    }

    fn allow(&self, change: impl FnOnce(&mut Taken)) {
        let mut taken = self.0.lock();
        change(&mut taken);
        if let Some(waker) = taken.waker.take() {
            waker.wake();
        }
    }

    fn calls(&self) -> usize {
        self.0.lock().calls
    }

    /// Numbers of the whole frames that it has taken.
    fn numbers(&self) -> Vec<u64> {
        let taken = self.0.lock();
        let (mut at, mut numbers) = (0, Vec::new());
        while let Some(head) = taken.bytes[at..].first_chunk::<HEADER_LEN>() {
            let header = FrameHeader::decode(head).unwrap();
            at += HEADER_LEN + header.message_len as usize;
            if at > taken.bytes.len() {
                break;
            }
            numbers.push(header.request);
        }
        numbers
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<std::io::Result<usize>> {
        let mut taken = self.0.lock();
        if taken.is_broken {
            return Poll::Ready(Err(Error::from(ErrorKind::BrokenPipe)));
        }
        if taken.room == 0 {
            taken.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = taken.room.min(buffer.len());
        taken.room -= count;
        taken.calls += 1;
        taken.bytes.extend_from_slice(&buffer[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let all: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        self.poll_write(context, &all)
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl StreamWrite for Socket {
    fn send_file<'a>(
        &'a mut self,
        _file: &'a File,
        _offset: u64,
        _len: u64,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>> {
        unreachable!("no frame of these tests comes from a file")
    }
}

/// A frame with a number; an odd one may turn out not to be wanted.
struct Note {
    number: u64,
    len: usize,
    is_wanted: bool,
}

impl Outgoing for Note {
    type Resources = ();

    fn len(&self) -> u64 {
        self.len as u64
    }

    fn unpack(self) -> Option<(Frame, ())> {
        let draft = Draft::of(vec![7; self.len]).unwrap();
        let frame = draft.seal(FrameKind::Request, 1, self.number, 0, Body::Buffers(Vec::new()));
        self.is_wanted.then_some((frame, ()))
    }
}

fn make_note(number: u64, len: usize) -> Note {
    Note { number, len, is_wanted: true }
}

fn outbox(runtime: &Runtime, socket: &Socket) -> Outbox<Note> {
    let host = HostName::new("h1");
    let link = Link::new(&Counters::default(), &host, &host);
    Outbox::new(FrameWriter::new(WriteHalf::new(socket.clone()), link, "a test", runtime.clone(), None))
}

async fn a_sender_writes_its_own_frame(runtime: Runtime) {
    let socket = Socket::with_room(usize::MAX);
    let outbox = outbox(&runtime, &socket);
    outbox.put(make_note(1, 100)).unwrap();
    outbox.put(Note { is_wanted: false, ..make_note(2, 100) }).unwrap();
    outbox.put(make_note(3, 100)).unwrap();
    // There is no other task here.
    assert_eq!((socket.numbers(), socket.calls()), (vec![1, 3], 2));
    outbox.gather(|| (4..20).for_each(|number| outbox.put(make_note(number, 100)).unwrap()));
    assert_eq!((socket.numbers().len(), socket.calls()), (18, 3), "frames that come together go out together");
    outbox.put(make_note(20, 100)).unwrap();
    assert_eq!(socket.calls(), 4);
}
both!(a_sender_writes_its_own_frame);

async fn frames_that_have_to_wait_go_out_in_order(runtime: Runtime) {
    let socket = Socket::with_room(150);
    let outbox = outbox(&runtime, &socket);
    let task = runtime.spawn("outbox", outbox.clone().run());
    for number in 1..=40 {
        // Some are large: they are the task's from the start.
        outbox.put(make_note(number, if number % 7 == 0 { 100_000 } else { 100 })).unwrap();
    }
    assert_eq!(socket.numbers(), [1]);
    while socket.numbers().len() < 40 {
        socket.allow(|taken| taken.room += 9_000);
        runtime.sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(socket.numbers(), (1..=40).collect::<Vec<_>>());
    socket.allow(|taken| taken.room = usize::MAX);
    outbox.put(make_note(41, 100)).unwrap();
    while socket.numbers().len() < 41 {
        runtime.sleep(std::time::Duration::from_millis(1)).await;
    }
    task.abort();
}
both!(frames_that_have_to_wait_go_out_in_order);

async fn after_the_end_nothing_is_taken(runtime: Runtime) {
    for len in [100, 100_000] {
        let socket = Socket::with_room(50);
        let outbox = outbox(&runtime, &socket);
        let task = runtime.spawn("outbox", outbox.clone().run());
        outbox.put(make_note(1, len)).unwrap();
        outbox.put(make_note(2, len)).unwrap();
        socket.allow(|taken| taken.is_broken = true);
        let error = task.join().await.unwrap();
        assert!(error.to_string().contains("a test"), "{error}");
        assert_eq!(outbox.put(make_note(3, len)).unwrap_err(), error);
        outbox.close(&ebb_types::err!(Internal, "the first error stays"));
        assert_eq!(outbox.put(make_note(4, len)).unwrap_err(), error);
    }
}
both!(after_the_end_nothing_is_taken);
