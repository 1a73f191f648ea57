//! Copies: this volume's replica becomes equal to another node's.
//!
//! The copy is made in a file of its own and takes the replica's place when it is whole. So a crash on the way leaves
//! the old replica.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::{File, Moment, OpenMode};
use ebb_types::{CHUNK_SIZE, Epoch, Error, ErrorKind, Incarnation, MetablockId, Result, Version, bail, err};

use crate::admin::{ReplicaVersion, check_epoch, unchanged};
use crate::chunks;
use crate::crc::{crc32c, of_zeros};
use crate::files::pull_path;
use crate::flush::flush;
use crate::record::{Content, Head, REPLICA_LEN_MAX, Record, Runs};
use crate::replica::Replica;
use crate::scrub::{Pace, compare_all};
use crate::volume::{Shared, Volume};
use crate::write::{known_after, receive};

/// Bytes asked for at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Number of requests for a piece before the copy fails.
const PIECE_ATTEMPTS: u32 = 4;

/// Number of times that a copy is begun before it fails, because the source's version changed.
const COPY_ATTEMPTS: u32 = 4;

/// Pause after the first failed piece; doubled after each further one.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Result of a source's methods.
pub type PullFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Another node's replica.
pub trait PullSource: Send + Sync {
    /// Whole chunks, as [`Volume::read`] gives them.
    fn read(&self, min_version: Version, offset: u64, len: u64) -> PullFuture<'_, SourceChunks>;
    /// The next data or hole, as [`Volume::seek`] finds it.
    fn seek(&self, min_version: Version, offset: u64, hole: bool) -> PullFuture<'_, crate::Found>;
}

/// Bytes of another node's replica.
#[derive(Clone, Debug)]
pub struct SourceChunks {
    /// Of the replica.
    pub version: Version,
    /// Of the replica, in bytes.
    pub length: u64,
    /// CRC-32C of each chunk.
    pub checksums: Vec<u32>,
    /// The bytes.
    pub data: Bytes,
}

/// What to copy.
#[derive(Clone, Copy, Debug)]
pub struct Pull {
    /// Which metablock.
    pub metablock: MetablockId,
    /// The volume's, as the master has it.
    pub incarnation: Incarnation,
    /// Promised from now on.
    pub epoch: Epoch,
    /// The version that must be reached.
    pub at: Version,
    /// Also if the replica has that version, and matches its sums: it is not what was written.
    pub anew: bool,
    /// 0: no limit.
    pub rate_bytes_per_sec: u64,
}

impl Volume {
    /// Makes the replica equal to the source's, at `pull.at` or a later version, synced. Until then the old replica
    /// stays as it is, and writes are refused as `Busy`.
    pub async fn pull(&self, pull: Pull, source: &dyn PullSource) -> Result<ReplicaVersion> {
        let shared = &*self.shared;
        shared.check_open()?;
        shared.check_incarnation(pull.incarnation)?;
        known_after(shared, pull.metablock, pull_over(shared, pull, source).await).await
    }
}

async fn pull_over(shared: &Shared, pull: Pull, source: &dyn PullSource) -> Result<ReplicaVersion> {
    let replica = shared.get_or_make(pull.metablock);
    let token = shared.runtime.random_u64();
    // A reader may have found damage that nothing here has met. If the replica were taken for good, it would stay.
    if is_there(&replica, pull) {
        let rate_bytes_per_sec = pull.rate_bytes_per_sec;
        compare_all(shared, &replica, Pace { started: shared.runtime.now(), before: 0, rate_bytes_per_sec }).await?;
    }
    let Some(mark) = start_pull(shared, &replica, pull).await? else {
        let head = replica.live.lock().state.head;
        return Ok(ReplicaVersion { version: head.version, length: head.length });
    };
    let done = async {
        let path = pull_path(&shared.root, pull.metablock, token);
        let file = shared.disk.open(&path, OpenMode::CreateNew).await?;
        let copy = Copy { shared, pull, source, file, started: shared.runtime.now(), read_bytes: 0 };
        let copied = copy.run().await?;
        finish(shared, &replica, pull, token, copied).await
    };
    let done = done.await;
    if done.is_err() {
        // Best effort: the next start removes a file that stays.
        let _ = shared.disk.remove_file(&pull_path(&shared.root, pull.metablock, token)).await;
    }
    drop(mark);
    done
}

/// Marks a replica as being copied for as long as it is held.
struct Mark<'a>(&'a Replica);

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.0.live.lock().pulling = false;
    }
}

