//! A write is met as a whole, over all blocks and metablocks that it lies in: a reader that sees a part of it sees
//! nothing older beside it.
//!
//! Source: the promise between clients in `docs/semantics.md`, "Atomicity of writes". A write that has returned and was
//! synced is one change of the file, and a read is one look at it. So where a read shows such a write in one cell, it
//! shows in another cell of the same write nothing that had certainly happened before the write began. Emptiness is
//! left out: it does not show which truncation or hole it is of. Reads of a client that writes itself, under a lease of
//! its own, are left out, too.

use super::Violation;
use crate::cell::{Value, WriteId};
use crate::history::{History, Read, Write};

/// Finds reads that show a part of a write, and beside it data that the write had replaced.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    history.reads().iter().filter_map(|read| check_read(history, read)).collect()
}

fn check_read(history: &History, read: &Read) -> Option<Violation> {
    let mut met: Vec<WriteId> = Vec::new();
    for (_, value) in &read.values {
        if let Value::Of(id, _) = value
            && met.last() != Some(id)
        {
            met.push(*id);
        }
    }
    met.sort_unstable();
    met.dedup();
    met.iter().find_map(|id| check_write(history, read, history.writes().get(id)?))
}

fn check_write(history: &History, read: &Read, write: &Write) -> Option<Violation> {
    if write.client == read.client || write.settled().is_none() || write.file != read.file {
        return None;
    }
    let is_older = |(cell, value): &&(u64, Value)| match value {
        Value::Of(id, _) if *id != write.id && write.touches(*cell) => {
            history.writes().get(id).and_then(Write::settled).is_some_and(|end| end < write.start)
        }
        _ => false,
    };
    let (cell, value) = read.values.iter().find(is_older)?;
    let detail = format!(
        "file {}: client {} read at {}..{} a part of {:?} {:?} of client {}, and in cell {cell} {value:?}, which was there before",
        read.file, read.client, read.start, read.end, write.id, write.change, write.client
    );
    Some(Violation::new("whole", detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Change;

    /// A write of cells 0 to 9 and another of 4 to 7, both synced, and a read that shows `values`.
    fn broken(values: Vec<(u64, Value)>) -> bool {
        let mut history = History::default();
        for (at, (first, count)) in [(0, 10), (4, 4)].into_iter().enumerate() {
            let start = at as u64 * 100 + 1;
            let id = history.begin_write(at, 0, Change::Data { first: Some(first), count }, start);
            history.end(id, start + 10, None);
            history.synced(at, 0, start + 20);
        }
        history.read(Read { client: 2, file: 0, values, start: 105, end: 150, at_rest: false });
        !check(&history).is_empty()
    }

    #[test]
    fn a_part_beside_its_replacement_is_found() {
        let (old, new) = (WriteId(1), WriteId(2));
        let of = |id: WriteId, cell: u64| (cell, Value::Of(id, cell));
        assert!(!broken(vec![of(old, 3), of(old, 4), of(old, 5)]));
        assert!(!broken(vec![of(old, 3), of(new, 4), of(new, 5), of(old, 8)]), "outside of it there may be anything");
        assert!(broken(vec![of(old, 3), of(new, 4), of(old, 5)]));
        assert!(!broken(vec![of(new, 4), (5, Value::Empty)]));
    }
}
