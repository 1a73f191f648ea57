//! Peers that freeze, vanish and come back.

use std::time::Duration;

use ebb_runtime::Runtime;
use ebb_types::ErrorKind;
use ebb_wire::pb;

use super::relay::Relay;
use super::*;

async fn a_frozen_peer_is_redialed_and_served_after_it_thaws(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let relay = Relay::start(&runtime, &site.address).await;
    let channel = connector(&runtime, "h2").channel(&relay.address);
    small_call(&channel, LONG).await.unwrap();
    assert_eq!(*relay.accepted.borrow(), 1);
    relay.freeze();
    let mut kinds = Vec::new();
    for _ in 0..6 {
        kinds.push(small_call(&channel, Duration::from_millis(400)).await.unwrap_err().kind());
    }
    assert_eq!(kinds[0], ErrorKind::Timeout, "a call on the connection that stood: {kinds:?}");
    assert_eq!(kinds[5], ErrorKind::Unreachable, "a call that waited for a new connection: {kinds:?}");
    assert!(*relay.accepted.borrow() >= 2, "the silent connection was given up");
    relay.thaw();
    let mut tries = 0;
    while let Err(error) = small_call(&channel, LONG).await {
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        tries += 1;
        assert!(tries < 100, "{error}");
        runtime.sleep(Duration::from_millis(50)).await;
    }
}

both!(a_frozen_peer_is_redialed_and_served_after_it_thaws);

/// A short freeze, shorter than patience: the connection stays, and later calls are answered on it.
async fn a_short_freeze_keeps_the_connection(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let relay = Relay::start(&runtime, &site.address).await;
    let channel = connector(&runtime, "h2").channel(&relay.address);
    small_call(&channel, LONG).await.unwrap();
    relay.freeze();
    for _ in 0..2 {
        assert_eq!(small_call(&channel, Duration::from_millis(50)).await.unwrap_err().kind(), ErrorKind::Timeout);
    }
    relay.thaw();
    for _ in 0..20 {
        small_call(&channel, LONG).await.unwrap();
    }
    assert_eq!(*relay.accepted.borrow(), 1);
}

both!(a_short_freeze_keeps_the_connection);

/// Calls that take long are no sign of silence as long as others are answered.
async fn slow_calls_are_no_silence(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let relay = Relay::start(&runtime, &site.address).await;
    let channel = connector(&runtime, "h2").channel(&relay.address);
    let patient = channel.clone();
    let patient = runtime.spawn("patient", async move { slow_call(&patient, 3000, LONG).await });
    for _ in 0..6 {
        assert_eq!(
            slow_call(&channel, 60_000, Duration::from_millis(350)).await.unwrap_err().kind(),
            ErrorKind::Timeout
        );
        small_call(&channel, LONG).await.unwrap();
    }
    patient.join().await.unwrap().unwrap();
    assert_eq!(*relay.accepted.borrow(), 1);
}

both!(slow_calls_are_no_silence);

async fn a_connection_cut_in_mid_payload_fails_its_call_only(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let relay = Relay::start(&runtime, &site.address).await;
    relay.allow(700_000);
    let channel = connector(&runtime, "h2").channel(&relay.address);
    let read = pb::ReadReplica { length: 1 << 20, ..Default::default() };
    let cut = channel.call_with(&read, vec![], LONG).await.unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::Disconnected, "{cut}");
    relay.allow(u64::MAX);
    assert_eq!(channel.call_with(&read, vec![], LONG).await.unwrap().payload, pattern(0, 1 << 20));
}

both!(a_connection_cut_in_mid_payload_fails_its_call_only);

