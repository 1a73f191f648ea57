//! A read that starts after a firm write returned sees that write or a later one; nothing that fsync acknowledged is
//! lost.
//!
//! Source: the promises to readers and to writers in `docs/semantics.md`. A write that did not return, or that the
//! system did not promise to keep, may be seen or not, at any time from its start on.

use super::Violation;
use crate::cell::Value;
use crate::history::{History, Read, Time, Write};

/// Finds reads that met something which had been overwritten for good before they began.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    history.reads().iter().flat_map(|read| check_read(history, read)).collect()
}

fn check_read(history: &History, read: &Read) -> Vec<Violation> {
    let writes: Vec<&Write> = history.writes().values().filter(|write| write.file == read.file).collect();
    let check_cell = |(cell, value): &(u64, Value)| {
        let met = match value {
            Value::Torn(_) => return None,
            Value::Of(id, _) => Some(history.writes().get(id)?),
            Value::Empty => None,
        };
        if met.is_some_and(|met| is_own_and_volatile(met, read)) {
            return None;
        }
        let later = match met {
            Some(met) => overwritten(&writes, *cell, met.settled_or_never(), read.start)?,
            None => emptied_never(&writes, *cell, read)?,
        };
        let rest = if read.at_rest { "at rest, " } else { "" };
        Some(Violation::new(
            "fresh",
            format!(
                "file {} cell {cell}: {rest}client {} read {value:?} at {}..{}, but {:?} of client {} had returned at {:?}",
                read.file, read.client, read.start, read.end, later.id, later.client, later.end
            ),
        ))
    };
    read.values.iter().filter_map(check_cell).collect()
}

/// A firm write to the cell that began after `met` and returned before `read`.
fn overwritten<'a>(writes: &[&'a Write], cell: u64, met: Time, read: Time) -> Option<&'a Write> {
    let is_after =
        |write: &&&Write| write.touches(cell) && write.start > met && write.settled().is_some_and(|end| end < read);
    writes.iter().find(is_after).copied()
}

/// For an empty cell: a firm write that no truncation can have undone, nor can it be from before the first write.
fn emptied_never<'a>(writes: &[&'a Write], cell: u64, read: &Read) -> Option<&'a Write> {
    let truncations =
        writes.iter().filter(|write| write.touches(cell) && is_truncation(write) && write.start <= read.end);
    // Emptiness is as young as the youngest truncation that it may come from.
    let mut youngest = overwritten_by_data(writes, cell, 0, read.start)?;
    for truncation in truncations {
        youngest = overwritten_by_data(writes, cell, truncation.settled_or_never(), read.start)?;
    }
    Some(youngest)
}

fn overwritten_by_data<'a>(writes: &[&'a Write], cell: u64, met: Time, read: Time) -> Option<&'a Write> {
    let data: Vec<&'a Write> = writes.iter().filter(|write| !is_truncation(write)).copied().collect();
    overwritten(&data, cell, met, read)
}

fn is_truncation(write: &Write) -> bool {
    matches!(write.change, crate::history::Change::Truncate { .. })
}

/// A client may see its own write that is later lost; nobody else may, for others see what was synced.
pub(super) fn is_own_and_volatile(write: &Write, read: &Read) -> bool {
    write.settled().is_none() && write.client == read.client
}

impl Write {
    /// When it had certainly happened; never, if it may happen at any time.
    fn settled_or_never(&self) -> Time {
        self.settled().unwrap_or(Time::MAX)
    }
}
