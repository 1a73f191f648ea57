//! Work of a node's own that makes it slow, and for how long that excuses it.
//!
//! Who copies, checkpoints or scrubs answers late, and that passes by itself. But a disk that has become slow makes such work
//! long, so an excuse has an end. Plain values: moments come in as arguments.

use std::time::Duration;

use ebb_runtime::Moment;

/// Work excuses for so long.
const EXCUSED_MAX: Duration = Duration::from_secs(20);
/// After so long without any, the next one excuses again.
const REST_MIN: Duration = Duration::from_secs(5);

/// Whether a node has work of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OwnWork {
    /// It copies, checkpoints or scrubs.
    UnderWay,
    /// It only answers.
    None,
}

/// Since when a node works, and when it was last seen at it.
#[derive(Debug, Default)]
pub(crate) struct Excuse {
    work: Option<(Moment, Moment)>,
}

impl Excuse {
    /// Looks whether the node is excused now, as it works or does not.
    pub(crate) fn is_excused(&mut self, own_work: OwnWork, now: Moment) -> bool {
        let goes_on = self.work.filter(|(_, seen)| now.since(*seen) < REST_MIN);
        self.work = match (goes_on, own_work) {
            (Some((begun, _)), OwnWork::UnderWay) => Some((begun, now)),
            (None, OwnWork::UnderWay) => Some((now, now)),
            (kept, OwnWork::None) => kept,
        };
        own_work == OwnWork::UnderWay && self.work.is_some_and(|(begun, _)| now.since(begun) < EXCUSED_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn work_excuses_for_a_while_and_again_after_a_rest() {
        let mut excuse = Excuse::default();
        assert!(!excuse.is_excused(OwnWork::None, at(0)));
        let work = |second: u64| if second.is_multiple_of(3) { OwnWork::None } else { OwnWork::UnderWay };
        let excused: Vec<u64> = (1..40).filter(|second| excuse.is_excused(work(*second), at(*second))).collect();
        assert_eq!(excused, [1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20], "pauses between copies are none");
        assert!(!excuse.is_excused(OwnWork::UnderWay, at(42)));
        assert!(excuse.is_excused(OwnWork::UnderWay, at(49)));
    }
}
