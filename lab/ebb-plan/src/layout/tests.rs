use petgraph::Graph;
use petgraph::algo::maximum_flow::dinics;
use proptest::prelude::*;

use super::balance::{Optimal, greedy, mean_and_deviation};
use super::placement::Placement;
use super::sweep::{self, Greedy};
use super::*;

fn setting(layout: Layout, nodes: u32, primaries: u32, replicas: u32, blocks: u64, gear_size: u32) -> Setting {
    Setting::new(Ask { layout, nodes, primaries, replicas, blocks, gear_size }).unwrap()
}

/// Whether some assignment gives no active node more than `limit`, by the maximum flow of another library.
fn fits(placement: &Placement, active: &[bool], limit: u64) -> bool {
    let mut graph = Graph::<(), u64>::new();
    let source = graph.add_node(());
    let sink = graph.add_node(());
    let nodes: Vec<_> = (0..placement.nodes).map(|_| graph.add_node(())).collect();
    for (node, on) in active.iter().enumerate().filter(|pair| *pair.1) {
        graph.add_edge(nodes[node], sink, limit * u64::from(*on));
    }
    for holders in &placement.holders {
        let block = graph.add_node(());
        graph.add_edge(source, block, 1);
        for node in holders {
            graph.add_edge(block, nodes[*node as usize], 1);
        }
    }
    dinics(&graph, source, sink).0 == placement.holders.len() as u64
}

fn optimal_loads(placement: &Placement, active: &[bool]) -> Option<Vec<u64>> {
    let mut optimal = Optimal::new(placement);
    (0..placement.nodes).filter(|node| active[*node]).for_each(|node| optimal.switch_on(node));
    optimal.even_out_loads();
    (optimal.unreadable() == 0).then(|| optimal.loads())
}

#[test]
fn every_layout_meets_its_targets() {
    for (layout, nodes, primaries, gear) in [
        (Layout::Simple, 40, 5, 1),
        (Layout::EqualWork, 41, 5, 1),
        (Layout::EqualWork, 15, 5, 1),
        (Layout::Geared, 40, 10, 5),
        (Layout::PowerBalanced, 18, 1, 1),
    ] {
        let setting = setting(layout, nodes, primaries, 3, 3_600, gear);
        let placement = Placement::of(&setting, 7);
        assert_eq!(placement.blocks_per_node(), setting.blocks_per_node(), "{layout}");
        for holders in &placement.holders {
            let distinct: std::collections::BTreeSet<_> = holders.iter().collect();
            assert_eq!(distinct.len(), 3, "{layout}: {holders:?}");
        }
    }
}

#[test]
fn a_chain_as_short_as_can_be_still_holds_no_block_twice() {
    let setting = setting(Layout::EqualWork, 3, 1, 3, 50, 1);
    let placement = Placement::of(&setting, 1);
    assert!(placement.holders.iter().all(|holders| holders.len() == 3 && holders[1] != holders[2]));
}

#[test]
fn an_incomplete_gear_speeds_nothing_up() {
    let setting = setting(Layout::Geared, 35, 10, 2, 10_000, 5);
    let placement = Placement::of(&setting, 1);
    let points = sweep::placed(&placement, &sweep::order(&setting, 0), Greedy::No, |_| {});
    let speed = |active: usize| points[active - 1].throughput.unwrap();
    assert!((speed(14) / 14.0 - 0.714).abs() < 0.005, "{}", speed(14) / 14.0);
    for gear in 1..=4 {
        let full = 10 + 5 * gear;
        assert!((speed(full) / full as f64 - 1.0).abs() < 0.01, "{full}: {}", speed(full));
        assert!((speed(full + 4) - speed(full)).abs() < 0.1, "{full}: {}", speed(full + 4));
    }
    for point in sweep::fluid(&setting) {
        let placed = points[point.active as usize - 1].throughput;
        assert_eq!(point.throughput.is_some(), placed.is_some(), "{}", point.active);
        if let (Some(formula), Some(placed)) = (point.throughput, placed) {
            assert!((formula / placed - 1.0).abs() < 0.01, "{}: {formula} {placed}", point.active);
        }
    }
}

#[test]
fn after_a_failure_the_recovery_group_is_enough() {
    for (setting, wanted) in
        [(setting(Layout::Geared, 35, 10, 2, 5_000, 5), 14), (setting(Layout::EqualWork, 28, 10, 2, 5_000, 1), 27)]
    {
        let placement = Placement::of(&setting, 3);
        let points = sweep::placed(&placement, &sweep::order(&setting, 1), Greedy::No, |_| {});
        let first = points.iter().find(|point| point.unreadable == 0).unwrap().active;
        assert_eq!(setting.min_active_after_failure(), Some(wanted));
        assert!(first <= wanted && first + 1 >= wanted, "{first}");
    }
}

#[test]
fn fluid_and_placed_agree_on_the_chains() {
    for layout in [Layout::Simple, Layout::EqualWork] {
        let setting = setting(layout, 60, 4, 3, 12_000, 1);
        let placement = Placement::of(&setting, 5);
        let points = sweep::placed(&placement, &sweep::order(&setting, 0), Greedy::No, |_| {});
        for (formula, placed) in sweep::fluid(&setting).iter().zip(&points).skip(3) {
            let (formula, placed) = (formula.throughput.unwrap(), placed.throughput.unwrap());
            assert!(placed <= formula * 1.01 && placed >= formula * 0.97, "{layout}: {formula} {placed}");
        }
    }
}

