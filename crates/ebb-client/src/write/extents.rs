//! Written bytes that have not been handed to a metablock's channel yet: pieces by file offset that never overlap.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::read::gather::Gather;

/// Writes up to this are copied, so that a few bytes do not keep a large buffer alive and small appends grow one
/// buffer; larger ones are kept as they came.
const COPY_MAX: usize = 32 << 10;
/// An own buffer does not grow beyond this.
const OWN_MAX: usize = 1 << 20;

#[derive(Debug)]
enum Piece {
    /// The writer's buffer.
    Shared(Bytes),
    /// Our own, which may still be written and grow.
    Own(Vec<u8>),
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Shared(data) => data.len() as u64,
            Self::Own(data) => data.len() as u64,
        }
    }

    fn freeze(self) -> Bytes {
        match self {
            Self::Shared(data) => data,
            Self::Own(data) => data.into(),
        }
    }
}

/// Dirty bytes of one file.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    pieces: BTreeMap<u64, Piece>,
    bytes: u64,
}

impl Extents {
    /// Bytes in it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where each piece begins, and how long it is.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.pieces.iter().map(|(start, piece)| (*start, piece.len()))
    }

    /// Whether there are no dirty bytes.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Puts `data` at `offset`, over earlier bytes. Returns how many earlier bytes were replaced.
    pub fn insert(&mut self, offset: u64, data: Bytes) -> u64 {
        if data.is_empty() {
            return 0;
        }
        if data.len() <= COPY_MAX
            && let Some(replaced) = self.insert_into_own(offset, &data)
        {
            return replaced;
        }
        let replaced = self.remove(offset, offset + data.len() as u64);
        self.bytes += data.len() as u64;
        let piece = if data.len() <= COPY_MAX { Piece::Own(data.to_vec()) } else { Piece::Shared(data) };
        self.pieces.insert(offset, piece);
        replaced
    }

    /// Writes into, or at the end of, an own buffer, if one is there.
    fn insert_into_own(&mut self, offset: u64, data: &[u8]) -> Option<u64> {
        let (&start, piece) = self.pieces.range(..=offset).next_back()?;
        let Piece::Own(buffer) = piece else { return None };
        let at = (offset - start) as usize;
        if at > buffer.len() || at + data.len() > OWN_MAX {
            return None;
        }
        let inside = (buffer.len() - at).min(data.len());
        let grown = (data.len() - inside) as u64;
        let buffer_end = start + buffer.len() as u64;
        let behind = self.remove(buffer_end, buffer_end + grown);
        let Some(Piece::Own(buffer)) = self.pieces.get_mut(&start) else { return None };
        buffer[at..at + inside].copy_from_slice(&data[..inside]);
        buffer.extend_from_slice(&data[inside..]);
        self.bytes += grown;
        Some(behind + inside as u64)
    }

    /// Drops `start..end`; returns how many bytes that was.
    pub fn remove(&mut self, start: u64, end: u64) -> u64 {
        self.take_range(start, end).iter().map(|(_, data)| data.len() as u64).sum()
    }

    /// Takes `start..end` out, in order.
    pub fn take_range(&mut self, start: u64, end: u64) -> Vec<(u64, Bytes)> {
        if start >= end || self.pieces.is_empty() {
            return Vec::new();
        }
        self.split_at(start);
        self.split_at(end);
        let taken: Vec<_> =
            self.pieces.extract_if(start..end, |_, _| true).map(|(offset, piece)| (offset, piece.freeze())).collect();
        self.bytes -= taken.iter().map(|(_, data)| data.len() as u64).sum::<u64>();
        taken
    }

    fn split_at(&mut self, at: u64) {
        let Some((&start, piece)) = self.pieces.range(..at).next_back() else { return };
        if start + piece.len() <= at {
            return;
        }
        let mut left = self.pieces.remove(&start).map(Piece::freeze).unwrap_or_default();
        let right = left.split_off((at - start) as usize);
        self.pieces.insert(start, Piece::Shared(left));
        self.pieces.insert(at, Piece::Shared(right));
    }

    /// Whether every byte of `start..end` is there.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        if let Some((&offset, piece)) = self.pieces.range(..=start).next_back() {
            at = at.max(offset + piece.len());
        }
        if at >= end {
            return true;
        }
        for (&offset, piece) in self.pieces.range(start..end) {
            if offset > at {
                return false;
            }
            at = at.max(offset + piece.len());
        }
        at >= end
    }

    /// Gives `gather` the bytes of its range that are here.
    pub fn offer(&self, gather: &mut Gather) {
        let (start, end) = (gather.start(), gather.end());
        let first = self.pieces.range(..=start).next_back().map_or(start, |(&offset, _)| offset);
        for (&offset, piece) in self.pieces.range(first..end) {
            match piece {
                Piece::Shared(data) => {
                    gather.offer(offset, data);
                }
                Piece::Own(data) => gather.offer_copy(offset, data),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Write { offset: u64, len: usize, fill: u8 },
        Take { start: u64, end: u64 },
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (0u64..200, 0usize..80, 1u8..).prop_map(|(offset, len, fill)| Op::Write { offset, len, fill }),
            // Above COPY_MAX, so that both kinds of pieces meet.
            1 => (0u64..200, 1u8..).prop_map(|(offset, fill)| Op::Write { offset, len: COPY_MAX + 10, fill }),
            1 => (0u64..300, 0u64..300).prop_map(|(a, b)| Op::Take { start: a.min(b), end: a.max(b) }),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_an_array_of_optional_bytes(ops in prop::collection::vec(op(), 1..40)) {
            let len = COPY_MAX + 400;
            let mut model: Vec<Option<u8>> = vec![None; len];
            let mut extents = Extents::default();
            for op in ops {
                match op {
                    Op::Write { offset, len, fill } => {
                        let range = offset as usize..offset as usize + len;
                        let before = model[range.clone()].iter().flatten().count() as u64;
                        model[range].fill(Some(fill));
                        prop_assert_eq!(extents.insert(offset, vec![fill; len].into()), before);
                    }
                    Op::Take { start, end } => {
                        let mut want = model[start as usize..end as usize].to_vec();
                        model[start as usize..end as usize].fill(None);
                        for (offset, data) in extents.take_range(start, end) {
                            for (at, byte) in data.iter().enumerate() {
                                prop_assert_eq!(want[(offset - start) as usize + at].take(), Some(*byte));
                            }
                        }
                        prop_assert!(want.iter().all(Option::is_none));
                    }
                }
                prop_assert_eq!(extents.bytes(), model.iter().flatten().count() as u64);
                prop_assert_eq!(extents.covers(50, 90), model[50..90].iter().all(Option::is_some));
                let mut gather = Gather::new(0, len as u64);
                extents.offer(&mut gather);
                gather.offer_zero(0, len as u64);
                let want: Vec<u8> = model.iter().map(|byte| byte.unwrap_or(0)).collect();
                prop_assert_eq!(&gather.finish()[..], &want[..]);
            }
        }
    }
}
