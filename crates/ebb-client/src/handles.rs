//! Open files: opening, making, closing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_types::{Attr, Credentials, Epoch, ErrorKind, HostName, InodeId, Result, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Create, Op};
use parking_lot::Mutex;

use crate::inode::{Inode, Registered};
use crate::lease::change::Granted;
use crate::lease::hold::Lease;
use crate::lease::{Opening, Taken};
use crate::names::answer::Answer;
use crate::names::kept::Changed;
use crate::names::known::Asking;
use crate::read::prefetch::ReadAhead;
use crate::shared::Shared;
use crate::types::{Access, Advice, Created, Handle};

/// How often a found file may be gone before it is opened. Then the open fails.
const REPLACED_MAX: usize = 8;

/// One open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The file.
    pub inode: Arc<Inode>,
    /// The access that it was opened for.
    pub access: Access,
    /// Its opener may write without suid and sgid being cleared.
    pub privileged: bool,
    /// State of its prefetch.
    pub ahead: Mutex<ReadAhead>,
    /// How it is going to be read.
    advice: Mutex<Advice>,
    /// Offset behind which it is hardly read.
    reads_end: AtomicU64,
    /// It works under this epoch only, for a proxy.
    pub pinned: Option<Epoch>,
    /// Number of sticky errors that it has reported.
    seen_errors: Mutex<u64>,
    /// How often the file had been taken over when it was opened, or when this handle took it over.
    takeovers: AtomicU64,
}

/// Counts of a file at the time when it was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    /// Sticky errors that came before, and that the handle does not report.
    pub errors: u64,
    /// Takeovers that came before, and that do not concern the handle.
    pub takeovers: u64,
}

impl OpenFile {
    /// An open file.
    pub fn new(inode: Arc<Inode>, access: Access, privileged: bool, since: Since, pinned: Option<Epoch>) -> Self {
        Self {
            inode,
            access,
            privileged,
            ahead: Mutex::default(),
            advice: Mutex::default(),
            reads_end: AtomicU64::new(u64::MAX),
            pinned,
            seen_errors: Mutex::new(since.errors),
            takeovers: AtomicU64::new(since.takeovers),
        }
    }

    /// How often the file may have been taken over for this handle to write to it.
    pub fn takeovers(&self) -> u64 {
        self.takeovers.load(Ordering::Relaxed)
    }

    /// It has taken the file over, the `takeovers`th time that this was done.
    pub fn on_taken_over(&self, takeovers: u64) {
        self.takeovers.fetch_max(takeovers, Ordering::Relaxed);
    }

    /// How its program says that it reads.
    pub fn advice(&self) -> Advice {
        *self.advice.lock()
    }

    /// Offset behind which its program reads hardly anything.
    pub fn reads_end(&self) -> u64 {
        self.reads_end.load(Ordering::Relaxed)
    }

    /// Its program says how far it is going to read.
    pub fn expect_end(&self, end: u64) {
        self.reads_end.store(end, Ordering::Relaxed);
    }

    /// Its program says how it is going to read.
    pub fn advise(&self, advice: Advice) {
        *self.advice.lock() = advice;
    }

    /// Fails with the error of background work that this handle has not reported yet.
    pub fn check_sticky(&self) -> Result<()> {
        let mut core = self.inode.core.lock();
        core.sticky.check(&mut self.seen_errors.lock())
    }
}

/// All open files.
#[derive(Debug, Default)]
pub(crate) struct Handles(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    files: BTreeMap<u64, Arc<OpenFile>>,
}

impl Handles {
    /// The file behind a handle.
    pub fn get(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        let state = self.0.lock();
        state.files.get(&handle.0).cloned().ok_or_else(|| err!(Stale, "handle {} is not open", handle.0))
    }

    /// A new handle.
    pub fn insert(&self, file: OpenFile) -> Handle {
        let mut state = self.0.lock();
        state.next += 1;
        let number = state.next;
        state.files.insert(number, Arc::new(file));
        Handle(number)
    }