/// A server that restarts on its address is found again; the pause between dials stays short.
async fn a_restarted_server_is_found_again(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let relay = Relay::start(&runtime, &site.address).await;
    let channel = connector(&runtime, "h2").channel(&relay.address);
    small_call(&channel, LONG).await.unwrap();
    // Every dial ends before the handshake does, as with a server that is going down.
    relay.allow(10);
    relay.freeze();
    let waiting = channel.clone();
    let waiting = runtime.spawn("call", async move { slow_call(&waiting, 10, Duration::from_secs(2)).await });
    assert_eq!(waiting.join().await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    for _ in 0..2 {
        assert!(small_call(&channel, Duration::from_millis(100)).await.is_err());
    }
    relay.thaw();
    relay.allow(u64::MAX);
    let mut tries = 0;
    while small_call(&channel, LONG).await.is_err() {
        tries += 1;
        assert!(tries < 200);
        runtime.sleep(Duration::from_millis(20)).await;
    }
}

both!(a_restarted_server_is_found_again);

const MIB: usize = 1 << 20;
const DEADLINE: Duration = Duration::from_secs(2);

/// Sends writes of a MiB each at once: their outcomes, and how long the last one took.
async fn long_writes(
    runtime: &Runtime,
    channel: &Channel,
    metablocks: impl Iterator<Item = u64>,
) -> (Vec<Result<()>>, Duration) {
    let begun = runtime.now();
    let payload = pattern(0, MIB);
    let tasks: Vec<_> = metablocks
        .map(|metablock| {
            let (channel, payload) = (channel.clone(), payload.clone());
            runtime.spawn("long write", async move {
                let write = pb::WriteReplica { metablock, ..Default::default() };
                channel.call_with(&write, vec![payload], DEADLINE).await.map(drop)
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.join().await.unwrap());
    }
    (outcomes, runtime.now().since(begun))
}

/// A program writes faster than the link carries: what waits here for longer than a deadline is answered all the same.
async fn time_in_front_of_a_slow_link_does_not_count(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let relay = Relay::start(&runtime, &site.address).await;
    relay.slow_down(4 * MIB);
    let channel = connector(&runtime, "h2").channel(&relay.address);
    let (outcomes, took) = long_writes(&runtime, &channel, 0..40).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert!(took > DEADLINE * 2, "the link was not slow: {took:?}");
    assert_eq!(*relay.accepted.borrow(), 2, "one connection for each lane");
}

both!(time_in_front_of_a_slow_link_does_not_count);

/// A frozen peer takes bytes until the buffers are full; from then on the deadlines run.
async fn a_frozen_peer_is_found_by_what_waits_for_it(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let relay = Relay::start(&runtime, &site.address).await;
    let channel = connector(&runtime, "h2").channel(&relay.address);
    let (outcomes, _) = long_writes(&runtime, &channel, 0..4).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    relay.freeze();
    let (outcomes, took) = long_writes(&runtime, &channel, 0..40).await;
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    assert!(took < DEADLINE + DEADLINE / 2, "{took:?}");
}

both!(a_frozen_peer_is_found_by_what_waits_for_it);

/// Writes of one metablock wait for each other at the server: none gets ahead by way of another connection.
async fn writes_of_a_metablock_go_over_one_connection(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let relay = Relay::start(&runtime, &site.address).await;
    let channel = connector(&runtime, "h2").channel(&relay.address);
    let (outcomes, _) = long_writes(&runtime, &channel, std::iter::repeat_n(7, 20)).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(*relay.accepted.borrow(), 1);
}

both!(writes_of_a_metablock_go_over_one_connection);

/// A server that passes a request on waits for its own link: its caller waits as long as it hears so, and no longer.
async fn a_caller_waits_while_it_hears_that_its_request_is_held_up(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let channel = connector(&runtime, "h2").channel(&site.address);
    let held_up = |tells| pb::WriteReplica { length: 2000, offset: tells, ..Default::default() };
    let deadline = Duration::from_millis(700);
    let begun = runtime.now();
    channel.call(&held_up(8), deadline).await.unwrap();
    assert!(runtime.now().since(begun) >= Duration::from_secs(2));
    let begun = runtime.now();
    assert_eq!(channel.call(&held_up(3), deadline).await.unwrap_err().kind(), ErrorKind::Timeout);
    let took = runtime.now().since(begun);
    assert!((1200..1900).contains(&took.as_millis()), "told for 600 ms: {took:?}");
}

both!(a_caller_waits_while_it_hears_that_its_request_is_held_up);
