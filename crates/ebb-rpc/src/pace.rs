//! How slow a peer may be. Pure.
//!
//! A frame that a peer sends or takes holds memory of the server for as long as it is under way. A bound on the time
//! without a byte alone lets a peer hold it for months with a byte now and then, so there is a least rate, too.

use std::time::Duration;

use ebb_runtime::Moment;

/// Bounds on a frame that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Longest time without a byte, and the time that a frame may take beyond its bytes at the least rate.
    pub stall: Duration,
    /// Least rate over a frame.
    pub bytes_per_sec_min: u64,
}

/// Until when a frame must be over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    pace: Pace,
    end: Moment,
    /// From its beginning to its end.
    pub allowed: Duration,
}

impl Pace {
    /// Of a frame of `len` bytes that begins now.
    pub fn start_course(self, len: u64, now: Moment) -> Course {
        let allowed = self.stall + Duration::from_millis(len * 1000 / self.bytes_per_sec_min.max(1));
        Course { pace: self, end: now.after(allowed), allowed }
    }
}

impl Course {
    /// How long the next byte may take.
    pub fn patience(&self, now: Moment) -> Duration {
        self.pace.stall.min(self.end.since(now))
    }

    /// Why the peer is given up when that has passed.
    pub fn reproach(&self, now: Moment) -> String {
        if self.end <= now {
            format!("needed more than {} ms for a frame", self.allowed.as_millis())
        } else {
            format!("moved no byte for {} ms within a frame", self.pace.stall.as_millis())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_may_take_its_bytes_at_the_least_rate_and_one_stall() {
        let pace = Pace { stall: Duration::from_secs(15), bytes_per_sec_min: 1000 };
        let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
        let course = pace.start_course(20_000, at(100));
        assert_eq!(course.patience(at(100)), Duration::from_secs(15));
        assert_eq!(course.patience(at(130)), Duration::from_secs(5));
        assert_eq!(course.patience(at(135)), Duration::ZERO);
        assert_eq!(course.patience(at(999)), Duration::ZERO);
        assert_eq!(course.reproach(at(115)), "moved no byte for 15000 ms within a frame");
        assert_eq!(course.reproach(at(135)), "needed more than 35000 ms for a frame");
    }
}
