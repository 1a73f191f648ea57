//! A reader meets the old or the new bytes of a cell, never a mixture.
//!
//! Source: `docs/semantics.md`, "Overwrites never tear"; every write of the workload is a run of whole cells, and a
//! cell is smaller than a checksummed chunk.

use super::Violation;
use crate::cell::Value;
use crate::history::{Change, History, Read, Write};

/// Finds mixtures, and contents that no client wrote there.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    history.reads().iter().flat_map(|read| check_read(history, read)).collect()
}

fn check_read(history: &History, read: &Read) -> Vec<Violation> {
    let violation = |detail: String| {
        let rest = if read.at_rest { ", at rest" } else { "" };
        Violation::new("torn", format!("file {} as client {} read it{rest}: {detail}", read.file, read.client))
    };
    let check_cell = |(cell, value): &(u64, Value)| match value {
        Value::Empty => None,
        Value::Torn(detail) => Some(violation(format!("cell {cell}: {detail}"))),
        Value::Of(id, index) => match history.writes().get(id) {
            None => Some(violation(format!("cell {cell} is of write {id:?}, which no client made"))),
            Some(write) if write.file != read.file || !may_be(write, *cell, *index) => {
                let (file, change) = (write.file, write.change);
                Some(violation(format!(
                    "cell {cell} is cell {index} of write {id:?}, which went to file {file} {change:?}"
                )))
            }
            Some(write) if write.start > read.end => Some(violation(format!(
                "cell {cell} is of write {id:?}, which began at {} after {}",
                write.start, read.end
            ))),
            Some(_) => None,
        },
    };
    read.values.iter().filter_map(check_cell).collect()
}

/// Whether this cell of the file can be that cell of the write. An append without a known offset may have gone
/// anywhere.
fn may_be(write: &Write, cell: u64, index: u64) -> bool {
    match write.change {
        Change::Data { first: Some(first), count } => index < count && first + index == cell,
        Change::Data { first: None, count } => index < count,
        Change::Truncate { .. } | Change::Clear { .. } => false,
    }
}
