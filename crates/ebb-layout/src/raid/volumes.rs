//! RAID sets on the volumes of one localized storage node (LSN): [`Domain::Volume`](ebb_types::Domain::Volume).
//!
//! All of this folder compares nodes, their hosts and racks. Inside an LSN a volume **stands in** for a node, and its disk for a
//! host: volumes on one disk fail together. So the view of an LSN becomes one of as many nodes as it has volumes. The same
//! rules choose among them, and what they chose is turned back. Ids of volumes are as unique as those of nodes.
//!
//! A metablock is encoded on the LSN of its first member. Copies on other LSNs leave when its RAID set is thin.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::{HostName, NodeId, RaidCode, Result, VolumeId, counted};

use super::plan::{KeptSet, Left, LeftReason, RaidPlan, RaidPlans};
use super::repack::{KeptReason, OldSet, SlotLife};
use super::{Candidate, Held, RaidAsk, RaidRule, Seat, Sites, Wish, choose_sets};
use crate::{Chosen, LayoutKind, View, VolumeView};

/// The node that a volume stands in for.
#[must_use]
pub const fn stand_in(volume: VolumeId) -> NodeId {
    NodeId::new(volume.raw())
}

/// One node of a view, as one node for each of its volumes. Volumes of one device share a host.
#[must_use]
pub fn stand_ins(view: &View, node: NodeId) -> View {
    let disk = |volume: &VolumeView| match volume.device {
        0 => HostName::new(format!("volume {}", volume.volume)),
        device => HostName::new(format!("disk {device:x}")),
    };
    let own = view.volumes.iter().filter(|volume| volume.node == node);
    let volumes = own.map(|volume| VolumeView { node: stand_in(volume.volume), host: disk(volume), ..volume.clone() });
    View { volumes: volumes.collect(), ..View::default() }
}

/// The rule inside one LSN.
///
/// Errors: `Invalid` if the code is out of bounds.
pub fn rule_on_volumes(sites: &Sites<'_>, code: RaidCode) -> Result<RaidRule> {
    RaidRule::new(sites, LayoutKind::Random, None, code)
}

/// [`choose_sets`] on the volumes of each node for itself. `held` goes by [`stand_in`].
///
/// Errors: `Invalid` if the code is out of bounds.
pub fn choose_sets_on_volumes(
    view: &View,
    code: RaidCode,
    ask: &RaidAsk,
    candidates: &[Candidate],
    old: &[OldSet],
    held: &Held,
) -> Result<RaidPlans> {
    let mut all = RaidPlans::default();
    let mut parties: BTreeMap<NodeId, (Vec<Candidate>, Vec<OldSet>)> = BTreeMap::new();
    for candidate in candidates {
        match serving_node(view, candidate) {
            Some(node) => parties.entry(node).or_default().0.push(on_stand_ins(candidate)),
            None => all.left.push(Left { metablock: candidate.metablock, reason: LeftReason::NoMember }),
        }
    }
    for set in old {
        match node_of_all(set) {
            Some(node) => parties.entry(node).or_default().1.push(old_on_stand_ins(set)),
            None => all.kept.push(KeptSet { raid_set: set.id, why: KeptReason::NoHosts }),
        }
    }
    for (node, (candidates, old)) in parties {
        let view = stand_ins(view, node);
        let sites = Sites::of(&view);
        let plans = choose_sets(&sites, &rule_on_volumes(&sites, code)?, ask, &candidates, &old, held);
        all.sets.extend(plans.sets.into_iter().map(|plan| on_node(plan, node)));
        all.left.extend(plans.left);
        all.kept.extend(plans.kept);
    }
    Ok(all)
}

/// The node of the first member that could stay.
fn serving_node(view: &View, candidate: &Candidate) -> Option<NodeId> {
    let serves = |(node, volume): &&(NodeId, VolumeId)| {
        let mut volumes = view.volumes.iter();
        volumes.any(|known| (known.node, known.volume) == (*node, *volume) && known.usable && !known.off)
    };
    candidate.members.iter().find(serves).map(|member| member.0)
}

fn on_stand_ins(candidate: &Candidate) -> Candidate {
    let members = candidate.members.iter().map(|(_, volume)| (stand_in(*volume), *volume)).collect();
    Candidate { members, ..candidate.clone() }
}

/// The node on which all live slots lie. None: it was made with hosts apart.
fn node_of_all(set: &OldSet) -> Option<NodeId> {
    let live = set.slots.iter().filter(|slot| slot.life == SlotLife::Live);
    let nodes: BTreeSet<NodeId> = live.flat_map(|slot| &slot.members).map(|(seat, _)| seat.node).collect();
    nodes.first().copied().filter(|_| nodes.len() == 1)
}

fn old_on_stand_ins(set: &OldSet) -> OldSet {
    let mut set = set.clone();
    for (seat, volume) in set.slots.iter_mut().flat_map(|slot| &mut slot.members) {
        *seat = Seat::at_home(stand_in(*volume));
    }
    set
}

/// A plan of stand-ins as one of the node's volumes.
fn on_node(mut plan: RaidPlan, node: NodeId) -> RaidPlan {
    let members = plan.slots.iter_mut().flat_map(|slot| &mut slot.members);
    for Chosen { node: on, home, .. } in members.chain(&mut plan.rows) {
        (*on, *home) = (node, node);
    }
    plan
}

/// Why the LSNs of a view cannot keep RAID sets of this code on their volumes: a sentence with the way out. None: they can.
#[must_use]
pub fn explain_unfit_volumes(view: &View, code: RaidCode, wish: Wish) -> Option<String> {
    if wish == Wish::SurviveRack {
        return Some(format!(
            "{code} on volumes is lost with its node, and so with a rack: leave out --survive rack, or give --domain host"
        ));
    }
    let spare = usize::from(wish == Wish::Heal);
    let is_lsn = |volume: &&VolumeView| view.sub_racks.is_lsn(volume.host.as_str());
    let lsns: BTreeMap<NodeId, &HostName> =
        view.volumes.iter().filter(is_lsn).map(|volume| (volume.node, &volume.host)).collect();
    let least = code.least_nodes() as usize + spare;
    let fewest = lsns.into_iter().map(|(node, host)| {
        let own = stand_ins(view, node);
        (Sites::of(&own).host_count(), own.volumes.len(), host)
    });
    let Some((disks, volumes, host)) = fewest.min() else {
        return Some(format!(
            "{code} on volumes lies inside a localized storage node, and there is none: `ebb block --serves-hosts` makes one"
        ));
    };
    if disks >= least {
        return None;
    }
    let nearest = match u32::try_from(disks.saturating_sub(spare)).unwrap_or(u32::MAX).saturating_sub(code.rows) {
        slots @ 2.. => format!("the nearest possible redundancy is {}", RaidCode { slots, ..code }),
        _ => "no redundancy with so many check metablocks is possible here".to_owned(),
    };
    let shared = if disks < volumes { "; those on one disk count once, so give each a disk of its own" } else { "" };
    Some(format!(
        "{code} on volumes needs {least} disks in each localized storage node, and {host} has {} on {}{shared}; {nearest}",
        counted(volumes as u64, "volume"),
        counted(disks as u64, "disk")
    ))
}

#[cfg(test)]
mod tests;
