//! The vigil: silence counts only while this process can hear.
//!
//! A stopped master (SIGSTOP, a pause of its virtual machine, swapping, a suspended host) hears nothing, and messages
//! wait in its sockets. Sessions and nodes that are then silent by the clock have done nothing wrong. To end them for
//! the master's own pause would lose unsynced writes, locks and copies. A restart gives every session and node its full
//! time again. A pause is discounted in the same way.
//!
//! A mark is made every [`PERIOD`]. If two marks are further apart than that by [`TOLERANCE`], there was a pause, and
//! all deadlines move by it. They only move later, which is safe: a client stops believing in its session by its own
//! clock. A plain state machine; moments come in as arguments.

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::{Moment, SeededBug};

use crate::shared::Shared;

/// Interval of the marks.
pub const PERIOD: Duration = Duration::from_millis(200);
/// Maximum delay of a mark on a busy machine. A longer one is a pause.
pub const TOLERANCE: Duration = Duration::from_secs(1);

/// The moment when this process was last known to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vigil {
    last: Moment,
}

impl Vigil {
    /// A vigil that starts now.
    #[must_use]
    pub fn new(now: Moment) -> Self {
        Self { last: now }
    }

    /// Makes a mark. Returns the length of the pause before it, if there was one.
    pub fn mark(&mut self, now: Moment) -> Option<Duration> {
        let gap = now.since(self.last);
        self.last = now.max(self.last);
        (gap >= PERIOD + TOLERANCE).then(|| gap - PERIOD)
    }
}

/// Makes a mark, and returns its moment. Silence is measured at such a moment. After a pause any task may run first,
/// and a pause may fall between a mark and a later look at the clock.
pub(crate) fn mark(shared: &Shared) -> Moment {
    // Ordering: the mark and the deadlines change under one lock, or another task would act on the old deadlines in
    // between.
    let mut soft = shared.soft();
    let now = shared.runtime.now();
    let Some(pause) = soft.vigil.mark(now) else { return now };
    if shared.runtime.has_bug(SeededBug::BlamesSilence) {
        return now;
    }
    tracing::warn!(?pause, "this process did not run for a while: silence during that time does not count");
    soft.sessions.on_pause(pause, now);
    soft.reclaim_until = soft.reclaim_until.map(|until| until.after(pause));
    soft.registry.on_pause(pause, now);
    now
}

/// Makes marks until the master stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.is_stopped() {
        mark(&shared);
        shared.runtime.sleep(PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn a_pause_is_reported_once_and_a_late_mark_is_none() {
        let mut vigil = Vigil::new(at(0));
        assert_eq!(vigil.mark(at(200)), None);
        assert_eq!(vigil.mark(at(1399)), None, "busy");
        assert_eq!(vigil.mark(at(13_599)), Some(Duration::from_secs(12)));
        assert_eq!(vigil.mark(at(13_600)), None, "another task marks at the same time");
    }
}
