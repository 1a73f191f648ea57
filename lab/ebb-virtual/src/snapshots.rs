//! Snapshots of the run's dataset: clients take, read and remove them while everything else goes on.
//!
//! No promise is checked here but that names are there. [`crate::invariants::cut`] checks what was read, as it would check a read of
//! the files at the moment at which the snapshot was taken.

mod rest;
pub mod work;

use std::collections::BTreeMap;

use ebb_client::Client;
use ebb_types::{Credentials, InodeId, Result, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{ListDatasets, Op};

pub use self::rest::LookAtRest;
use crate::cell::Value;
use crate::history::Time;

/// The root directory of the dataset.
pub(crate) const ROOT: &str = "/run";

/// Snapshots by name. No name is given twice.
pub type Snapshots = BTreeMap<String, Snapshot>;

/// How certain it is that a snapshot can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It was asked for, and no answer said that it is there.
    Asked,
    /// It is there, and nobody has asked for its removal.
    There,
    /// Its removal was asked for.
    Leaving,
    /// Its removal was answered.
    Gone,
}

/// A snapshot, as its client knows it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Before it was asked for.
    pub start: Time,
    /// When it was certainly taken: its answer, or the first time that it was found.
    pub end: Option<Time>,
    /// Whether it is there.
    pub standing: Standing,
    /// What was read in it.
    pub looks: Vec<Look>,
}

/// A read in a snapshot.
#[derive(Clone, Debug)]
pub struct Look {
    /// Which file.
    pub file: usize,
    /// What was met, by cell.
    pub values: Vec<(u64, Value)>,
}

impl Snapshot {
    fn asked(start: Time) -> Self {
        Self { start, end: None, standing: Standing::Asked, looks: Vec::new() }
    }

    /// It was found, or its client had an answer.
    fn is_seen(&mut self, now: Time) {
        self.end.get_or_insert(now);
        if self.standing == Standing::Asked {
            self.standing = Standing::There;
        }
    }
}

/// The run's dataset, and its snapshots by name and number.
pub(crate) async fn list(client: &Client) -> Result<(pb::Dataset, BTreeMap<String, u64>)> {
    let all = Op::ListDatasets(ListDatasets::default());
    let datasets = client.meta(&Credentials::root(), all).await?.datasets;
    let found = datasets.into_iter().find(|dataset| dataset.path == ROOT);
    let Some(dataset) = found else { return Err(err!(NotFound, "no dataset is at {ROOT}")) };
    let own = Op::ListDatasets(ListDatasets { snapshots_of: Some(dataset.id) });
    let snapshots = client.meta(&Credentials::root(), own).await?.snapshots;
    let named = snapshots.iter().map(|one| (String::from_utf8_lossy(&one.name).into_owned(), one.number));
    Ok((dataset, named.collect()))
}

/// The number under which the live tree has an inode of a snapshot.
fn live_inode(inode: InodeId) -> u64 {
    inode.shown().map_or(inode, |shown| shown.inode).raw()
}
