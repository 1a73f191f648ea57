//! How few nodes are enough, and how evenly slots and rows lie.

use super::*;

/// The plans for all that was written, and what nodes hold then.
fn encoded(view: &View, shape: &LayoutShape, code: RaidCode, candidates: &[Candidate]) -> (RaidPlans, Held) {
    let sites = Sites::of(view);
    let rule = RaidRule::new(&sites, shape.layout, shape.chain.clone(), code).unwrap();
    let plans = choose_sets(&sites, &rule, &ASK, candidates, &[], &Held::default());
    let mut held = Held::default();
    for plan in &plans.sets {
        check_plan(view, &rule, plan);
        for member in plan.slots.iter().flat_map(|slot| &slot.members) {
            *held.thin.entry(member.node).or_default() += 1;
        }
        plan.rows.iter().for_each(|row| *held.check_bytes.entry(row.node).or_default() += 1);
    }
    (plans, held)
}

/// The most that one of so many nodes has, against the mean.
fn skew(on: &BTreeMap<NodeId, u64>, nodes: u64) -> f64 {
    let sum: u64 = on.values().sum();
    on.values().copied().max().unwrap_or(0) as f64 * nodes as f64 / sum.max(1) as f64
}

fn full(plans: &RaidPlans, code: RaidCode) -> usize {
    plans.sets.iter().filter(|plan| plan.slots.len() == code.slots as usize).count()
}

#[test]
fn as_many_hosts_as_a_code_says_are_enough_and_one_less_are_not() {
    for layout in [LayoutKind::Random, LayoutKind::Striped, LayoutKind::PowerBalanced] {
        for name in ["2+1", "2+2", "4+2", "8+2", "6+3", "10+4", "raid5(2)", "raid5(4)", "raid5"] {
            let code = code(name);
            // On a circle two copies make fewer pairs: those of its spacings.
            if layout == LayoutKind::PowerBalanced && code.copies == 2 {
                continue;
            }
            let least = u64::from(code.least_nodes()).max(3);
            let view = even_view(least, 1);
            let whole = shape(layout, least, 1, 3).unwrap();
            let count = u64::from(code.slots) * 6;
            let (plans, _) = encoded(&view, &whole, code, &written(&view, &whole, count, 3, "client", count));
            assert!(full(&plans, code) >= 2, "{layout} {name} on {least} hosts:\n{plans}");
            if least > 3 && u64::from(code.least_nodes()) == least {
                let view = even_view(least - 1, 1);
                let small = shape(layout, least - 1, 1, 3).unwrap();
                let (plans, _) = encoded(&view, &small, code, &written(&view, &small, count, 3, "client", count));
                assert_eq!(full(&plans, code), 0, "{layout} {name} on {} hosts:\n{plans}", least - 1);
            }
        }
    }
}

#[test]
fn on_a_chain_as_many_primaries_as_slots_are_enough() {
    for layout in [LayoutKind::Simple, LayoutKind::EqualWork, LayoutKind::Geared] {
        let view = even_view(12, 1);
        let shape = shape(layout, 12, 4, 3).unwrap();
        for name in ["4+2", "raid5(4)"] {
            let (plans, held) = encoded(&view, &shape, code(name), &written(&view, &shape, 400, 3, "client", 40));
            assert_eq!((full(&plans, code(name)), plans.left.len()), (100, 0), "{layout} {name}");
            let primaries = (1..=4).map(NodeId::new).map(|node| (node, held.thin_on(node))).collect();
            assert!(skew(&primaries, 4) < 1.02, "{layout} {name}: {held:?}");
            assert!((1..=4).all(|node| held.check_bytes_on(NodeId::new(node)) == 0), "rows sleep behind the primaries");
        }
    }
}

/// Goal: no node holds much more than others of what is read, or of the rows. Method: first copies by lot, on one host,
/// and in turn.
#[test]
fn slots_and_rows_are_even() {
    for (layout, writer) in [
        (LayoutKind::Random, "client"),
        (LayoutKind::Random, "h1"),
        (LayoutKind::Striped, "client"),
        (LayoutKind::PowerBalanced, "client"),
    ] {
        // Racks that are just enough leave no choice, so there are more.
        for (name, nodes, racks) in [("8+2", 20, 1), ("8+2", 28, 7), ("4+2", 12, 4), ("raid5", 15, 1)] {
            let view = even_view(nodes, racks);
            let shape = shape(layout, nodes, 1, 3).unwrap();
            let count = nodes * 40;
            let candidates = written(&view, &shape, count, 3, writer, 50);
            let (plans, held) = encoded(&view, &shape, code(name), &candidates);
            let slots: usize = plans.sets.iter().map(|plan| plan.slots.len()).sum();
            assert!(slots as u64 * 100 >= count * 99, "{layout} {name}: {slots} of {count} are encoded");
            // What one host writes has no copy on its neighbours in the rack.
            let members = candidates.iter().flat_map(|candidate| &candidate.members);
            let with_members = members.map(|member| member.0).collect::<BTreeSet<_>>().len() as u64;
            let skews = (skew(&held.thin, with_members), skew(&held.check_bytes, nodes));
            assert!(skews.0 < 1.15 && skews.1 < 1.25, "{layout}, written by {writer}, {name} on {nodes}: {skews:?}");
        }
    }
}

/// Goal: `K` awake neighbours have `k` members of each RAID set at hand from `K / N = k / n` on. Method: all neighbours.
#[test]
fn neighbours_on_the_circle_have_enough_of_each_raid_set() {
    for (name, nodes) in [("8+2", 20_u64), ("8+2", 25), ("4+2", 12), ("4+2", 15), ("6+3", 21)] {
        let code = code(name);
        let view = even_view(nodes, 1);
        let shape = shape(LayoutKind::PowerBalanced, nodes, 1, 3).unwrap();
        let mut candidates = written(&view, &shape, nodes * 20, 3, "client", nodes * 20);
        candidates.iter_mut().for_each(|candidate| candidate.waited = Duration::ZERO);
        let (plans, _) = encoded(&view, &shape, code, &candidates);
        assert!(full(&plans, code) as u64 * u64::from(code.slots) >= nodes * 19, "{name} on {nodes}:\n{plans}");
        let awake = (nodes * u64::from(code.slots)).div_ceil(u64::from(code.slots + code.rows));
        for plan in &plans.sets {
            for first in 0..nodes {
                let asleep = (first + awake..first + nodes).map(|place| NodeId::new(1 + place % nodes)).collect();
                assert!(tolerates(&plan.members(), &asleep), "{name} on {nodes}, awake from {first} on:\n{plan}");
            }
        }
    }
}
