//! Up to where the log was synced, written down beside it and a little late.
//!
//! A torn write and damage to the very last batch look alike in the log: no valid record, and nothing behind it. The
//! hint tells them apart: a batch that it names was synced, so a log that ends before it has lost something. It is a
//! lower bound: it is written after the sync that it names, and not synced itself. An unreadable hint proves nothing.
//!
//! Bytes: magic "EBBMSYNC", format u32, CRC-32C of all other bytes u32, cluster u64, batch u64, sequence of the segment
//! u64, offset behind the batch u64 (little-endian).

use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_runtime::{File, OpenMode, Runtime};
use ebb_types::{ClusterId, Result};
use ebb_wire::frame::crc32c;

const NAME: &str = "synced";
const MAGIC: &[u8; 8] = b"EBBMSYNC";
const FORMAT: u32 = 1;
pub(super) const LEN: usize = 48;

/// A place that the log had reached, synced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Synced {
    /// Last batch.
    pub batch: u64,
    /// Segment that it is in.
    pub sequence: u64,
    /// Where it ends there.
    pub offset: u64,
}

/// The file with the hint.
pub struct Hint {
    file: File,
    cluster: ClusterId,
    noted: Synced,
}

impl Hint {
    /// What the hint in `dir` says, if there is one that can be read.
    pub async fn read(runtime: &Runtime, dir: &Path, cluster: ClusterId) -> Result<Option<Synced>> {
        let path = Self::path(dir);
        if !runtime.disk().exists(&path).await? {
            return Ok(None);
        }
        Ok(decode(&runtime.disk().read(&path).await?, cluster).filter(|synced| synced.batch > 0))
    }

    /// Opens the hint in `dir`; one that is not there or not readable is made anew. From then on it is rewritten where
    /// it lies, on a full disk too.
    pub async fn open(runtime: &Runtime, dir: &Path, cluster: ClusterId) -> Result<Self> {
        let path = Self::path(dir);
        let found = Self::read(runtime, dir, cluster).await?;
        if found.is_none() {
            runtime.disk().replace(&path, encode(cluster, Synced::default())).await?;
        }
        let file = runtime.disk().open(&path, OpenMode::Existing).await?;
        Ok(Self { file, cluster, noted: found.unwrap_or_default() })
    }

    /// Where it is.
    #[must_use]
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(NAME)
    }

    /// Writes a place down that has been synced, if it is a new one.
    pub async fn write_down(&mut self, synced: Synced) -> Result<()> {
        if synced != self.noted {
            self.file.write_at(0, vec![encode(self.cluster, synced)]).await?;
            self.noted = synced;
        }
        Ok(())
    }
}

pub(super) fn encode(cluster: ClusterId, synced: Synced) -> Bytes {
    let mut out = [0; LEN];
    out[0..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    let numbers = [cluster.raw(), synced.batch, synced.sequence, synced.offset];
    for (place, number) in out[16..].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let sum = checksum(&out);
    out[12..16].copy_from_slice(&sum.to_le_bytes());
    Bytes::copy_from_slice(&out)
}

pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc32c(&[&bytes[..12], &bytes[16..]].concat())
}

pub(super) fn decode(bytes: &[u8], cluster: ClusterId) -> Option<Synced> {
    let bytes = bytes.first_chunk::<LEN>()?;
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let known = &bytes[0..8] == MAGIC && bytes[8..12] == FORMAT.to_le_bytes();
    let whole = bytes[12..16] == checksum(bytes).to_le_bytes() && u64_at(16) == cluster.raw();
    (known && whole).then(|| Synced { batch: u64_at(24), sequence: u64_at(32), offset: u64_at(40) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_survives_and_a_changed_one_says_nothing() {
        let (cluster, synced) = (ClusterId::new(7), Synced { batch: 5, sequence: 2, offset: 300 });
        let whole = encode(cluster, synced);
        assert_eq!(decode(&whole, cluster), Some(synced));
        assert_eq!(decode(&whole, ClusterId::new(8)), None);
        for bit in 0..LEN * 8 {
            let mut bad = whole.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad, cluster), None, "bit {bit}");
        }
        for len in 0..LEN {
            assert_eq!(decode(&whole[..len], cluster), None, "cut to {len}");
        }
    }
}
