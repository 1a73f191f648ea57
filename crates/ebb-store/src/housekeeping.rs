//! Housekeeping: space kept ahead of growth is given back when a file rests; data that found no space is tried again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_types::Result;
use tokio::sync::Semaphore;

use crate::admin::unchanged;
use crate::checkpoint::retry_stuck;
use crate::compress;
use crate::flush::{flush_these, open};
use crate::record::Head;
use crate::replica::Replica;
use crate::volume::Shared;
use crate::write::receive;

/// A file rests when nothing was written to it for so long.
const REST_AFTER: Duration = Duration::from_secs(2);

const ROUND: Duration = Duration::from_secs(1);

/// Rounds between two looks for what is to be compressed.
const COMPRESSION_ROUNDS: u64 = 10;

/// The task: housekeeping once a round.
pub(crate) async fn run(shared: Arc<Shared>) {
    // One at a time.
    let compression = Arc::new(Semaphore::new(1));
    for round in 1_u64.. {
        shared.runtime.sleep(ROUND).await;
        if shared.check_sound().is_err() {
            continue;
        }
        shared.tombstones.lock().expire(shared.runtime.now());
        report(&shared, rest_journal(&shared).await);
        let resting: Vec<Arc<Replica>> = {
            let now = shared.runtime.now();
            let grown: Vec<_> = shared.grown.lock().iter().copied().collect();
            let rests = |replica: &Arc<Replica>| now.since(replica.live.lock().last_write) >= REST_AFTER;
            grown.into_iter().filter_map(|metablock| shared.get(metablock)).filter(rests).collect()
        };
        // An administrator may ask for it at any time.
        if round.is_multiple_of(COMPRESSION_ROUNDS)
            && let Ok(Some(method)) = shared.file_system.compression().await
            && let Ok(place) = compression.clone().try_acquire_owned()
        {
            let (shared, runtime) = (shared.clone(), shared.runtime.clone());
            runtime.spawn("volume-compress", async move {
                let _place = place;
                compress::round(shared, method).await;
            });
        }
        report(&shared, mark_damaged(&shared).await);
        for replica in resting {
            report(&shared, give_back(&shared, &replica).await);
        }
        if !shared.unsynced.lock().stuck.is_empty() {
            let _journal = shared.journal.lock().await;
            report(&shared, retry_stuck(&shared).await);
        }
    }
}

/// Seals the journal, and gives its spare segments back, once nothing was appended for a round.
async fn rest_journal(shared: &Shared) -> Result<()> {
    let mut journal = shared.journal.lock().await;
    let lsn = journal.lsn();
    let before = shared.last_lsn.swap(lsn, Ordering::Relaxed);
    assert!(before <= lsn, "the journal goes back from batch {before} to {lsn}");
    if before != lsn {
        return Ok(());
    }
    if !journal.is_sealed() {
        shared.syncs.fetch_add(1, Ordering::Relaxed);
        journal.seal().await.map_err(|error| shared.poison(&error, "append to the journal"))?;
        shared.last_lsn.store(journal.lsn(), Ordering::Relaxed);
    }
    journal.rest().await
}

/// Makes the marks of damaged replicas durable, so that the next start does not take them for sound.
pub(crate) async fn mark_damaged(shared: &Shared) -> Result<()> {
    let unmarked = std::mem::take(&mut *shared.unmarked.lock());
    let replicas: Vec<Arc<Replica>> = unmarked.into_iter().filter_map(|metablock| shared.get(metablock)).collect();
    for replica in &replicas {
        let _gate = replica.gate.lock().await;
        let head = {
            let live = replica.live.lock();
            // A copy may have taken its place in the meantime.
            let wanted = live.exists() && live.damage.is_some() && !live.state.head.damaged;
            wanted.then_some(live.state.head)
        };
        if let Some(head) = head {
            receive(shared, replica, unchanged(replica, Head { damaged: true, ..head }), None, None);
        }
    }
    let done = flush_these(shared, replicas.iter()).await;
    if done.is_err() {
        shared.unmarked.lock().extend(replicas.iter().map(|replica| replica.id));
    }
    done
}

/// Gives back all space kept ahead of growth.
pub(crate) async fn give_back_all(shared: &Shared) {
    let grown: Vec<_> = shared.grown.lock().iter().copied().collect();
    for replica in grown.into_iter().filter_map(|metablock| shared.get(metablock)) {
        report(shared, give_back(shared, &replica).await);
    }
}

async fn give_back(shared: &Shared, replica: &Arc<Replica>) -> Result<()> {
    let _gate = replica.gate.lock().await;
    let _content = replica.content.write().await;
    let kept = {
        let live = replica.live.lock();
        let waiting = !live.overlay.is_empty();
        if waiting {
            return Ok(());
        }
        // A file with space that a writer reserved is left alone: that space is not distinguished from space kept
        // ahead.
        let wanted = live.exists() && live.grown_to > 0 && live.state.head.reserved == 0;
        wanted.then(|| (live.state.head.length, live.grown_to, live.state.chunks.has_second()))
    };
    shared.grown.lock().remove(&replica.id);
    if let Some((length, grown_to, has_second)) = kept {
        let file = open(shared, replica).await?;
        match has_second {
            true => file.punch_hole(length, grown_to.saturating_sub(length)).await?,
            false => file.set_len(length).await?,
        }
        replica.live.lock().grown_to = 0;
    }
    Ok(())
}

fn report(shared: &Shared, done: Result<()>) {
    if let Err(error) = done {
        tracing::warn!(volume = %shared.root.display(), %error, "housekeeping failed");
    }
}
