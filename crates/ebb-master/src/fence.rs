//! Fences: a change of names or attributes waits until no other session caches the changed inodes. The shell around
//! [`crate::leases::watches`].

use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_runtime::Moment;
use ebb_types::snapshot::Shown;
use ebb_types::{Credentials, DatasetId, InodeId, Result, SessionId, err};
use ebb_wire::pb;
use pb::meta_op::Op;

use crate::shared::Shared;
use crate::soft::Soft;

/// Interval at which waits check again. It covers the end of the time for reclaiming, which is not announced.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// While the fence is up, no session but its own starts to watch these inodes. It is lowered when dropped.
pub(crate) struct Fence {
    shared: Arc<Shared>,
    session: SessionId,
    inodes: Vec<InodeId>,
}

impl Fence {
    /// Raises a fence, and requests that other sessions forget the inodes. [`Fence::wait_until_forgotten`] waits for
    /// them.
    pub(crate) fn raise(shared: &Arc<Shared>, session: SessionId, inodes: Vec<InodeId>) -> Self {
        let fence = Self { shared: Arc::clone(shared), session, inodes };
        let mut soft = shared.soft();
        for inode in &fence.inodes {
            // Ordering: the fence rises before the request, or a session could start to watch in between. I-27.
            soft.watches.raise(session, *inode);
            request_forgetting(&mut soft, session, *inode);
        }
        drop(soft);
        fence
    }

    /// Adds inodes to the fence.
    pub(crate) fn extend(&mut self, more: impl IntoIterator<Item = InodeId>) {
        let mut soft = self.shared.soft();
        for inode in more {
            if !self.inodes.contains(&inode) {
                self.inodes.push(inode);
                soft.watches.raise(self.session, inode);
                request_forgetting(&mut soft, self.session, inode);
            }
        }
    }

    /// Waits until no other session has the fence's inodes in its cache.
    ///
    /// A session that does not answer is waited for until it expires. A session that is unknown to a new master process
    /// is waited for until it has reclaimed, or the time for that is over.
    ///
    /// Errors: `LeaseHeld` after `span`.
    pub(crate) async fn wait_until_forgotten(&self, span: Duration) -> Result<()> {
        if self.is_clear(None) {
            return Ok(());
        }
        let until = self.shared.runtime.now().after(span);
        for inode in &self.inodes {
            self.wait_for_one(*inode, until).await?;
        }
        Ok(())
    }

    fn is_clear(&self, one: Option<InodeId>) -> bool {
        let soft = self.shared.soft();
        // Sessions that have not reclaimed may cache anything.
        if soft.reclaim_until.is_some() && soft.sessions.any_unclaimed(self.session) {
            return false;
        }
        match one {
            Some(inode) => soft.watches.is_clear(self.session, inode),
            None => self.inodes.iter().all(|inode| soft.watches.is_clear(self.session, *inode)),
        }
    }

