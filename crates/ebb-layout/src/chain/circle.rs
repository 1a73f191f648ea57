//! The circle of the power-balanced layout, as its copies are counted: by **spacings**, the sets of places at equal
//! distances that the copies of one block may have ([`ring::evenly`]).
//!
//! A block that is on its way from one spacing to another has copies in both. Which one it is for follows from its
//! copies and their order in the record alone, and not from other blocks. So every observer gets the same answer, at
//! any time, and a block that has set out gets there.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::targets::ring;

/// The spacings of a circle, by number. Turned by a place each is another one: if all have as many blocks, so have all nodes.
#[derive(PartialEq, Debug)]
pub(crate) struct Circle {
    /// Places of each, in ascending order.
    spacings: Vec<Vec<usize>>,
    /// By place: the spacing that begins there. Two that have the same places are one.
    from: Vec<usize>,
    /// By place: those that it is in.
    with: Vec<Vec<usize>>,
}

impl Circle {
    /// Of so many nodes, for so many copies.
    pub fn new(nodes: u32, replicas: u32) -> Self {
        let mut circle = Self { spacings: Vec::new(), from: Vec::new(), with: vec![Vec::new(); nodes as usize] };
        let mut numbers: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        for first in 0..nodes {
            let mut places: Vec<usize> =
                ring::evenly(nodes, replicas, first).into_iter().map(|place| place as usize).collect();
            places.sort_unstable();
            let next = circle.spacings.len();
            let number = *numbers.entry(places.clone()).or_insert(next);
            if number == next {
                places.iter().for_each(|place| circle.with[*place].push(number));
                circle.spacings.push(places);
            }
            circle.from.push(number);
        }
        circle
    }

    /// The spacing that a block is for whose copies are at these places, in the order of its record: of those that the first
    /// copy is in, the one that has most copies, then the one that begins with the first copy, then the first. None if no
    /// copy is on the circle.
    ///
    /// Invariant: bringing another copy than the first into this spacing leaves the block for it: that one gains a copy
    /// more, and each other one a copy more at most.
    pub fn aim(&self, places: &[usize]) -> Option<usize> {
        let lead = *places.first()?;
        let rank = |spacing: &usize| (self.matched(*spacing, places), self.from[lead] == *spacing, Reverse(*spacing));
        self.with[lead].iter().copied().max_by_key(rank)
    }

    /// The spacings that a place is in.
    pub fn with(&self, place: usize) -> &[usize] {
        &self.with[place]
    }

    /// Every spacing.
    pub fn all(&self) -> std::ops::Range<usize> {
        0..self.spacings.len()
    }

    /// How many of these places are in a spacing.
    pub fn matched(&self, spacing: usize, places: &[usize]) -> usize {
        places.iter().filter(|place| self.has(spacing, **place)).count()
    }

    /// Whether a place is in a spacing.
    pub fn has(&self, spacing: usize, place: usize) -> bool {
        self.spacings[spacing].binary_search(&place).is_ok()
    }

    /// The places of a spacing, in ascending order.
    pub fn places(&self, spacing: usize) -> &[usize] {
        &self.spacings[spacing]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_in_as_many_spacings_and_equal_ones_are_one() {
        for (nodes, replicas, spacings) in
            [(10, 3, 10), (12, 3, 4), (12, 2, 6), (8, 6, 4), (9, 2, 9), (4, 4, 1), (6, 1, 6), (3, 2, 3)]
        {
            let circle = Circle::new(nodes, replicas);
            assert_eq!(circle.spacings.len(), spacings, "{nodes} nodes, {replicas} copies");
            assert!(circle.spacings.iter().all(|places| places.len() == replicas as usize));
            assert!(circle.with.iter().all(|with| with.len() == circle.with[0].len()), "{circle:?}");
        }
    }

    #[test]
    fn a_block_is_for_the_spacing_with_its_first_copy_that_has_most_of_them() {
        let circle = Circle::new(10, 3);
        assert_eq!(circle.places(0), [0, 3, 6]);
        for whole in [[0, 6, 3], [3, 0, 6], [6, 3, 0]] {
            assert_eq!(circle.aim(&whole), Some(0), "in any order");
        }
        assert_eq!(circle.aim(&[0, 6, 5]), Some(0), "and with a copy elsewhere");
        assert_eq!(circle.aim(&[5, 6, 3]).map(|spacing| circle.places(spacing)), Some(&[1, 5, 8][..]), "on its way");
        assert_eq!(circle.aim(&[]), None);
    }

    /// Goal: the invariant of `aim` holds. Method: every block of two and three copies on small circles.
    #[test]
    fn a_block_that_has_set_out_gets_there() {
        for (nodes, replicas) in [(5, 2), (8, 2), (7, 3), (12, 3), (9, 3), (9, 4)] {
            let circle = Circle::new(nodes, replicas);
            let (mut blocks, all) = (vec![Vec::new()], 0..nodes as usize);
            for _ in 0..replicas {
                let longer = |block: &Vec<usize>| {
                    let free = all.clone().filter(|place| !block.contains(place)).collect::<Vec<_>>();
                    free.into_iter().map(|place| [&block[..], &[place]].concat()).collect::<Vec<_>>()
                };
                blocks = blocks.iter().flat_map(longer).collect();
            }
            for block in blocks {
                let aim = circle.aim(&block).unwrap();
                let strays = (1..block.len()).filter(|copy| !circle.has(aim, block[*copy]));
                for copy in strays {
                    for place in circle.places(aim).iter().filter(|place| !block.contains(place)) {
                        let mut moved = block.clone();
                        moved[copy] = *place;
                        assert_eq!(circle.aim(&moved), Some(aim), "{block:?} to {moved:?}");
                    }
                }
            }
        }
    }
}
