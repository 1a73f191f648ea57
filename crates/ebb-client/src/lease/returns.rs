//! Leases and registrations that go back unasked: leases on files that are gone, and registrations of closed files.
//!
//! No program waits for these, so all that come within a moment go together, carried by the committer's task. The
//! master asks for the rest itself: after a failed call, or where this client does not know of its lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{InodeId, Result, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Commit, Op};
use parking_lot::Mutex;

use crate::inode::{Core, Registered};
use crate::session::ATTEMPT;
use crate::shared::Shared;
use crate::write::committer::COMMIT_MAX;

/// How long something waits for more of its kind.
const GATHER: Duration = Duration::from_millis(100);

/// How long a file without a name stays for clients that have looked it up and are about to open it. The master's own
/// time is longer, so that no client finds a freed file.
const KEPT: Duration = Duration::from_secs(1);

/// Between looks whether questions that were under way have been answered.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Leases and registrations that wait to go back.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    state: Mutex<State>,
    /// A task looks at the files that the master asked about.
    is_looking: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Write leases on files without a name and without a handle: nothing of them is written any more.
    gone: Vec<pb::CommitFile>,
    /// Files that the master need not count this client among those that have them open.
    closed: BTreeSet<InodeId>,
    /// Since when there is something.
    since: Option<Moment>,
    /// Files whose bytes were thrown away, until the master has answered that it knows.
    thrown_away: BTreeSet<InodeId>,
    /// Closed files without a name, by the time when no client can open them any more.
    leaving: BTreeMap<InodeId, Moment>,
}

impl Returns {
    /// How long it is until something is due; `None`: there is nothing.
    pub fn wait(&self, now: Moment) -> Option<Duration> {
        let state = self.state.lock();
        let first = state.leaving.values().min().copied();
        let since = state.since.into_iter().chain(first).min()?;
        // A file's time may end in the future.
        Some(since.after(GATHER).since(now))
    }

    /// A file has lost its last name, and is not open here.
    pub fn leave(&self, inode: InodeId, now: Moment) {
        self.state.lock().leaving.entry(inode).or_insert(now.after(KEPT));
    }

    /// Whether a file stays only for clients that are about to open it.
    pub fn is_leaving(&self, inode: InodeId) -> bool {
        self.state.lock().leaving.contains_key(&inode)
    }

    /// Files that stay only for clients that are about to open them, with their times.
    pub fn leaving(&self) -> Vec<(InodeId, Moment)> {
        self.state.lock().leaving.iter().map(|(inode, until)| (*inode, *until)).collect()
    }

    /// Files whose time is over; without a time, all of them.
    pub fn take_left(&self, now: Option<Moment>) -> Vec<InodeId> {
        let mut state = self.state.lock();
        let left = |until: &Moment| now.is_none_or(|now| *until <= now);
        let gone = state.leaving.iter().filter(|(_, until)| left(until)).map(|(inode, _)| *inode).collect();
        state.leaving.retain(|_, until| !left(until));
        gone
    }

    /// True: it is the first since something went back.
    fn add(&self, now: Moment, add: impl FnOnce(&mut State)) -> bool {
        let mut state = self.state.lock();
        add(&mut state);
        let is_first = state.since.is_none();
        state.since.get_or_insert(now);
        is_first
    }

    fn take_all(&self) -> State {
        let mut state = self.state.lock();
        let (leaving, thrown_away) = (std::mem::take(&mut state.leaving), std::mem::take(&mut state.thrown_away));
        let taken = std::mem::take(&mut *state);
        (state.leaving, state.thrown_away) = (leaving, thrown_away);
        taken
    }

    /// A file is opened here, and stays for that: it goes when it is closed and the master asks for it. Fails as [`Returns::check`].
    pub fn on_open(&self, inode: InodeId) -> Result<()> {
        self.state.lock().leaving.remove(&inode);
        self.check(inode)
    }

    /// Fails with kind `Stale` if the bytes of a file were thrown away, and the master may not know yet.
    pub fn check(&self, inode: InodeId) -> Result<()> {
        if self.is_thrown_away(inode) {
            return Err(err!(Stale, "{inode} was removed"));
        }
        Ok(())
    }

    /// The bytes of a file are thrown away.
    pub fn throw_away(&self, inode: InodeId) {
        self.state.lock().thrown_away.insert(inode);
    }

