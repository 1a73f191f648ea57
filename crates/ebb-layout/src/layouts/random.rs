//! HDFS's default rule (BlockPlacementPolicyDefault of Hadoop 3.4), which spreads at random and survives a rack.
//!
//! First copy on the host that write affinity names, else on the writer's, else on any node. In place of a host without disks
//! the localized storage node counts that serves it. Second copy in another rack
//! (so that with two copies there is one for each rack: metablocks paper, G6); third in the second's rack on another
//! host, which saves one crossing between racks in a pipeline; further ones anywhere with at most
//! `(replicas - 1) / racks + 2` in a rack.

use ebb_types::{HostName, RackName};

use crate::field::{Candidate, Field, Spread};
use crate::rng::Rng;
use crate::{Ask, Plan, Reason};

/// Where the rack rule wants the next copy.
#[derive(Clone, Copy)]
enum RackWish<'a> {
    Outside(&'a RackName),
    Inside(&'a RackName),
    Below(usize),
}

/// Places missing copies. The field has at least as many candidates.
pub fn place(field: &Field<'_>, ask: &Ask) -> Plan {
    let mut rng = Rng::new(&[ask.seed, ask.inode.raw(), ask.index]);
    let busy = busy_above(field);
    let mut spread = field.spread();
    let mut plan = Plan::default();
    for _ in 0..ask.missing() {
        let (node, reason) = next(field, ask, &spread, busy, &mut rng);
        plan.members.push(spread.place_on(node.pick_volume(&mut rng), reason));
    }
    plan
}

fn next<'f, 'a>(
    field: &'f Field<'a>,
    ask: &Ask,
    spread: &Spread<'a>,
    busy: u64,
    rng: &mut Rng,
) -> (&'f Candidate<'a>, Reason) {
    if spread.places.is_empty()
        && let Some(found) = first_by_host(field, ask, rng)
    {
        return found;
    }
    let open: Vec<_> = field.candidates.iter().filter(|node| !spread.has_node(node.node)).collect();
    let own_host: Vec<_> = open.iter().copied().filter(|node| !spread.has_host(node.host)).collect();
    let (wish, reason) = wish(field, ask, spread);
    let wished: Vec<_> = own_host.iter().copied().filter(|node| fits(node, wish, spread)).collect();
    // The most important conditions are given up last: another host, then the rack, then the load.
    let idle: Vec<_> = wished.iter().copied().filter(|node| u64::from(node.load) <= busy).collect();
    let choices = [(idle, reason), (wished, reason), (own_host, Reason::RackRuleGivenUp), (open, Reason::SharedHost)];
    let (nodes, reason) =
        choices.into_iter().find(|choice| !choice.0.is_empty()).expect("the survey counted enough candidates");
    (rng.pick(&nodes), reason)
}

fn first_by_host<'f, 'a>(field: &'f Field<'a>, ask: &Ask, rng: &mut Rng) -> Option<(&'f Candidate<'a>, Reason)> {
    let preferred = ask.preferred_host().map(|host| (host, Reason::PreferredHost));
    let hosts = preferred.into_iter().chain([(&ask.writer, Reason::WriterHost)]);
    for (host, reason) in hosts {
        let on = |host: &HostName| field.candidates.iter().filter(|node| node.host == host).collect::<Vec<_>>();
        let nodes = on(host);
        if !nodes.is_empty() {
            return Some((rng.pick(&nodes), reason));
        }
        let of_lsn = field.sub_racks.lsn_of(host.as_str()).map(on).unwrap_or_default();
        if !of_lsn.is_empty() {
            let reason = if reason == Reason::WriterHost { Reason::WriterLsn } else { Reason::PreferredLsn };
            return Some((rng.pick(&of_lsn), reason));
        }
    }
    None
}

fn wish<'a>(field: &Field<'a>, ask: &Ask, spread: &Spread<'a>) -> (RackWish<'a>, Reason) {
    if spread.places.is_empty() {
        return (RackWish::Below(usize::MAX), Reason::AnyNode);
    }
    if let Some(rack) = spread.only_rack() {
        return (RackWish::Outside(rack), Reason::OtherRack);
    }
    match spread.places[..] {
        [_, (_, second)] => (RackWish::Inside(second), Reason::RackOfSecond),
        _ => (RackWish::Below(field.rack_limit(ask.replicas)), Reason::Spread),
    }
}

fn fits(node: &Candidate<'_>, wish: RackWish<'_>, spread: &Spread<'_>) -> bool {
    match wish {
        RackWish::Outside(rack) => node.rack != rack,
        RackWish::Inside(rack) => node.rack == rack,
        RackWish::Below(limit) => spread.rack_copies(node.rack) < limit,
    }
}

/// Load above which a node is passed over while another fits: twice the mean, as in HDFS, and never a load so small
/// that the comparison means nothing.
fn busy_above(field: &Field<'_>) -> u64 {
    let sum: u64 = field.candidates.iter().map(|node| u64::from(node.load)).sum();
    let count = u64::try_from(field.candidates.len()).expect("a length fits in 64 bits").max(1);
    (2 * sum / count).max(8)
}
