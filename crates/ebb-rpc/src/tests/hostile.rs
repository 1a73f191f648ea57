//! Bytes that no Ebb sends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_runtime::Runtime;
use ebb_wire::{FrameHeader, FrameKind, Message, Method, pb};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::handshake;

/// The bytes that a hostile peer sends after (or instead of) the handshake.
#[derive(Clone, Debug)]
struct Attack {
    proved: bool,
    bytes: Vec<u8>,
}

fn frame(kind: FrameKind, method: u16, message: &[u8], payload: &[u8], lie: (i32, i32)) -> Vec<u8> {
    let header = FrameHeader {
        kind,
        method,
        request: 3,
        message_len: (message.len() as u32).saturating_add_signed(lie.0),
        payload_len: (payload.len() as u32).saturating_add_signed(lie.1),
        deadline_ms: 1000,
    };
    [&header.encode()[..], message, payload].concat()
}

/// Frames as they should be, with a few bytes changed, lengths that lie, or an end that is missing.
fn mutated_frames() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        4 => Just(FrameKind::Request),
        1 => Just(FrameKind::Reply),
        1 => Just(FrameKind::Failure),
        1 => Just(FrameKind::Hello)
    ];
    let method = prop_oneof![
        3 => proptest::sample::select(Method::ALL).prop_map(|method| method as u16),
        1 => any::<u16>()
    ];
    let message = prop_oneof![
        Just(pb::ReadReplica { length: 100, ..Default::default() }.encode_to_vec()),
        proptest::collection::vec(any::<u8>(), 0..200)
    ];
    let payload = proptest::collection::vec(any::<u8>(), 0..300);
    let lie = prop_oneof![6 => Just((0, 0)), 1 => (any::<i32>(), any::<i32>()), 1 => (-50..50_i32, -50..50_i32)];
    let frame = (kind, method, message, payload, lie)
        .prop_map(|(kind, method, message, payload, lie)| frame(kind, method, &message, &payload, lie));
    let changes = proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..3);
    let cut = proptest::option::of(any::<proptest::sample::Index>());
    (proptest::collection::vec(frame, 1..4), changes, cut).prop_map(|(frames, changes, cut)| {
        let mut bytes = frames.concat();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes
    })
}

fn attacks() -> impl Strategy<Value = Attack> {
    let bytes = prop_oneof![
        1 => proptest::collection::vec(any::<u8>(), 0..2000),
        3 => mutated_frames()
    ];
    (any::<bool>(), bytes).prop_map(|(proved, bytes)| Attack { proved, bytes })
}

async fn survive(runtime: &Runtime, site: &Site, attack: &Attack) {
    let mut stream = runtime.connect(&site.address).await.unwrap();
    if attack.proved {
        let counters = Counters::default();
        (_, stream) = handshake::greet(runtime, stream, &identity("h9", Role::Mount), &counters).await.unwrap();
    }
    // The server may close at the first bad byte.
    let _ = stream.write.write_all(&attack.bytes).await;
    let _ = stream.write.shutdown().await;
    let mut answers = Vec::new();
    let reading = async {
        let _ = stream.read.read_to_end(&mut answers).await;
        Ok(())
    };
    runtime.timeout(LONG, "the end of an attacked connection", reading).await.unwrap();
    assert!(attack.proved || answers.len() < 1200, "a stranger gets at most a hello and a refusal");
}

/// With any bytes, the server lives, takes back all its memory and serves the next client.
#[test]
fn a_server_survives_any_bytes() {
    let strategy = proptest::collection::vec(attacks(), 1..6);
    TestRunner::new(Config { cases: 60, ..Config::default() })
        .run(&strategy, |attacks| {
            real(async |runtime| {
                let options = ServerOptions {
                    memory_bytes_max: 21 << 20,
                    stall_timeout: Duration::from_millis(500),
                    ..Default::default()
                };
                let site = serve(&runtime, options).await;
                for attack in &attacks {
                    survive(&runtime, &site, attack).await;
                }
                let channel = connector(&runtime, "h2").channel(&site.address);
                // The largest request needs nearly all the memory that there is.
                let echo = pb::ReadReplica::default();
                let answered = channel.call_with(&echo, vec![pattern(0, 16 << 20)], LONG).await.unwrap();
                assert_eq!(answered.payload.len(), 16 << 20);
                eventually(&runtime, "no request is left", || site.echo.running.load(Ordering::SeqCst) == 0).await;
            });
            Ok(())
        })
        .unwrap();
}

/// A server that sends nonsense does a caller no harm beyond failing its call.
#[test]
fn a_caller_survives_any_bytes() {
    TestRunner::new(Config { cases: 60, ..Config::default() })
        .run(&attacks(), |attack| {
            real(async |runtime| {
                let listener = runtime.listen("127.0.0.1:0").await.unwrap();
                let address = listener.address();
                let world = runtime.clone();
                runtime.spawn("hostile server", async move {
                    while let Ok(mut stream) = listener.accept().await {
                        if attack.proved {
                            let own = identity("h1", Role::Block);
                            let counters = Counters::default();
                            match handshake::receive(&world, stream, &own, &counters, |_| Ok(())).await {
                                Ok((_, (), met)) => stream = met,
                                Err(_) => continue,
                            }
                        }
                        let _ = stream.write.write_all(&attack.bytes).await;
                        let _ = stream.write.shutdown().await;
                        let mut rest = Vec::new();
                        let _ = stream.read.read_to_end(&mut rest).await;
                    }
                });
                let channel = connector(&runtime, "h2").channel(&address);
                let read = pb::ReadReplica { length: 10, ..Default::default() };
                let ended = channel.call_with(&read, vec![], Duration::from_secs(2)).await;
                // Bytes that happen to be a good answer to the first request are one; they carry request 3, so never.
                assert!(ended.is_err(), "{ended:?}");
            });
            Ok(())
        })
        .unwrap();
}