    /// The session is over, and all leases with it.
    pub fn forget_thrown_away(&self) {
        self.state.lock().thrown_away.clear();
    }

    /// Whether the bytes of a file were thrown away, and the master may not know yet.
    pub fn is_thrown_away(&self, inode: InodeId) -> bool {
        self.state.lock().thrown_away.contains(&inode)
    }

    /// The master knows.
    pub fn on_removed_committed(&self, files: &[pb::CommitFile]) {
        let mut state = self.state.lock();
        for file in files {
            state.thrown_away.remove(&InodeId::new(file.inode));
        }
    }
}

impl Shared {
    /// The lease on a file that is gone goes back, as [`gone`] says it.
    pub fn return_gone(&self, file: pb::CommitFile) {
        let add = |state: &mut State| state.gone.push(file);
        if self.returns.add(self.runtime.now(), add) {
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

    /// The master counts these nameless files as open here. The closed ones among them are reported. It asks again,
    /// so one task at a time is enough.
    pub fn on_nameless(self: &Arc<Self>, asked: Vec<u64>) {
        if self.returns.is_looking.swap(true, Ordering::SeqCst) {
            return;
        }
        let shared = self.clone();
        self.runtime.spawn("look what is open", async move {
            // A file that is being made is not known here until the answer comes, and then it is open.
            let mark = shared.known.mark();
            while !shared.known.are_earlier_over(mark) {
                shared.runtime.sleep(LOOK_AGAIN).await;
            }
            asked.into_iter().for_each(|id| shared.say_if_closed(InodeId::new(id)));
            shared.returns.is_looking.store(false, Ordering::SeqCst);
        });
    }

    /// Reports the file as closed, whatever this client believes that the master knows.
    fn say_if_closed(&self, id: InodeId) {
        let inode = self.inode(id);
        let mut core = inode.core.lock();
        if core.open_count == 0 {
            tracing::debug!(inode = %id, registered = ?core.registered, "a removed file counts as open, and is closed");
            core.registered.raise(Registered::Maybe);
            self.return_closed(id);
        }
    }

    /// Gives back everything that waits.
    pub async fn give_back_idle(self: &Arc<Self>) {
        self.let_all_go(self.returns.take_left(Some(self.runtime.now()))).await;
        let State { gone, closed, .. } = self.returns.take_all();
        // Ordering: leases first. The master asks for the lease on a nameless file as soon as no client has it open.
        for part in gone.chunks(COMMIT_MAX) {
            match self.own_meta(Op::Commit(Commit { files: part.to_vec() })).await {
                Ok(_) => self.returns.on_removed_committed(part),
                Err(error) => tracing::debug!(%error, "giving back leases on files that are gone"),
            }
        }
        self.forget_closed(closed).await;
    }

    async fn forget_closed(&self, closed: BTreeSet<InodeId>) {
        let mut inodes = Vec::new();
        // Ordering: read before files are found closed. A file that is opened later has a higher number, and stays
        // open.
        let (opening, session) = (self.session.last_opening(), self.session.name());
        for id in closed {
            let Some(inode) = self.find(id) else { continue };
            let mut core = inode.core.lock();
            if core.open_count == 0 && core.registered.may_be() {
                core.registered = Registered::No;
                self.forgetting.lock().insert(id);
                inodes.push(id.raw());
            }
        }
        if inodes.is_empty() {
            return;
        }
        let forget = pb::Forget { session: session.id.raw(), inodes, opening };
        if let Err(error) = self.session.masters.call(&forget, ATTEMPT, self.session.deadline()).await.result {
            tracing::debug!(%error, "forgetting closed files");
            if session == self.session.name() {
                self.note_unforgotten(&forget.inodes);
            }
        }
        self.forgetting.lock().clear();
        self.forgotten.notify_waiters();
    }
}

impl Shared {
    /// They may count as open still.
    fn note_unforgotten(&self, inodes: &[u64]) {
        for inode in inodes.iter().filter_map(|id| self.find(InodeId::new(*id))) {
            inode.core.lock().registered.raise(Registered::Maybe);
        }
    }
}

/// The commit that tells the master that a nameless file gets no more writes.
pub(crate) fn gone(id: InodeId, core: &Core) -> pb::CommitFile {
    pb::CommitFile {
        inode: id.raw(),
        epoch: core.hold.epoch().raw(),
        size: core.attr.as_ref().map_or(0, |attr| attr.size),
        release: true,
        gone: true,
        ..Default::default()
    }
}
