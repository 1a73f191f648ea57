//! One versioned write to one metablock, kept until every member has synced it.

use std::sync::OnceLock;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use ebb_types::{CHUNK_SIZE, MetablockId, Version};
use ebb_wire::pb;

use crate::gather::Gather;

/// A write as it goes to members, and goes again if one lost it.
///
/// Invariant: nothing in it changes once it has a version: a version once sent never carries other bytes.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Its version.
    pub version: Version,
    /// The version that it follows.
    pub predecessor: Version,
    /// What it does.
    pub kind: pb::WriteKind,
    /// Where in the metablock, in bytes.
    pub offset: u64,
    /// How far it reaches, in bytes.
    pub length: u64,
    /// The bytes of a data write, one buffer after the other.
    pub data: Vec<Bytes>,
    /// Length of the metablock after it.
    pub length_after: u64,
    checksums: OnceLock<Vec<u32>>,
}

impl Outgoing {
    /// A write of this content.
    pub fn new(version: Version, predecessor: Version, content: Content, length_before: u64) -> Self {
        let Content { kind, offset, length, data } = content;
        let end = offset + length;
        let length_after = match kind {
            pb::WriteKind::WriteData | pb::WriteKind::WriteZero => length_before.max(end),
            pb::WriteKind::WriteTruncate => offset,
            pb::WriteKind::WritePunch | pb::WriteKind::WriteAllocate => length_before,
        };
        Self { version, predecessor, kind, offset, length, data, length_after, checksums: OnceLock::new() }
    }

    /// Bytes that it keeps in memory.
    pub fn weight(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }

    /// CRC-32C of each run of the payload, cut where the metablock's chunks are cut. Computed once, by whoever sends.
    pub fn checksums(&self) -> &[u32] {
        self.checksums.get_or_init(|| checksum_runs(self.offset, &self.data))
    }

    /// It as a message about `metablock`, for any member: who it is for is left out.
    pub fn to_message(&self, metablock: MetablockId) -> pb::WriteReplica {
        pb::WriteReplica {
            metablock: metablock.raw(),
            version: Some(self.version.into()),
            predecessor: Some(self.predecessor.into()),
            kind: self.kind as i32,
            offset: self.offset,
            length: self.length,
            checksums: self.checksums().to_vec(),
            ..pb::WriteReplica::default()
        }
    }

    /// Gives `gather` what this write put into the metablock that starts at `base` and spans `span` bytes.
    pub fn offer(&self, base: u64, span: u64, gather: &mut Gather) {
        match self.kind {
            pb::WriteKind::WriteData => {
                let mut at = base + self.offset;
                for data in &self.data {
                    gather.offer(at, data);
                    at += data.len() as u64;
                }
            }
            pb::WriteKind::WritePunch | pb::WriteKind::WriteZero => {
                gather.offer_zero(base + self.offset, base + self.offset + self.length);
            }
            pb::WriteKind::WriteTruncate => gather.offer_zero(base + self.offset, base + span),
            pb::WriteKind::WriteAllocate => {}
        }
    }
}

/// What a write does, before it has a version.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    /// What it does.
    pub kind: pb::WriteKind,
    /// Where in the metablock.
    pub offset: u64,
    /// How far.
    pub length: u64,
    /// Bytes, of a data write.
    pub data: Vec<Bytes>,
}

impl Content {
    /// A data write.
    pub fn data(offset: u64, data: Vec<Bytes>) -> Self {
        let length = data.iter().map(|part| part.len() as u64).sum();
        Self { kind: pb::WriteKind::WriteData, offset, length, data }
    }

    /// A write without bytes.
    pub fn range(kind: pb::WriteKind, offset: u64, length: u64) -> Self {
        Self { kind, offset, length, data: Vec::new() }
    }
}

/// CRC-32C of each run of `data`, which starts at `offset` of a metablock, cut at chunk edges.
pub(crate) fn checksum_runs(offset: u64, data: &[Bytes]) -> Vec<u32> {
    let mut sums = Vec::new();
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut at = offset;
    let mut open = false;
    let close = |digest: &mut Digest| u32::try_from(digest.finalize_reset()).expect("a 32-bit checksum");
    for part in data {
        let mut rest = &part[..];
        while !rest.is_empty() {
            let room = (CHUNK_SIZE - at % CHUNK_SIZE) as usize;
            let (run, behind) = rest.split_at(room.min(rest.len()));
            digest.update(run);
            at += run.len() as u64;
            open = !at.is_multiple_of(CHUNK_SIZE);
            if !open {
                sums.push(close(&mut digest));
            }
            rest = behind;
        }
    }
    if open {
        sums.push(close(&mut digest));
    }
    sums
}

#[cfg(test)]
mod tests {
    use ebb_wire::frame::crc32c;

    use super::*;

    #[test]
    fn checksums_are_cut_at_chunk_edges_whatever_the_buffers() {
        let bytes: Vec<u8> = (0..50_000u32).map(|at| (at * 7) as u8).collect();
        let offset = CHUNK_SIZE - 100;
        let whole = checksum_runs(offset, &[bytes.clone().into()]);
        let parts: Vec<Bytes> = bytes.chunks(777).map(Bytes::copy_from_slice).collect();
        assert_eq!(checksum_runs(offset, &parts), whole);
        assert_eq!(whole[0], crc32c(&bytes[..100]));
        assert_eq!(whole[1], crc32c(&bytes[100..100 + CHUNK_SIZE as usize]));
        assert_eq!(whole.len(), 1 + (50_000 - 100usize).div_ceil(CHUNK_SIZE as usize));
    }
}
