//! Compares the rows of a RAID set with what its slots give, all bytes of all rows.

use std::sync::Arc;

use ebb_code::Trailer;
use ebb_types::{ErrorKind, Result, bail};
use ebb_wire::pb;
use futures_util::future::join_all;

use super::encode::{make_rows, read_slots, throttle};
use super::ends::Source;
use super::{Outline, PIECE_BYTES, row_len};
use crate::node::Node;

/// Answers `VerifySet`: by row, what is wrong with it.
///
/// Errors: `Invalid` if a part has no members; those of a read if a slot or row cannot be had now, which says nothing of it.
pub(crate) async fn verify_set(node: &Arc<Node>, message: pb::VerifySet) -> Result<pb::VerifySetReply> {
    let outline = Outline::new(message.raid_set, message.code, message.slots.len(), message.rows.len())?;
    let raid_set = outline.raid_set;
    let slots: Vec<Source> =
        message.slots.into_iter().map(|slot| Source::slot(raid_set, slot)).collect::<Result<_>>()?;
    let rows: Vec<Source> = message.rows.into_iter().map(|row| Source::row(raid_set, row)).collect::<Result<_>>()?;
    if let Some(lost) = slots.iter().chain(&rows).find(|source| !source.has_members()) {
        bail!(Invalid, "{raid_set}: {} has no members", lost.metablock());
    }
    let row_len = row_len(&slots);
    let mut sums = vec![Vec::new(); slots.len()];
    let mut faults = vec![String::new(); rows.len()];
    let started = node.runtime.now();
    let (mut at, mut read_bytes) = (0, 0);
    while at < row_len {
        let pieces = read_slots(node, &slots, at).await?;
        let length = PIECE_BYTES.min(row_len - at);
        for (known, piece) in sums.iter_mut().zip(&pieces) {
            known.extend_from_slice(&piece.sums);
            read_bytes += piece.data.len() as u64;
        }
        let made = make_rows(outline.code, &pieces, length)?;
        let found = join_all(rows.iter().map(|row| row.read(node, at, length))).await;
        for ((fault, made), found) in faults.iter_mut().zip(&made).zip(found) {
            let said = match found {
                Ok(found) => made
                    .iter()
                    .zip(&found.data)
                    .position(|(made, found)| made != found)
                    .map(|wrong| format!("from byte {} on it is not what the slots give", at + wrong as u64)),
                // It says nothing of what was written. A member with other bytes is made again.
                Err(error) if error.kind() == ErrorKind::Corrupt => Some(format!("it is damaged: {error}")),
                Err(error) => return Err(error),
            };
            if let Some(said) = said.filter(|_| fault.is_empty()) {
                *fault = said;
            }
        }
        at += length;
        throttle(node, started, read_bytes, message.rate_bytes_per_sec).await;
    }
    let trailer = outline.trailer(&slots, sums);
    for (number, (row, fault)) in rows.iter().zip(&mut faults).enumerate().filter(|(_, (_, fault))| fault.is_empty()) {
        *fault = trailer_fault(node, row, &Trailer { row: number, ..trailer.clone() }).await?;
    }
    Ok(pb::VerifySetReply { faults })
}

async fn trailer_fault(node: &Arc<Node>, row: &Source, expected: &Trailer) -> Result<String> {
    if row.length() != expected.metablock_len() {
        return Ok(format!("it has {} bytes, not {}", row.length(), expected.metablock_len()));
    }
    let found = row.read_range(node, expected.row_len(), expected.metablock_len()).await;
    let same = found.and_then(|found| Ok(Trailer::decode(&found, expected.metablock_len())? == *expected));
    match same {
        Ok(true) => Ok(String::new()),
        Ok(false) => Ok("its trailer is about something else".to_owned()),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(format!("its trailer cannot be used: {error}")),
        Err(error) => Err(error),
    }
}
