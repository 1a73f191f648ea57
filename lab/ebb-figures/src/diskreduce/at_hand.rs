//! The model of X2: what is at hand while neighbours on the circle serve.

use std::collections::BTreeMap;

use ebb_layout::targets::ring;
use ebb_types::Result;

use super::power::{Kept, NODES};
use crate::hardware::MACHINES;
use crate::testbed::{Testbed, User};

/// Where the members of a set lie on the circle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    Even,
    Neighbours,
}

/// Places on the circle, counted from 0, from which a block is had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Those with a copy of it.
    copies: Vec<u32>,
    /// Those with a part of its RAID set.
    parts: Vec<u32>,
    /// Number of parts that it is decoded of.
    needed: usize,
}

impl Held {
    fn is_at_hand(&self, is_on: impl Fn(&u32) -> bool) -> bool {
        let is_decodable =
            || !self.parts.is_empty() && self.parts.iter().filter(|place| is_on(place)).count() >= self.needed;
        self.copies.iter().any(&is_on) || is_decodable()
    }
}

/// Blocks with their members at equal distances, or on neighbours: one for each member and each turn of the circle.
#[must_use]
pub fn in_theory(kept: Kept, spread: Spread) -> Vec<Held> {
    let mut blocks = Vec::new();
    for first in 0..NODES {
        let places = |members: u32| match spread {
            Spread::Even => ring::evenly(NODES, members, first),
            Spread::Neighbours => (first..first + members).map(|place| place % NODES).collect(),
        };
        match kept {
            Kept::Copies(copies) => blocks.push(Held { copies: places(copies), parts: Vec::new(), needed: 0 }),
            Kept::Coded(code) => {
                let parts = places(code.slots + code.rows);
                let held = |own: &u32| Held { copies: vec![*own], parts: parts.clone(), needed: code.slots as usize };
                blocks.extend(parts.iter().map(held));
            }
        }
    }
    blocks
}

/// The blocks of a dataset as the master has them recorded.
pub async fn as_recorded(bed: &Testbed, user: &User) -> Result<Vec<Held>> {
    let chain = bed.dataset().await?.chain;
    let place = |node: u64| chain.iter().position(|one| *one == node).map(|place| place as u32);
    let sets: BTreeMap<u64, _> =
        bed.cluster().raid_sets().await?.into_iter().filter_map(|one| one.set).map(|set| (set.id, set)).collect();
    let of = |record: &ebb_wire::pb::Metablock| {
        let set = record.frozen.and_then(|frozen| sets.get(&frozen.raid_set));
        let parts = set.into_iter().flat_map(|set| {
            let slots = set.slots.iter().filter_map(|slot| slot.members.first());
            slots.chain(set.rows.iter().filter_map(|row| row.member.as_ref()))
        });
        Held {
            copies: record.members.iter().filter_map(|member| place(member.node)).collect(),
            parts: parts.filter_map(|member| place(member.node)).collect(),
            needed: set.map_or(0, |set| set.slots.len()),
        }
    };
    Ok(bed.maps(user).await?.iter().flatten().map(of).collect())
}

/// Share of the blocks at hand while so many neighbours serve, over all turns of the circle. Exact.
#[must_use]
pub fn at_hand(blocks: &[Held], serving: u32) -> f64 {
    let is_on = |first: u32| move |place: &u32| (place + NODES - first) % NODES < serving;
    let found: usize =
        (0..NODES).map(|first| blocks.iter().filter(|block| block.is_at_hand(is_on(first))).count()).sum();
    found as f64 / (blocks.len() * NODES as usize) as f64
}

/// The same with so many nodes powered, in turns. Of the time between two turns one node wakes for a second, and one falls
/// asleep for a second: they do not serve then.
#[must_use]
pub fn expected(blocks: &[Held], paid: u32) -> f64 {
    if paid == NODES {
        return 1.0;
    }
    let step_s = MACHINES.interval.as_secs_f64() / f64::from(NODES);
    let one_less = (MACHINES.node.transition_ms() as f64 / 1000.0 / step_s).min(1.0);
    one_less * at_hand(blocks, paid - 1) + (1.0 - one_less) * at_hand(blocks, paid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diskreduce::power::KEPT;

    #[test]
    fn k_of_n_nodes_have_everything_at_hand_if_members_are_even() {
        for kept in &KEPT[3..] {
            let code = kept.code().unwrap();
            let floor = (NODES * code.slots).div_ceil(code.slots + code.rows);
            let [even, neighbours] = [Spread::Even, Spread::Neighbours].map(|spread| in_theory(*kept, spread));
            assert_eq!(at_hand(&even, floor), 1.0, "{kept:?}");
            assert!(at_hand(&even, floor - 1) < 1.0, "{kept:?}");
            assert!(at_hand(&neighbours, floor) < 1.0, "{kept:?}");
        }
        assert!((at_hand(&in_theory(Kept::Copies(1), Spread::Even), 5) - 0.25).abs() < 1e-9);
    }
}
