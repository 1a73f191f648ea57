//! A byte range of a file put together from layers: the first layer that has a byte wins.

use bytes::{Bytes, BytesMut};

/// Bytes or zeros.
#[derive(Clone, Debug)]
enum Part {
    Data(Bytes),
    Zero,
}

/// A range that is being put together.
#[derive(Debug)]
pub(crate) struct Gather {
    start: u64,
    end: u64,
    /// Ranges that no layer had yet, ascending, apart from each other.
    missing: Vec<(u64, u64)>,
    parts: Vec<(u64, u64, Part)>,
}

impl Gather {
    /// Nothing of `start..end` yet.
    pub fn new(start: u64, end: u64) -> Self {
        let missing = if start < end { vec![(start, end)] } else { Vec::new() };
        Self { start, end, missing, parts: Vec::new() }
    }

    /// First byte wanted.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Behind the last byte wanted.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// What no layer had.
    pub fn missing(&self) -> &[(u64, u64)] {
        &self.missing
    }

    /// Whether every byte is there.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// A layer has these bytes at `offset`; returns how many of them were missing.
    pub fn offer(&mut self, offset: u64, data: &Bytes) -> usize {
        let end = offset + data.len() as u64;
        let mut taken = 0;
        for (from, to) in self.claim(offset, end) {
            let slice = data.slice((from - offset) as usize..(to - offset) as usize);
            taken += slice.len();
            self.parts.push((from, to, Part::Data(slice)));
        }
        taken
    }

    /// The same for bytes that cannot be shared: only the missing part is copied.
    pub fn offer_copy(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        for (from, to) in self.claim(offset, end) {
            let slice = Bytes::copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
            self.parts.push((from, to, Part::Data(slice)));
        }
    }

    /// A layer says that `from..to` is zero.
    pub fn offer_zero(&mut self, from: u64, to: u64) {
        for (from, to) in self.claim(from, to) {
            self.parts.push((from, to, Part::Zero));
        }
    }

    /// Removes `from..to` from the missing ranges, and returns its parts that were missing.
    fn claim(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        if from >= to || !self.missing.iter().any(|&(start, end)| start < to && from < end) {
            return Vec::new();
        }
        let mut claimed = Vec::new();
        let mut left = Vec::with_capacity(self.missing.len() + 1);
        for &(start, end) in &self.missing {
            let (low, high) = (start.max(from), end.min(to));
            if low >= high {
                left.push((start, end));
                continue;
            }
            claimed.push((low, high));
            if start < low {
                left.push((start, low));
            }
            if high < end {
                left.push((high, end));
            }
        }
        self.missing = left;
        claimed
    }

    /// Number of bytes wanted.
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Copies the bytes to `out`, which has room for exactly them.
    pub fn copy_to(&self, out: &mut [u8]) {
        self.check_complete();
        assert_eq!(out.len(), self.len(), "a read was copied to memory of another length");
        for (from, to, part) in &self.parts {
            let place = &mut out[(from - self.start) as usize..(to - self.start) as usize];
            match part {
                Part::Data(data) => place.copy_from_slice(data),
                Part::Zero => place.fill(0),
            }
        }
    }

    fn check_complete(&self) {
        assert!(self.missing.is_empty(), "a read was finished with bytes missing at {:?}", self.missing);
    }

    /// The bytes, uncopied if one layer had them all.
    pub fn finish(mut self) -> Bytes {
        self.check_complete();
        if let [(_, _, Part::Data(data))] = self.parts.as_slice() {
            return data.clone();
        }
        self.parts.sort_unstable_by_key(|part| part.0);
        let mut out = BytesMut::with_capacity(self.len());
        for (from, to, part) in &self.parts {
            match part {
                Part::Data(data) => out.extend_from_slice(data),
                Part::Zero => out.resize(out.len() + (to - from) as usize, 0),
            }
        }
        out.freeze()
    }
}

/// The bytes of a read, where they are.
#[derive(Debug)]
pub(crate) enum Found {
    /// In layers of this client.
    Layers(Gather),
    /// In one piece, as they came.
    Whole(Bytes),
}

impl Found {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Layers(gather) => gather.len(),
            Self::Whole(data) => data.len(),
        }
    }

    /// The bytes, uncopied if they are in one piece.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Layers(gather) => gather.finish(),
            Self::Whole(data) => data,
        }
    }

    /// Copies the bytes to the beginning of `out`; returns their number.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..self.len()];
        match self {
            Self::Layers(gather) => gather.copy_to(out),
            Self::Whole(data) => out.copy_from_slice(data),
        }
        out.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_layer_wins(layers in prop::collection::vec((0u64..64, 0u64..32, any::<bool>()), 0..8)) {
            let mut model: Vec<Option<u8>> = vec![None; 40];
            let mut gather = Gather::new(10, 50);
            for (number, (offset, len, zero)) in layers.into_iter().enumerate() {
                let fill = if zero { 0 } else { number as u8 + 1 };
                if zero { gather.offer_zero(offset, offset + len) }
                else if number % 2 == 0 { gather.offer(offset, &vec![fill; len as usize].into()); }
                else { gather.offer_copy(offset, &vec![fill; len as usize]) }
                for at in offset..offset + len {
                    if (10..50).contains(&at) { model[(at - 10) as usize].get_or_insert(fill); }
                }
            }
            let missing: u64 = gather.missing().iter().map(|(from, to)| to - from).sum();
            prop_assert_eq!(missing as usize, model.iter().filter(|byte| byte.is_none()).count());
            gather.offer_zero(0, 100);
            let want: Vec<u8> = model.into_iter().map(|byte| byte.unwrap_or(0)).collect();
            let mut copied = vec![0xee; 40];
            gather.copy_to(&mut copied);
            prop_assert_eq!(&copied, &want);
            prop_assert_eq!(&gather.finish()[..], &want[..]);
        }
    }
}
