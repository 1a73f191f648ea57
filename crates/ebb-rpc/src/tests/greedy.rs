//! Peers that prove themselves and then take all that they can, and strangers that keep coming: those beside them are served.

use std::time::Duration;

use ebb_runtime::Stream;
use ebb_runtime::virt::Process;
use ebb_types::ErrorKind;
use ebb_wire::{FrameHeader, FrameKind, Message};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::handshake;

/// In which a peer beside a greedy one is served.
const BOUND: Duration = Duration::from_secs(2);
const BULK: usize = 16 << 20;

/// A server on `h1`, and processes on `h2` (within its share) and `h9` (greedy), each with an address of its own.
fn world<F: Future<Output = ()>>(options: ServerOptions, test: impl Fn(String, Runtime, Runtime) -> F) {
    for seed in 0..3 {
        World::run(seed, WorldOptions::default(), |world| {
            let [server, good, greedy]: [Process; 3] = ["h1", "h2", "h9"].map(|host| world.process(host));
            let (options, test) = (options.clone(), &test);
            async move {
                let runtime = server.runtime();
                let listener = runtime.listen("0.0.0.0:7001").await.unwrap();
                let (echo, counters) = (Echo::new(&runtime), Counters::default());
                let running =
                    Server::run(runtime.clone(), listener, by_word("h1", Role::Block), counters, options, echo);
                runtime.spawn("server", running);
                test(format!("{}:7001", server.ip()), good.runtime(), greedy.runtime()).await;
            }
        });
    }
}

pub async fn proved(runtime: &Runtime, address: &str, identity: &Identity) -> ebb_types::Result<Stream> {
    let stream = runtime.connect(address).await?;
    let (_, stream) = handshake::greet(runtime, stream, identity, &Counters::default()).await?;
    Ok(stream)
}

/// The beginning of a request that announces `payload_len` bytes.
pub fn opening(method: Method, message: &impl Message, payload_len: usize) -> Vec<u8> {
    let message = message.encode_to_vec();
    let header = FrameHeader {
        kind: FrameKind::Request,
        method: method as u16,
        request: 1,
        message_len: message.len() as u32,
        payload_len: payload_len as u32,
        deadline_ms: u32::MAX,
    };
    [&header.encode()[..], &message[..]].concat()
}

/// Sends a byte each ten seconds, as long as the server takes them; when it ends, how long that was.
async fn trickle(runtime: &Runtime, stream: &mut Stream) -> Duration {
    let begun = runtime.now();
    loop {
        let ended = tokio::select! {
            biased;
            read = stream.read.read_u8() => read.is_err(),
            () = runtime.sleep(Duration::from_secs(10)) => stream.write.write_all(&[7]).await.is_err(),
        };
        if ended {
            return runtime.now().since(begun);
        }
    }
}

/// Bulk and small calls of the peer that behaves, each within the bound.
async fn is_served(runtime: &Runtime, address: &str) {
    let channel = connector_by_word(runtime, "h2").channel(address);
    small_call(&channel, BOUND).await.unwrap();
    let echo = pb::ReadReplica::default();
    let answered = channel.call_with(&echo, vec![pattern(0, BULK)], BOUND).await.unwrap();
    assert_eq!(answered.payload.len(), BULK);
}

#[test]
fn frames_that_come_byte_by_byte_leave_memory_for_others() {
    world(ServerOptions::default(), async |address, good, greedy| {
        for _ in 0..40 {
            let mut stream = proved(&greedy, &address, &by_word("h9", Role::Mount)).await.unwrap();
            stream.write.write_all(&opening(Method::WriteReplica, &pb::WriteReplica::default(), BULK)).await.unwrap();
            let runtime = greedy.clone();
            greedy.spawn("trickle", async move { trickle(&runtime, &mut stream).await });
        }
        for _ in 0..3 {
            is_served(&good, &address).await;
            good.sleep(Duration::from_secs(20)).await;
        }
    });
}

/// Each comes from a host of its own and holds one frame, so that their shares are all the memory.
#[test]
fn many_slow_peers_hold_up_no_small_calls_and_large_ones_for_a_bounded_time() {
    let options = ServerOptions { bytes_per_sec_min: 4 << 20, ..ServerOptions::default() };
    world(options, async |address, good, greedy| {
        for number in 0..30 {
            let mut stream = proved(&greedy, &address, &by_word(&format!("g{number}"), Role::Mount)).await.unwrap();
            stream.write.write_all(&opening(Method::WriteReplica, &pb::WriteReplica::default(), BULK)).await.unwrap();
            let runtime = greedy.clone();
            greedy.spawn("trickle", async move { trickle(&runtime, &mut stream).await });
        }
        let channel = connector_by_word(&good, "h2").channel(&address);
        small_call(&channel, BOUND).await.unwrap();
        // 13 of them at a time, 15 s and 4 s each: in the third turn.
        let echo = pb::ReadReplica::default();
        channel.call_with(&echo, vec![pattern(0, BULK)], Duration::from_secs(60)).await.unwrap();
        small_call(&channel, BOUND).await.unwrap();
    });
}

