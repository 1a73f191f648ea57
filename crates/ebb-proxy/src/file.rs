//! One stay of a file at this proxy: from taking its lease to the end of that.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ebb_client::{Client, Handle};
use ebb_runtime::{Moment, Runtime};
use ebb_types::{Epoch, InodeId, Result, SessionId};
use ebb_wire::pb;
use parking_lot::Mutex;

use crate::ranges::{Ranges, Taken};
use crate::tickets::{Ticket, Tickets};
use crate::unheard::Unheard;
use crate::unsynced::Unsynced;
use crate::uses::Uses;

/// A file that is held. Its handles are closed when the last operation has let go of it.
pub(crate) struct SharedFile {
    client: Client,
    /// Which.
    pub inode: InodeId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// Operations in progress.
    pub ranges: Arc<Ranges>,
    /// Open without regard to the epoch.
    base: Handle,
    /// Pinned, for syncs that no client asked for.
    own: Handle,
    state: Mutex<State>,
    unheard: Arc<Mutex<Unheard>>,
}

struct State {
    /// Pinned, one for each session, so that an error of background work is told to each.
    handles: BTreeMap<SessionId, Handle>,
    uses: Uses,
    unsynced: Unsynced,
    tickets: Tickets<Taken>,
}

impl SharedFile {
    /// A file that was opened as `base` and is held under `epoch`.
    pub fn new(client: Client, inode: InodeId, base: Handle, epoch: Epoch, now: Moment) -> Result<Self> {
        let own = match client.pin(base, epoch) {
            Ok(own) => own,
            Err(error) => {
                client.close_now(base);
                return Err(error);
            }
        };
        let state = State {
            handles: BTreeMap::new(),
            uses: Uses::new(now),
            unsynced: Unsynced::default(),
            tickets: Tickets::default(),
        };
        Ok(Self {
            client,
            inode,
            epoch,
            ranges: Arc::default(),
            base,
            own,
            state: Mutex::new(state),
            unheard: Arc::default(),
        })
    }

    /// Whether the lease is still held under this epoch.
    pub fn is_held(&self) -> bool {
        self.client.is_held(self.inode, self.epoch)
    }

    /// Whether the lease went back with everything synced.
    pub fn was_given_back(&self) -> bool {
        self.client.was_given_back(self.inode, self.epoch)
    }

    /// An operation of a session begins; it ends when the answer is dropped.
    pub fn begin_operation(self: &Arc<Self>, session: SessionId, runtime: &Runtime) -> Result<InUse> {
        let mut state = self.state.lock();
        let handle = match state.handles.get(&session) {
            Some(handle) => *handle,
            None => {
                let handle = self.client.pin(self.base, self.epoch)?;
                state.handles.insert(session, handle);
                handle
            }
        };
        state.uses.begin_operation(session, runtime.now());
        drop(state);
        Ok(InUse { handle, file: Arc::clone(self), session, runtime: runtime.clone() })
    }

    /// Whether it may go back, now that no more than one session has used it for `span`.
    pub fn is_quiet(&self, now: Moment, span: Duration) -> bool {
        self.state.lock().uses.is_quiet(now, span)
    }

    /// Closes the handles of sessions that have not used it for `span`.
    pub fn close_idle(&self, now: Moment, span: Duration) {
        let mut state = self.state.lock();
        for session in state.uses.take_idle(now, span) {
            self.unheard.lock().forget(session);
            if let Some(handle) = state.handles.remove(&session) {
                self.client.close_now(handle);
            }
        }
    }

    /// Whether another direct write of this session may be on its way.
    pub fn takes_tickets(&self, session: SessionId) -> bool {
        self.state.lock().tickets.has_room(session)
    }

    /// A direct write has its place.
    pub fn give_ticket(
        &self,
        name: (SessionId, u64),
        range: Range<u64>,
        parts: Vec<pb::DirectPart>,
        place: Taken,
        now: Moment,
    ) {
        self.state.lock().tickets.give(name, range, parts, place, now);
    }

    /// Its client comes back.
    pub fn take_ticket(&self, name: (SessionId, u64), now: Moment) -> Option<Ticket<Taken>> {
        self.state.lock().tickets.redeem(name, now)
    }

    /// What was put for a ticket is not written.
    pub fn drop_put(&self, name: (SessionId, u64), parts: &[pb::DirectPart]) {
        self.client.drop_direct(pb::Ticket { session: name.0.raw(), request: name.1 }, parts);
    }

    /// Ends direct writes whose clients do not come back.
    pub fn end_old_tickets(&self, now: Moment) {
        let old = self.state.lock().tickets.take_old(now);
        for (name, ticket) in old {
            tracing::debug!(inode = %self.inode, session = %name.0, "a direct write is given up");
            self.drop_put(name, &ticket.parts);
        }
    }

    /// A session wrote here.
    pub fn note_written(&self, session: SessionId, range: Range<u64>) {
        self.state.lock().unsynced.add(session, range);
        self.note_changed(session);
    }

    /// A session changed something here, and is about to be answered.
    pub fn note_changed(&self, session: SessionId) {
        self.unheard.lock().on_changed(session);
    }

    /// Syncs for a session that asks for it, and hears of it with the answer. `answered`: of how many of its changes it had
    /// the answers when it asked.
    pub async fn sync_for(&self, session: SessionId, handle: Handle, answered: Option<u64>) -> Result<()> {
        let mark = self.unheard.lock().mark();
        self.sync(handle).await?;
        self.unheard.lock().on_heard(session, mark, answered);
        Ok(())
    }

    /// Sessions that wrote, and have not heard that it is synced. It outlives the stay.
    pub fn unheard(&self) -> Arc<Mutex<Unheard>> {
        Arc::clone(&self.unheard)
    }

    /// Syncs through a session's handle; what was written before is on disks then.
    pub async fn sync(&self, handle: Handle) -> Result<()> {
        let mark = self.state.lock().unsynced.mark();
        self.client.fsync(handle).await?;
        self.state.lock().unsynced.on_synced(mark);
        Ok(())
    }

    /// Makes sure that what a session has read of others' writes is on disks.
    pub async fn settle_read(&self, session: SessionId, range: &Range<u64>) -> Result<()> {
        let concerns = self.state.lock().unsynced.concerns(session, range);
        if concerns { self.sync(self.own).await } else { Ok(()) }
    }
}

/// An operation of a session that is under way: as long as it is, however long, the session's handle stays open.
pub(crate) struct InUse {
    /// The session's.
    pub handle: Handle,
    file: Arc<SharedFile>,
    session: SessionId,
    runtime: Runtime,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.file.state.lock().uses.end(self.session, self.runtime.now());
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        for handle in self.state.get_mut().handles.values() {
            self.client.close_now(*handle);
        }
        self.client.close_now(self.own);
        self.client.close_now(self.base);
    }
}
