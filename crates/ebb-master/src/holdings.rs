//! What lies where, by sets of nodes: a power manager must know whether a plan puts the last copy of something to sleep. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::InodeId;
use ebb_wire::pb;

/// Sets of nodes that are told apart. Three copies at random lie on more than that from 31 nodes on.
pub(crate) const SETS_MAX: usize = 4096;

/// Metablocks by the nodes that they lie on.
///
/// Beyond so many sets, those with as many copies are told as one that lies somewhere on the nodes of all of them: a plan
/// that could put one of them out of reach is taken to.
#[derive(Clone, Debug)]
pub(crate) struct Sets {
    most: usize,
    apart: BTreeMap<Vec<u64>, Held>,
    /// By the number of copies.
    others: BTreeMap<usize, (BTreeSet<u64>, Held)>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    metablocks: u64,
    example: InodeId,
}

impl Held {
    fn none(example: InodeId) -> Self {
        Self { metablocks: 0, example }
    }
}

impl Sets {
    /// Nothing yet; so many are told apart.
    pub fn new(most: usize) -> Self {
        Self { most, apart: BTreeMap::new(), others: BTreeMap::new() }
    }

    /// A metablock of this file lies on these nodes.
    pub fn add(&mut self, mut nodes: Vec<u64>, inode: InodeId) {
        nodes.sort_unstable();
        nodes.dedup();
        let held = if self.apart.len() < self.most || self.apart.contains_key(&nodes) {
            self.apart.entry(nodes).or_insert(Held::none(inode))
        } else {
            let (all, held) = self.others.entry(nodes.len()).or_insert((BTreeSet::new(), Held::none(inode)));
            all.extend(nodes);
            held
        };
        held.metablocks += 1;
    }

    /// A file of each set.
    pub fn examples(&self) -> BTreeSet<InodeId> {
        self.apart.values().chain(self.others.values().map(|(_, held)| held)).map(|held| held.example).collect()
    }

    /// All of them; `path` is for people.
    pub fn holdings(self, path: impl Fn(InodeId) -> String) -> Vec<pb::PowerHolding> {
        let told = |nodes: Vec<u64>, copies: usize, held: Held| pb::PowerHolding {
            nodes,
            copies: copies as u64,
            metablocks: held.metablocks,
            example: path(held.example),
        };
        let apart = self.apart.into_iter().map(|(nodes, held)| (nodes.len(), nodes, held));
        let others = self.others.into_iter().map(|(copies, (nodes, held))| (copies, nodes.into_iter().collect(), held));
        apart.chain(others).map(|(copies, nodes, held)| told(nodes, copies, held)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_metablock_is_left_out_however_many_sets_there_are() {
        let mut sets = Sets::new(2);
        let inode = InodeId::new;
        for (number, nodes) in [&[3, 1][..], &[1, 2], &[1, 3], &[4, 5], &[6, 5], &[7]].into_iter().enumerate() {
            sets.add(nodes.to_vec(), inode(number as u64 + 1));
        }
        assert_eq!(sets.examples(), [1, 2, 4, 6].map(inode).into());
        let told = sets.holdings(|inode| format!("/{inode}"));
        let told: Vec<_> =
            told.iter().map(|held| (&held.nodes[..], held.copies, held.metablocks, held.example.as_str())).collect();
        let expected: [(&[u64], u64, u64, &str); 4] =
            [(&[1, 2], 2, 1, "/i2"), (&[1, 3], 2, 2, "/i1"), (&[7], 1, 1, "/i6"), (&[4, 5, 6], 2, 2, "/i4")];
        assert_eq!(told, expected);
    }
}
