//! Scrubbing: every chunk is read and compared with its sum.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{CHUNK_SIZE, ErrorKind, MetablockId, Result};

use crate::files::replica_path;
use crate::read::read_verified;
use crate::replica::Replica;
use crate::volume::{Shared, Volume};

/// Bytes read at once.
const STEP_CHUNKS: usize = (1 << 20) / CHUNK_SIZE as usize;

/// Result of a scrub.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubOutcome {
    /// Replicas looked at.
    pub replicas: u64,
    /// Bytes read.
    pub bytes: u64,
    /// All damaged replicas, old and new.
    pub corrupt: Vec<MetablockId>,
}

impl Volume {
    /// Reads all replicas at this rate (0: as fast as it goes). Damaged ones are not served from then on.
    pub async fn scrub(&self, rate_bytes_per_sec: u64) -> Result<ScrubOutcome> {
        self.scrub_from(MetablockId::default(), rate_bytes_per_sec).await
    }

    /// As [`Volume::scrub`], but from the replica `first` on, and then from the start up to it. If each round begins
    /// elsewhere, unfinished rounds still reach every replica.
    pub async fn scrub_from(&self, first: MetablockId, rate_bytes_per_sec: u64) -> Result<ScrubOutcome> {
        let ids: Vec<MetablockId> = {
            let replicas = self.shared.replicas.read();
            replicas.range(first..).chain(replicas.range(..first)).map(|(id, _)| *id).collect()
        };
        self.scrub_these(&ids, rate_bytes_per_sec).await
    }

    /// As [`Volume::scrub`], but only these replicas. Ids without a replica here are passed over.
    pub async fn scrub_these(&self, ids: &[MetablockId], rate_bytes_per_sec: u64) -> Result<ScrubOutcome> {
        let shared = &*self.shared;
        let started = shared.runtime.now();
        let mut outcome = ScrubOutcome::default();
        for metablock in ids.iter().copied() {
            shared.check_open()?;
            let Some(replica) = shared.get(metablock).filter(|replica| replica.live.lock().exists()) else { continue };
            outcome.replicas += 1;
            outcome.bytes +=
                compare_all(shared, &replica, Pace { started, before: outcome.bytes, rate_bytes_per_sec }).await?;
            if replica.live.lock().damage.is_some() {
                outcome.corrupt.push(metablock);
            }
        }
        Ok(outcome)
    }
}

/// Rate of reads, counted since the first of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) started: Moment,
    /// Bytes that were read since, before this replica.
    pub(crate) before: u64,
    /// 0: no limit.
    pub(crate) rate_bytes_per_sec: u64,
}

/// Reads a replica and compares it with its sums. It is marked as damaged if it is. Returns the number of bytes read.
pub(crate) async fn compare_all(shared: &Shared, replica: &Replica, pace: Pace) -> Result<u64> {
    check_name(shared, replica).await?;
    let (mut at, mut read) = (0, 0);
    while let Some(end) = next_step(replica, at) {
        match read_verified(shared, replica, at..end).await {
            Ok(bytes) => {
                read += bytes.len() as u64;
                shared.scrubbed.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => break,
            Err(error) => return Err(error),
        }
        at = end;
        if pace.rate_bytes_per_sec > 0 {
            let due = Duration::from_secs_f64((pace.before + read) as f64 / pace.rate_bytes_per_sec as f64);
            shared.runtime.sleep(due.saturating_sub(shared.runtime.now().since(pace.started))).await;
        }
    }
    Ok(read)
}

/// Number of chunks to read next. `None` at the end, or if the replica is being deleted or replaced.
fn next_step(replica: &Replica, at: usize) -> Option<usize> {
    let live = replica.live.lock();
    let end = live.state.chunks.len().min(at + STEP_CHUNKS);
    let steady = live.exists() && live.damage.is_none() && live.overlay.merged().replaced_by().is_none();
    (steady && at < end).then_some(end)
}

async fn check_name(shared: &Shared, replica: &Replica) -> Result<()> {
    let _content = replica.content.read().await;
    check_name_in(shared, replica).await
}

/// Marks the replica as damaged if its file has lost its name, which an open file does not show. The caller holds the
/// replica's content.
pub(crate) async fn check_name_in(shared: &Shared, replica: &Replica) -> Result<()> {
    let made = replica.live.lock().file_made;
    if made && !shared.disk.exists(&replica_path(&shared.root, replica.id)).await? {
        shared.mark_damaged(replica, "its file is missing".into());
    }
    Ok(())
}
