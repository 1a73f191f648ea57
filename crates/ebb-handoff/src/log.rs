//! A log on a disk: two files at most, the newest written to its end.
//!
//! The book in memory is changed first, in the order of the queue; then the queue is written. So the book may be ahead
//! of the disk. Every answer waits until the records that it rests on are durable.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use ebb_log::{Appender, GroupCommit, Lead, Sequence, Sync, make};
use ebb_runtime::{Disk, OpenMode, Runtime, SeededBug};
use ebb_types::{Epoch, ErrorKind, InodeId, MetablockId, Result, bail};
use ebb_wire::{convert, pb};
use parking_lot::{Mutex, MutexGuard};
use pb::handoff_record::Record;
use tokio::sync::Notify;

use crate::book::{Book, Logged};
use crate::found::{Doubt, Found, NAMES, apply_append, apply_cuts, find};
use crate::record::{self, Entry, Past};

/// Bytes of one answer to a read.
const PAGE_BYTES: usize = 4 << 20;
/// A new segment is begun when the present one is longer than this, and longer than twice the book's bytes.
const SEGMENT_LEAST_BYTES: u64 = 4 << 20;
/// How long a write waits for the one before it. Both were sent at the same time.
const GAP_WAIT: Duration = Duration::from_secs(1);
/// A batch takes no further record once it has so many bytes of payload.
const BATCH_BYTES: usize = 8 << 20;

/// The handoff log of a node. One for each process.
#[derive(Debug)]
pub struct HandoffLog {
    /// Skipped: records are confirmed before they are synced, a seeded bug.
    sync: Sync,
    runtime: Runtime,
    disk: Disk,
    dir: PathBuf,
    bytes_max: usize,
    state: Mutex<State>,
    /// Held by the caller that leads a commit. Locked before `state`.
    writer: tokio::sync::Mutex<Writer>,
    group: GroupCommit,
    /// Writes have come: others may wait for them.
    appended: Notify,
}

#[derive(Debug, Default)]
struct State {
    book: Book,
    doubt: Option<Doubt>,
    /// Records that are in the book and not on the disk, with their places.
    queue: VecDeque<(Sequence, Entry)>,
    /// The next commit begins a segment, even if the queue is empty.
    wants_segment: bool,
}

#[derive(Debug, Default)]
struct Writer {
    /// Number of the newest segment.
    segment: u64,
    /// Its end. `None`: it may hold unconfirmed records, and the next commit begins another segment.
    appender: Option<Appender>,
}

/// The bytes that a commit writes, and the place of the last record in them.
enum Work {
    /// A segment with everything that the book holds.
    Segment(Sequence, Vec<Bytes>),
    /// Records behind the last ones.
    Batch(Sequence, Vec<Entry>),
}

impl HandoffLog {
    /// Opens the log of a directory, or begins one. It holds at most `bytes_max` bytes. `is_expected`: there was a log
    /// here before, so a missing one was lost.
    pub async fn open(runtime: &Runtime, dir: &Path, bytes_max: usize, is_expected: bool) -> Result<Self> {
        let disk = runtime.disk();
        disk.create_dir_all(dir).await?;
        let Found { book, doubt, newest } = find(&disk, dir, is_expected).await?;
        match &doubt {
            Some(doubt) if doubt.is_certain => tracing::error!(%doubt, "the handoff log is damaged"),
            Some(doubt) => tracing::warn!(%doubt, "the handoff log may be damaged"),
            None => {}
        }
        let log = Self {
            sync: if runtime.has_bug(SeededBug::StandinUnsynced) { Sync::Skipped } else { Sync::Now },
            runtime: runtime.clone(),
            disk,
            dir: dir.to_owned(),
            bytes_max,
            state: Mutex::new(State { book, doubt, ..State::default() }),
            writer: tokio::sync::Mutex::new(Writer { segment: newest, appender: None }),
            group: GroupCommit::default(),
            appended: Notify::new(),
        };
        if newest == 0 {
            // Ordering: there is a log before anything can be lost from it.
            log.commit_segment().await?;
        }
        Ok(log)
    }

    /// The reason to believe that logged writes are missing. `None`: the log is whole. A doubt stays, through restarts,
    /// until [`trust`](Self::trust).
    pub fn doubt(&self) -> Option<Doubt> {
        self.state.lock().doubt.clone()
    }

    /// Makes the log count as whole from now on, because no missing write is needed any more.
    pub async fn trust(&self) -> Result<()> {
        self.state.lock().doubt = None;
        self.commit_segment().await
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.state.lock().book.bytes()
    }

    /// Files with writes, their epoch, and the last version of each metablock.
    pub fn marks(&self) -> Vec<pb::LoggedFile> {
        self.state.lock().book.marks().collect()
    }

    /// Limit of the bytes that it holds.
    pub const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Logs writes; returns when they are synced. `StaleEpoch`: the lease is over; `Overloaded`: it is full; `Gap`: the
    /// write before one of them has not come.
    pub async fn append(&self, message: pb::LogWrites, payload: Bytes) -> Result<()> {
        self.append_if(message, payload, |_| Ok(())).await
    }

