//! Makes the check metablocks of a RAID set, for the master.
//!
//! ```text
//!  ranges of all slots ──► compared with their sums ──► rows ──► written at their nodes     (the next ranges are read meanwhile)
//!                          └─► sums ──► trailer ──► written and synced ──► proof: read back and decoded ──► answer
//! ```
//! Until a Seal names them, the rows are metablocks that nobody knows. So an attempt that ends half-way leaves strays, which are
//! deleted like any others.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ebb_code::{Code, Trailer};
use ebb_runtime::{Moment, SeededBug};
use ebb_types::{Result, bail};
use ebb_wire::{Method, pb};
use futures_util::future::{join_all, try_join_all};

use super::ends::{Piece, Source, Target};
use super::{Outline, PIECE_BYTES, proof, row_len, zeroed};
use crate::node::Node;

/// With more requests in progress than these, encoding pauses.
const LOAD_MAX: u32 = 4;
/// Bytes of each slot that are read at once at a rate. Programs beside it wait for a core or a disk while a piece is made.
const RATED_PIECE_BYTES: u64 = 256 << 10;
/// A pause, and the number of them before a piece. After these the piece is made in any case.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSES_MAX: u32 = 50;

/// An `EncodeSet` that was checked.
pub(super) struct Job {
    pub(super) outline: Outline,
    pub(super) slots: Vec<Source>,
    pub(super) rows: Vec<Target>,
    rate_bytes_per_sec: u64,
}

impl Job {
    fn new(message: pb::EncodeSet) -> Result<Self> {
        let outline = Outline::new(message.raid_set, message.code, message.slots.len(), message.rows.len())?;
        let raid_set = outline.raid_set;
        if let Some(lost) = message.slots.iter().find(|slot| slot.sources.is_empty()) {
            bail!(Invalid, "{raid_set}: m{} has no members", lost.metablock);
        }
        Ok(Self {
            outline,
            slots: message.slots.into_iter().map(|slot| Source::slot(raid_set, slot)).collect::<Result<_>>()?,
            rows: message.rows.into_iter().map(Target::new).collect::<Result<_>>()?,
            rate_bytes_per_sec: message.rate_bytes_per_sec,
        })
    }
}

/// Answers `EncodeSet`. When it returns, the rows are synced and proved.
///
/// Errors: `Busy` if another one is made here; `Unavailable` if the node is about to sleep; `StaleVersion` if a slot has moved on;
/// `Corrupt` if no source of a slot matches its sums, or if what was written does not decode to what was read.
pub(crate) async fn encode_set(node: &Arc<Node>, message: pb::EncodeSet) -> Result<pb::EncodeSetReply> {
    let Ok(_one_at_a_time) = node.encoding.try_lock() else {
        bail!(Busy, "{} makes another RAID set", node.title());
    };
    let mut job = Job::new(message)?;
    let sums = write_rows(node, &mut job).await?;
    let trailer = job.outline.trailer(&job.slots, sums);
    write_trailers(node, &mut job, &trailer).await?;
    if !node.runtime.has_bug(SeededBug::WrongRow) {
        proof::prove(node, &job, &trailer).await?;
    }
    tracing::debug!(raid_set = %job.outline.raid_set, code = %job.outline.code, bytes = trailer.row_len(), "encoded");
    let length = trailer.metablock_len();
    let rows = job.rows.iter().map(|row| pb::EncodedRow { version: Some(row.version().into()), length }).collect();
    Ok(pb::EncodeSetReply { rows })
}

