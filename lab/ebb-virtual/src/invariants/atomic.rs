//! Reads never go back: each cell behaves as one register, and all see its values in one order.
//!
//! Source: the promise to readers in `docs/semantics.md`. The test is Gibbons and Korach's for registers whose writes
//! all differ ("Testing Shared Memories", SIAM J. Comput. 26 (1997), section 4): for each value let `f` be the
//! earliest end and `s` the latest start among its write and the reads of it. If `f < s` the value was certainly there
//! from `f` to `s` (a forward zone), else it may have been there for an instant between `s` and `f` (a backward
//! zone). The history is atomic if no two forward zones overlap and no backward zone lies within a forward zone.
//!
//! Emptiness is left out, since many truncations write the same; leaving a value out with all that belongs to it
//! makes no atomic history another.

use std::collections::BTreeMap;

use super::Violation;
use super::fresh::is_own_and_volatile;
use crate::cell::{Value, WriteId};
use crate::history::{History, Time};

/// When a value was there.
#[derive(Clone, Copy)]
struct Zone {
    id: WriteId,
    earliest_end: Time,
    latest_start: Time,
}

impl Zone {
    fn is_forward(&self) -> bool {
        self.earliest_end < self.latest_start
    }

    fn describe(&self) -> String {
        format!("{:?} (first end {}, last start {})", self.id, self.earliest_end, self.latest_start)
    }
}

/// Finds values that must both have been there at one time, in both orders.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let mut cells: BTreeMap<(usize, u64), BTreeMap<WriteId, Zone>> = BTreeMap::new();
    for read in history.reads() {
        for (cell, value) in &read.values {
            let Value::Of(id, _) = value else { continue };
            let Some(write) = history.writes().get(id) else { continue };
            if is_own_and_volatile(write, read) {
                continue;
            }
            let zones = cells.entry((read.file, *cell)).or_default();
            let zone = zones.entry(*id).or_insert_with(|| Zone {
                id: *id,
                earliest_end: write.settled().unwrap_or(Time::MAX),
                latest_start: write.start,
            });
            zone.earliest_end = zone.earliest_end.min(read.end);
            zone.latest_start = zone.latest_start.max(read.start);
        }
    }
    cells.iter().flat_map(|((file, cell), zones)| check_cell(*file, *cell, zones)).collect()
}

fn check_cell(file: usize, cell: u64, zones: &BTreeMap<WriteId, Zone>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let zones: Vec<&Zone> = zones.values().collect();
    for (index, one) in zones.iter().enumerate().filter(|(_, zone)| zone.is_forward()) {
        for (other_index, other) in zones.iter().enumerate().filter(|(other, _)| *other != index) {
            // For two forward zones this is overlap, which is the same from both sides and reported once; for a
            // backward zone it is to lie within.
            let clash = one.earliest_end < other.latest_start && other.earliest_end < one.latest_start;
            let is_explained = other.is_forward() && other_index < index;
            if clash && !is_explained {
                let detail = format!(
                    "file {file} cell {cell}: reads went back between {} and {}",
                    one.describe(),
                    other.describe()
                );
                violations.push(Violation::new("atomic", detail));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Change, Read};

    const DATA: Change = Change::Data { first: Some(0), count: 1 };

    /// Writes of client 0 by start and end, all firm, and reads of client 1 by value, start and end.
    fn history(writes: &[(Time, Option<Time>)], reads: &[(u64, Time, Time)]) -> History {
        let mut history = History::default();
        for (start, end) in writes {
            let id = history.begin_write(0, 0, DATA, *start);
            if let Some(end) = end {
                history.end(id, *end, None);
            }
        }
        history.synced(0, 0, Time::MAX);
        for (id, start, end) in reads {
            let values = vec![(0, Value::Of(WriteId(*id), 0))];
            history.read(Read { client: 1, file: 0, values, start: *start, end: *end, at_rest: false });
        }
        history
    }

    #[test]
    fn going_back_is_found_even_while_the_write_is_under_way() {
        let writes = [(1, Some(2)), (10, Some(100))];
        assert_eq!(check(&history(&writes, &[(2, 20, 30), (1, 40, 50)])).len(), 1);
        assert_eq!(check(&history(&writes, &[(1, 20, 30), (2, 40, 50)])).len(), 0);
        assert_eq!(check(&history(&writes, &[(2, 20, 45), (1, 40, 50)])).len(), 0, "reads side by side");
    }

    #[test]
    fn a_write_that_never_returned_may_come_late_but_not_go_again() {
        let writes = [(1, Some(2)), (10, None)];
        assert_eq!(check(&history(&writes, &[(1, 500, 510), (2, 600, 610)])).len(), 0);
        assert_eq!(check(&history(&writes, &[(2, 500, 510), (1, 600, 610)])).len(), 1);
    }

    #[test]
    fn two_values_cannot_take_turns() {
        let writes = [(1, Some(9)), (1, Some(13))];
        let reads = [(1, 10, 11), (2, 12, 13), (1, 14, 15)];
        assert!(!check(&history(&writes, &reads)).is_empty());
        assert!(check(&history(&writes, &reads[..2])).is_empty());
    }
}
