use std::collections::BTreeMap;

use ebb_types::MetablockId;
use proptest::prelude::*;

use super::super::tests::{ASK, code, even_view, shape, written};
use super::super::{Part, RaidMembers, Seat, check_spread, choose_sets};
use super::*;
use crate::LayoutKind;

/// Every way to keep `copies` of each slot's members.
fn every_way(slots: &[Vec<(NodeId, VolumeId)>], copies: usize) -> Vec<Vec<Vec<NodeId>>> {
    let ways_of = |members: &Vec<(NodeId, VolumeId)>| -> Vec<Vec<NodeId>> {
        let nodes: Vec<NodeId> = members.iter().map(|member| member.0).collect();
        match copies {
            1 => nodes.iter().map(|node| vec![*node]).collect(),
            _ => (0..nodes.len())
                .flat_map(|one| (one + 1..nodes.len()).map(move |two| (one, two)))
                .map(|(one, two)| vec![nodes[one], nodes[two]])
                .collect(),
        }
    };
    let mut all = vec![Vec::new()];
    for members in slots {
        all = all
            .iter()
            .flat_map(|way| ways_of(members).into_iter().map(move |stay| [&way[..], &[stay]].concat()))
            .collect();
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Goal: what stays lies as the rule says, on nodes that serve; and if nothing is found, there is nothing. Method: RAID
    /// sets that were planned, some of whose nodes go; small ones are compared with every way that there is.
    #[test]
    fn what_stays_lies_as_the_rule_says(
        layout in prop::sample::select(&[LayoutKind::Random, LayoutKind::Striped][..]), nodes in 7..=16_u64, racks in 1..=4_u64,
        name in prop::sample::select(&["2+1", "3+2", "4+2", "raid5(3)"][..]),
        draw in any::<prop::sample::Index>(), down in prop::collection::btree_set(1..=16_u64, 0..5),
    ) {
        let mut view = even_view(nodes, racks);
        let Some(shape) = shape(layout, nodes, u32::try_from(nodes / 3).unwrap(), 3) else { return Ok(()) };
        let candidates = written(&view, &shape, 40, 3, "client", 20);
        let rule = RaidRule::new(&Sites::of(&view), layout, None, code(name)).unwrap();
        let plans = choose_sets(&Sites::of(&view), &rule, &ASK, &candidates, &[], &Held::default()).sets;
        if plans.is_empty() {
            return Ok(());
        }
        let plan = draw.get(&plans);
        let members: BTreeMap<MetablockId, Vec<(NodeId, VolumeId)>> =
            candidates.iter().map(|one| (one.metablock, one.members.clone())).collect();
        let slots: Vec<Vec<(NodeId, VolumeId)>> = plan.slots.iter().map(|slot| members[&slot.metablock].clone()).collect();
        let rows: Vec<NodeId> = plan.rows.iter().map(|row| row.node).collect();
        for volume in &mut view.volumes {
            volume.usable = !down.contains(&volume.node.raw());
        }
        let sites = Sites::of(&view);
        let serves = |node: &NodeId| !down.contains(&node.raw());
        let placed = |stays: &[Vec<NodeId>]| {
            let seats = |nodes: &[NodeId]| nodes.iter().map(|node| Seat::at_home(*node)).collect::<Vec<_>>();
            let slots = (0..).zip(stays).map(|(slot, stay)| (Part::Slot(slot), seats(stay)));
            let rows = (0..).zip(&rows).map(|(row, node)| (Part::Row(row), seats(&[*node])));
            RaidMembers { parts: slots.chain(rows).collect() }
        };
        let is_right = |stays: &[Vec<NodeId>]| {
            stays.iter().flatten().all(serves) && check_spread(&sites, rule.spread(), &placed(stays)).is_empty()
        };
        match choose_stays(&sites, &rule, &rows, &slots, &Held::default()) {
            Some(stays) => {
                let node_of = |slot: usize, volume: VolumeId| slots[slot].iter().find(|one| one.1 == volume).unwrap().0;
                let stays: Vec<Vec<NodeId>> = stays
                    .iter()
                    .enumerate()
                    .map(|(slot, volumes)| volumes.iter().map(|volume| node_of(slot, *volume)).collect())
                    .collect();
                prop_assert!(stays.iter().all(|stay| stay.len() == rule.spread().code.copies as usize));
                prop_assert!(is_right(&stays), "{:?} of {:?} beside {:?}", stays, slots, rows);
            }
            None => {
                prop_assert!(!down.is_empty(), "all nodes serve, as when it was planned");
                let ways = every_way(&slots, rule.spread().code.copies as usize);
                let missed = ways.iter().find(|way| is_right(way));
                prop_assert_eq!(missed, None, "of {:?} beside {:?}", slots, rows);
            }
        }
    }
}
