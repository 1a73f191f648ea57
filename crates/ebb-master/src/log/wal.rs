//! The write-ahead log: a sequence of segments, appended in synced batches.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use ebb_log::{Appender, Names, Sync, make};
use ebb_runtime::{File, Moment, OpenMode, Runtime, SeededBug, Task};
use ebb_types::{ClusterId, Error, ErrorKind, Result, bail};
use raft::eraftpb::{ConfState, Entry, HardState};

use crate::log::OLDER;
use crate::log::hint::{Hint, Synced};
use crate::log::record::{PAYLOAD_LEN_MAX, Record, padded};
use crate::log::segment::{Position, SEGMENT_HEADER_LEN, Scan, Scanned, SegmentHeader, damage, scan};
use crate::log::tail::{confirm_records, confirm_zeros};

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct WalOptions {
    /// Bytes of a segment. Larger ones are made where a batch needs it.
    pub segment_bytes: usize,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self { segment_bytes: 16 << 20 }
    }
}

/// What is made durable together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// New term, vote or commit.
    pub hard_state: Option<HardState>,
    /// New voters.
    pub conf_state: Option<ConfState>,
    /// New entries, in order; the first may replace the end of the log.
    pub entries: Vec<Entry>,
}

/// What an existing log held.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Last term, vote and commit.
    pub hard_state: HardState,
    /// Last voters; empty in a new log.
    pub conf_state: ConfState,
    /// Entries behind the checkpoint, without gaps.
    pub entries: VecDeque<Entry>,
}

/// Which records may use the room that is left when the disk is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Only while there is plenty.
    Growth,
    /// All of it: records that free space, or end a change that was begun.
    Relief,
}

/// The next segment.
enum Spare {
    None,
    Filling(Task<Result<File>>),
    Ready(File),
    /// The disk was full. Tried again from then on.
    Failed(Error, Moment),
}

/// After a disk was full it is tried again as often.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Names of segments.
const NAMES: Names = Names { prefix: "log-", digits: 20, suffix: ".segment" };

/// An open log. One task owns it.
pub struct Wal {
    runtime: Runtime,
    dir: PathBuf,
    cluster: ClusterId,
    options: WalOptions,
    /// The end of the newest segment.
    newest: Appender,
    last_batch: u64,
    /// The newest one last.
    segments: VecDeque<Segment>,
    hard_state: HardState,
    conf_state: ConfState,
    /// The next segment, zero-filled ahead of need.
    spare: Spare,
    hint: Hint,
    /// After a failed write or sync the disk's contents are unknown: nothing more is appended.
    poisoned: Option<Error>,
}

/// A segment that exists.
#[derive(Clone, Copy, Debug)]
struct Segment {
    sequence: u64,
    /// Index of the highest entry in it; 0: it has none.
    highest: u64,
}

impl Wal {
    /// Opens the log in `dir` (begins one if there is none) and reads the entries behind `after`, the index of the
    /// checkpoint. `Corrupt` if synced bytes are damaged or missing.
    pub async fn open(
        runtime: &Runtime,
        dir: &Path,
        cluster: ClusterId,
        options: WalOptions,
        after: u64,
    ) -> Result<(Self, Recovered)> {
        remove_unfinished(runtime, dir).await?;
        // Ordering: a name is believed only after a sync of its directory, for the sync behind its rename may have failed.
        if !runtime.has_bug(SeededBug::CacheTrusted) {
            runtime.disk().sync_dir(dir).await?;
        }
        let names = NAMES.numbers(&runtime.disk(), dir).await?;
        let synced = Hint::read(runtime, dir, cluster).await?;
        let mut found = Recovered::default();
        let mut segments = VecDeque::new();
        let mut last_batch = 0;
        let mut tail = None;
        for (place, sequence) in names.iter().enumerate() {
            let path = NAMES.path(dir, *sequence);
            let file = runtime.disk().open(&path, OpenMode::Existing).await?;
            let bytes = file.read_at(0, usize::try_from(file.len().await?).expect("a segment fits in memory")).await?;
            let header = SegmentHeader::decode(&bytes, &path)?;
            check_place(
                &header,
                *sequence,
                cluster,
                place.checked_sub(1).map(|before| (names[before], last_batch)),
                &path,
            )?;
            let position = if place + 1 == names.len() { Position::Last } else { Position::Inner };
            let scanned = {
                let (bytes, path) = (bytes.clone(), path.clone());
                runtime.compute(move || scan(&bytes, &header, position, &path, after)).await?
            };
            last_batch = scanned.last_batch;
            if position == Position::Last {
                check_synced(synced, *sequence, &scanned, dir, &path)?;
            }
            let highest = replay(scanned.records, after, &mut found, &path)?;
            segments.push_back(Segment { sequence: *sequence, highest });
            // Ordering: bytes that were read are on stable storage before any of them is used.
            confirm_records(runtime, &file, &bytes, synced, *sequence, scanned.end).await?;
            if position == Position::Last {
                confirm_zeros(runtime, &file, scanned.end, bytes.len(), scanned.torn).await?;
            }
            tail = Some((file, scanned.end, bytes.len(), scanned.torn));
        }
        let newest = match tail {
            Some((file, end, size, torn)) => {
                if torn {
                    tracing::info!(file = %file.path().display(), end, "cut a write that a crash had torn");
                }
                Appender::within(file, end as u64, size as u64)
            }
            None => {
                if let Some(synced) = synced {
                    bail!(
                        Corrupt,
                        "{}: the log is gone; batch {} was synced in segment {}: {}",
                        dir.display(),
                        synced.batch,
                        synced.sequence,
                        hint_advice(dir)
                    );
                }
                let file = fill(runtime.clone(), dir.to_owned(), 1, options.segment_bytes).await?;
                segments.push_back(Segment { sequence: 1, highest: 0 });
                let header = SegmentHeader { cluster, sequence: 1, first_batch: 1 };
                activate(runtime, dir, &file, header, options.segment_bytes).await?
            }
        };
        let hint = Hint::open(runtime, dir, cluster).await?;
        let last_index = found.entries.back().map_or(after, |entry| entry.index);
        found.hard_state.commit = found.hard_state.commit.min(last_index);
        let wal = Self {
            runtime: runtime.clone(),
            dir: dir.to_owned(),
            cluster,
            options,
            newest,
            last_batch,
            segments,
            hard_state: found.hard_state.clone(),
            conf_state: found.conf_state.clone(),
            spare: Spare::None,
            hint,
            poisoned: None,
        };
        Ok((wal, found))
    }

