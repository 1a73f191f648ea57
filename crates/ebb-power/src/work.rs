//! Work that can end: a task begins on a node only if the node serves until the task has ended.
//!
//! A task on a node that falls asleep is frozen with it, and ends after the node has woken again. So it takes an
//! interval longer than its work, and with it the job whose last task it is. The rule costs less: the node idles for the
//! rest of its turn, or takes a smaller task.
//!
//! The workers of `ebb job` and those of the laboratory follow these functions.

use std::time::Duration;

use ebb_types::NodeId;

use crate::plan::lookup::Awake;
use crate::plan::timetable::Timetable;

/// Clocks, messages and the ticks of a scheduler: a task ends so long before its node falls asleep, in milliseconds.
const MARGIN_MS: u64 = 200;
/// A part of a turn that may be over when a task begins that no turn is long enough for: one in so many.
const LATE: u64 = 10;
/// Deviations from the mean that an estimate allows for. With four, TCP's timeouts seldom come too early (RFC 6298).
const DEVIATIONS: f64 = 4.0;
/// Weight of the newest time in the mean, and in the mean deviation (RFC 6298).
const NEWEST: f64 = 0.125;
const NEWEST_DEVIATION: f64 = 0.25;

/// Part of an interval that clients on a node keep for giving back what others would wait for, before the node sleeps.
const REST_PART: u64 = 40;
/// The least and the most of that, in milliseconds.
const REST_MS: (u64, u64) = (20, 500);

/// Time before a node falls asleep in which clients on it begin nothing, in milliseconds.
#[must_use]
pub fn rest_ms(interval_ms: u64) -> u64 {
    (interval_ms / REST_PART).clamp(REST_MS.0, REST_MS.1)
}

/// What a node does for work, from a moment on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// No plan lets it sleep.
    Always,
    /// It serves, and then sleeps.
    Awake {
        /// Milliseconds until its clients rest, shortly before it stops serving.
        left_ms: u64,
        /// Milliseconds of its next turn; of this one, if no plan wakes it again.
        whole_ms: u64,
        /// Milliseconds until its next turn. `None`: no plan wakes it again.
        next_ms: Option<u64>,
    },
    /// It sleeps.
    Asleep {
        /// Milliseconds until it serves.
        wakes_in_ms: u64,
    },
    /// No plan wakes it.
    Off,
}

impl Turn {
    /// Whether it serves now.
    #[must_use]
    pub const fn is_awake(self) -> bool {
        matches!(self, Self::Always | Self::Awake { .. })
    }

    /// Milliseconds that a task may take which begins now. 0: none may begin. `u64::MAX`: no bound.
    ///
    /// A task that is longer than a whole turn may begin as well, early in a turn. It is frozen for a while wherever it
    /// runs. [`Turn::may_begin`] knows about it.
    #[must_use]
    pub const fn room_ms(self) -> u64 {
        match self {
            Self::Always => u64::MAX,
            Self::Awake { left_ms, .. } => left_ms.saturating_sub(MARGIN_MS),
            Self::Asleep { .. } | Self::Off => 0,
        }
    }

    /// Whether a task that takes `need_ms` may begin now. None may where clients already rest.
    #[must_use]
    pub const fn may_begin(self, need_ms: u64) -> bool {
        match self {
            Self::Awake { left_ms, whole_ms, .. } if need_ms > whole_ms.saturating_sub(MARGIN_MS) => {
                left_ms > 0 && left_ms >= whole_ms - whole_ms / LATE
            }
            _ => self.is_awake() && need_ms <= self.room_ms(),
        }
    }

    /// Whether a task of `need_ms` that was begun here ends sooner on another node that begins it anew now.
    #[must_use]
    pub const fn is_sooner_elsewhere(self, need_ms: u64) -> bool {
        match self {
            Self::Asleep { wakes_in_ms } => need_ms < wakes_in_ms,
            Self::Off => true,
            Self::Always | Self::Awake { .. } => false,
        }
    }
}

impl Timetable {
    /// What a node does for work, from a moment on. Without a plan it always serves.
    #[must_use]
    pub fn turn(&self, node: NodeId, at_ms: u64) -> Turn {
        match self.awake_for(node, at_ms) {
            Awake::Always => Turn::Always,
            Awake::ForMs(left_ms) => {
                let wake = self.next_wake_ms(node, at_ms + left_ms);
                let rest_ms = rest_ms(self.at(at_ms).map_or(0, |plan| plan.interval_ms));
                let left_ms = left_ms.saturating_sub(rest_ms);
                let whole_ms = match wake.map(|wake| self.awake_for(node, wake)) {
                    Some(Awake::ForMs(whole)) => whole.saturating_sub(rest_ms).max(left_ms),
                    Some(Awake::Always) => u64::MAX,
                    Some(Awake::Asleep) | None => left_ms,
                };
                Turn::Awake { left_ms, whole_ms, next_ms: wake.map(|wake| wake - at_ms) }
            }
            Awake::Asleep => match self.next_wake_ms(node, at_ms) {
                Some(wake) => Turn::Asleep { wakes_in_ms: wake.saturating_sub(at_ms).max(1) },
                None => Turn::Off,
            },
        }
    }
}

/// How fast work is done, learned from what has ended: the mean time of a unit, and how far single times are from it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pace {
    /// Seconds of a unit.
    mean: f64,
    deviation: f64,
    is_guess: bool,
}

impl Pace {
    /// A guess, until the first work has ended: seconds of a unit.
    #[must_use]
    pub const fn guess(seconds: f64) -> Self {
        Self { mean: seconds, deviation: 0.0, is_guess: true }
    }

    /// So many units took so long. Time in which the worker was frozen must not be in it.
    pub fn learn(&mut self, units: u64, took: Duration) {
        let each = took.as_secs_f64() / units.max(1) as f64;
        if std::mem::take(&mut self.is_guess) {
            (self.mean, self.deviation) = (each, each / 2.0);
            return;
        }
        self.deviation += NEWEST_DEVIATION * ((each - self.mean).abs() - self.deviation);
        self.mean += NEWEST * (each - self.mean);
    }

    /// Milliseconds that so many units take, with a margin for those that take longer than the mean.
    #[must_use]
    pub fn need_ms(&self, units: u64) -> u64 {
        (self.unit_seconds() * units as f64 * 1000.0).ceil() as u64
    }

    /// Units that are done within so many milliseconds, by the same estimate.
    #[must_use]
    pub fn units_in(&self, room_ms: u64) -> u64 {
        (room_ms as f64 / 1000.0 / self.unit_seconds().max(f64::MIN_POSITIVE)) as u64
    }

    fn unit_seconds(&self) -> f64 {
        self.mean + DEVIATIONS * self.deviation
    }
}

#[cfg(test)]
mod tests;
