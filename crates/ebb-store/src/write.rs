//! Writes: order, fencing, and the first place of the bytes. See "Write" in `docs/protocol.md`.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_runtime::{File, SeededBug};
use ebb_types::{CHUNK_SIZE, Epoch, ErrorKind, Incarnation, MetablockId, Result, Version, bail};
use tokio::sync::OwnedSemaphorePermit;

use crate::admin::check_epoch;
use crate::chunks::{Extent, LONG, SECOND, places};
use crate::files::{GROWTH_MIN, GROWTH_RUN};
use crate::flush::{flush, open, remove};
use crate::plan::{Change, OldChunks, Way};
use crate::read::read_verified;
use crate::record::{Head, Record};
use crate::replica::{Live, Replica};
use crate::volume::{Shared, Volume};

/// How long a write waits for memory before it is refused: less than clients wait for an answer (4 s), or they would take a
/// node that is busy for one that is frozen.
const MEMORY_WAIT: Duration = Duration::from_secs(3);
/// Interval at which the waiting write checks whether the disk is full.
const MEMORY_LOOK: Duration = Duration::from_millis(200);

/// One versioned write.
#[derive(Clone, Debug)]
pub struct Write {
    /// The metablock to write to.
    pub metablock: MetablockId,
    /// The volume's, as the master has it.
    pub incarnation: Incarnation,
    /// The replica's version afterwards.
    pub version: Version,
    /// The version that this write follows.
    pub predecessor: Version,
    /// The change that it makes.
    pub change: Change,
    /// The epoch by which the writer may write. It is the version's, or, if a recovery repeats writes that an earlier
    /// holder had logged, the recovery's.
    pub authority: Epoch,
}

/// The versions up to which a replica is received and synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// In memory.
    pub received: Version,
    /// On stable storage.
    pub synced: Version,
}

impl Volume {
    /// Receives a write; with `sync`, returns when it and all before it are on stable storage.
    ///
    /// Errors: `StaleEpoch` below the promised epoch, `Gap` if the writes before it did not come in time, `Busy` while
    /// a copy is being made, `NoSpace` before anything is kept, `Corrupt` for bytes that do not match their sums or a
    /// damaged replica, `NoReplica` for another incarnation, `VolumePoisoned`.
    pub async fn write(&self, write: &Write, sync: bool) -> Result<Progress> {
        let shared = &*self.shared;
        shared.check_open()?;
        shared.check_incarnation(write.incarnation)?;
        write.change.check()?;
        if write.version <= write.predecessor || write.version.seq == 0 {
            bail!(Protocol, "a write with version {} after {}", write.version, write.predecessor);
        }
        let replica = known_after(shared, write.metablock, receive_in_order(shared, write).await).await?;
        if sync {
            flush(shared, &replica).await?;
        }
        Ok(progress(&replica))
    }

    /// Checks a change that is to be written later: its bytes must match their sums, and `epoch` must not be fenced
    /// here. Keeps nothing of it.
    ///
    /// Errors: `StaleEpoch`, `Corrupt`, `NoReplica`, `VolumePoisoned`, as [`Volume::write`].
    pub fn check_ahead(
        &self,
        metablock: MetablockId,
        incarnation: Incarnation,
        epoch: Epoch,
        change: &Change,
    ) -> Result<()> {
        self.shared.check_open()?;
        self.shared.check_incarnation(incarnation)?;
        change.check()?;
        let Some(replica) = self.shared.get(metablock) else { return Ok(()) };
        let live = replica.live.lock();
        live.check_sound(metablock)?;
        check_epoch(&live.state.head, epoch)
    }

    /// Whether a replica has received a version of an epoch that may still write here.
    ///
    /// Errors: as [`Volume::write`].
    pub fn has_received(&self, metablock: MetablockId, incarnation: Incarnation, version: Version) -> Result<bool> {
        self.shared.check_open()?;
        self.shared.check_incarnation(incarnation)?;
        let Some(replica) = self.shared.get(metablock) else { return Ok(false) };
        let live = replica.live.lock();
        live.check_sound(metablock)?;
        check_epoch(&live.state.head, version.epoch)?;
        Ok(!live.deleted && live.state.head.version >= version)
    }