    /// Whether a batch with entries of so many bytes in all can be appended, on a full disk too. If not, `NoSpace`, and
    /// nothing has happened.
    ///
    /// Room is made before anything is proposed: what raft has taken cannot be given back.
    pub async fn make_room(&mut self, entries: usize, bytes: usize, urgency: Urgency) -> Result<()> {
        // Each record is padded; term, vote and voters may stand before them.
        let need = bytes + entries * (padded(0) + 64) + 4 * padded(256);
        let reserve = self.options.segment_bytes / 4;
        let left = usize::try_from(self.newest.room()).expect("a segment fits in memory");
        // A filling that has begun at half a segment has come to its end long before the reserve is touched.
        self.prepare_spare(left < need + reserve).await;
        match &self.spare {
            Spare::Failed(error, _) if error.kind() == ErrorKind::NoSpace => {
                let kept = if urgency == Urgency::Growth { reserve } else { 0 };
                if left >= need + kept {
                    return Ok(());
                }
                bail!(
                    NoSpace,
                    "the master's disk is full: {error}; reading and removing go on, and all does when there is room"
                )
            }
            // There is room here or in the next segment; a batch larger than a segment gets one of its size.
            _ => Ok(()),
        }
    }

    /// Whether the disk had no room for the next segment when it was last tried.
    pub fn lacks_segment(&self) -> bool {
        matches!(self.spare, Spare::Failed(..))
    }

    /// Sees to it that the next segment is there, or on its way; with `now`, that it is there or known not to fit.
    async fn prepare_spare(&mut self, now: bool) {
        if let Spare::Failed(_, since) = &self.spare
            && self.runtime.now().since(*since) >= RETRY_AFTER
        {
            self.spare = Spare::None;
        }
        if matches!(self.spare, Spare::None) && (now || self.newest.position() > self.newest.file_bytes() / 2) {
            let next = self.segments.back().map_or(1, |newest| newest.sequence + 1);
            let fill = fill(self.runtime.clone(), self.dir.clone(), next, self.options.segment_bytes);
            self.spare = Spare::Filling(self.runtime.spawn("log-spare", fill));
        }
        if now && matches!(self.spare, Spare::Filling(_)) {
            let Spare::Filling(task) = std::mem::replace(&mut self.spare, Spare::None) else { return };
            self.spare = match task.join().await.and_then(|filled| filled) {
                Ok(file) => Spare::Ready(file),
                Err(error) => Spare::Failed(error, self.runtime.now()),
            };
        }
    }

    /// Makes a batch durable: one write and one fdatasync. An error is final.
    pub async fn append(&mut self, batch: Batch) -> Result<()> {
        if let Some(error) = &self.poisoned {
            return Err(error.clone().context("the log takes no more since an earlier failure"));
        }
        let done = self.try_append(batch).await;
        if let Err(error) = &done {
            self.poisoned = Some(error.clone());
        }
        done
    }

