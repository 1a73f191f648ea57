//! New RAID sets of what lives in old ones.

use ebb_types::RaidSetId;

use super::*;

/// The recorded form of a plan; `dead` says which of its slots no file has any more.
fn recorded(id: u64, plan: &RaidPlan, mut is_dead: impl FnMut(usize) -> bool) -> OldSet {
    let slot = |(number, slot): (usize, &PlannedSlot)| OldSlot {
        metablock: slot.metablock,
        directory: InodeId::new(2),
        len_bytes: slot.len_bytes,
        members: slot.members.iter().map(|member| (Seat::at_home(member.node), member.volume)).collect(),
        life: if is_dead(number) { SlotLife::Dead } else { SlotLife::Live },
    };
    OldSet { id: RaidSetId::new(id), slots: plan.slots.iter().enumerate().map(slot).collect(), asked: false }
}

fn live(old: &OldSet) -> BTreeSet<MetablockId> {
    old.slots.iter().filter(|slot| slot.life == SlotLife::Live).map(|slot| slot.metablock).collect()
}

/// Old RAID sets of a case, with slots that died by these draws, and the rest as candidates.
fn aged(case: &Case, draws: &[u32]) -> Vec<OldSet> {
    let mut draws = draws.iter().cycle();
    let plans = case.plans();
    (1..)
        .zip(&plans.sets)
        .map(|(id, plan)| recorded(id, plan, |_| draws.next().is_some_and(|draw| *draw < 2)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_raid_set_ends_only_with_all_that_lives_in_it(
        case in any_case(), draws in prop::collection::vec(0..4_u32, 30..60), fresh in 0..20_u64, is_tight: bool,
    ) {
        let Some(case) = case else { return Ok(()) };
        let old = aged(&case, &draws);
        let mut whole = case.view.clone();
        for volume in &mut whole.volumes {
            (volume.usable, volume.off, volume.free_bytes) = (true, false, volume.capacity_bytes);
        }
        let mut candidates = written(&whole, &case.shape, fresh, 3, "client", 5);
        candidates.iter_mut().for_each(|one| one.metablock = MetablockId::new(one.metablock.raw() + 10_000));
        let sites = Sites::of(&case.view);
        let rule = case.rule(&sites);
        let room = if is_tight { Room::Tight } else { Room::Ample };
        let plans = choose_sets(&sites, &rule, &RaidAsk { room, ..ASK }, &candidates, &old, &Held::default());
        plans.sets.iter().for_each(|plan| check_plan(&case.view, &rule, plan));

        let mut ended = BTreeSet::new();
        for plan in &plans.sets {
            prop_assert_eq!(matches!(plan.why, SetReason::Repacked(_)), !plan.dissolves.is_empty());
            let slots: BTreeSet<MetablockId> = plan.slots.iter().map(|slot| slot.metablock).collect();
            for set in old.iter().filter(|set| plan.dissolves.contains(&set.id)) {
                prop_assert!(ended.insert(set.id), "{} ends twice", set.id);
                prop_assert!(live(set).is_subset(&slots), "{} has more:\n{}", set.id, plan);
                for slot in set.slots.iter().filter(|slot| slot.life == SlotLife::Live) {
                    let planned = plan.slots.iter().find(|one| one.metablock == slot.metablock).unwrap();
                    let stay = |member: &crate::Chosen| (Seat::at_home(member.node), member.volume);
                    prop_assert_eq!(&planned.members.iter().map(stay).collect::<Vec<_>>(), &slot.members);
                }
            }
        }
        let due: BTreeSet<RaidSetId> =
            old.iter().filter(|set| choose_repack(set, case.code.copies, room).is_some()).map(|set| set.id).collect();
        let kept: BTreeSet<RaidSetId> = plans.kept.iter().map(|kept| kept.raid_set).collect();
        prop_assert_eq!(due, ended.union(&kept).copied().collect::<BTreeSet<_>>());
        prop_assert!(ended.is_disjoint(&kept));
        let new: Vec<MetablockId> = plans.sets.iter().flat_map(|plan| &plan.slots).map(|slot| slot.metablock).collect();
        prop_assert_eq!(new.iter().collect::<BTreeSet<_>>().len(), new.len(), "a metablock is in two");
    }
}

/// Twelve nodes, and full RAID sets 4+2.
fn case() -> Case {
    let view = even_view(12, 1);
    let shape = shape(LayoutKind::Random, 12, 1, 3).unwrap();
    Case { candidates: written(&view, &shape, 40, 3, "client", 40), view, shape, code: code("4+2") }
}

fn repacked(case: &Case, candidates: &[Candidate], old: &[OldSet]) -> RaidPlans {
    let sites = Sites::of(&case.view);
    choose_sets(&sites, &case.rule(&sites), &ASK, candidates, old, &Held::default())
}

#[test]
fn halves_of_old_raid_sets_make_one_and_candidates_fill_it_up() {
    let case = case();
    let made = case.plans().sets;
    let nodes = |plan: &RaidPlan, slots: std::ops::Range<usize>| {
        plan.slots[slots].iter().flat_map(|slot| &slot.members).map(|member| member.node).collect::<BTreeSet<_>>()
    };
    let other = made[1..].iter().find(|plan| nodes(plan, 0..2).is_disjoint(&nodes(&made[0], 0..2))).unwrap();
    let halves = [recorded(1, &made[0], |slot| slot > 1), recorded(2, other, |slot| slot > 1)];
    let plans = repacked(&case, &[], &halves);
    assert_eq!(plans.sets.len(), 1, "{plans}");
    assert_eq!(plans.sets[0].dissolves, [RaidSetId::new(1), RaidSetId::new(2)]);
    assert_eq!(plans.sets[0].why, SetReason::Repacked(RepackReason::HalfDead));
    assert!(plans.to_string().contains("repacked, as half of the slots are dead; rs1 ends; rs2 ends"), "{plans}");

    let fresh = written(&case.view, &case.shape, 3, 3, "client", 1);
    let plans = repacked(&case, &fresh, &halves[..1]);
    assert_eq!((plans.sets[0].slots.len(), plans.left.len()), (4, 1), "{plans}");
}

#[test]
fn one_live_slot_waits_for_company() {
    let case = case();
    let alone = [recorded(1, &case.plans().sets[0], |slot| slot > 0)];
    let plans = repacked(&case, &[], &alone);
    assert_eq!(plans.kept, [KeptSet { raid_set: RaidSetId::new(1), why: KeptReason::Alone }], "{plans}");
    let fresh = written(&case.view, &case.shape, 2, 3, "client", 1);
    assert_eq!(repacked(&case, &fresh, &alone).sets.len(), 1);
}

#[test]
fn what_is_damaged_or_away_is_not_repacked() {
    let case = case();
    let mut old = recorded(1, &case.plans().sets[0], |slot| slot > 1);
    old.slots[0].members[0].0.home = NodeId::new(99);
    assert_eq!(repacked(&case, &[], &[old.clone()]).kept[0].why, KeptReason::Away, "it is a guest");
    old.slots[0].members.clear();
    assert_eq!(repacked(&case, &[], &[old]).kept[0].why, KeptReason::Damaged);
}