    /// Logs writes if `admit` lets them in. It gets the bytes of the writes that are not here yet, by metablock.
    pub async fn append_if(
        &self,
        mut message: pb::LogWrites,
        payload: Bytes,
        admit: impl FnOnce(&BTreeMap<MetablockId, u64>) -> Result<()> + Send,
    ) -> Result<()> {
        // A reader of the log has no use for these.
        message.lacks.clear();
        message.pass_on = false;
        let bases = std::mem::take(&mut message.bases);
        let (inode, epoch) = (InodeId::new(message.inode), Epoch::new(message.epoch));
        if message.writes.iter().any(|write| write.staged.is_some()) {
            bail!(Protocol, "a write of {inode} is to be logged by a name, and its bytes are not here");
        }
        let writes = record::split(message.writes.clone(), &payload)?;
        if let Some(write) = writes.iter().find(|write| write.version().epoch != epoch) {
            bail!(Protocol, "a write of epoch {} logged under epoch {epoch} of {inode}", write.version().epoch);
        }
        let place = {
            let mut state = self.behind_others(inode, epoch, &bases, &writes).await?;
            state.book.check(inode, epoch)?;
            let held = state.book.bytes();
            if !writes.is_empty() && held + payload.len() > self.bytes_max {
                bail!(
                    Overloaded,
                    "the handoff log holds {held} bytes, and its limit is {}: nodes that sleep must take them first",
                    self.bytes_max
                );
            }
            admit(&state.book.news(inode, writes.iter()))?;
            apply_append(&mut state.book, inode, epoch, &message.cuts, writes);
            self.queue(&mut state, Record::Append(message), payload)
        };
        self.appended.notify_waiters();
        self.group.commit(place, self).await
    }

    /// The state, once it has every write that must be there before these.
    ///
    /// I-119: nothing that is logged stands behind a gap. Of calls that overtake each other, the later one waits.
    async fn behind_others(
        &self,
        inode: InodeId,
        epoch: Epoch,
        bases: &[pb::LogCut],
        writes: &[Logged],
    ) -> Result<MutexGuard<'_, State>> {
        let end = self.runtime.now().after(GAP_WAIT);
        loop {
            let appended = self.appended.notified();
            let version = {
                let state = self.state.lock();
                match state.book.gap(inode, epoch, bases, writes) {
                    None => return Ok(state),
                    Some(version) => version,
                }
            };
            let left = end.since(self.runtime.now());
            let before = async {
                appended.await;
                Ok(())
            };
            if self.runtime.timeout(left, "the write before", before).await.is_err() {
                bail!(Gap, "the write before {version} of {inode} has not come");
            }
        }
    }

    /// The first writes of a metablock after one version and up to another, for a member that missed them. They need not
    /// be synced: the holder vouches for them.
    pub fn between(&self, message: &pb::ReadLogged) -> (pb::ReadLogReply, Vec<Bytes>) {
        let range = (convert::version(message.after), convert::version(message.upto));
        let state = self.state.lock();
        let bytes = usize::try_from(message.page_bytes).unwrap_or(usize::MAX).min(PAGE_BYTES);
        page(
            state.book.between(InodeId::new(message.inode), MetablockId::new(message.metablock), range).cloned(),
            bytes,
        )
    }

    /// Promises durably to refuse writes of the file below `epoch`. Returns all logged writes of the file, by metablock
    /// and version.
    pub async fn promise(&self, inode: InodeId, epoch: Epoch) -> Result<Vec<Logged>> {
        let (place, logged) = {
            let mut state = self.state.lock();
            state.book.apply_promise(inode, epoch);
            let logged = state.book.writes(inode).cloned().collect();
            (self.queue(&mut state, promise_of(inode, epoch), Bytes::new()), logged)
        };
        // Ordering: the writes and the promise are durable before the reader gets them. All of these writes were queued
        // before the promise.
        self.group.commit(place, self).await?;
        Ok(logged)
    }

    /// Answers `ReadLog`: makes the promise, then returns the logged writes.
    pub async fn read(&self, message: &pb::ReadLog) -> Result<(pb::ReadLogReply, Vec<Bytes>)> {
        let logged = self.promise(InodeId::new(message.inode), Epoch::new(message.epoch)).await?;
        let after = (message.after_metablock, convert::version(message.after_version));
        let is_behind = |logged: &Logged| (logged.metablock().raw(), logged.version()) > after;
        Ok(page(logged.into_iter().filter(is_behind), PAGE_BYTES))
    }

    /// Removes the writes up to these versions. Writes that were logged since stay.
    pub async fn cut(&self, over: pb::LoggedFile) -> Result<()> {
        let place = {
            let mut state = self.state.lock();
            apply_cuts(&mut state.book, InodeId::new(over.inode), &over.last);
            self.queue(&mut state, Record::Cut(over), Bytes::new())
        };
        self.group.commit(place, self).await
    }

    /// Queues a record that is already in the book.
    fn queue(&self, state: &mut State, record: Record, payload: Bytes) -> Sequence {
        let place = self.group.join();
        assert!(state.queue.back().is_none_or(|(last, _)| *last < place), "the queue has the order of places");
        state.queue.push_back((place, (record, payload)));
        place
    }

    /// Begins a segment with all contents of the book.
    async fn commit_segment(&self) -> Result<()> {
        let place = {
            let mut state = self.state.lock();
            state.wants_segment = true;
            self.group.join()
        };
        self.group.commit(place, self).await
    }

    /// The work of the next commit.
    fn next_work(&self, writer: &Writer) -> Work {
        let mut state = self.state.lock();
        let long = SEGMENT_LEAST_BYTES.max(state.book.bytes() as u64 * 2);
        let goes_on = |appender: &Appender| appender.is_sound() && appender.position() <= long;
        if state.wants_segment || !writer.appender.as_ref().is_some_and(goes_on) {
            state.wants_segment = false;
            // The book has everything that is queued. If a queued append of an earlier epoch were written again, it
            // would come after the writes of the later epoch that replaced it.
            state.queue.clear();
            return Work::Segment(self.group.joined(), contents(&state.book));
        }
        let (mut upto, mut entries, mut bytes) = (Sequence::default(), Vec::new(), 0);
        while bytes < BATCH_BYTES
            && let Some((place, entry)) = state.queue.pop_front()
        {
            bytes += entry.1.len();
            upto = place;
            entries.push(entry);
        }
        Work::Batch(upto, entries)
    }

    async fn write_batch(&self, writer: &mut Writer, entries: Vec<Entry>) -> Result<()> {
        let (batch, len) = record::encode_batch(entries);
        let appender = writer.appender.as_mut().expect("a batch is chosen for a segment that goes on");
        appender.append(batch, len, self.sync).await
    }

    /// Begins a segment with `contents`, then removes the others.
    async fn start_segment(&self, writer: &mut Writer, contents: Vec<Bytes>) -> Result<()> {
        // Cancel-safety: dropped half-way, the next commit begins a segment again.
        writer.appender = None;
        let segment = writer.segment + 1;
        let path = NAMES.path(&self.dir, segment);
        let temporary = path.with_extension("new");
        let head = record::head(segment, Past::of(self.doubt().as_ref()));
        let bytes: Vec<Bytes> = std::iter::once(head).chain(contents).collect();
        let length = bytes.iter().map(|part| part.len() as u64).sum();
        let file = self.disk.open(&temporary, OpenMode::Create).await?;
        file.set_len(0).await?;
        file.write_at(0, bytes).await?;
        // Ordering: contents before the name, the name before the older segments go.
        file.sync_data().await?;
        let file = make::publish(&self.disk, &temporary, &path).await?;
        *writer = Writer { segment, appender: Some(Appender::growing(file, length)) };
        for number in NAMES.numbers(&self.disk, &self.dir).await? {
            // A segment that stays is older than this one, so it is never read.
            if number < segment
                && let Err(error) = self.disk.remove_file(&NAMES.path(&self.dir, number)).await
                && error.kind() != ErrorKind::NotFound
            {
                tracing::warn!(segment = number, %error, "an old segment of the handoff log stays");
            }
        }
        Ok(())
    }
}

