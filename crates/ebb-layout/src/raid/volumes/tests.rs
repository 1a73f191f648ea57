use std::sync::Arc;
use std::time::Duration;

use ebb_types::{Declared, Domain, InodeId, MetablockId};
use proptest::prelude::*;

use super::*;
use crate::SubRacks;
use crate::raid::tests::{ASK, HOUR, code};
use crate::raid::{OldSlot, SetReason};

fn on_volumes(text: &str) -> RaidCode {
    RaidCode { domain: Domain::Volume, ..code(text) }
}

/// So many localized storage nodes, with volumes of these devices each.
fn lsns(count: u64, devices: &[u64]) -> View {
    let volume = |node: u64, disk: usize| VolumeView {
        device: if devices[disk] == 0 { 0 } else { node * 100 + devices[disk] },
        ..crate::tests::volume(node, disk as u64, node, node % 2)
    };
    let volumes = (1..=count).flat_map(|node| (0..devices.len()).map(move |disk| volume(node, disk)));
    let serves: Vec<Vec<String>> = (1..=count).map(|node| vec![format!("c{node}")]).collect();
    let hosts: Vec<(String, String)> = (1..=count).map(|node| (format!("h{node}"), format!("r{}", node % 2))).collect();
    let nodes = (1..=count).map(NodeId::new);
    let declared = nodes.zip(hosts.iter().zip(&serves)).map(|(node, ((host, rack), serves))| Declared {
        node: Some(node),
        host,
        rack,
        serves,
    });
    View { volumes: volumes.collect(), sub_racks: Arc::new(SubRacks::new(declared)) }
}

/// A metablock of two copies: on a volume of one node in turn, and of the next node.
fn candidate(number: u64, nodes: u64, volumes: u64) -> Candidate {
    let (node, next) = (1 + number / volumes % nodes, 1 + (number / volumes + 1) % nodes);
    let at = |node: u64| (NodeId::new(node), VolumeId::new(node * 10 + number % volumes));
    let members = if nodes > 1 { vec![at(node), at(next)] } else { vec![at(node)] };
    Candidate {
        metablock: MetablockId::new(1 + number),
        inode: InodeId::new(100 + number / 8),
        directory: InodeId::new(2),
        index: number % 8,
        len_bytes: 4 << 20,
        waited: HOUR,
        members,
    }
}

fn choose(view: &View, code: RaidCode, candidates: &[Candidate], old: &[OldSet]) -> RaidPlans {
    choose_sets_on_volumes(view, code, &ASK, candidates, old, &Held::default()).unwrap()
}

proptest! {
    /// Goal: I-77. Method: any LSNs, codes and shared disks. All members of a RAID set are on one node, no two on one disk, and a slot
    /// keeps the copy that it had there. Where the disks that are not lost are enough for a full RAID set, some are made.
    #[test]
    fn members_share_their_node_and_no_disk(
        nodes in 1..4_u64,
        devices in prop::collection::vec(0..7_u64, 4..9),
        text in prop::sample::select(&["2+1", "2+2", "3+1", "4+2"][..]),
        count in 1..60_u64,
        lost in prop::option::of(0..4_u64),
    ) {
        let (mut view, code) = (lsns(nodes, &devices), on_volumes(text));
        let lost = lost.map(|disk| VolumeId::new(10 + disk));
        view.volumes.iter_mut().filter(|volume| Some(volume.volume) == lost).for_each(|volume| volume.usable = false);
        let candidates: Vec<Candidate> =
            (0..count).map(|number| candidate(number, nodes, devices.len() as u64)).collect();
        let plans = choose(&view, code, &candidates, &[]);
        let find = |member: &Chosen| {
            view.volumes.iter().find(|volume| (volume.node, volume.volume) == (member.node, member.volume)).unwrap()
        };
        for plan in &plans.sets {
            let members: Vec<&Chosen> = plan.slots.iter().flat_map(|slot| &slot.members).chain(&plan.rows).collect();
            let mut disks = BTreeSet::new();
            for member in &members {
                let volume = find(member);
                prop_assert_eq!((member.node, member.home), (members[0].node, members[0].node), "{}", plan);
                let disk = if volume.device == 0 { (0, volume.volume.raw()) } else { (volume.device, 0) };
                prop_assert!(disks.insert(disk) && volume.usable, "{}", plan);
            }
            for slot in &plan.slots {
                let before = &candidates[slot.metablock.raw() as usize - 1].members;
                prop_assert!(slot.members.iter().all(|member| before.contains(&(member.node, member.volume))), "{}", plan);
            }
        }
        let all = plans.sets.iter().map(|plan| plan.slots.len()).sum::<usize>() + plans.left.len();
        prop_assert_eq!(all, candidates.len(), "each is in one RAID set, or left with a reason");
        view.volumes.retain(|volume| volume.usable);
        let fits = explain_unfit_volumes(&view, code, Wish::Hold).is_none();
        prop_assert!(!fits || count < 40 || !plans.sets.is_empty(), "{plans}");
    }
}