    async fn try_append(&mut self, batch: Batch) -> Result<()> {
        if let Some(hard_state) = &batch.hard_state {
            self.hard_state = hard_state.clone();
        }
        if let Some(conf_state) = &batch.conf_state {
            self.conf_state = conf_state.clone();
        }
        for entry in &batch.entries {
            if entry.data.len() + entry.context.len() + 32 > PAYLOAD_LEN_MAX {
                bail!(Invalid, "entry {} of {} bytes is above the log's cap", entry.index, entry.data.len());
            }
        }
        let highest = batch.entries.last().map_or(0, |entry| entry.index);
        let mut records: Vec<Record> = Vec::with_capacity(batch.entries.len() + 2);
        // Ordering: term and vote before the entries of that term.
        records.extend(batch.hard_state.map(Record::HardState));
        records.extend(batch.conf_state.map(Record::ConfState));
        records.extend(batch.entries.into_iter().map(Record::Entry));
        if records.is_empty() {
            return Ok(());
        }
        let mut data = encode(&records, self.last_batch + 1);
        if data.len() as u64 > self.newest.room() {
            // Invariant: each segment begins with the whole state beside the entries, so that older ones may go.
            records.insert(0, Record::HardState(self.hard_state.clone()));
            records.insert(1, Record::ConfState(self.conf_state.clone()));
            data = encode(&records, self.last_batch + 1);
            self.rotate(data.len()).await?;
        }
        let len = data.len() as u64;
        self.newest.append(vec![Bytes::from(data)], len, Sync::Now).await?;
        self.last_batch += 1;
        let newest = self.segments.back_mut().expect("there is always a newest segment");
        newest.highest = newest.highest.max(highest);
        self.prepare_spare(false).await;
        Ok(())
    }

    /// Writes down up to where the log is synced, if that has changed: now and then is often enough.
    pub async fn note_synced(&mut self) -> Result<()> {
        let sequence = self.segments.back().map_or(0, |newest| newest.sequence);
        self.hint.write_down(Synced { batch: self.last_batch, sequence, offset: self.newest.position() }).await
    }

    async fn rotate(&mut self, need: usize) -> Result<()> {
        let sequence = self.segments.back().expect("there is always a newest segment").sequence + 1;
        let size = self.options.segment_bytes.max(SEGMENT_HEADER_LEN + need);
        let spare = match std::mem::replace(&mut self.spare, Spare::None) {
            Spare::Filling(task) => Some(task.join().await??),
            Spare::Ready(file) => Some(file),
            Spare::None | Spare::Failed(..) => None,
        };
        let file = match spare {
            Some(file) if size == self.options.segment_bytes => file,
            _ => fill(self.runtime.clone(), self.dir.clone(), sequence, size).await?,
        };
        let header = SegmentHeader { cluster: self.cluster, sequence, first_batch: self.last_batch + 1 };
        self.newest = activate(&self.runtime, &self.dir, &file, header, size).await?;
        self.segments.push_back(Segment { sequence, highest: 0 });
        assert!(self.newest.room() >= need as u64, "segment {sequence} was made for a batch of {need} bytes");
        Ok(())
    }

    /// Removes segments that hold nothing behind `index`.
    pub async fn compact(&mut self, index: u64) -> Result<()> {
        let mut removed = false;
        while self.segments.len() > 1 && self.segments[0].highest <= index {
            let sequence = self.segments[0].sequence;
            // Ordering: oldest first, so that a crash leaves a log without gaps.
            self.runtime.disk().remove_file(&NAMES.path(&self.dir, sequence)).await?;
            self.segments.pop_front();
            removed = true;
        }
        if removed { self.runtime.disk().sync_dir(&self.dir).await } else { Ok(()) }
    }

    /// How many segments there are.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        if let Spare::Filling(task) = &self.spare {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Wal({}, batch {})", self.dir.display(), self.last_batch)
    }
}

fn encode(records: &[Record], batch: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (place, record) in records.iter().enumerate() {
        record.encode(batch, place + 1 == records.len(), &mut out);
    }
    out
}

/// Takes a segment's records over; returns the highest entry index in it.
pub(super) fn replay(records: Vec<Scanned>, after: u64, found: &mut Recovered, path: &Path) -> Result<u64> {
    let mut highest = 0;
    for record in records {
        match record {
            Scanned::Passed(index) => {
                highest = highest.max(index);
                found.entries.clear();
            }
            Scanned::Record(Record::HardState(state)) => found.hard_state = state,
            Scanned::Record(Record::ConfState(state)) => found.conf_state = state,
            Scanned::Record(Record::Entry(entry)) => {
                highest = highest.max(entry.index);
                while found.entries.back().is_some_and(|last| last.index >= entry.index) {
                    found.entries.pop_back();
                }
                let expected = found.entries.back().map_or(after, |last| last.index) + 1;
                if entry.index != expected {
                    bail!(
                        Corrupt,
                        "{}: the log goes on with entry {} where {expected} is due behind checkpoint {after}: a segment or \
                         the checkpoint that it belongs to is missing; restore the data directory from the newest saved copy; {OLDER}",
                        path.display(),
                        entry.index
                    );
                }
                found.entries.push_back(entry);
            }
        }
    }
    Ok(highest)
}

