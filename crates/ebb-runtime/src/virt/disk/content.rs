//! Bytes of a file, in pages; pages that were never written are holes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// Unit of allocation.
pub(super) const PAGE: u64 = 4096;

type Page = [u8; PAGE as usize];

/// Contents of a file. Cheap to clone: pages are shared until written.
#[derive(Clone, Default)]
pub(super) struct Content {
    pages: BTreeMap<u64, Arc<Page>>,
    len: u64,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// Up to `len` bytes from `offset`.
    pub(super) fn read(&self, offset: u64, len: usize) -> Bytes {
        let len = (len as u64).min(self.len.saturating_sub(offset));
        let mut data = BytesMut::zeroed(len as usize);
        for (index, within, at) in pieces(offset, len) {
            if let Some(page) = self.pages.get(&index) {
                let count = within.len();
                data[at..at + count].copy_from_slice(&page[within]);
            }
        }
        data.freeze()
    }

    /// Writes, and grows the file if need be.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        for (index, within, at) in pieces(offset, data.len() as u64) {
            let count = within.len();
            self.page(index)[within].copy_from_slice(&data[at..at + count]);
        }
        if !data.is_empty() {
            self.len = self.len.max(offset + data.len() as u64);
        }
    }

    /// Flips the lowest bit of a stored byte; false for a hole.
    pub(super) fn flip(&mut self, at: u64) -> bool {
        let stored = at < self.len && self.pages.contains_key(&(at / PAGE));
        if stored {
            self.page(at / PAGE)[(at % PAGE) as usize] ^= 1;
        }
        stored
    }

    /// Cuts or grows. Bytes that a later growth brings back read as zero.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.punch(len, self.len.next_multiple_of(PAGE) - len);
        }
        self.len = len;
    }

    /// Makes whole pages holes and zeroes the parts of others; the length stays.
    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let touched: Vec<u64> = self.pages.range(offset / PAGE..end.div_ceil(PAGE)).map(|(index, _)| *index).collect();
        for index in touched {
            let start = index * PAGE;
            if offset <= start && start + PAGE <= end {
                self.pages.remove(&index);
            } else {
                let from = offset.saturating_sub(start) as usize;
                let to = (end - start).min(PAGE) as usize;
                self.page(index)[from..to].fill(0);
            }
        }
    }

    /// Makes holes zeroed pages; the length stays.
    pub(super) fn allocate(&mut self, offset: u64, len: u64) {
        let zeros = Arc::new([0; PAGE as usize]);
        for index in offset / PAGE..offset.saturating_add(len).div_ceil(PAGE) {
            self.pages.entry(index).or_insert_with(|| zeros.clone());
        }
    }

    /// Bytes that a write or reservation of this range would add to [`Content::allocated_bytes`].
    pub(super) fn missing_bytes(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let range = offset / PAGE..offset.saturating_add(len).div_ceil(PAGE);
        let present = self.pages.range(range.clone()).count() as u64;
        (range.end - range.start - present) * PAGE
    }

    fn page(&mut self, index: u64) -> &mut Page {
        Arc::make_mut(self.pages.entry(index).or_insert_with(|| Arc::new([0; PAGE as usize])))
    }
}

/// Cuts a range at page borders: (page, range within it, offset within the whole).
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (index, from) = (at / PAGE, at % PAGE);
        let count = (PAGE - from).min(end - at);
        let piece = (index, from as usize..(from + count) as usize, (at - offset) as usize);
        at += count;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        SetLen(u64),
        Punch(u64, u64),
        Allocate(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let offset = 0..20_000_u64;
        prop_oneof![
            (offset.clone(), prop::collection::vec(any::<u8>(), 0..9_000)).prop_map(|(at, data)| Step::Write(at, data)),
            offset.clone().prop_map(Step::SetLen),
            (offset.clone(), 0..9_000_u64).prop_map(|(at, len)| Step::Punch(at, len)),
            (offset, 0..9_000_u64).prop_map(|(at, len)| Step::Allocate(at, len)),
        ]
    }

    proptest! {
        #[test]
        fn contents_are_those_of_a_plain_array(steps in prop::collection::vec(step(), 1..30)) {
            let mut content = Content::default();
            let mut model: Vec<u8> = Vec::new();
            for step in steps {
                match step {
                    Step::Write(at, data) => {
                        let missing = content.missing_bytes(at, data.len() as u64);
                        let before = content.allocated_bytes();
                        content.write(at, &data);
                        prop_assert_eq!(content.allocated_bytes(), before + missing);
                        if !data.is_empty() {
                            model.resize(model.len().max(at as usize + data.len()), 0);
                            model[at as usize..at as usize + data.len()].copy_from_slice(&data);
                        }
                    }
                    Step::SetLen(len) => {
                        content.set_len(len);
                        model.resize(len as usize, 0);
                    }
                    Step::Punch(at, len) => {
                        content.punch(at, len);
                        let end = (at + len).min(model.len() as u64);
                        if at < end {
                            model[at as usize..end as usize].fill(0);
                        }
                    }
                    Step::Allocate(at, len) => {
                        content.allocate(at, len);
                        prop_assert_eq!(content.missing_bytes(at, len), 0);
                    }
                }
                prop_assert_eq!(content.len(), model.len() as u64);
                prop_assert_eq!(&content.read(0, 100_000)[..], &model[..]);
            }
        }
    }
}
