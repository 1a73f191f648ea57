use proptest::prelude::*;

use super::*;

fn chain(nodes: u32, primaries: u32, replicas: u32) -> Chain {
    Chain::new(nodes, primaries, replicas).unwrap()
}

#[test]
fn the_spread_is_the_paper_s() {
    for (primaries, replicas, wanted) in [(5, 4, 111), (5, 3, 41), (2, 3, 19), (3, 3, 26), (7, 1, 7)] {
        assert_eq!(equal_work::spread(primaries, replicas), wanted, "p={primaries} r={replicas}");
    }
    // The long way and the short way around ten million agree.
    let sum: f64 = (6_u32..=equal_work::spread(5, 15) as u32).rev().map(|i| 1.0 / f64::from(i)).sum();
    assert!((sum - 14.0).abs() < 1e-6, "{sum}");
}

#[test]
fn equal_work_stores_as_much_as_the_text_says() {
    let stored = equal_work::targets(chain(111, 5, 4), 10_000).unwrap().blocks_per_node();
    assert_eq!(&stored[..5], &[2000; 5]);
    for (node, blocks) in stored.iter().enumerate().take(110).skip(5) {
        assert!(blocks.abs_diff(10_000 / (node as u64 + 1)) <= 1, "node {}: {blocks}", node + 1);
    }
    assert!(stored[110] > 0 && stored[110] <= 91);
}

#[test]
fn simple_gives_others_316_of_10_000() {
    let stored = simple::targets(chain(100, 5, 4), 10_000).unwrap().blocks_per_node();
    assert!(stored[5..].iter().all(|blocks| (315..=316).contains(blocks)), "{stored:?}");
}

#[test]
fn a_column_holds_what_its_primaries_hold() {
    let grid = geared::Grid::new(chain(40, 10, 2), 5).unwrap();
    assert_eq!(grid.recovery_group(), 5);
    let targets = grid.targets(10_007).unwrap();
    for column in 0..5 {
        let primaries = (0..10).filter(|primary| grid.column(*primary) == column);
        let due: u64 = primaries.map(|primary| targets.copy(0)[primary as usize]).sum();
        let held: u64 = (0..grid.gears()).map(|gear| targets.copy(1)[grid.node(gear, column)]).sum();
        assert_eq!(due, held, "column {column}");
    }
}

#[test]
fn impossible_shapes_are_refused_with_the_nearest_possible_value() {
    let refusal = |result: Result<Chain>| result.unwrap_err().to_string();
    assert!(refusal(Chain::new(10, 5, 3)).ends_with("the nearest possible number of primaries is 3"));
    assert!(refusal(Chain::new(10, 0, 3)).ends_with("is 1"));
    assert!(refusal(Chain::new(2, 1, 3)).ends_with("the nearest possible number of copies is 2"));
    assert!(refusal(Chain::new(100, 1, 0)).ends_with("is 1"));
    let grid = |nodes, size| geared::Grid::new(chain(nodes, 10, 2), size).unwrap_err().to_string();
    assert!(grid(40, 3).ends_with("the nearest possible gear size is 2"));
    assert!(grid(42, 5).ends_with("the nearest possible number of nodes is 40"));
    assert!(grid(44, 5).ends_with("the nearest possible number of nodes is 45"));
    assert!(equal_work::targets(chain(9, 3, 3), 0).unwrap_err().to_string().ends_with("is 1"));
}

#[test]
fn copies_on_the_ring_halve_the_gaps() {
    assert_eq!(ring::halving(16, 8, 3), [3, 11, 7, 15, 5, 13, 9, 1]);
    assert_eq!(ring::widest_gap(16, &ring::halving(16, 3, 0)), 8);
    assert_eq!(ring::widest_gap(9, &ring::evenly(9, 3, 4)), 3);
    assert_eq!(ring::widest_gap(9, &[5]), 9);
}

fn shapes() -> impl Strategy<Value = (Chain, u64)> {
    (1_u32..12, 1_u32..5, 0_u32..80, 1_u64..20_000).prop_map(|(primaries, replicas, more, blocks)| {
        (chain(primaries * replicas + more, primaries, replicas), blocks)
    })
}

