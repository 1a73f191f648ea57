//! Work that has begun in its caller, and waits without being a task yet.
//!
//! A task that is started while it can do nothing costs a worker thread its sleep: it is woken, polls the task for
//! nothing, and looks for work, 8 to 27 us on a processor that others need. It also takes the place of the task that
//! was woken just before, which then goes to another thread. Work that has come to a waiting point is therefore left
//! where it is. It becomes a task when it is woken: on the thread that wakes it.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::backend::Work;

/// Polls `work` here. If it is not ready, the rest becomes a task of `tokio` when it is woken. A panic here is the
/// caller's.
pub(super) fn run_or_spawn(tokio: Handle, mut work: Work<'static, ()>) {
    let begun = Arc::new(Begun { tokio, state: Mutex::new(State::Polled) });
    let waker = Waker::from(Arc::clone(&begun));
    if work.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
        return;
    }
    let woken = {
        let mut state = begun.state.lock();
        match *state {
            // Nothing wakes it a second time: its own waker takes over with the next poll.
            State::Woken => Some(work),
            _ => {
                *state = State::Waits(work);
                None
            }
        }
    };
    if let Some(work) = woken {
        drop(begun.tokio.spawn(work));
    }
}

struct Begun {
    tokio: Handle,
    state: Mutex<State>,
}

enum State {
    /// By the caller, now.
    Polled,
    /// Woken while it was being polled.
    Woken,
    /// For an event that will wake its waker.
    Waits(Work<'static, ()>),
    /// A task by now.
    Task,
}

impl Wake for Begun {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let work = {
            let mut state = self.state.lock();
            match std::mem::replace(&mut *state, State::Task) {
                State::Waits(work) => Some(work),
                State::Task => None,
                State::Polled | State::Woken => {
                    *state = State::Woken;
                    None
                }
            }
        };
        // Ordering: outside of the lock, for a runtime that has ended drops the work here, which may wake others.
        if let Some(work) = work {
            drop(self.tokio.spawn(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::{Notify, oneshot};

    use super::*;

    #[tokio::test]
    async fn work_without_a_wait_is_done_at_once() {
        let done = Arc::new(AtomicUsize::new(0));
        let own = Arc::clone(&done);
        run_or_spawn(
            Handle::current(),
            Box::pin(async move {
                own.fetch_add(1, Ordering::Relaxed);
            }),
        );
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn waiting_work_goes_on_when_it_is_woken_and_not_before() {
        let (polls, come) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (sender, receiver) = oneshot::channel();
        let (own, wait) = (Arc::clone(&polls), Arc::clone(&come));
        let work = async move {
            let mut waiting = std::pin::pin!(wait.notified());
            std::future::poll_fn(|context| {
                own.fetch_add(1, Ordering::Relaxed);
                waiting.as_mut().poll(context)
            })
            .await;
            sender.send(()).unwrap();
        };
        run_or_spawn(Handle::current(), Box::pin(work));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1, "it is no task yet");
        come.notify_one();
        receiver.await.unwrap();
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_wake_during_the_first_poll_is_not_lost() {
        let (sender, receiver) = oneshot::channel();
        run_or_spawn(
            Handle::current(),
            Box::pin(async move {
                // Wakes itself, then waits.
                tokio::task::yield_now().await;
                sender.send(()).unwrap();
            }),
        );
        receiver.await.unwrap();
        let (sender, receiver) = oneshot::channel();
        let mut polled = false;
        run_or_spawn(
            Handle::current(),
            Box::pin(async move {
                std::future::poll_fn(|context| {
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    context.waker().wake_by_ref();
                    Poll::Pending
                })
                .await;
                sender.send(()).unwrap();
            }),
        );
        receiver.await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_ends_the_work_alone() {
        let runtime = crate::Runtime::real();
        let (sender, receiver) = oneshot::channel::<()>();
        runtime.run_or_spawn("panic", async move {
            let _tell = sender;
            panic!("a bug");
        });
        assert!(receiver.await.is_err(), "its values are dropped");
    }
}
