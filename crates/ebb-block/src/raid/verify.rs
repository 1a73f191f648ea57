//! Compares the rows of a RAID set with what its slots give, all bytes of all rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_code::{Part, Trailer, listed};
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
        let pieces = read_slots(node, &slots, at, PIECE_BYTES).await?;
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
    let expected = outline.trailer(&slots, sums);
    let mut others = BTreeSet::new();
    for (row, (source, fault)) in rows.iter().zip(&mut faults).enumerate() {
        let said = compare_trailer(node, source, &Trailer { row, ..expected.clone() }).await?;
        if fault.is_empty() {
            *fault = said.fault;
        }
        others.extend(said.others);
    }
    blame(node, &slots, &rows, &faults, &others);
    Ok(pb::VerifySetReply { faults })
}

/// Reports the parts that are to be made again, though their checksums are right.
fn blame(node: &Arc<Node>, slots: &[Source], rows: &[Source], faults: &[String], others: &BTreeSet<usize>) {
    if others.is_empty() {
        // All slots are what was encoded, by every trailer: the rows are wrong.
        for (row, fault) in rows.iter().zip(faults).filter(|(_, fault)| !fault.is_empty()) {
            row.condemn(node, fault);
        }
    }
    for slot in others {
        // It is replaced by nothing but bytes that the trailer vouches for.
        slots[*slot].condemn(node, "it is not what was encoded, by a row's trailer");
    }
}

/// What a row's trailer tells.
#[derive(Default)]
struct Said {
    /// Empty if it is right.
    fault: String,
    /// Slots that were encoded with other checksums than they have.
    others: Vec<usize>,
}

async fn compare_trailer(node: &Arc<Node>, row: &Source, expected: &Trailer) -> Result<Said> {
    let wrong = |fault: String| Said { fault, others: Vec::new() };
    if row.length() != expected.metablock_len() {
        return Ok(wrong(format!("it has {} bytes, not {}", row.length(), expected.metablock_len())));
    }
    Ok(match row.read_trailer(node, expected.row_len()).await {
        Ok(found) if found == *expected => Said::default(),
        Ok(found) => match with_other_sums(&found, expected) {
            others if others.is_empty() => wrong("its trailer is about something else".to_owned()),
            others => {
                let slots = listed(&others.iter().copied().map(Part::Slot).collect::<Vec<_>>());
                Said { fault: format!("by its trailer {slots} had other bytes when it was encoded"), others }
            }
        },
        Err(error) if error.kind() == ErrorKind::Corrupt => wrong(format!("its trailer cannot be used: {error}")),
        Err(error) => return Err(error),
    })
}

/// Slots of which a trailer of the same RAID set has other checksums. None if it differs by more.
fn with_other_sums(found: &Trailer, expected: &Trailer) -> Vec<usize> {
    let sums = |trailer: &Trailer, slot: usize| trailer.slots.get(slot).cloned().flatten().map(|slot| slot.sums);
    let others: Vec<usize> =
        (0..expected.slots.len()).filter(|slot| sums(found, *slot) != sums(expected, *slot)).collect();
    let mut like = found.clone();
    for slot in &others {
        if let (Some(Some(found)), Some(expected)) = (like.slots.get_mut(*slot), sums(expected, *slot)) {
            found.sums = expected;
        }
    }
    if like == *expected { others } else { Vec::new() }
}
