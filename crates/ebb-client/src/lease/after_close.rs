//! A client that keeps nothing of closed files gives their leases back at once, many in a command.
//!
//! For programs that may be killed at any time, as jobs are. Where such a client dies, nobody waits for the end of its
//! session because of a file that it had closed.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_types::InodeId;
use parking_lot::Mutex;

use crate::shared::Shared;

/// Closed files whose leases are to go back.
#[derive(Debug, Default)]
pub(crate) struct AfterClose(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    due: BTreeSet<InodeId>,
    /// A task takes what is due.
    is_running: bool,
}

impl AfterClose {
    /// Adds a file. True: the caller starts the task.
    fn add(&self, inode: InodeId) -> bool {
        let mut state = self.0.lock();
        state.due.insert(inode);
        !std::mem::replace(&mut state.is_running, true)
    }

    /// What is due. Nothing: the task ends, and the next file starts another one.
    fn take_due(&self) -> BTreeSet<InodeId> {
        let mut state = self.0.lock();
        state.is_running = !state.due.is_empty();
        std::mem::take(&mut state.due)
    }
}

impl Shared {
    /// A file was closed, and its lease goes back, with those of others that are closed while the ones before are on
    /// their way.
    pub fn release_after_close(self: &Arc<Self>, inode: InodeId) {
        if !self.after_close.add(inode) {
            return;
        }
        let shared = self.clone();
        self.runtime.spawn("release closed files", async move {
            loop {
                let due = shared.after_close.take_due();
                if due.is_empty() {
                    return;
                }
                let files: Vec<_> = due.iter().filter_map(|id| shared.find(*id)).collect();
                shared.release_files(&files).await;
            }
        });
    }
}
