//! The copy that leaves a set with more good copies than its dataset wants, after the number was lowered.

use std::collections::BTreeMap;

use ebb_wire::pb;

/// A good member, as far as it matters for this choice.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The member.
    pub member: pb::Member,
    /// Its node's place on the dataset's chain; none outside it, and in datasets without a chain. On the circle: none
    /// outside the places that the block's copies are for with the lower number, so that the fewest copies move later.
    pub place: Option<usize>,
    /// Number of nodes at the begin of the chain that hold one copy of everything together.
    pub primaries: usize,
    /// The part of the cluster that it is in, of which several are to keep a copy: its node's rack, or its half of the chain.
    pub part: &'a str,
}

/// Chooses the member that leaves. A guest goes before a copy at home; a copy outside the chain before one on it; no
/// primary before another node; a copy that shares its part of the cluster before the only one of a part; then the node that is last
/// on the chain, which is the first that a low power switches off; then the last of the set.
#[must_use]
pub fn choose(candidates: &[Candidate<'_>]) -> Option<pb::Member> {
    let mut parts: BTreeMap<&str, usize> = BTreeMap::new();
    for candidate in candidates {
        *parts.entry(candidate.part).or_default() += 1;
    }
    let has_chain = candidates.iter().any(|candidate| candidate.place.is_some());
    let rank = |(at, candidate): &(usize, &Candidate<'_>)| {
        let is_outside = has_chain && candidate.place.is_none();
        let is_primary = candidate.place.is_some_and(|place| place < candidate.primaries);
        (candidate.member.is_guest(), is_outside, !is_primary, parts[candidate.part], candidate.place, *at)
    };
    candidates.iter().enumerate().max_by_key(rank).map(|(_, candidate)| candidate.member)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(node: u64, place: Option<usize>, part: &str) -> Candidate<'_> {
        let member = pb::Member { node, volume: node * 10, incarnation: 1, home: 0 };
        Candidate { member, place, primaries: 2, part }
    }

    fn chosen(candidates: &[Candidate<'_>]) -> u64 {
        choose(candidates).unwrap().node
    }

    #[test]
    fn without_a_chain_both_racks_keep_a_copy() {
        let of = |node, rack| candidate(node, None, rack);
        assert_eq!(chosen(&[of(1, "a"), of(2, "b"), of(3, "b")]), 3);
        assert_eq!(chosen(&[of(1, "a"), of(2, "b"), of(3, "a")]), 3);
        assert_eq!(chosen(&[of(1, "a"), of(2, "a"), of(3, "b")]), 2);
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn on_a_chain_primaries_stay_and_the_last_nodes_go_first() {
        let of = |node, place| candidate(node, Some(place), "a");
        assert_eq!(chosen(&[of(1, 0), of(2, 5), of(3, 3)]), 2);
        assert_eq!(chosen(&[of(1, 1), of(2, 3)]), 2);
        assert_eq!(chosen(&[of(1, 0), candidate(2, None, "a"), of(3, 7)]), 2);
        // A rack of its own does not save a copy from a primary's place.
        assert_eq!(chosen(&[candidate(1, Some(0), "a"), candidate(2, Some(4), "b"), candidate(3, Some(1), "a")]), 2);
    }

    #[test]
    fn a_guest_goes_first() {
        let mut guest = candidate(1, Some(0), "a");
        guest.member.home = 9;
        assert_eq!(chosen(&[guest, candidate(2, Some(5), "a"), candidate(3, Some(6), "a")]), 1);
    }
}
