//! Reports to the master: all replicas of the volumes.
//!
//! The master needs the first report, at registration, before it may delete anything. The later ones find two things
//! that no message carries. A write that was under way for long makes a replica on a volume that left its set, after
//! the master asked for it and heard that there is none. And a file is gone whose loss no reader has met. However
//! late that happens, the next round finds it.

use std::time::Duration;

use ebb_runtime::Moment;
use ebb_store::Volume;
use ebb_types::{MetablockId, Result};
use ebb_wire::pb;

use crate::node::Node;
use crate::register::{DEADLINE, Masters};

/// Replicas in one part of a report.
const PART: usize = 8192;

/// Reports a volume as a whole.
pub(crate) async fn all(node: &Node, masters: &mut Masters, volume: &Volume) -> Result<()> {
    let mut after = None;
    loop {
        after = part(node, masters, volume, after).await?;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Reports the replicas after `after`; returns where the next part begins, none after the last.
async fn part(
    node: &Node,
    masters: &mut Masters,
    volume: &Volume,
    after: Option<MetablockId>,
) -> Result<Option<MetablockId>> {
    let part = volume.report(after, PART);
    let next = part.last().map(|one| one.metablock).filter(|_| part.len() == PART);
    let replicas = part
        .into_iter()
        .map(|one| pb::ReplicaState {
            metablock: one.metablock.raw(),
            version: Some(one.version.into()),
            promised_epoch: one.promised.raw(),
            length: one.length,
            corrupt: one.corrupt,
        })
        .collect();
    let (id, boot, volume) = (node.raw_id(), node.boot.raw(), volume.id().raw());
    masters.call(&pb::ReplicaReport { node: id, boot, volume, replicas, last: next.is_none() }, DEADLINE).await?;
    Ok(next)
}

/// Reports that follow the first one: a part with each heartbeat while a round is under way.
#[derive(Debug)]
pub(crate) struct Rounds {
    every: Duration,
    due: Moment,
    /// Which volume the next part is of, and where in it the part begins.
    place: (usize, Option<MetablockId>),
}

impl Rounds {
    /// The first round comes at a moment drawn by chance, so that the nodes of a cluster that were started together do
    /// not all report at a time. Zero: there are no rounds.
    pub(crate) fn new(node: &Node, every: Duration) -> Self {
        let share = node.runtime.random_u64() as f64 / u64::MAX as f64;
        Self { every, due: node.runtime.now().after(every.mul_f64(share)), place: (0, None) }
    }

    /// Sends the next part, if it is time. One that is not answered is sent again with the next heartbeat.
    pub(crate) async fn step(&mut self, node: &Node, masters: &mut Masters) -> Result<()> {
        let (index, after) = self.place;
        if self.every.is_zero() || node.runtime.now() < self.due {
            return Ok(());
        }
        if let Some(volume) = node.volumes.get(index) {
            self.place = match part(node, masters, volume, after).await? {
                Some(next) => (index, Some(next)),
                None => (index + 1, None),
            };
        }
        if self.place.0 >= node.volumes.len() {
            self.place = (0, None);
            self.due = node.runtime.now().after(self.every);
        }
        Ok(())
    }
}