/// Reads all slots and writes all rows, piece by piece. Returns the sums of each slot.
async fn write_rows(node: &Arc<Node>, job: &mut Job) -> Result<Vec<Vec<u32>>> {
    let row_len = row_len(&job.slots);
    let Job { outline, slots, rows, rate_bytes_per_sec, .. } = job;
    let mut sums = vec![Vec::new(); slots.len()];
    let started = node.runtime.now();
    let (mut at, mut read_bytes) = (0, 0);
    let piece_bytes = if *rate_bytes_per_sec > 0 { RATED_PIECE_BYTES } else { PIECE_BYTES };
    let mut pieces = read_slots(node, slots, 0, piece_bytes).await?;
    while at < row_len {
        let length = piece_bytes.min(row_len - at);
        for (known, piece) in sums.iter_mut().zip(&pieces) {
            known.extend_from_slice(&piece.sums);
            read_bytes += piece.data.len() as u64;
        }
        let mut made = make_rows(outline.code, &pieces, length)?;
        if node.runtime.has_bug(SeededBug::WrongRow) {
            made.last_mut().into_iter().for_each(|row| *row = vec![7; row.len()].into());
        }
        let next = at + length;
        let write = write_all(node, rows, at, made, false);
        let read_ahead =
            async { if next < row_len { read_slots(node, slots, next, piece_bytes).await } else { Ok(Vec::new()) } };
        let (written, read) = tokio::join!(write, read_ahead);
        written?;
        pieces = read?;
        at = next;
        throttle(node, started, read_bytes, *rate_bytes_per_sec).await;
        give_way(node).await?;
    }
    Ok(sums)
}

/// The range of every slot; nothing of one that ends before it.
pub(super) async fn read_slots(node: &Arc<Node>, slots: &[Source], at: u64, length: u64) -> Result<Vec<Piece>> {
    try_join_all(slots.iter().map(|slot| slot.read(node, at, length))).await
}

pub(super) fn make_rows(code: Code, pieces: &[Piece], length: u64) -> Result<Vec<Bytes>> {
    let mut rows: Vec<BytesMut> = (0..code.rows()).map(|_| zeroed(length)).collect();
    let mut sources: Vec<&[u8]> = pieces.iter().map(|piece| &piece.data[..]).collect();
    sources.resize(code.slots(), &[]);
    code.encode(&sources, &mut rows.iter_mut().map(|row| &mut row[..]).collect::<Vec<_>>())?;
    Ok(rows.into_iter().map(BytesMut::freeze).collect())
}

/// Writes a piece of each row, all at once. All have ended when it returns: one that was broken off on this node's own volume could
/// leave a file that no index names, and whose space nobody gives back.
async fn write_all(node: &Arc<Node>, rows: &mut [Target], at: u64, made: Vec<Bytes>, sync: bool) -> Result<()> {
    let writes = rows.iter_mut().zip(made).map(|(row, bytes)| row.write(node, at, bytes, sync));
    join_all(writes).await.into_iter().collect()
}

/// Each row ends with a trailer that names the row. The last write syncs all before it.
async fn write_trailers(node: &Arc<Node>, job: &mut Job, trailer: &Trailer) -> Result<()> {
    let of_row = |row| Trailer { row, ..trailer.clone() }.encode().map(Bytes::from);
    let encoded: Vec<Bytes> = (0..job.rows.len()).map(of_row).collect::<Result<_>>()?;
    let (start, length) = (trailer.row_len(), trailer.trailer_len());
    assert!(
        encoded.iter().all(|bytes| bytes.len() as u64 == length),
        "trailers of one RAID set differ by their row alone"
    );
    let mut at = 0;
    while at < length {
        let end = length.min(at + PIECE_BYTES);
        let part = |bytes: &Bytes| bytes.slice(at as usize..end as usize);
        write_all(node, &mut job.rows, start + at, encoded.iter().map(part).collect(), end == length).await?;
        at = end;
    }
    Ok(())
}

pub(super) async fn throttle(node: &Node, started: Moment, bytes: u64, rate_bytes_per_sec: u64) {
    if rate_bytes_per_sec > 0 {
        let due = Duration::from_secs_f64(bytes as f64 / rate_bytes_per_sec as f64);
        node.runtime.sleep(due.saturating_sub(node.runtime.now().since(started))).await;
    }
}

/// Waits a moment where the node has other work, and ends where it is about to sleep.
async fn give_way(node: &Node) -> Result<()> {
    for _ in 0..PAUSES_MAX {
        node.check_awake(Method::EncodeSet)?;
        if node.load() <= LOAD_MAX {
            break;
        }
        node.runtime.sleep(PAUSE).await;
    }
    node.check_awake(Method::EncodeSet)
}
