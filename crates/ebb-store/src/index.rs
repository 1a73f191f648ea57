//! Snapshot of all replicas' states. See `docs/formats/index.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_log::sum_of_parts;
use ebb_runtime::{Disk, File, OpenMode};
use ebb_types::{Epoch, Incarnation, MetablockId, Result, bail, err};

use crate::codec::{Put, Take};
use crate::crc::crc32c;
use crate::record::{decode_head, encode_head};
use crate::state::ReplicaState;

const MAGIC: u32 = u32::from_le_bytes(*b"EBBI");
const END_MAGIC: u32 = u32::from_le_bytes(*b"EBBE");
const VERSION: u32 = 3;
const HEADER_LEN: usize = 48;
/// Kinds of entries.
const REPLICA: u64 = 1;
const TOMBSTONES: u64 = 2;
/// Tombstones in one entry.
const TOMBSTONES_AT_ONCE: usize = 4096;
/// No segment or batch has a higher number, so that counting on from an index does not overflow.
const NUMBER_MAX: u64 = 1 << 62;
/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Name of an index.
pub(crate) fn index_path(root: &Path, segment: u64) -> PathBuf {
    root.join(format!("index-{segment}"))
}

/// The place in the journal at which replay starts after an index.
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
        assert!(self.segment.max(self.lsn) <= NUMBER_MAX, "{self:?}: no start would accept this index");
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
            bail!(Unsupported, "it has format {version}, this program knows {VERSION}: use the release that wrote it");
        }
        let head = Self { segment: front.u64()?, lsn: front.u64()?, incarnation: Incarnation::new(front.u64()?) };
        if head.segment.max(head.lsn) > NUMBER_MAX {
            bail!(Corrupt, "it names segment {} and batch {}: no journal gets there", head.segment, head.lsn);
        }
        Ok((head, front.u64()?))
    }
}

/// Writes an index beside the one in force. [`IndexWriter::finish`] puts the new one in force.
#[derive(Debug)]
pub(crate) struct IndexWriter {
    disk: Disk,
    target: PathBuf,
    file: File,
    head: IndexHead,
    entries: u64,
    /// The last replica that was added.
    last: Option<MetablockId>,
    offset: u64,
    buffer: Vec<u8>,
}

impl IndexWriter {
    pub(crate) async fn create(disk: &Disk, root: &Path, head: IndexHead) -> Result<Self> {
        let target = index_path(root, head.segment);
        let file = disk.open(&target.with_extension("new"), OpenMode::Create).await?;
        file.set_len(0).await?;
        let buffer = vec![0; HEADER_LEN];
        Ok(Self { disk: disk.clone(), target, file, head, entries: 0, last: None, offset: 0, buffer })
    }

    /// Adds a replica. Replicas come in rising order of their ids.
    pub(crate) async fn push(&mut self, metablock: MetablockId, state: &ReplicaState) -> Result<()> {
        assert!(self.last.is_none_or(|last| last < metablock), "{metablock} is in an index twice, or out of order");
        self.last = Some(metablock);
        self.push_entry(&encode_entry(metablock, state)).await
    }

    /// Adds tombstones: ids and the epochs below which they refuse.
    pub(crate) async fn push_tombstones(&mut self, tombstones: &[(MetablockId, Epoch)]) -> Result<()> {
        for group in tombstones.chunks(TOMBSTONES_AT_ONCE) {
            self.push_entry(&encode_tombstones(group)).await?;
        }
        Ok(())
    }

    async fn push_entry(&mut self, body: &[u8]) -> Result<()> {
        put_entry(&mut self.buffer, &self.head, self.entries, body);
        self.entries += 1;
        if self.buffer.len() >= WRITE_BYTES {
            self.write_out().await?;
        }
        Ok(())
    }