    /// The progress of a replica; (0,0) if this volume does not have it.
    #[must_use]
    pub fn progress(&self, metablock: MetablockId) -> Progress {
        self.shared.get(metablock).map(|replica| progress(&replica)).unwrap_or_default()
    }

    /// Returns when the replica is synced up to `version`, waiting a bounded time for it to be received.
    ///
    /// Errors: `StaleEpoch` below the promised epoch. A recovery may have stamped this replica above a write that it
    /// never saw, and a holder that lost its lease must not take that for its own write's sync (`SyncIgnoresEpoch` in
    /// the protocol model).
    pub async fn sync(&self, metablock: MetablockId, incarnation: Incarnation, version: Version) -> Result<Version> {
        known_after(&self.shared, metablock, self.sync_in_order(metablock, incarnation, version).await).await
    }

    async fn sync_in_order(
        &self,
        metablock: MetablockId,
        incarnation: Incarnation,
        version: Version,
    ) -> Result<Version> {
        let shared = &*self.shared;
        shared.check_incarnation(incarnation)?;
        if version == Version::ZERO && shared.get(metablock).is_none() {
            return Ok(Version::ZERO);
        }
        let deadline = shared.runtime.now().after(shared.options.gap_wait);
        loop {
            let replica = shared.get_or_make(metablock);
            let mut advanced = pin!(replica.advanced.notified());
            advanced.as_mut().enable();
            let (received, deleted) = {
                let live = replica.live.lock();
                live.check_sound(metablock)?;
                let head = live.state.head;
                if version != Version::ZERO && version.epoch < head.promised {
                    bail!(
                        StaleEpoch,
                        "epoch {} is over, {} was promised: the lease is lost",
                        version.epoch,
                        head.promised
                    );
                }
                (head.version, live.deleted)
            };
            if received >= version && !deleted {
                flush(shared, &replica).await?;
                return Ok(progress(&replica).synced);
            }
            let left = deadline.since(shared.runtime.now());
            if left.is_zero() {
                bail!(Gap, "{metablock} was received up to {received}, not to {version}");
            }
            // A replica that is being deleted notifies when it is gone. The loop then waits for the next one.
            either(advanced, shared.runtime.sleep(left)).await;
        }
    }
}

/// Waits for the first of the two.
async fn either(news: impl Future<Output = ()>, time: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = news => {}
        () = time => {}
    }
}

pub(crate) fn progress(replica: &Replica) -> Progress {
    let live = replica.live.lock();
    Progress { received: live.state.head.version, synced: live.synced }
}

/// The place of a write in the replica's order, decided from the replica's state alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// The write was received before.
    Done,
    /// The write is next.
    Next,
    /// Other writes have to come first.
    Wait,
}

fn order(head: &Head, authority: Epoch, version: Version, predecessor: Version) -> Result<Order> {
    if authority < head.promised {
        bail!(StaleEpoch, "epoch {authority} is over, {} was promised: the lease is lost", head.promised);
    }
    if version <= head.version {
        return Ok(Order::Done);
    }
    if predecessor > head.version {
        return Ok(Order::Wait);
    }
    if predecessor < head.version {
        bail!(
            Gap,
            "{version} follows {predecessor}, but {} was received: the writer does not know of it",
            head.version
        );
    }
    Ok(Order::Next)
}

fn order_here(shared: &Shared, head: &Head, write: &Write) -> Result<Order> {
    let authority = write.version.epoch.max(write.authority);
    if authority < head.promised && shared.runtime.has_bug(SeededBug::EpochIgnored) {
        return Ok(Order::Next);
    }
    order(head, authority, write.version, write.predecessor)
}

