//! Which files are held, how a file comes to be and how it ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ebb_client::{Access, Client};
use ebb_runtime::Runtime;
use ebb_types::{Credentials, Epoch, InodeId, Result, bail};
use parking_lot::Mutex;

use crate::file::SharedFile;

/// Ended stays that are remembered: clients come soon, if ever, to hear how theirs ended.
const ENDED_MAX: usize = 16_384;
/// A session's handle that was not used for so long is closed.
const HANDLE_IDLE: Duration = Duration::from_secs(60);

/// All files of a proxy.
pub(crate) struct Files {
    runtime: Runtime,
    client: Client,
    files_max: usize,
    places: Mutex<BTreeMap<InodeId, Arc<Place>>>,
    ended: Mutex<Ended>,
}

/// Where a file is, or is about to be.
#[derive(Default)]
struct Place {
    /// Taking the lease and giving it back, one after the other.
    changing: tokio::sync::Mutex<()>,
    now: Mutex<Option<Arc<SharedFile>>>,
}

/// How stays ended: true, with everything synced.
#[derive(Default)]
struct Ended {
    kept: BTreeMap<(InodeId, Epoch), bool>,
    order: VecDeque<(InodeId, Epoch)>,
}

impl Ended {
    fn note(&mut self, inode: InodeId, epoch: Epoch, kept: bool) {
        if self.kept.insert((inode, epoch), kept).is_none() {
            self.order.push_back((inode, epoch));
        }
        while self.order.len() > ENDED_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.kept.remove(&oldest);
            }
        }
    }
}

impl Files {
    /// None yet.
    pub fn new(runtime: Runtime, client: Client, files_max: usize) -> Self {
        Self { runtime, client, files_max, places: Mutex::default(), ended: Mutex::default() }
    }

    /// The file, if it is held under this epoch.
    pub fn find(&self, inode: InodeId, epoch: Epoch) -> Option<Arc<SharedFile>> {
        let place = self.places.lock().get(&inode).cloned()?;
        let now = place.now.lock().clone();
        now.filter(|file| file.epoch == epoch)
    }

    /// Whether the stay under this epoch ended with everything synced; false also if nothing is known of it.
    pub fn was_kept(&self, inode: InodeId, epoch: Epoch) -> bool {
        self.ended.lock().kept.get(&(inode, epoch)).copied().unwrap_or(false)
    }

    /// Takes a file, if it is not held, and tells under which epoch.
    pub async fn join(&self, inode: InodeId) -> Result<Epoch> {
        let place = self.place(inode)?;
        let _changing = place.changing.lock().await;
        let known = place.now.lock().clone();
        if let Some(file) = known {
            if file.is_held() {
                return Ok(file.epoch);
            }
            self.end(&place, &file);
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
        tracing::debug!(%inode, %epoch, "holds a file for several clients");
        *place.now.lock() = Some(Arc::new(file));
        Ok(epoch)
    }

    fn place(&self, inode: InodeId) -> Result<Arc<Place>> {
        let mut places = self.places.lock();
        if !places.contains_key(&inode) && places.len() >= self.files_max {
            bail!(Overloaded, "the proxy holds {} files already", self.files_max);
        }
        Ok(Arc::clone(places.entry(inode).or_default()))
    }

    /// An operation found that the lease is gone.
    pub fn on_moved(&self, file: &SharedFile) {
        let place = self.places.lock().get(&file.inode).cloned();
        if let Some(place) = place {
            self.end(&place, file);
        }
    }

    /// The stay is over. What is under way on it finds its handles pinned to an epoch that is gone.
    fn end(&self, place: &Place, file: &SharedFile) {
        let mut now = place.now.lock();
        if now.as_ref().is_none_or(|now| now.epoch != file.epoch) {
            return;
        }
        let kept = file.was_given_back();
        self.ended.lock().note(file.inode, file.epoch, kept);
        if !kept {
            tracing::warn!(inode = %file.inode, epoch = %file.epoch, "lost a file that several clients use");
        }
        let gone = now.take();
        drop(now);
        // Ordering: its handles are closed with no lock held.
        drop(gone);
    }

    /// Gives back what has become quiet, and forgets what is lost. To be called every now and then.
    pub async fn tend(&self, quiet_time: Duration) {
        let all: Vec<(InodeId, Arc<Place>)> =
            self.places.lock().iter().map(|(inode, place)| (*inode, Arc::clone(place))).collect();
        for (inode, place) in all {
            let Ok(_changing) = place.changing.try_lock() else { continue };
            self.tend_one(&place, quiet_time).await;
            let mut places = self.places.lock();
            // Nobody else has it but the table and this loop.
            if place.now.lock().is_none() && Arc::strong_count(&place) == 2 {
                places.remove(&inode);
            }
        }
    }

    async fn tend_one(&self, place: &Place, quiet_time: Duration) {
        let Some(file) = place.now.lock().clone() else { return };
        let now = self.runtime.now();
        file.end_old_tickets(now);
        if file.is_held() {
            file.close_idle(now, HANDLE_IDLE);
            // Two: the place, and this. An operation under way has one of its own.
            if Arc::strong_count(&file) > 2 || !file.is_quiet(now, quiet_time) {
                return;
            }
            if let Err(error) = self.client.give_back(file.inode).await {
                tracing::debug!(inode = %file.inode, %error, "giving a quiet file back");
            }
            if file.is_held() {
                return;
            }
        }
        self.end(place, &file);
    }

    /// Ends all stays, now that the leases have gone back.
    pub fn end_all(&self) {
        let places: Vec<Arc<Place>> = self.places.lock().values().cloned().collect();
        for place in places {
            let file = place.now.lock().clone();
            if let Some(file) = file {
                self.end(&place, &file);
            }
        }
    }
}
