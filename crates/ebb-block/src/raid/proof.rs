//! The proof that rows are the code of their slots: by what their nodes serve, before anything counts on them.
//!
//! - Every trailer says what was encoded, with the sums of the slots' writers.
//! - Row 0 is compared whole. Its sums follow from those of the slots.
//! - Of each other row a chunk of every slot is decoded, with the slot left out. The chunks are drawn by lot, so that a fault in
//!   one place of every row is found in the end.

use std::sync::Arc;

use ebb_code::{Part, Present, Trailer};
use ebb_types::{CHUNK_SIZE, Result, bail};
use ebb_wire::frame::crc32c;
use futures_util::future::try_join_all;

use super::PIECE_BYTES;
use super::encode::Job;
use super::ends::Source;
use crate::node::Node;

/// S-3. Kind `Corrupt` if what the rows' nodes serve is not the code of the slots.
pub(super) async fn prove(node: &Arc<Node>, job: &Job, trailer: &Trailer) -> Result<()> {
    let rows: Vec<Source> =
        job.rows.iter().map(|row| row.written(job.outline.raid_set, trailer.metablock_len())).collect();
    for (row, source) in rows.iter().enumerate() {
        let found = source.read_range(node, trailer.row_len(), trailer.metablock_len()).await?;
        if Trailer::decode(&found, trailer.metablock_len())? != (Trailer { row, ..trailer.clone() }) {
            bail!(Corrupt, "{}: row {row} says that it is the code of something else", job.outline.raid_set);
        }
    }
    prove_row_zero(node, job, &rows[0], trailer).await?;
    for (row, source) in rows.iter().enumerate().skip(1) {
        for slot in 0..job.slots.len() {
            prove_slot(node, job, source, (row, slot), trailer).await?;
        }
    }
    Ok(())
}

async fn prove_row_zero(node: &Arc<Node>, job: &Job, row: &Source, trailer: &Trailer) -> Result<()> {
    let mut at = 0;
    while at < trailer.row_len() {
        let piece = row.read(node, at, PIECE_BYTES.min(trailer.row_len() - at)).await?;
        for (chunk, sum) in (at / CHUNK_SIZE..).zip(&piece.sums) {
            if *sum != trailer.sum_of_row_zero(chunk)? {
                bail!(Corrupt, "{}: chunk {chunk} of row 0 is not the sum of its slots", job.outline.raid_set);
            }
        }
        at += piece.data.len() as u64;
    }
    Ok(())
}

/// Decodes one chunk of `slot` by `row` alone.
async fn prove_slot(
    node: &Arc<Node>,
    job: &Job,
    row: &Source,
    (index, slot): (usize, usize),
    trailer: &Trailer,
) -> Result<()> {
    let sums = trailer.slots[slot].as_ref().map_or(&[][..], |slot| &slot.sums);
    let chunk = node.runtime.random_u64() % sums.len() as u64;
    let at = chunk * CHUNK_SIZE;
    let reaches = |slot: &usize| job.slots.get(*slot).is_some_and(|source| source.length() > at);
    let parts = (0..job.slots.len()).filter(|other| *other != slot).map(Part::Slot).chain([Part::Row(index)]).collect();
    let zeros = (0..job.outline.code.slots()).filter(|slot| !reaches(slot)).collect();
    let plan = job.outline.code.plan_decode(&Present { parts, zeros }, &[Part::Slot(slot)])?;
    let source_of = |part: Part| match part {
        Part::Slot(slot) => &job.slots[slot],
        Part::Row(_) => row,
    };
    let reads = plan.sources().iter().map(|source| source_of(source.part).read(node, at, CHUNK_SIZE));
    let pieces = try_join_all(reads).await?;
    let length = CHUNK_SIZE.min(job.slots[slot].length() - at);
    let mut decoded = vec![0; length as usize];
    let sources: Vec<&[u8]> = pieces.iter().map(|piece| &piece.data[..]).collect();
    plan.decode(&sources, &mut [&mut decoded])?;
    if crc32c(&decoded) != sums[chunk as usize] {
        bail!(
            Corrupt,
            "{}: row {index} does not decode to chunk {chunk} of {}",
            job.outline.raid_set,
            job.slots[slot].metablock()
        );
    }
    Ok(())
}
