use proptest::prelude::*;

use super::*;
use crate::reach::Holding;

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
    assert_eq!(chain(9, ChainShape::Ring, 0, 3).min_active(), 3);
    assert_eq!(chain(10, ChainShape::Ring, 0, 3).min_active(), 4);
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
        ChainShape::Ring => ring::spacings(chain.count(), chain.replicas).into_iter().collect(),
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

/// The fewest nodes that hold a living copy of every block that has one, of all sets of nodes.
fn fewest(chain: &DatasetChain, gone: &BTreeSet<NodeId>) -> usize {
    let living: Vec<Vec<usize>> = placements(chain)
        .into_iter()
        .map(|places| places.into_iter().filter(|place| !gone.contains(&chain.nodes[*place])).collect::<Vec<_>>())
        .filter(|places| !places.is_empty())
        .collect();
    let covers = |mask: &u32| living.iter().all(|places| places.iter().any(|place| mask >> place & 1 == 1));
    (0..1_u32 << chain.nodes.len()).filter(covers).map(u32::count_ones).min().unwrap() as usize
}

#[test]
fn no_fewer_nodes_than_the_circle_s_cover_hold_everything() {
    for (count, replicas) in (1_u32..12).flat_map(|count| (1..=count.min(6)).map(move |replicas| (count, replicas))) {
        let ring = chain(count.into(), ChainShape::Ring, 0, replicas);
        let all = BTreeSet::new();
        assert_eq!(ring.min_active(), count.div_ceil(replicas), "{count} nodes, {replicas} copies");
        assert_eq!(fewest(&ring, &all), ring.min_active() as usize, "{count} nodes, {replicas} copies");
        assert_eq!(ring.cover(&all), ring.nodes[..ring.min_active() as usize], "the first of the circle");
    }
}

#[test]
fn a_dead_node_of_the_circle_s_cover_is_made_up_for_elsewhere() {
    let ring = chain(9, ChainShape::Ring, 0, 3);
    // Places 0, 3 and 6 go together, and so on: three neighbours without the dead one are enough.
    assert_eq!(ring.cover(&dead(&[2])), [3, 4, 5].map(NodeId::new));
    assert_eq!(ring.cover(&dead(&[9])), [1, 2, 3].map(NodeId::new));
}

#[test]
fn the_shortest_row_is_not_always_the_one_of_which_the_fewest_nodes_stay() {
    let ring = chain(10, ChainShape::Ring, 0, 3);
    for gone in [[1, 2, 5, 8], [1, 4, 7, 10], [2, 3, 6, 9], [2, 4, 6, 8], [2, 5, 8, 9], [3, 5, 7, 9], [3, 6, 9, 10]] {
        let gone = dead(&gone);
        assert_eq!(ring.cover(&gone).len(), fewest(&ring, &gone), "{gone:?}");
    }
}

#[test]
fn blocks_that_lie_elsewhere_add_to_the_cover() {
    let holding = |nodes: &[u64], copies: usize| Holding {
        nodes: nodes.iter().copied().map(NodeId::new).collect(),
        copies,
        metablocks: 1,
        example: String::new(),
        slots: Vec::new(),
    };
    let mut chains = [chain(9, ChainShape::Ring, 0, 3), chain(12, ChainShape::EqualWork, 2, 2)];
    // Half-way points leave a gap of four; a block of the other dataset is covered by its primary.
    let holdings = [
        holding(&[4, 9, 6], 3),
        holding(&[5, 7, 8], 3),
        holding(&[1, 4, 7], 3),
        holding(&[2, 12], 2),
        holding(&[4, 5, 6, 7], 3),
    ];
    set_strays(&mut chains, &holdings, &BTreeSet::new());
    assert_eq!(chains[0].cover(&BTreeSet::new()), [1, 2, 3, 4, 5].map(NodeId::new));
    assert_eq!(chains[1].min_active(), 2);
    // With node 4 dead, node 6 or 9 must be on for the first; both are in no other block.
    set_strays(&mut chains, &holdings, &dead(&[4]));
    assert_eq!(chains[0].cover(&dead(&[4])), [1, 2, 3, 5, 6].map(NodeId::new));
    set_strays(&mut chains, &holdings[2..], &BTreeSet::new());
    assert_eq!(chains[0].min_active(), 3, "all have moved");
    // A chain, with blocks that were written while its primaries were missing.
    let mut chains = [chain(9, ChainShape::EqualWork, 2, 3)];
    set_strays(
        &mut chains,
        &[holding(&[1, 4, 5], 3), holding(&[3, 4, 5], 3), holding(&[5, 6, 11], 3)],
        &BTreeSet::new(),
    );
    assert_eq!(chains[0].cover(&BTreeSet::new()), [1, 2, 5].map(NodeId::new));
    assert_eq!(chains[0].stages(&BTreeSet::new())[0].len(), 3);
    assert_eq!(
        chains[0].holder_sets()[&dead(&[5, 6])],
        0.25,
        "a third, rounded down to a power of two; node 11 is on no chain"
    );
}