impl Lead for HandoffLog {
    async fn lead(&self) -> (Sequence, Result<()>) {
        let mut writer = self.writer.lock().await;
        match self.next_work(&writer) {
            Work::Segment(upto, contents) => (upto, self.start_segment(&mut writer, contents).await),
            Work::Batch(upto, entries) => (upto, self.write_batch(&mut writer, entries).await),
        }
    }
}

/// The first writes, until so many bytes are reached, as an answer. It has at least one, if there is one.
fn page(writes: impl Iterator<Item = Logged>, bytes_max: usize) -> (pb::ReadLogReply, Vec<Bytes>) {
    let (mut reply, mut payload, mut bytes) = (pb::ReadLogReply { end: true, ..Default::default() }, Vec::new(), 0);
    for logged in writes {
        if !reply.writes.is_empty() && bytes >= bytes_max {
            reply.end = false;
            break;
        }
        bytes += logged.data.len();
        reply.writes.push(logged.write);
        payload.push(logged.data);
    }
    (reply, payload)
}

fn promise_of(inode: InodeId, epoch: Epoch) -> Record {
    Record::Promise(pb::LoggedFile { inode: inode.raw(), epoch: epoch.raw(), last: Vec::new() })
}

/// Records that restore the book's contents.
fn contents(book: &Book) -> Vec<Bytes> {
    let promise = |(inode, epoch)| record::encode(promise_of(inode, epoch), &Bytes::new());
    let append = |inode: InodeId, epoch: Epoch, logged: &Logged| {
        let (inode, epoch, writes) = (inode.raw(), epoch.raw(), vec![logged.write.clone()]);
        let append = pb::LogWrites { inode, epoch, writes, ..pb::LogWrites::default() };
        record::encode(Record::Append(append), &logged.data)
    };
    let appends =
        book.files().flat_map(|(inode, epoch)| book.writes(inode).map(move |logged| append(inode, epoch, logged)));
    book.promises().map(promise).chain(appends).collect()
}

#[cfg(test)]
mod tests;
