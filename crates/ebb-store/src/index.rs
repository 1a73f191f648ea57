//! Snapshot of all replicas' states. See `docs/formats/index.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_runtime::{Disk, File, OpenMode};
use ebb_types::{Incarnation, MetablockId, Result, bail, err};

use crate::codec::{Put, Take};
use crate::crc::crc32c;
use crate::record::{decode_head, encode_head};
use crate::state::ReplicaState;

const MAGIC: u32 = u32::from_le_bytes(*b"EBBI");
const END_MAGIC: u32 = u32::from_le_bytes(*b"EBBE");
const VERSION: u32 = 1;
const HEADER_LEN: usize = 48;
/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Name of an index.
pub(crate) fn index_path(root: &Path, segment: u64) -> PathBuf {
    root.join(format!("index-{segment}"))
}

/// Where the journal goes on after an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IndexHead {
    /// First segment to replay.
    pub(crate) segment: u64,
    /// lsn of its first batch.
    pub(crate) lsn: u64,
    /// The volume's.
    pub(crate) incarnation: Incarnation,
}

impl IndexHead {
    fn encode(&self, entries: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.put_u32(MAGIC);
        out.put_u32(VERSION);
        out.put_u64(self.segment);
        out.put_u64(self.lsn);
        out.put_u64(self.incarnation.raw());
        out.put_u64(entries);
        let crc = crc32c(&out);
        out.put_u32(crc);
        out.put_u32(0);
        out
    }

    fn decode(bytes: &[u8]) -> Result<(Self, u64)> {
        let mut take = Take(bytes);
        let front = take.bytes(40)?;
        if take.u32()? != crc32c(front) {
            bail!(Corrupt, "its header does not match its checksum");
        }
        let mut front = Take(front);
        if front.u32()? != MAGIC {
            bail!(Corrupt, "it is no index");
        }
        let version = front.u32()?;
        if version != VERSION {
            bail!(Unsupported, "it has format {version}, this program knows {VERSION}");
        }
        let head = Self { segment: front.u64()?, lsn: front.u64()?, incarnation: Incarnation::new(front.u64()?) };
        Ok((head, front.u64()?))
    }
}

/// Writes an index beside the one that counts; [`IndexWriter::finish`] puts it in force.
#[derive(Debug)]
pub(crate) struct IndexWriter {
    disk: Disk,
    target: PathBuf,
    file: File,
    head: IndexHead,
    entries: u64,
    offset: u64,
    buffer: Vec<u8>,
}

impl IndexWriter {
    pub(crate) async fn begin(disk: &Disk, root: &Path, head: IndexHead) -> Result<Self> {
        let target = index_path(root, head.segment);
        let file = disk.open(&target.with_extension("new"), OpenMode::Create).await?;
        file.set_len(0).await?;
        let buffer = vec![0; HEADER_LEN];
        Ok(Self { disk: disk.clone(), target, file, head, entries: 0, offset: 0, buffer })
    }

    /// Adds a replica; in rising order of their ids.
    pub(crate) async fn push(&mut self, metablock: MetablockId, state: &ReplicaState) -> Result<()> {
        let body = encode_entry(metablock, state);
        self.buffer.put_u32(body.len() as u32);
        self.buffer.put_u32(crc32c(&body));
        self.buffer.extend_from_slice(&body);
        self.entries += 1;
        if self.buffer.len() >= WRITE_BYTES {
            self.write_out().await?;
        }
        Ok(())
    }

    /// Makes the index durable and gives it its name.
    pub(crate) async fn finish(mut self) -> Result<()> {
        let at = self.buffer.len();
        self.buffer.put_u32(END_MAGIC);
        self.buffer.put_u64(self.entries);
        let crc = crc32c(&self.buffer[at..]);
        self.buffer.put_u32(crc);
        self.write_out().await?;
        self.file.write_at(0, vec![self.head.encode(self.entries).into()]).await?;
        // Ordering: contents before the name, the name before anything that relies on it.
        self.file.sync_data().await?;
        self.disk.rename(&self.target.with_extension("new"), &self.target).await?;
        self.disk.sync_dir(self.target.parent().expect("an index lies in a volume")).await
    }

    async fn write_out(&mut self) -> Result<()> {
        let buffer = Bytes::from(std::mem::take(&mut self.buffer));
        let len = buffer.len() as u64;
        self.file.write_at(self.offset, vec![buffer]).await?;
        self.offset += len;
        Ok(())
    }
}

