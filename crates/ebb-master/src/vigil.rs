//! Silence counts while this process can hear.
//!
//! A master that was stopped (SIGSTOP, a pause of its virtual machine, a swap storm, a suspended host) heard nobody meanwhile, and
//! what was said to it waits in its sockets. Sessions and nodes that it would find silent by the clock have done
//! nothing wrong: to end them for its own pause would lose unsynced writes, locks and copies. A restart gives everybody
//! the full time anew; a pause gives back what it took.
//!
//! A mark is made every [`PERIOD`]. A gap between two marks beyond [`TOLERANCE`] was a pause, and everybody's time moves by it.
//! It only ever moves later, which is safe: a client stops to believe in its session by its own clock. A plain state
//! machine; moments come in as arguments.

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::{Moment, Plant};

use crate::shared::Shared;

/// Between two marks.
pub const PERIOD: Duration = Duration::from_millis(200);
/// A mark that is late by less is a busy machine's.
pub const TOLERANCE: Duration = Duration::from_secs(1);

/// When this process was last seen to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vigil {
    last: Moment,
}

impl Vigil {
    /// It runs now.
    #[must_use]
    pub fn new(now: Moment) -> Self {
        Self { last: now }
    }

    /// It runs. Returns for how long it did not, if that was a pause.
    pub fn mark(&mut self, now: Moment) -> Option<Duration> {
        let gap = now.since(self.last);
        self.last = now.max(self.last);
        (gap >= PERIOD + TOLERANCE).then(|| gap - PERIOD)
    }
}

/// Marks that this process runs, and returns the moment of that. Silence is judged as of such a moment: after a pause nobody
/// knows which task goes on first, and a pause may come between the mark and the judgement.
pub(crate) fn mark(shared: &Shared) -> Moment {
    // Ordering: the mark and the times move in one step, or another task would judge between the two.
    let mut soft = shared.soft();
    let now = shared.runtime.now();
    let Some(pause) = soft.vigil.mark(now) else { return now };
    if shared.runtime.has_plant(Plant::BlamesSilence) {
        return now;
    }
    tracing::warn!(?pause, "this process did not run for a while: nobody's silence during that time counts");
    soft.sessions.on_pause(pause, now);
    soft.reclaim_until = soft.reclaim_until.map(|until| until.after(pause));
    soft.registry.on_pause(pause, now);
    now
}

/// Marks as long as the master runs.
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
    fn a_pause_is_told_once_and_a_late_mark_is_none() {
        let mut vigil = Vigil::new(at(0));
        assert_eq!(vigil.mark(at(200)), None);
        assert_eq!(vigil.mark(at(1399)), None, "busy");
        assert_eq!(vigil.mark(at(13_599)), Some(Duration::from_secs(12)));
        assert_eq!(vigil.mark(at(13_600)), None, "another task marks at the same time");
    }
}
