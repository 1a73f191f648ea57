//! What a plan would put out of reach.

use super::*;
use crate::reach::{Force, admit, admit_after};

#[test]
fn of_what_lies_somewhere_on_many_nodes_some_may_have_its_last_copies_switched_off() {
    let case = Case::blinkfs(0.5).with_chain(ChainShape::EqualWork, 2, 3);
    let plan = case.plan(PolicyKind::Migration);
    let dark: Vec<NodeId> = case.circle.iter().copied().filter(|node| plan.nodes[node].duty == Duty::Off).collect();
    let stake = |copies: usize, dead: &[NodeId]| {
        let held = Holding { nodes: case.circle.clone(), copies, metablocks: 3, example: "/data".into() };
        at_stake(&plan, &[held], &dead.iter().copied().collect()).len()
    };
    let lit = case.circle.iter().copied().find(|node| !dark.contains(node)).unwrap();
    assert_eq!((stake(dark.len(), &[]), stake(dark.len() + 1, &[])), (1, 0), "copies on the {} dark nodes", dark.len());
    assert_eq!(stake(dark.len() + 1, &[lit]), 1, "and on the one that is dead");
    assert_eq!(stake(1, &case.circle), 0, "no plan is to blame for the dead");
}

/// Two nodes are broken, and a plan would have nearly everything within reach again: what stays dark keeps it from nothing.
#[test]
fn what_is_out_of_reach_already_refuses_no_plan() {
    let case = Case::blinkfs(0.5).with_chain(ChainShape::EqualWork, 2, 3);
    let plan = case.plan(PolicyKind::Migration);
    let holding = |node: u64, file: &str| Holding {
        nodes: vec![NodeId::new(node)],
        copies: 1,
        metablocks: 3,
        example: file.into(),
    };
    let holdings = [holding(7, "/dark"), holding(1, "/lit")];
    let dead = BTreeSet::new();
    assert_eq!(at_stake(&plan, &holdings, &dead), [&holdings[0]]);
    admit_after(&plan, &plan, &holdings, &dead, Force::Refuse).unwrap();
    let mut lit = plan.clone();
    lit.nodes.get_mut(&NodeId::new(7)).unwrap().duty = Duty::On;
    let refused = admit_after(&lit, &plan, &holdings, &dead, Force::Refuse).unwrap_err();
    assert!(refused.to_string().contains("/dark"), "{refused}");
    admit_after(&plan, &lit, &holdings, &dead, Force::Refuse).unwrap();
}

#[test]
fn the_last_replica_node_is_not_switched_off_unless_forced() {
    let case = Case::blinkfs(0.5).with_chain(ChainShape::EqualWork, 2, 3);
    let plan = case.plan(PolicyKind::Migration);
    let at = |nodes: &[u64], file: &str| Holding {
        nodes: nodes.iter().copied().map(NodeId::new).collect(),
        copies: nodes.len(),
        metablocks: 3,
        example: file.into(),
    };
    let holdings = [at(&[7, 8], "/data/a"), at(&[1, 9], "/data/b"), at(&[99], "/always")];
    let refused = admit(&plan, &holdings, &BTreeSet::new(), Force::Refuse).unwrap_err();
    assert!(refused.to_string().contains("3 metablocks (n7, n8), of /data/a:"), "{refused}");
    admit(&plan, &holdings, &BTreeSet::new(), Force::Insist).unwrap();
    let dead = BTreeSet::from([NodeId::new(7), NodeId::new(8)]);
    admit(&plan, &holdings, &dead, Force::Refuse).expect("what has no living copy is not the plan's doing");
    admit(&case.plan(PolicyKind::BlinkCircular), &holdings, &BTreeSet::new(), Force::Refuse).unwrap();
}
