//! The planner's answers about the circle, against blocks that the store's layout has placed.

use std::sync::Arc;

use ebb_layout::{Ask, ChainView, LayoutKind, View, VolumeView, choose};
use ebb_power::{ChainShape, DatasetChain};
use ebb_types::{DatasetId, HostName, Incarnation, InodeId, NodeClass, NodeId, RackName, VolumeId};

use super::Machines;
use super::blink::{Schedule, Stagger, replicas_exact, wait};
use crate::layout::{self, Layout, Setting};

fn volume(node: u64) -> VolumeView {
    VolumeView {
        node: NodeId::new(node),
        volume: VolumeId::new(node),
        incarnation: Incarnation::new(1),
        device: 0,
        host: HostName::new(format!("h{node}")),
        rack: RackName::new("r"),
        capacity_bytes: 1 << 40,
        free_bytes: 1 << 39,
        load: 0,
        usable: true,
        off: false,
        kept_bytes: 0,
    }
}

fn order(nodes: u32) -> Vec<NodeId> {
    (1..=u64::from(nodes)).map(NodeId::new).collect()
}

/// Members of some blocks, as the store's layout places them one after the other.
fn placed(nodes: u32, replicas: u32) -> Vec<Vec<NodeId>> {
    let view = View { volumes: (1..=u64::from(nodes)).map(volume).collect(), ..View::default() };
    let mut chain = Arc::new(ChainView::new(LayoutKind::PowerBalanced, order(nodes), 0, 0, replicas).unwrap());
    let place = |index: u32| {
        let ask = Ask {
            layout: LayoutKind::PowerBalanced,
            chain: Some(Arc::clone(&chain)),
            replicas: replicas as usize,
            on: NodeClass::Any,
            writer: HostName::new("h1"),
            preferred: Vec::new(),
            index: index.into(),
            inode: InodeId::new(2),
            present: Vec::new(),
            exclude: Vec::new(),
            bytes: 1 << 20,
            seed: 7,
        };
        let members: Vec<NodeId> = choose(&view, &ask).unwrap().members.iter().map(|member| member.node).collect();
        Arc::make_mut(&mut chain).add(&members);
        members
    };
    (0..2 * nodes).map(place).collect()
}

/// Fewest neighbours that have a copy of every block, wherever on the circle they stand.
fn neighbours_needed(nodes: u32, blocks: &[Vec<NodeId>]) -> u32 {
    let has_copy = |block: &[NodeId], first: u32, count: u32| {
        (0..count).any(|step| block.contains(&NodeId::new(u64::from((first + step) % nodes) + 1)))
    };
    let is_enough = |count: &u32| blocks.iter().all(|block| (0..nodes).all(|first| has_copy(block, first, *count)));
    (1..=nodes).find(is_enough).unwrap()
}

/// Goal: "copies that keep every block always in reach", the waits of reads, and the fewest active nodes are true of the live
/// store. Method: all circles of up to 40 nodes, one to six copies, every power in percent.
#[test]
fn the_plan_s_copies_keep_what_the_store_has_placed_in_reach() {
    for nodes in 3..=40_u32 {
        let machines = Machines { nodes, active_watts: 25.0, sleep_watts: 1.0 };
        for replicas in 1..=nodes.min(6) {
            let case = format!("{nodes} nodes, {replicas} copies");
            let needed = neighbours_needed(nodes, &placed(nodes, replicas));
            let chain = DatasetChain::new(DatasetId::new(1), order(nodes), ChainShape::Ring, 0, replicas).unwrap();
            let shape =
                layout::Ask { layout: Layout::PowerBalanced, nodes, replicas, blocks: 100, primaries: 1, gear_size: 1 };
            assert_eq!(chain.min_active(), needed, "{case}");
            assert_eq!(Setting::new(shape).unwrap().min_active(), needed, "{case}");
            for percent in 1..=100 {
                let watts = machines.full_watts() * f64::from(percent) / 100.0;
                let is_in_reach = machines.nodes_on(watts) >= needed;
                let copies = replicas_exact(&machines, watts);
                assert_eq!(copies.is_some_and(|copies| copies <= replicas.into()), is_in_reach, "{case}, {percent} %");
                let schedule =
                    Schedule { nodes, awake: machines.awake_share(watts) + 1e-9, stagger: Stagger::Circular };
                let waits = wait(&schedule, replicas).unavailable_fraction;
                assert_eq!(waits < 1e-9, is_in_reach, "{case}, {percent} %: {waits} out of reach");
            }
        }
    }
}
