//! A decoder as the engine sees it.

use std::fmt;

/// A decoder.
#[derive(Clone, Copy)]
pub struct Target {
    /// `crate/what`.
    pub name: &'static str,
    /// Where its bytes come from.
    pub source: &'static str,
    /// Memory that it may take.
    pub cap: Cap,
    /// What its bytes are made of.
    pub shape: Shape,
    /// Cases of it in each run of the tests.
    pub cases: u64,
    /// Decodes, and does with the outcome what a process does first; whether there was one. May refuse; may not panic.
    pub decode: fn(&[u8]) -> bool,
    /// Inputs as the encoders make them.
    pub samples: fn() -> Vec<Vec<u8>>,
    /// Makes checksums, counts and lengths right again, as far as that is possible.
    pub repair: fn(&mut Vec<u8>),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.name)
    }
}

/// Most memory that a decode may have at a time: so many bytes, and so many for each byte of input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cap {
    /// For any input.
    pub base: usize,
    /// For each byte of it.
    pub times: usize,
}

impl Cap {
    /// Bytes for an input of `len`.
    #[must_use]
    pub const fn bytes(self, len: usize) -> usize {
        self.base + self.times * len
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = match self.base {
            mib if mib >= 1 << 20 => format!("{} MiB", mib >> 20),
            kib => format!("{} KiB", kib >> 10),
        };
        match self.times {
            0 => f.write_str(&base),
            times => write!(f, "{base} + {times} x input"),
        }
    }
}

/// What mutations make sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Numbers and strings at fixed places.
    Bytes,
    /// One protobuf message behind so many bytes.
    Message(usize),
    /// Protobuf messages, each after its length as a varint.
    Messages,
    /// Lines and words.
    Text,
}

/// For decoders without anything to repair.
pub fn nothing(_: &mut Vec<u8>) {}
