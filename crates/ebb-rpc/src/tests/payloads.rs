//! Big payloads, files, slow readers, memory.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::{ALIGNMENT, File, OpenMode, Runtime};
use ebb_types::ErrorKind;
use ebb_wire::pb;
use tokio::io::AsyncWriteExt;

use super::relay::Relay;
use super::*;

async fn big_payloads_come_back(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let channel = connector(&runtime, "h2").channel(&site.address);
    for len in [1, 31, 16 << 10, (16 << 10) + 1, 1 << 20, (3 << 20) + 7, 16 << 20] {
        let halves = vec![pattern(0, len / 2), Bytes::new(), pattern((len / 2) as u64, len - len / 2)];
        let response = channel.call_with(&pb::ReadReplica::default(), halves, LONG).await.unwrap();
        assert_eq!(response.payload, pattern(0, len), "{len} bytes");
        // A buffer of its own, of its size or little more: it can be kept without keeping anything else.
        assert!((len..len + ALIGNMENT).contains(&response.payload.try_into_mut().unwrap().capacity()));
    }
}

both!(big_payloads_come_back);

/// Memory for requests is taken before they are read: calls of 40 MiB in all go through a budget of 21 MiB.
async fn memory_bounds_make_requests_wait(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions { memory_bytes_max: 1, ..Default::default() }).await;
    let connector = connector(&runtime, "h2");
    let calls: Vec<_> = (0..40)
        .map(|_| {
            let channel = connector.channel(&site.address);
            runtime.spawn("call", async move {
                let message = pb::WriteReplica::default();
                channel.call_with(&message, vec![pattern(0, 1 << 20)], LONG).await.unwrap().message.results[0].received
            })
        })
        .collect();
    for call in calls {
        assert_eq!(call.join().await.unwrap().unwrap().seq, 1 << 20);
    }
    assert_eq!(site.echo.answered.load(Ordering::SeqCst), 40);
}

both!(memory_bounds_make_requests_wait);

/// A caller that reads nothing loses its connection; meanwhile and afterwards others are served.
async fn slow_readers_are_given_up(runtime: Runtime) {
    let options =
        ServerOptions { memory_bytes_max: 24 << 20, stall_timeout: Duration::from_millis(400), ..Default::default() };
    let site = serve(&runtime, options).await;
    let relay = Relay::start(&runtime, &site.address).await;
    let lazy = connector(&runtime, "h2").channel(&relay.address);
    let read = pb::ReadReplica { length: 8 << 20, ..Default::default() };
    lazy.call_with(&read, vec![], LONG).await.unwrap();
    relay.freeze();
    // The answers of the first lazy calls fill socket buffers and memory.
    let calls: Vec<_> = (0..16)
        .map(|_| {
            let (lazy, read) = (lazy.clone(), read);
            runtime.spawn("call", async move { lazy.call_with(&read, vec![], Duration::from_secs(3)).await })
        })
        .collect();
    let other = connector(&runtime, "h3").channel(&site.address);
    for _ in 0..5 {
        other.call_with(&read, vec![], LONG).await.unwrap();
    }
    for call in calls {
        assert!(call.join().await.unwrap().is_err());
    }
    relay.thaw();
    lazy.call_with(&read, vec![], LONG).await.unwrap();
}

both!(slow_readers_are_given_up);

/// A small call does not wait behind big ones: it is answered while 8 MiB answers are on the way that their caller does
/// not read.
async fn small_calls_do_not_wait_behind_big_ones(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let channel = connector(&runtime, "h2").channel(&site.address);
    let read = pb::ReadReplica { length: 8 << 20, ..Default::default() };
    let big: Vec<_> = (0..12)
        .map(|_| {
            let (channel, read) = (channel.clone(), read);
            runtime.spawn("big", async move { channel.call_with(&read, vec![], LONG).await.unwrap().payload.len() })
        })
        .collect();
    let small: Vec<_> = (0..50)
        .map(|_| {
            let channel = channel.clone();
            runtime.spawn("small", async move { small_call(&channel, LONG).await.unwrap() })
        })
        .collect();
    for call in small {
        call.join().await.unwrap();
    }
    for call in big {
        assert_eq!(call.join().await.unwrap(), 8 << 20);
    }
}

