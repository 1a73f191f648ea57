//! Little-endian numbers in and out of byte strings.

use ebb_types::{Result, bail};

/// Appends numbers to a byte string.
pub(crate) trait Put {
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
}

impl Put for Vec<u8> {
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
}

/// Takes numbers from the front of a byte string; kind `Corrupt` when it ends too early.
#[derive(Debug)]
pub(crate) struct Take<'a>(pub &'a [u8]);

impl<'a> Take<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        match self.0.split_at_checked(len) {
            Some((front, rest)) => {
                self.0 = rest;
                Ok(front)
            }
            None => bail!(Corrupt, "{} bytes where {len} should be", self.0.len()),
        }
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into().expect("four bytes")))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(8)?.try_into().expect("eight bytes")))
    }
}

/// The number at `at`, of a slice that is known to be long enough.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The number at `at`, of a slice that is known to be long enough.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