proptest! {
    /// Against all sets of nodes. All cases within these bounds were tried once, outside of this test.
    #[test]
    fn with_dead_nodes_the_circle_s_cover_is_the_smallest(count in 2_u32..12, copies in 1_u32..7,
        gone in proptest::collection::btree_set(1_u64..12, 0..6)) {
        let ring = chain(count.into(), ChainShape::Ring, 0, copies.min(count));
        let gone: BTreeSet<NodeId> = gone.into_iter().map(NodeId::new).collect();
        let (cover, least) = (ring.cover(&gone).len(), fewest(&ring, &gone));
        prop_assert!(cover == least, "{} nodes, {} at least", cover, least);
    }

    /// Against every instant at which another node begins.
    #[test]
    fn the_share_of_time_with_an_awake_copy_is_exact(count in 1_u32..14, copies in 1_u32..7, at_once in 0_usize..14,
        gone in proptest::collection::btree_set(1_u64..14, 0..6)) {
        let ring = chain(count.into(), ChainShape::Ring, 0, copies.min(count));
        let turns: Vec<NodeId> = ring.nodes.iter().copied().filter(|node| !gone.contains(&node.raw())).collect();
        prop_assume!(!turns.is_empty());
        let at_once = at_once.min(turns.len());
        let blocks = placements(&ring);
        let awake = |begin: usize, block: &Vec<usize>| (0..at_once)
            .any(|step| block.iter().any(|place| ring.nodes[*place] == turns[(begin + step) % turns.len()]));
        let found: usize =
            (0..turns.len()).map(|begin| blocks.iter().filter(|block| awake(begin, block)).count()).sum();
        let share = found as f64 / (turns.len() * blocks.len()) as f64;
        prop_assert!((ring.awake_share(&turns, at_once as f64) - share).abs() < 1e-9, "{}", share);
        if turns.len() == count as usize {
            let simple = f64::from(copies.min(count)) * at_once as f64 / f64::from(count);
            prop_assert!((share - simple.min(1.0)).abs() < 1e-9, "copies hardly overlap: {} {}", share, simple);
        }
    }
}

/// RAID sets of a code on these nodes, slots first.
fn raid_set(nodes: &[u64], rows: usize) -> Holding {
    let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId::new).collect();
    let slots = nodes[..nodes.len() - rows].to_vec();
    Holding { nodes, copies: rows + 1, metablocks: 4, example: String::new(), slots }
}

#[test]
fn rows_sleep_behind_the_primaries_and_replace_a_dead_one() {
    let holdings = [raid_set(&[1, 2, 3, 4, 7, 16], 2), raid_set(&[2, 3, 4, 5, 8, 17], 2)];
    let mut chains = [chain(20, ChainShape::Simple, 5, 3)];
    let cover = |chains: &mut [DatasetChain], gone: &[u64]| {
        set_strays(chains, &holdings, &dead(gone));
        chains[0].cover(&dead(gone)).iter().map(|node| node.raw()).collect::<Vec<_>>()
    };
    assert_eq!(cover(&mut chains, &[]), [1, 2, 3, 4, 5]);
    let second: Vec<u64> = (6..=13).collect();
    assert_eq!(cover(&mut chains, &[1]), [&[2, 3, 4, 5], &second[..]].concat(), "with the second copies a row of each");
    assert_eq!(cover(&mut chains, &[1, 2]), [&[3, 4, 5], &second[..], &[16]].concat(), "one has lost two slots");
    // Everything is in RAID sets.
    assert_eq!(chains[0].holder_sets(), BTreeMap::new());
    assert!((chains[0].coded().iter().map(|coded| coded.share).sum::<f64>() - 1.0).abs() < 1e-9);
}

