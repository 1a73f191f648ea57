//! What one group commit writes to the journal. See `docs/formats/journal.md`.

use bytes::Bytes;
use ebb_types::{Incarnation, Result, err};

use crate::codec::{Put, Take, u32_at, u64_at};
use crate::crc;
use crate::record::Record;

/// Batches start at multiples of this, so that no synced page is written again.
pub(crate) const BATCH_ALIGN: u64 = 4096;

const MAGIC: u32 = u32::from_le_bytes(*b"EBBJ");
const HEADER_LEN: usize = 48;

/// Where a batch belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchPlace {
    pub(crate) lsn: u64,
    pub(crate) segment: u64,
    pub(crate) incarnation: Incarnation,
}

/// A batch's records without its place: their encoding and their data.
#[derive(Debug, Default)]
pub(crate) struct BatchBody {
    meta: Vec<u8>,
    data: Vec<Bytes>,
    data_len: usize,
    records: u32,
}

impl BatchBody {
    /// Adds a record.
    pub(crate) fn push(&mut self, record: &Record) {
        record.encode(&mut self.meta);
        self.records += 1;
        if let Some(bytes) = record.data() {
            self.data_len += bytes.len();
            self.data.push(bytes.clone());
        }
    }

    /// Whether it carries bytes of replicas, not only what became of them.
    pub(crate) fn has_data(&self) -> bool {
        self.data_len > 0
    }

    /// Bytes on disk, without padding.
    pub(crate) fn len(&self) -> u64 {
        (HEADER_LEN + self.meta.len() + self.data_len) as u64
    }

    /// The buffers to write, padded to [`BATCH_ALIGN`]. The data is not copied.
    pub(crate) fn encode(self, place: BatchPlace) -> Vec<Bytes> {
        let len = self.len();
        let mut front = Vec::with_capacity(HEADER_LEN + self.meta.len());
        front.put_u32(MAGIC);
        front.put_u32(0);
        front.put_u32(u32::try_from(len).expect("a batch is bounded"));
        front.put_u32(self.records);
        front.put_u64(place.lsn);
        front.put_u64(place.segment);
        front.put_u64(place.incarnation.raw());
        front.put_u32(u32::try_from(self.meta.len()).expect("a batch is bounded"));
        front.put_u32(0);
        front.extend_from_slice(&self.meta);
        let sum = crc::of_parts(std::iter::once(&front[8..]).chain(self.data.iter().map(|part| &part[..])));
        front[4..8].copy_from_slice(&sum.to_le_bytes());
        let padding = (len.next_multiple_of(BATCH_ALIGN) - len) as usize;
        let mut parts = Vec::with_capacity(2 + self.data.len());
        parts.push(front.into());
        parts.extend(self.data);
        parts.push(vec![0; padding].into());
        parts
    }
}

/// A batch read back.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Bytes on disk, with padding.
    pub(crate) len: u64,
    pub(crate) records: Vec<Record>,
}

/// The lsn of the batch that starts at the front of `bytes`, if a whole one does and it belongs to this segment.
pub(crate) fn recognise(bytes: &[u8], segment: u64, incarnation: Incarnation) -> Option<u64> {
    if bytes.len() < HEADER_LEN || u32_at(bytes, 0) != MAGIC {
        return None;
    }
    let len = u32_at(bytes, 8) as usize;
    let ours = u64_at(bytes, 24) == segment && u64_at(bytes, 32) == incarnation.raw();
    let whole = ours && (HEADER_LEN..=bytes.len()).contains(&len) && u32_at(bytes, 4) == crc::crc32c(&bytes[8..len]);
    whole.then(|| u64_at(bytes, 16))
}

/// Decodes a batch that [`recognise`] found. Its records keep parts of `bytes`.
pub(crate) fn decode(bytes: &Bytes) -> Result<Batch> {
    let len = u32_at(bytes, 8) as usize;
    let meta_len = u32_at(bytes, 40) as usize;
    let data_at = HEADER_LEN.checked_add(meta_len).filter(|at| *at <= len);
    let data_at = data_at.ok_or_else(|| err!(Corrupt, "a batch of {len} bytes with {meta_len} of records"))?;
    let mut meta = Take(&bytes[HEADER_LEN..data_at]);
    let mut data = bytes.slice(data_at..len);
    let records = (0..u32_at(bytes, 12)).map(|_| Record::decode(&mut meta, &mut data)).collect::<Result<_>>()?;
    Ok(Batch { len: (len as u64).next_multiple_of(BATCH_ALIGN), records })
}
