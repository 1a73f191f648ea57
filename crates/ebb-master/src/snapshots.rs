//! Snapshots of datasets: their files are still while one is taken, and what is left of a removed one goes step by step.
//!
//! ```text
//!  close: no new write lease  ->  recall those there are  ->  TakeSnapshot  ->  open again
//! ```
//! A file is still from its release until the entry of the log. So the tree is one cut, and has everything that was acknowledged
//! before. Whether all were still is the state machine's to say: it refuses while a file has a holder or is recovered. Nothing of this
//! is logged but the entry. A leader that dies on the way leaves open datasets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_types::{Credentials, DatasetId, ErrorKind, InodeId, Result, err};
use ebb_wire::pb;
use pb::command::Command;
use pb::meta_op::{self, Op};
use tokio::sync::Notify;

use crate::acquire::Turn;
use crate::leases::{MASTER, Mode};
use crate::shared::Shared;

/// Between two looks for removed snapshots.
const PERIOD: Duration = Duration::from_secs(2);
/// Between two steps of one. The commands of clients come between.
const PAUSE: Duration = Duration::from_millis(10);
/// Between two looks whether all files are still.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// After so many looks the recalls are sent again: another writer may have been before them in the queue.
const LOOKS_PER_RECALL: u32 = 50;

/// Datasets that give no write lease for a moment.
#[derive(Default)]
pub(crate) struct Closed {
    /// Number of reasons of each. None is 0.
    datasets: BTreeMap<DatasetId, u32>,
    opened: Arc<Notify>,
}

impl Closed {
    /// Whether new writers in the dataset of this file or directory have to wait.
    pub(crate) fn has(&self, machine: &Machine, inode: InodeId) -> bool {
        // Nearly always there is none, and each new writer and file asks.
        !self.datasets.is_empty()
            && machine.attr(inode).is_ok_and(|attr| self.datasets.contains_key(&DatasetId::new(attr.dataset)))
    }

    /// Announces each opening.
    pub(crate) fn opened(&self) -> Arc<Notify> {
        Arc::clone(&self.opened)
    }

    fn close(&mut self, dataset: DatasetId) {
        *self.datasets.entry(dataset).or_default() += 1;
    }

    fn open(&mut self, dataset: DatasetId) {
        let reasons =
            self.datasets.get_mut(&dataset).expect("a dataset is opened once for each time that it was closed");
        *reasons -= 1;
        if *reasons == 0 {
            self.datasets.remove(&dataset);
        }
        self.opened.notify_waiters();
    }
}

/// A dataset is closed until this is dropped.
pub(crate) struct Closing {
    shared: Arc<Shared>,
    dataset: DatasetId,
}

impl Closing {
    fn of(shared: &Arc<Shared>, dataset: DatasetId) -> Self {
        shared.soft().closed.close(dataset);
        Self { shared: Arc::clone(shared), dataset }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.shared.soft().closed.open(self.dataset);
    }
}

/// Closes a dataset, and waits until no file of it has a holder or is recovered. After `span` it returns all the same.
///
/// Errors: those of a caller who may not take a snapshot. It recalls nobody's leases.
pub(crate) async fn make_still(
    shared: &Arc<Shared>,
    take: &meta_op::TakeSnapshot,
    credentials: &Credentials,
    span: Duration,
) -> Result<Closing> {
    let dataset = DatasetId::new(take.dataset);
    shared.group.machine().check_may_snapshot(dataset, credentials)?;
    let until = shared.runtime.now().after(span);
    let closing = Closing::of(shared, dataset);
    let mut recalled = BTreeSet::new();
    for look in 0.. {
        let files: Vec<InodeId> = {
            let machine = shared.group.machine();
            machine.uncommitted_files_of(dataset).collect()
        };
        if files.is_empty() || until.since(shared.runtime.now()).is_zero() {
            break;
        }
        if look % LOOKS_PER_RECALL == 0 {
            recalled.clear();
        }
        for inode in files {
            // A file that goes meanwhile is in nobody's way.
            if recalled.insert(inode) {
                let _decision = Turn::queue(shared, MASTER, inode, Mode::Read).decide();
            }
        }
        shared.runtime.sleep(LOOK_AGAIN).await;
    }
    Ok(closing)
}

/// Waits while the dataset of a file that would be made is closed: it comes with its write lease.
///
/// Errors: `LeaseHeld` after `span`.
pub(crate) async fn wait_until_open(shared: &Shared, op: &Op, span: Duration) -> Result<()> {
    let Op::Create(create) = op else { return Ok(()) };
    let until = shared.runtime.now().after(span);
    let opened = shared.soft().closed.opened();
    loop {
        let opened = opened.notified();
        tokio::pin!(opened);
        // Ordering: registered before the look, so that an opening in between ends the wait.
        opened.as_mut().enable();
        {
            let machine = shared.group.machine();
            if !shared.soft().closed.has(&machine, InodeId::new(create.parent)) {
                return Ok(());
            }
        }
        let left = until.since(shared.runtime.now());
        if left.is_zero() {
            return Err(err!(LeaseHeld, "a snapshot is being taken, and new files wait for it"));
        }
        tokio::select! {
            biased;
            () = opened => {}
            () = shared.runtime.sleep(left) => {}
        }
    }
}

/// Frees what removed snapshots alone had. Runs until the master stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.is_stopped() {
        let removed = shared.group.machine().snapshots().find(|snapshot| snapshot.removed);
        if let Some(snapshot) = removed {
            match prune(&shared, snapshot.number).await {
                Ok(()) => tracing::info!(number = snapshot.number, "what a removed snapshot alone had is freed"),
                Err(error) => tracing::info!(%error, "a removed snapshot is not pruned yet; it is tried again"),
            }
        }
        shared.runtime.sleep(PERIOD).await;
    }
}

async fn prune(shared: &Shared, snapshot: u64) -> Result<()> {
    while !shared.is_stopped() {
        let step = Command::PruneSnapshot(pb::PruneSnapshot { snapshot, max: 0 });
        match shared.group.propose(step).await {
            Ok(_) => {}
            // The step before was the last one.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        shared.runtime.sleep(PAUSE).await;
    }
    Ok(())
}