    /// Makes the index durable and gives it its name. Returns its length in bytes.
    pub(crate) async fn finish(mut self) -> Result<u64> {
        put_end(&mut self.buffer, self.entries);
        self.write_out().await?;
        self.file.write_at(0, vec![self.head.encode(self.entries).into()]).await?;
        // Ordering: contents before the name, the name before anything that relies on it.
        self.file.sync_data().await?;
        self.disk.rename(&self.target.with_extension("new"), &self.target).await?;
        self.disk.sync_dir(self.target.parent().expect("an index lies in a volume")).await?;
        Ok(self.offset)
    }

    async fn write_out(&mut self) -> Result<()> {
        let buffer = Bytes::from(std::mem::take(&mut self.buffer));
        let len = buffer.len() as u64;
        self.file.write_at(self.offset, vec![buffer]).await?;
        self.offset += len;
        Ok(())
    }
}

/// The contents of an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Index {
    pub(crate) head: IndexHead,
    pub(crate) replicas: BTreeMap<MetablockId, ReplicaState>,
    /// Deleted ids, and the epochs below which they refuse.
    pub(crate) tombstones: BTreeMap<MetablockId, Epoch>,
}

/// Reads an index; an error names the file.
pub(crate) async fn read_index(disk: &Disk, path: &Path) -> Result<Index> {
    let bytes = disk.read(path).await?;
    decode_index(&bytes).map_err(|error| error.context(path.display()))
}

/// A whole index.
pub(crate) fn encode(
    head: IndexHead,
    replicas: &[(MetablockId, ReplicaState)],
    tombstones: &[(MetablockId, Epoch)],
) -> Vec<u8> {
    let mut bodies: Vec<Vec<u8>> = replicas.iter().map(|(id, state)| encode_entry(*id, state)).collect();
    bodies.extend(tombstones.chunks(TOMBSTONES_AT_ONCE).map(encode_tombstones));
    let mut out = head.encode(bodies.len() as u64);
    for (number, body) in (0..).zip(&bodies) {
        put_entry(&mut out, &head, number, body);
    }
    put_end(&mut out, bodies.len() as u64);
    out
}

/// Corrects all sums, the count and the end in a damaged index.
pub(crate) fn repair(bytes: &mut Vec<u8>) {
    if bytes.len() < HEADER_LEN {
        return;
    }
    let number = |bytes: &[u8], at| crate::codec::u64_at(bytes, at);
    let incarnation = Incarnation::new(number(bytes, 24));
    let head = IndexHead { segment: number(bytes, 8), lsn: number(bytes, 16), incarnation };
    let (mut at, mut count) = (HEADER_LEN, 0);
    // The bytes behind the last whole entry become the end.
    while let Some(room) = bytes.len().checked_sub(at + 8).filter(|room| *room >= 16) {
        let len = (crate::codec::u32_at(bytes, at) as usize).clamp(8, room);
        let sum = entry_sum(&head, count, &bytes[at + 8..at + 8 + len]);
        bytes[at..at + 4].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        at += 8 + len;
        count += 1;
    }
    bytes.truncate(at);
    put_end(bytes, count);
    bytes[32..40].copy_from_slice(&count.to_le_bytes());
    let sum = crc32c(&bytes[..40]);
    bytes[40..44].copy_from_slice(&sum.to_le_bytes());
}

fn put_end(out: &mut Vec<u8>, entries: u64) {
    let at = out.len();
    out.put_u32(END_MAGIC);
    out.put_u64(entries);
    let crc = crc32c(&out[at..]);
    out.put_u32(crc);
}

pub(crate) fn decode_index(bytes: &[u8]) -> Result<Index> {
    let mut take = Take(bytes);
    let (head, entries) = IndexHead::decode(take.bytes(HEADER_LEN)?)?;
    let mut index = Index { head, replicas: BTreeMap::new(), tombstones: BTreeMap::new() };
    for number in 0..entries {
        let offset = bytes.len() - take.0.len();
        take_entry(&mut take, number, &mut index).map_err(|error| error.context(format!("offset {offset}")))?;
    }
    let end = take.bytes(12)?;
    let mut fields = Take(end);
    if fields.u32()? != END_MAGIC || fields.u64()? != entries || take.u32()? != crc32c(end) || !take.0.is_empty() {
        bail!(Corrupt, "it does not end where it should");
    }
    Ok(index)
}

