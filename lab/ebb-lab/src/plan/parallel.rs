//! Long sweeps: all cores, and a progress bar.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ebb_cli::output::Output;
use ebb_types::Result;
use indicatif::ProgressBar;

/// As many threads as there are cores, and one progress bar on stderr over all their items.
pub struct Workers {
    count: usize,
    bar: ProgressBar,
}

impl Workers {
    /// Threads on all cores. `label` is the label of the bar.
    pub fn new(output: Output, label: &str) -> Self {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        Self { count, bar: output.item_bar(0, label) }
    }

    /// Runs `work` on every item. Items are started, and results returned, in their order.
    ///
    /// # Errors
    /// The error of the first item that failed. Items that have not begun by then are left out.
    pub fn map<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
        self.bar.inc_length(items.len() as u64);
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, Result<R>)>> = Mutex::new(Vec::with_capacity(items.len()));
        std::thread::scope(|scope| {
            for _ in 0..self.count.min(items.len()) {
                scope.spawn(|| {
                    while let Some((index, item)) = take_next_item(&next, items) {
                        let result = work(item);
                        if result.is_err() {
                            // This leaves no items for the other threads. All items before this one were begun already.
                            next.store(items.len(), Ordering::Relaxed);
                        }
                        done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                        self.bar.inc(1);
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|pair| pair.0);
        done.into_iter().map(|pair| pair.1).collect()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// [`Workers::map`] for a single sweep.
///
/// # Errors
/// That of the first item that fails.
pub fn map<T: Sync, R: Send>(
    output: Output,
    label: &str,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    Workers::new(output, label).map(items, work)
}

fn take_next_item<'a, T>(next: &AtomicUsize, items: &'a [T]) -> Option<(usize, &'a T)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    items.get(index).map(|item| (index, item))
}

#[cfg(test)]
mod tests {
    use ebb_types::bail;

    use super::*;

    #[test]
    fn answers_come_in_order_and_of_the_errors_the_first() {
        let workers = Workers { count: 4, bar: ProgressBar::hidden() };
        let items: Vec<u32> = (0..1000).collect();
        assert_eq!(
            workers.map(&items, |item| Ok(item * 2)).unwrap(),
            (0..1000).map(|item| item * 2).collect::<Vec<_>>()
        );
        for _ in 0..50 {
            let failed =
                workers.map(&items, |item| if item % 100 == 7 { bail!(Invalid, "item {item}") } else { Ok(()) });
            assert_eq!(failed.unwrap_err().to_string(), "item 7");
        }
        assert!(workers.map(&[] as &[u32], |_| Ok(())).unwrap().is_empty());
    }
}
