//! The worker: answers `CountWords` with a client on its own host.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebb_client::Client;
use ebb_rpc::{Answer, Counters, Identity, Request, Server, ServerOptions, Service, ServiceFuture};
use ebb_runtime::{Listener, Owned, Runtime};
use ebb_types::{Error, Result, bail};
use ebb_wire::{Method, pb};
use parking_lot::Mutex;

use crate::meter::Meter;
use crate::source::Source;
use crate::split::{Counted, count_split};
use crate::task::How;

/// Splits read side by side for one call.
const LANES: usize = 8;
/// Most splits in one call.
pub const SPLITS_MAX: usize = 4096;

/// Serves `CountWords` on `listener` with `client`, until the process ends. The client must be of this worker's host
/// and used by no other part: its traffic is reported to the coordinator as the tasks' traffic.
pub async fn run(runtime: Runtime, listener: Listener, identity: Identity, client: Client) -> Result<()> {
    let read = client.counters();
    let counters = Counters::default();
    let worker = Worker::new(&runtime, client, read, counters.clone());
    Server::run(runtime, listener, identity, counters, ServerOptions::default(), Arc::new(worker)).await
}

/// The service.
#[derive(Debug)]
pub struct Worker<S> {
    runtime: Runtime,
    source: S,
    /// Of the connections that tasks read over.
    read: Counters,
    meter: Meter,
    /// Of the server.
    served: Counters,
}

impl<S: Source> Worker<S> {
    /// A worker that reads from `source`, whose connections count in `read`; `served` are its own server's counters.
    pub fn new(runtime: &Runtime, source: S, read: Counters, served: Counters) -> Self {
        Self { runtime: runtime.clone(), source, meter: Meter::new(read.clone()), read, served }
    }

    async fn count_words(&self, request: pb::CountWords) -> Result<pb::CountWordsReply> {
        if request.splits.len() > SPLITS_MAX {
            bail!(Invalid, "{} splits in one call, the most is {SPLITS_MAX}", request.splits.len());
        }
        let how = How::from_message(&request)?;
        let metered = self.meter.start_task();
        let results = self.count_splits(request, how).await?;
        let mut reply = pb::CountWordsReply::default();
        for result in &results {
            let counted = result.as_ref().copied().unwrap_or_default();
            reply.words.push(counted.found);
            reply.read_bytes += counted.read_bytes;
        }
        if results.iter().any(Result::is_err) {
            let failure = |result: &Result<Counted>| result.as_ref().err().map(pb::Failure::from).unwrap_or_default();
            reply.failures = results.iter().map(failure).collect();
        }
        let carried = metered.read();
        (reply.network_bytes, reply.sub_rack_bytes) = (carried.network_bytes, carried.sub_rack_bytes);
        Ok(reply)
    }

    /// Counts all splits, a few side by side.
    async fn count_splits(&self, request: pb::CountWords, how: How) -> Result<Vec<Result<Counted>>> {
        let unread = || Err(Error::new(ebb_types::ErrorKind::Internal, "the split was not read"));
        let lanes = request.splits.len().min(LANES);
        let shared = Arc::new(Shared {
            results: Mutex::new(request.splits.iter().map(|_| unread()).collect()),
            next: AtomicUsize::new(0),
            request,
            how,
        });
        let lanes: Vec<_> = (0..lanes)
            .map(|_| {
                let (runtime, source, shared) = (self.runtime.clone(), self.source.clone(), shared.clone());
                Owned::new(self.runtime.spawn("count-splits", async move { shared.work(&runtime, &source).await }))
            })
            .collect();
        for lane in lanes {
            lane.join().await?;
        }
        Ok(std::mem::take(&mut *shared.results.lock()))
    }
}

impl<S: Source> Service for Worker<S> {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        Box::pin(async move {
            match request.method {
                Method::CountWords => Ok(Answer::new(&self.count_words(request.decode()?).await?)),
                Method::Counters => {
                    let (read, served) = (self.read.read(), self.served.read());
                    Ok(Answer::new(&(read + served).to_reply(0)))
                }
                other => bail!(Unsupported, "a worker does not answer {other:?}"),
            }
        })
    }
}

/// The splits of one call, taken one by one by its lanes.
struct Shared {
    request: pb::CountWords,
    how: How,
    next: AtomicUsize,
    results: Mutex<Vec<Result<Counted>>>,
}

impl Shared {
    async fn work(&self, runtime: &Runtime, source: &impl Source) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(split) = self.request.splits.get(index) else { return };
            let counted = count_split(runtime, source, split, &self.how).await;
            self.results.lock()[index] = counted;
        }
    }
}

#[cfg(test)]
mod tests;
