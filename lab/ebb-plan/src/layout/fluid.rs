//! Shares of a dataset as quantities, as in the papers' formulas.

/// The least that the busiest node must serve when nodes that store these shares of a dataset serve one full read of it
/// together: the level `L` with `sum min(share, L) = 1`. `None` if they do not store it all.
///
/// This is exact if every node draws evenly from the nodes before it, as the chains do.
#[must_use]
pub fn busiest(shares: &[f64]) -> Option<f64> {
    let mut sorted = shares.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let mut left = 1.0;
    for (index, share) in sorted.iter().enumerate() {
        let level = left / (sorted.len() - index) as f64;
        // Nodes with less than the level serve all that they have.
        if *share >= level - 1e-12 {
            return Some(level);
        }
        left -= share;
    }
    None
}

/// Degree of power-proportionality (Rabbit, Sec. 3.4): `(B/n) / (B/n + b_e)`, with `b_e` for the blocks that the
/// busiest node serves beyond `B/n`. 1 is ideal. `None` if the nodes do not store everything.
#[must_use]
pub fn degree(shares: &[f64]) -> Option<f64> {
    busiest(shares).map(|level| 1.0 / (shares.len() as f64 * level))
}

/// Increase of the time of a full read against equal parts: 0 is ideal (Rabbit, Fig. 1b).
#[must_use]
pub fn read_time_increase(shares: &[f64]) -> Option<f64> {
    degree(shares).map(|degree| (1.0 / degree - 1.0).max(0.0))
}

/// Share of blocks with all `replicas` copies on `inactive` nodes, if copies are placed at random on `nodes` nodes:
/// `C(m, k) / C(n, k)` (BlinkFS, Sec. 2.1 and Fig. 2).
#[must_use]
pub fn inaccessible(nodes: u64, inactive: u64, replicas: u64) -> f64 {
    (0..replicas).map(|copy| inactive.saturating_sub(copy) as f64 / nodes.saturating_sub(copy).max(1) as f64).product()
}