#[test]
fn a_frame_slower_than_the_least_rate_ends_its_connection() {
    world(ServerOptions::default(), async |address, _, greedy| {
        // Small ones, too: they take places, and tasks.
        for (len, seconds) in [(100, 15), (1 << 20, 15 + 32)] {
            let mut stream = proved(&greedy, &address, &by_word("h9", Role::Mount)).await.unwrap();
            let opening = opening(Method::WriteReplica, &pb::WriteReplica::default(), len);
            stream.write.write_all(&opening).await.unwrap();
            let lived = trickle(&greedy, &mut stream).await.as_secs();
            assert!((seconds - 1..=seconds + 11).contains(&lived), "{len} bytes: {lived} s");
        }
    });
}

#[test]
fn memory_goes_back_when_the_caller_has_stopped_waiting_and_the_connection_goes_on() {
    world(ServerOptions::default(), async |address, good, greedy| {
        let mut stream = proved(&greedy, &address, &by_word("h9", Role::Mount)).await.unwrap();
        let mut late = opening(Method::WriteReplica, &pb::WriteReplica::default(), BULK);
        // The deadline, as it lies in the header: one second.
        let header = FrameHeader { deadline_ms: 1000, ..FrameHeader::decode(late.first_chunk().unwrap()).unwrap() };
        late[..ebb_wire::HEADER_LEN].copy_from_slice(&header.encode());
        stream.write.write_all(&late).await.unwrap();
        greedy.sleep(Duration::from_secs(3)).await;
        // The rest comes after all, and another request behind it.
        stream.write.write_all(&pattern(0, BULK)).await.unwrap();
        stream.write.write_all(&opening(Method::Counters, &pb::Counters {}, 0)).await.unwrap();
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let mut header = [0; ebb_wire::HEADER_LEN];
            stream.read.read_exact(&mut header).await.unwrap();
            let header = FrameHeader::decode(&header).unwrap();
            stream.read.read_exact(&mut vec![0; header.message_len as usize]).await.unwrap();
            kinds.push(header.kind);
        }
        assert_eq!(kinds, [FrameKind::Failure, FrameKind::Reply]);
        is_served(&good, &address).await;
    });
}

#[test]
fn unread_answers_leave_memory_for_others() {
    // Memory for less than the requests need: 24 answers of 4 MiB.
    let options = ServerOptions { memory_bytes_max: 64 << 20, ..ServerOptions::default() };
    world(options, async |address, good, greedy| {
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut stream = proved(&greedy, &address, &by_word("h9", Role::Mount)).await.unwrap();
            for _ in 0..6 {
                let read = pb::ReadReplica { length: 4 << 20, ..Default::default() };
                stream.write.write_all(&opening(Method::ReadReplica, &read, 0)).await.unwrap();
            }
            held.push(stream);
        }
        for _ in 0..4 {
            is_served(&good, &address).await;
            good.sleep(Duration::from_secs(4)).await;
        }
        drop(held);
    });
}

#[test]
fn a_greedy_host_leaves_connections_for_others() {
    let options = ServerOptions { connections_max: 64, ..ServerOptions::default() };
    world(options, async |address, good, greedy| {
        let mut held = Vec::new();
        let refused = loop {
            match proved(&greedy, &address, &by_word("h9", Role::Mount)).await {
                Ok(stream) => held.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!((held.len(), refused.kind()), (32, ErrorKind::Overloaded));
        assert!(refused.detail().contains("host h9 has 32 of the server's 64 connections"), "{refused}");
        is_served(&good, &address).await;
    });
}

#[test]
fn strangers_that_keep_coming_from_one_address_lock_no_other_out() {
    world(ServerOptions::default(), async |address, good, greedy| {
        let target = address.clone();
        let strangers = greedy.clone();
        greedy.spawn("strangers", async move {
            let mut silent = Vec::new();
            loop {
                // Twice as many as 128 places of five seconds take.
                silent.extend(strangers.connect(&target).await.ok());
                strangers.sleep(Duration::from_millis(20)).await;
            }
        });
        good.sleep(Duration::from_secs(30)).await;
        for host in ["h2", "h3", "h4"] {
            small_call(&connector_by_word(&good, host).channel(&address), Duration::from_secs(1)).await.unwrap();
        }
    });
}
