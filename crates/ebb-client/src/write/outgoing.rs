//! One versioned write to one metablock, kept until every member has synced it.

use std::sync::OnceLock;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use ebb_types::{CHUNK_SIZE, MetablockId, Version};
use ebb_wire::pb;

use crate::read::gather::Gather;

/// A write that is sent to members, and sent again if a member lost it.
///
/// Invariant: nothing in it changes once it has a version: a version once sent never carries other bytes.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Its version.
    pub version: Version,
    /// The version that it follows.
    pub predecessor: Version,
    /// Its kind.
    pub kind: pb::WriteKind,
    /// Offset in the metablock, in bytes.
    pub offset: u64,
    /// Length of its range, in bytes.
    pub length: u64,
    /// The bytes of a data write, one buffer after the other.
    pub data: Vec<Bytes>,
    /// The bytes of a direct write, which lie with members and not here.
    pub staged: Option<Put>,
    /// A direct write's bytes, fetched back because a member has lost them.
    pub fetched: OnceLock<Bytes>,
    /// Length of the metablock after it.
    pub length_after: u64,
    checksums: OnceLock<Vec<u32>>,
}

impl Outgoing {
    /// A write of this content.
    pub fn new(version: Version, predecessor: Version, content: Content, length_before: u64) -> Self {
        let Content { kind, offset, length, data, staged } = content;
        let end = offset + length;
        let length_after = match kind {
            pb::WriteKind::WriteData => length_before.max(end),
            pb::WriteKind::WriteTruncate => offset,
            // As a store has it: what was not written reads as zero, so zeros behind the end write nothing.
            pb::WriteKind::WritePunch | pb::WriteKind::WriteZero | pb::WriteKind::WriteAllocate => length_before,
        };
        let (fetched, checksums) = (OnceLock::new(), OnceLock::new());
        Self { version, predecessor, kind, offset, length, data, staged, fetched, length_after, checksums }
    }

    /// Its bytes, if they are here.
    pub fn bytes(&self) -> &[Bytes] {
        self.fetched.get().map_or(&self.data, std::slice::from_ref)
    }

    /// Where its bytes are, if they are not here.
    pub fn elsewhere(&self) -> Option<&Put> {
        self.staged.as_ref().filter(|_| self.fetched.get().is_none())
    }

    /// Number of bytes that it keeps in memory, and that the budget counts.
    pub fn weight(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }

    /// Number of bytes that a member has to write for it, wherever they are now.
    pub fn load(&self) -> usize {
        if self.staged.is_some() { self.length as usize } else { self.weight() }
    }

    /// CRC-32C of each run of the payload, cut at the edges of the metablock's chunks. Computed once, at the first
    /// send.
    fn checksums(&self, bytes: &[Bytes]) -> Vec<u32> {
        self.checksums.get_or_init(|| checksum_runs(self.offset, bytes)).clone()
    }

    /// The message about `metablock`, and the payload. The fields that name a member are left empty.
    pub fn to_message(&self, metablock: MetablockId) -> (pb::WriteReplica, Vec<Bytes>) {
        let staged = self.elsewhere().map(|put| put.ticket);
        // Ordering: looked at once. They may be fetched back meanwhile, and then message and payload would disagree.
        let payload = if staged.is_some() { Vec::new() } else { self.bytes().to_vec() };
        let message = pb::WriteReplica {
            metablock: metablock.raw(),
            version: Some(self.version.into()),
            predecessor: Some(self.predecessor.into()),
            kind: self.kind as i32,
            offset: self.offset,
            length: self.length,
            checksums: if staged.is_some() { Vec::new() } else { self.checksums(&payload) },
            staged,
            ..pb::WriteReplica::default()
        };
        (message, payload)
    }

    /// Gives `gather` the effect of this write on the metablock that starts at `base` and spans `span` bytes.
    pub fn offer(&self, base: u64, span: u64, gather: &mut Gather) {
        match self.kind {
            pb::WriteKind::WriteData => {
                let mut at = base + self.offset;
                for data in self.bytes() {
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

/// The bytes of a direct write: their writer has put them with members.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    /// Their name.
    pub ticket: pb::Ticket,
    /// Nodes of the members that were awake then, and got them.
    pub keepers: Vec<u64>,
}

/// Content of a write, before it has a version.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    /// Its kind.
    pub kind: pb::WriteKind,
    /// Offset in the metablock, in bytes.
    pub offset: u64,
    /// Length of its range, in bytes.
    pub length: u64,
    /// The bytes of a data write.
    pub data: Vec<Bytes>,
    /// Where the bytes of a direct write are.
    pub staged: Option<Put>,
}

impl Content {
    /// A data write.
    pub fn data(offset: u64, data: Vec<Bytes>) -> Self {
        let length = data.iter().map(|part| part.len() as u64).sum();
        Self { kind: pb::WriteKind::WriteData, offset, length, data, staged: None }
    }

    /// A data write whose bytes members have.
    pub fn put(offset: u64, length: u64, put: Put) -> Self {
        Self { kind: pb::WriteKind::WriteData, offset, length, data: Vec::new(), staged: Some(put) }
    }

    /// A write without bytes.
    pub fn range(kind: pb::WriteKind, offset: u64, length: u64) -> Self {
        Self { kind, offset, length, data: Vec::new(), staged: None }
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