/// Reads an index; an error names the file.
pub(crate) async fn read_index(disk: &Disk, path: &Path) -> Result<(IndexHead, BTreeMap<MetablockId, ReplicaState>)> {
    let bytes = disk.read(path).await?;
    decode_index(&bytes).map_err(|error| error.context(path.display()))
}

fn decode_index(bytes: &[u8]) -> Result<(IndexHead, BTreeMap<MetablockId, ReplicaState>)> {
    let mut take = Take(bytes);
    let (head, entries) = IndexHead::decode(take.bytes(HEADER_LEN)?)?;
    let mut replicas = BTreeMap::new();
    for _ in 0..entries {
        let offset = bytes.len() - take.0.len();
        let (metablock, state) = take_entry(&mut take).map_err(|error| error.context(format!("offset {offset}")))?;
        replicas.insert(metablock, state);
    }
    let end = take.bytes(12)?;
    let mut fields = Take(end);
    if fields.u32()? != END_MAGIC || fields.u64()? != entries || take.u32()? != crc32c(end) || !take.0.is_empty() {
        bail!(Corrupt, "it does not end where it should");
    }
    Ok((head, replicas))
}

fn encode_entry(metablock: MetablockId, state: &ReplicaState) -> Vec<u8> {
    let chunks = &state.chunks;
    let mut out = Vec::with_capacity(48 + chunks.len() / 8 + 1 + chunks.len() * 4);
    out.put_u64(metablock.raw());
    encode_head(&state.head, &mut out);
    for first in (0..chunks.len()).step_by(8) {
        out.push((0..8).fold(0, |byte, bit| byte | u8::from(chunks.is_data(first + bit)) << bit));
    }
    for index in (0..chunks.len()).filter(|index| chunks.is_data(*index)) {
        out.put_u32(chunks.sum(index));
    }
    out
}

fn take_entry(take: &mut Take<'_>) -> Result<(MetablockId, ReplicaState)> {
    let (len, crc) = (take.u32()? as usize, take.u32()?);
    let body = take.bytes(len)?;
    if crc32c(body) != crc {
        bail!(Corrupt, "the entry does not match its checksum");
    }
    let mut body = Take(body);
    let metablock = MetablockId::new(body.u64()?);
    let mut state = ReplicaState { head: decode_head(&mut body)?, ..ReplicaState::default() };
    state.chunks.resize(state.head.length);
    let bitmap = body.bytes(state.chunks.len().div_ceil(8))?;
    for index in 0..state.chunks.len() {
        if bitmap[index / 8] >> (index % 8) & 1 == 1 {
            state.chunks.set_data(index, body.u32()?);
        }
    }
    if !body.0.is_empty() {
        return Err(err!(Corrupt, "the entry of {metablock} is {} bytes too long", body.0.len()));
    }
    Ok((metablock, state))
}

#[cfg(test)]
mod tests {
    use ebb_types::{CHUNK_SIZE, Epoch, Version};

    use super::*;
    use crate::record::Head;

    fn some_state(length: u64) -> ReplicaState {
        let head = Head { version: Version::new(Epoch::new(3), 9), promised: Epoch::new(4), length, reserved: 0 };
        let mut state = ReplicaState { head, ..ReplicaState::default() };
        state.chunks.resize(length);
        for index in (0..state.chunks.len()).step_by(3) {
            state.chunks.set_data(index, 1000 + index as u32);
        }
        state
    }

    #[test]
    fn an_index_survives_and_damage_anywhere_is_noticed() {
        let head = IndexHead { segment: 3, lsn: 17, incarnation: Incarnation::new(5) };
        let mut bytes = head.encode(2);
        for (id, length) in [(4, CHUNK_SIZE * 20 + 1), (9, 0)] {
            let body = encode_entry(MetablockId::new(id), &some_state(length));
            bytes.put_u32(body.len() as u32);
            bytes.put_u32(crc32c(&body));
            bytes.extend_from_slice(&body);
        }
        let at = bytes.len();
        bytes.put_u32(END_MAGIC);
        bytes.put_u64(2);
        let crc = crc32c(&bytes[at..]);
        bytes.put_u32(crc);

        let (found, replicas) = decode_index(&bytes).unwrap();
        assert_eq!(found, head);
        assert_eq!(replicas[&MetablockId::new(4)], some_state(CHUNK_SIZE * 20 + 1));
        assert_eq!(replicas[&MetablockId::new(9)], some_state(0));
        for at in (0..bytes.len()).filter(|at| !(44..48).contains(at)) {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert!(decode_index(&bad).is_err(), "byte {at}");
        }
        assert!(decode_index(&bytes[..bytes.len() - 1]).is_err());
    }
}
