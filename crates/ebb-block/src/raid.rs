//! Parts of RAID sets, for the master: [`encode`] makes the rows of a new one, [`rebuild`] a slot or row that is lost, and
//! [`verify`] compares rows with slots.
//!
//! They read the other parts where they lie ([`ends`]), here or on other nodes, and compare every byte with the checksum that its
//! writer made.

pub(crate) mod encode;
mod ends;
mod parts;
mod proof;
pub(crate) mod rebuild;
pub(crate) mod verify;

use bytes::BytesMut;
use ebb_code::{Code, Slot, Trailer};
use ebb_runtime::transfer_buffer;
use ebb_types::{CHUNK_SIZE, MetablockId, RaidCode, RaidSetId, Result, Version, bail, err};
use ebb_wire::{convert, pb};

use ends::Source;

/// Bytes of each part that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// What a message says of a RAID set as a whole.
#[derive(Clone, Copy, Debug)]
struct Outline {
    raid_set: RaidSetId,
    copies: u32,
    code: Code,
}

impl Outline {
    /// Errors: `Invalid` if the message has more or fewer parts than its code.
    fn new(raid_set: u64, code: Option<pb::RaidCode>, slots: usize, rows: usize) -> Result<Self> {
        let raid_set = RaidSetId::new(raid_set);
        let code = RaidCode::from(code.unwrap_or_default());
        if let Err(sentence) = code.check() {
            bail!(Invalid, "{raid_set}: {sentence}");
        }
        if raid_set.raw() == 0 || slots == 0 || slots > code.slots as usize || rows != code.rows as usize {
            bail!(Invalid, "{raid_set}: {slots} slots and {rows} rows are no RAID set of {code}");
        }
        let copies = code.copies;
        Ok(Self { raid_set, copies, code: Code::new(code.slots as usize, code.rows as usize)? })
    }

    /// The trailer of row 0, by the sums of each slot.
    fn trailer(&self, slots: &[Source], sums: Vec<Vec<u32>>) -> Trailer {
        let slot = |(source, sums): (&Source, Vec<u32>)| Slot {
            metablock: source.metablock(),
            version: source.version(),
            length: source.length(),
            sums,
        };
        let mut slots: Vec<Option<Slot>> = slots.iter().zip(sums).map(slot).map(Some).collect();
        slots.resize(self.code.slots(), None);
        Trailer { raid_set: self.raid_set, copies: self.copies, code: self.code, row: 0, slots }
    }
}

/// Bytes of a row of these slots, without its trailer.
fn row_len(slots: &[Source]) -> u64 {
    slots.iter().map(Source::length).max().unwrap_or(0).next_multiple_of(CHUNK_SIZE)
}

/// A piece to be decoded or encoded into. It lies as a disk wants it, so that it is written there without a copy.
fn zeroed(length: u64) -> BytesMut {
    let length = usize::try_from(length).expect("a piece fits into memory");
    let mut piece = transfer_buffer(length);
    piece.resize(length, 0);
    piece
}

/// The metablock of a message, which is never 0.
fn required_metablock(raw: u64) -> Result<MetablockId> {
    if raw == 0 { Err(err!(Protocol, "a part of a RAID set without a metablock")) } else { Ok(MetablockId::new(raw)) }
}

/// A version of a message, which is never (0,0).
fn required_version(version: Option<pb::Version>) -> Result<Version> {
    let version = convert::version(version);
    if version == Version::ZERO {
        bail!(Protocol, "a part of a RAID set that was never written");
    }
    Ok(version)
}
