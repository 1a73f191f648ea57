//! The files that the proxy holds: how a stay starts, and how it ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_client::{Access, Client};
use ebb_runtime::{Runtime, SeededBug};
use ebb_types::{Credentials, Epoch, InodeId, Result, SessionId, bail};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::ended::{Ended, EndedStays};
use crate::file::SharedFile;

/// Most files that are given back at a time. Each may wait for a member to wake.
const RETURNS_MAX: usize = 64;
/// A session's handle that was unused for so long is closed.
const HANDLE_IDLE: Duration = Duration::from_secs(60);

/// All files of a proxy.
pub(crate) struct Files {
    runtime: Runtime,
    client: Client,
    files_max: usize,
    entries: Mutex<BTreeMap<InodeId, Arc<FileEntry>>>,
    ended: Mutex<EndedStays>,
    returns: Arc<Semaphore>,
    /// The proxy takes no further file. It is set under the lock of `entries`.
    leaving: AtomicBool,
}

/// The entry of a file that is held, or about to be.
#[derive(Default)]
struct FileEntry {
    /// Excludes taking the lease and giving it back from each other.
    changing: tokio::sync::Mutex<()>,
    now: Mutex<Option<Arc<SharedFile>>>,
}

/// What a session learns of the stay that it joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Joined {
    /// The epoch under which the file is held.
    pub epoch: Epoch,
    /// How often the file was taken over before.
    pub takeovers: u64,
}

impl Files {
    /// An empty table.
    pub fn new(runtime: Runtime, client: Client, files_max: usize) -> Self {
        let returns = Arc::new(Semaphore::new(RETURNS_MAX));
        let (entries, ended, leaving) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Self { runtime, client, files_max, entries, ended, returns, leaving }
    }

    /// The file, if it is held under this epoch.
    pub fn find(&self, inode: InodeId, epoch: Epoch) -> Option<Arc<SharedFile>> {
        let entry = self.entries.lock().get(&inode).cloned()?;
        let now = entry.now.lock().clone();
        now.filter(|file| file.epoch == epoch)
    }

    /// Returns how the stay under this epoch ended, for this session.
    pub fn end_of(&self, inode: InodeId, epoch: Epoch, session: SessionId) -> Ended {
        self.ended.lock().end_of(inode, epoch, session)
    }

    /// Number of sessions that do not know yet how their stay ended: see [`EndedStays::untold`].
    pub fn unheard(&self, lives: impl Fn(SessionId) -> bool, span: Duration) -> usize {
        self.ended.lock().unheard(lives, self.runtime.now(), span)
    }

    /// Takes the lease of a file, unless it is held.
    pub async fn join(&self, inode: InodeId) -> Result<Joined> {
        let entry = self.entry(inode)?;
        let _changing = entry.changing.lock().await;
        let known = entry.now.lock().clone();
        if let Some(file) = known {
            if file.is_held() {
                return Ok(Joined { epoch: file.epoch, takeovers: file.takeovers });
            }
            // The lease was lost in between. The old stay has to end before the new one has its entry.
            self.end(&entry, &file);
        }
        let (base, _) = self.client.open(&Credentials::root(), inode, Access::ReadWrite).await?;
        let epoch = match self.client.hold(base).await {
            Ok(epoch) => epoch,
            Err(error) => {
                self.client.close_now(base);
                return Err(error);
            }
        };
        let file = SharedFile::new(self.client.clone(), inode, base, epoch, self.runtime.now())?;
        let takeovers = file.takeovers;
        tracing::debug!(%inode, %epoch, "holds a file for several clients");
        let before = entry.now.lock().replace(Arc::new(file));
        // I-3: two stays at a time would order the operations of one file apart from each other.
        assert!(before.is_none(), "{inode} has a stay already, under another epoch");
        Ok(Joined { epoch, takeovers })
    }

    fn entry(&self, inode: InodeId) -> Result<Arc<FileEntry>> {
        let mut entries = self.entries.lock();
        if self.leaving.load(Ordering::SeqCst) {
            bail!(ShuttingDown, "this proxy is about to end, and takes no further file");
        }
        if !entries.contains_key(&inode) && entries.len() >= self.files_max {
            bail!(Overloaded, "the proxy holds {} files already", self.files_max);
        }
        Ok(Arc::clone(entries.entry(inode).or_default()))
    }

    /// Gives a file back, and ends its stay. Operations that have begun end first.
    ///
    /// # Errors
    /// Those of the last sync. The file may still be held then.
    pub async fn end_stay(&self, file: &Arc<SharedFile>) -> Result<()> {
        let Some(entry) = self.entries.lock().get(&file.inode).cloned() else { return Ok(()) };
        if self.runtime.has_bug(SeededBug::StayGoesOn) {
            return Ok(());
        }
        let _changing = entry.changing.lock().await;
        self.give_back(&entry, file).await
    }

    /// Ends the stay of a file whose lease is gone.
    pub fn on_moved(&self, file: &Arc<SharedFile>) {
        let entry = self.entries.lock().get(&file.inode).cloned();
        if let Some(entry) = entry {
            self.end(&entry, file);
        }
    }

