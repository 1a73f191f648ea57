//! One stay of a file at this proxy: from the grant of its lease to the end of it.

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
use crate::requests::RequestName;
use crate::tickets::{Ticket, Tickets};
use crate::unheard::Unheard;
use crate::unsynced::Unsynced;
use crate::uses::Uses;

/// A file that the proxy holds. Its handles are closed when the last operation has dropped it.
pub(crate) struct SharedFile {
    client: Client,
    /// The file.
    pub inode: InodeId,
    /// Epoch of the lease.
    pub epoch: Epoch,
    /// How often the file was taken over before this stay.
    pub takeovers: u64,
    /// Ranges of operations in progress.
    pub ranges: Arc<Ranges>,
    /// Handle that does not depend on the epoch.
    base: Handle,
    /// Pinned handle, for syncs that no client requested.
    own: Handle,
    state: Mutex<State>,
    unheard: Arc<Mutex<Unheard>>,
}

struct State {
    /// One pinned handle for each session, so that each session gets an error of background work.
    handles: BTreeMap<SessionId, Handle>,
    uses: Uses,
    unsynced: Unsynced,
    tickets: Tickets<Taken>,
}

impl SharedFile {
    /// A file that was opened as `base` and is held under `epoch`.
    pub fn new(client: Client, inode: InodeId, base: Handle, epoch: Epoch, now: Moment) -> Result<Self> {
        let held = client.pin(base, epoch).and_then(|own| Ok((own, client.takeovers(base)?)));
        let (own, takeovers) = match held {
            Ok(held) => held,
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
            takeovers,
            ranges: Arc::default(),
            base,
            own,
            state: Mutex::new(state),
            unheard: Arc::default(),
        })
    }

    /// Whether the proxy still has the lease under this epoch.
    pub fn is_held(&self) -> bool {
        self.client.is_held(self.inode, self.epoch)
    }

    /// Whether the lease was given back with everything synced.
    pub fn was_given_back(&self) -> bool {
        self.client.was_given_back(self.inode, self.epoch)
    }

    /// Starts an operation of a session. It ends when the returned guard is dropped.
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

    /// Whether the lease may be given back: at most one session has used the file for `span`.
    pub fn is_quiet(&self, now: Moment, span: Duration) -> bool {
        self.state.lock().uses.is_quiet(now, span)
    }

    /// Closes the handles of sessions that have not used the file for `span`.
    pub fn close_idle(&self, now: Moment, span: Duration) {
        let mut state = self.state.lock();
        for session in state.uses.take_idle(now, span) {
            self.unheard.lock().forget(session);
            if let Some(handle) = state.handles.remove(&session) {
                self.client.close_now(handle);
            }
        }
    }

    /// Whether this session may start a further direct write.
    pub fn takes_tickets(&self, session: SessionId) -> bool {
        self.state.lock().tickets.has_room(session)
    }

    /// Records the ticket of a direct write, with its place in the queue.
    pub fn give_ticket(
        &self,
        name: RequestName,
        range: Range<u64>,
        parts: Vec<pb::DirectPart>,
        place: Taken,
        now: Moment,
    ) {
        self.state.lock().tickets.give(name, range, parts, place, now);
    }

    /// Redeems a ticket. None if it is unknown or too old.
    pub fn take_ticket(&self, name: RequestName, now: Moment) -> Option<Ticket<Taken>> {
        self.state.lock().tickets.redeem(name, now)
    }

    /// Drops the bytes that were put for a ticket.
    pub fn drop_put(&self, name: RequestName, parts: &[pb::DirectPart]) {
        self.client.drop_direct(name.to_ticket(), parts);
    }

    /// Ends direct writes whose tickets were not redeemed in time.
    pub fn end_old_tickets(&self, now: Moment) {
        let old = self.state.lock().tickets.take_old(now);
        for (name, ticket) in old {
            tracing::debug!(inode = %self.inode, session = %name.session, "a direct write is given up");
            self.drop_put(name, &ticket.parts);
        }
    }

    /// Records a write of a session.
    pub fn note_written(&self, session: SessionId, range: Range<u64>) {
        self.state.lock().unsynced.add(session, range);
        self.note_changed(session);
    }

    /// Records a change of a session, before the session gets its answer.
    pub fn note_changed(&self, session: SessionId) {
        self.unheard.lock().on_changed(session);
    }

    /// Syncs for a session that requests it. `answered` is the number of changes whose answers the session had when it
    /// asked.
    pub async fn sync_for(&self, session: SessionId, handle: Handle, answered: Option<u64>) -> Result<()> {
        let mark = self.unheard.lock().mark();
        self.sync(handle).await?;
        self.unheard.lock().on_heard(session, mark, answered);
        Ok(())
    }

    /// Sessions that wrote and do not know that their writes are synced. This outlives the stay.
    pub fn unheard(&self) -> Arc<Mutex<Unheard>> {
        Arc::clone(&self.unheard)
    }

    /// Syncs everything that was written before, through a session's handle.
    pub async fn sync(&self, handle: Handle) -> Result<()> {
        // Ordering: the mark is taken before the sync starts. A write that comes during the sync may miss it.
        let mark = self.state.lock().unsynced.mark();
        self.client.fsync(handle).await?;
        self.state.lock().unsynced.on_synced(mark);
        Ok(())
    }

    /// Syncs the writes of others that a session has read.
    pub async fn settle_read(&self, session: SessionId, range: &Range<u64>) -> Result<()> {
        // I-40: a reader that has seen the bytes must never see them disappear.
        let concerns = self.state.lock().unsynced.concerns(session, range);
        if concerns { self.sync(self.own).await } else { Ok(()) }
    }
}

/// An operation of a session that is under way. The session's handle stays open until it is dropped.
pub(crate) struct InUse {
    /// The session's handle.
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
