//! Items that the files import from elsewhere, made of loom's parts.

use std::pin::Pin;
use std::sync::Arc;

use loom::sync::MutexGuard;

/// As `parking_lot::Mutex`.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Not locked.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Waits for it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("a scene that panics has failed already")
    }
}

/// As the runtime's back ends have it.
pub(crate) mod backend {
    use super::Pin;

    /// Work that may wait.
    pub type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
}

/// As `tokio::runtime`.
pub mod runtime {
    use super::{Arc, Mutex, backend::Work};

    /// Keeps started work, for the scene to run.
    #[derive(Clone)]
    pub struct Handle(Arc<Mutex<Vec<Work<'static, ()>>>>);

    impl std::fmt::Debug for Handle {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "Handle({} tasks)", self.0.lock().len())
        }
    }

    impl Default for Handle {
        fn default() -> Self {
            Self(Arc::new(Mutex::new(Vec::new())))
        }
    }

    /// As tokio's `JoinHandle`: to drop it ends nothing.
    #[derive(Debug)]
    pub struct Started(());

    impl Drop for Started {
        fn drop(&mut self) {}
    }

    impl Handle {
        /// A task.
        pub fn spawn(&self, work: Work<'static, ()>) -> Started {
            self.0.lock().push(work);
            Started(())
        }

        /// The started work.
        #[must_use]
        pub fn take_tasks(&self) -> Vec<Work<'static, ()>> {
            std::mem::take(&mut *self.0.lock())
        }
    }
}

/// As `tokio::sync`.
pub mod sync {
    use std::task::{Poll, Waker};

    use super::Mutex;

    /// As tokio's, for one that waits.
    #[derive(Debug)]
    pub struct Notify(Mutex<(bool, Option<Waker>)>);

    impl Notify {
        /// Without a notification.
        #[must_use]
        #[expect(clippy::new_without_default, reason = "as tokio's is used")]
        pub fn new() -> Self {
            Self(Mutex::new((false, None)))
        }

        /// Wakes the one that waits, or lets the next one through.
        pub fn notify_one(&self) {
            let waiting = {
                let mut state = self.0.lock();
                state.0 = true;
                state.1.take()
            };
            if let Some(waiting) = waiting {
                waiting.wake();
            }
        }

        /// Returns when it is notified.
        pub async fn notified(&self) {
            std::future::poll_fn(|context| {
                let mut state = self.0.lock();
                if std::mem::take(&mut state.0) {
                    return Poll::Ready(());
                }
                state.1 = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
        }
    }
}

/// As the connections' writer.
pub(crate) mod writer {
    use std::task::{Poll, Waker};

    use ebb_types::Result;

    use super::{Arc, Mutex};

    /// A frame, by its number.
    pub(crate) type Frame = u64;

    /// The written bytes, and the task that waits for more room.
    #[derive(Default)]
    pub(crate) struct Written {
        pub(crate) frames: Vec<Frame>,
        pub(crate) waiting: Option<Waker>,
    }

    /// Records each write, in its order. Every other write is not done at once.
    pub(crate) struct FrameWriter {
        written: Arc<Mutex<Written>>,
        writes: u32,
    }

    impl FrameWriter {
        pub(crate) fn to(written: Arc<Mutex<Written>>) -> Self {
            Self { written, writes: 0 }
        }

        pub(crate) async fn write(&mut self, frames: Vec<Frame>) -> Result<()> {
            self.writes += 1;
            let mut waits = self.writes % 2 == 1;
            std::future::poll_fn(|context| {
                if std::mem::take(&mut waits) {
                    // There is room in the socket again at once.
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
            .await;
            let waiting = {
                let mut written = self.written.lock();
                written.frames.extend(frames);
                written.waiting.take()
            };
            if let Some(waiting) = waiting {
                waiting.wake();
            }
            Ok(())
        }
    }
}
