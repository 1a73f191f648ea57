//! The power-balanced layout: copies far apart on a circle of nodes in the order in which they wake.
//!
//! Sharma, Irwin, Shenoy: *BlinkFS*, Sec. 4.2. Nodes that stand side by side are awake together; copies that stand
//! apart are awake one after the other.

/// Places of `replicas` copies on a circle of `nodes`, the first at `first`: the second opposite, the third half-way
/// between, the fourth on the other half-way point, and so on, always halving a widest gap. Adding a copy never moves
/// another, and the last to come is the first to go.
///
/// A place that rounding gives twice is replaced by the next free one; there are `min(replicas, nodes)` places.
#[must_use]
pub fn halving(nodes: u32, replicas: u32, first: u32) -> Vec<u32> {
    places(nodes, replicas, first, |copy| {
        // The fractions 0, 1/2, 1/4, 3/4, 1/8, ...: the bits of the copy's number read backwards (van der Corput).
        f64::from(copy.reverse_bits()) / 2_f64.powi(32)
    })
}

/// Places at equal distances: for blocks whose number of copies seldom changes.
#[must_use]
pub fn evenly(nodes: u32, replicas: u32, first: u32) -> Vec<u32> {
    places(nodes, replicas, first, |copy| f64::from(copy) / f64::from(replicas))
}

/// Widest gap from a place to the next, in nodes: so many neighbours must be awake for one of them to hold a copy of
/// every block that is placed like this.
#[must_use]
pub fn widest_gap(nodes: u32, places: &[u32]) -> u32 {
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    let around = sorted.iter().zip(sorted.iter().cycle().skip(1));
    let gap = |(from, to): (&u32, &u32)| if to > from { to - from } else { to + nodes - from };
    around.map(gap).max().unwrap_or(nodes)
}

fn places(nodes: u32, replicas: u32, first: u32, fraction: impl Fn(u32) -> f64) -> Vec<u32> {
    let mut taken: Vec<u32> = Vec::new();
    for copy in 0..replicas.min(nodes) {
        let offset = (fraction(copy) * f64::from(nodes)).round() as u32;
        let mut place = (first % nodes + offset) % nodes;
        while taken.contains(&place) {
            place = (place + 1) % nodes;
        }
        taken.push(place);
    }
    taken
}
