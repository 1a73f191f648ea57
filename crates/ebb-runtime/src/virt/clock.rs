//! Clocks of virtual hosts: started at different moments, running a little too fast or too slow, set wrong.

use std::time::Duration;

use ebb_types::WallTime;

use super::dice::{Dice, nanos};
use crate::Moment;

/// Wall time at the start of every world: 2026-01-01T00:00:00Z.
const WALL_START_NS: i64 = 1_767_225_600_000_000_000;

/// A clock that shows another time than virtual time does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The value of the lease clock at the world's start: hosts booted at different times, so a moment of one means
    /// nothing on another, and code that mixes them up shows.
    start_ns: u64,
    drift_ppm: i64,
    /// Added to wall time.
    skew_ns: i64,
}

impl Clock {
    pub(super) fn new(dice: &mut Dice, drift_ppm_max: u32) -> Self {
        let max = i64::from(drift_ppm_max);
        Self {
            start_ns: nanos(dice.span(Duration::from_secs(1_000_000))),
            drift_ppm: dice.between(0, 2 * max.unsigned_abs()).cast_signed() - max,
            skew_ns: 0,
        }
    }

    pub(super) fn set_skew(&mut self, skew_ns: i64) {
        self.skew_ns = skew_ns;
    }

    /// The lease clock at a virtual time.
    pub(super) fn moment(&self, virtual_ns: u64) -> Moment {
        Moment(Duration::from_nanos(self.start_ns + self.local(virtual_ns)))
    }

    /// The wall clock at a virtual time.
    pub(super) fn wall(&self, virtual_ns: u64) -> WallTime {
        let passed = i64::try_from(self.local(virtual_ns)).unwrap_or(i64::MAX);
        WallTime(WALL_START_NS.saturating_add(passed).saturating_add(self.skew_ns))
    }

    /// Virtual time that passes while this clock measures `span`.
    pub(super) fn virtual_ns(&self, span: Duration) -> u64 {
        let span = i128::from(nanos(span));
        // Rounded up: a sleep never ends early by its own clock.
        let scale = i128::from(1_000_000 + self.drift_ppm);
        u64::try_from((span * 1_000_000 + scale - 1) / scale).unwrap_or(u64::MAX)
    }

    fn local(&self, virtual_ns: u64) -> u64 {
        let scaled = i128::from(virtual_ns) * i128::from(1_000_000 + self.drift_ppm) / 1_000_000;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}
