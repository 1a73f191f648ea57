//! Round-robin over all disks (metablocks paper, G2): consecutive metablocks of a file lie on consecutive disks.
//!
//! The disks form a ring in which neighbours are on different racks and nodes as far as there are any. A file starts
//! at a place that its inode's hash gives, and metablock `index` has its first copy `index` places further, so that
//! over any run of metablocks no disk has more than one first copy above another. Further copies follow at a stride
//! that is fixed for one round and differs from round to round: a lost disk's copies then lie on many others, and its
//! rebuild is not bound by one. Neither the writer's host nor chance matters; write affinity does.

use std::collections::BTreeMap;

use ebb_types::{NodeId, RackName};

use crate::field::{Field, Spread};
use crate::rng::hash;
use crate::{Ask, Plan, Reason, VolumeView};

/// Places missing copies. The field has at least as many candidates.
pub fn place(field: &Field<'_>, ask: &Ask) -> Plan {
    let ring = ring(&field.disks);
    let mut spread = field.spread();
    let mut plan = Plan::default();
    if ask.missing() == 0 {
        return plan;
    }
    let len = u64::try_from(ring.len()).expect("a length fits in 64 bits");
    let start = (hash(&[ask.inode.raw()]) % len + ask.index % len) % len;
    let stride = 1 + (ask.index / len) % len.saturating_sub(1).max(1);
    for copy in spread.places.len()..spread.places.len() + ask.missing() {
        let copy = u64::try_from(copy).expect("a count fits in 64 bits");
        let from = (start + copy % len * (stride % len)) % len;
        let (volume, reason) = next(field, &ring, ask, &spread, from);
        plan.members.push(spread.place_on(volume, reason));
    }
    plan
}

/// The first disk from `from` on that the rules allow; the most important conditions are given up last: another host,
/// then the rack.
fn next<'a>(
    field: &Field<'a>,
    ring: &[&'a VolumeView],
    ask: &Ask,
    spread: &Spread<'a>,
    from: u64,
) -> (&'a VolumeView, Reason) {
    let from = usize::try_from(from).expect("a place in the ring");
    let open: Vec<&VolumeView> = ring[from..]
        .iter()
        .chain(&ring[..from])
        .copied()
        .filter(|volume| field.candidates.binary_search_by_key(&volume.node, |node| node.node).is_ok())
        .filter(|volume| !spread.has_node(volume.node))
        .collect();
    let first = spread.places.is_empty();
    if first && let Some(volume) = preferred(&open, ask) {
        return (volume, Reason::PreferredHost);
    }
    let own_host = |volume: &&&VolumeView| !spread.has_host(&volume.host);
    let limit = field.rack_limit(ask.replicas);
    let rack_fits = |volume: &&&VolumeView| match spread.only_rack() {
        Some(rack) => volume.rack != *rack,
        None => first || spread.rack_copies(&volume.rack) < limit,
    };
    let reason = if first { Reason::StripeTurn } else { Reason::StripeStride };
    let strict = open.iter().find(|volume| own_host(volume) && rack_fits(volume)).map(|volume| (*volume, reason));
    strict
        .or_else(|| open.iter().find(own_host).map(|volume| (*volume, Reason::RackRuleGivenUp)))
        .or_else(|| open.first().map(|volume| (*volume, Reason::SharedHost)))
        .expect("the survey counted enough candidates")
}

fn preferred<'a>(open: &[&'a VolumeView], ask: &Ask) -> Option<&'a VolumeView> {
    let host = ask.preferred_host()?;
    open.iter().copied().find(|volume| volume.host == *host)
}

/// All disks, in an order that depends on nothing else: first disks of the nodes before second ones, and nodes dealt
/// from the racks in turn.
fn ring<'a>(disks: &[&'a VolumeView]) -> Vec<&'a VolumeView> {
    let mut nodes_in_rack: BTreeMap<&RackName, Vec<NodeId>> = BTreeMap::new();
    let mut keyed = Vec::with_capacity(disks.len());
    let mut disk_of_node = 0_usize;
    let mut last = None;
    for volume in disks {
        let nodes = nodes_in_rack.entry(&volume.rack).or_default();
        if last != Some(volume.node) {
            nodes.push(volume.node);
            disk_of_node = 0;
        }
        keyed.push(((disk_of_node, nodes.len(), &volume.rack), *volume));
        last = Some(volume.node);
        disk_of_node += 1;
    }
    keyed.sort_by_key(|entry| entry.0);
    keyed.into_iter().map(|entry| entry.1).collect()
}
