//! Rabbit's load balancer at the place where Rabbit has it: one for all readers.
//!
//! Live clients choose by themselves, each by its own reads (`ebb_power::read::LearnedBalance`). Here a balancer that
//! knows all readers and the places of all copies names the holder of each block. The real client reads it from there,
//! by a map that names no other.

use std::collections::{BTreeMap, BTreeSet};

use ebb_power::read::{HitBalance, desired_hit_ratio};
use ebb_types::Result;
use ebb_wire::pb;

use crate::drive::Block;
use crate::testbed::{Testbed, User};

/// Hit ratios of the nodes that are on.
pub struct Balancer {
    maps: Vec<Vec<pb::Metablock>>,
    hits: HitBalance<u64>,
    on: BTreeSet<u64>,
}

impl Balancer {
    /// For the plan in force: nothing served yet.
    pub async fn new(bed: &Testbed, user: &User) -> Result<Self> {
        let (maps, on) = (bed.maps(user).await?, bed.nodes_on().await?);
        let mut stored: BTreeMap<u64, u64> = BTreeMap::new();
        let members = maps.iter().flatten().flat_map(|record| &record.members);
        members.for_each(|member| *stored.entry(member.node).or_default() += 1);
        let (blocks, active) = (maps.iter().map(Vec::len).sum::<usize>() as f64, on.len() as f64);
        let desired = on.iter().map(|node| {
            let held = stored.get(node).copied().unwrap_or(0);
            (*node, desired_hit_ratio(blocks, active, held as f64))
        });
        let hits = HitBalance::new(desired);
        Ok(Self { maps, hits, on })
    }

    /// The record of a block with the one member that is to be read from; none if no holder is on.
    pub fn choose(&mut self, (file, block): Block) -> Option<pb::Metablock> {
        let record = self.maps.get(file)?.iter().find(|record| record.index == block)?;
        let on = &self.on;
        let holders: Vec<u64> =
            record.members.iter().map(|member| member.node).filter(|node| on.contains(node)).collect();
        let chosen = self.hits.choose(holders)?;
        let mut record = record.clone();
        record.members.retain(|member| member.node == chosen);
        Some(record)
    }
}