#[test]
fn a_full_raid_set_is_made_on_each_node_for_itself() {
    let candidates: Vec<Candidate> = (0..24).map(|number| candidate(number, 2, 6)).collect();
    let plans = choose(&lsns(2, &[0; 6]), on_volumes("4+2"), &candidates, &[]);
    let full = plans.sets.iter().filter(|plan| plan.slots.len() == 4);
    let nodes: BTreeSet<NodeId> = full.flat_map(|plan| &plan.rows).map(|row| row.node).collect();
    assert_eq!(nodes.len(), 2, "{plans}");
    assert!(plans.left.is_empty(), "{plans}");
}

#[test]
fn a_raid_set_is_repacked_where_it_is_and_one_of_hosts_is_left() {
    let slot = |number: u64, node: u64, life: SlotLife| OldSlot {
        metablock: MetablockId::new(number),
        directory: InodeId::new(2),
        len_bytes: 4 << 20,
        members: vec![(Seat::at_home(NodeId::new(node)), VolumeId::new(node * 10 + number % 6))],
        life,
    };
    let old = |id: u64, nodes: [u64; 4]| {
        let lives = [SlotLife::Live, SlotLife::Live, SlotLife::Dead, SlotLife::Dead];
        let slots = (0..4).map(|place| slot(id * 6 + place, nodes[place as usize], lives[place as usize]));
        OldSet { id: ebb_types::RaidSetId::new(id), slots: slots.collect(), asked: false }
    };
    let plans = choose(&lsns(2, &[0; 6]), on_volumes("4+2"), &[], &[old(1, [2; 4]), old(2, [1, 2, 1, 2])]);
    let [plan] = &plans.sets[..] else { panic!("{plans}") };
    assert!(matches!(plan.why, SetReason::Repacked(_)) && plan.dissolves == [ebb_types::RaidSetId::new(1)], "{plan}");
    assert!(plan.rows.iter().all(|row| row.node == NodeId::new(2)), "{plan}");
    assert_eq!(plans.kept, [KeptSet { raid_set: ebb_types::RaidSetId::new(2), why: KeptReason::NoHosts }]);
}

#[test]
fn what_waits_for_its_node_says_so() {
    let mut view = lsns(1, &[0; 6]);
    view.volumes.iter_mut().for_each(|volume| volume.off = true);
    let plans = choose(&view, on_volumes("4+2"), &[candidate(0, 1, 6)], &[]);
    assert_eq!(plans.most_left(), Some(LeftReason::NoMember));
    let young = Candidate { waited: Duration::ZERO, ..candidate(0, 1, 6) };
    assert_eq!(choose(&lsns(1, &[0; 6]), on_volumes("4+2"), &[young], &[]).most_left(), Some(LeftReason::Waits));
}

#[test]
fn too_few_disks_are_refused_with_the_way_out() {
    let why = |view: &View, text: &str, wish: Wish| explain_unfit_volumes(view, on_volumes(text), wish);
    let good = lsns(2, &[1, 2, 3, 4, 5, 6]);
    assert_eq!((why(&good, "4+2", Wish::Hold), why(&good, "3+2", Wish::Heal)), (None, None));
    let refused = |view: &View, text: &str, wish: Wish| why(view, text, wish).unwrap();
    let heal = refused(&good, "4+2", Wish::Heal);
    assert!(heal.contains("7 disks") && heal.ends_with("3+2"), "{heal}");
    let shared = refused(&lsns(2, &[1, 1, 1, 2, 3, 4]), "4+2", Wish::Hold);
    assert!(shared.contains("h1 has 6 volumes on 4 disks; those on one disk count once"), "{shared}");
    assert!(shared.ends_with("2+2"), "{shared}");
    let single = refused(&lsns(1, &[1; 4]), "4+2", Wish::Hold);
    assert!(single.contains("on 1 disk;") || single.contains("on one disk;"), "{single}");
    assert!(single.ends_with("possible here"), "{single}");
    assert!(refused(&good, "4+2", Wish::SurviveRack).contains("--domain host"));
    let none = View { sub_racks: Arc::default(), ..good };
    assert!(refused(&none, "4+2", Wish::Hold).contains("--serves-hosts"));
}