/// An entry's sum covers the index's identity and the entry's place in it. So an entry of an older file on the same
/// blocks does not pass.
fn entry_sum(head: &IndexHead, number: u64, body: &[u8]) -> u32 {
    let mut place = Vec::with_capacity(24);
    place.put_u64(head.incarnation.raw());
    place.put_u64(head.segment);
    place.put_u64(number);
    sum_of_parts([&place[..], body])
}

fn put_entry(out: &mut Vec<u8>, head: &IndexHead, number: u64, body: &[u8]) {
    assert!(u32::try_from(body.len()).is_ok(), "an entry of {} bytes does not fit its length field", body.len());
    out.put_u32(body.len() as u32);
    out.put_u32(entry_sum(head, number, body));
    out.extend_from_slice(body);
}

fn encode_entry(metablock: MetablockId, state: &ReplicaState) -> Vec<u8> {
    let chunks = &state.chunks;
    let mut out = Vec::with_capacity(80 + chunks.len() / 8 + chunks.len() * 4);
    out.put_u64(REPLICA);
    out.put_u64(metablock.raw());
    encode_head(&state.head, &mut out);
    put_bitmap(&mut out, chunks.len(), |index| chunks.is_data(index));
    put_bitmap(&mut out, chunks.len(), |index| chunks.is_second(index));
    for index in (0..chunks.len()).filter(|index| chunks.is_data(*index)) {
        out.put_u32(chunks.sum(index));
    }
    out
}

fn encode_tombstones(group: &[(MetablockId, Epoch)]) -> Vec<u8> {
    let mut body = Vec::with_capacity(8 + group.len() * 16);
    body.put_u64(TOMBSTONES);
    for (metablock, fence) in group {
        body.put_u64(metablock.raw());
        body.put_u64(fence.raw());
    }
    body
}

fn put_bitmap(out: &mut Vec<u8>, count: usize, is_set: impl Fn(usize) -> bool) {
    for first in (0..count).step_by(8) {
        out.push((0..8).fold(0, |byte, bit| byte | u8::from(is_set(first + bit)) << bit));
    }
}

fn take_entry(take: &mut Take<'_>, number: u64, index: &mut Index) -> Result<()> {
    let (len, crc) = (take.u32()? as usize, take.u32()?);
    let body = take.bytes(len)?;
    if entry_sum(&index.head, number, body) != crc {
        bail!(Corrupt, "the entry does not match its checksum");
    }
    let mut body = Take(body);
    match body.u64()? {
        REPLICA => {
            let (metablock, state) = take_replica(&mut body)?;
            index.replicas.insert(metablock, state);
        }
        TOMBSTONES => {
            while !body.0.is_empty() {
                index.tombstones.insert(MetablockId::new(body.u64()?), Epoch::new(body.u64()?));
            }
        }
        other => bail!(Corrupt, "unknown kind {other} of an entry"),
    }
    match body.0.len() {
        0 => Ok(()),
        rest => Err(err!(Corrupt, "the entry is {rest} bytes too long")),
    }
}

fn take_replica(body: &mut Take<'_>) -> Result<(MetablockId, ReplicaState)> {
    let metablock = MetablockId::new(body.u64()?);
    let mut state = ReplicaState { head: decode_head(body)?, ..ReplicaState::default() };
    state.chunks.resize(state.head.length);
    let bitmap_len = state.chunks.len().div_ceil(8);
    let (data, second) = (body.bytes(bitmap_len)?, body.bytes(bitmap_len)?);
    let is_set = |bitmap: &[u8], index: usize| bitmap[index / 8] >> (index % 8) & 1 == 1;
    for index in 0..state.chunks.len() {
        if is_set(data, index) {
            state.chunks.set_data(index, body.u32()?, is_set(second, index));
        }
    }
    Ok((metablock, state))
}

