//! A task that ends with its owner.

use ebb_types::Result;

use crate::task::Task;

/// Stops its task when dropped.
#[derive(Debug)]
pub struct Owned<T>(Task<T>);

impl<T> Owned<T> {
    /// Owns a task.
    #[must_use]
    pub const fn new(task: Task<T>) -> Self {
        Self(task)
    }

    /// Waits for the result. Fails with `ShuttingDown` if the task was stopped or panicked.
    ///
    /// Cancel-safety: dropping the future stops the task.
    pub async fn join(mut self) -> Result<T> {
        self.0.ended().await
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