/// Refuses a log that ends before its known synced end.
fn check_synced(synced: Option<Synced>, sequence: u64, scanned: &Scan, dir: &Path, path: &Path) -> Result<()> {
    let Some(synced) = synced.filter(|synced| synced.batch > scanned.last_batch) else { return Ok(()) };
    let reason = format!(
        "the log ends with batch {} here, but batch {} was synced, up to offset {} of segment {}{}",
        scanned.last_batch,
        synced.batch,
        synced.offset,
        synced.sequence,
        if synced.sequence > sequence { ", which is missing" } else { "" }
    );
    Err(damage(path, scanned.end, &reason).context(hint_advice(dir)))
}

fn hint_advice(dir: &Path) -> String {
    format!(
        "if this directory is a copy that was made while its master ran, remove {} and start again",
        Hint::path(dir).display()
    )
}

fn check_place(
    header: &SegmentHeader,
    sequence: u64,
    cluster: ClusterId,
    before: Option<(u64, u64)>,
    path: &Path,
) -> Result<()> {
    let path = path.display();
    if header.cluster != cluster {
        bail!(Invalid, "{path}: belongs to cluster {}, this is {cluster}", header.cluster);
    }
    if header.sequence != sequence {
        bail!(Corrupt, "{path}: says that it is segment {}; its name was changed: rename it back", header.sequence);
    }
    if let Some((previous, last_batch)) = before {
        if previous + 1 != sequence {
            bail!(
                Corrupt,
                "{path}: segment {} before it is missing; restore the data directory from the newest saved copy; {OLDER}",
                sequence - 1
            );
        }
        if header.first_batch != last_batch + 1 {
            bail!(
                Corrupt,
                "{path}: begins with batch {}, but segment {previous} ends with batch {last_batch}: synced records are lost; \
                 restore the data directory from the newest saved copy; {OLDER}",
                header.first_batch
            );
        }
    }
    Ok(())
}

/// A name that no other task uses: a filling task that outlives its log must not touch a later log's file.
fn unfinished_path(runtime: &Runtime, dir: &Path, sequence: u64) -> PathBuf {
    dir.join(format!("log-{sequence:020}-{:016x}.unfinished", runtime.random_u64()))
}

async fn remove_unfinished(runtime: &Runtime, dir: &Path) -> Result<()> {
    for name in runtime.disk().read_dir(dir).await? {
        if name.starts_with("log-") && name.ends_with(".unfinished") {
            runtime.disk().remove_file(&dir.join(name)).await?;
        }
    }
    Ok(())
}

/// A zero-filled, synced file that no log uses yet. One that finds no room is removed again.
async fn fill(runtime: Runtime, dir: PathBuf, sequence: u64, size: usize) -> Result<File> {
    let path = unfinished_path(&runtime, &dir, sequence);
    let filled = fill_file(&runtime, &path, size).await;
    if filled.is_err() {
        // What fails here is removed at the next start.
        let _ = runtime.disk().remove_file(&path).await;
    }
    filled
}

async fn fill_file(runtime: &Runtime, path: &Path, size: usize) -> Result<File> {
    // What certainly does not fit is not tried: it would take the last bytes from all others for a moment.
    let free = runtime.disk().space(path.parent().unwrap_or(path)).await?.free_bytes;
    if free < size as u64 {
        bail!(NoSpace, "{}: a segment of {size} bytes does not fit in {free} free ones", path.display());
    }
    let file = runtime.disk().open(path, OpenMode::CreateNew).await?;
    make::fill(&file, size as u64).await?;
    Ok(file)
}

/// Gives a filled file of `size` bytes its header and its name.
async fn activate(runtime: &Runtime, dir: &Path, file: &File, header: SegmentHeader, size: usize) -> Result<Appender> {
    file.write_at(0, vec![Bytes::copy_from_slice(&header.encode())]).await?;
    // Ordering: a file with a segment's name has a durable header.
    file.sync_data().await?;
    let path = NAMES.path(dir, header.sequence);
    let file = make::publish(&runtime.disk(), file.path(), &path).await?;
    Ok(Appender::within(file, SEGMENT_HEADER_LEN as u64, size as u64))
}
