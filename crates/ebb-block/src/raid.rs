//! Parts of RAID sets, for the master: [`encode`] makes the rows of a new one, [`rebuild`] a slot or row that is lost.
//!
//! Both read the other parts where they lie ([`ends`]), here or on other nodes, and compare every byte with the checksum that its
//! writer made.

pub(crate) mod encode;
mod ends;
mod proof;
pub(crate) mod rebuild;

use ebb_types::{MetablockId, Result, Version, bail, err};
use ebb_wire::{convert, pb};

/// Bytes of each part that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

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
