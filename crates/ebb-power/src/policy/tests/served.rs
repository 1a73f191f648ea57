//! Hosts whose disks are in a localized storage node.

use super::*;

const LSN: NodePower = NodePower { active_watts: 100.0, idle_watts: 100.0, asleep_watts: 4.0, ..NodePower::REFERENCE };

/// Four localized storage nodes, n1 to n4, and two hosts of each: n11 and n12 of n1, and so on. Two copies on the halves.
fn case(watts: f64) -> Case {
    let lsns: Vec<NodeId> = (1..=4).map(NodeId::new).collect();
    let hosts = |lsn: u64| [10 * lsn + 1, 10 * lsn + 2].map(NodeId::new);
    let all_hosts = (1..=4).flat_map(hosts);
    let nodes = lsns.iter().map(|lsn| (*lsn, LSN)).chain(all_hosts.map(|host| (host, NodePower::REFERENCE)));
    let served = (1..=4).flat_map(|lsn| hosts(lsn).map(|host| (host, vec![NodeId::new(lsn)])));
    let hardware = Hardware::new(0.0, nodes.collect()).unwrap().with_lsns(served.collect());
    let chain = DatasetChain::new(DatasetId::new(1), lsns, ChainShape::Halves, 0, 2).unwrap();
    let usual = Case::of(1, NodePower::REFERENCE, 1.0);
    Case {
        circle: hardware.nodes().keys().copied().collect(),
        battery: Battery::full(hardware.full_watts(), 300.0),
        hardware,
        supply: Supply::Watts(watts),
        chains: vec![chain],
        ..usual
    }
}

fn on(plan: &PowerPlan) -> Vec<u64> {
    plan.nodes.iter().filter(|(_, node)| node.duty == Duty::On).map(|(id, _)| id.raw()).collect()
}

/// Goal: no host waits for disks that are off. Method: supplies from the cover of two nodes to all.
#[test]
fn hosts_are_on_with_their_localized_storage_node_alone() {
    // All asleep draw 24 W, a storage node 96 W more, and a host 24 W more.
    let at = |watts: f64| case(watts).plan(PolicyKind::Activation);
    assert_eq!(on(&at(24.0 + 2.0 * 96.0)), [1, 2], "the half that holds everything");
    assert_eq!(on(&at(24.0 + 2.0 * 96.0 + 3.0 * 24.0)), [1, 2, 11, 12, 21], "not n31, whose disks are off");
    let all_hosts = at(24.0 + 2.0 * 96.0 + 95.0);
    assert_eq!(on(&all_hosts), [1, 2, 11, 12, 21], "the fourth does not fit");
    assert!(all_hosts.why.contains("3 of 8 hosts without data on, 4 without their"), "{}", all_hosts.why);
    assert_eq!(on(&at(24.0 + 3.0 * 96.0)), [1, 2, 3], "data come before hosts");
    assert_eq!(on(&at(1_000.0)).len(), 12);
}

/// Goal: a sub-rack blinks as one. Method: too little for the cover, under policies that blink.
#[test]
fn sub_racks_blink_as_a_whole_and_within_the_budget() {
    for policy in [PolicyKind::BlinkCircular, PolicyKind::BlinkStaggered, PolicyKind::Tide] {
        let case = case(160.0);
        let plan = case.plan(policy);
        for lsn in 1..=4_u64 {
            let duty = |id: u64| plan.nodes[&NodeId::new(id)].duty;
            assert_eq!([duty(10 * lsn + 1), duty(10 * lsn + 2)], [duty(lsn); 2], "{policy}: n{lsn}");
        }
        assert!(plan.nodes.values().any(|node| matches!(node.duty, Duty::Blink { .. })), "{policy}");
        let mean: f64 = plan
            .nodes
            .iter()
            .map(|(id, node)| {
                let power = case.hardware.node(*id).unwrap();
                let share = node.duty.active_ms(plan.interval_ms) as f64 / plan.interval_ms as f64;
                power.asleep_watts + share * power.extra_watts()
            })
            .sum();
        assert!(mean <= 160.0 + 1.0, "{policy}: {mean} W");
    }
}

#[test]
fn a_host_with_data_of_a_chain_is_the_policy_s_business() {
    let mut case = case(24.0 + 2.0 * 96.0 + 2.0 * 24.0);
    let scratch = [31, 32].map(NodeId::new).to_vec();
    case.chains.push(DatasetChain::new(DatasetId::new(2), scratch, ChainShape::Anywhere, 0, 1).unwrap());
    assert_eq!(on(&case.plan(PolicyKind::Activation)), [1, 2, 31, 32], "a cover of scratch data, far from its disks");
    let always = case.plan(PolicyKind::AlwaysOn);
    assert_eq!(on(&always).len(), 12, "at any supply");
}

proptest! {
    #[test]
    fn no_host_without_data_is_powered_without_its_disks(watts in 0.0_f64..700.0, dead in proptest::collection::btree_set(prop_oneof![1_u64..5, 11_u64..13, 21_u64..23, 41_u64..43], 0..4), is_late in any::<bool>(), policy in prop::sample::select(PolicyKind::ALL)) {
        prop_assume!(policy != PolicyKind::AlwaysOn);
        let mut case = case(watts);
        case.dead = dead.into_iter().map(NodeId::new).collect();
        case.late = if is_late { case.dead.clone() } else { BTreeSet::new() };
        let plan = case.plan(policy);
        for (id, node) in &plan.nodes {
            for lsn in case.hardware.lsns_of(*id) {
                let disks = plan.nodes[lsn].duty;
                prop_assert!(node.duty == Duty::Off || disks != Duty::Off || case.dead.contains(lsn), "{} without {}: {}", id, lsn, plan.why);
            }
        }
    }
}
