//! Limits on the time for which a session may owe an action that others wait for: to give a lease back, or to forget a
//! name.
//!
//! A client that polls keeps its session, and with it the leases that others wait for. A client that reaches the master
//! but no member can neither flush nor give back. A client whose kernel hangs forgets no name. So an owed action has a
//! time limit. A lease alone cannot be taken away, because the client believes in it as long as in its session. Past
//! the limit the whole session ends.
//!
//! Time counts from poll to poll, and at most [`GAP_MAX`] of each gap counts. A client that sleeps by plan and returns
//! is thus not blamed for its sleep. A client that reports progress gets more time, up to a fixed total.

use std::time::Duration;

/// Limit without a report of progress from the client.
pub const IDLE_MAX: Duration = Duration::from_secs(60);
/// Limit in all. A flush of gigabytes over a slow network takes minutes.
pub const TOTAL_MAX: Duration = Duration::from_secs(900);
/// The part of the time between two polls that counts, at most.
pub const GAP_MAX: Duration = Duration::from_secs(5);
/// Whether a client reports progress on the leases that it owes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// The client does not mention it.
    Idle,
    /// The client works on it.
    Working,
}
/// Time for which an action has been owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owed {
    idle: Duration,
    total: Duration,
}

impl Owed {
    /// Counts a poll that came `passed` after the one before.
    pub fn on_poll(&mut self, passed: Duration, word: Word) {
        let passed = passed.min(GAP_MAX);
        self.total += passed;
        self.idle = if word == Word::Working { Duration::ZERO } else { self.idle + passed };
    }

    /// Whether the limit is exceeded, so that the session may be ended.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.idle >= IDLE_MAX || self.total >= TOTAL_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_millis(2500);

    /// Number of polls until the limit is exceeded.
    fn polls(word: Word) -> u32 {
        let mut owed = Owed::default();
        (1..)
            .find(|_| {
                owed.on_poll(POLL, word);
                owed.is_overdue()
            })
            .expect("it ends")
    }

    #[test]
    fn a_silent_node_has_a_minute_and_a_working_one_has_a_quarter_of_an_hour() {
        assert_eq!(POLL * polls(Word::Idle), IDLE_MAX);
        assert_eq!(POLL * polls(Word::Working), TOTAL_MAX);
    }

    #[test]
    fn a_night_of_sleep_counts_as_a_moment() {
        let mut owed = Owed::default();
        owed.on_poll(Duration::from_secs(36_000), Word::Idle);
        assert_eq!(owed, Owed { idle: GAP_MAX, total: GAP_MAX });
    }
}
