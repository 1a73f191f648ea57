//! The simple policy: one copy on the primaries, the others even over all other nodes (Rabbit, Sec. 2.1).
//!
//! The equal-work layout is compared with it: between the primaries and a third of the nodes, the others hold too
//! little to do an equal part of the work. The text's `B (r-1)/(N-p) < B/N` must read `>`.

use ebb_types::Result;

use super::{Chain, Targets, check_blocks, index, whole_shares};

/// Blocks of each copy on each node. Each further copy has its own run of `(N - p) / (r - 1)` nodes.
pub fn targets(chain: Chain, blocks: u64) -> Result<Targets> {
    check_blocks(blocks)?;
    let others = index(chain.nodes - chain.primaries);
    let total = blocks * u64::from(chain.replicas - 1);
    let totals = if total == 0 { Vec::new() } else { whole_shares(total, &vec![1.0; others]) };
    Ok(Targets::from_totals(chain, blocks, &totals))
}

/// The store of each node, as a share of the dataset.
#[must_use]
pub fn shares(chain: Chain) -> Vec<f64> {
    let (nodes, primaries) = (index(chain.nodes), index(chain.primaries));
    let other = f64::from(chain.replicas - 1) / f64::from((chain.nodes - chain.primaries).max(1));
    (0..nodes).map(|node| if node < primaries { 1.0 / f64::from(chain.primaries) } else { other }).collect()
}
