//! At rest, with all the power that there is, each node of an expansion chain (or of the circle) has its share of its
//! dataset's copies. Faults and sleep during the writes do not change that.
//!
//! Source: "Expansion chains" and "After a failure" in `docs/power/placement-and-repair.md`; Rabbit, Sec. 3.1 and 3.5.
//! The places of copies are counted here, from the sets; shares are the layouts' targets.

use std::collections::BTreeMap;

use ebb_power::chain::DatasetChain;
use ebb_types::NodeId;

use super::Violation;

/// A node may be away from its share by such a part of it, or by so many metablocks for each further copy.
const SLACK_PART: u64 = 50;
const SLACK_METABLOCKS: u64 = 2;
/// Besides: a target is in whole metablocks. The remainder of the rounding goes to the first nodes, of the column to
/// which the last metablock is counted.
const ROUNDED: u64 = 1;

/// Compares each node's copies of a dataset with its share. `sets` are the members of each metablock.
#[must_use]
pub fn check(chain: &DatasetChain, sets: &[Vec<NodeId>]) -> Vec<Violation> {
    let mut stored: BTreeMap<NodeId, u64> = BTreeMap::new();
    sets.iter().flatten().for_each(|node| *stored.entry(*node).or_default() += 1);
    let shares = if sets.is_empty() { Ok(vec![0; chain.nodes().len()]) } else { chain.target(sets.len() as u64) };
    let shares: BTreeMap<NodeId, u64> = match shares {
        Ok(shares) => chain.nodes().iter().copied().zip(shares).collect(),
        Err(error) => return vec![Violation::new("placed", format!("{}: no shares: {error}", chain.dataset))],
    };
    let further = u64::from(chain.replicas().max(2) - 1);
    let is_off =
        |have: u64, share: u64| have.abs_diff(share) > (share / SLACK_PART).max(SLACK_METABLOCKS * further) + ROUNDED;
    let mut violations = Vec::new();
    for (node, share) in &shares {
        let have = stored.remove(node).unwrap_or(0);
        if is_off(have, *share) {
            let (all, of) = (sets.len(), chain.dataset);
            let detail = format!("{node} has {have} of {all} metablocks of {of}, {share} is its share");
            violations.push(Violation::new("placed", detail));
        }
    }
    // The remaining copies are on nodes that are not on the chain.
    let beside = stored.iter().map(|(node, have)| {
        Violation::new("placed", format!("{node} has {have} of {}, and is not on its chain", chain.dataset))
    });
    violations.extend(beside);
    violations
}

#[cfg(test)]
mod tests {
    use ebb_power::chain::ChainShape;
    use ebb_types::DatasetId;

    use super::*;

    #[test]
    fn nodes_with_too_much_or_too_little_and_nodes_off_the_chain_are_found() {
        let ids = |nodes: &[u64]| nodes.iter().copied().map(NodeId::new).collect::<Vec<_>>();
        let chain = DatasetChain::new(DatasetId::new(3), ids(&[1, 2, 3, 4]), ChainShape::Simple, 2, 2).unwrap();
        let mut sets: Vec<Vec<NodeId>> = (0..6).flat_map(|_| [ids(&[1, 3]), ids(&[2, 4])]).collect();
        assert_eq!(check(&chain, &[]), []);
        assert_eq!(check(&chain, &sets), []);
        sets.extend((0..6).map(|_| ids(&[1, 3])));
        assert_eq!(check(&chain, &sets), [], "three more than nine, and three less");
        sets.extend([ids(&[1, 3]), ids(&[1, 3])]);
        let found = check(&chain, &sets);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(
            found[0].detail.contains("n1 has 14 of 20") && found[0].detail.contains("10 is its share"),
            "{found:?}"
        );
        sets.truncate(12);
        sets[0][1] = NodeId::new(9);
        assert!(matches!(&check(&chain, &sets)[..], [one] if one.detail.contains("not on its chain")));
    }
}
