//! The batch that one group commit writes to the journal. See `docs/formats/journal.md`.

use bytes::Bytes;
use ebb_log::{Frame, Framing, sum_of_parts};
use ebb_types::{Incarnation, Result, err};

use crate::codec::{Put, Take, u32_at, u64_at};
use crate::record::Record;

/// Batches start at multiples of this, so that no synced page is written again.
pub(crate) const BATCH_ALIGN: u64 = 4096;

const MAGIC: u32 = u32::from_le_bytes(*b"EBBJ");
const HEADER_LEN: usize = 48;

/// The place of a batch in the journal.
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

    /// Whether it carries bytes of replicas, not only changes of state.
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
        let sum = sum_of_parts(std::iter::once(&front[8..]).chain(self.data.iter().map(|part| &part[..])));
        front[4..8].copy_from_slice(&sum.to_le_bytes());
        let padding = (len.next_multiple_of(BATCH_ALIGN) - len) as usize;
        let mut parts = Vec::with_capacity(2 + self.data.len());
        parts.push(front.into());
        parts.extend(self.data);
        parts.push(vec![0; padding].into());
        parts
    }
}

/// The frame of the journal's batches: see `docs/formats/journal.md`. Only batches with this segment's number count,
/// because a reused segment still holds old batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchFraming {
    pub(crate) segment: u64,
    pub(crate) incarnation: Incarnation,
}

impl Framing for BatchFraming {
    const STEP: usize = BATCH_ALIGN as usize;

    fn read_frame(&self, bytes: &[u8]) -> Option<Frame> {
        if bytes.len() < HEADER_LEN || u32_at(bytes, 0) != MAGIC {
            return None;
        }
        let len = u32_at(bytes, 8) as usize;
        let ours = u64_at(bytes, 24) == self.segment && u64_at(bytes, 32) == self.incarnation.raw();
        (ours && (HEADER_LEN..=bytes.len()).contains(&len)).then(|| Frame {
            summed: 8..len,
            sum: u32_at(bytes, 4),
            len: len.next_multiple_of(Self::STEP),
            batch: u64_at(bytes, 16),
            ends_batch: true,
        })
    }
}

/// Decodes a batch with a whole frame. Its records keep parts of `bytes`.
pub(crate) fn decode(bytes: &Bytes) -> Result<Vec<Record>> {
    let len = u32_at(bytes, 8) as usize;
    let meta_len = u32_at(bytes, 40) as usize;
    let data_at = HEADER_LEN.checked_add(meta_len).filter(|at| *at <= len);
    let data_at = data_at.ok_or_else(|| err!(Corrupt, "a batch of {len} bytes with {meta_len} of records"))?;
    let mut meta = Take(&bytes[HEADER_LEN..data_at]);
    let mut data = bytes.slice(data_at..len);
    (0..u32_at(bytes, 12)).map(|_| Record::decode(&mut meta, &mut data)).collect()
}
