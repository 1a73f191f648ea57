use proptest::prelude::*;

use super::*;

fn nodes(count: u64) -> Vec<NodeId> {
    (1..=count).map(NodeId::new).collect()
}

fn chain(count: u64, shape: ChainShape, primaries: u32, replicas: u32) -> DatasetChain {
    DatasetChain::new(DatasetId::new(1), nodes(count), shape, primaries, replicas).unwrap()
}

fn dead(ids: &[u64]) -> BTreeSet<NodeId> {
    ids.iter().copied().map(NodeId::new).collect()
}

#[test]
fn the_floor_is_the_primaries_or_the_cover() {
    assert_eq!(chain(20, ChainShape::EqualWork, 2, 3).min_active(), 2);
    assert_eq!(chain(20, ChainShape::EqualWork, 2, 3).spread(), 19);
    assert_eq!(chain(9, ChainShape::Anywhere, 0, 3).min_active(), 7);
    // Copies on places 0, 5 and 2 of nine leave gaps of 2, 3 and 4.
    assert_eq!(chain(9, ChainShape::Ring, 0, 3).min_active(), 4);
    assert_eq!(chain(40, ChainShape::Geared { gear_size: 5 }, 10, 2).min_active(), 10);
}

#[test]
fn a_dead_primary_asks_for_its_recovery_group_and_nothing_else() {
    let geared = chain(40, ChainShape::Geared { gear_size: 5 }, 10, 2);
    // The third primary's second copies lie in the third column, over five gears.
    let cover = geared.cover(&dead(&[3]));
    let group: Vec<u64> = cover.iter().map(|node| node.raw()).filter(|id| *id > 10).collect();
    assert_eq!(group, [13, 18, 23, 28, 33]);
    assert_eq!(cover.len(), 10 - 1 + 5, "p - 1 + recovery group");
    // Without gears all nodes with second copies must come: all of the spread but the dead one, about e * p - 1.
    let plain = chain(40, ChainShape::EqualWork, 10, 2);
    assert_eq!(plain.cover(&dead(&[3])).len(), plain.spread() as usize - 1);
    assert_eq!(plain.spread(), 29);
    assert_eq!(plain.cover(&dead(&[30])).len(), 10, "a dead secondary adds no node");
}

#[test]
fn gears_come_whole_and_the_wanted_number_holds_them_back() {
    let mut geared = chain(25, ChainShape::Geared { gear_size: 5 }, 5, 2);
    let counts = |chain: &DatasetChain| chain.stages(&BTreeSet::new()).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(counts(&geared), [5, 5, 5, 5, 5]);
    geared.wanted_active = Some(14);
    assert_eq!(counts(&geared), [5, 5]);
    geared.wanted_active = Some(1);
    assert_eq!(counts(&geared), [5], "never below the cover");
}

#[test]
fn the_active_number_is_set_within_the_limits_of_the_chain() {
    let mut geared = chain(25, ChainShape::Geared { gear_size: 5 }, 5, 2);
    assert_eq!(geared.set_wanted(Some(12)).unwrap(), 10, "gears come whole");
    assert_eq!(geared.set_wanted(None).unwrap(), 25);
    let refusal = |wanted| geared.clone().set_wanted(Some(wanted)).unwrap_err().to_string();
    assert!(refusal(4).ends_with("5 to 25 nodes can be active; 4 are too few to hold everything"), "{}", refusal(4));
    assert!(refusal(26).contains("26 are too many"), "{}", refusal(26));
    assert_eq!(geared.wanted_active, None, "a refusal changes nothing");
}

#[test]
fn the_second_chain_begins_where_the_first_is_late() {
    let first = chain(6, ChainShape::EqualWork, 2, 2);
    let order = choose_chain(nodes(6), &sum_scores([&first]));
    assert_eq!(order.iter().map(|node| node.raw()).collect::<Vec<_>>(), [6, 5, 4, 3, 1, 2]);
}

#[test]
fn impossible_chains_are_refused() {
    let refusal = |shape, primaries, replicas| {
        DatasetChain::new(DatasetId::new(1), nodes(9), shape, primaries, replicas).unwrap_err().to_string()
    };
    assert!(refusal(ChainShape::EqualWork, 10, 1).contains("nearest possible number of primaries is 9"));
    assert!(refusal(ChainShape::Anywhere, 0, 10).contains("nearest possible number of copies is 9"));
    assert!(refusal(ChainShape::Geared { gear_size: 4 }, 3, 2).contains("gear"));
    let twice = vec![NodeId::new(1), NodeId::new(1)];
    assert!(DatasetChain::new(DatasetId::new(1), twice, ChainShape::Ring, 0, 2).is_err());
}

