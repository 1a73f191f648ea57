//! Laws that RAID sets keep on every layout of the registry, over many small clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_types::{HostName, InodeId, MetablockId, NodeClass, NodeId, RaidCode, Redundancy, VolumeId};
use proptest::prelude::*;

use super::*;
use crate::{Ask, View, VolumeView, choose};

mod even;
mod repack;

const MIB: u64 = 1 << 20;
pub(super) const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn code(text: &str) -> RaidCode {
    text.parse::<Redundancy>().unwrap().code().unwrap()
}

pub(super) fn volume(node: u64, host: u64, rack: u64) -> VolumeView {
    crate::tests::volume(node, 0, host, rack)
}

/// Nodes 1.. with a host and a disk each, dealt to racks 0.. in turn.
pub(super) fn even_view(nodes: u64, racks: u64) -> View {
    crate::tests::even(nodes, racks, 1)
}

/// A layout on a cluster of so many nodes. On chains a third of them are primaries at most.
pub(super) fn shape(layout: LayoutKind, nodes: u64, primaries: u32, replicas: u32) -> Option<LayoutShape> {
    let chain = (1..=nodes).map(NodeId::new).collect();
    let chain = layout.has_chain().then(|| ChainView::new(layout, chain, primaries, 1, replicas).ok().map(Arc::new));
    match chain {
        Some(None) => None,
        chain => Some(LayoutShape { layout, chain: chain.flatten() }),
    }
}

/// Metablocks as the layout places them, of files of several lengths in two directories.
pub(super) fn written(
    view: &View,
    shape: &LayoutShape,
    count: u64,
    replicas: usize,
    writer: &str,
    per_file: u64,
) -> Vec<Candidate> {
    let mut shape = shape.clone();
    let mut candidates = Vec::new();
    for number in 0..count {
        let (inode, index) = (InodeId::new(100 + number / per_file), number % per_file);
        let ask = Ask {
            layout: shape.layout,
            chain: shape.chain.clone(),
            replicas,
            on: NodeClass::Any,
            writer: HostName::new(writer),
            preferred: Vec::new(),
            index,
            inode,
            present: Vec::new(),
            exclude: Vec::new(),
            bytes: 64 * MIB,
            seed: 1,
        };
        let members: Vec<_> =
            choose(view, &ask).unwrap().members.iter().map(|member| (member.node, member.volume)).collect();
        if let Some(chain) = &mut shape.chain {
            Arc::make_mut(chain).add(&members.iter().map(|member| member.0).collect::<Vec<_>>());
        }
        candidates.push(Candidate {
            metablock: MetablockId::new(1 + number),
            inode,
            directory: InodeId::new(2 + inode.raw() % 2),
            index,
            len_bytes: 64 * MIB,
            waited: HOUR,
            members,
        });
    }
    candidates
}

pub(super) const ASK: RaidAsk = RaidAsk { delay: HOUR, room: Room::Ample };

/// A cluster, what was written on it, and a rule for its RAID sets.
#[derive(Clone, Debug)]
struct Case {
    view: View,
    shape: LayoutShape,
    code: RaidCode,
    candidates: Vec<Candidate>,
}

impl Case {
    fn rule(&self, sites: &Sites<'_>) -> RaidRule {
        RaidRule::new(sites, self.shape.layout, self.shape.chain.clone(), self.code).unwrap()
    }

    fn plans(&self) -> RaidPlans {
        let sites = Sites::of(&self.view);
        choose_sets(&sites, &self.rule(&sites), &ASK, &self.candidates, &[], &Held::default())
    }
}

const CODES: [&str; 9] = ["2+1", "2+2", "3+2", "4+2", "8+2", "6+3", "raid5(2)", "raid5(4)", "raid5"];

prop_compose! {
    /// Clusters with hosts that nodes share, racks of any size, and nodes that went off, filled up or were lost after the
    /// data had been written. Files have one to eleven metablocks of several lengths.
    fn any_case()(
        nodes in prop::collection::vec((prop::bool::weighted(0.1), 0..40_u32), 4..=24),
        racks in 1..=7_u64,
        layout in prop::sample::select(LayoutKind::ALL),
        code_name in prop::sample::select(&CODES[..]),
        primaries in 1..=8_u32,
        lengths in prop::collection::vec((1..=64_u64, 0..3_u32), 10..60),
        per_file in 1..12_u64,
    ) -> Option<Case> {
        let count = nodes.len() as u64;
        let mut view = View::default();
        let mut host = 0;
        for (number, (shares, _)) in (1..).zip(&nodes) {
            host += u64::from(!shares || host == 0);
            view.volumes.push(volume(number, host, host % racks));
        }
        let most = u32::try_from(count / 3).unwrap();
        let shape = shape(layout, count, primaries.clamp(1, most.max(1)), 3)?;
        let mut candidates = written(&view, &shape, lengths.len() as u64, 3, "client", per_file);
        for (candidate, (mib, waited)) in candidates.iter_mut().zip(lengths) {
            candidate.len_bytes = if mib > 40 { 64 * MIB } else { mib * MIB };
            candidate.waited = HOUR * waited;
        }
        for (volume, (_, defect)) in view.volumes.iter_mut().zip(&nodes) {
            volume.usable = *defect != 0;
            volume.off = *defect == 1;
            volume.free_bytes = if *defect == 2 { MIB } else { volume.free_bytes };
        }
        Some(Case { view, shape, code: code(code_name), candidates })
    }
}

