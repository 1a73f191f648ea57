//! Paced readers and one paced writer, and what became of their requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_client::Client;
use ebb_runtime::{Runtime, Task};
use ebb_types::Result;
use parking_lot::Mutex;

use super::Load;
use crate::data::Data;
use crate::measure::Latencies;

/// What became of the requests.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answered {
    /// Of all reads.
    pub reads: Latencies,
    /// Of all writes, until they were safe.
    pub writes: Latencies,
    /// The first error, if there was one.
    pub error: Option<String>,
}

impl Answered {
    pub(super) fn add(&mut self, of: fn(&mut Self) -> &mut Latencies, took: Duration, done: Result<()>) {
        match done {
            Ok(()) => of(self).add(took),
            Err(error) => {
                of(self).failed += 1;
                self.error.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// Requests that failed.
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.reads.failed + self.writes.failed
    }
}

/// The load while it runs.
pub(super) struct Requests {
    over: Arc<AtomicBool>,
    tasks: Vec<Task<()>>,
    answered: Arc<Mutex<Answered>>,
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Requests {
    pub(super) fn start(runtime: &Runtime, client: &Client, data: &Data, load: Load) -> Self {
        let mut requests = Self { over: Arc::default(), tasks: Vec::new(), answered: Arc::default() };
        let Some((written, read)) = data.handles.split_last() else { return requests };
        let (bytes, blocks) = (data.block_bytes, data.blocks_per_file);
        for reader in 0..load.readers {
            let (client, handles) = (client.clone(), read.to_vec());
            let request = move |number: u64| {
                let files = handles.len() as u64;
                // All files, each at its next block, by every reader from another file on.
                let (file, block) = ((number + reader as u64 * 7) % files, number / files % blocks);
                let (client, handle) = (client.clone(), handles[file as usize]);
                async move { client.read(handle, block * bytes, bytes as u32).await.map(drop) }
            };
            requests.spawn(runtime, load.read_pause, |answered| &mut answered.reads, request);
        }
        let (client, written, content) = (client.clone(), *written, data.block(255));
        let request = move |number: u64| {
            let (client, content) = (client.clone(), content.clone());
            async move {
                client.write(written, number % blocks * bytes, content).await?;
                client.fsync(written).await
            }
        };
        requests.spawn(runtime, load.write_pause, |answered| &mut answered.writes, request);
        requests
    }

    /// Requests one after the other, until it is over.
    fn spawn<Work: Future<Output = Result<()>> + Send>(
        &mut self,
        runtime: &Runtime,
        pause: Duration,
        of: fn(&mut Answered) -> &mut Latencies,
        request: impl Fn(u64) -> Work + Send + 'static,
    ) {
        let (own, over, answered) = (runtime.clone(), Arc::clone(&self.over), Arc::clone(&self.answered));
        self.tasks.push(runtime.spawn("requests", async move {
            for number in 0_u64.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let began = own.now();
                let done = request(number).await;
                let took = own.now().since(began);
                answered.lock().add(of, took, done);
                own.sleep(pause.saturating_sub(took)).await;
            }
        }));
    }

    /// Sends no more, and waits for the answers.
    pub(super) async fn end(mut self) -> Result<Answered> {
        self.over.store(true, Ordering::Relaxed);
        for task in std::mem::take(&mut self.tasks) {
            task.join().await?;
        }
        Ok(std::mem::take(&mut *self.answered.lock()))
    }
}
