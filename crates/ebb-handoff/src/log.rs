//! A log on a disk: two files at most, the newest written to its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_runtime::{Disk, File, OpenMode, Plant, Runtime};
use ebb_types::{Epoch, ErrorKind, InodeId, MetablockId, Result, bail, err};
use ebb_wire::{convert, pb};
use pb::handoff_record::Record;
use tokio::sync::Mutex;

use crate::book::{Book, Logged};
use crate::found::{Doubt, Found, apply_append, apply_cuts, find, path};
use crate::record::{self, Past};

/// Bytes of one answer to a read.
const PAGE_BYTES: usize = 4 << 20;
/// A segment is begun anew when it is longer than this and than twice what the book holds.
const SEGMENT_LEAST_BYTES: u64 = 4 << 20;

/// The handoff log of a node. One for each process.
#[derive(Debug)]
pub struct HandoffLog {
    /// Records are confirmed before they are synced: a planted mistake.
    is_late: bool,
    disk: Disk,
    dir: PathBuf,
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    book: Book,
    segment: u64,
    /// None after a failed write or sync: what it holds is not known, and the next append begins another.
    file: Option<File>,
    length: u64,
    doubt: Option<Doubt>,
}

impl HandoffLog {
    /// Opens the log of a directory, or begins one. At most `bytes_max` are kept. `is_expected`: there was one here before,
    /// so one that is not there was lost.
    pub async fn open(runtime: &Runtime, dir: &Path, bytes_max: usize, is_expected: bool) -> Result<Self> {
        let disk = runtime.disk();
        disk.create_dir_all(dir).await?;
        let Found { book, doubt, newest } = find(&disk, dir, is_expected).await?;
        match &doubt {
            Some(doubt) if doubt.is_certain => tracing::error!(%doubt, "the handoff log is damaged"),
            Some(doubt) => tracing::warn!(%doubt, "the handoff log may be damaged"),
            None => {}
        }
        let mut state = State { book, segment: newest, file: None, length: 0, doubt };
        let is_late = runtime.has_plant(Plant::StandinUnsynced);
        let log = Self { is_late, disk, dir: dir.to_owned(), bytes_max, state: Mutex::default() };
        if newest == 0 {
            // Ordering: there is a log before anything can be lost from it.
            log.start_segment(&mut state).await?;
        }
        *log.state.lock().await = state;
        Ok(log)
    }

    /// Why it may not have everything that was ever logged and not cut. None: it has. A doubt stays, through restarts,
    /// until it is [laid to rest](Self::trust).
    pub async fn doubt(&self) -> Option<Doubt> {
        self.state.lock().await.doubt.clone()
    }

    /// Nothing that may be missing is needed any more: from now on the log counts as whole.
    pub async fn trust(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        state.doubt = None;
        self.start_segment(&mut state).await
    }

    /// Bytes that it holds.
    pub async fn bytes(&self) -> usize {
        self.state.lock().await.book.bytes()
    }

    /// Files with writes, under which epoch these were logged, and up to which versions.
    pub async fn marks(&self) -> Vec<pb::LoggedFile> {
        self.state.lock().await.book.marks().collect()
    }

    /// Most bytes that it may hold.
    pub const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Logs writes; returns when they are synced. `StaleEpoch`: the lease is over; `Overloaded`: it is full.
    pub async fn append(&self, message: pb::LogWrites, payload: Bytes) -> Result<()> {
        self.append_if(message, payload, |_| Ok(())).await
    }

    /// The same, if `admit` lets them in; it is told the bytes of those that are not here yet, by metablock.
    pub async fn append_if(
        &self,
        mut message: pb::LogWrites,
        payload: Bytes,
        admit: impl FnOnce(&BTreeMap<MetablockId, u64>) -> Result<()> + Send,
    ) -> Result<()> {
        // It says who is to be waited for now, which is of no use to who reads the log.
        message.lacks.clear();
        let (inode, epoch) = (InodeId::new(message.inode), Epoch::new(message.epoch));
        let writes = record::split(message.writes.clone(), &payload)?;
        if let Some(write) = writes.iter().find(|write| write.version().epoch != epoch) {
            bail!(Protocol, "a write of epoch {} logged under epoch {epoch} of {inode}", write.version().epoch);
        }
        let mut state = self.state.lock().await;
        state.book.check(inode, epoch)?;
        let held = state.book.bytes();
        if !writes.is_empty() && held + payload.len() > self.bytes_max {
            bail!(
                Overloaded,
                "the handoff log holds {held} bytes, {} are the most: members must wake first",
                self.bytes_max
            );
        }
        admit(&state.book.news(inode, writes.iter()))?;
        self.write(&mut state, Record::Append(message.clone()), &payload).await?;
        apply_append(&mut state.book, inode, epoch, &message.cuts, writes);
        Ok(())
    }

