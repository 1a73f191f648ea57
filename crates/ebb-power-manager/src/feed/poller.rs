//! Asks a server again and again, beside the work of the manager. The last answer counts for a while.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ebb_power::signal::carbon::Intensity;
use ebb_power::signal::openadr::Calendar;
use ebb_power_drivers::carbon::CarbonService;
use ebb_power_drivers::openadr::Vtn;
use ebb_runtime::{Moment, Runtime, Task};
use ebb_types::Result;
use parking_lot::Mutex;

/// After a failure the server is asked again in this part of the usual time.
const RETRY_PART: u32 = 5;
/// But not sooner than after this.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// A server that can be asked. Each question has a deadline of its own.
pub(super) trait Ask<T>: Send + Sync + 'static {
    /// Asks it.
    fn ask(&self) -> Pin<Box<dyn Future<Output = Result<T>> + Send + '_>>;
}

impl Ask<Intensity> for CarbonService {
    fn ask(&self) -> Pin<Box<dyn Future<Output = Result<Intensity>> + Send + '_>> {
        Box::pin(self.read())
    }
}

impl Ask<Calendar> for Vtn {
    fn ask(&self) -> Pin<Box<dyn Future<Output = Result<Calendar>> + Send + '_>> {
        Box::pin(self.events())
    }
}

/// A server, its last good answer, and the question that is on its way.
#[derive(Debug)]
pub(super) struct Poller<S, T> {
    server: Arc<S>,
    every: Duration,
    keep: Duration,
    asked: Option<Moment>,
    has_failed: bool,
    asking: Option<Task<()>>,
    /// Where the question puts its outcome.
    outcome: Arc<Mutex<Option<Result<T>>>>,
    /// The last good answer, and when it was asked for.
    good: Option<(Moment, T)>,
}

impl<S: Ask<T>, T: Send + 'static> Poller<S, T> {
    /// The server is asked every `every`. An answer counts for `keep` from its question on.
    pub fn new(server: S, every: Duration, keep: Duration) -> Self {
        let server = Arc::new(server);
        Self { server, every, keep, asked: None, has_failed: false, asking: None, outcome: Arc::default(), good: None }
    }

    /// Asks, and waits for the answer.
    pub async fn ask_now(&mut self, runtime: &Runtime) -> Result<()> {
        let now = runtime.now();
        self.asked = Some(now);
        self.good = Some((now, self.server.ask().await?));
        Ok(())
    }

    /// The answer that counts now. Starts the next question when it is time; nothing is waited for.
    pub fn poll(&mut self, runtime: &Runtime) -> Option<&T> {
        let now = runtime.now();
        let outcome = self.outcome.lock().take();
        if let Some(outcome) = outcome {
            self.asking = None;
            self.has_failed = outcome.is_err();
            match outcome {
                Ok(answer) => self.good = Some((self.asked.unwrap_or(now), answer)),
                Err(error) => tracing::warn!(%error, "a source of power gave no answer that can be used"),
            }
        }
        let retry = (self.every / RETRY_PART).max(RETRY_MIN).min(self.every);
        let pause = if self.has_failed { retry } else { self.every };
        if self.asking.is_none() && self.asked.is_none_or(|asked| now.since(asked) >= pause) {
            self.asked = Some(now);
            let (server, outcome) = (Arc::clone(&self.server), Arc::clone(&self.outcome));
            self.asking = Some(runtime.spawn("ask a source of power", async move {
                let answer = server.ask().await;
                *outcome.lock() = Some(answer);
            }));
        }
        self.good.as_ref().filter(|(asked, _)| now.since(*asked) < self.keep).map(|(_, answer)| answer)
    }
}

impl<S, T> Poller<S, T> {
    /// The last good answer, however old.
    pub fn last(&self) -> Option<&T> {
        self.good.as_ref().map(|(_, answer)| answer)
    }
}

/// The question ends with the source.
impl<S, T> Drop for Poller<S, T> {
    fn drop(&mut self) {
        if let Some(asking) = &self.asking {
            asking.abort();
        }
    }
}
