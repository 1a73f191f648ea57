//! A snapshot is the tree at one moment between its order and its answer, and never changes.
//!
//! Source: "Snapshots" in `docs/semantics.md`. So what is read in it, whenever that is, is what a reader of the files would have met at
//! that moment: [`as_reads`] gives it to the checkers of reads. The moment is later than the beginning of every write that the snapshot
//! has, whichever file it went to. Of two writes, one of which ended before the other began, it never has the later one alone.

use std::collections::BTreeMap;

use super::Violation;
use crate::cell::Value;
use crate::history::{History, Read, Time};
use crate::snapshots::Snapshot;

/// The number of the reader among the clients: it writes nothing.
const READER: usize = usize::MAX - 1;

/// Finds cells of a snapshot that were read twice and had changed.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (name, taken) in history.snapshots() {
        let mut met: BTreeMap<(usize, u64), &Value> = BTreeMap::new();
        for look in &taken.looks {
            for (cell, value) in &look.values {
                let first = *met.entry((look.file, *cell)).or_insert(value);
                if first != value {
                    let detail = format!("file {} cell {cell} in {name}: first {first:?}, then {value:?}", look.file);
                    violations.push(Violation::new("cut", detail));
                }
            }
        }
    }
    violations
}

/// What was read in snapshots, as reads of the files at the moments of these.
#[must_use]
pub fn as_reads(history: &History) -> Vec<Read> {
    let mut reads = Vec::new();
    for taken in history.snapshots().values() {
        // One that was never found was never read.
        let Some(end) = taken.end else { continue };
        let start = newest_write(history, taken).max(taken.start).min(end);
        reads.extend(taken.looks.iter().map(|look| Read {
            client: READER,
            file: look.file,
            values: look.values.clone(),
            start,
            end,
            at_rest: false,
        }));
    }
    reads
}

/// The latest beginning of the writes that a snapshot has.
fn newest_write(history: &History, taken: &Snapshot) -> Time {
    let values = taken.looks.iter().flat_map(|look| &look.values);
    let ids = values.filter_map(|(_, value)| match value {
        Value::Of(id, _) => Some(id),
        Value::Empty | Value::Torn(_) => None,
    });
    ids.filter_map(|id| history.writes().get(id)).map(|write| write.start).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::WriteId;
    use crate::history::Change;
    use crate::invariants::check_history;
    use crate::snapshots::{Look, Standing};

    const DATA: Change = Change::Data { first: Some(0), count: 1 };

    /// Synced writes to files by start and end, and a snapshot from 50 to 60 with looks at cell 0 of files. 0 is none.
    fn broken(writes: &[(usize, Time, Time)], looks: &[(usize, u64)]) -> Vec<&'static str> {
        let mut history = History::default();
        for (file, start, end) in writes {
            let id = history.begin_write(0, *file, DATA, *start);
            history.end(id, *end, None);
            history.synced(0, *file, *end);
        }
        let value = |id: u64| if id == 0 { Value::Empty } else { Value::Of(WriteId(id), 0) };
        let look = |(file, id): &(usize, u64)| Look { file: *file, values: vec![(0, value(*id))] };
        let looks = looks.iter().map(look).collect();
        let taken = Snapshot { start: 50, end: Some(60), standing: Standing::There, looks };
        history.snapshots_mut().insert("one".into(), taken);
        let mut found: Vec<_> = check_history(&history).into_iter().map(|violation| violation.invariant).collect();
        found.dedup();
        found
    }

    #[test]
    fn what_was_written_before_is_in_it_and_what_came_later_is_not() {
        let writes = [(0, 10, 20), (0, 70, 80)];
        assert_eq!(broken(&writes, &[(0, 1), (0, 1)]), [""; 0]);
        assert_eq!(broken(&writes, &[(0, 0)]), ["fresh"]);
        assert_eq!(broken(&writes, &[(0, 2)]), ["torn"], "of a write that began later");
        assert_eq!(broken(&writes, &[(0, 1), (0, 2)]), ["cut", "torn"]);
    }

    #[test]
    fn of_two_writes_the_later_one_is_never_there_alone() {
        let writes = [(0, 10, 20), (0, 51, 52), (1, 53, 54)];
        assert_eq!(broken(&writes, &[(0, 1), (1, 0)]), [""; 0]);
        assert_eq!(broken(&writes, &[(0, 2), (1, 0)]), [""; 0]);
        assert_eq!(broken(&writes, &[(0, 2), (1, 3)]), [""; 0]);
        assert_eq!(broken(&writes, &[(0, 1), (1, 3)]), ["fresh"]);
    }
}
