//! Snapshots of datasets, by the directories that these are rooted at.

use ebb_types::snapshot::DIRECTORY;
use ebb_types::{ErrorKind, Result, bail, err};
use ebb_wire::pb;
use pb::meta_op::{ListDatasets, Op, RemoveSnapshot, RenameSnapshot, TakeSnapshot};

use super::Caller;
use crate::path::EbbPath;

/// The master waits for writers in each attempt. Another writer may come between two of them.
const ATTEMPTS: u32 = 5;

impl Caller {
    /// Takes a snapshot of the dataset that is rooted at a directory.
    ///
    /// # Errors
    /// `Invalid` for a directory that is no dataset's; `Busy` if files are written and their writers do not answer; `Exists`.
    pub async fn take_snapshot(&self, path: &EbbPath, name: &[u8]) -> Result<()> {
        let dataset = self.rooted_at(path).await?.id;
        for attempt in 1.. {
            let take = Op::TakeSnapshot(TakeSnapshot { dataset, name: name.to_vec() });
            match self.client.meta(&self.credentials, take).await {
                Err(error) if error.kind() == ErrorKind::Busy && attempt < ATTEMPTS => {}
                taken => return taken.map(drop),
            }
        }
        unreachable!("the last attempt returns");
    }

    /// Removes a snapshot. What it alone had is freed in the background.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub async fn remove_snapshot(&self, path: &EbbPath, name: &[u8]) -> Result<()> {
        let dataset = self.rooted_at(path).await?.id;
        let snapshot = self.snapshot_number(dataset, name).await?;
        let remove = Op::RemoveSnapshot(RemoveSnapshot { dataset, snapshot });
        self.client.meta(&self.credentials, remove).await.map(drop)
    }

    /// Gives a snapshot another name.
    ///
    /// # Errors
    /// `NotFound` if there is none of the old name, `Exists` if there is one of the new.
    pub async fn rename_snapshot(&self, path: &EbbPath, old: &[u8], new: &[u8]) -> Result<()> {
        let dataset = self.rooted_at(path).await?.id;
        let snapshot = self.snapshot_number(dataset, old).await?;
        let rename = Op::RenameSnapshot(RenameSnapshot { dataset, snapshot, name: new.to_vec() });
        self.client.meta(&self.credentials, rename).await.map(drop)
    }

    async fn rooted_at(&self, path: &EbbPath) -> Result<pb::Dataset> {
        let attr = self.resolve(path).await?;
        let dataset = self.dataset(&attr).await?;
        if dataset.root_inode != attr.inode.raw() {
            bail!(
                Invalid,
                "snapshots are of whole datasets, and that of {} is rooted at {}",
                path.shown(),
                dataset.path
            );
        }
        Ok(dataset)
    }

    async fn snapshot_number(&self, dataset: u64, name: &[u8]) -> Result<u64> {
        let list = Op::ListDatasets(ListDatasets { snapshots_of: Some(dataset) });
        let snapshots = self.client.meta(&self.credentials, list).await?.snapshots;
        let found = snapshots.iter().find(|snapshot| snapshot.name == name).map(|snapshot| snapshot.number);
        let shown = String::from_utf8_lossy(name);
        found.ok_or_else(|| err!(NotFound, "there is no {}/{shown}", String::from_utf8_lossy(DIRECTORY)))
    }
}
