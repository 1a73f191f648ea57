//! Appends go to the end: no two of them get the same place, unless a truncation may have come between.
//!
//! Source: O_APPEND in open(2), "the file offset is first set to the end of the file before writing; the adjustment of
//! the file offset and the write operation are performed as an atomic step", between clients as well.

use super::Violation;
use crate::history::{Change, History, Time, Write};

/// Finds firm appends that overlap.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let appends: Vec<(&Write, u64, u64)> = history.writes().values().filter_map(place).collect();
    let mut violations = Vec::new();
    for (index, (one, from, to)) in appends.iter().enumerate() {
        for (other, other_from, other_to) in &appends[index + 1..] {
            let overlap = one.file == other.file && from < other_to && other_from < to;
            if overlap && !truncated_between(history, one, other) {
                let (ours, theirs) = (one.id, other.id);
                let detail = format!(
                    "file {}: {ours:?} went to cells {from}..{to}, {theirs:?} to {other_from}..{other_to}",
                    one.file
                );
                violations.push(Violation::new("append", detail));
            }
        }
    }
    violations
}

/// The cells of an append that is promised to stay.
fn place(write: &Write) -> Option<(&Write, u64, u64)> {
    write.settled().filter(|_| write.appended)?;
    match write.change {
        Change::Data { first: Some(first), count } => Some((write, first, first + count)),
        _ => None,
    }
}

fn truncated_between(history: &History, one: &Write, other: &Write) -> bool {
    let from = one.start.min(other.start);
    let to = one.end.max(other.end).unwrap_or(Time::MAX);
    history.writes().values().any(|write| {
        let is_truncation = matches!(write.change, Change::Truncate { .. });
        is_truncation && write.file == one.file && write.start < to && write.settled().unwrap_or(Time::MAX) > from
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two firm appends of two cells each, at these places, and perhaps a truncation between.
    fn appended(first: u64, second: u64, truncated: bool) -> Vec<Violation> {
        let mut history = History::default();
        for (at, start) in [(first, 10), (second, 30)] {
            let id = history.begin_write(0, 0, Change::Data { first: None, count: 2 }, start);
            history.end(id, start + 5, Some(at));
            if truncated && start == 10 {
                let id = history.begin_write(1, 0, Change::Truncate { from: 0 }, 20);
                history.end(id, 25, None);
            }
        }
        history.synced(0, 0, 100);
        check(&history)
    }

    #[test]
    fn overlap_is_found_unless_a_truncation_explains_it() {
        assert_eq!(appended(0, 1, false).len(), 1);
        assert_eq!(appended(0, 2, false).len(), 0);
        assert_eq!(appended(0, 1, true).len(), 0);
    }
}
