//! Changes of one replica, as the journal keeps them. See `docs/formats/journal.md`.

use bytes::Bytes;
use ebb_types::{CHUNK_SIZE, Epoch, MetablockId, Result, Version, bail};

use crate::chunks::{self, Extent, places};
use crate::codec::{Put, Take};

/// Longest replica: the largest metablock that a geometry allows.
pub(crate) const REPLICA_LEN_MAX: u64 = 1 << 30;

/// State of a replica, without its chunk sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Head {
    /// Version of the last write in it.
    pub(crate) version: Version,
    /// Lower epochs are refused.
    pub(crate) promised: Epoch,
    /// Bytes.
    pub(crate) length: u64,
    /// End of the space that a writer reserved, if it lies past the end of the bytes; else 0.
    pub(crate) reserved: u64,
    /// Distinguishes the replica from earlier ones of the same metablock. Drawn at the first request for the replica,
    /// and anew by each copy that is made over it.
    pub(crate) life: u64,
    /// It was found damaged, and is not served until a copy takes its place.
    pub(crate) damaged: bool,
}

/// The flag of a damaged replica.
const DAMAGED: u64 = 1;

/// New sums of chunks that follow each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Run {
    /// They are holes.
    Holes { first: usize, count: usize },
    /// They are data with these sums, in their first or second place.
    Data { first: usize, sums: Vec<u32>, second: bool },
}

impl Run {
    /// The chunk behind its last one.
    pub(crate) fn end(&self) -> usize {
        match self {
            Self::Holes { first, count } => first + count,
            Self::Data { first, sums, .. } => first + sums.len(),
        }
    }
}

/// The change of a replica's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// Nothing.
    None,
    /// New bytes that are in the file already.
    Direct { offset: u64, len: u64 },
    /// New bytes, to be put in place.
    Data { offset: u64, bytes: Bytes },
    /// The file is cut or grown to the replica's length.
    Length,
    /// The range becomes a hole.
    Punch { offset: u64, len: u64 },
    /// The range reads as zero and stays allocated.
    Zero { offset: u64, len: u64 },
    /// Space for the range is reserved.
    Allocate { offset: u64, len: u64 },
    /// A finished copy takes the file's place.
    Replace { token: u64 },
    /// The replica is gone. Its tombstone refuses epochs below `after.promised`.
    Delete,
}

/// One change of one replica: its state afterwards, and the change of its file.
///
/// Invariant: a record is absolute. It may be applied again, or to a later state of the same history. With all records
/// after it the result is the same state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) metablock: MetablockId,
    /// The replica's length before. The bytes from there to the start of the new bytes read as zero.
    pub(crate) length_before: u64,
    pub(crate) after: Head,
    pub(crate) runs: Vec<Run>,
    pub(crate) content: Content,
}

impl Record {
    /// Bytes that travel in the data part of a batch.
    pub(crate) fn data(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Data { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// Whether the file has to be changed once the record is in the journal.
    pub(crate) fn has_place(&self) -> bool {
        match self.content {
            Content::None => false,
            // The overwritten bytes still lie in the old places of their chunks, and have to be freed.
            Content::Direct { offset, .. } => offset < self.length_before,
            _ => true,
        }
    }

    /// The places in the file of a range that the record touches.
    pub(crate) fn places(&self, offset: u64, len: u64) -> Vec<Extent> {
        places(offset, len, |chunk| self.is_second(chunk))
    }

    /// The old places of a range that the record wrote directly.
    pub(crate) fn places_before(&self, offset: u64, len: u64) -> Vec<Extent> {
        places(offset, len.min(self.length_before.saturating_sub(offset)), |chunk| !self.is_second(chunk))
    }

    fn is_second(&self, chunk: usize) -> bool {
        let here = |first: usize, count: usize| (first..first + count).contains(&chunk);
        self.runs.iter().any(|run| matches!(run, Run::Data { first, sums, second: true } if here(*first, sums.len())))
    }

    /// Whether putting the record in place may touch these bytes of the replica.
    pub(crate) fn may_touch(&self, start: u64, end: u64) -> bool {
        let touches = |offset: u64, len: u64| {
            let chunks = chunks_of(offset, len);
            chunks.start as u64 * CHUNK_SIZE < end && start < chunks.end as u64 * CHUNK_SIZE
        };
        match &self.content {
            Content::None => false,
            Content::Data { offset, bytes } => touches(*offset, bytes.len() as u64),
            Content::Direct { offset, len }
            | Content::Punch { offset, len }
            | Content::Zero { offset, len }
            | Content::Allocate { offset, len } => touches(*offset, *len),
            Content::Length | Content::Replace { .. } | Content::Delete => true,
        }
    }

    /// Appends everything but the data.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, a, b) = match &self.content {
            Content::None => (0, 0, 0),
            Content::Direct { offset, len } => (1, *offset, *len),
            Content::Data { offset, bytes } => (2, *offset, bytes.len() as u64),
            Content::Length => (3, 0, 0),
            Content::Punch { offset, len } => (4, *offset, *len),
            Content::Zero { offset, len } => (5, *offset, *len),
            Content::Allocate { offset, len } => (6, *offset, *len),
            Content::Replace { token } => (7, *token, 0),
            Content::Delete => (8, 0, 0),
        };
        out.put_u64(self.metablock.raw());
        out.put_u64(self.length_before);
        encode_head(&self.after, out);
        out.put_u32(kind);
        out.put_u32(self.runs.len() as u32);
        out.put_u64(a);
        out.put_u64(b);
        for run in &self.runs {
            match run {
                Run::Holes { first, count } => {
                    out.put_u32(*first as u32);
                    out.put_u32(*count as u32);
                    out.put_u32(0);
                }
                Run::Data { first, sums, second } => {
                    out.put_u32(*first as u32);
                    out.put_u32(sums.len() as u32);
                    out.put_u32(if *second { 2 } else { 1 });
                    sums.iter().for_each(|sum| out.put_u32(*sum));
                }
            }
        }
    }

