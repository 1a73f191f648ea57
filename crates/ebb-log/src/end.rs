//! The state of a log at the place of the next frame: free, torn or damaged.

use crate::frame::{Frame, Framing};
use crate::search::Search;

/// The bytes at the place where the next frame should begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// Zeros, or nothing: the log ends here.
    Free,
    /// Bytes that are no frame, without a later batch behind them: a write that a crash cut off, and that was never
    /// acknowledged.
    Torn,
    /// A later batch lies behind bytes that are no frame: these had been synced.
    Damaged {
        /// Offset of the later frame.
        later_at: usize,
        /// Its batch.
        batch: u64,
    },
}

/// Classifies the bytes from `at` on, if no frame of the next batch begins there. `is_later`: whether a frame's batch
/// is written only after the missing batch was synced.
pub fn find_end<F: Framing>(framing: F, bytes: &[u8], at: usize, is_later: impl Fn(&Frame) -> bool) -> End {
    if bytes.get(at..).is_none_or(|rest| rest.iter().all(|byte| *byte == 0)) {
        return End::Free;
    }
    match Search::new(framing, bytes).find(at, |_, frame| is_later(frame)) {
        Some((later_at, frame)) => End::Damaged { later_at, batch: frame.batch },
        None => End::Torn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::{Plain, plain};

    #[test]
    fn a_torn_end_is_distinguished_from_damage_by_the_bytes_that_follow() {
        let (one, two) = (plain(1, b"first"), plain(2, b"second"));
        let end = |bytes: &[u8]| find_end(Plain, bytes, 0, |frame| frame.batch > 1);
        assert_eq!(end(b""), End::Free);
        assert_eq!(end(&[0; 64]), End::Free);
        assert_eq!(end(&one[..one.len() - 1]), End::Torn);
        let mut damaged = one.clone();
        damaged[9] ^= 1;
        assert_eq!(end(&damaged), End::Torn);
        assert_eq!(end(&[&damaged[..], &one].concat()), End::Torn, "the same batch again is no later one");
        let followed = [&damaged[..], &two].concat();
        assert_eq!(end(&followed), End::Damaged { later_at: one.len(), batch: 2 });
        assert_eq!(find_end(Plain, &followed, followed.len() + 9, |_| true), End::Free);
    }
}
