//! Contents that are not in a replica's file yet: in the order in which they go there, and merged for reads.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::extents::Extents;
use crate::record::{Content, Record};

/// Records in place may stay merged up to this number, plus the number of records that wait. Beyond it, the merge is
/// done anew.
const GONE_MAX: usize = 64;

/// Records with contents that are not in the file. The first ones may be in the journal, the last ones are pending.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    records: VecDeque<Unapplied>,
    /// Contents of the records, and of `gone` records that have been put in place since, for which the file has the
    /// same bytes. A merge at each read would make many small writes take quadratic time, because each write of part of
    /// a chunk reads.
    merged: Extents,
    gone: usize,
}

/// A record with content that is not in the file.
#[derive(Debug)]
pub(crate) struct Unapplied {
    pub(crate) record: Arc<Record>,
    /// The memory that it takes. Dropping it frees the memory.
    pub(crate) _permit: Option<OwnedSemaphorePermit>,
}

impl Overlay {
    /// Adds a record that was received just now. A record without a place of its own still changes the merged contents.
    pub(crate) fn receive(&mut self, record: &Arc<Record>, permit: Option<OwnedSemaphorePermit>) {
        if record.has_place() {
            self.merged.add(record);
            self.records.push_back(Unapplied { record: record.clone(), _permit: permit });
        } else if !self.records.is_empty() {
            self.merged.add(record);
        }
    }

    /// Removes the first record, which has been put in place.
    pub(crate) fn pop(&mut self) -> Option<Unapplied> {
        let done = self.records.pop_front()?;
        self.gone += 1;
        assert!(self.gone <= self.records.len() + GONE_MAX + 2, "{} that are gone stay merged", self.gone);
        // After these the merged contents are not those of the file, because it is another file.
        let another = matches!(done.record.content, Content::Replace { .. } | Content::Delete);
        if another || self.records.is_empty() || self.gone > self.records.len() + GONE_MAX {
            self.merged = Extents::default();
            self.records.iter().for_each(|one| self.merged.add(&one.record));
            self.gone = 0;
        }
        Some(done)
    }

    /// The next record to put in place.
    pub(crate) fn first(&self) -> Option<&Arc<Record>> {
        self.records.front().map(|one| &one.record)
    }

    /// In order.
    pub(crate) fn records(&self) -> impl ExactSizeIterator<Item = &Record> {
        self.records.iter().map(|one| &*one.record)
    }

    /// Bytes of all records.
    pub(crate) fn data_bytes(&self) -> usize {
        self.records().filter_map(Record::data).map(bytes::Bytes::len).sum()
    }

    /// Whether the file has everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// All merged.
    pub(crate) fn merged(&self) -> &Extents {
        &self.merged
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::MetablockId;
    use proptest::prelude::*;

    use super::*;
    use crate::record::Head;

    const SIZE: usize = 400;

    fn record(length_before: u64, length: u64, content: Content) -> Arc<Record> {
        let after = Head { length, ..Head::default() };
        Arc::new(Record { metablock: MetablockId::new(1), length_before, after, runs: Vec::new(), content })
    }

    /// Puts a record in place, in a file of the greatest length.
    fn place(file: &mut [u8], record: &Record) {
        match &record.content {
            Content::Data { offset, bytes } => {
                file[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
            }
            Content::Length => file[record.after.length as usize..].fill(0),
            Content::Punch { offset, len } => file[*offset as usize..SIZE.min((offset + len) as usize)].fill(0),
            _ => {}
        }
    }

    /// A volume makes the same check before it writes behind the end.
    fn harmless(record: &Record) -> bool {
        matches!(record.content, Content::Data { .. } | Content::Direct { .. })
    }

    proptest! {
        /// Goal: a read through the overlay gives the same bytes, however many records have been put in place, in any
        /// part of the replica. Method: comparison with a byte array that gets every change at once.
        #[test]
        fn a_read_through_the_overlay_has_all_changes(
            ops in prop::collection::vec((0_u8..6, 0_u64..200, 1_u64..100, any::<u8>()), 1..200),
        ) {
            let (mut model, mut file, mut length) = (vec![0_u8; SIZE], vec![0_u8; SIZE], 0_u64);
            let mut overlay = Overlay::default();
            for (kind, offset, len, byte) in ops {
                let end = offset + len;
                let before = length;
                let content = match kind {
                    0 | 1 => {
                        length = length.max(end);
                        Content::Data { offset, bytes: vec![byte; len as usize].into() }
                    }
                    2 => {
                        length = offset;
                        Content::Length
                    }
                    3 => Content::Punch { offset, len },
                    // Whole chunks behind the end, which are in the file before they are received.
                    4 if offset >= length && overlay.records().all(harmless) => {
                        file[offset as usize..end as usize].fill(byte);
                        model[offset as usize..end as usize].fill(byte);
                        length = end;
                        Content::Direct { offset, len }
                    }
                    _ => {
                        if let Some(done) = overlay.pop() {
                            place(&mut file, &done.record);
                        }
                        continue;
                    }
                };
                let received = record(before, length, content);
                place(&mut model, &received);
                overlay.receive(&received, None);
                prop_assert!(overlay.merged().count() <= 3 * overlay.records().len() + 2 * GONE_MAX + 3);
                for (from, to) in [(0, length), (offset, end.min(length)), (length / 3, length / 2)] {
                    let Some(wanted) = to.checked_sub(from) else { continue };
                    let mut read = file[from as usize..to as usize].to_vec();
                    overlay.merged().within(from, from + wanted).lay_over(from, &mut read);
                    prop_assert_eq!(&read, &model[from as usize..to as usize]);
                }
            }
        }
    }
}
