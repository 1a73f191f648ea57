//! After faults: every snapshot is read as a whole, then all are removed, and nothing of them is left.

use std::time::Duration;

use ebb_client::Client;
use ebb_runtime::Runtime;
use ebb_types::{Credentials, Result};
use ebb_wire::pb::meta_op::{Op, RemoveSnapshot};

use super::work::Taker;
use super::{Standing, list, live_inode};
use crate::files::directory_of;
use crate::invariants::Violation;
use crate::workload::{Board, LOGS, PLACED, RUN_MAX};

/// More cells of a shared file than are ever written, and of an own one.
const CELLS: u64 = 1200;
const OWN_CELLS: u64 = 320;

/// A look through a session without caches.
pub struct LookAtRest<'a> {
    /// The run.
    pub board: &'a Board,
    /// The session.
    pub client: Client,
    /// Its process.
    pub runtime: Runtime,
    /// Inodes of the files that are only renamed.
    pub tokens: &'a [u64],
    /// How many clients have a directory of their own.
    pub clients: usize,
}

impl LookAtRest<'_> {
    /// Reads all snapshots and removes them. Within `longest` nothing of them is left.
    ///
    /// Errors: a read or a listing that fails, though nothing is broken.
    pub async fn run(&self, longest: Duration) -> Result<Vec<Violation>> {
        let taker = Taker::new(self.board.clone(), usize::MAX, self.client.clone(), self.runtime.clone());
        let (dataset, listed) = list(&self.client).await?;
        let mut violations = self.compare(|name| listed.contains_key(name));
        for name in listed.keys() {
            violations.extend(self.read_whole(&taker, name).await?);
        }
        for snapshot in listed.into_values() {
            let op = Op::RemoveSnapshot(RemoveSnapshot { dataset: dataset.id, snapshot });
            self.client.meta(&Credentials::root(), op).await?;
        }
        violations.extend(self.wait_for_the_end(longest).await?);
        Ok(violations)
    }

    /// Those that were taken are there, and those that were removed are not.
    fn compare(&self, is_listed: impl Fn(&str) -> bool) -> Vec<Violation> {
        let now = self.board.now();
        let mut history = self.board.history.lock();
        let compare = |(name, taken): (&String, &mut super::Snapshot)| match (taken.standing, is_listed(name)) {
            (Standing::There, false) => Some(Violation::new("cut", format!("{name} was taken, and is not there"))),
            (Standing::Gone, true) => Some(Violation::new("cut", format!("{name} was removed, and is there"))),
            (Standing::Asked, true) => {
                taken.is_seen(now);
                None
            }
            _ => None,
        };
        history.snapshots_mut().iter_mut().filter_map(compare).collect()
    }

    async fn read_whole(&self, taker: &Taker, name: &str) -> Result<Option<Violation>> {
        let top = taker.top(name).await?;
        for file in 0..PLACED + LOGS {
            for first in (0..CELLS).step_by(RUN_MAX as usize) {
                taker.read_shared(name, top, file, first, RUN_MAX).await?;
            }
        }
        let mut directories = vec![top];
        for client in 0..self.clients {
            let found = self.client.lookup(&Credentials::root(), top, directory_of(client).as_bytes()).await?;
            directories.push(found.inode);
        }
        for directory in directories {
            for (file, inode) in taker.own_files_in(directory).await? {
                for first in (0..OWN_CELLS).step_by(RUN_MAX as usize) {
                    taker.read(name, file, inode, first, RUN_MAX).await?;
                }
            }
        }
        let listed = taker.names_in(top).await?.into_iter().filter(|(name, _)| name.starts_with('t'));
        let mut tokens: Vec<u64> = listed.map(|(_, inode)| live_inode(inode)).collect();
        tokens.sort_unstable();
        let mut wanted = self.tokens.to_vec();
        wanted.sort_unstable();
        // A rename is in a snapshot or not, and a file never has both names or none.
        let detail = format!("{name} has the inodes {tokens:?} under names, and {wanted:?} were made");
        Ok((tokens != wanted).then(|| Violation::new("cut", detail)))
    }

    async fn wait_for_the_end(&self, longest: Duration) -> Result<Option<Violation>> {
        let until = self.runtime.now().after(longest);
        loop {
            let (dataset, left) = list(&self.client).await?;
            if dataset.kept_bytes == 0 && left.is_empty() {
                return Ok(None);
            }
            if until.since(self.runtime.now()).is_zero() {
                let detail = format!("{} bytes are kept for no snapshot; listed: {left:?}", dataset.kept_bytes);
                return Ok(Some(Violation::new("cut", detail)));
            }
            self.runtime.sleep(Duration::from_secs(1)).await;
        }
    }
}