    async fn wait_for_one(&self, inode: InodeId, until: Moment) -> Result<()> {
        let changes = self.shared.soft().watches.changes(inode);
        loop {
            let changed = changes.notified();
            tokio::pin!(changed);
            // Ordering: registered before the check, so that a change between the check and the wait wakes this task.
            changed.as_mut().enable();
            if self.is_clear(Some(inode)) {
                return Ok(());
            }
            let left = until.since(self.shared.runtime.now());
            if left.is_zero() {
                return Err(err!(LeaseHeld, "other sessions cache {inode} and have not forgotten it yet"));
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = self.shared.runtime.sleep(left.min(LOOK_AGAIN)) => {}
            }
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        let mut soft = self.shared.soft();
        for inode in &self.inodes {
            soft.watches.lower(self.session, *inode);
        }
    }
}

fn request_forgetting(soft: &mut Soft, by: SessionId, inode: InodeId) {
    for session in soft.watches.recall(by, inode) {
        soft.sessions.wake(session);
    }
}

/// Inodes that a request would change in the present state: directories by their names, other inodes by their
/// attributes.
pub(crate) fn touched(machine: &Machine, op: &Op) -> Vec<InodeId> {
    let found = |parent: u64, name: &[u8]| find(machine, parent, name);
    let mut touched: Vec<InodeId> = match op {
        Op::Create(op) if op.replace => {
            std::iter::once(InodeId::new(op.parent)).chain(found(op.parent, &op.name)).collect()
        }
        // A create of an existing name opens the file and changes nothing.
        Op::Create(op) if found(op.parent, &op.name).is_some() => Vec::new(),
        Op::Link(op) => vec![InodeId::new(op.parent), InodeId::new(op.inode)],
        Op::Unlink(op) => std::iter::once(InodeId::new(op.parent)).chain(found(op.parent, &op.name)).collect(),
        Op::RemoveDir(op) => std::iter::once(InodeId::new(op.parent)).chain(found(op.parent, &op.name)).collect(),
        Op::Rename(op) => [op.source_parent, op.target_parent]
            .map(InodeId::new)
            .into_iter()
            .chain(found(op.source_parent, &op.source_name))
            .chain(found(op.target_parent, &op.target_name))
            .collect(),
        Op::SetAttr(op) => vec![InodeId::new(op.inode)],
        Op::SetXattr(op) => vec![InodeId::new(op.inode)],
        Op::RemoveXattr(op) => vec![InodeId::new(op.inode)],
        // The trash is made in the root directory.
        Op::SetDataset(op) if op.trash_seconds.is_some() => {
            let dataset = machine.dataset(DatasetId::new(op.dataset));
            dataset.map(|dataset| InodeId::new(dataset.root_inode)).into_iter().collect()
        }
        // Names that lead to the snapshots, and to the one.
        Op::TakeSnapshot(op) => to_snapshots(machine, op.dataset, None),
        Op::RemoveSnapshot(op) => to_snapshots(machine, op.dataset, Some(op.snapshot)),
        Op::RenameSnapshot(op) => to_snapshots(machine, op.dataset, Some(op.snapshot)),
        Op::CreateDataset(op) => op.dataset.iter().flat_map(|dataset| on_path(machine, &dataset.path)).collect(),
        _ => parents(op),
    };
    touched.sort_unstable();
    touched.dedup();
    touched
}

/// Directories whose entries a request changes.
pub(crate) fn parents(op: &Op) -> Vec<InodeId> {
    let parents: &[u64] = match op {
        Op::Create(op) if op.unnamed => &[],
        Op::Create(op) => &[op.parent],
        Op::MakeDir(op) => &[op.parent],
        Op::MakeNode(op) => &[op.parent],
        Op::Symlink(op) => &[op.parent],
        Op::Link(op) => &[op.parent],
        Op::Unlink(op) => &[op.parent],
        Op::RemoveDir(op) => &[op.parent],
        Op::Rename(op) if op.source_parent == op.target_parent => &[op.source_parent],
        Op::Rename(op) => &[op.source_parent, op.target_parent],
        _ => &[],
    };
    parents.iter().copied().map(InodeId::new).collect()
}

/// The inode of a name. The query runs as the superuser, because permissions are checked when the command is applied.
pub(crate) fn find(machine: &Machine, parent: u64, name: &[u8]) -> Option<InodeId> {
    let lookup = Op::Lookup(pb::meta_op::Lookup { parent, name: name.to_vec() });
    let reply = machine.query(SessionId::default(), &Credentials::root(), &lookup).ok()?;
    reply.attr.map(|attr| InodeId::new(attr.inode))
}

fn to_snapshots(machine: &Machine, dataset: u64, snapshot: Option<u64>) -> Vec<InodeId> {
    let Some(dataset) = machine.dataset(DatasetId::new(dataset)) else { return Vec::new() };
    let inode = InodeId::new(dataset.root_inode);
    let of = |one: &pb::Snapshot| Some(one.number) == snapshot && one.dataset == dataset.id;
    let place = machine.snapshots().find(of).and_then(|one| u16::try_from(one.slot).ok());
    let shown = std::iter::once(0).chain(place).map(|place| Shown { place, inode }.id());
    std::iter::once(inode).chain(shown).collect()
}

fn on_path(machine: &Machine, path: &str) -> Vec<InodeId> {
    let resolve = Op::Resolve(pb::meta_op::Resolve { path: path.as_bytes().to_vec(), follow_last: true, access: 0 });
    let Ok(reply) = machine.query(SessionId::default(), &Credentials::root(), &resolve) else { return Vec::new() };
    reply.attr.iter().map(|attr| attr.inode).chain([reply.parent]).map(InodeId::new).collect()
}
