//! The trailer of a check metablock: what its row was made of. See `docs/formats/check.md`.

use std::ops::Range;

use ebb_types::{CHUNK_SIZE, Epoch, MetablockId, RAID_METABLOCK_SIZE_MAX, RaidSetId, Result, Version, bail};

use crate::code::{Code, ROWS_MAX, SLOTS_MAX};
use crate::sums::{ChunkSum, crc32c, sum_of_row_zero};

#[cfg(test)]
mod tests;

/// Format of the trailer.
const FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"EBBCHECK";
/// Number of the code whose coefficients `matrix.rs` has.
const CODE: u32 = 1;

/// Longest metablock of a slot: a check metablock is longer by its trailer, and must fit into a replica (1 GiB).
pub const METABLOCK_MAX: u64 = RAID_METABLOCK_SIZE_MAX;

/// Bytes of the head without the slots.
const HEAD: usize = 32;
/// Bytes of a slot in the head.
const SLOT: usize = 40;
/// Bytes at the end of the metablock from which a reader finds the rest.
pub const FOOT: usize = 16;
/// Longest trailer: that of [`SLOTS_MAX`] slots of [`METABLOCK_MAX`].
const LENGTH_MAX: u64 = length_for(SLOTS_MAX, SLOTS_MAX as u64 * (METABLOCK_MAX / CHUNK_SIZE));

/// What a check metablock says about itself behind its row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trailer {
    /// The RAID set.
    pub raid_set: RaidSetId,
    /// Copies of each slot that the RAID set keeps: 1 or more.
    pub copies: u32,
    /// Its slots and rows.
    pub code: Code,
    /// Which row the metablock holds.
    pub row: usize,
    /// For each slot what was encoded; none for an empty one.
    pub slots: Vec<Option<Slot>>,
}

/// The content of a slot: one version of a metablock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The metablock; its id is not 0.
    pub metablock: MetablockId,
    /// The version that was encoded.
    pub version: Version,
    /// Bytes, at most [`METABLOCK_MAX`].
    pub length: u64,
    /// CRC-32C of every chunk as the writer made it. That of a short last chunk covers its own bytes alone.
    pub sums: Vec<u32>,
}

/// Length of a trailer: whole chunks, so that none has bytes of row and trailer.
const fn length_for(slots: usize, sums: u64) -> u64 {
    ((HEAD + slots * SLOT + FOOT) as u64 + 4 * sums).next_multiple_of(CHUNK_SIZE)
}

/// Number of checksums of a slot.
const fn sums_of(length: u64) -> u64 {
    length.div_ceil(CHUNK_SIZE)
}

/// The place of the trailer in a check metablock of `metablock_len` bytes, whose last bytes are `end`: at least 16 of them.
///
/// Kind `Corrupt` if they are the end of no check metablock, `Unsupported` if they are of another format.
pub fn find_trailer(end: &[u8], metablock_len: u64) -> Result<Range<u64>> {
    let Some(foot) = end.last_chunk::<FOOT>() else {
        bail!(Corrupt, "{} bytes are too few for the end of a check metablock: it has {FOOT}", end.len());
    };
    if !foot.starts_with(MAGIC) {
        bail!(Corrupt, "this is no check metablock: it does not end with {}", MAGIC.escape_ascii());
    }
    let mut rest = Take(&foot[MAGIC.len()..]);
    let (format, length) = (rest.u32(), u64::from(rest.u32()));
    if format != FORMAT {
        bail!(
            Unsupported,
            "the check metablock has a trailer of format {format}, this program knows {FORMAT}: use the release that wrote it"
        );
    }
    let is_possible = length > 0 && length.is_multiple_of(CHUNK_SIZE) && length <= LENGTH_MAX.min(metablock_len);
    if !is_possible || !metablock_len.is_multiple_of(CHUNK_SIZE) {
        bail!(Corrupt, "a check metablock of {metablock_len} bytes has no trailer of {length}");
    }
    Ok(metablock_len - length..metablock_len)
}