async fn receive_in_order(shared: &Shared, write: &Write) -> Result<Arc<Replica>> {
    let deadline = shared.runtime.now().after(shared.options.gap_wait);
    loop {
        // A failed deletion leaves its replica in the list, and the volume poisoned.
        shared.check_sound()?;
        let replica = shared.get_or_make(write.metablock);
        let gate = replica.gate.lock().await;
        let next = {
            let live = replica.live.lock();
            if live.deleted {
                None
            } else {
                live.check_sound(replica.id)?;
                if live.pulling {
                    bail!(Busy, "{} is being copied to this node", replica.id);
                }
                Some((order_here(shared, &live.state.head, write)?, live.state.head.version))
            }
        };
        let Some((order, received)) = next else {
            drop(gate);
            // The file and then the replica are removed while the journal is held.
            drop(shared.journal.lock().await);
            continue;
        };
        match order {
            Order::Done => {}
            Order::Next => apply(shared, &replica, write).await?,
            Order::Wait => {
                let mut advanced = pin!(replica.advanced.notified());
                // Ordering: registered before others may advance it.
                advanced.as_mut().enable();
                drop(gate);
                let left = deadline.since(shared.runtime.now());
                if left.is_zero() {
                    bail!(Gap, "{}: {} never came, {received} was received", write.metablock, write.predecessor);
                }
                either(advanced, shared.runtime.sleep(left)).await;
                continue;
            }
        }
        drop(gate);
        return Ok(replica);
    }
}

/// Returns the result of a request. If the request was refused, a replica that it alone had made is removed with its
/// file. The file may have been made before the disk was found full, and no later request might name it.
pub(crate) async fn known_after<T>(shared: &Shared, metablock: MetablockId, done: Result<T>) -> Result<T> {
    if done.is_err()
        && let Some(replica) = shared.get(metablock)
        && !replica.live.lock().known
    {
        forget_unknown(shared, &replica).await;
    }
    done
}

async fn forget_unknown(shared: &Shared, replica: &Arc<Replica>) {
    let _gate = replica.gate.lock().await;
    {
        let mut live = replica.live.lock();
        if live.known || live.pulling || live.deleted {
            return;
        }
        live.deleted = true;
    }
    if let Err(error) = remove(shared, replica, 0).await {
        shared.poison(&error, "removal of a file that nothing was written to");
    }
}

/// Applies a write that is next. The gate is held.
async fn apply(shared: &Shared, replica: &Arc<Replica>, write: &Write) -> Result<()> {
    let change = &write.change;
    if is_long(shared, change) && replica.live.lock().is_being_placed() {
        // Synced records will be in place in a moment. Waiting for that is cheaper than writing the bytes twice.
        drop(shared.journal.lock().await);
    }
    let (needed, way, overwrites) = {
        let live = replica.live.lock();
        let overwrites = change.range().0 < live.state.head.length;
        (change.chunks_needed(&live.state), way(shared, &live, change), overwrites)
    };
    let mut old = OldChunks::new();
    for chunk in needed {
        old.insert(chunk, read_verified(shared, replica, chunk..chunk + 1).await?);
    }
    let (way, (sync_first, permit)) = match bring(shared, replica, change, way).await {
        // There is no room for old and new bytes together, so the new ones go through the journal and overwrite the old
        // ones.
        Err(error) if error.kind() == ErrorKind::NoSpace && way == Way::NewSpace && overwrites => {
            (Way::Journal, bring(shared, replica, change, Way::Journal).await?)
        }
        brought => (way, brought?),
    };
    let record = change.record(replica.id, write.version, &replica.live.lock().state, &old, way)?;
    receive(shared, replica, record, sync_first, permit);
    Ok(())
}

/// Whether it is worth a sync of the file to keep the bytes out of the journal.
fn is_long(shared: &Shared, change: &Change) -> bool {
    matches!(change, Change::Data { bytes, .. } if bytes.len() as u64 > shared.options.journaled_bytes_max)
}

/// Makes sure of room for a change, and takes its bytes to the file or into memory.
async fn bring(
    shared: &Shared,
    replica: &Replica,
    change: &Change,
    way: Way,
) -> Result<(Option<File>, Option<OwnedSemaphorePermit>)> {
    let new_bytes = new_bytes(change, &replica.live.lock().state, way);
    if new_bytes > 0 {
        shared.space.check(new_bytes, shared.unplaced_bytes()).await?;
    }
    Ok(match change {
        Change::Data { offset, bytes, .. } if way != Way::Journal => {
            (Some(write_direct(shared, replica, *offset, bytes, way).await?), None)
        }
        Change::Data { bytes, .. } => (None, Some(take_memory(shared, bytes.len()).await?)),
        _ => (None, None),
    })
}

