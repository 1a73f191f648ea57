//! Data that a plan would put out of reach.

use super::*;
use crate::chain::set_strays;
use crate::reach::{Force, admit, newly_at_stake, spoken_of};

#[test]
fn some_of_the_data_on_many_nodes_may_have_its_last_copies_switched_off() {
    let case = Case::blinkfs(0.5).with_chain(ChainShape::EqualWork, 2, 3);
    let plan = case.plan(PolicyKind::Migration);
    let dark: Vec<NodeId> = case.circle.iter().copied().filter(|node| plan.nodes[node].duty == Duty::Off).collect();
    let stake = |copies: usize, dead: &[NodeId]| {
        let held =
            Holding { nodes: case.circle.clone(), copies, metablocks: 3, example: "/data".into(), slots: Vec::new() };
        at_stake(&plan, &[held], &dead.iter().copied().collect()).len()
    };
    let lit = case.circle.iter().copied().find(|node| !dark.contains(node)).unwrap();
    assert_eq!((stake(dark.len(), &[]), stake(dark.len() + 1, &[])), (1, 0), "copies on the {} dark nodes", dark.len());
    assert_eq!(stake(dark.len() + 1, &[lit]), 1, "and on the one that is dead");
    assert_eq!(stake(1, &case.circle), 0, "no plan is to blame for the dead");
}

/// Two nodes are broken, and a plan would bring nearly everything back within reach. The data that stay out of reach do
/// not stop it.
#[test]
fn data_out_of_reach_already_refuse_no_plan() {
    let case = Case::blinkfs(0.5).with_chain(ChainShape::EqualWork, 2, 3);
    let plan = case.plan(PolicyKind::Migration);
    let holding = |node: u64, file: &str| Holding {
        nodes: vec![NodeId::new(node)],
        copies: 1,
        metablocks: 3,
        example: file.into(),
        slots: Vec::new(),
    };
    let holdings = [holding(7, "/dark"), holding(1, "/lit")];
    let dead = BTreeSet::new();
    assert_eq!(at_stake(&plan, &holdings, &dead), [&holdings[0]]);
    assert_eq!(newly_at_stake(&plan, &plan, &holdings, &dead), [] as [&Holding; 0]);
    let mut lit = plan.clone();
    lit.nodes.get_mut(&NodeId::new(7)).unwrap().duty = Duty::On;
    assert_eq!(newly_at_stake(&lit, &plan, &holdings, &dead), [&holdings[0]]);
    assert_eq!(newly_at_stake(&plan, &lit, &holdings, &dead), [] as [&Holding; 0]);
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
        slots: Vec::new(),
    };
    let holdings = [at(&[7, 8], "/data/a"), at(&[1, 9], "/data/b"), at(&[99], "/always")];
    let lost = at_stake(&plan, &holdings, &BTreeSet::new());
    let refused = admit(&plan, &lost, Force::Refuse).unwrap_err();
    assert!(
        refused.to_string().contains("switch off n7, n8, the last nodes with 3 metablocks, of /data/a:"),
        "{refused}"
    );
    admit(&plan, &lost, Force::Insist).unwrap();
    let nameless = at(&[7, 8], "");
    let refused = admit(&plan, &[&nameless], Force::Refuse).unwrap_err();
    assert!(refused.to_string().contains("switch off n7, n8, the last nodes with 3 metablocks: raise"), "{refused}");
    assert_eq!(spoken_of(&[&nameless, &holdings[0]]), [nameless.clone(), holdings[0].clone()]);
    let dead = BTreeSet::from([NodeId::new(7), NodeId::new(8)]);
    let none = [] as [&Holding; 0];
    assert_eq!(at_stake(&plan, &holdings, &dead), none, "data without a living copy are not the plan's fault");
    let blinking = case.plan(PolicyKind::BlinkCircular);
    assert_eq!(at_stake(&blinking, &holdings, &BTreeSet::new()), none);
    admit(&blinking, &[], Force::Refuse).unwrap();
}

