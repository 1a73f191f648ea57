//! The equal-work layout: node `i` stores `B / i`, so that any first `n` nodes can each serve `B / n` (Rabbit, Sec. 3.1).

use ebb_types::Result;

use super::{Chain, Targets, check_blocks, index, raise_to, whole_shares};

/// Nodes over which `replicas` copies reach: the smallest `s` with `sum_{i=p+1..s} 1/i >= r - 1` (Equation 1).
///
/// It lies a little above `p e^(r-1)` (Equation 3). The sum of consecutive reciprocals is never a whole number
/// (Kuerschak 1918), so rounding cannot decide.
#[must_use]
pub fn spread(primaries: u32, replicas: u32) -> u64 {
    let wanted = f64::from(replicas.saturating_sub(1));
    let estimate = (f64::from(primaries) + 0.5) * wanted.exp() - 0.5;
    if estimate > 1e7 {
        // The harmonic numbers follow `ln(n + 1/2)` to 1 / 24 n^2: more exact than the sum of so many terms.
        return estimate.ceil() as u64;
    }
    let mut stored = 0.0;
    let mut last = u64::from(primaries);
    while stored < wanted {
        last += 1;
        stored += 1.0 / last as f64;
    }
    last
}

/// Blocks of each copy on each node: `B / p` on primaries, `B / i` behind them, the remainder on the last.
pub fn targets(chain: Chain, blocks: u64) -> Result<Targets> {
    check_blocks(blocks)?;
    let shares = shares(chain);
    let others = &shares[index(chain.primaries)..];
    let total = blocks * u64::from(chain.replicas - 1);
    let totals = if total == 0 { Vec::new() } else { whole_shares(total, others) };
    Ok(Targets::from_totals(chain, blocks, &totals))
}

/// The store of each node, as a share of the dataset. A chain shorter than the spread stores the missing part on the
/// nodes that have least.
#[must_use]
pub fn shares(chain: Chain) -> Vec<f64> {
    let nodes = index(chain.nodes);
    let primaries = index(chain.primaries);
    let wanted = f64::from(chain.replicas - 1);
    let mut shares = vec![1.0 / f64::from(chain.primaries); nodes];
    let mut stored = 0.0_f64;
    for (node, share) in shares.iter_mut().enumerate().skip(primaries) {
        *share = (1.0 / (node + 1) as f64).min(wanted - stored).max(0.0);
        stored += *share;
    }
    if stored < wanted - 1e-9 {
        raise_to(&mut shares[primaries..], wanted);
    }
    shares
}
