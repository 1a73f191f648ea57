//! Memory for `O_DIRECT`: at a multiple of the disk's block size.

/// Covers every disk's block.
const ALIGNMENT: usize = 4096;

/// Zeroed bytes that begin at a multiple of the alignment.
pub struct Aligned {
    all: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// `len` bytes.
    pub fn new(len: usize) -> Self {
        let all = vec![0; len + ALIGNMENT];
        let start = all.as_ptr().align_offset(ALIGNMENT);
        Self { all, start, len }
    }

    /// The aligned bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.all[self.start..self.start + self.len]
    }
}