    /// Ends a stay. Operations under way fail, as their handles are pinned to an epoch that is over.
    fn end(&self, entry: &FileEntry, file: &Arc<SharedFile>) {
        let mut now = entry.now.lock();
        if now.as_ref().is_none_or(|now| now.epoch != file.epoch) {
            return;
        }
        let ended = if file.was_given_back() { Ended::Kept } else { Ended::Lost };
        // Ordering: recorded before the file leaves its entry. An operation that finds no file looks here for the end
        // of its stay.
        self.ended.lock().add(file, ended, self.runtime.now());
        if ended == Ended::Kept {
            tracing::debug!(inode = %file.inode, epoch = %file.epoch, "gave a file back that several clients used");
        } else {
            tracing::warn!(inode = %file.inode, epoch = %file.epoch, "lost a file that several clients use");
        }
        let gone = now.take();
        drop(now);
        // Ordering: its handles are closed with no lock held.
        drop(gone);
    }

    /// Starts giving back quiet files, and forgets lost ones. It does not wait. The caller runs it periodically.
    pub fn tend(self: &Arc<Self>, quiet_time: Duration) {
        let all: Vec<(InodeId, Arc<FileEntry>)> =
            self.entries.lock().iter().map(|(inode, entry)| (*inode, Arc::clone(entry))).collect();
        for (inode, entry) in all {
            if !self.is_due(&entry, quiet_time) {
                continue;
            }
            let Ok(turn) = Arc::clone(&self.returns).try_acquire_owned() else { continue };
            let own = Arc::clone(self);
            // A task of its own: a file that waits for a member delays no other file.
            self.runtime.spawn("tend a shared file", async move {
                let _turn = turn;
                own.tend_one(inode, &entry, quiet_time).await;
            });
        }
    }

    /// Ends old direct writes of a file. True if its stay may be over. It does not wait.
    fn is_due(&self, entry: &FileEntry, quiet_time: Duration) -> bool {
        let file = entry.now.lock().clone();
        if let Some(file) = &file {
            file.end_old_tickets(self.runtime.now());
        }
        // An entry that is being changed is left to the task that changes it.
        entry.changing.try_lock().is_ok() && file.is_none_or(|file| self.is_over(&file, quiet_time))
    }

    /// Whether no session needs a file, or it is lost. The caller and the entry have one reference each.
    fn is_over(&self, file: &Arc<SharedFile>, quiet_time: Duration) -> bool {
        if !file.is_held() {
            return true;
        }
        let now = self.runtime.now();
        file.close_idle(now, HANDLE_IDLE);
        // An operation under way has a reference of its own.
        Arc::strong_count(file) <= 2 && file.is_quiet(now, quiet_time)
    }

    async fn tend_one(&self, inode: InodeId, entry: &Arc<FileEntry>, quiet_time: Duration) {
        let Ok(_changing) = entry.changing.try_lock() else { return };
        let file = entry.now.lock().clone();
        if let Some(file) = file {
            if !self.is_over(&file, quiet_time) {
                return;
            }
            if let Err(error) = self.give_back(entry, &file).await {
                tracing::debug!(%inode, %error, "giving a quiet file back");
            }
            if file.is_held() {
                return;
            }
        }
        let mut entries = self.entries.lock();
        // Only the table and this task have it.
        if entry.now.lock().is_none() && Arc::strong_count(entry) == 2 {
            entries.remove(&inode);
        }
    }

    /// Takes no further file, and gives back each file that is held. It interrupts no operation.
    pub async fn leave(self: &Arc<Self>) {
        let entries: Vec<(InodeId, Arc<FileEntry>)> = {
            // Ordering: under the lock under which entries are made. A file that is being taken has its entry by then.
            let entries = self.entries.lock();
            self.leaving.store(true, Ordering::SeqCst);
            entries.iter().map(|(inode, entry)| (*inode, Arc::clone(entry))).collect()
        };
        let mut returning = Vec::with_capacity(entries.len());
        for (inode, entry) in entries {
            let own = Arc::clone(self);
            // A task for each: a file that waits for a member delays no other file.
            returning.push(self.runtime.spawn("give a shared file back for good", async move {
                let _turn = own.returns.acquire().await;
                own.leave_one(inode, &entry).await;
            }));
        }
        for task in returning {
            if let Err(error) = task.join().await {
                tracing::warn!(%error, "giving a shared file back for good");
            }
        }
    }

    async fn leave_one(&self, inode: InodeId, entry: &FileEntry) {
        let _changing = entry.changing.lock().await;
        let Some(file) = entry.now.lock().clone() else { return };
        if let Err(error) = self.give_back(entry, &file).await {
            tracing::warn!(%inode, %error, "giving a shared file back for good");
        }
    }

    /// Gives the lease back, unless it is lost, and ends the stay if it is over. The caller has `changing`.
    async fn give_back(&self, entry: &FileEntry, file: &Arc<SharedFile>) -> Result<()> {
        let given_back = if file.is_held() { self.client.give_back(file.inode).await } else { Ok(()) };
        if !file.is_held() {
            self.end(entry, file);
        }
        given_back
    }

    /// Ends all stays, after the leases were given back.
    pub fn end_all(&self) {
        let entries: Vec<Arc<FileEntry>> = self.entries.lock().values().cloned().collect();
        for entry in entries {
            let file = entry.now.lock().clone();
            if let Some(file) = file {
                self.end(&entry, &file);
            }
        }
    }
}
