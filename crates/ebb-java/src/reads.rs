//! Reads that go on while no thread waits for them. Each writes into a direct buffer, and its ticket then waits for Java.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ebb_api::File;
use ebb_types::{Error, Result, err};
use jni::objects::JByteBuffer;
use jni::refs::Global;
use parking_lot::{Condvar, Mutex};
use tokio::sync::Semaphore;

use crate::memory::Kept;

/// Most reads of a process that go on at once; others wait for their turn.
const READS_MAX: usize = 64;

/// The ended reads of a process.
pub(crate) struct Reads {
    ended: Mutex<VecDeque<Ended>>,
    news: Condvar,
    failures: Mutex<BTreeMap<i64, Error>>,
    turns: Arc<Semaphore>,
}

/// A read that ended.
struct Ended {
    ticket: i64,
    done: Result<usize>,
    buffer: Global<JByteBuffer<'static>>,
}

impl Reads {
    pub(crate) fn new() -> Self {
        let turns = Arc::new(Semaphore::new(READS_MAX));
        Self { ended: Mutex::default(), news: Condvar::new(), failures: Mutex::default(), turns }
    }

    /// Carries a read out.
    pub(crate) async fn carry_out(&self, ticket: i64, file: Arc<File>, offset: u64, mut into: Kept) {
        let turn = self.turns.acquire().await;
        let done = file.read_into(offset, into.bytes()).await;
        drop(turn);
        self.ended.lock().push_back(Ended { ticket, done, buffer: into.into_buffer() });
        self.news.notify_one();
    }

    /// Waits for ended reads: pairs of a ticket and the number of bytes, -1 for a failure. Runs on a thread of Java's, for it drops
    /// references to buffers.
    pub(crate) fn next(&self) -> Vec<i64> {
        let ended = {
            let mut ended = self.ended.lock();
            while ended.is_empty() {
                self.news.wait(&mut ended);
            }
            std::mem::take(&mut *ended)
        };
        let mut pairs = Vec::with_capacity(2 * ended.len());
        for Ended { ticket, done, buffer } in ended {
            drop(buffer);
            let bytes = match done {
                Ok(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
                Err(error) => {
                    self.failures.lock().insert(ticket, error);
                    -1
                }
            };
            pairs.extend([ticket, bytes]);
        }
        pairs
    }

    /// The reason for which a read failed, once.
    pub(crate) fn failure(&self, ticket: i64) -> Error {
        let failure = self.failures.lock().remove(&ticket);
        failure.unwrap_or_else(|| err!(Invalid, "no read with the ticket {ticket} has failed"))
    }
}