/// Every way to choose so many of these.
fn subsets<T: Copy>(of: &[T], count: usize) -> Vec<Vec<T>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let with = |at: usize| subsets(&of[at + 1..], count - 1).into_iter().map(move |rest| [vec![of[at]], rest].concat());
    (0..of.len()).flat_map(with).collect()
}

/// What every plan of RAID sets keeps, whatever it was asked.
pub(super) fn check_plan(view: &View, rule: &RaidRule, plan: &RaidPlan) {
    let sites = Sites::of(view);
    let (code, members) = (rule.spread().code, plan.members());
    assert_eq!(check_spread(&sites, rule.spread(), &members), [], "{plan}");
    assert!((2..=code.slots as usize).contains(&plan.slots.len()) && plan.rows.len() == code.rows as usize, "{plan}");
    let volume = |member: &crate::Chosen| {
        view.volumes.iter().find(|one| (one.node, one.volume) == (member.node, member.volume)).unwrap()
    };
    for member in plan.slots.iter().flat_map(|slot| &slot.members).chain(&plan.rows) {
        let volume = volume(member);
        assert!(volume.usable && !volume.off && volume.incarnation == member.incarnation, "{member}");
    }
    assert!(plan.slots.iter().all(|slot| slot.members.len() == code.copies as usize), "{plan}");
    assert!(
        plan.rows.iter().all(|row| volume(row).has_room(row_room_bytes(plan.longest_bytes(), code.slots))),
        "{plan}"
    );
    // Hosts fail as a whole, and so many of them may.
    let nodes: Vec<NodeId> = members.seats().map(|(_, seat)| seat.node).collect();
    let hosts: BTreeSet<&HostName> = view.volumes.iter().filter(|v| nodes.contains(&v.node)).map(|v| &v.host).collect();
    let hosts: Vec<&HostName> = hosts.into_iter().collect();
    let down_with = |is_down: &dyn Fn(&VolumeView) -> bool| {
        view.volumes.iter().filter(|volume| is_down(volume)).map(|volume| volume.node).collect::<BTreeSet<_>>()
    };
    for lost in subsets(&hosts, code.tolerates() as usize) {
        let down = down_with(&|volume| lost.contains(&&volume.host));
        assert!(tolerates(&members, &down), "{lost:?} are too many:\n{plan}");
        assert!(fewest_fatal_losses(&members, |node| !down.contains(&node)) > 0);
    }
    assert!(fewest_fatal_losses(&members, |_| true) > code.tolerates(), "{plan}");
    if rule.spread().racks == Racks::Enough {
        for rack in view.volumes.iter().map(|volume| &volume.rack) {
            let down = down_with(&|volume| volume.rack == *rack);
            assert!(tolerates(&members, &down), "{rack} is too much:\n{plan}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_made_keeps_the_spread_rule_and_bears_its_losses(case in any_case()) {
        let Some(case) = case else { return Ok(()) };
        let sites = Sites::of(&case.view);
        let (rule, plans) = (case.rule(&sites), case.plans());
        plans.sets.iter().for_each(|plan| check_plan(&case.view, &rule, plan));

        // Each candidate is in one RAID set, or left with a reason, and what stays is of its record.
        let records: BTreeMap<MetablockId, &Candidate> = case.candidates.iter().map(|one| (one.metablock, one)).collect();
        let slots: Vec<&PlannedSlot> = plans.sets.iter().flat_map(|plan| &plan.slots).collect();
        let mut named: Vec<MetablockId> = slots.iter().map(|slot| slot.metablock).chain(plans.left.iter().map(|left| left.metablock)).collect();
        named.sort_unstable();
        prop_assert_eq!(named, records.keys().copied().collect::<Vec<_>>());
        for slot in slots {
            let record = records[&slot.metablock];
            prop_assert_eq!(record.len_bytes, slot.len_bytes);
            prop_assert!(slot.members.iter().all(|member| record.members.contains(&(member.node, member.volume))));
        }
        for plan in plans.sets.iter().filter(|plan| plan.why != SetReason::Waited) {
            let lengths = plan.slots.iter().map(|slot| slot.len_bytes);
            prop_assert!(grouping::has_little_padding(lengths, case.code.slots as usize), "{}", plan);
            let parents: BTreeSet<InodeId> = plan.slots.iter().map(|slot| match plan.why {
                SetReason::File => records[&slot.metablock].inode,
                _ => records[&slot.metablock].directory,
            }).collect();
            prop_assert_eq!(parents.len(), 1);
        }
    }

    #[test]
    fn slots_and_rows_lie_where_the_layout_wants_them(case in any_case()) {
        let Some(case) = case else { return Ok(()) };
        let Some(chain) = case.shape.chain.clone() else { return Ok(()) };
        let place = |member: &crate::Chosen| chain.place_of(member.node).unwrap();
        for plan in case.plans().sets {
            if case.shape.layout.has_primaries() {
                let on_primary = |member: &crate::Chosen| place(member) < chain.primaries() as usize;
                prop_assert!(plan.slots.iter().all(|slot| slot.members.iter().any(on_primary)), "{}", plan);
                for (row, member) in plan.rows.iter().enumerate() {
                    let copy = row + case.code.copies as usize;
                    let is_in_run = |column| chain.run(copy, column).iter().any(|(at, _)| *at == place(member));
                    prop_assert!((0..chain.columns()).any(is_in_run), "{}", plan);
                }
            } else if case.shape.layout == LayoutKind::Lsn {
                let members = plan.slots.iter().flat_map(|slot| &slot.members).chain(&plan.rows);
                prop_assert!(members.map(|member| chain.place_of(member.node)).all(|place| place.is_some()), "{}", plan);
            } else if case.code.copies == 1 && plan.why != SetReason::Waited {
                let sites = Sites::of(&case.view);
                let rule = case.rule(&sites);
                let members = plan.slots.iter().flat_map(|slot| &slot.members).chain(&plan.rows);
                let places: BTreeSet<usize> = members.map(place).collect();
                let is_turn = |first| places.iter().all(|place| rule.turn(first).contains(place));
                prop_assert!((0..chain.nodes().len()).any(is_turn), "{places:?}:\n{}", plan);
            }
        }
    }

    #[test]
    fn the_same_question_has_one_answer_in_any_order(case in any_case()) {
        let Some(case) = case else { return Ok(()) };
        let mut reversed = case.clone();
        reversed.view.volumes.reverse();
        reversed.candidates.reverse();
        prop_assert_eq!(case.plans(), reversed.plans());
    }
}

#[test]
fn a_plan_prints_a_reason_on_each_line() {
    let view = even_view(5, 1);
    let shape = shape(LayoutKind::Random, 5, 1, 3).unwrap();
    let case = Case { candidates: written(&view, &shape, 3, 3, "h1", 3), view, shape, code: code("2+1") };
    let text = case.plans().to_string();
    assert!(
        text.starts_with("RAID set of 2 slots up to 64.0 MiB, of one file\nslot 0 m1: n1 v10 (inc100): the"),
        "{text}"
    );
    assert!(text.contains("\nrow 0: n") && text.contains("fewest check bytes"), "{text}");
    assert!(text.ends_with("m3 is left: there are no others yet to share a RAID set with"), "{text}");
}

#[test]
fn a_file_on_few_hosts_goes_with_others_that_are_elsewhere() {
    let member = |node: u64| (NodeId::new(node), VolumeId::new(node * 10));
    let candidate = |number: u64, nodes: [u64; 2]| Candidate {
        metablock: MetablockId::new(number),
        inode: InodeId::new(number / 10),
        directory: InodeId::new(1),
        index: number,
        len_bytes: MIB,
        waited: Duration::ZERO,
        members: nodes.map(member).to_vec(),
    };
    let view = even_view(8, 1);
    let crowded = (10..14).map(|number| candidate(number, [1, 2]));
    let shape = shape(LayoutKind::Random, 8, 1, 3).unwrap();
    let case = Case { candidates: crowded.collect(), view, shape, code: code("4+2") };
    let plans = case.plans();
    assert!(plans.sets.is_empty(), "{plans}");
    let others = [candidate(20, [3, 1]), candidate(30, [2, 4])];
    let case = Case { candidates: [&case.candidates[..2], &others].concat(), ..case };
    let plans = case.plans();
    assert_eq!((plans.sets.len(), plans.left.len()), (1, 0), "{plans}");
    assert_eq!(plans.sets[0].slots.len(), 4);
}
