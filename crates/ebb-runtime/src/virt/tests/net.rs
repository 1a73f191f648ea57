//! Effects of links and kernels on connections.

use std::io;
use std::ops::Range;
use std::time::Duration;

use ebb_types::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::{LinkOptions, Process, Small, World, WorldOptions};
use super::with_seeds;
use crate::Stream;
use crate::net::UNACKNOWLEDGED_MAX;

/// Processes h1 and h2, and a connection between them: h1's end and h2's.
async fn connected(world: &World) -> (Process, Process, Stream, Stream) {
    let (server, client) = (world.process("h1"), world.process("h2"));
    let listener = server.runtime().listen("0.0.0.0:7000").await.unwrap();
    assert_eq!(listener.address(), "10.0.0.1:7000");
    let ours = client.runtime().connect("h1:7000").await.unwrap();
    let theirs = listener.accept().await.unwrap();
    (server, client, theirs, ours)
}

/// Connections outlive a cut of minutes.
fn with_patient_kernels<F: Future<Output = ()>>(seeds: Range<u64>, test: impl Fn(World) -> F) {
    for seed in seeds {
        let options = WorldOptions { retransmit_limit: Duration::from_secs(924), ..WorldOptions::default() };
        World::run(seed, options, &test);
    }
}

#[test]
fn a_crash_resets_connections_and_frees_the_port() {
    with_seeds(0..20, |world| async move {
        let (server, client, mut theirs, mut ours) = connected(&world).await;
        theirs.write.write_all(&[1; 1000]).await.unwrap();
        world.sleep(Duration::from_millis(10)).await;
        theirs.write.write_all(&[2; 1000]).await.unwrap();
        server.crash();
        assert!(theirs.write.write_all(b"x").await.is_err(), "the dead do not write");
        // Bytes that had arrived are read; bytes under way may be; then comes the reset.
        let mut got = Vec::new();
        let error = ours.read.read_to_end(&mut got).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(got.len() >= 1000 && got[..1000].iter().all(|byte| *byte == 1), "{} bytes", got.len());
        assert!(ours.write.write_all(b"x").await.is_err());
        let error = client.runtime().connect("h1:7000").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        let listener = server.restart().listen("0.0.0.0:7000").await.unwrap();
        client.runtime().connect("h1:7000").await.unwrap();
        listener.accept().await.unwrap();
    });
}