/// Every way in which a block's copies can lie, as places in the chain.
fn placements(chain: &DatasetChain) -> Vec<Vec<usize>> {
    let count = chain.nodes.len();
    match chain.shape {
        ChainShape::Ring => (0..chain.count()).map(|first| chain.on_ring(first).into_iter().collect()).collect(),
        ChainShape::Anywhere => (0..1_u32 << count)
            .filter(|mask| mask.count_ones() == chain.replicas)
            .map(|mask| (0..count).filter(|place| mask >> place & 1 == 1).collect())
            .collect(),
        _ => {
            let targets = chain.shares();
            let runs: Vec<Vec<usize>> = (0..targets.copies()).map(|copy| holding(&targets, copy).collect()).collect();
            runs.iter().fold(vec![Vec::new()], |so_far, run| {
                so_far
                    .iter()
                    .flat_map(|one: &Vec<usize>| run.iter().map(move |place| [one.clone(), vec![*place]].concat()))
                    .collect()
            })
        }
    }
}

proptest! {
    #[test]
    fn the_cover_has_a_living_copy_of_everything_that_lives(kind in 0_u32..4, replicas in 1_u32..4,
        more in 0_u64..6, gone in proptest::collection::btree_set(1_u64..12, 0..4)) {
        let (shape, primaries) = match kind {
            0 => (ChainShape::Anywhere, 0),
            1 => (ChainShape::Ring, 0),
            2 => (ChainShape::Simple, 2),
            _ => (ChainShape::EqualWork, 2),
        };
        let chain = chain(u64::from(replicas) * 2 + more, shape, primaries, replicas);
        let gone: BTreeSet<NodeId> = gone.into_iter().map(NodeId::new).collect();
        let cover = chain.cover(&gone);
        prop_assert!(cover.iter().all(|node| !gone.contains(node)));
        for places in placements(&chain) {
            let copies: Vec<NodeId> = places.iter().map(|place| chain.nodes[*place]).collect();
            if copies.iter().any(|node| !gone.contains(node)) {
                prop_assert!(copies.iter().any(|node| cover.contains(node)), "{:?} of {:?}", copies, cover);
            }
        }
    }

    #[test]
    fn stages_name_each_living_node_once(gears in 2_u64..6, gone in proptest::collection::btree_set(1_u64..20, 0..4)) {
        let chain = chain(4 + 4 * gears, ChainShape::Geared { gear_size: 4 }, 4, 2);
        let gone: BTreeSet<NodeId> = gone.into_iter().map(NodeId::new).collect();
        let mut named: Vec<NodeId> = chain.stages(&gone).concat();
        named.sort_unstable();
        let living: Vec<NodeId> = chain.nodes.iter().copied().filter(|node| !gone.contains(node)).collect();
        prop_assert_eq!(named, living);
    }
}

proptest! {
    /// A block of primary `j` has its second copy in the gears of `j`'s column, its third in those of the next.
    #[test]
    fn the_cover_of_gears_has_a_living_copy_of_everything_that_lives(gear_size in 1_u32..5, each in 1_u32..3,
        replicas in 1_u32..4, more in 0_u32..3, gone in proptest::collection::btree_set(1_u64..40, 0..5)) {
        let primaries = gear_size * each;
        let gears = (primaries * (replicas - 1)).div_ceil(gear_size) + more;
        let count = u64::from(primaries + gears * gear_size);
        let chain = chain(count, ChainShape::Geared { gear_size }, primaries, replicas);
        let gone: BTreeSet<NodeId> = gone.into_iter().map(NodeId::new).collect();
        let cover = chain.cover(&gone);
        let targets = chain.shares();
        for primary in 0..primaries {
            let column = |copy: usize| (primary as usize + copy - 1) % gear_size as usize;
            let run = |copy: usize| {
                let behind = (primaries as usize..count as usize).filter(move |place| {
                    (place - primaries as usize) % gear_size as usize == column(copy)
                });
                behind.filter(|place| targets.copy(copy)[*place] > 0).collect::<Vec<_>>()
            };
            let mut blocks = vec![vec![primary as usize]];
            for copy in 1..replicas as usize {
                let run = run(copy);
                blocks = blocks.iter()
                    .flat_map(|block| run.iter().map(move |place| [block.clone(), vec![*place]].concat()))
                    .collect();
            }
            for block in blocks {
                let copies: Vec<NodeId> = block.iter().map(|place| chain.nodes[*place]).collect();
                if copies.iter().any(|node| !gone.contains(node)) {
                    prop_assert!(copies.iter().any(|node| cover.contains(node)), "{:?} of {:?}", copies, cover);
                }
            }
        }
    }
}
