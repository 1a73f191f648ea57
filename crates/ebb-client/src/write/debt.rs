//! Writers wait when a sleeping member would have to take more bytes than it can within an interval
//! (docs/power/sleeping-nodes.md, "Debt limit").
//!
//! The debt of this client to a node lies in its memory: dirty bytes, and writes that the node has not synced. Nothing
//! is counted as long as all dirty bytes together are at most what each of the members can take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_power::debt;
use ebb_types::{NodeId, Result};
use tokio::sync::MutexGuard;

use crate::inode::{Core, Inode};
use crate::lease::hold::Lease;
use crate::shared::Shared;

/// Longest and shortest time between two counts. Bytes that are given back start the next count early, but each count
/// visits all files.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_LEAST: Duration = Duration::from_millis(10);

impl Shared {
    /// Waits until `bytes` at `offset`, which lie within one block and are in the budget already, may wait for the
    /// members of their metablock. No other write gets in before the answer is dropped; none if no member sleeps.
    /// `Timeout` after the operation's deadline.
    pub async fn admit(
        self: &Arc<Self>,
        inode: &Inode,
        offset: u64,
        bytes: usize,
    ) -> Result<Option<MutexGuard<'_, ()>>> {
        let admission = self.try_admit(inode, offset, bytes).await;
        if let Some(admission) = admission {
            return Ok(admission);
        }
        self.metrics.waited_writes.add(1);
        let waiting = async {
            loop {
                // The bytes that this write waits for must be on their way.
                self.queue.hurry();
                self.runtime.sleep(LOOK_LEAST).await;
                if let Some(admission) = self.try_admit(inode, offset, bytes).await {
                    return Ok(admission);
                }
                tokio::select! {
                    biased;
                    () = self.budget.given() => {}
                    () = self.runtime.sleep(LOOK) => {}
                }
            }
        };
        let purpose = "waiting for members that sleep: they take no more within an interval";
        let _entry = self.enter_wait("members that sleep: they take no more within an interval");
        self.runtime.timeout(self.session.deadline(), purpose, waiting).await
    }

    /// `None`: the write has to wait.
    async fn try_admit(&self, inode: &Inode, offset: u64, bytes: usize) -> Option<Option<MutexGuard<'_, ()>>> {
        if self.plan_version() == 0 {
            // No node sleeps, so there is nothing to look up for each write.
            return Some(None);
        }
        let rooms = self.rooms(&members(&inode.core.lock(), offset));
        let Some(least) = rooms.values().min() else { return Some(None) };
        let admitting = self.admitting.lock().await;
        // The budget includes these bytes already.
        let is_little = self.budget.used() as u64 <= *least;
        (is_little || self.fits(&rooms, bytes as u64)).then_some(Some(admitting))
    }

    /// The bytes that each sleeping node among `nodes` can take within an interval from now. Nodes that never sleep are
    /// left out.
    fn rooms(&self, nodes: &[u64]) -> BTreeMap<u64, u64> {
        let (now_ms, plans) = (self.wall_ms(), self.plans.lock());
        let room = |node: &u64| {
            let pace = self.nodes.write_bytes_per_sec(*node);
            Some((*node, debt::room(&plans, NodeId::new(*node), now_ms, pace)?))
        };
        nodes.iter().filter_map(room).collect()
    }

    /// Whether each of these nodes has room for `bytes` more, beside the bytes that wait for it. A node for which
    /// nothing waits has room in any case.
    fn fits(&self, rooms: &BTreeMap<u64, u64>, bytes: u64) -> bool {
        let mut waiting: BTreeMap<u64, u64> = BTreeMap::new();
        for inode in self.inodes() {
            let core = inode.core.lock();
            if core.hold.lease() != Lease::Write {
                continue;
            }
            for (offset, len) in core.dirty.pieces() {
                members(&core, offset).into_iter().for_each(|node| *waiting.entry(node).or_default() += len);
            }
            for (node, len) in core.channels.values().flat_map(|channel| channel.waiting()) {
                *waiting.entry(node).or_default() += len;
            }
        }
        rooms.iter().all(|(node, room)| {
            let waits = waiting.get(node).copied().unwrap_or(0);
            waits == 0 || waits + bytes <= *room
        })
    }
}

/// Nodes of the metablock at an offset of the file.
fn members(core: &Core, offset: u64) -> Vec<u64> {
    let index = offset / core.geometry().metablock_size;
    match (core.channels.get(&index), core.map.get(&index)) {
        (Some(channel), _) => channel.peers.iter().map(|peer| peer.member.node).collect(),
        (None, Some(record)) => record.members.iter().map(|member| member.node).collect(),
        (None, None) => Vec::new(),
    }
}