/// Whether the replica has what is to be reached. An epoch has one writer, so a later version contains every earlier one.
fn is_there(replica: &Replica, pull: Pull) -> bool {
    let live = replica.live.lock();
    let version = live.state.head.version;
    let is_reached = version >= pull.at && version.epoch == pull.at.epoch && pull.at != Version::ZERO;
    !pull.anew && live.damage.is_none() && is_reached
}

/// Marks the replica as being copied. `None`: the replica is there already.
async fn start_pull<'a>(shared: &Shared, replica: &'a std::sync::Arc<Replica>, pull: Pull) -> Result<Option<Mark<'a>>> {
    let _gate = replica.gate.lock().await;
    let head = {
        let live = replica.live.lock();
        if live.deleted || live.pulling {
            bail!(Busy, "{} is being copied or deleted already", pull.metablock);
        }
        live.state.head
    };
    check_epoch(&head, pull.epoch)?;
    if pull.epoch > head.promised || replica.live.lock().known {
        // A new life, even if the replica is there already: a deletion decided before must not hit the result of this
        // copy.
        let life = shared.runtime.random_u64().max(1);
        receive(shared, replica, unchanged(replica, Head { promised: pull.epoch, life, ..head }), None, None);
    }
    if is_there(replica, pull) {
        match flush(shared, replica).await {
            // The replica turned out to be damaged, so it is copied over. The source is not at fault.
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            flushed => return flushed.map(|_| None),
        }
    }
    replica.live.lock().pulling = true;
    Ok(Some(Mark(replica)))
}

struct Copied {
    file: File,
    version: Version,
    length: u64,
    runs: Runs,
}

struct Copy<'a> {
    shared: &'a Shared,
    pull: Pull,
    source: &'a dyn PullSource,
    file: File,
    started: Moment,
    read_bytes: u64,
}

