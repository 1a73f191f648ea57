//! Which members of a RAID set's slots stay, when its rows are made already.
//!
//! The plan of a RAID set says so, too ([`super::choose_sets`]). But a member that was to stay may be lost before the others
//! leave, or the master that had the plan.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::{NodeId, VolumeId};

use super::matching::{Matching, Offer};
use super::work::{Held, Work};
use super::{Candidate, RaidRule, Sites};

/// For each slot the volumes whose members stay, as many as the code keeps. `None`: members that serve now do not suffice, or
/// would not lie as the spread rule has it.
#[must_use]
pub fn choose_stays(
    sites: &Sites<'_>,
    rule: &RaidRule,
    rows: &[NodeId],
    slots: &[Vec<(NodeId, VolumeId)>],
    held: &Held,
) -> Option<Vec<Vec<VolumeId>>> {
    let work = Work::new(sites, rule, held);
    let row_hosts: BTreeSet<usize> = rows.iter().filter_map(|node| sites.host_of(*node)).collect();
    let is_single = rule.spread().code.copies == 1;
    let mut matching =
        if is_single { Matching::new(sites.racks_by_host().to_vec(), rule.rack_most()) } else { Matching::of_spots(0) };
    let mut before = 0;
    for spot in row_hosts.iter().copied().filter(|_| is_single) {
        if !matching.add(vec![Offer { spot, cost: 0 }]) {
            return None;
        }
        before += 1;
    }
    let mut pairs: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    let mut ways = Vec::with_capacity(slots.len());
    for members in slots {
        let stays = work.stays(&Candidate { members: members.clone(), ..Candidate::default() });
        let (mut offers, mut volumes) = (Vec::new(), Vec::new());
        for stay in stays {
            let mut hosts: Vec<usize> = stay.volumes.iter().filter_map(|volume| sites.host_of(volume.node)).collect();
            hosts.sort_unstable();
            if hosts.iter().any(|host| row_hosts.contains(host)) {
                continue;
            }
            let spot = match hosts[..] {
                [host] => host,
                _ => *pairs.entry(hosts).or_insert_with(|| matching.add_spot()),
            };
            offers.push(Offer { spot, cost: stay.cost });
            volumes.push(stay.volumes.iter().map(|volume| volume.volume).collect::<Vec<_>>());
        }
        if !matching.add(offers) {
            return None;
        }
        ways.push(volumes);
    }
    Some(ways.iter().enumerate().map(|(slot, ways)| ways[matching.offer(before + slot)].clone()).collect())
}

#[cfg(test)]
mod tests;
