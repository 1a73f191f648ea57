//! The circle of the power-balanced layout (BlinkFS, Sec. 4.2): what has to be awake for its blocks to be in reach.
//!
//! The copies of a block lie at equal distances. With `r` copies on `N` nodes any `ceil(N / r)` neighbours hold a copy of
//! every block, and no smaller number of nodes does: each node holds `r / N` of the blocks.

use std::collections::BTreeSet;

use ebb_layout::targets::ring;
use ebb_types::NodeId;

/// Sets of places, each with all copies of some block; every block has one of them.
pub(super) fn spacings(count: u32, replicas: u32) -> BTreeSet<Vec<usize>> {
    (0..count).map(|first| places(count, replicas, first)).collect()
}

/// Places of the copies of the blocks with their first copy at `first`, ascending.
pub(super) fn places(count: u32, replicas: u32, first: u32) -> Vec<usize> {
    let mut places: Vec<usize> = ring::evenly(count, replicas, first).into_iter().map(|place| place as usize).collect();
    places.sort_unstable();
    places
}

/// Few places that hold a living copy of every block that has one: a row of neighbours without the ones that are not
/// needed. Of all rows the one of which the fewest places stay, then the shortest, then the first.
///
/// With a node dead here and there, the shortest row is not always the one of which the fewest stay.
pub(super) fn cover(
    count: usize,
    spacings: &BTreeSet<Vec<usize>>,
    is_alive: impl Fn(usize) -> bool,
) -> BTreeSet<usize> {
    let living = |places: &Vec<usize>| places.iter().copied().filter(|place| is_alive(*place)).collect::<Vec<_>>();
    let blocks: BTreeSet<Vec<usize>> = spacings.iter().map(living).filter(|places| !places.is_empty()).collect();
    let rows = (0..count).filter_map(|first| row(count, &blocks, first));
    let trimmed = rows.map(|row| (row.len(), without_spare(row, &blocks)));
    let best = trimmed.min_by_key(|(length, needed)| (needed.len(), *length));
    best.map_or_else(BTreeSet::new, |(_, needed)| needed.into_iter().collect())
}

/// The shortest row of neighbours from `first` on that has one of each of these sets of places; its places that are in
/// some set. Nothing if there is no set.
fn row(count: usize, blocks: &BTreeSet<Vec<usize>>, first: usize) -> Option<Vec<usize>> {
    let steps = |place: &usize| (place + count - first) % count;
    let last = blocks.iter().filter_map(|places| places.iter().map(steps).min()).max()?;
    let row = (0..=last).map(|step| (first + step) % count);
    Some(row.filter(|place| blocks.iter().any(|places| places.contains(place))).collect())
}

/// `row` without the places that no set needs, tried from the end.
fn without_spare(row: Vec<usize>, blocks: &BTreeSet<Vec<usize>>) -> Vec<usize> {
    let mut needed = row.clone();
    for place in row.into_iter().rev() {
        let others: Vec<usize> = needed.iter().copied().filter(|other| *other != place).collect();
        if blocks.iter().all(|places| places.iter().any(|copy| others.contains(copy))) {
            needed = others;
        }
    }
    needed
}

/// Share of the time in which a block has an awake copy, if `at_once` neighbours of `turns` are awake at any instant, one
/// after the other. `at_once` is the mean number, which need not be whole.
pub(super) fn awake_share(spacings: &BTreeSet<Vec<usize>>, nodes: &[NodeId], turns: &[NodeId], at_once: f64) -> f64 {
    let turn_of = |place: &usize| turns.iter().position(|node| *node == nodes[*place]);
    let share = |places: &Vec<usize>| {
        let mut copies: Vec<usize> = places.iter().filter_map(turn_of).collect();
        copies.sort_unstable();
        let next = copies.iter().skip(1).copied().chain(copies.first().map(|first| first + turns.len()));
        // A copy is awake while `at_once` nodes begin; the next one takes over after as many as lie between.
        copies.iter().zip(next).map(|(copy, next)| at_once.min((next - copy) as f64)).sum::<f64>()
    };
    let all: f64 = spacings.iter().map(share).sum();
    (all / (spacings.len() * turns.len()).max(1) as f64).min(1.0)
}