fn way(shared: &Shared, live: &Live, change: &Change) -> Way {
    let Change::Data { offset, bytes, .. } = change else { return Way::Journal };
    let len = bytes.len() as u64;
    if is_long(shared, change) && live.takes_direct(*offset, len) {
        return Way::NewSpace;
    }
    match shared.runtime.has_bug(SeededBug::TornOverwrite) && live.overlay.is_empty() {
        true => Way::InPlace,
        false => Way::Journal,
    }
}

/// Receives a record and notifies its waiters. The gate is held.
pub(crate) fn receive(
    shared: &Shared,
    replica: &Arc<Replica>,
    record: Record,
    sync_first: Option<File>,
    permit: Option<OwnedSemaphorePermit>,
) {
    let (before, after) = {
        let mut live = replica.live.lock();
        assert_eq!(record.metablock, replica.id, "a record goes to another replica");
        let before = live.state.chunks.data_bytes();
        live.receive(record, sync_first, permit);
        live.last_write = shared.runtime.now();
        (before, live.state.chunks.data_bytes())
    };
    shared.space.stored_changed(before, after);
    shared.queue.add(replica);
    replica.advanced.notify_waiters();
}

/// Upper bound of the bytes by which the file may grow.
fn new_bytes(change: &Change, state: &crate::state::ReplicaState, way: Way) -> u64 {
    let (offset, len) = change.range();
    match change {
        // Overwritten bytes stay until the journal has the new place.
        Change::Data { .. } if way == Way::NewSpace => len.next_multiple_of(CHUNK_SIZE),
        Change::Data { .. } => {
            crate::record::chunks_of(offset, len)
                .filter(|chunk| {
                    let end = (*chunk as u64 + 1) * CHUNK_SIZE;
                    !state.chunks.is_data(*chunk) || state.head.length < end.min(offset + len)
                })
                .count() as u64
                * CHUNK_SIZE
        }
        Change::Zero { .. } | Change::Allocate { .. } => len,
        Change::Truncate { .. } | Change::Punch { .. } => 0,
    }
}

/// Memory for bytes that wait for the journal and for their place.
async fn take_memory(shared: &Shared, len: usize) -> Result<OwnedSemaphorePermit> {
    let permits = u32::try_from(len.min(shared.options.unplaced_bytes_max)).expect("at most a payload");
    if let Ok(permit) = shared.unplaced.clone().try_acquire_many_owned(permits) {
        return Ok(permit);
    }
    let _starving = shared.queue.starve();
    shared.queue.want_all();
    let mut permit = pin!(shared.unplaced.clone().acquire_many_owned(permits));
    let until = shared.runtime.now().after(MEMORY_WAIT);
    loop {
        // Records that were on their way at the start of the wait may have found no room in the meantime.
        check_not_stuck(shared, permits as usize)?;
        let left = until.since(shared.runtime.now());
        if left.is_zero() {
            bail!(Overloaded, "{} has reached its limit of unsynced bytes", shared.root.display());
        }
        tokio::select! {
            biased;
            Ok(permit) = &mut permit => return Ok(permit),
            () = shared.runtime.sleep(left.min(MEMORY_LOOK)) => {}
        }
    }
}

/// Fails with `NoSpace` if `len` more bytes cannot fit before there is room on the disk, because synced bytes without
/// room take the memory. Waiting for that would leave the caller without an answer, and it would take this node for
/// frozen.
fn check_not_stuck(shared: &Shared, len: usize) -> Result<()> {
    let stuck: Vec<_> = shared.unsynced.lock().stuck.iter().copied().collect();
    let of = |metablock| shared.get(metablock).map_or(0, |replica| replica.live.lock().overlay.data_bytes());
    let held: usize = stuck.iter().map(|metablock| of(*metablock)).sum();
    if held > 0 && held + len > shared.options.unplaced_bytes_max {
        let (root, count) = (shared.root.display(), stuck.len());
        bail!(NoSpace, "{root}: {held} synced bytes of {count} metablocks wait for room on the disk: make room there");
    }
    Ok(())
}

