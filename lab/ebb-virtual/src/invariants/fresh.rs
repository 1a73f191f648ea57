//! A read that starts after a firm write returned sees that write or a later one; nothing that fsync acknowledged is
//! lost.
//!
//! Source: the promises to readers and to writers in `docs/semantics.md`. A write that did not return, or that the
//! system did not promise to keep, may be seen or not, at any time from its start on.

use std::collections::BTreeMap;

use super::Violation;
use crate::cell::Value;
use crate::history::{Change, History, Read, Time, Write};

/// Finds reads that met something which had been overwritten for good before they began.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let changes = Changes::of(history);
    history.reads().iter().flat_map(|read| check_read(history, &changes, read)).collect()
}

/// Writes by the cells that they go to; truncations and holes by file.
struct Changes<'a> {
    data: BTreeMap<(usize, u64), Vec<&'a Write>>,
    emptied: BTreeMap<usize, Vec<&'a Write>>,
}

impl<'a> Changes<'a> {
    fn of(history: &'a History) -> Self {
        let mut changes = Self { data: BTreeMap::new(), emptied: BTreeMap::new() };
        for write in history.writes().values() {
            match write.change {
                Change::Data { first: Some(first), count } => {
                    for cell in first..first + count {
                        changes.data.entry((write.file, cell)).or_default().push(write);
                    }
                }
                Change::Data { first: None, .. } => {}
                Change::Truncate { .. } | Change::Clear { .. } => {
                    changes.emptied.entry(write.file).or_default().push(write);
                }
            }
        }
        changes
    }

    fn data(&self, file: usize, cell: u64) -> impl Iterator<Item = &'a Write> + '_ {
        self.data.get(&(file, cell)).into_iter().flatten().copied()
    }

    fn emptied(&self, file: usize, cell: u64) -> impl Iterator<Item = &'a Write> + '_ {
        let all = self.emptied.get(&file).into_iter().flatten().copied();
        all.filter(move |write| write.touches(cell))
    }

    /// A firm change of the cell that began after `met` and returned before `read`.
    fn overwritten(&self, file: usize, cell: u64, met: Time, read: Time) -> Option<&'a Write> {
        let is_after = |write: &&Write| is_between(write, met, read);
        self.data(file, cell).find(is_after).or_else(|| self.emptied(file, cell).find(is_after))
    }

    /// For an empty cell: a firm write that nothing that empties cells can have undone, nor can it be from before the first write.
    fn emptied_never(&self, file: usize, cell: u64, read: &Read) -> Option<&'a Write> {
        let after = |met: Time| self.data(file, cell).find(|write| is_between(write, met, read.start));
        // Emptiness is as young as the youngest truncation or hole that it may come from.
        let mut youngest = after(0)?;
        for emptied in self.emptied(file, cell).filter(|write| write.start <= read.end) {
            youngest = after(emptied.settled_or_never())?;
        }
        Some(youngest)
    }
}

fn is_between(write: &Write, met: Time, read: Time) -> bool {
    write.start > met && write.settled().is_some_and(|end| end < read)
}

fn check_read(history: &History, changes: &Changes<'_>, read: &Read) -> Vec<Violation> {
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
            Some(met) => changes.overwritten(read.file, *cell, met.settled_or_never(), read.start)?,
            None => changes.emptied_never(read.file, *cell, read)?,
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

/// A client may see its own write that is later lost; other clients may not, for they see synced writes only.
pub(super) fn is_own_and_volatile(write: &Write, read: &Read) -> bool {
    write.settled().is_none() && write.client == read.client
}

impl Write {
    /// When it had certainly happened; never, if it may happen at any time.
    fn settled_or_never(&self) -> Time {
        self.settled().unwrap_or(Time::MAX)
    }
}