proptest! {
    /// Copies were made while nodes were missing, so they lie anywhere. However little power there is, the nodes of all of
    /// them are awake in their turns.
    #[test]
    fn tide_reaches_copies_wherever_they_lie(sets in proptest::collection::vec(
            (proptest::collection::btree_set(1_u64..11, 1..4), 1_u64..500), 1..40),
            percent in 10_u32..100, shape in prop_oneof![Just(ChainShape::EqualWork), Just(ChainShape::Ring),
                Just(ChainShape::Geared { gear_size: 2 }), Just(ChainShape::Anywhere)],
            dead in proptest::collection::btree_set(1_u64..11, 0..2),
            coded in proptest::collection::vec((proptest::sample::subsequence((1_u64..11).collect::<Vec<_>>(), 3..7),
                1_usize..3), 0..4)) {
        let share = f64::from(percent) / 100.0;
        let mut case = Case::of(10, NodePower::REFERENCE, share).with_chain(shape, 2, 3);
        case.dead = dead.into_iter().map(NodeId::new).collect();
        let held = |(nodes, metablocks): (BTreeSet<u64>, u64)| Holding {
            copies: nodes.len(),
            nodes: nodes.into_iter().map(NodeId::new).collect(),
            metablocks,
            example: String::new(),
            slots: Vec::new(),
        };
        let raid_set = |(nodes, rows): (Vec<u64>, usize)| {
            let nodes: Vec<NodeId> = nodes.into_iter().map(NodeId::new).collect();
            let slots = nodes[rows..].to_vec();
            Holding { nodes, copies: rows + 1, metablocks: 300, example: String::new(), slots }
        };
        // With a slot on a dead node only a plan with the others on is good, and there may be too little power for it.
        let is_whole = |held: &Holding| held.slots.iter().all(|node| !case.dead.contains(node));
        let coded = coded.into_iter().map(raid_set).filter(is_whole);
        let holdings: Vec<Holding> = sets.into_iter().map(held).chain(coded).collect();
        set_strays(&mut case.chains, &holdings, &case.dead);
        let plan = case.plan(PolicyKind::Tide);
        prop_assert_eq!(at_stake(&plan, &holdings, &case.dead), Vec::<&Holding>::new(), "{}", plan);
        let coded: f64 = case.chains[0].coded().iter().map(|coded| coded.share).sum();
        let reads: f64 = case.chains[0].holder_sets().values().sum::<f64>() + coded;
        prop_assert!((reads - 1.0).abs() < 1e-9, "{}", reads);
    }
}

/// Slots on 1 to 4, rows on 5 and 6; the plan keeps nodes off behind the first ones.
#[test]
fn a_raid_set_is_within_reach_while_enough_of_its_nodes_are_on_together() {
    let case = Case::blinkfs(0.5).with_chain(ChainShape::EqualWork, 2, 3);
    let mut plan = case.plan(PolicyKind::Migration);
    let node = |number: usize| case.circle[number - 1];
    let held = Holding {
        nodes: (1..=6).map(node).collect(),
        copies: 3,
        metablocks: 4,
        example: "/cold".into(),
        slots: (1..=4).map(node).collect(),
    };
    let mut stake = |duties: [Duty; 6], dead: &[usize]| {
        for (number, duty) in (1..).zip(duties) {
            plan.nodes.get_mut(&node(number)).unwrap().duty = duty;
        }
        at_stake(&plan, std::slice::from_ref(&held), &dead.iter().map(|number| node(*number)).collect()).len()
    };
    let (on, off, blink) = (Duty::On, Duty::Off, Duty::Blink { start_ms: 0, active_ms: 30_000 });
    assert_eq!(stake([on; 6], &[]), 0);
    assert_eq!(stake([on, on, on, on, off, off], &[]), 0, "rows sleep behind the slots");
    assert_eq!(stake([off, off, on, on, on, on], &[]), 0, "any four will do");
    assert_eq!(stake([off, off, off, on, on, on], &[]), 1);
    assert_eq!(stake([blink; 6], &[]), 0, "each slot is read when its node wakes");
    assert_eq!(stake([off, blink, blink, on, on, on], &[]), 1, "two that blink are no help to the first");
    assert_eq!(stake([off, blink, on, on, on, on], &[]), 0);
    assert_eq!(stake([on, on, on, on, off, off], &[1]), 1, "a failure needs a row");
    assert_eq!(stake([on, on, on, on, on, off], &[1]), 0);
}
