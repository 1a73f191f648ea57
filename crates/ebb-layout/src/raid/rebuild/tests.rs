use ebb_types::ErrorKind;
use proptest::prelude::*;

use super::super::tests::{ASK, code, even_view, shape, written};
use super::super::{RaidPlan, check_spread, choose_sets};
use super::*;
use crate::{LayoutKind, View};

const MIB: u64 = 1 << 20;

/// A cluster, its rule's layout, and the RAID sets that were made on it.
fn made(
    layout: LayoutKind,
    nodes: u64,
    racks: u64,
    name: &str,
) -> Option<(View, super::super::LayoutShape, Vec<RaidPlan>)> {
    let view = even_view(nodes, racks);
    let shape = shape(layout, nodes, u32::try_from(nodes / 3).unwrap(), 3)?;
    let candidates = written(&view, &shape, 60, 3, "client", 20);
    let sites = Sites::of(&view);
    let rule = RaidRule::new(&sites, layout, shape.chain.clone(), code(name)).unwrap();
    let plans = choose_sets(&sites, &rule, &ASK, &candidates, &[], &Held::default());
    Some((view, shape, plans.sets))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Goal: what is made again lies as the rule says, and is refused only if it could not.
    #[test]
    fn a_lost_member_goes_where_the_rule_allows(
        layout in prop::sample::select(LayoutKind::ALL), nodes in 7..=24_u64, racks in 1..=5_u64,
        name in prop::sample::select(&["2+1", "4+2", "6+3", "raid5(3)", "raid5"][..]),
        draws in any::<[prop::sample::Index; 2]>(), down in prop::collection::btree_set(1..=24_u64, 0..4),
    ) {
        let Some((mut view, shape, sets)) = made(layout, nodes, racks, name) else { return Ok(()) };
        if sets.is_empty() {
            return Ok(());
        }
        let set = draws[0].get(&sets).members();
        let all: Vec<_> = set.seats().collect();
        let (part, lost) = *draws[1].get(&all);
        let rule = RaidRule::new(&Sites::of(&view), layout, shape.chain.clone(), code(name)).unwrap();
        for volume in &mut view.volumes {
            volume.usable = volume.node != lost.node && !down.contains(&volume.node.raw());
        }
        let sites = Sites::of(&view);
        let ask = RebuildAsk { members: &set, part, lost, exclude: &[], bytes: 64 * MIB, coming: &BTreeMap::new() };
        let with = |node: NodeId| {
            let mut set = set.clone();
            let seats = set.parts.get_mut(&part).unwrap();
            seats.iter_mut().filter(|seat| **seat == lost).for_each(|seat| *seat = Seat::at_home(node));
            check_spread(&sites, rule.spread(), &set)
        };
        let is_in_set = |node: NodeId| all.iter().any(|(_, seat)| seat.node == node);
        match choose_rebuild(&sites, &rule, &ask, &Held::default()) {
            Ok(chosen) => {
                prop_assert_eq!(with(chosen.node), []);
                let volume = view.volumes.iter().find(|one| (one.node, one.volume) == (chosen.node, chosen.volume)).unwrap();
                prop_assert!(volume.usable && !is_in_set(chosen.node), "{}", chosen);
            }
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::Unavailable);
                let open = view.volumes.iter().filter(|volume| volume.usable && !is_in_set(volume.node));
                prop_assert!(open.clone().all(|volume| !with(volume.node).is_empty()), "{}", error);
            }
        }
    }
}

#[test]
fn it_goes_where_the_layout_wants_it_and_says_so() {
    let rebuilt = |layout: LayoutKind, nodes: u64, part: Part| {
        let (mut view, shape, sets) = made(layout, nodes, 1, "2+2").unwrap();
        let set = sets[0].members();
        let lost = set.of(part)[0];
        let rule = RaidRule::new(&Sites::of(&view), layout, shape.chain.clone(), code("2+2")).unwrap();
        view.volumes.iter_mut().filter(|volume| volume.node == lost.node).for_each(|volume| volume.usable = false);
        let ask = RebuildAsk { members: &set, part, lost, exclude: &[], bytes: MIB, coming: &BTreeMap::new() };
        choose_rebuild(&Sites::of(&view), &rule, &ask, &Held::default()).unwrap().reason
    };
    assert_eq!(rebuilt(LayoutKind::Random, 8, Part::Slot(0)), Reason::FewestThin);
    assert_eq!(rebuilt(LayoutKind::Striped, 8, Part::Row(1)), Reason::FewestChecks);
    assert_eq!(rebuilt(LayoutKind::PowerBalanced, 12, Part::Row(1)), Reason::CircleNext);
    assert_eq!(rebuilt(LayoutKind::EqualWork, 24, Part::Slot(1)), Reason::OwnPrimary);
    assert_eq!(rebuilt(LayoutKind::EqualWork, 24, Part::Row(0)), Reason::RowRun);
}

#[test]
fn refusals_say_what_is_missing() {
    let (mut view, shape, sets) = made(LayoutKind::Random, 6, 1, "4+2").unwrap();
    let set = sets[0].members();
    let lost = set.of(Part::Row(1))[0];
    let rule = RaidRule::new(&Sites::of(&view), shape.layout, None, code("4+2")).unwrap();
    let ask =
        RebuildAsk { members: &set, part: Part::Row(1), lost, exclude: &[], bytes: MIB, coming: &BTreeMap::new() };
    let refused = choose_rebuild(&Sites::of(&view), &rule, &ask, &Held::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.detail().starts_with("row 1 of a RAID set 4+2 needs a host"), "{refused}");
    view.volumes.push(super::super::tests::volume(7, 7, 0));
    view.volumes[6].free_bytes = 0;
    let refused = choose_rebuild(&Sites::of(&view), &rule, &ask, &Held::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    view.volumes[6].free_bytes = 1 << 30;
    assert_eq!(choose_rebuild(&Sites::of(&view), &rule, &ask, &Held::default()).unwrap().node, NodeId::new(7));
}

/// Members of one dead node are made by as many nodes as may have them, and not all by the one that holds least.
#[test]
fn members_that_are_made_at_a_time_are_made_on_different_nodes() {
    let (mut view, shape, sets) = made(LayoutKind::Random, 20, 1, "4+2").unwrap();
    let (lost, mut coming) = (NodeId::new(1), BTreeMap::new());
    view.volumes.iter_mut().for_each(|volume| volume.usable = volume.node != lost);
    let sites = Sites::of(&view);
    let rule = RaidRule::new(&sites, LayoutKind::Random, shape.chain.clone(), code("4+2")).unwrap();
    for set in sets.iter().map(RaidPlan::members) {
        let Some((part, seat)) = set.seats().find(|(_, seat)| seat.node == lost) else { continue };
        let ask = RebuildAsk { members: &set, part, lost: seat, exclude: &[], bytes: MIB, coming: &coming };
        let node = choose_rebuild(&sites, &rule, &ask, &Held::default()).unwrap().node;
        *coming.entry(node).or_default() += 1;
    }
    assert!(coming.len() > 1 && coming.values().all(|members| *members == 1), "{coming:?}");
}