    fn remove(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.0.lock().files.remove(&handle.0)
    }

    /// All handles, for closing them.
    pub fn all(&self) -> Vec<Handle> {
        self.0.lock().files.keys().map(|number| Handle(*number)).collect()
    }
}

impl Shared {
    /// Opens a file that exists.
    pub async fn open(
        self: &Arc<Self>,
        credentials: &Credentials,
        id: InodeId,
        access: Access,
    ) -> Result<(Handle, Attr)> {
        self.check_open()?;
        self.wait_forgotten(id).await;
        let inode = self.inode(id);
        // Counted first, so that no Forget for an earlier handle overtakes this open.
        inode.core.lock().open_count += 1;
        let mut counted = Counted { shared: self, inode: &inode, done: false };
        // Ordering: the open is counted first, so that the file is not thrown away from here on.
        self.returns.on_open(id)?;
        self.session.ensure_trusted().await?;
        let mut taken = Taken::Lease;
        if !self.may_open_here(&inode, credentials, access) {
            let _gate = inode.gate.write().await;
            // A handle only for writing will need the write lease. A handle that may also read may never write.
            let lease = if access == Access::Write { Lease::Write } else { Lease::Read };
            let opening = Opening { credentials: credentials.clone(), mask: access.mask() };
            taken = self.take_lease(&inode, lease, Some(opening)).await?;
        }
        let fresh = match taken {
            Taken::Lease => None,
            // The master's record lags behind the proxy: a size of 0 would keep O_TRUNC from cutting.
            Taken::Proxy(_) => Some(self.get_attr(&self.own, id).await?),
        };
        let opened = self.handle(&inode, credentials, access, fresh)?;
        counted.done = true;
        Ok(opened)
    }

    /// Whether the master need not be asked: it counts this client as having the file open, attributes are believed,
    /// and they allow it beyond doubt. (An ACL may refuse what group and other bits allow, so those do not count.)
    fn may_open_here(&self, inode: &Inode, credentials: &Credentials, access: Access) -> bool {
        let core = inode.core.lock();
        let Some(attr) = core.attr.as_ref().filter(|_| !core.attr_stale && core.registered == Registered::Yes) else {
            return false;
        };
        let allowed =
            credentials.is_root() || (attr.uid == credentials.uid && (attr.mode >> 6) & access.mask() == access.mask());
        allowed && self.is_believed(&core, Lease::Read)
    }

    /// A handle of a file, and the file's attributes: `fresh`, or those that came with the lease.
    fn handle(
        &self,
        inode: &Arc<Inode>,
        credentials: &Credentials,
        access: Access,
        fresh: Option<Attr>,
    ) -> Result<(Handle, Attr)> {
        let core = inode.core.lock();
        let held = core.attr.map(|attr| core.overlay(attr));
        let attr = fresh.or(held).ok_or_else(|| err!(Internal, "{} was opened without attributes", inode.id))?;
        let since = Since { errors: core.sticky.sample(), takeovers: attr.takeovers };
        drop(core);
        let file = OpenFile::new(inode.clone(), access, credentials.is_root(), since, None);
        Ok((self.handles.insert(file), attr))
    }

    /// Opens or makes a file.
    pub async fn create(
        self: &Arc<Self>,
        credentials: &Credentials,
        create: Create,
        access: Access,
        hosts: Vec<HostName>,
    ) -> Result<Created> {
        for _ in 1..REPLACED_MAX {
            match self.try_create(credentials, create.clone(), access, hosts.clone()).await {
                // The file existed, and was replaced before it was opened. The file there now is as good.
                Err(error) if error.kind() == ErrorKind::Stale && !create.exclusive && !create.unnamed => {
                    tracing::debug!(%error, "a file was found and is gone; looking again");
                }
                done => return done,
            }
        }
        self.try_create(credentials, create, access, hosts).await
    }

