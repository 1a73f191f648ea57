//! Contents of many records merged into one: the bytes that a replica's file must get.
//!
//! Used at replay, where an earlier record may not be put in place if a later direct write already lies in the file,
//! and to read through records that are not in place yet.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::record::{Content, Record};

/// Bytes that differ from the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// Zeros; the space may be freed.
    Hole,
    /// These bytes.
    Bytes(Bytes),
}

/// The merged contents of a replica's records, in order. The file is right wherever there is no extent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    /// By start: end and source.
    map: BTreeMap<u64, (u64, Source)>,
    /// Reservations to make again. They cost nothing if the space is reserved already.
    reservations: Vec<(u64, u64)>,
    /// Token of the last copy that took the file's place.
    replaced_by: Option<u64>,
    /// Whether the file's length has to be set to the replica's.
    touched: bool,
}

impl Extents {
    /// Merges the next record. The record's length is the replica's from then on.
    pub(crate) fn add(&mut self, record: &Record) {
        let length = record.after.length;
        match &record.content {
            Content::None => return,
            Content::Direct { offset, len } => {
                self.put(record.length_before, *offset, Source::Hole);
                self.clear(*offset, offset + len);
            }
            Content::Data { offset, bytes } => {
                self.put(record.length_before, *offset, Source::Hole);
                self.put(*offset, offset + bytes.len() as u64, Source::Bytes(bytes.clone()));
            }
            Content::Length => {
                self.put(length.min(record.length_before), u64::MAX, Source::Hole);
                self.unreserve(length, u64::MAX);
            }
            Content::Punch { offset, len } => {
                self.put(*offset, offset + len, Source::Hole);
                self.unreserve(*offset, offset + len);
            }
            Content::Zero { offset, len } => {
                self.put(*offset, offset + len, Source::Hole);
                self.reservations.push((*offset, *len));
            }
            Content::Allocate { offset, len } => self.reservations.push((*offset, *len)),
            Content::Replace { token } => {
                *self = Self { replaced_by: Some(*token), ..Self::default() };
            }
            Content::Delete => {
                *self = Self::default();
                self.put(0, u64::MAX, Source::Hole);
            }
        }
        self.touched = true;
    }

    /// Whether the file is right as it is.
    pub(crate) fn is_empty(&self) -> bool {
        !self.touched
    }

    /// The extents that touch a range, whole.
    pub(crate) fn within(&self, start: u64, end: u64) -> Self {
        let first = self.first_at(start);
        let hit = self.map.range(first..end).filter(|(_, (stop, _))| *stop > start);
        let map = hit.map(|(at, extent)| (*at, extent.clone())).collect();
        Self { map, reservations: Vec::new(), replaced_by: self.replaced_by, touched: self.touched }
    }

    /// Start of the extent that may reach to `at` from before; else `at`.
    fn first_at(&self, at: u64) -> u64 {
        self.map.range(..at).next_back().map_or(at, |(start, _)| *start)
    }

    /// Token of the copy that the file must come from.
    pub(crate) fn replaced_by(&self) -> Option<u64> {
        self.replaced_by
    }

    /// Ranges to reserve: offset and length. They may pass the end.
    pub(crate) fn reservations(&self) -> &[(u64, u64)] {
        &self.reservations
    }

