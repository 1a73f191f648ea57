//! Frames behind damage.

use crate::frame::{Frame, Framing};
use crate::sums::PartSums;

/// Looks for frames anywhere in some bytes.
///
/// A log contains user data, which may look like the beginning of a long frame at every place. To keep the cost
/// bounded, no byte is summed more than a few times: [`PartSums`] has the checksum of any part.
#[derive(Debug)]
pub struct Search<'a, F> {
    framing: F,
    bytes: &'a [u8],
    /// Made for the first candidate frame, because most searches find none.
    sums: Option<PartSums<'a>>,
}

impl<'a, F: Framing> Search<'a, F> {
    /// Looks in these bytes.
    pub const fn new(framing: F, bytes: &'a [u8]) -> Self {
        Self { framing, bytes, sums: None }
    }

    /// The first whole frame from `from` on that `is_meant` accepts, and its offset. `from` is a place where a frame
    /// may begin.
    pub fn find(&mut self, from: usize, mut is_meant: impl FnMut(usize, &Frame) -> bool) -> Option<(usize, Frame)> {
        debug_assert!(from.is_multiple_of(F::STEP), "frames begin at multiples of {}, not at {from}", F::STEP);
        (from..self.bytes.len()).step_by(F::STEP).find_map(|at| {
            let frame = self.framing.read_frame(&self.bytes[at..])?;
            let summed = at + frame.summed.start..at + frame.summed.end;
            if summed.end > self.bytes.len() || !is_meant(at, &frame) {
                return None;
            }
            let sums = self.sums.get_or_insert_with(|| PartSums::new(self.bytes));
            (sums.of(summed) == frame.sum).then_some((at, frame))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::{Plain, plain};

    /// User data that looks like the beginning of a frame at every place, with a checksum that does not fit.
    #[test]
    fn frames_are_found_behind_what_only_looks_like_them() {
        let mut bytes = b"EEEEEEEEE".repeat(20_000);
        let at = bytes.len();
        bytes.extend(plain(7, b"one"));
        bytes.extend(plain(8, b"two"));
        bytes.extend([0; 1000]);
        let mut search = Search::new(Plain, &bytes);
        let mut find =
            |from, least| search.find(from, |_, frame| frame.batch >= least && frame.batch < 9).map(|(at, _)| at);
        assert_eq!(find(0, 7), Some(at));
        assert_eq!(find(at + 1, 7), Some(at + 11));
        assert_eq!(find(0, 8), Some(at + 11));
        assert_eq!(find(at + 12, 0), None);
    }
}