#[cfg(test)]
mod tests {
    use ebb_types::{CHUNK_SIZE, Version};

    use super::*;
    use crate::record::Head;

    fn some_state(length: u64) -> ReplicaState {
        let head = Head {
            version: Version::new(Epoch::new(3), 9),
            promised: Epoch::new(4),
            length,
            life: 7,
            ..Head::default()
        };
        let mut state = ReplicaState { head, ..ReplicaState::default() };
        state.chunks.resize(length);
        for index in (0..state.chunks.len()).step_by(3) {
            state.chunks.set_data(index, 1000 + index as u32, index % 2 == 0);
        }
        state
    }

    fn with_header(change: impl Fn(&mut [u8])) -> ebb_types::Error {
        let head = IndexHead { segment: 3, lsn: 17, incarnation: Incarnation::new(5) };
        let mut bytes = encode(head, &[], &[]);
        change(&mut bytes);
        repair(&mut bytes);
        decode_index(&bytes).unwrap_err()
    }

    #[test]
    fn another_format_is_refused_by_name() {
        for format in [2_u32, 4] {
            let error = with_header(|bytes| bytes[4..8].copy_from_slice(&format.to_le_bytes()));
            assert_eq!(error.kind(), ebb_types::ErrorKind::Unsupported);
            let due = format!("it has format {format}, this program knows 3: use the release that wrote it");
            assert_eq!(error.to_string(), due);
        }
    }

    #[test]
    fn numbers_that_no_journal_gets_to_are_refused() {
        for at in [8, 16] {
            let error = with_header(|bytes| bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes()));
            assert_eq!(error.kind(), ebb_types::ErrorKind::Corrupt, "{at}");
        }
    }

    #[test]
    fn an_index_survives_and_damage_anywhere_is_noticed() {
        let head = IndexHead { segment: 3, lsn: 17, incarnation: Incarnation::new(5) };
        let at = |offset: usize, entries: &[Vec<u8>]| {
            let mut bytes = head.encode(entries.len() as u64);
            for (number, body) in entries.iter().enumerate() {
                put_entry(&mut bytes, &head, (number + offset) as u64, body);
            }
            put_end(&mut bytes, entries.len() as u64);
            bytes
        };
        let mut tombstones = Vec::new();
        [TOMBSTONES, 5, u64::MAX, 6, 3].into_iter().for_each(|number| tombstones.put_u64(number));
        let entries = [
            encode_entry(MetablockId::new(4), &some_state(CHUNK_SIZE * 20 + 1)),
            encode_entry(MetablockId::new(9), &some_state(0)),
            tombstones,
        ];
        let bytes = at(0, &entries);
        let found = decode_index(&bytes).unwrap();
        assert_eq!(found.head, head);
        assert_eq!(found.replicas[&MetablockId::new(4)], some_state(CHUNK_SIZE * 20 + 1));
        assert_eq!(found.replicas[&MetablockId::new(9)], some_state(0));
        assert_eq!(found.tombstones[&MetablockId::new(5)], Epoch::new(u64::MAX));
        assert_eq!(found.tombstones[&MetablockId::new(6)], Epoch::new(3));
        for at in (0..bytes.len()).filter(|at| !(44..48).contains(at)) {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert!(decode_index(&bad).is_err(), "byte {at}");
        }
        assert!(decode_index(&bytes[..bytes.len() - 1]).is_err());
        // Sound bytes that belong elsewhere: another place in the index, and another index.
        assert!(decode_index(&at(1, &entries)).is_err());
        let older = IndexHead { segment: 2, ..head }.encode(3);
        assert!(decode_index(&[&older[..], &bytes[HEADER_LEN..]].concat()).is_err());
    }
}
