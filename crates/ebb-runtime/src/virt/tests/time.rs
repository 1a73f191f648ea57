//! Virtual time, freezes, crashes and clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::super::options::Panics;
use super::super::{World, WorldOptions};
use super::with_seeds;

#[test]
fn an_hour_with_a_hundred_thousand_sleeps_takes_seconds() {
    let start = Instant::now();
    let slept = World::run(1, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        let runtime = process.runtime();
        let mut tasks = Vec::new();
        for index in 0..100_u64 {
            let inner = runtime.clone();
            tasks.push(runtime.spawn("sleeper", async move {
                for _ in 0..1000 {
                    inner.sleep(Duration::from_micros(3_600_000 + index)).await;
                }
            }));
        }
        for task in tasks {
            task.join().await.unwrap();
        }
        world.now()
    });
    assert!(slept >= Duration::from_secs(3599), "{slept:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn time_has_nanoseconds() {
    World::run(1, WorldOptions { drift_ppm_max: 0, ..WorldOptions::default() }, |world| async move {
        let runtime = world.process("h1").runtime();
        let start = runtime.now();
        runtime.sleep(Duration::from_nanos(1_001)).await;
        assert_eq!(runtime.now().since(start), Duration::from_nanos(1_001));
        runtime.sleep(Duration::from_micros(250)).await;
        assert_eq!(runtime.now().since(start), Duration::from_nanos(251_001));
        runtime.sleep(Duration::ZERO).await;
        assert_eq!(runtime.now().since(start), Duration::from_nanos(252_001), "even nothing takes a while");
    });
}

/// A counter that goes up each virtual millisecond.
fn ticking(process: &super::super::Process) -> Arc<AtomicU64> {
    let ticks = Arc::new(AtomicU64::new(0));
    let (counter, runtime) = (ticks.clone(), process.runtime());
    process.runtime().spawn("tick", async move {
        loop {
            runtime.sleep(Duration::from_millis(1)).await;
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    ticks
}

#[test]
fn a_frozen_process_stands_still_and_goes_on() {
    with_seeds(0..5, |world| async move {
        let process = world.process("h1");
        let ticks = ticking(&process);
        world.sleep(Duration::from_millis(100)).await;
        process.freeze();
        process.freeze();
        let before = ticks.load(Ordering::Relaxed);
        assert!((90..=101).contains(&before), "{before}");
        // A task started meanwhile stands still too.
        let (send, mut got) = tokio::sync::oneshot::channel();
        process.runtime().spawn("late", async move { send.send(()).unwrap() });
        world.sleep(Duration::from_secs(10)).await;
        assert_eq!(ticks.load(Ordering::Relaxed), before);
        assert!(got.try_recv().is_err());
        process.thaw();
        world.sleep(Duration::from_millis(50)).await;
        let after = ticks.load(Ordering::Relaxed) - before;
        assert!((45..=52).contains(&after), "{after}");
        got.try_recv().unwrap();
        assert_eq!(world.faults()["freeze"], 1, "the second freeze had no effect");
    });
}

#[test]
fn a_crash_ends_all_tasks_and_a_restart_begins_anew() {
    with_seeds(0..5, |world| async move {
        let process = world.process("h1");
        let old = process.runtime();
        let ticks = ticking(&process);
        world.sleep(Duration::from_millis(20)).await;
        process.crash();
        process.crash();
        assert!(!process.is_alive());
        let before = ticks.load(Ordering::Relaxed);
        let late = old.spawn("late", async { 1 });
        late.join().await.unwrap_err();
        old.listen("0.0.0.0:1").await.unwrap_err();
        old.disk().read_dir(std::path::Path::new("/")).await.unwrap_err();
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(ticks.load(Ordering::Relaxed), before);
        let new = process.restart();
        assert!(process.is_alive());
        assert_eq!(new.spawn("fresh", async { 2 }).join().await.unwrap(), 2);
        assert_ne!(old.random_u64(), new.random_u64());
        assert_eq!(world.faults()["crash"], 1);
    });
}

#[test]
fn a_process_can_crash_itself_and_die_frozen() {
    with_seeds(0..5, |world| async move {
        let process = world.process("h1");
        let (own, runtime) = (process.clone(), process.runtime());
        let task = process.runtime().spawn("suicide", async move {
            own.crash();
            runtime.sleep(Duration::from_millis(1)).await;
        });
        task.join().await.unwrap_err();
        process.restart();
        process.freeze();
        process.crash();
        process.thaw();
        assert!(!process.is_alive());
        assert_eq!(process.restart().spawn("fresh", async { 3 }).join().await.unwrap(), 3);
    });
}

#[test]
fn clocks_of_hosts_differ_and_drift_and_can_be_set_wrong() {
    World::run(5, WorldOptions { drift_ppm_max: 1000, ..WorldOptions::default() }, |world| async move {
        let processes = ["h1", "h2", "h3"].map(|name| world.process(name));
        let starts = processes.each_ref().map(|process| process.runtime().now());
        assert!(starts[0] != starts[1] && starts[1] != starts[2]);
        world.sleep(Duration::from_secs(1000)).await;
        for (process, start) in processes.iter().zip(starts) {
            let measured = process.runtime().now().since(start);
            let off = measured.as_secs_f64() - 1000.0;
            assert!(off.abs() <= 1.0 && off != 0.0, "{measured:?}");
        }
        let (one, other) = (&processes[0], &processes[1]);
        let (moment, wall) = (one.runtime().now(), one.runtime().wall());
        one.skew(-3_600_000_000_000);
        assert_eq!(one.runtime().wall().0, wall.0 - 3_600_000_000_000);
        assert_eq!(one.runtime().now(), moment, "leases do not go by wall time");
        assert!(other.runtime().wall().0 > one.runtime().wall().0);
        one.restart();
        assert_eq!(one.runtime().now(), moment, "the host's clock goes on over a restart");
    });
}

#[test]
#[should_panic(expected = "the world is stuck")]
fn waiting_for_nothing_is_noticed() {
    World::run(1, WorldOptions::default(), |_| std::future::pending::<()>());
}

#[test]
#[should_panic(expected = "runs in circles")]
fn a_task_that_never_lets_time_pass_is_noticed() {
    let options = WorldOptions { polls_per_moment_max: 1000, ..WorldOptions::default() };
    World::run(1, options, |world| async move {
        world.process("h1").runtime().spawn("spin", async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        world.sleep(Duration::from_secs(1)).await;
    });
}

#[test]
#[should_panic(expected = "out of luck")]
fn a_panic_in_a_task_ends_the_world() {
    World::run(1, WorldOptions::default(), |world| async move {
        world.process("h1").runtime().spawn("unlucky", async { panic!("out of luck") });
        world.sleep(Duration::from_secs(1)).await;
    });
}

#[test]
fn a_panic_in_a_task_can_be_returned_instead() {
    let options = WorldOptions { panics: Panics::EndTheTask, ..WorldOptions::default() };
    World::run(1, options, |world| async move {
        let task = world.process("h1").runtime().spawn("unlucky", async { panic!("out of luck") });
        let result: ebb_types::Result<()> = task.join().await;
        assert_eq!(result.unwrap_err().kind(), ebb_types::ErrorKind::ShuttingDown);
        assert!(world.panics()[0].contains("unlucky of h1 panicked"), "{:?}", world.panics());
    });
}
