//! The two halves of a chain of localized storage nodes (LSNs): each block has a copy in both, so that one half holds
//! everything.
//!
//! The chain is in the order of racks, and cut in its middle. So a rack lies in one half, but for the one that the cut meets. Of
//! an odd number of nodes the middle one is in both halves: both have the same number, and no node takes more than others.

use ebb_types::NodeId;

use crate::chain::ChainView;

/// One half of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// Its first nodes.
    First,
    /// Its last nodes.
    Second,
}

impl Half {
    /// Both.
    pub const ALL: [Self; 2] = [Self::First, Self::Second];

    /// Whether a place of a chain of so many nodes is in it.
    #[must_use]
    pub const fn has(self, place: usize, nodes: usize) -> bool {
        let size = nodes.div_ceil(2);
        match self {
            Self::First => place < size,
            Self::Second => place >= nodes - size,
        }
    }

    /// Its nodes of a chain.
    pub fn nodes(self, chain: &ChainView) -> impl Iterator<Item = NodeId> + '_ {
        let count = chain.nodes().len();
        chain.nodes().iter().enumerate().filter(move |(place, _)| self.has(*place, count)).map(|(_, node)| *node)
    }

    /// Whether one of these nodes is in it.
    #[must_use]
    pub fn has_any(self, chain: &ChainView, nodes: &[NodeId]) -> bool {
        chain.places_of(nodes).into_iter().any(|place| self.has(place, chain.nodes().len()))
    }

    /// The first half without one of these nodes.
    #[must_use]
    pub fn without(chain: &ChainView, nodes: &[NodeId]) -> Option<Self> {
        Self::ALL.into_iter().find(|half| !half.has_any(chain, nodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LayoutKind;

    fn chain(nodes: u64) -> ChainView {
        ChainView::new(LayoutKind::Lsn, (1..=nodes).map(NodeId::new).collect(), 0, 0, 1).unwrap()
    }

    fn raw(half: Half, chain: &ChainView) -> Vec<u64> {
        half.nodes(chain).map(NodeId::raw).collect()
    }

    #[test]
    fn halves_have_the_same_number_and_share_the_middle() {
        let both = |nodes: u64| Half::ALL.map(|half| raw(half, &chain(nodes)));
        assert_eq!(both(4), [vec![1, 2], vec![3, 4]]);
        assert_eq!(both(5), [vec![1, 2, 3], vec![3, 4, 5]]);
        assert_eq!(both(1), [vec![1], vec![1]]);
    }

    #[test]
    fn a_half_is_missing_unless_some_node_is_in_it() {
        let missing = |nodes: u64, on: &[u64]| {
            Half::without(&chain(nodes), &on.iter().copied().map(NodeId::new).collect::<Vec<_>>())
        };
        assert_eq!(missing(4, &[1, 2]), Some(Half::Second));
        assert_eq!((missing(4, &[4]), missing(4, &[2, 4])), (Some(Half::First), None));
        assert_eq!((missing(3, &[2]), missing(3, &[1])), (None, Some(Half::Second)), "the middle is in both");
        assert_eq!(missing(4, &[9]), Some(Half::First), "it is off the chain");
    }
}
