//! At rest, replicas of one metablock are equal, byte for byte.
//!
//! Source: I-7 in `docs/invariants.md`, "a version names one content". Bytes behind the end of the shorter one must be
//! zeroes: room that was kept ahead of growth.

use super::Violation;
use crate::survey::{Survey, Surveyed};

/// Compares replicas with each other.
#[must_use]
pub fn check(survey: &Survey) -> Vec<Violation> {
    survey.metablocks.iter().filter(|metablock| metablock.is_written()).filter_map(check_one).collect()
}

fn check_one(metablock: &Surveyed) -> Option<Violation> {
    let ((first, content), others) = metablock.replicas.split_first()?;
    others.iter().find_map(|(other, theirs)| {
        let at = first_difference(content, theirs)?;
        let detail = format!(
            "m{} of inode {}: {} on {} and {} differ at byte {at}",
            metablock.record.id,
            metablock.inode,
            first.path.display(),
            first.host,
            other.host
        );
        Some(Violation::new("replicas", detail))
    })
}

fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    let differs = short.iter().zip(long).position(|(one, other)| one != other);
    differs.or_else(|| long[short.len()..].iter().position(|byte| *byte != 0).map(|at| short.len() + at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zeroes_may_follow_the_shorter_one() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        assert_eq!(first_difference(b"abc", b"abc\0\0"), None);
        assert_eq!(first_difference(b"abc\0x", b"abc"), Some(4));
        assert_eq!(first_difference(b"abc", b"axc"), Some(1));
    }
}
