//! The power-balanced layout: copies far apart on a circle of nodes in the order in which they wake.
//!
//! Sharma, Irwin, Shenoy: *BlinkFS*, Sec. 4.2. Nodes that stand side by side are awake together; copies that stand
//! apart are awake one after the other. A block whose number of copies is stable has them at equal distances
//! ([`evenly`]). Copies that come and go with its popularity each halve a widest gap ([`Openness`]), so that none of
//! the others has to move.

/// Places of `replicas` copies on a circle of `nodes` at equal distances, the first at `first`: two neighbouring copies
/// are `nodes / replicas` places apart, rounded down or up. There are `min(replicas, nodes)` places.
#[must_use]
pub fn evenly(nodes: u32, replicas: u32, first: u32) -> Vec<u32> {
    let (all, copies) = (u64::from(nodes), u64::from(replicas.min(nodes)));
    let place = |copy: u64| (u64::from(first) + copy * all / copies) % all;
    (0..copies).map(|copy| u32::try_from(place(copy)).expect("a place is below the number of nodes")).collect()
}

/// The paper's places of copies that come one by one on an empty circle, the first at `first`: the second opposite, the
/// third half-way between, the fourth on the other half-way point, and so on. Adding a copy never moves another, and
/// the last to come is the first to go.
///
/// A place that rounding gives twice is replaced by the next free one; there are `min(replicas, nodes)` places.
#[must_use]
pub fn halving(nodes: u32, replicas: u32, first: u32) -> Vec<u32> {
    let mut taken: Vec<u32> = Vec::new();
    for copy in 0..replicas.min(nodes) {
        // The fractions 0, 1/2, 1/4, 3/4, 1/8, ...: the bits of the copy's number read backwards (van der Corput).
        let fraction = f64::from(copy.reverse_bits()) / 2_f64.powi(32);
        let mut place = (first % nodes + (fraction * f64::from(nodes)).round() as u32) % nodes;
        while taken.contains(&place) {
            place = (place + 1) % nodes;
        }
        taken.push(place);
    }
    taken
}

/// Widest gap from a place to the next, in nodes: so many neighbours must be awake for one of them to hold a copy of
/// every block that is placed like this.
#[must_use]
pub fn widest_gap(nodes: u32, places: &[u32]) -> u32 {
    Openness::of(nodes, places).widest
}

/// How unevenly places lie on a circle. Lesser is better: first the widest gap decides, then all gaps together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Openness {
    /// Widest gap from a place to the next, in nodes.
    pub widest: u32,
    /// Sum of the squared gaps. A read at a random moment waits for time in proportion to it. A place in the middle of
    /// a gap lowers it most, and in the widest gap most of all.
    pub squares: u64,
}

impl Openness {
    /// Of these places on a circle of `nodes`. Without a place the whole circle is one gap.
    #[must_use]
    pub fn of(nodes: u32, places: &[u32]) -> Self {
        let gaps = gaps(nodes, places);
        let squares = gaps.iter().map(|gap| u64::from(*gap).pow(2)).sum();
        Self { widest: gaps.into_iter().max().unwrap_or(nodes), squares }
    }
}

/// The least possible widest gap when `more` copies have come beside those at these places.
#[must_use]
pub fn widest_gap_after(nodes: u32, places: &[u32], more: u32) -> u32 {
    let gaps = gaps(nodes, places);
    // The first copy on an empty circle divides nothing.
    let more = if places.is_empty() { more.saturating_sub(1) } else { more };
    let needed = |widest: u32| gaps.iter().map(|gap| gap.div_ceil(widest).max(1) - 1).sum::<u32>();
    let (mut low, mut high) = (1, gaps.iter().copied().max().unwrap_or(1).max(1));
    while low < high {
        let middle = u32::midpoint(low, high);
        if needed(middle) <= more {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

fn gaps(nodes: u32, places: &[u32]) -> Vec<u32> {
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    let around = sorted.iter().zip(sorted.iter().cycle().skip(1));
    let gap = |(from, to): (&u32, &u32)| if to > from { to - from } else { to + nodes - from };
    if sorted.is_empty() { vec![nodes] } else { around.map(gap).collect() }
}
