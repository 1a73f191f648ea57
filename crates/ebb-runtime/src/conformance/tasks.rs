//! Time, tasks and randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_types::{ErrorKind, Result};
use tokio::sync::oneshot;

use super::{Setup, on_both_worlds};

on_both_worlds!(
    a_sleep_is_not_shorter_than_asked,
    a_timeout_names_its_operation,
    a_timeout_lets_good_work_through,
    tasks_give_their_results,
    a_stopped_task_is_dropped,
    a_dropped_handle_leaves_the_task_alone,
    begun_work_starts_at_once_and_goes_on_as_a_task,
    computations_give_their_results,
    random_bytes_differ,
    wall_time_is_of_this_century,
);

async fn a_sleep_is_not_shorter_than_asked(setup: Setup) {
    for millis in [0, 1, 7, 30] {
        let span = Duration::from_millis(millis);
        let start = setup.server.now();
        setup.server.sleep(span).await;
        let slept = setup.server.now().since(start);
        // Timers and CLOCK_BOOTTIME are read at different moments.
        assert!(slept + Duration::from_millis(1) >= span, "{slept:?} instead of {span:?}");
    }
}

async fn a_timeout_names_its_operation(setup: Setup) {
    let never = std::future::pending::<Result<()>>();
    let error = setup.server.timeout(Duration::from_millis(10), "reading the moon", never).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.detail().contains("reading the moon"), "{error}");
}

async fn a_timeout_lets_good_work_through(setup: Setup) {
    assert_eq!(setup.server.timeout(Duration::from_secs(60), "work", async { Ok(5) }).await.unwrap(), 5);
}

async fn tasks_give_their_results(setup: Setup) {
    let runtime = setup.server.clone();
    let task = setup.server.spawn("outer", async move {
        let inner = runtime.spawn("inner", async { 20 });
        inner.join().await.unwrap() + 1
    });
    assert_eq!(task.join().await.unwrap(), 21);
}

/// Sets a flag when dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

async fn a_stopped_task_is_dropped(setup: Setup) {
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Flag(dropped.clone());
    let task = setup.server.spawn("wait", async move {
        let _flag = flag;
        std::future::pending::<()>().await;
    });
    setup.server.sleep(Duration::from_millis(5)).await;
    assert!(!dropped.load(Ordering::SeqCst));
    task.abort();
    assert_eq!(task.join().await.unwrap_err().kind(), ErrorKind::ShuttingDown);
    assert!(dropped.load(Ordering::SeqCst));
}

async fn a_dropped_handle_leaves_the_task_alone(setup: Setup) {
    let (send, got) = tokio::sync::oneshot::channel();
    let runtime = setup.server.clone();
    drop(setup.server.spawn("send", async move {
        runtime.sleep(Duration::from_millis(5)).await;
        send.send(7).unwrap();
    }));
    assert_eq!(got.await.unwrap(), 7);
}

async fn begun_work_starts_at_once_and_goes_on_as_a_task(setup: Setup) {
    let begun = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = oneshot::channel();
    let (own, runtime) = (Arc::clone(&begun), setup.server.clone());
    setup.server.run_or_spawn("begun", async move {
        own.store(true, Ordering::Relaxed);
        runtime.sleep(Duration::from_millis(3)).await;
        runtime.sleep(Duration::from_millis(3)).await;
        sender.send(()).unwrap();
    });
    assert!(begun.load(Ordering::Relaxed));
    receiver.await.unwrap();
}

async fn computations_give_their_results(setup: Setup) {
    let sum = setup.server.compute(|| (0..1000_u64).sum::<u64>()).await;
    assert_eq!(sum, 499_500);
}

async fn random_bytes_differ(setup: Setup) {
    assert_ne!(setup.server.random_u64(), setup.server.random_u64());
    assert_ne!(setup.server.random_u64(), setup.client.random_u64());
    let mut bytes = [0; 64];
    setup.server.fill_random(&mut bytes);
    assert!(bytes.iter().filter(|byte| **byte != 0).count() > 32);
}

async fn wall_time_is_of_this_century(setup: Setup) {
    let year_2025 = 1_735_689_600_000_000_000;
    assert!(setup.server.wall().0 > year_2025);
}