    /// The extents below `length`, in order: start, end, source.
    pub(crate) fn below(&self, length: u64) -> impl Iterator<Item = (u64, u64, Source)> + '_ {
        self.map.range(..length).map(move |(start, (end, source))| {
            let end_kept = (*end).min(length);
            let source = match source {
                Source::Bytes(bytes) => Source::Bytes(bytes.slice(..(end_kept - start) as usize)),
                Source::Hole => Source::Hole,
            };
            (*start, end_kept, source)
        })
    }

    /// Length of the file's front that a replica of `length` bytes needs: all behind it lies in the extents. The search
    /// stops at `floor`.
    pub(crate) fn file_needed(&self, length: u64, floor: u64) -> u64 {
        let mut needed = length;
        while let Some((start, (end, _))) = self.map.range(..needed).next_back() {
            if *end < needed || needed <= floor {
                break;
            }
            needed = *start;
        }
        needed
    }

    /// Overwrites bytes that were read from the file at `offset` with the extents.
    pub(crate) fn lay_over(&self, offset: u64, out: &mut [u8]) {
        let stop = offset + out.len() as u64;
        for (start, end, source) in self.below(stop).filter(|(_, end, _)| *end > offset) {
            let from = start.max(offset);
            let target = &mut out[(from - offset) as usize..(end - offset) as usize];
            match source {
                Source::Hole => target.fill(0),
                Source::Bytes(bytes) => target.copy_from_slice(&bytes[(from - start) as usize..]),
            }
        }
    }

    /// Number of extents.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.map.len()
    }

    fn put(&mut self, start: u64, end: u64, source: Source) {
        if start < end {
            self.clear(start, end);
            self.map.insert(start, (end, source));
            self.check_neighbours(start, end);
        }
    }

    /// Extents do not overlap: of two that did, the earlier bytes would win at some reads.
    fn check_neighbours(&self, start: u64, end: u64) {
        let before = self.map.range(..start).next_back().map_or(0, |(_, (stop, _))| *stop);
        assert!(before <= start, "an extent up to {before} overlaps one from {start} on");
        let behind = self.map.range(start + 1..).next().map_or(u64::MAX, |(at, _)| *at);
        assert!(behind >= end, "an extent from {behind} on overlaps one up to {end}");
    }

    /// Takes a range out of the reservations.
    fn unreserve(&mut self, start: u64, end: u64) {
        let old = std::mem::take(&mut self.reservations);
        self.reservations = old
            .into_iter()
            .flat_map(|(offset, len)| [(offset, start.min(offset + len)), (end.max(offset), offset + len)])
            .filter(|(from, to)| from < to)
            .map(|(from, to)| (from, to - from))
            .collect();
    }

    /// Removes a range from the extents. Extents that reach out of it are cut.
    fn clear(&mut self, start: u64, end: u64) {
        let first = self.first_at(start);
        let hit: Vec<u64> =
            self.map.range(first..end).filter(|(_, (stop, _))| *stop > start).map(|(at, _)| *at).collect();
        for at in hit {
            let (stop, source) = self.map.remove(&at).expect("just found");
            assert!(at < end && stop > start, "only extents in {start}..{end} are cut");
            if at < start {
                self.map.insert(at, (start, part(&source, 0, start - at)));
            }
            if stop > end {
                self.map.insert(end, (stop, part(&source, end - at, stop - at)));
            }
        }
    }
}

fn part(source: &Source, from: u64, to: u64) -> Source {
    match source {
        Source::Hole => Source::Hole,
        Source::Bytes(bytes) => Source::Bytes(bytes.slice(from as usize..to as usize)),
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::MetablockId;
    use proptest::prelude::*;

    use super::*;
    use crate::record::Head;

    fn record(length_before: u64, length: u64, content: Content) -> Record {
        let after = Head { length, ..Head::default() };
        Record { metablock: MetablockId::new(1), length_before, after, runs: Vec::new(), content }
    }

    proptest! {
        /// The merged extents over the final file must equal the records put in place one by one, where direct
        /// writes are in the file from the beginning.
        #[test]
        fn merging_equals_doing(ops in prop::collection::vec((0u8..5, 0u64..200, 1u64..100, any::<u8>()), 1..40)) {
            let mut model: Vec<u8> = Vec::new();
            let mut file = vec![0u8; 400];
            let mut extents = Extents::default();
            for (kind, offset, len, byte) in ops {
                let end = offset + len;
                let before = model.len() as u64;
                let content = match kind {
                    0 => {
                        model.resize(model.len().max(end as usize), 0);
                        model[offset as usize..end as usize].fill(byte);
                        Content::Data { offset, bytes: vec![byte; len as usize].into() }
                    }
                    1 => {
                        model.truncate(offset as usize);
                        model.resize(offset as usize, 0);
                        Content::Length
                    }
                    2 => {
                        let stop = model.len().min(end as usize);
                        let start = stop.min(offset as usize);
                        model[start..stop].fill(0);
                        Content::Punch { offset, len }
                    }
                    3 if model.len() as u64 <= offset => {
                        // A direct write lies beyond the end; the gap before it reads as zero.
                        model.resize(offset as usize, 0);
                        model.resize(end as usize, byte);
                        file[offset as usize..end as usize].fill(byte);
                        Content::Direct { offset, len }
                    }
                    3 => continue,
                    _ => {
                        model.clear();
                        extents.add(&record(before, 0, Content::Delete));
                        continue;
                    }
                };
                extents.add(&record(before, model.len() as u64, content));
            }
            let mut merged = file[..model.len()].to_vec();
            extents.lay_over(0, &mut merged);
            prop_assert_eq!(&merged, &model);
            // The part of the file that the extents do not need may be lost.
            let mut short = file[..extents.file_needed(model.len() as u64, 0) as usize].to_vec();
            short.resize(model.len(), 0xee);
            extents.lay_over(0, &mut short);
            prop_assert_eq!(&short, &model);
            // Small windows give the same bytes.
            for start in (0..model.len()).step_by(7) {
                let stop = (start + 13).min(model.len());
                let mut window = file[start..stop].to_vec();
                extents.lay_over(start as u64, &mut window);
                prop_assert_eq!(&window[..], &model[start..stop]);
            }
        }
    }
}