    /// Takes nothing below `epoch` for the file any more, durably.
    pub async fn promise(&self, inode: InodeId, epoch: Epoch) -> Result<()> {
        let mut state = self.state.lock().await;
        let promise = pb::LoggedFile { inode: inode.raw(), epoch: epoch.raw(), last: Vec::new() };
        self.write(&mut state, Record::Promise(promise), &Bytes::new()).await?;
        state.book.apply_promise(inode, epoch);
        Ok(())
    }

    /// Everything that was logged for a file, by metablock and version.
    pub async fn writes(&self, inode: InodeId) -> Vec<Logged> {
        self.state.lock().await.book.writes(inode).cloned().collect()
    }

    /// Answers `ReadLog`: the promise first, then what was logged.
    pub async fn read(&self, message: &pb::ReadLog) -> Result<(pb::ReadLogReply, Vec<Bytes>)> {
        let inode = InodeId::new(message.inode);
        self.promise(inode, Epoch::new(message.epoch)).await?;
        let after = (message.after_metablock, convert::version(message.after_version));
        let (mut reply, mut payload, mut bytes) = (pb::ReadLogReply { end: true, ..Default::default() }, Vec::new(), 0);
        for logged in self.writes(inode).await {
            if (logged.metablock().raw(), logged.version()) <= after {
                continue;
            }
            if bytes >= PAGE_BYTES {
                reply.end = false;
                break;
            }
            bytes += logged.data.len();
            reply.writes.push(logged.write);
            payload.push(logged.data);
        }
        Ok((reply, payload))
    }

    /// Nobody needs what was logged up to these versions. What was logged since stays.
    pub async fn cut(&self, over: pb::LoggedFile) -> Result<()> {
        let mut state = self.state.lock().await;
        self.write(&mut state, Record::Cut(over.clone()), &Bytes::new()).await?;
        apply_cuts(&mut state.book, InodeId::new(over.inode), &over.last);
        Ok(())
    }

    /// Appends a record and syncs it.
    async fn write(&self, state: &mut State, record: Record, payload: &Bytes) -> Result<()> {
        let is_long = state.length > SEGMENT_LEAST_BYTES.max(state.book.bytes() as u64 * 2);
        if state.file.is_none() || is_long {
            self.start_segment(state).await?;
        }
        let file = state.file.take().ok_or_else(|| err!(Internal, "a segment was begun and is not there"))?;
        let bytes = record::encode(record, payload);
        let length = bytes.len() as u64;
        // Cancel-safety: dropped half-way the file stays taken out, and the next append begins another one.
        file.write_at(state.length, vec![bytes]).await?;
        if !self.is_late {
            file.sync_data().await?;
        }
        state.length += length;
        state.file = Some(file);
        Ok(())
    }

    /// Begins a segment with everything that the book holds, then removes the others.
    async fn start_segment(&self, state: &mut State) -> Result<()> {
        let segment = state.segment + 1;
        let new = path(&self.dir, segment);
        let temporary = new.with_extension("new");
        let mut bytes = vec![record::head(segment, Past::of(state.doubt.as_ref()))];
        let book = &state.book;
        for (inode, epoch) in book.promises() {
            let promise = pb::LoggedFile { inode: inode.raw(), epoch: epoch.raw(), last: Vec::new() };
            bytes.push(record::encode(Record::Promise(promise), &Bytes::new()));
        }
        for (inode, epoch) in book.files() {
            for logged in book.writes(inode) {
                let (inode, epoch, writes) = (inode.raw(), epoch.raw(), vec![logged.write.clone()]);
                let append = pb::LogWrites { inode, epoch, writes, ..pb::LogWrites::default() };
                bytes.push(record::encode(Record::Append(append), &logged.data));
            }
        }
        let length = bytes.iter().map(|part| part.len() as u64).sum();
        let file = self.disk.open(&temporary, OpenMode::Create).await?;
        file.set_len(0).await?;
        file.write_at(0, bytes).await?;
        // Ordering: contents before the name, the name before the older segments go.
        file.sync_data().await?;
        self.disk.rename(&temporary, &new).await?;
        self.disk.sync_dir(&self.dir).await?;
        (state.segment, state.length, state.file) = (segment, length, Some(file));
        for name in self.disk.read_dir(&self.dir).await? {
            let number = name.strip_prefix("offload-").and_then(|number| number.parse::<u64>().ok());
            if number.is_some_and(|number| number < segment) {
                // One that stays is older than this one, and not looked at.
                if let Err(error) = self.disk.remove_file(&self.dir.join(&name)).await
                    && error.kind() != ErrorKind::NotFound
                {
                    tracing::warn!(name, %error, "an old segment of the handoff log stays");
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
