//! Queries of power and load for programs: the inspection calls of BlinkFS (Sec. 4.3), with which a program decides
//! how to act while much of the cluster sleeps.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use ebb_power::{Duty, NodeState};
use ebb_types::{HostName, InodeId, NodeId, Result, err};
use ebb_wire::pb;

use crate::client::Client;
use crate::session::ATTEMPT;
use crate::shared::Shared;
use crate::types::Location;

/// The extended attribute with the replica nodes of a file that are awake.
pub(crate) const POWER_XATTR: &[u8] = b"user.ebb.power";

/// State of a node by the power plans (the paper's `getBlinkState`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlinkState {
    /// The state.
    pub state: NodeState,
    /// Version of the plan in force; 0: there is none, and every node is on.
    pub plan: u64,
    /// The blink interval; zero without a plan.
    pub interval: Duration,
    /// From the interval's beginning until the node is powered; zero for a node that does not blink.
    pub start: Duration,
    /// For how long it is powered in each interval; zero for one that is off.
    pub active: Duration,
    /// How long it still serves: zero while it does not, none if no plan lets it sleep.
    pub awake_left: Option<Duration>,
    /// How long until it serves: zero if it does, none if no plan wakes it.
    pub wakes_in: Option<Duration>,
}

/// Load of a block server (the paper's `getServerLoadStats`), as of its last heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerLoad {
    /// Requests in progress.
    pub requests: u32,
    /// Of them this client's, now.
    pub own_requests: usize,
    /// Replicas on its volumes.
    pub replicas: u64,
    /// Bytes used and free on its volumes.
    pub used_bytes: u64,
    /// See `used_bytes`.
    pub free_bytes: u64,
}

/// A metablock, where it lies, and which of its nodes serve (the paper's `getBlockInfo`).
#[derive(Clone, Debug)]
pub struct BlockInfo {
    /// The master's record, and the hosts of its members.
    pub location: Location,
    /// What each member's node does, in the same order.
    pub nodes: Vec<BlinkState>,
}

impl BlockInfo {
    /// How long until some member serves: zero if one does, none if no plan wakes any.
    #[must_use]
    pub fn readable_in(&self) -> Option<Duration> {
        self.nodes.iter().filter_map(|node| node.wakes_in).min()
    }
}

impl Client {
    /// The host of a node, as last heard; empty if it is not known.
    #[must_use]
    pub fn host_of(&self, node: u64) -> HostName {
        self.shared.nodes.host(node)
    }

    /// State of a node by the power plans.
    #[must_use]
    pub fn blink_state(&self, node: NodeId) -> BlinkState {
        self.shared.blink_state(node)
    }

    /// Load of a block server, as of its last heartbeat. `NotFound` for a node that never registered.
    pub async fn server_load(&self, node: NodeId) -> Result<ServerLoad> {
        self.shared.server_load(node).await
    }

    /// A file's metablocks, where they lie, and which of their nodes serve.
    pub async fn file_info(&self, inode: InodeId) -> Result<Vec<BlockInfo>> {
        self.shared.file_info(inode).await
    }

    /// The same for one metablock. `NotFound` if it was never written.
    pub async fn block_info(&self, inode: InodeId, index: u64) -> Result<BlockInfo> {
        let all = self.shared.file_info(inode).await?;
        let found = all.into_iter().find(|info| info.location.metablock.index == index);
        found.ok_or_else(|| err!(NotFound, "{inode} has no metablock {index}"))
    }
}

impl Shared {
    /// See [`BlinkState`].
    pub fn blink_state(&self, node: NodeId) -> BlinkState {
        let (now_ms, plans) = (self.wall_ms(), self.plans.lock());
        let plan = plans.at(now_ms);
        let interval_ms = plan.map_or(0, |plan| plan.interval_ms);
        let duty = plan.and_then(|plan| plan.nodes.get(&node)).map_or(Duty::On, |node| node.duty);
        let start_ms = if let Duty::Blink { start_ms, .. } = duty { start_ms } else { 0 };
        BlinkState {
            state: plans.state(node, now_ms),
            plan: plans.version().raw(),
            interval: Duration::from_millis(interval_ms),
            start: Duration::from_millis(start_ms),
            active: Duration::from_millis(duty.active_ms(interval_ms)),
            awake_left: plans.awake_for(node, now_ms).left(),
            wakes_in: plans.next_wake_ms(node, now_ms).map(|wake| Duration::from_millis(wake.saturating_sub(now_ms))),
        }
    }

    /// See [`ServerLoad`]. `NotFound` for a node that never registered.
    pub async fn server_load(&self, node: NodeId) -> Result<ServerLoad> {
        let ask = self.session.masters.call(&pb::ClusterStatus {}, ATTEMPT, self.session.deadline());
        let node_state = ask.await.result?.nodes.into_iter().find(|node_state| node_state.id == node.raw());
        let node_state = node_state.ok_or_else(|| err!(NotFound, "no node {node} has registered"))?;
        let sum = |of: fn(&pb::Volume) -> u64| node_state.volumes.iter().map(of).sum();
        Ok(ServerLoad {
            requests: node_state.load,
            own_requests: self.nodes.outstanding(node.raw()),
            replicas: sum(|volume| volume.replicas),
            used_bytes: sum(|volume| volume.used_bytes),
            free_bytes: sum(|volume| volume.free_bytes),
        })
    }

    /// A file's metablocks (the paper's `getFileInfo`), each as [`BlockInfo`] has it.
    pub async fn file_info(self: &Arc<Self>, inode: InodeId) -> Result<Vec<BlockInfo>> {
        let locations = self.locations(inode).await?;
        let info = |location: Location| {
            let members = location.metablock.members.iter();
            BlockInfo { nodes: members.map(|member| self.blink_state(NodeId::new(member.node))).collect(), location }
        };
        Ok(locations.into_iter().map(info).collect())
    }

    /// The same as text: a line for each metablock, `index host:state host:state`. A state is `awake` (with the
    /// seconds left, unless it stays so), `asleep` with the seconds until it serves, or `off`.
    pub async fn power_text(self: &Arc<Self>, inode: InodeId) -> Result<Vec<u8>> {
        let mut text = String::new();
        for info in self.file_info(inode).await? {
            let _ = write!(text, "{}", info.location.metablock.index);
            for (host, node) in info.location.hosts.iter().zip(&info.nodes) {
                let _ = write!(text, " {host}:{node}");
            }
            text.push('\n');
        }
        Ok(text.into_bytes())
    }
}

impl std::fmt::Display for BlinkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.wakes_in, self.awake_left) {
            (None, _) => f.write_str("off"),
            (Some(Duration::ZERO), None) => f.write_str("awake"),
            (Some(Duration::ZERO), Some(left)) => write!(f, "awake:{:.2}", left.as_secs_f64()),
            (Some(wait), _) => write!(f, "asleep:{:.2}", wait.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_a_word() {
        let on = BlinkState {
            state: NodeState::Awake,
            plan: 1,
            interval: Duration::from_secs(2),
            start: Duration::ZERO,
            active: Duration::from_secs(2),
            awake_left: None,
            wakes_in: Some(Duration::ZERO),
        };
        assert_eq!(on.to_string(), "awake");
        assert_eq!(BlinkState { awake_left: Some(Duration::from_millis(250)), ..on }.to_string(), "awake:0.25");
        let asleep = BlinkState { state: NodeState::Asleep, wakes_in: Some(Duration::from_millis(1_500)), ..on };
        assert_eq!(asleep.to_string(), "asleep:1.50");
        assert_eq!(BlinkState { wakes_in: None, ..asleep }.to_string(), "off");
    }
}