/// The conditions of every layout.
fn check(chain: Chain, blocks: u64, targets: &Targets) {
    assert_eq!(targets.copies(), chain.replicas() as usize);
    for copy in 0..targets.copies() {
        assert_eq!(targets.copy(copy).iter().sum::<u64>(), blocks, "copy {copy}");
    }
    let stored = targets.blocks_per_node();
    assert_eq!(stored.len(), chain.nodes() as usize);
    assert!(stored.iter().all(|held| *held <= blocks), "no node can hold a block twice: {stored:?}");
    assert!(stored[chain.primaries() as usize..].is_sorted_by(|one, next| one >= next), "{stored:?}");
}

proptest! {
    #[test]
    fn every_layout_conserves_blocks_and_never_grows_along_the_chain((chain, blocks) in shapes()) {
        check(chain, blocks, &simple::targets(chain, blocks).unwrap());
        check(chain, blocks, &equal_work::targets(chain, blocks).unwrap());
        prop_assert_eq!(even(chain.nodes(), chain.replicas(), blocks).unwrap().iter().sum::<u64>(),
            blocks * u64::from(chain.replicas()));
    }

    #[test]
    fn equal_work_lets_any_first_nodes_do_equal_parts((chain, blocks) in shapes()) {
        let spread = equal_work::spread(chain.primaries(), chain.replicas());
        let stored = equal_work::targets(chain, blocks).unwrap().blocks_per_node();
        let full = usize::try_from(spread).unwrap().min(chain.nodes() as usize + 1) - 1;
        for n in chain.primaries() as usize..=full {
            prop_assert!(stored[n - 1] + 1 >= blocks / n as u64, "node {} of {:?}", n, stored);
        }
    }

    #[test]
    fn gears_conserve_blocks_column_by_column(columns in 1_u32..6, each in 1_u32..4, replicas in 1_u32..4,
        more in 0_u32..8, blocks in 1_u64..20_000) {
        let primaries = columns * each;
        let gears = (primaries * (replicas - 1)).div_ceil(columns) + more;
        let chain = chain(primaries + gears * columns, primaries, replicas);
        let grid = geared::Grid::new(chain, columns).unwrap();
        let targets = grid.targets(blocks).unwrap();
        for copy in 0..targets.copies() {
            prop_assert_eq!(targets.copy(copy).iter().sum::<u64>(), blocks);
        }
        for column in 0..columns {
            let down: Vec<u64> = (0..grid.gears()).map(|gear| targets.blocks_per_node()[grid.node(gear, column)]).collect();
            prop_assert!(down.is_sorted_by(|one, next| one >= next), "{:?}", down);
        }
    }

    #[test]
    fn even_places_are_distinct_and_no_gap_is_wider_than_need_be(nodes in 1_u32..60, replicas in 1_u32..12, first in 0_u32..60) {
        let places = ring::evenly(nodes, replicas, first);
        let copies = replicas.min(nodes);
        prop_assert_eq!(places.iter().collect::<std::collections::BTreeSet<_>>().len() as u32, copies);
        prop_assert_eq!(ring::widest_gap(nodes, &places), nodes.div_ceil(copies));
        prop_assert!(places.contains(&(first % nodes)) && places.iter().all(|place| *place < nodes));
    }

    /// Against every way to place the copies that come.
    #[test]
    fn the_least_widest_gap_after_more_copies_is_reached(nodes in 1_u32..10, taken in 0_u32..1024, more in 0_u32..4) {
        let at = |mask: u32| (0..nodes).filter(|place| mask >> place & 1 == 1).collect::<Vec<_>>();
        let taken = taken & ((1 << nodes) - 1);
        let ways = (0_u32..1 << nodes).filter(|mask| mask & taken == taken && (mask & !taken).count_ones() <= more);
        let least = ways.map(|mask| ring::widest_gap(nodes, &at(mask))).min().unwrap();
        prop_assert_eq!(ring::widest_gap_after(nodes, &at(taken), more), least);
    }

    #[test]
    fn ring_places_are_distinct_and_growing_moves_none(nodes in 1_u32..60, replicas in 1_u32..12, first in 0_u32..60) {
        let places = ring::halving(nodes, replicas, first);
        let mut sorted = places.clone();
        sorted.sort_unstable();
        sorted.dedup();
        prop_assert_eq!(sorted.len() as u32, replicas.min(nodes));
        prop_assert_eq!(&ring::halving(nodes, replicas + 1, first)[..places.len()], &places[..]);
    }
}