    /// Reads a record and takes its bytes from the front of `data`.
    pub(crate) fn decode(meta: &mut Take<'_>, data: &mut Bytes) -> Result<Self> {
        let metablock = MetablockId::new(meta.u64()?);
        let length_before = meta.u64()?;
        let after = decode_head(meta)?;
        let kind = meta.u32()?;
        let runs = meta.u32()?;
        let (a, b) = (meta.u64()?, meta.u64()?);
        let range = |kind: fn(u64, u64) -> Content| match a.checked_add(b) {
            Some(end) if end <= REPLICA_LEN_MAX => Ok(kind(a, b)),
            _ => bail!(Corrupt, "record of {metablock}: a range of {b} bytes at {a}"),
        };
        let content = match kind {
            0 => Content::None,
            1 => range(|offset, len| Content::Direct { offset, len })?,
            2 if b <= data.len() as u64 => {
                range(|offset, len| Content::Direct { offset, len })?;
                Content::Data { offset: a, bytes: data.split_to(b as usize) }
            }
            2 => bail!(Corrupt, "record of {metablock}: {b} bytes of data where {} are", data.len()),
            3 => Content::Length,
            4 => range(|offset, len| Content::Punch { offset, len })?,
            5 => range(|offset, len| Content::Zero { offset, len })?,
            6 => range(|offset, len| Content::Allocate { offset, len })?,
            7 => Content::Replace { token: a },
            8 => Content::Delete,
            other => bail!(Corrupt, "record of {metablock}: unknown kind {other}"),
        };
        let runs = decode_runs(meta, runs, after.length)?;
        Ok(Self { metablock, length_before, after, runs, content })
    }
}

pub(crate) fn encode_head(head: &Head, out: &mut Vec<u8>) {
    out.put_u64(head.version.epoch.raw());
    out.put_u64(head.version.seq);
    out.put_u64(head.promised.raw());
    out.put_u64(head.length);
    out.put_u64(head.reserved);
    out.put_u64(head.life);
    out.put_u64(if head.damaged { DAMAGED } else { 0 });
}

pub(crate) fn decode_head(meta: &mut Take<'_>) -> Result<Head> {
    let mut head = Head {
        version: Version::new(Epoch::new(meta.u64()?), meta.u64()?),
        promised: Epoch::new(meta.u64()?),
        length: meta.u64()?,
        reserved: meta.u64()?,
        life: meta.u64()?,
        damaged: false,
    };
    match meta.u64()? {
        0 => {}
        DAMAGED => head.damaged = true,
        other => bail!(Corrupt, "unknown flags {other:#x} of a replica"),
    }
    if head.length > REPLICA_LEN_MAX || head.reserved > REPLICA_LEN_MAX {
        bail!(Corrupt, "a replica of {} bytes ({} reserved)", head.length, head.reserved);
    }
    Ok(head)
}

/// Runs rise. A run may begin with the last chunk of the one before: a chunk that grows gets the sum of its longer
/// self, and then the sum after the write. Runs that overlap further are refused, because a few bytes could then cause
/// much work.
fn decode_runs(meta: &mut Take<'_>, count: u32, length: u64) -> Result<Vec<Run>> {
    let (mut runs, mut end) = (Vec::new(), 0);
    for _ in 0..count {
        let run = decode_run(meta, length)?;
        let (first, count) = match &run {
            Run::Holes { first, count } => (*first, *count),
            Run::Data { first, sums, .. } => (*first, sums.len()),
        };
        if first + 1 < end {
            bail!(Corrupt, "sums of chunks {first} and on behind those up to chunk {end}");
        }
        end = first + count;
        runs.push(run);
    }
    Ok(runs)
}

