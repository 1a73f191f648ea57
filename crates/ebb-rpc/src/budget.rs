//! Bytes that requests and answers may take in memory.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A bound on bytes. Requests wait for their part, in order, before they are read; answers, which are in memory
/// already, take theirs without waiting, and so hold back later requests. What is in memory is then at most the bound
/// and the answers of the requests in progress, and answers never wait for requests: no deadlock.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Semaphore>);

/// A part of a budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Semaphore>,
    bytes: usize,
}

impl Budget {
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(u32::MAX as usize))))
    }

    /// Waits for `bytes`, which must not be more than the whole budget.
    pub async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let count = u32::try_from(bytes).expect("frames are far below 4 GiB");
        self.0.clone().acquire_many_owned(count).await.expect("a budget is never closed")
    }

    /// As much of `bytes` as is free now.
    pub fn take_now(&self, bytes: usize) -> Share {
        Share { budget: self.0.clone(), bytes: self.0.forget_permits(bytes) }
    }

    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.0.available_permits()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.add_permits(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_take_what_is_free_and_give_back_exactly_that() {
        let budget = Budget::new(100);
        let first = budget.take_now(70);
        let second = budget.take_now(70);
        assert_eq!((first.bytes, second.bytes, budget.free()), (70, 30, 0));
        drop(first);
        assert_eq!(budget.free(), 70);
        drop(second);
        assert_eq!(budget.free(), 100);
    }
}
