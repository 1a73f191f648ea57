//! Group commit: one write and one sync for all callers that wait.

use ebb_types::{Error, Result};
use parking_lot::Mutex;

/// A caller's place in the order of records, from [`GroupCommit::join`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Sequence(u64);

#[derive(Debug, Default)]
struct Progress {
    /// The last place that was given.
    joined: Sequence,
    /// Every record up to this place is durable.
    durable: Sequence,
    /// The last failed attempt: the place of its last record, and the error.
    failed: Option<(Sequence, Error)>,
}

/// A log with a queue of records that are not durable yet.
pub trait Lead {
    /// Makes a beginning of the queue durable. Returns the place of the last record that it wrote, and the result. On
    /// success everything before the queue's beginning must be durable, too.
    ///
    /// It may be dropped half-way. The next call must expect a write that ended in its middle.
    fn lead(&self) -> impl Future<Output = (Sequence, Result<()>)> + Send;
}

/// Makes records of many callers durable together.
///
/// A caller puts its record into a queue of the log and [joins](Self::join), both under one lock of the log, so that
/// places have the order of the queue. Then it waits with [`commit`](Self::commit) for its turn. One caller at a time
/// leads: it writes everything that is queued, its own record among it. Callers that come in the meantime share the
/// next turn.
#[derive(Debug, Default)]
pub struct GroupCommit {
    progress: Mutex<Progress>,
    /// Held by the caller that leads.
    turn: tokio::sync::Mutex<()>,
}

impl GroupCommit {
    /// Gives a place to a record that the caller queues under the same lock.
    pub fn join(&self) -> Sequence {
        let mut progress = self.progress.lock();
        progress.joined = Sequence(progress.joined.0 + 1);
        progress.joined
    }

    /// The last place that was given: that of the last record in the queue.
    pub fn joined(&self) -> Sequence {
        self.progress.lock().joined
    }

    /// Returns when the record at `place` of `log` is durable. A failed attempt fails all callers with records in it.
    ///
    /// Cancel-safety: a caller that is dropped while it leads has settled nothing. The next caller in turn leads.
    pub async fn commit(&self, place: Sequence, log: &impl Lead) -> Result<()> {
        let _turn = self.turn.lock().await;
        // A queue may be longer than one write.
        loop {
            if let Some(outcome) = self.outcome(place) {
                return outcome;
            }
            let (upto, done) = log.lead().await;
            let mut progress = self.progress.lock();
            assert!(upto > progress.durable && upto <= progress.joined, "{upto:?} is not in the queue: {progress:?}");
            match done {
                Ok(()) => progress.durable = upto,
                Err(error) => progress.failed = Some((upto, error)),
            }
        }
    }

    fn outcome(&self, place: Sequence) -> Option<Result<()>> {
        let progress = self.progress.lock();
        assert!(place <= progress.joined, "{place:?} has not joined: {progress:?}");
        // A record of a failed attempt may have become durable with a later one.
        if place <= progress.durable {
            return Some(Ok(()));
        }
        let (upto, error) = progress.failed.as_ref()?;
        (place <= *upto).then(|| Err(error.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ebb_runtime::Runtime;
    use ebb_runtime::virt::{World, WorldOptions};
    use ebb_types::ErrorKind;

    use super::*;

    /// A log of numbers. Each write takes a second.
    struct Slow {
        runtime: Runtime,
        group: GroupCommit,
        queue: Mutex<Vec<u32>>,
        writes: Mutex<Vec<Vec<u32>>>,
        fails: Mutex<Vec<ErrorKind>>,
    }

    impl Slow {
        async fn append(&self, number: u32) -> Result<()> {
            let place = {
                let mut queue = self.queue.lock();
                queue.push(number);
                self.group.join()
            };
            self.group.commit(place, self).await
        }
    }

    impl Lead for Slow {
        async fn lead(&self) -> (Sequence, Result<()>) {
            let (upto, batch) = {
                let mut queue = self.queue.lock();
                (self.group.joined(), std::mem::take(&mut *queue))
            };
            self.runtime.sleep(Duration::from_secs(1)).await;
            let done = self.fails.lock().pop().map_or(Ok(()), |kind| Err(Error::new(kind, "planned")));
            self.writes.lock().push(batch);
            (upto, done)
        }
    }

    fn world<F: Future<Output = ()>>(test: impl FnOnce(Runtime, Arc<Slow>) -> F) {
        World::run(5, WorldOptions::default(), |world| {
            let runtime = world.process("h1").runtime();
            let log = Slow {
                runtime: runtime.clone(),
                group: GroupCommit::default(),
                queue: Mutex::default(),
                writes: Mutex::default(),
                fails: Mutex::default(),
            };
            async move { test(runtime, Arc::new(log)).await }
        });
    }

    fn append(runtime: &Runtime, log: &Arc<Slow>, number: u32) -> ebb_runtime::Task<Result<()>> {
        let log = log.clone();
        runtime.spawn("append", async move { log.append(number).await })
    }

    #[test]
    fn callers_that_come_while_one_writes_go_together() {
        world(|runtime, log| async move {
            let first = append(&runtime, &log, 1);
            runtime.sleep(Duration::from_millis(500)).await;
            let others: Vec<_> = (2..=9).map(|number| append(&runtime, &log, number)).collect();
            first.join().await.unwrap().unwrap();
            for other in others {
                other.join().await.unwrap().unwrap();
            }
            let mut writes = log.writes.lock().clone();
            // The world runs tasks in an order that the seed draws.
            writes.iter_mut().for_each(|batch| batch.sort_unstable());
            assert_eq!(writes, [vec![1], (2..=9).collect()]);
        });
    }

    #[test]
    fn a_failure_is_that_of_all_whose_records_it_carried() {
        world(|runtime, log| async move {
            *log.fails.lock() = vec![ErrorKind::Io];
            let both = [append(&runtime, &log, 1), append(&runtime, &log, 2)];
            runtime.sleep(Duration::from_millis(500)).await;
            let later = append(&runtime, &log, 3);
            for task in both {
                // The first caller led before the second one came, or after: both orders are fine.
                let _ = task.join().await.unwrap();
            }
            later.join().await.unwrap().unwrap();
            let failed = log.writes.lock()[0].clone();
            assert!(!failed.is_empty() && !failed.contains(&3), "{failed:?}");
        });
    }

    #[test]
    fn a_leader_that_is_dropped_leaves_the_turn_to_the_next() {
        world(|runtime, log| async move {
            let first = append(&runtime, &log, 1);
            runtime.sleep(Duration::from_millis(500)).await;
            let second = append(&runtime, &log, 2);
            runtime.sleep(Duration::from_millis(100)).await;
            first.abort();
            second.join().await.unwrap().unwrap();
            assert_eq!(log.writes.lock().last().unwrap(), &[2]);
            append(&runtime, &log, 3).join().await.unwrap().unwrap();
        });
    }
}
