//! Functions for a proxy beyond those of programs: it must know under which epoch it holds a file, do nothing under
//! another one, and pass writes on before it answers.
//!
//! A *pinned* handle works only while its file's write lease is held under one epoch. It never takes a lease: when that
//! one is gone, operations fail with `Moved`, and nothing of them was done.

use ebb_types::{Epoch, InodeId, Result, err};

use crate::client::Client;
use crate::handles::{OpenFile, Since};
use crate::inode::Core;
use crate::lease::Entry;
use crate::lease::hold::Lease;
use crate::shared::Shared;
use crate::types::Handle;

impl Client {
    /// Takes the write lease of an open file, if it is not held, and tells its epoch. The master sends this session to
    /// no other: it is the proxy's.
    pub async fn hold(&self, handle: Handle) -> Result<Epoch> {
        let file = self.shared().handles.get(handle)?;
        match self.shared().enter(&file.inode, Lease::Write, None).await? {
            Entry::Lease(_gate) => Ok(file.inode.core.lock().hold.epoch()),
            Entry::Proxy(_) => Err(err!(Internal, "the proxy's own session was sent to a proxy")),
        }
    }

    /// How often an open file was taken over, as its lease holder knows it. Without a lease the result means nothing.
    pub fn takeovers(&self, handle: Handle) -> Result<u64> {
        let file = self.shared().handles.get(handle)?;
        let takeovers = file.inode.core.lock().takeovers();
        Ok(takeovers)
    }

    /// Another handle of an open file, pinned to an epoch. It gets an error of background work once, as other handles
    /// do.
    pub fn pin(&self, handle: Handle, epoch: Epoch) -> Result<Handle> {
        let file = self.shared().handles.get(handle)?;
        Ok(self.shared().pin(&file, epoch))
    }

    /// Whether the write lease is held under this epoch. It may not be believed for the moment: operations wait for
    /// that, and it is not lost before the master says so.
    #[must_use]
    pub fn is_held(&self, inode: InodeId, epoch: Epoch) -> bool {
        self.shared().find(inode).is_some_and(|inode| inode.core.lock().hold.is_write_of(epoch))
    }

    /// Whether the lease of this epoch was the last one, and went back with everything synced and committed.
    #[must_use]
    pub fn was_given_back(&self, inode: InodeId, epoch: Epoch) -> bool {
        self.shared().find(inode).is_some_and(|inode| inode.core.lock().hold.was_given_back(epoch))
    }

    /// The length of an open file as its lease holder knows it. Without a lease the result means nothing.
    pub fn size_now(&self, handle: Handle) -> Result<u64> {
        Ok(self.shared().handles.get(handle)?.inode.core.lock().size)
    }

    /// Reports the synced state of an open file to the master.
    pub async fn commit(&self, handle: Handle) -> Result<()> {
        let file = self.shared().handles.get(handle)?;
        self.shared().commit_one(&file.inode, false).await
    }

    /// Gives the lease of a file back, with everything synced and committed. Operations under way are ended first.
    pub async fn give_back(&self, inode: InodeId) -> Result<()> {
        let Some(inode) = self.shared().find(inode) else { return Ok(()) };
        let _gate = inode.gate.write().await;
        self.shared().finish(&inode).await
    }

    /// Returns when every member has received everything that was written to the file before, through a pinned handle.
    ///
    /// Errors: `Io` if the lease that the handle is pinned to was lost before that; `Invalid` if it is not pinned.
    pub async fn pass_on(&self, handle: Handle) -> Result<()> {
        let file = self.shared().handles.get(handle)?;
        let epoch = file.pinned.ok_or_else(|| err!(Invalid, "{} is not open under one epoch", file.inode.id))?;
        self.shared().pass_on(&file.inode, epoch).await
    }
}

impl Shared {
    /// Whether a handle that is pinned to `epoch` may be used.
    pub fn is_pinned(&self, core: &Core, epoch: Epoch) -> bool {
        self.is_believed(core, Lease::Write) && core.hold.is_write_of(epoch)
    }

    fn pin(&self, file: &OpenFile, epoch: Epoch) -> Handle {
        let errors = {
            let mut core = file.inode.core.lock();
            core.open_count += 1;
            // Errors under an earlier lease were reported in other ways.
            core.sticky.latest()
        };
        // Under one epoch a file is taken over at its end only. Whose handle is older, the sessions that joined know.
        let since = Since { errors, takeovers: u64::MAX };
        self.handles.insert(OpenFile::new(file.inode.clone(), file.access, file.privileged, since, Some(epoch)))
    }
}
