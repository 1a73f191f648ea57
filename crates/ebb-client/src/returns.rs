//! What goes back to the master because nobody needs it: leases on files that are gone, and registrations of closed ones.
//!
//! Nobody waits for it, so it goes together with what comes within a moment, carried by the committer's task. What is not
//! given back so (a call failed, the session ended) the master asks for itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::InodeId;
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Commit, Op};
use parking_lot::Mutex;

use crate::committer::COMMIT_MAX;
use crate::inode::Core;
use crate::session::ATTEMPT;
use crate::shared::Shared;

/// How long something waits for more of its kind.
const GATHER: Duration = Duration::from_millis(100);

/// What waits to go back.
#[derive(Debug, Default)]
pub(crate) struct Returns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Write leases on files without a name and without a handle: nothing of them is written any more.
    gone: Vec<pb::CommitFile>,
    /// Files that the master need not count this client among those that have them open.
    closed: BTreeSet<InodeId>,
    /// Since when there is something.
    since: Option<Moment>,
}

impl Returns {
    /// How long it is until something is due; `None`: there is nothing.
    pub fn wait(&self, now: Moment) -> Option<Duration> {
        let since = self.0.lock().since?;
        Some(GATHER.saturating_sub(now.since(since)))
    }

    /// True: it is the first since something went back.
    fn add(&self, now: Moment, add: impl FnOnce(&mut State)) -> bool {
        let mut state = self.0.lock();
        add(&mut state);
        let is_first = state.since.is_none();
        state.since.get_or_insert(now);
        is_first
    }

    fn take(&self) -> State {
        std::mem::take(&mut self.0.lock())
    }
}

impl Shared {
    /// The lease on a file that is gone goes back, as [`gone`] says it.
    pub fn return_gone(&self, file: pb::CommitFile) {
        if self.returns.add(self.runtime.now(), |state| state.gone.push(file)) {
            self.queue.wake();
        }
    }

    /// The file is closed, and need not be kept for this client's sake.
    pub fn return_closed(&self, inode: InodeId) {
        let add = |state: &mut State| {
            state.closed.insert(inode);
        };
        if self.returns.add(self.runtime.now(), add) {
            self.queue.wake();
        }
    }

    /// Gives back what waits.
    pub async fn give_back_idle(self: &Arc<Self>) {
        let State { gone, closed, .. } = self.returns.take();
        // Ordering: leases first. The master asks for the one on a file without a name once nobody has it open.
        for part in gone.chunks(COMMIT_MAX) {
            if let Err(error) = self.own_meta(Op::Commit(Commit { files: part.to_vec() })).await {
                tracing::debug!(%error, "giving back leases on files that are gone");
            }
        }
        self.forget_closed(closed).await;
    }

    async fn forget_closed(&self, closed: BTreeSet<InodeId>) {
        let mut inodes = Vec::new();
        for id in closed {
            let Some(inode) = self.find(id) else { continue };
            let mut core = inode.core.lock();
            if core.open_count == 0 && (core.registered || core.maybe_registered) {
                core.registered = false;
                core.maybe_registered = false;
                self.forgetting.lock().insert(id);
                inodes.push(id.raw());
            }
        }
        if inodes.is_empty() {
            return;
        }
        let forget = pb::Forget { session: self.session.name().id.raw(), inodes };
        if let Err(error) = self.session.masters.call(&forget, ATTEMPT, self.session.deadline()).await.result {
            tracing::debug!(%error, "forgetting closed files");
        }
        self.forgetting.lock().clear();
        self.forgotten.notify_waiters();
    }
}

/// What tells the master that nothing of a file without a name will be written any more.
pub(crate) fn gone(id: InodeId, core: &Core) -> pb::CommitFile {
    pb::CommitFile {
        inode: id.raw(),
        epoch: core.epoch.raw(),
        size: core.attr.as_ref().map_or(0, |attr| attr.size),
        release: true,
        ..Default::default()
    }
}