    async fn try_create(
        self: &Arc<Self>,
        credentials: &Credentials,
        create: Create,
        access: Access,
        hosts: Vec<HostName>,
    ) -> Result<Created> {
        self.check_open()?;
        self.session.ensure_trusted().await?;
        let session = self.session.name();
        let no_grant = !access.writes() || !hosts.is_empty();
        let op = Create { no_grant, ..create.clone() };
        let take = |asking: &Asking<'_>, answer: &Answer| self.take_made(asking, answer, &hosts, session.generation);
        let made = match self.change_with(credentials, Op::Create(op), take).await {
            // A name costs no space. The first write will fail if there is none.
            Err(error) if error.kind() == ErrorKind::NoSpace && !no_grant => {
                self.change_with(credentials, Op::Create(Create { no_grant: true, ..create }), take).await
            }
            made => made,
        };
        let Changed { answer, then: made, .. } = made?;
        self.let_displaced_go(&answer.rest);
        if !answer.rest.created {
            let (handle, attr) = self.open(credentials, answer.attr()?.inode, access).await?;
            return Ok(Created { handle, attr, existed: true });
        }
        let Some(inode) = made? else { return Err(err!(Protocol, "a file was made, and the answer names no lease")) };
        let (handle, attr) = self.handle(&inode, credentials, access, None)?;
        Ok(Created { handle, attr, existed: false })
    }

    /// Notes a file that this client has just made, open once, with the lease that came with it.
    fn take_made(
        &self,
        asking: &Asking<'_>,
        answer: &Answer,
        hosts: &[HostName],
        generation: u64,
    ) -> Result<Option<Arc<Inode>>> {
        let Some(attr) = answer.attr.filter(|_| answer.rest.created) else { return Ok(None) };
        let id = attr.inode;
        attr.storage.geometry.check().map_err(|why| err!(Protocol, "{id} has a bad geometry: {why}"))?;
        let inode = self.inode(id);
        let mut core = inode.core.lock();
        core.open_count += 1;
        core.registered = Registered::Yes;
        core.affinity = hosts.iter().map(|host| host.as_str().to_owned()).collect();
        // A recall may have come first. Then the lease is gone already, and is taken again when it is needed.
        let is_ours = core.hold.lease() == Lease::None && asking.is_undisturbed(id);
        if answer.rest.lease() == pb::LeaseMode::LeaseWrite && is_ours {
            let kept = answer.is_leased(id);
            let granted = Granted { attr, metablocks: answer.rest.metablocks.clone(), kept };
            core.install(&self.cache, Lease::Write, generation, granted);
        }
        drop(core);
        Ok(Some(inode))
    }

    /// Forgets a handle. Data goes on in the background; the lease stays.
    pub fn close(self: &Arc<Self>, handle: Handle) {
        if let Some(file) = self.handles.remove(handle) {
            self.uncount(&file.inode);
        }
    }

    fn uncount(self: &Arc<Self>, inode: &Inode) {
        let mut core = inode.core.lock();
        core.open_count -= 1;
        if core.open_count > 0 {
            return;
        }
        let last_name_gone = core.attr.as_ref().is_none_or(|attr| attr.links == 0) || core.attr_stale;
        let forget = core.registered.may_be() && last_name_gone;
        drop(core);
        if !self.options.keep_leases {
            self.release_after_close(inode.id);
        } else if forget {
            self.return_closed(inode.id);
        }
    }

    /// Waits until no Forget is under way for this file.
    async fn wait_forgotten(&self, id: InodeId) {
        loop {
            let forgotten = self.forgotten.notified();
            tokio::pin!(forgotten);
            forgotten.as_mut().enable();
            if !self.forgetting.lock().contains(&id) {
                return;
            }
            forgotten.await;
        }
    }
}

/// Takes a handle's count back if the open is not completed.
struct Counted<'a> {
    shared: &'a Arc<Shared>,
    inode: &'a Inode,
    done: bool,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.shared.uncount(self.inode);
        }
    }
}
