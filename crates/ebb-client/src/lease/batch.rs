//! Leases of many closed files going back together, in one command.
//!
//! ```text
//!  closed, settled ── shut ──► nobody enters ── lower ──► write leases are read leases ── release ──► nothing is held
//! ```
//! A write lease that is committed and given back leaves a read lease, in one step of the master's. The session that gives it
//! back counts as a reader until it says otherwise. So what is cached stays good, and nothing has to be asked again
//! before the file is read. A recovery takes no notice of read leases; the next writer's recall ends them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_types::{Attr, Error, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Commit, Op};
use tokio::sync::{OwnedMutexGuard, OwnedRwLockWriteGuard};

use crate::inode::{Core, Inode};
use crate::lease::hold::Lease;
use crate::lease::recall;
use crate::session::ATTEMPT;
use crate::shared::Shared;
use crate::write::committer::{build, note_committed};

/// Leases given back in one command.
pub(crate) const RELEASE_BATCH: usize = 1000;

/// A closed file that no operation is in. While this lives, none begins and an open waits.
pub(crate) struct Shut {
    inode: Arc<Inode>,
    _gate: OwnedRwLockWriteGuard<()>,
    _committing: OwnedMutexGuard<()>,
}

impl Drop for Shut {
    fn drop(&mut self) {
        self.inode.core.lock().hold.reopen();
    }
}

impl Shared {
    /// Shuts the files that `may` be shut and that are not in use at this moment.
    pub fn shut(&self, files: &[Arc<Inode>], may: impl Fn(&Core) -> bool) -> Vec<Shut> {
        let shut = |inode: &Arc<Inode>| {
            let gate = inode.gate.clone().try_write_owned().ok()?;
            let committing = inode.committing.clone().try_lock_owned().ok()?;
            let mut core = inode.core.lock();
            // Ordering: under the file's lock. An open that comes later finds nothing to believe, and waits at the gate:
            // without that its program could read pages that no lease covers.
            let is_shut = may(&core);
            if is_shut {
                core.hold.close();
            }
            drop(core);
            is_shut.then(|| Shut { inode: inode.clone(), _gate: gate, _committing: committing })
        };
        files.iter().filter_map(shut).collect()
    }

    /// Makes read leases of the write leases on these files. A file that the master refuses is dealt with as by any commit. Returns
    /// the files, which are still shut, unless it is not known what became of them.
    pub async fn lower(self: &Arc<Self>, shut: Vec<Shut>) -> Vec<Shut> {
        let generation = self.session.name().generation;
        let mut sent = Vec::with_capacity(shut.len());
        for Shut { inode, .. } in &shut {
            let core = inode.core.lock();
            if core.hold.lease_of(generation) == Lease::Write
                && let Some(file) = build(inode.id, &core, true)
            {
                sent.push((inode, file));
            }
        }
        if sent.is_empty() {
            return shut;
        }
        let asking = self.known.ask();
        let op = Op::Commit(Commit { files: sent.iter().map(|(_, file)| file.clone()).collect() });
        let reply = match self.session.meta_kept(&self.own, op, self.options.keep_names).await {
            Ok(reply) => reply,
            Err(error) => {
                let held = self.doubt_lowered(&sent, &error);
                let shared = self.clone();
                // Ordering: the files stay shut until the report is sent. A lease taken earlier could be mistaken for
                // the one in doubt.
                self.runtime.spawn("tell of leases in doubt", async move {
                    shared.report_held(held).await;
                    drop(shut);
                });
                return Vec::new();
            }
        };
        let refusals: BTreeMap<u64, Error> = reply.refusals.into_iter().map(|one| (one.inode, one.into())).collect();
        // An inode of a kind that this build does not know is no file of a lease.
        let released = reply.released.into_iter().filter_map(|attr| Attr::try_from(attr).ok());
        let attrs: BTreeMap<InodeId, Attr> = released.map(|attr| (attr.inode, attr)).collect();
        let leased: BTreeSet<InodeId> = reply.leased.into_iter().map(InodeId::new).collect();
        for (inode, file) in sent {
            if let Some(error) = refusals.get(&file.inode) {
                self.on_refused(inode, error);
                continue;
            }
            let mut core = inode.core.lock();
            // The session may have ended, and the lease with it, while the answer was on its way.
            if core.hold.lease_of(generation) != Lease::Write || core.hold.epoch().raw() != file.epoch {
                continue;
            }
            note_committed(&mut core, &file);
            let kept = leased.contains(&inode.id) && asking.is_undisturbed(inode.id);
            let attr = attrs.get(&inode.id).filter(|_| kept);
            core.lower_lease(attr.copied());
            // Ordering: under the file's lock, as answers are looked at.
            self.known.on_lowered(&asking, inode.id, attr.copied());
            drop(core);
            self.metrics.lowered_leases.add(1);
        }
        shut
    }

    /// These leases may have gone back, or a late message may still take them. So neither they nor a new lease under
    /// the same epoch are valid. They covered no dirty bytes. Returns the report for the master.
    fn doubt_lowered(self: &Arc<Self>, sent: &[(&Arc<Inode>, pb::CommitFile)], error: &Error) -> Vec<pb::Held> {
        tracing::info!(files = sent.len(), %error, "it is not known whether leases went back: they are not used any more");
        for (inode, _) in sent {
            self.lose_lease(inode, error);
        }
        sent.iter().map(|(_, file)| recall::lost(file.inode, file.epoch)).collect()
    }

    /// Gives back the leases of these files, and drops their bytes. A file that came into use meanwhile stays.
    pub async fn release_batch(self: &Arc<Self>, files: &[Arc<Inode>]) {
        let shut = self.lower(self.shut(files, is_idle)).await;
        let readers: Vec<&Arc<Inode>> =
            shut.iter().map(|one| &one.inode).filter(|inode| inode.core.lock().hold.lease() == Lease::Read).collect();
        if !readers.is_empty() {
            let inodes = readers.iter().map(|inode| inode.id.raw()).collect();
            let release = pb::Release { session: self.session.name().id.raw(), inodes };
            if let Err(error) = self.session.masters.call(&release, ATTEMPT, self.session.deadline()).await.result {
                // Where the master still counts a reader, it asks for the lease and learns that there is none.
                tracing::debug!(%error, "releasing read leases");
            }
        }
        for inode in readers {
            let mut core = inode.core.lock();
            if core.hold.lease() == Lease::Read {
                core.close_lease();
                self.close_descriptors(&core);
                self.known.on_unsure_attr(inode.id);
            }
        }
        for inode in shut.iter().map(|one| &one.inode) {
            let core = inode.core.lock();
            let forget = core.registered.may_be() && core.open_count == 0;
            let is_free = core.hold.lease() == Lease::None;
            drop(core);
            if is_free {
                self.cache.remove_inode(inode.id);
            }
            if forget {
                self.return_closed(inode.id);
            }
        }
    }
}

/// Whether a file is closed and everything that was written to it is committed.
pub(crate) fn is_idle(core: &Core) -> bool {
    core.open_count == 0
        && !core.unrecorded.any
        && core.dirty.is_empty()
        && core.channels.values().all(|one| one.is_quiet())
}

/// The files of `files` that are [`is_idle`] now.
pub(crate) fn idle_files(files: Vec<Arc<Inode>>) -> Vec<Arc<Inode>> {
    files.into_iter().filter(|inode| is_idle(&inode.core.lock())).collect()
}
