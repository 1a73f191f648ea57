//! A task that ends with its owner.

use ebb_runtime::Task;
use ebb_types::Result;

/// Stops its task when dropped.
#[derive(Debug)]
pub(crate) struct Owned<T>(Option<Task<T>>);

impl<T> Owned<T> {
    pub fn new(task: Task<T>) -> Self {
        Self(Some(task))
    }

    /// Waits for the task's result.
    ///
    /// Cancel-safety: dropping the future lets the task run on.
    pub async fn join(mut self) -> Result<T> {
        self.0.take().expect("taken only here, by value").join().await
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
