//! Calls to whichever master answers, retried across restarts within a budget of time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebb_rpc::{Connector, Response};
use ebb_runtime::Runtime;
use ebb_types::{Error, ErrorKind, Result, err};
use ebb_wire::Call;

use crate::waits::Waits;

/// Longest wait between attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The masters of a cluster.
#[derive(Debug)]
pub(crate) struct Masters {
    runtime: Runtime,
    connector: Connector,
    addresses: Vec<String>,
    current: AtomicUsize,
    waits: Waits,
}

/// An answer, and whether an earlier attempt may have been carried out.
#[derive(Debug)]
pub(crate) struct Outcome<T> {
    /// The result of the last attempt.
    pub result: Result<T>,
    /// Whether an attempt before the last one got no answer.
    pub repeated: bool,
}

impl Masters {
    /// Masters at these addresses.
    ///
    /// # Errors
    ///
    /// `Invalid` if `addresses` is empty.
    pub fn new(runtime: Runtime, connector: Connector, addresses: Vec<String>, waits: Waits) -> Result<Self> {
        if addresses.is_empty() {
            return Err(err!(Invalid, "no master address given: name at least one as ip:port"));
        }
        Ok(Self { runtime, connector, addresses, current: AtomicUsize::new(0), waits })
    }

    /// Repeats a call until its result is final or `deadline` has passed.
    ///
    /// One attempt waits for at most `attempt`. Only for calls that may be repeated: queries, and
    /// calls with a request id.
    pub async fn call<C: Call>(&self, message: &C, attempt: Duration, deadline: Duration) -> Outcome<C::Reply> {
        let started = self.runtime.now();
        let mut backoff = Duration::from_millis(20);
        let mut repeated = false;
        let waiting = self.waits.enter(started, "the master to answer");
        loop {
            let left = deadline.saturating_sub(self.runtime.now().since(started));
            let result = self.call_once(message, attempt.min(left)).await;
            let Err(error) = &result else { return Outcome { result, repeated } };
            if !is_transient(error.kind()) {
                return Outcome { result, repeated };
            }
            if left <= backoff {
                return Outcome { result: result.map_err(|error| self.out_of_time(error, deadline)), repeated };
            }
            repeated |= matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Disconnected);
            tracing::debug!(%error, method = ?C::METHOD, "call to the master, retrying");
            waiting.set(format!("the master to answer: {error}"));
            self.turn_from(error);
            self.runtime.sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// The waits of the client.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// One attempt at the current master.
    pub async fn call_once<C: Call>(&self, message: &C, deadline: Duration) -> Result<C::Reply> {
        let address = &self.addresses[self.current.load(Ordering::Relaxed) % self.addresses.len()];
        self.connector.channel(address).call(message, deadline).await
    }

    /// One attempt, with raw bytes.
    pub async fn call_with<C: Call>(
        &self,
        message: &C,
        payload: Vec<Bytes>,
        deadline: Duration,
    ) -> Result<Response<C::Reply>> {
        let address = &self.addresses[self.current.load(Ordering::Relaxed) % self.addresses.len()];
        self.connector.channel(address).call_sized(message, payload, 0, deadline).await
    }

    /// Chooses the master for the next attempt after `error`.
    ///
    /// - `Overloaded`, `LeaseHeld`: the same master.
    /// - `NotLeader` with a known address in its text: that master.
    /// - Otherwise: the next master in the list.
    pub fn turn_from(&self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Overloaded | ErrorKind::LeaseHeld) {
            return;
        }
        let now = self.current.load(Ordering::Relaxed);
        let named = (error.kind() == ErrorKind::NotLeader)
            .then(|| self.addresses.iter().position(|address| error.detail().contains(address.as_str())))
            .flatten();
        self.current.store(named.unwrap_or(now + 1) % self.addresses.len(), Ordering::Relaxed);
    }

    fn out_of_time(&self, error: Error, deadline: Duration) -> Error {
        error.context(format_args!("gave up on the master after {} s", deadline.as_secs()))
    }
}

/// Whether the same request may succeed later or at another master.
pub(crate) fn is_transient(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotLeader
            | ErrorKind::Unreachable
            | ErrorKind::Disconnected
            | ErrorKind::Timeout
            | ErrorKind::Overloaded
            | ErrorKind::ShuttingDown
            | ErrorKind::Unavailable
            | ErrorKind::LeaseHeld
    )
}
