//! How long a session may owe what it was told to do: give a lease back, forget a name.
//!
//! A client that polls keeps its session, and with it what others wait for. One that reaches the master and no member can
//! neither flush nor give back, and one whose kernel hangs forgets nothing. So what is owed has an end. A lease alone cannot be
//! taken away, for the client believes in it as long as in its session: the session ends.
//!
//! Time counts from poll to poll, and of a gap no more than [`GAP_MAX`]: who sleeps by plan, and is heard again, is not blamed for
//! its sleep. A client that says that it is at work on it gets more time, but not without end.

use std::time::Duration;

/// Without a word that the client is at work.
pub const IDLE_MAX: Duration = Duration::from_secs(60);
/// In all: a flush of gigabytes over a slow network takes minutes.
pub const TOTAL_MAX: Duration = Duration::from_secs(900);
/// Of the time between two polls counts at most this.
pub const GAP_MAX: Duration = Duration::from_secs(5);

/// For how long something has been owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owed {
    idle: Duration,
    total: Duration,
}

impl Owed {
    /// A poll came, so long after the one before; `working`: the client says that it is at work on it.
    pub fn on_poll(&mut self, passed: Duration, working: bool) {
        let passed = passed.min(GAP_MAX);
        self.total += passed;
        self.idle = if working { Duration::ZERO } else { self.idle + passed };
    }

    /// Whether nobody has to wait for it any longer.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.idle >= IDLE_MAX || self.total >= TOTAL_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_millis(2500);

    /// Polls until it is overdue.
    fn polls(working: bool) -> u32 {
        let mut owed = Owed::default();
        (1..)
            .find(|_| {
                owed.on_poll(POLL, working);
                owed.is_overdue()
            })
            .expect("it ends")
    }

    #[test]
    fn who_says_nothing_has_a_minute_and_who_works_has_a_quarter_of_an_hour() {
        assert_eq!(POLL * polls(false), IDLE_MAX);
        assert_eq!(POLL * polls(true), TOTAL_MAX);
    }

    #[test]
    fn a_night_of_sleep_counts_as_a_moment() {
        let mut owed = Owed::default();
        owed.on_poll(Duration::from_secs(36_000), false);
        assert_eq!(owed, Owed { idle: GAP_MAX, total: GAP_MAX });
    }
}