#[test]
fn a_killed_process_closes_its_connections() {
    with_seeds(0..20, |world| async move {
        let (server, _, mut theirs, mut ours) = connected(&world).await;
        theirs.write.write_all(&[1; 100_000]).await.unwrap();
        server.kill();
        let mut got = Vec::new();
        ours.read.read_to_end(&mut got).await.unwrap();
        assert_eq!(got.len(), 100_000, "the kernel sends the bytes that it has been given");
    });
    with_seeds(0..20, |world| async move {
        let (server, _, _theirs, mut ours) = connected(&world).await;
        ours.write.write_all(b"never read").await.unwrap();
        world.sleep(Duration::from_millis(10)).await;
        server.kill();
        let error = ours.read.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_host_without_power_is_silent_until_it_is_back() {
    with_patient_kernels(0..10, |world| async move {
        let (server, client, _theirs, mut ours) = connected(&world).await;
        server.power_off();
        ours.write.write_all(b"anybody there?").await.unwrap();
        let runtime = client.runtime();
        let silent = runtime.timeout(Duration::from_secs(60), "an answer", async {
            let _ = ours.read.read(&mut [0; 8]).await;
            Ok(())
        });
        assert_eq!(silent.await.unwrap_err().kind(), ErrorKind::Timeout);
        let start = world.now();
        assert_eq!(runtime.connect("h1:7000").await.unwrap_err().kind(), ErrorKind::Unreachable);
        assert!(world.now() - start > Duration::from_secs(120));
        server.restart();
        let error = ours.read.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "the new kernel knows no such connection");
    });
}

#[test]
fn a_frozen_process_hangs_its_peers_but_its_kernel_listens() {
    with_seeds(0..10, |world| async move {
        let (server, client) = (world.process("h1"), world.process("h2"));
        let runtime = server.runtime();
        let listener = runtime.listen("0.0.0.0:7000").await.unwrap();
        runtime.clone().spawn("answer", async move {
            loop {
                let mut stream = listener.accept().await.unwrap();
                runtime.spawn("one", async move {
                    let number = stream.read.read_u32().await.unwrap();
                    stream.write.write_u32(number + 1).await.unwrap();
                });
            }
        });
        world.sleep(Duration::from_millis(1)).await;
        server.freeze();
        // The kernel accepts the connection and takes the bytes, and no process answers.
        let mut stream = client.runtime().connect("h1:7000").await.unwrap();
        stream.write.write_u32(41).await.unwrap();
        let runtime = client.runtime();
        let answer = async { Ok(stream.read.read_u32().await.unwrap()) };
        let hung = runtime.timeout(Duration::from_secs(5), "an answer", answer).await;
        assert_eq!(hung.unwrap_err().kind(), ErrorKind::Timeout);
        server.thaw();
        assert_eq!(stream.read.read_u32().await.unwrap(), 42);
    });
}

#[test]
fn a_partition_holds_bytes_back_and_healing_delivers_them_in_order() {
    with_patient_kernels(0..20, |world| async move {
        let (_, client, mut theirs, mut ours) = connected(&world).await;
        world.partition("h1", "h2");
        for number in 0..1000_u32 {
            ours.write.write_u32(number).await.unwrap();
        }
        let runtime = client.runtime();
        let nothing = runtime.timeout(Duration::from_secs(30), "bytes", async {
            let _ = theirs.read.read_u32().await;
            Ok(())
        });
        assert_eq!(nothing.await.unwrap_err().kind(), ErrorKind::Timeout);
        assert!(world.faults()["held_segment"] >= 1);
        let dialed = runtime.timeout(Duration::from_secs(5), "connecting", runtime.connect("h1:7000")).await;
        assert_eq!(dialed.unwrap_err().kind(), ErrorKind::Timeout);
        world.heal();
        for number in 1000..1010_u32 {
            ours.write.write_u32(number).await.unwrap();
        }
        let start = world.now();
        for number in 0..1010_u32 {
            assert_eq!(theirs.read.read_u32().await.unwrap(), number);
        }
        assert!(world.now() - start <= Duration::from_secs(13));
        // And on as ever.
        ours.write.write_u32(5).await.unwrap();
        assert_eq!(theirs.read.read_u32().await.unwrap(), 5);
    });
}

#[test]
fn a_one_way_partition_lets_the_other_way_through() {
    with_seeds(0..10, |world| async move {
        let (_, client, mut theirs, mut ours) = connected(&world).await;
        world.partition_one_way("h1", "h2");
        ours.write.write_u32(1).await.unwrap();
        assert_eq!(theirs.read.read_u32().await.unwrap(), 1);
        theirs.write.write_u32(2).await.unwrap();
        let runtime = client.runtime();
        let answer = async { Ok(ours.read.read_u32().await.unwrap()) };
        let held = runtime.timeout(Duration::from_secs(5), "an answer", answer).await;
        assert_eq!(held.unwrap_err().kind(), ErrorKind::Timeout);
        world.heal();
        assert_eq!(ours.read.read_u32().await.unwrap(), 2);
    });
}

#[test]
fn a_connection_breaks_when_a_partition_lasts() {
    with_seeds(0..5, |world| async move {
        let (_, _, mut theirs, mut ours) = connected(&world).await;
        world.partition("h1", "h2");
        ours.write.write_u32(1).await.unwrap();
        let start = world.now();
        let error = ours.read.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let took = world.now() - start;
        assert!(took >= UNACKNOWLEDGED_MAX && took < UNACKNOWLEDGED_MAX + Duration::from_secs(1), "{took:?}");
        assert_eq!(world.faults()["connection_timed_out"], 1);
        // The other side has heard nothing. When it speaks, after healing, it learns.
        world.heal();
        drop(ours);
        theirs.write.write_u32(1).await.unwrap();
        assert!(theirs.read.read(&mut [0; 8]).await.is_err());
    });
}

#[test]
fn links_have_latency_and_bandwidth() {
    World::run(1, WorldOptions::default(), |world| async move {
        let slow = LinkOptions {
            latency: Duration::from_millis(20),
            jitter: Duration::ZERO,
            bandwidth_bytes_per_sec: 1_000_000,
            small: None,
        };
        let (_, _, mut theirs, mut ours) = connected(&world).await;
        world.link("h2", "h1", slow);
        let start = world.now();
        ours.write.write_all(&[1; 1_000_000]).await.unwrap();
        let mut got = vec![0; 1_000_000];
        theirs.read.read_exact(&mut got).await.unwrap();
        let took = world.now() - start;
        assert!(took >= Duration::from_millis(1020) && took < Duration::from_millis(1200), "{took:?}");
        let start = world.now();
        theirs.write.write_u8(1).await.unwrap();
        ours.read.read_u8().await.unwrap();
        assert!(world.now() - start < Duration::from_millis(1), "the way back is as it was");
    });
}

/// A byte of data that stands for many flows slowly; a short message stands for itself.
#[test]
fn short_messages_may_flow_at_a_rate_of_their_own() {
    World::run(1, WorldOptions::default(), |world| async move {
        let link = LinkOptions {
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            bandwidth_bytes_per_sec: 1_000,
            small: Some(Small { bytes_max: 100, bandwidth_bytes_per_sec: 100_000 }),
        };
        let (_, _, mut theirs, mut ours) = connected(&world).await;
        world.link("h2", "h1", link);
        for (bytes, ms) in [(100, 1), (101, 101)] {
            let start = world.now();
            ours.write.write_all(&vec![1; bytes]).await.unwrap();
            theirs.read.read_exact(&mut vec![0; bytes]).await.unwrap();
            assert_eq!((world.now() - start).as_millis(), ms, "{bytes} bytes");
        }
    });
}

/// A port of its own bandwidth serves many slow peers at once, and each of them is as slow as its own port.
#[test]
fn a_fast_port_receives_from_slow_ones_side_by_side() {
    World::run(1, WorldOptions { short_transfer: 0.0, ..WorldOptions::default() }, |world| async move {
        let hub = world.process("hub");
        let listener = hub.runtime().listen("0.0.0.0:7000").await.unwrap();
        world.port("hub", 4_000_000);
        let (mut sending, mut receiving) = (Vec::new(), Vec::new());
        for peer in 0..8 {
            let name = format!("peer{peer}");
            world.port(&name, 1_000_000);
            sending.push(world.process(&name).runtime().connect("hub:7000").await.unwrap());
            receiving.push(listener.accept().await.unwrap());
        }
        for (count, ms) in [(1, 1000), (4, 1000), (8, 2000)] {
            let start = world.now();
            for stream in &mut sending[..count] {
                stream.write.write_all(&[1; 1_000_000]).await.unwrap();
            }
            for stream in &mut receiving[..count] {
                stream.read.read_exact(&mut vec![0; 1_000_000]).await.unwrap();
            }
            let took = (world.now() - start).as_millis();
            assert!((ms..ms + ms / 10).contains(&took), "{count} peers: {took} ms");
        }
    });
}

/// While one connection sends much, another one has its turn after each segment.
#[test]
fn short_segments_let_others_pass() {
    let took = |segment_bytes_max| {
        let options = WorldOptions { segment_bytes_max, short_transfer: 0.0, ..WorldOptions::default() };
        World::run(1, options, |world| async move {
            let link = LinkOptions { bandwidth_bytes_per_sec: 64_000, ..LinkOptions::default() };
            let (_, _, mut theirs, mut ours) = connected(&world).await;
            world.link("h2", "h1", link);
            world.link("h1", "h2", link);
            let start = world.now();
            ours.write.write_all(&vec![1; 64_000]).await.unwrap();
            theirs.read.read_exact(&mut [0; 1]).await.unwrap();
            world.now() - start
        })
    };
    assert!(took(64_000) > Duration::from_millis(999) && took(1_000) < Duration::from_millis(17));
}

#[test]
fn processes_of_one_host_share_its_ports_and_not_its_disk() {
    World::run(1, WorldOptions::default(), |world| async move {
        let (one, two) = (world.process_on("h1", "one"), world.process_on("h1", "two"));
        let listener = one.runtime().listen("127.0.0.1:7000").await.unwrap();
        assert_eq!(two.runtime().listen("0.0.0.0:7000").await.unwrap_err().kind(), ErrorKind::Busy);
        two.runtime().connect(&listener.address()).await.unwrap();
        listener.accept().await.unwrap();
        let path = std::path::Path::new("/d");
        one.runtime().disk().create_dir_all(path).await.unwrap();
        assert!(!two.runtime().disk().exists(path).await.unwrap());
    });
}