impl Trailer {
    /// Bytes of the row: those of the longest slot, rounded up to a chunk.
    #[must_use]
    pub fn row_len(&self) -> u64 {
        self.slots.iter().flatten().map(|slot| slot.length).max().unwrap_or(0).next_multiple_of(CHUNK_SIZE)
    }

    /// Bytes of the trailer.
    #[must_use]
    pub fn trailer_len(&self) -> u64 {
        length_for(self.slots.len(), self.slots.iter().flatten().map(|slot| slot.sums.len() as u64).sum())
    }

    /// Bytes of the check metablock: row and trailer.
    #[must_use]
    pub fn metablock_len(&self) -> u64 {
        self.row_len() + self.trailer_len()
    }

    /// The checksum that the chunk of row 0 with this index must have, by the slots' checksums.
    pub fn sum_of_row_zero(&self, chunk: u64) -> Result<u32> {
        let reaching = self.slots.iter().flatten().filter_map(|slot| {
            let sum = *slot.sums.get(usize::try_from(chunk).ok()?)?;
            Some(ChunkSum { sum, length: (slot.length - chunk * CHUNK_SIZE).min(CHUNK_SIZE) })
        });
        sum_of_row_zero(&reaching.collect::<Vec<_>>())
    }

    /// The bytes behind the row, up to the end of the metablock. Kind `Invalid` if they would not be read back.
    pub fn encode(&self) -> Result<Vec<u8>> {
        if let Err(what) = self.check() {
            bail!(Invalid, "a check metablock of {} would say that {what}", self.raid_set);
        }
        let length = usize::try_from(self.trailer_len()).expect("a few MiB");
        let mut bytes = Vec::with_capacity(length);
        let word = |number: usize| u32::try_from(number).expect("below 33").to_le_bytes();
        // The checksum's place.
        bytes.extend([0; 4]);
        bytes.extend(CODE.to_le_bytes());
        bytes.extend(self.raid_set.raw().to_le_bytes());
        bytes.extend(self.copies.to_le_bytes());
        [self.code.slots(), self.code.rows(), self.row].iter().for_each(|number| bytes.extend(word(*number)));
        for slot in &self.slots {
            let numbers = slot.as_ref().map_or([0; 5], |slot| {
                let Version { epoch, seq } = slot.version;
                [slot.metablock.raw(), epoch.raw(), seq, slot.length, slot.sums.len() as u64]
            });
            numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        }
        self.slots.iter().flatten().flat_map(|slot| &slot.sums).for_each(|sum| bytes.extend(sum.to_le_bytes()));
        bytes.resize(length - FOOT, 0);
        bytes.extend(MAGIC);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(word(length));
        let sum = crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// Reads the bytes that [`find_trailer`] names, of a check metablock of `metablock_len` bytes.
    ///
    /// Kind `Corrupt` if they are damaged or contradict themselves, `Unsupported` for another format or code.
    pub fn decode(bytes: &[u8], metablock_len: u64) -> Result<Self> {
        let place = find_trailer(bytes, metablock_len)?;
        if bytes.len() as u64 != place.end - place.start {
            bail!(Corrupt, "a trailer of {} bytes says that it has {}", bytes.len(), place.end - place.start);
        }
        let mut rest = Take(bytes);
        let (due, sum) = (rest.u32(), crc32c(&bytes[4..]));
        if due != sum {
            bail!(
                Corrupt,
                "the trailer of a check metablock is damaged: its bytes sum to {sum:08x}, and not to {due:08x}"
            );
        }
        let code = rest.u32();
        if code != CODE {
            bail!(
                Unsupported,
                "the check metablock is of code {code}, this program knows {CODE}: use the release that wrote it"
            );
        }
        let raid_set = RaidSetId::new(rest.u64());
        let [copies, slots, rows, row] = [(); 4].map(|()| rest.u32());
        let damaged = |what: String| ebb_types::err!(Corrupt, "a check metablock of {raid_set} says that {what}");
        let code = Code::new(slots as usize, rows as usize).map_err(|error| damaged(error.to_string()))?;
        let heads: Vec<[u64; 5]> = (0..slots).map(|_| [(); 5].map(|()| rest.u64())).collect();
        // Before anything is taken from a count, and before room is made for it.
        let count = heads.iter().try_fold(0_u64, |sum, head| sum.checked_add(head[4]));
        let is_long_enough = |count: &u64| *count <= bytes.len() as u64 / 4;
        let Some(count) =
            count.filter(is_long_enough).filter(|count| length_for(code.slots(), *count) == bytes.len() as u64)
        else {
            return Err(damaged(format!("its slots have other checksums than fit into {} bytes", bytes.len())));
        };
        let mut slots = Vec::with_capacity(heads.len());
        for [metablock, epoch, seq, length, count] in heads {
            let slot = Slot {
                metablock: MetablockId::new(metablock),
                version: Version::new(Epoch::new(epoch), seq),
                length,
                sums: (0..count).map(|_| rest.u32()).collect(),
            };
            slots.push(((metablock, epoch, seq, length, count) != (0, 0, 0, 0, 0)).then_some(slot));
        }
        let trailer = Self { raid_set, copies, code, row: row as usize, slots };
        trailer.check().map_err(damaged)?;
        let behind = HEAD + code.slots() * SLOT + 4 * usize::try_from(count).expect("counted above");
        if bytes[behind..bytes.len() - FOOT].iter().any(|byte| *byte != 0) {
            return Err(damaged("there is something behind its checksums".to_owned()));
        }
        if trailer.metablock_len() != metablock_len {
            let due = trailer.metablock_len();
            return Err(damaged(format!("it has {due} bytes, and it has {metablock_len}")));
        }
        Ok(trailer)
    }

    /// What both directions refuse; the sentence goes on after "says that".
    fn check(&self) -> std::result::Result<(), String> {
        if self.copies == 0 {
            return Err("the RAID set keeps no copy of a slot".to_owned());
        }
        if self.row >= self.code.rows() {
            return Err(format!("it is row {} of {}", self.row, self.code));
        }
        if self.slots.len() != self.code.slots() {
            return Err(format!("{} has {} slots", self.code, self.slots.len()));
        }
        if self.slots.iter().flatten().next().is_none() {
            return Err("all slots are empty".to_owned());
        }
        for (index, slot) in self.slots.iter().enumerate() {
            let Some(Slot { metablock, length, sums, .. }) = slot else { continue };
            if metablock.raw() == 0 {
                return Err(format!("slot {index} is of no metablock, and not empty"));
            }
            if self.slots[..index].iter().flatten().any(|other| other.metablock == *metablock) {
                return Err(format!("{metablock} is in two slots"));
            }
            if *length > METABLOCK_MAX {
                return Err(format!("slot {index} has {length} bytes; at most {METABLOCK_MAX} can be encoded"));
            }
            if sums.len() as u64 != sums_of(*length) {
                return Err(format!("slot {index} has {} checksums for {length} bytes", sums.len()));
            }
        }
        Ok(())
    }
}

/// Little-endian numbers off the front of a byte string that is known to be long enough.
struct Take<'a>(&'a [u8]);

impl Take<'_> {
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.next())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.next())
    }

    fn next<const N: usize>(&mut self) -> [u8; N] {
        let (front, rest) =
            self.0.split_first_chunk().expect("a trailer is at least a chunk long, and its counts fit into it");
        self.0 = rest;
        *front
    }
}

const _: () =
    assert!(HEAD + SLOTS_MAX * SLOT + FOOT <= CHUNK_SIZE as usize, "every head fits into the shortest trailer");
const _: () = assert!(METABLOCK_MAX + LENGTH_MAX <= 1 << 30, "a check metablock fits into a replica");
const _: () = assert!(ROWS_MAX < 128 && SLOTS_MAX <= 128, "the numbers of rows and of slots do not meet");