#[test]
fn k_of_n_of_the_circle_hold_what_is_encoded_on_its_turns() {
    for (nodes, code, wanted) in [(12, (4, 2), 8), (20, (8, 2), 16), (15, (8, 2), 12), (9, (2, 1), 6)] {
        let turn = |first| ebb_layout::targets::ring::evenly(nodes, code.0 + code.1, first);
        let set = |first| {
            raid_set(&turn(first).iter().map(|place| u64::from(*place) + 1).collect::<Vec<_>>(), code.1 as usize)
        };
        let holdings: Vec<Holding> = (0..nodes).map(set).collect();
        let mut chains = [chain(nodes.into(), ChainShape::Ring, 0, 3)];
        set_strays(&mut chains, &holdings, &BTreeSet::new());
        assert_eq!(chains[0].cover(&BTreeSet::new()).len(), wanted, "{code:?} on {nodes}");
    }
}

proptest! {
    #[test]
    fn every_raid_set_that_can_be_is_at_hand_with_the_cover(sets in proptest::collection::vec(
            (proptest::sample::subsequence((1_u64..13).collect::<Vec<_>>(), 3..8), 1_usize..3), 1..12),
            gone in proptest::collection::btree_set(1_u64..13, 0..4), kind in 0_u32..3) {
        let shape = [ChainShape::Anywhere, ChainShape::Ring, ChainShape::EqualWork][kind as usize];
        let mut chains = [chain(12, shape, 2, 3)];
        let gone: BTreeSet<NodeId> = gone.into_iter().map(NodeId::new).collect();
        let holdings: Vec<Holding> = sets.iter().map(|(nodes, rows)| raid_set(nodes, *rows)).collect();
        set_strays(&mut chains, &holdings, &gone);
        let cover = chains[0].cover(&gone);
        for held in &holdings {
            let on = held.nodes.iter().filter(|node| cover.contains(node)).count();
            let alive = held.nodes.iter().filter(|node| !gone.contains(node)).count();
            let needed = held.nodes.len() + 1 - held.copies;
            let living = held.slots.iter().filter(|node| !gone.contains(node));
            prop_assert!(on >= needed.min(alive) || living.clone().all(|node| cover.contains(node)) &&
                (alive < needed || living.count() == held.slots.len()), "{:?} with {:?}", held, cover);
        }
    }
}

#[test]
fn one_half_of_the_localized_storage_nodes_is_the_cover() {
    let nodes = |count: u64| (1..=count).map(NodeId::new).collect::<Vec<_>>();
    let chain =
        |count, replicas| DatasetChain::new(DatasetId::new(1), nodes(count), ChainShape::Halves, 0, replicas).unwrap();
    let cover = |count, replicas, dead: &[u64]| {
        let dead = dead.iter().copied().map(NodeId::new).collect();
        chain(count, replicas).cover(&dead).iter().map(|node| node.raw()).collect::<Vec<_>>()
    };
    assert_eq!((cover(6, 2, &[]), cover(5, 2, &[])), (vec![1, 2, 3], vec![1, 2, 3]));
    assert_eq!(cover(6, 2, &[2]), [4, 5, 6], "the other half");
    assert_eq!(cover(6, 2, &[2, 5]), [1, 3, 4, 6], "a block of n2 may have its other copy on any of the other half");
    assert_eq!(cover(4, 1, &[]), [1, 2, 3, 4], "one copy: all must be on");
    let stages: Vec<usize> = chain(6, 2).stages(&BTreeSet::new()).iter().map(Vec::len).collect();
    assert_eq!((stages, chain(6, 2).min_active()), (vec![3, 1, 1, 1], 3));
}
