//! Calls that go well, deadlines, bounds and counters.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_runtime::Runtime;
use ebb_types::ErrorKind;
use ebb_wire::pb;

use super::*;

async fn thousand_calls_at_once(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let connector = connector(&runtime, "h2");
    let calls: Vec<_> = (0..1000_u64)
        .map(|number| {
            let channel = connector.channel(&site.address);
            runtime.spawn("call", async move {
                let message = pb::ReadReplica { offset: number, length: 1 + number % 100, ..Default::default() };
                let response = channel.call_with(&message, vec![], LONG).await.unwrap();
                assert_eq!(response.payload, pattern(number, 1 + (number % 100) as usize));
            })
        })
        .collect();
    for call in calls {
        call.join().await.unwrap();
    }
    assert_eq!(site.echo.answered.load(Ordering::SeqCst), 1000);
    assert_eq!(connector.counters().read().calls, 1000);
}

both!(thousand_calls_at_once);

async fn failures_reach_the_caller(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let channel = connector(&runtime, "h2").channel(&site.address);
    let refused = channel.call(&pb::SyncReplicas::default(), LONG).await.unwrap_err();
    assert_eq!((refused.kind(), refused.detail()), (ErrorKind::NotLeader, "ask m2"));
    let unknown = channel.call(&pb::PutStaged::default(), LONG).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unsupported);
    let huge = channel.call_with(&pb::ReadReplica::default(), vec![pattern(0, 17 << 20)], LONG).await.unwrap_err();
    assert_eq!(huge.kind(), ErrorKind::Invalid);
    let huge_answer = pb::ReadReplica { length: 17 << 20, ..Default::default() };
    assert_eq!(channel.call_with(&huge_answer, vec![], LONG).await.unwrap_err().kind(), ErrorKind::Internal);
    let unreachable = connector(&runtime, "h2").channel("127.0.0.1:1");
    assert_eq!(small_call(&unreachable, LONG).await.unwrap_err().kind(), ErrorKind::Unreachable);
}

both!(failures_reach_the_caller);

#[test]
fn a_panic_in_a_service_is_answered() {
    real(async |runtime| {
        let site = serve(&runtime, ServerOptions::default()).await;
        let channel = connector(&runtime, "h2").channel(&site.address);
        let error = channel.call(&pb::ShortCircuitTicket::default(), LONG).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        small_call(&channel, LONG).await.unwrap();
    });
}

async fn deadlines(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let channel = connector(&runtime, "h2").channel(&site.address);
    small_call(&channel, LONG).await.unwrap();
    let before = runtime.now();
    let late = slow_call(&channel, 60_000, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout);
    let took = runtime.now().since(before);
    assert!(took >= Duration::from_millis(50) && took < Duration::from_secs(30), "{took:?}");
    // The service's future is dropped soon after, long before the sleep is over.
    eventually(&runtime, "the late request is dropped", || site.echo.dropped.load(Ordering::SeqCst) == 1).await;
    // A late answer disturbs no call.
    small_call(&channel, LONG).await.unwrap();
    // A caller that goes away forgets its call.
    tokio::select! {
        biased;
        _ = slow_call(&channel, 200, LONG) => panic!("answered too early"),
        () = runtime.sleep(Duration::from_millis(20)) => {}
    }
    small_call(&channel, LONG).await.unwrap();
    eventually(&runtime, "the forgotten call ends", || site.echo.running.load(Ordering::SeqCst) == 0).await;
    small_call(&channel, LONG).await.unwrap();
}

both!(deadlines);

async fn requests_of_a_connection_are_bounded(runtime: Runtime) {
    let options = ServerOptions { requests_per_connection_max: 4, ..Default::default() };
    let site = serve(&runtime, options).await;
    let channel = connector(&runtime, "h2").channel(&site.address);
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let channel = channel.clone();
            runtime.spawn("call", async move { slow_call(&channel, 30, LONG).await })
        })
        .collect();
    let echo = site.echo.clone();
    let mut most = 0;
    eventually(&runtime, "all are answered", || {
        most = most.max(echo.running.load(Ordering::SeqCst));
        echo.answered.load(Ordering::SeqCst) == 20
    })
    .await;
    assert!((1..=4).contains(&most), "{most} requests ran at once");
    for call in calls {
        call.join().await.unwrap().unwrap();
    }
}

both!(requests_of_a_connection_are_bounded);

/// Waits until the server has counted the same traffic as the caller, from the other end, handshake included.
async fn settled(runtime: &Runtime, site: &Site, connector: &Connector) -> crate::Traffic {
    let mirror = |traffic: crate::Traffic| crate::Traffic {
        network_sent_bytes: traffic.network_received_bytes,
        sub_rack_sent_bytes: traffic.sub_rack_received_bytes,
        sub_rack_received_bytes: traffic.sub_rack_sent_bytes,
        network_received_bytes: traffic.network_sent_bytes,
        local_sent_bytes: traffic.local_received_bytes,
        local_received_bytes: traffic.local_sent_bytes,
        calls: traffic.calls,
    };
    eventually(runtime, "both ends agree", || site.counters.read() == mirror(connector.counters().read())).await;
    connector.counters().read()
}

async fn counters_are_exact(runtime: Runtime) {
    for (host, between_hosts) in [("h2", true), ("h1", false)] {
        let site = serve(&runtime, ServerOptions::default()).await;
        let connector = connector(&runtime, host);
        let channel = connector.channel(&site.address);
        small_call(&channel, LONG).await.unwrap();
        let first = settled(&runtime, &site, &connector).await;
        let echo = pb::ReadReplica::default();
        channel.call_sized(&echo, vec![pattern(0, 1000), pattern(9, 500)], 1500, LONG).await.unwrap();
        let second = settled(&runtime, &site, &connector).await;
        // Header, empty message, payload; header, reply message (field `length` = 1500 takes three bytes), payload.
        let moved = (32 + 1500, 32 + 3 + 1500);
        let network = (
            second.network_sent_bytes - first.network_sent_bytes,
            second.network_received_bytes - first.network_received_bytes,
        );
        let local = (
            second.local_sent_bytes - first.local_sent_bytes,
            second.local_received_bytes - first.local_received_bytes,
        );
        assert_eq!((network, local), if between_hosts { (moved, (0, 0)) } else { ((0, 0), moved) });
        assert_eq!(second.calls, 2);
        assert_eq!(second.network_bytes() > 0, between_hosts);
    }
}

both!(counters_are_exact);