both!(small_calls_do_not_wait_behind_big_ones);

/// A file, and how often the server said that it cannot be read.
struct FileService(File, Arc<AtomicUsize>);

impl Service for FileService {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        Box::pin(async move {
            let message: pb::ReadReplica = request.decode()?;
            let half = message.length / 2;
            let ranges = vec![
                (self.0.clone(), message.offset, half),
                (self.0.clone(), message.offset + half, message.length - half),
            ];
            Ok(Answer::with(&pb::ReadReplicaReply::default(), Payload::Files(ranges)))
        })
    }

    fn note_unreadable_file(&self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

async fn files_are_sent_and_short_ones_break_the_connection(runtime: Runtime, dir: &Path) {
    let len = (5 << 20) + 123;
    runtime.disk().create_dir_all(dir).await.unwrap();
    let file = runtime.disk().open(&dir.join("payload"), OpenMode::Create).await.unwrap();
    file.write_at(0, vec![pattern(0, len)]).await.unwrap();
    let echo = Echo::new(&runtime);
    let options = ServerOptions::default();
    let unreadable = Arc::new(AtomicUsize::new(0));
    let service = Arc::new(FileService(file, unreadable.clone()));
    let site = serve_with(&runtime, options, identity("h1", Role::Block), service, echo).await;
    let connector = connector(&runtime, "h2");
    let channel = connector.channel(&site.address);
    for (offset, length) in [(0, len as u64), (4096, 1), (77, 2 << 20), (5, 0)] {
        let message = pb::ReadReplica { offset, length, ..Default::default() };
        let response = channel.call_with(&message, vec![], LONG).await.unwrap();
        assert_eq!(response.payload, pattern(offset, length as usize), "{length} bytes from {offset}");
    }
    assert_eq!(unreadable.load(Ordering::SeqCst), 0);
    let beyond = pb::ReadReplica { offset: len as u64 - 10, length: 4 << 20, ..Default::default() };
    assert_eq!(channel.call_with(&beyond, vec![], LONG).await.unwrap_err().kind(), ErrorKind::Disconnected);
    assert_eq!(unreadable.load(Ordering::SeqCst), 1, "the service is told");
    let message = pb::ReadReplica { offset: 0, length: 4, ..Default::default() };
    assert_eq!(channel.call_with(&message, vec![], LONG).await.unwrap().payload, pattern(0, 4));
}

mod files_are_sent_and_short_ones_break_the_connection {
    #[test]
    fn real() {
        let dir = tempfile::tempdir().unwrap();
        super::real(|runtime| super::files_are_sent_and_short_ones_break_the_connection(runtime, dir.path()));
    }

    #[test]
    fn virtual_world() {
        super::virt(|runtime| super::files_are_sent_and_short_ones_break_the_connection(runtime, "/data".as_ref()));
    }
}

/// A peer that stops in the middle of a request gives its memory back when it is given up.
async fn a_peer_that_stops_in_mid_request_is_given_up(runtime: Runtime) {
    let options =
        ServerOptions { memory_bytes_max: 1, stall_timeout: Duration::from_millis(200), ..Default::default() };
    let site = serve(&runtime, options).await;
    let mut stopped = Vec::new();
    for _ in 0..3 {
        let stream = runtime.connect(&site.address).await.unwrap();
        let counters = Counters::default();
        let (_, mut stream) =
            crate::handshake::greet(&runtime, stream, &identity("h4", Role::Mount), &counters).await.unwrap();
        let header = ebb_wire::FrameHeader {
            kind: ebb_wire::FrameKind::Request,
            method: ebb_wire::Method::WriteReplica as u16,
            request: 1,
            message_len: 0,
            payload_len: 16 << 20,
            deadline_ms: 60_000,
        };
        stream.write.write_all(&header.encode()).await.unwrap();
        stopped.push(stream);
    }
    let channel = connector(&runtime, "h2").channel(&site.address);
    let answered = channel.call_with(&pb::ReadReplica::default(), vec![pattern(0, 16 << 20)], LONG).await.unwrap();
    assert_eq!(answered.payload.len(), 16 << 20);
}

both!(a_peer_that_stops_in_mid_request_is_given_up);