fn decode_run(meta: &mut Take<'_>, length: u64) -> Result<Run> {
    let (first, count, tag) = (meta.u32()? as usize, meta.u32()? as usize, meta.u32()?);
    if first.checked_add(count).is_none_or(|end| end > chunks::count(length)) {
        bail!(Corrupt, "sums of chunks {first} and {count} more in a replica of {length} bytes");
    }
    match tag {
        0 => Ok(Run::Holes { first, count }),
        1 | 2 => {
            let sums = (0..count).map(|_| meta.u32()).collect::<Result<_>>()?;
            Ok(Run::Data { first, sums, second: tag == 2 })
        }
        other => bail!(Corrupt, "unknown kind {other} of chunk sums"),
    }
}

/// Collects sums of single chunks, in rising order, into runs.
#[derive(Debug, Default)]
pub(crate) struct Runs(Vec<Run>);

impl Runs {
    /// The chunk is data with this sum, in its first or second place.
    pub(crate) fn data(&mut self, index: usize, sum: u32, second: bool) {
        match self.0.last_mut() {
            Some(Run::Data { first, sums, second: before }) if *first + sums.len() == index && *before == second => {
                sums.push(sum);
            }
            _ => self.0.push(Run::Data { first: index, sums: vec![sum], second }),
        }
    }

    /// The chunk is a hole.
    pub(crate) fn hole(&mut self, index: usize) {
        match self.0.last_mut() {
            Some(Run::Holes { first, count }) if *first + *count == index => *count += 1,
            _ => self.0.push(Run::Holes { first: index, count: 1 }),
        }
    }

    /// The runs.
    pub(crate) fn finish(self) -> Vec<Run> {
        self.0
    }
}

/// The chunks that a byte range touches.
pub(crate) fn chunks_of(offset: u64, len: u64) -> std::ops::Range<usize> {
    (offset / CHUNK_SIZE) as usize..(offset + len).div_ceil(CHUNK_SIZE) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_content() -> impl Strategy<Value = Content> {
        let range = (0u64..1 << 20, 1u64..1 << 20);
        prop_oneof![
            Just(Content::None),
            Just(Content::Length),
            Just(Content::Delete),
            any::<u64>().prop_map(|token| Content::Replace { token }),
            range.clone().prop_map(|(offset, len)| Content::Direct { offset, len }),
            range.clone().prop_map(|(offset, len)| Content::Punch { offset, len }),
            range.clone().prop_map(|(offset, len)| Content::Zero { offset, len }),
            range.prop_map(|(offset, len)| Content::Allocate { offset, len }),
            (0u64..1 << 20, prop::collection::vec(any::<u8>(), 1..100))
                .prop_map(|(offset, bytes)| Content::Data { offset, bytes: bytes.into() }),
        ]
    }

    /// With overlapping runs the work of a start could grow as a power of their number.
    #[test]
    fn runs_that_do_not_rise_are_refused() {
        let decoded = |runs: Vec<Run>| {
            let after = Head { length: 1 << 20, ..Head::default() };
            let record =
                Record { metablock: MetablockId::new(9), length_before: 0, after, runs, content: Content::None };
            let mut meta = Vec::new();
            record.encode(&mut meta);
            Record::decode(&mut Take(&meta), &mut Bytes::new()).map(|read| read == record)
        };
        let (holes, data) =
            (Run::Holes { first: 0, count: 9 }, Run::Data { first: 8, sums: vec![1, 2], second: false });
        assert!(decoded(vec![holes.clone(), data.clone()]).unwrap(), "the last chunk may come again");
        assert!(decoded(vec![holes.clone(), holes]).is_err());
        assert!(decoded(vec![data.clone(), Run::Holes { first: 0, count: 1 }]).is_err());
        assert!(decoded(vec![data.clone(), data]).is_err());
    }

    proptest! {
        #[test]
        fn records_survive_the_journal(content in any_content(), epoch: u64, seq: u64, sums in prop::collection::vec(any::<u32>(), 1..9)) {
            let after = Head {
                version: Version::new(Epoch::new(epoch), seq),
                promised: Epoch::new(epoch),
                length: 1 << 20,
                reserved: 0,
                life: seq,
                damaged: seq % 2 == 0,
            };
            let runs = vec![Run::Data { first: 3, sums, second: seq % 3 == 0 }, Run::Holes { first: 20, count: 2 }];
            let record = Record { metablock: MetablockId::new(9), length_before: 7, after, runs, content };
            let mut meta = Vec::new();
            record.encode(&mut meta);
            let mut data = record.data().cloned().unwrap_or_default();
            let mut take = Take(&meta);
            prop_assert_eq!(Record::decode(&mut take, &mut data).unwrap(), record);
            prop_assert!(take.0.is_empty() && data.is_empty());
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::decode(&mut Take(&bytes), &mut Bytes::from(bytes.clone()));
        }
    }
}