impl Copy<'_> {
    async fn run(mut self) -> Result<Copied> {
        for _ in 0..COPY_ATTEMPTS {
            if let Some((version, length, runs)) = self.pass().await? {
                self.file.set_len(length).await?;
                return Ok(Copied { file: self.file, version, length, runs });
            }
            self.file.set_len(0).await?;
        }
        Err(err!(Busy, "the source of {} is being written: it moved on {COPY_ATTEMPTS} times", self.pull.metablock))
    }

    /// One pass over the source. `None` if its version changed on the way.
    ///
    /// A piece is read and compared while the one before it is written. More than one ahead would gain little: the slower of
    /// the two has no gaps.
    async fn pass(&mut self) -> Result<Option<(Version, u64, Runs)>> {
        let first = self.piece(0, PIECE_BYTES).await?;
        let (version, length) = (first.version, first.length);
        if length > REPLICA_LEN_MAX {
            bail!(Protocol, "the source of {} says it has {length} bytes", self.pull.metablock);
        }
        let mut runs = Runs::default();
        self.keep(0, &first, length, &mut runs).await?;
        let mut at = self.pause_after(&first).await;
        // End of the current run of data. The next run is sought when it is reached.
        let mut data_end = at;
        let mut ahead = None;
        while at < length {
            if at >= data_end {
                let Some(data) = self.seek(at, false).await?.filter(|data| *data < length) else { break };
                at = data;
                data_end = self.seek(at, true).await?.unwrap_or(length).min(length);
            }
            let piece = match ahead.take() {
                Some(piece) => piece,
                None => self.piece_of(at, data_end).await?,
            };
            if piece.version != version || piece.length != length {
                return Ok(None);
            }
            let next = at + piece.data.len() as u64;
            let read = async { if next < data_end { self.piece_of(next, data_end).await.map(Some) } else { Ok(None) } };
            let (kept, read) = tokio::join!(biased; self.keep(at, &piece, length, &mut runs), read);
            kept?;
            ahead = read?;
            at += self.pause_after(&piece).await;
        }
        Ok(Some((version, length, runs)))
    }

    /// Writes a verified piece, each stretch of it without holes at once: a large one can then go around the page cache.
    async fn keep(&self, at: u64, piece: &SourceChunks, length: u64, runs: &mut Runs) -> Result<()> {
        let size = CHUNK_SIZE as usize;
        let mut stretch = 0..0;
        for (index, (bytes, sum)) in piece.data.chunks(size).zip(&piece.checksums).enumerate() {
            let chunk = (at / CHUNK_SIZE) as usize + index;
            if *sum == of_zeros(chunks::valid(chunk, length)) && bytes.iter().all(|byte| *byte == 0) {
                self.write(at, piece, std::mem::take(&mut stretch)).await?;
                continue;
            }
            runs.data(chunk, *sum, false);
            if stretch.is_empty() {
                stretch.start = index * size;
            }
            stretch.end = index * size + bytes.len();
        }
        self.write(at, piece, stretch).await
    }

    async fn write(&self, at: u64, piece: &SourceChunks, stretch: Range<usize>) -> Result<()> {
        if stretch.is_empty() {
            return Ok(());
        }
        self.shared.space.check(stretch.len() as u64, 0).await?;
        self.file.write_at(at + stretch.start as u64, vec![piece.data.slice(stretch)]).await
    }

    /// Counts a piece, and waits as the rate demands. Returns its length.
    async fn pause_after(&mut self, piece: &SourceChunks) -> u64 {
        let len = piece.data.len() as u64;
        self.read_bytes += len;
        self.throttle().await;
        len
    }

    /// The next piece of a run of data.
    async fn piece_of(&self, at: u64, data_end: u64) -> Result<SourceChunks> {
        self.piece(at, (data_end - at).min(PIECE_BYTES).next_multiple_of(CHUNK_SIZE)).await
    }

    async fn throttle(&self) {
        if self.pull.rate_bytes_per_sec > 0 {
            let due = Duration::from_secs_f64(self.read_bytes as f64 / self.pull.rate_bytes_per_sec as f64);
            let spent = self.shared.runtime.now().since(self.started);
            self.shared.runtime.sleep(due.saturating_sub(spent)).await;
        }
    }

    async fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>> {
        let mut pause = RETRY_PAUSE;
        for _ in 1..PIECE_ATTEMPTS {
            match self.source.seek(self.pull.at, offset, hole).await {
                Err(error) if passes(&error) => self.shared.runtime.sleep(pause).await,
                found => return Ok(found?.offset),
            }
            pause *= 2;
        }
        Ok(self.source.seek(self.pull.at, offset, hole).await?.offset)
    }

    /// A piece that matches its sums.
    async fn piece(&self, offset: u64, len: u64) -> Result<SourceChunks> {
        let mut pause = RETRY_PAUSE;
        for attempt in 1.. {
            let piece = self.source.read(self.pull.at, offset, len).await;
            let error = match piece.and_then(|piece| self.verify(offset, len, piece)) {
                Ok(piece) => return Ok(piece),
                Err(error) => error,
            };
            if attempt == PIECE_ATTEMPTS || !passes(&error) {
                return Err(error);
            }
            self.shared.runtime.sleep(pause).await;
            pause *= 2;
        }
        unreachable!("the last attempt returns")
    }

    fn verify(&self, offset: u64, len: u64, piece: SourceChunks) -> Result<SourceChunks> {
        let metablock = self.pull.metablock;
        if piece.version < self.pull.at {
            bail!(StaleVersion, "the source of {metablock} is at {}, not at {}", piece.version, self.pull.at);
        }
        let expected = piece.length.saturating_sub(offset).min(len);
        let sums = piece.data.chunks(CHUNK_SIZE as usize).map(crc32c);
        if piece.data.len() as u64 != expected || piece.checksums.len() as u64 != expected.div_ceil(CHUNK_SIZE) {
            bail!(
                Protocol,
                "{} bytes and {} sums of {metablock} where {expected} bytes were asked for",
                piece.data.len(),
                piece.checksums.len()
            );
        }
        if !sums.eq(piece.checksums.iter().copied()) {
            bail!(Corrupt, "the source of {metablock} sent bytes at {offset} that do not match their checksums");
        }
        Ok(piece)
    }
}

/// Whether asking again may help.
fn passes(error: &Error) -> bool {
    use ErrorKind as K;
    matches!(error.kind(), K::Timeout | K::Disconnected | K::Unreachable | K::Overloaded | K::Busy | K::Corrupt)
}

async fn finish(
    shared: &Shared,
    replica: &std::sync::Arc<Replica>,
    pull: Pull,
    token: u64,
    copied: Copied,
) -> Result<ReplicaVersion> {
    let _gate = replica.gate.lock().await;
    let head = {
        let live = replica.live.lock();
        if live.deleted {
            bail!(Busy, "{} was deleted while it was copied", pull.metablock);
        }
        live.state.head
    };
    check_epoch(&head, pull.epoch)?;
    let (version, length) = (copied.version, copied.length);
    let after = Head { version, length, reserved: 0, damaged: false, ..head };
    // Readers may ask for `at` from now on.
    assert!(version >= pull.at, "a copy at {version}, where {} was asked for", pull.at);
    let content = Content::Replace { token };
    let record =
        Record { metablock: pull.metablock, length_before: head.length, after, runs: copied.runs.finish(), content };
    receive(shared, replica, record, Some(copied.file), None);
    flush(shared, replica).await?;
    // The file takes its place while the journal is held.
    drop(shared.journal.lock().await);
    replica.live.lock().damage = None;
    Ok(ReplicaVersion { version: copied.version, length: copied.length })
}
