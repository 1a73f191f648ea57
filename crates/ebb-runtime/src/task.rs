//! Tasks of a process.

use std::future::Future;

use ebb_types::{Result, err};
use tokio::sync::oneshot;

use crate::backend::Backend;

/// A started task. Dropping it lets the task run on; [`Task::abort`] stops it.
pub struct Task<T> {
    result: oneshot::Receiver<T>,
    stop: Box<dyn Fn() + Send + Sync>,
}

impl<T> Task<T> {
    /// Waits for the result. Fails with `ShuttingDown` if the task was stopped or panicked.
    pub async fn join(mut self) -> Result<T> {
        self.ended().await
    }

    pub(crate) async fn ended(&mut self) -> Result<T> {
        (&mut self.result).await.map_err(|_| err!(ShuttingDown, "the task was stopped before it ended"))
    }

    /// Stops the task at its next waiting point.
    pub fn abort(&self) {
        (self.stop)();
    }
}

impl<T> std::fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Task")
    }
}

pub(crate) fn spawn<T: Send + 'static>(
    backend: &dyn Backend,
    name: &'static str,
    work: impl Future<Output = T> + Send + 'static,
) -> Task<T> {
    let (send, result) = oneshot::channel();
    let stop = backend.spawn(
        name,
        Box::pin(async move {
            // It is fine if no task waits for the result.
            let _ = send.send(work.await);
        }),
    );
    Task { result, stop }
}

pub(crate) async fn compute<T: Send + 'static>(backend: &dyn Backend, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, result) = oneshot::channel();
    backend.compute(Box::new(move || {
        let _ = send.send(work());
    }));
    result.await.expect("a computation that panics takes the process with it")
}