/// Writes bytes to the file at places that hold nothing needed: beyond the replica's end, and free places of chunks.
async fn write_direct(shared: &Shared, replica: &Replica, offset: u64, bytes: &bytes::Bytes, way: Way) -> Result<File> {
    let file = match open(shared, replica).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(shared.mark_damaged(replica, "its file is missing".into()));
        }
        file => file?,
    };
    let len = bytes.len() as u64;
    let (places, length, has_second) = {
        let live = replica.live.lock();
        let chunks = &live.state.chunks;
        let moves = |chunk| way == Way::NewSpace && chunks.is_data(chunk);
        let places = places(offset, len, |chunk| chunks.is_second(chunk) != moves(chunk));
        (places, live.state.head.length, chunks.has_second())
    };
    if offset >= length {
        grow_ahead(shared, replica, &file, offset, offset + len).await;
    }
    let written = async {
        if places.iter().any(|place| place.at >= SECOND) && file.len().await? < LONG {
            file.set_len(LONG).await?;
        }
        let placed: u64 = places.iter().map(|place| place.len).sum();
        assert_eq!(placed, len, "every byte of a direct write has one place");
        for Extent { offset: from, at, len } in &places {
            let from = (from - offset) as usize;
            file.write_at(*at, vec![bytes.slice(from..from + *len as usize)]).await?;
        }
        Ok(())
    };
    let written: Result<()> = written.await;
    match written {
        Ok(()) => Ok(file),
        Err(error) if error.kind() == ErrorKind::NoSpace => {
            // Bytes that were written before space ran out must not appear when the replica grows later.
            let undone = async {
                for place in &places {
                    file.punch_hole(place.at, place.len).await?;
                }
                // A file with second places stays long.
                if has_second { Ok(()) } else { file.set_len(length).await }
            };
            match undone.await {
                Ok(()) => Err(error),
                Err(cut) => Err(shared.poison(&cut, "cut after a failed write")),
            }
        }
        Err(error) => Err(shared.poison(&error, "write to a replica")),
    }
}

/// Reserves space in long runs for a file that grows, so that it lies in one piece.
async fn grow_ahead(shared: &Shared, replica: &Replica, file: &File, from: u64, end: u64) {
    let start = {
        let live = replica.live.lock();
        if end <= GROWTH_MIN || end <= live.grown_to || live.state.head.reserved >= end {
            return;
        }
        from.max(live.grown_to)
    };
    let stop = end.next_multiple_of(GROWTH_RUN);
    // The allocation is a hint: if it fails, the write itself finds out whether there is space.
    if file.allocate(start, stop - start).await.is_ok() {
        replica.live.lock().grown_to = stop;
        shared.grown.lock().insert(replica.id);
    }
}

/// Counts a writer that waits for memory, for as long as it is held.
pub(crate) struct Starving<'a>(pub(crate) &'a std::sync::atomic::AtomicUsize);

impl Drop for Starving<'_> {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more writers stop waiting for memory than began to");
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::Epoch;

    use super::*;

    #[test]
    fn order_follows_predecessors_and_promises() {
        let version = |epoch, seq| Version::new(Epoch::new(epoch), seq);
        let head = Head { version: version(3, 5), promised: Epoch::new(3), ..Head::default() };
        let order = |head: &Head, version: Version, predecessor| order(head, version.epoch, version, predecessor);
        assert_eq!(order(&head, version(3, 6), version(3, 5)).unwrap(), Order::Next);
        assert_eq!(order(&head, version(4, 1), version(3, 5)).unwrap(), Order::Next);
        assert_eq!(order(&head, version(3, 5), version(3, 4)).unwrap(), Order::Done);
        assert_eq!(order(&head, version(3, 8), version(3, 7)).unwrap(), Order::Wait);
        assert_eq!(order(&head, version(2, 9), version(2, 8)).unwrap_err().kind(), ErrorKind::StaleEpoch);
        assert_eq!(order(&head, version(3, 9), version(3, 4)).unwrap_err().kind(), ErrorKind::Gap);
        // A recovery repeats writes that the holder before it had logged.
        let promised = Head { version: version(2, 5), promised: Epoch::new(3), ..Head::default() };
        assert_eq!(order(&promised, version(2, 6), version(2, 5)).unwrap_err().kind(), ErrorKind::StaleEpoch);
        assert_eq!(super::order(&promised, Epoch::new(3), version(2, 6), version(2, 5)).unwrap(), Order::Next);
        assert_eq!(order(&Head::default(), version(1, 1), Version::ZERO).unwrap(), Order::Next);
    }
}