#[test]
fn the_greedy_balancer_beats_the_paper_s_deviation() {
    let setting = setting(Layout::EqualWork, 24, 3, 3, 1_700, 1);
    for seed in 0..5 {
        let placement = Placement::of(&setting, seed);
        let all = vec![true; 24];
        let loads = greedy(&placement, &all, 0..1_700).unwrap();
        let (mean, deviation) = mean_and_deviation(&loads, &all);
        assert!((mean - 70.83).abs() < 0.01 && deviation < 1.79, "seed {seed}: {mean} {deviation}");
    }
}

#[test]
fn water_finds_its_level() {
    assert_eq!(fluid::busiest(&[0.5, 0.5]), Some(0.5));
    assert_eq!(fluid::busiest(&[1.0, 1.0, 0.1, 0.1]), Some(0.4));
    assert_eq!(fluid::busiest(&[0.5, 0.4]), None);
    assert_eq!(fluid::degree(&[1.0, 0.2]), Some(0.625));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_greedy_balancer_never_beats_the_best_assignment(kind in 0_usize..5, more in 0_u32..12, seed in 0_u64..1000,
        blocks in 40_u64..300, off in proptest::collection::vec(any::<bool>(), 30)) {
        let layout = Layout::ALL[kind];
        let setting = setting(layout, 12 + more - if layout == Layout::Geared { more % 2 } else { 0 }, 4, 3, blocks, 2);
        let placement = Placement::of(&setting, seed);
        let active: Vec<bool> = (0..placement.nodes).map(|node| node < 4 || off[node]).collect();
        let best = optimal_loads(&placement, &active);
        let tried = greedy(&placement, &active, 0..placement.holders.len());
        prop_assert_eq!(best.is_some(), tried.is_some());
        if let (Some(best), Some(tried)) = (best, tried) {
            let limit = *best.iter().max().unwrap();
            prop_assert_eq!(best.iter().sum::<u64>(), blocks);
            prop_assert!(tried.iter().max().unwrap() >= &limit);
            prop_assert!(mean_and_deviation(&tried, &active).1 >= mean_and_deviation(&best, &active).1 - 1e-9);
            prop_assert!(fits(&placement, &active, limit));
            prop_assert!(limit == 0 || !fits(&placement, &active, limit - 1), "max-flow does better than {}", limit);
        }
    }
}

/// Blocks placed online, one at a time, by the layout that the live system uses.
fn online(layout: Layout, nodes: u32, primaries: u32, replicas: u32, gear_size: u32, blocks: u64) -> Placement {
    use ebb_layout::{Ask, ChainView, LayoutKind, View, VolumeView, choose};
    use ebb_types::{HostName, Incarnation, InodeId, NodeClass, NodeId, RackName, VolumeId};
    let kind: LayoutKind = layout.to_string().parse().unwrap();
    let volume = |node: u64| VolumeView {
        node: NodeId::new(node),
        volume: VolumeId::new(node),
        incarnation: Incarnation::new(1),
        device: 0,
        host: HostName::new(format!("h{node}")),
        rack: RackName::new(format!("r{}", node % 2)),
        capacity_bytes: 1 << 50,
        free_bytes: 1 << 49,
        load: 0,
        usable: true,
        off: false,
        kept_bytes: 0,
    };
    let view = View { volumes: (0..u64::from(nodes)).map(volume).collect(), ..View::default() };
    let order = (0..u64::from(nodes)).map(NodeId::new).collect();
    let mut chain = std::sync::Arc::new(ChainView::new(kind, order, primaries, gear_size, replicas).unwrap());
    let place = |block: u64| {
        let ask = Ask {
            layout: kind,
            chain: Some(std::sync::Arc::clone(&chain)),
            replicas: replicas as usize,
            on: NodeClass::Any,
            writer: HostName::new("h1"),
            preferred: Vec::new(),
            index: block % 13,
            inode: InodeId::new(block / 13 + 2),
            present: Vec::new(),
            exclude: Vec::new(),
            bytes: 1 << 26,
            seed: block * 77,
        };
        let members: Vec<NodeId> = choose(&view, &ask).unwrap().members.iter().map(|member| member.node).collect();
        std::sync::Arc::make_mut(&mut chain).add(&members);
        members.iter().map(|node| u32::try_from(node.raw()).unwrap()).collect()
    };
    Placement { nodes: nodes as usize, holders: (0..blocks).map(place).collect() }
}

#[test]
fn blocks_placed_online_can_be_read_evenly_by_any_first_nodes() {
    for (layout, nodes, primaries, replicas, gear, blocks) in [
        (Layout::EqualWork, 41, 5, 3, 1, 2_000_u64),
        (Layout::EqualWork, 9, 2, 2, 1, 2_000),
        (Layout::EqualWork, 24, 3, 3, 1, 1_700),
        (Layout::Geared, 40, 10, 3, 5, 2_000),
    ] {
        let placement = online(layout, nodes, primaries, replicas, gear, blocks);
        let setting = setting(layout, nodes, primaries, replicas, blocks, gear);
        // Beyond the spread, and behind the end of a chain that is cut before it, later nodes hold too little.
        let chain = setting.chain().unwrap();
        let spread = ebb_layout::targets::equal_work::spread(primaries, replicas);
        let full = u32::try_from(spread).unwrap().min(nodes) - 1;
        for n in (primaries..=full).filter(|n| (n - primaries) % gear == 0).step_by(3) {
            let active: Vec<bool> = (0..chain.nodes()).map(|node| node < n).collect();
            let limit = (1.02 * blocks as f64 / f64::from(n) + 2.0).floor() as u64;
            assert!(fits(&placement, &active, limit), "{layout}: {n} of {nodes} nodes, {limit} blocks each");
        }
    }
}
