//! Availability during a single fault (docs/semantics.md, Faults are delays first): while at most one block server is impaired,
//! and the client that asks is well, every operation ends well within a bound.
//!
//! The bound is the time in which a write goes on without a silent member, and the delays that may come on top of it.

use std::time::Duration;

use ebb_types::deadlines::{GOES_ON_WITHIN, LATE_WAIT, REPLACE_PAUSE, SUSPECT_TIME};

use super::Violation;

/// A kind of operation of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OperationKind {
    /// Made a file, wrote to it and synced it.
    Create,
    /// Wrote to a file that it holds, and synced it.
    Write,
    /// Set a file's size, wrote, and synced it.
    Truncate,
    /// Appended to a file that others append to as well, and synced it.
    Append,
    /// Read its own file.
    Read,
    /// Read the file that another client writes.
    ReadOther,
    /// Looked a name up and removed it.
    Unlink,
}

impl OperationKind {
    /// How long it may take.
    #[must_use]
    pub fn bound(self) -> Duration {
        match self {
            // A metablock that was placed just before its member went silent; the next one is placed elsewhere.
            Self::Create | Self::Write | Self::Truncate => GOES_ON_WITHIN,
            // A member that is silent is asked first, and found out; or the file's own writes wait for it.
            Self::Read => GOES_ON_WITHIN,
            // Another client's data come when its writes have gone on, and are then read from members, one of which may
            // be silent.
            Self::ReadOther => GOES_ON_WITHIN + SUSPECT_TIME + LATE_WAIT,
            // The turn of another's append comes first, and a file changes hands: the lease is recalled, its holder's writes go on.
            Self::Append => GOES_ON_WITHIN * 2 + REPLACE_PAUSE,
            // No one uses the file's name, so nothing waits for it.
            Self::Unlink => SUSPECT_TIME,
        }
    }
}

/// When no fault is under way, repair stops the writers of a file for as long as a copy takes, and at most for two turns of it.
const AFTER: Duration = Duration::from_secs(20);

/// An operation that has ended; times are of the world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// The client.
    pub client: usize,
    /// Its kind.
    pub kind: OperationKind,
    /// When it was begun.
    pub start: Duration,
    /// When it was answered.
    pub end: Duration,
    /// The error, if it failed.
    pub error: Option<String>,
}

/// A block server that was impaired, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Impaired {
    /// How.
    pub how: String,
    /// From when.
    pub start: Duration,
    /// Until when.
    pub end: Duration,
}

/// Operations that failed, or took too long, each with the faults of that time.
#[must_use]
pub fn check(operations: &[Operation], faults: &[Impaired]) -> Vec<Violation> {
    let beside = |one: &Operation| {
        let meets = |fault: &&Impaired| fault.start <= one.end && one.start <= fault.end;
        let met: Vec<String> = faults
            .iter()
            .filter(meets)
            .map(|fault| format!("{} from {:.1?} to {:.1?}", fault.how, fault.start, fault.end))
            .collect();
        if met.is_empty() { "nothing was wrong".to_owned() } else { met.join(", ") }
    };
    let judge = |one: &Operation| {
        let meets = |fault: &Impaired| fault.start <= one.end && one.start <= fault.end;
        let is_during = faults.iter().any(meets);
        let (took, bound) = (one.end - one.start, if is_during { one.kind.bound() } else { AFTER });
        let wrong = match &one.error {
            Some(error) => format!("failed: {error}"),
            None if took > bound => format!("took {took:.2?}, and {bound:?} is promised"),
            None => return None,
        };
        let at = one.start;
        let text = format!("{:?} of client {} at {at:.2?} {wrong}; {}", one.kind, one.client, beside(one));
        Some(Violation::new("available", text))
    };
    operations.iter().filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_fails_or_takes_too_long_is_found_with_its_cause() {
        let span = Duration::from_secs;
        let one = |start, end, error: Option<&str>| Operation {
            client: 1,
            kind: OperationKind::Write,
            start: span(start),
            end: span(end),
            error: error.map(str::to_owned),
        };
        let fault = Impaired { how: "h2 frozen".to_owned(), start: span(10), end: span(30) };
        let found = check(&[one(1, 2, None), one(9, 14, None)], std::slice::from_ref(&fault));
        assert_eq!(found, []);
        let found = check(&[one(9, 15, None), one(40, 41, Some("EIO"))], &[fault]);
        assert!(found[0].detail.contains("took 6.00s, and 5s is promised; h2 frozen from 10.0s to 30.0s"), "{found:?}");
        assert!(found[1].detail.contains("failed: EIO; nothing was wrong"), "{found:?}");
        assert_eq!(check(&[one(40, 50, None)], &[]), [], "copies are made");
        assert_eq!(check(&[one(40, 61, None)], &[]).len(), 1);
    }
}
