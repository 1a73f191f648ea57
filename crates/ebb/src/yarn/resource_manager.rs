//! YARN's resource manager, by its REST interface ("ResourceManager REST API's" of Hadoop's documentation).

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_power_drivers::{Url, Web};
use ebb_runtime::Runtime;
use ebb_types::{Result, err};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::share::Share;

/// How long a call may take. A node manager that is frozen does not answer.
const ASK: Duration = Duration::from_secs(5);

/// The resource manager.
pub struct ResourceManager {
    web: Web,
    /// As a query of changes.
    user: String,
    /// Room of node managers as they are configured.
    whole: Mutex<BTreeMap<String, Room>>,
}

/// A node of YARN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct YarnNode {
    /// `host:port`.
    pub id: String,
    /// Its host.
    pub host: String,
    /// Where its node manager answers, as `host:port`.
    http: String,
    room: Room,
}

/// Room for containers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Room {
    memory_mb: u64,
    vcores: u64,
}

impl ResourceManager {
    /// The resource manager at this address; changes are made by `user`.
    pub fn new(url: &Url, user: Option<&str>) -> Self {
        Self {
            web: Web::new(Runtime::real(), url.clone(), None, ASK),
            user: user.map(|user| format!("?user.name={user}")).unwrap_or_default(),
            whole: Mutex::default(),
        }
    }

    /// Nodes that run, or did until they went to sleep.
    pub async fn nodes(&self) -> Result<Vec<YarnNode>> {
        let answer = self.web.get("/ws/v1/cluster/nodes").await?;
        let nodes = parse_nodes(&answer);
        let mut whole = self.whole.lock();
        // What a node offers when it is first seen is all of its room, unless that is nothing.
        for node in nodes.iter().filter(|node| node.room != Room::default()) {
            whole.entry(node.id.clone()).or_insert(node.room);
        }
        Ok(nodes)
    }

    /// Sets the room of a node. What runs there and has no room any more is preempted after `left`, which counts as no failure of
    /// the task; with zero it may go on.
    pub async fn set_room(&self, node: &YarnNode, share: Share, left: Duration) -> Result<()> {
        let room = match share {
            Share::Whole => self.whole_room(node).await?,
            Share::Nothing => Room::default(),
        };
        let timeout_ms = if left.is_zero() { -1 } else { i64::try_from(left.as_millis()).unwrap_or(i64::MAX) };
        let wanted = json!({
            "resource": { "memory": room.memory_mb, "vCores": room.vcores }, "overCommitTimeout": timeout_ms,
        });
        let path = format!("/ws/v1/cluster/nodes/{}/resource{}", node.id, self.user);
        self.web.post(&path, &wanted).await.map(drop)
    }

    async fn whole_room(&self, node: &YarnNode) -> Result<Room> {
        let known = self.whole.lock().get(&node.id).copied();
        if let Some(room) = known {
            return Ok(room);
        }
        // It offered nothing when it was first seen: an earlier run of this command told it so.
        let manager = Web::new(Runtime::real(), format!("http://{}", node.http).parse()?, None, ASK);
        let info = manager.get("/ws/v1/node/info").await?;
        let room =
            parse_whole(&info).ok_or_else(|| err!(Protocol, "{} does not say how much room it has", node.http))?;
        self.whole.lock().insert(node.id.clone(), room);
        Ok(room)
    }
}

fn parse_nodes(answer: &Value) -> Vec<YarnNode> {
    let nodes = answer["nodes"]["node"].as_array().map(Vec::as_slice).unwrap_or_default();
    let parse = |node: &Value| {
        let text = |key: &str| node[key].as_str().map(str::to_owned);
        let sum = |one: &str, other: &str| Some(node[one].as_u64()? + node[other].as_u64()?);
        let state = text("state")?;
        if !["RUNNING", "UNHEALTHY", "LOST"].contains(&state.as_str()) {
            return None;
        }
        let room = Room {
            memory_mb: sum("usedMemoryMB", "availMemoryMB").unwrap_or(0),
            vcores: sum("usedVirtualCores", "availableVirtualCores").unwrap_or(0),
        };
        let total = &node["totalResource"];
        let room = match (total["memory"].as_u64(), total["vCores"].as_u64()) {
            (Some(memory_mb), Some(vcores)) => Room { memory_mb, vcores },
            _ => room,
        };
        Some(YarnNode { id: text("id")?, host: text("nodeHostName")?, http: text("nodeHTTPAddress")?, room })
    };
    nodes.iter().filter_map(parse).collect()
}

fn parse_whole(info: &Value) -> Option<Room> {
    let info = &info["nodeInfo"];
    Some(Room {
        memory_mb: info["totalPmemAllocatedContainersMB"].as_u64()?,
        vcores: info["totalVCoresAllocatedContainers"].as_u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_and_those_that_left_are_not() {
        let node = |id: &str, state: &str| {
            json!({
                "id": id, "state": state, "nodeHostName": "h1", "nodeHTTPAddress": "h1:8042", "usedMemoryMB": 512,
                "availMemoryMB": 1536, "usedVirtualCores": 1, "availableVirtualCores": 1,
            })
        };
        let answer =
            json!({ "nodes": { "node": [node("h1:1", "RUNNING"), node("h1:2", "DECOMMISSIONED"), {"id": 7}] } });
        let nodes = parse_nodes(&answer);
        assert_eq!(nodes.len(), 1);
        assert_eq!((nodes[0].id.as_str(), nodes[0].room), ("h1:1", Room { memory_mb: 2048, vcores: 2 }));
        assert!(parse_nodes(&json!({ "nodes": null })).is_empty(), "a cluster without nodes");
    }

    #[test]
    fn a_node_manager_says_how_much_room_it_has() {
        let info =
            json!({ "nodeInfo": { "totalPmemAllocatedContainersMB": 2048, "totalVCoresAllocatedContainers": 2 } });
        assert_eq!(parse_whole(&info), Some(Room { memory_mb: 2048, vcores: 2 }));
        assert_eq!(parse_whole(&json!({})), None);
    }
}
