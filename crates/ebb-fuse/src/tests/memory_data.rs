//! The bytes of a file in memory, with holes.

use std::collections::BTreeSet;

use crate::vfs::Seek;

const PAGE: u64 = 4096;

#[derive(Default)]
pub struct Data {
    bytes: Vec<u8>,
    pages: BTreeSet<u64>,
}

impl Data {
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub fn allocated(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let start = offset.min(self.len());
        let end = (offset + len).min(self.len());
        self.bytes[start as usize..end as usize].to_vec()
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset as usize..end].copy_from_slice(bytes);
        self.pages.extend(offset / PAGE..(end as u64).div_ceil(PAGE));
    }

    pub fn truncate(&mut self, size: u64) {
        self.bytes.resize(size as usize, 0);
        self.pages.retain(|page| page * PAGE < size);
    }

    pub fn punch(&mut self, offset: u64, len: u64) {
        let end = (offset + len).min(self.len());
        if offset < end {
            self.bytes[offset as usize..end as usize].fill(0);
        }
        self.pages.retain(|page| page * PAGE < offset || (page + 1) * PAGE > offset + len);
    }

    /// The first page edge, from `offset` on, where data or a hole begins; none beyond the end.
    pub fn seek(&self, offset: u64, whence: Seek) -> Option<u64> {
        if offset >= self.len() {
            return None;
        }
        let wanted = |page: &u64| self.pages.contains(page) == (whence == Seek::Data);
        let found = (offset / PAGE..self.len().div_ceil(PAGE)).find(wanted).map(|page| (page * PAGE).max(offset));
        match whence {
            Seek::Data => found,
            Seek::Hole => Some(found.unwrap_or(self.len())),
        }
    }
}
