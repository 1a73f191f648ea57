//! The time by which certificates are checked.

use std::time::Duration;

use ebb_runtime::Runtime;
use tokio_rustls::rustls::pki_types::UnixTime;
use tokio_rustls::rustls::time_provider::TimeProvider;

/// The runtime's wall clock, for rustls.
#[derive(Debug)]
pub struct RuntimeClock(pub Runtime);

impl TimeProvider for RuntimeClock {
    fn current_time(&self) -> Option<UnixTime> {
        let ns = u64::try_from(self.0.wall().0).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(ns)))
    }
}
