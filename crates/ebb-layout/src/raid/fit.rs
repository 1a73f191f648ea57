//! Whether a cluster can keep a redundancy: asked where a dataset is made, and where its settings change.

use ebb_types::{RaidCode, Redundancy, counted};

use super::rule::RaidRule;
use super::spread::{Racks, SpreadRule};
use super::{LayoutShape, Sites};
use crate::LayoutKind;

/// What the cluster should be able to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wish {
    /// To keep the data by the spread rule.
    Hold,
    /// And to make again what a host has lost, without it.
    Heal,
    /// To keep all data through the loss of a rack.
    SurviveRack,
}

/// Why nodes, well or not, are too few for a redundancy, or a layout does not go with it: a sentence that names the
/// nearest redundancy that fits. None: the wish can be met.
///
/// `replicas` is the number of copies in which young data are kept.
#[must_use]
pub fn explain_unfit(
    sites: &Sites<'_>,
    shape: &LayoutShape,
    redundancy: Redundancy,
    replicas: u32,
    wish: Wish,
) -> Option<String> {
    if fits(sites, shape, redundancy, replicas, wish) {
        return None;
    }
    let why = explain(sites, shape, redundancy, replicas, wish);
    let advice = match choose_nearest(sites, shape, redundancy, replicas, wish) {
        Some(nearest) => format!("the nearest possible redundancy is {nearest}"),
        None => "no redundancy does so here".to_owned(),
    };
    Some(format!("{why}; {advice}"))
}

fn fits(sites: &Sites<'_>, shape: &LayoutShape, redundancy: Redundancy, replicas: u32, wish: Wish) -> bool {
    let hosts = u32::try_from(sites.host_count()).unwrap_or(u32::MAX);
    let Redundancy::Raid(code) = redundancy else {
        return match wish {
            Wish::Hold => hosts >= replicas,
            Wish::Heal => hosts > replicas,
            // On a chain or circle the layout comes before racks.
            Wish::SurviveRack => replicas > 1 && sites.rack_count() > 1 && !shape.layout.has_chain(),
        };
    };
    let holds = |racks: Racks| {
        let spread = SpreadRule { code, racks };
        code.check().is_ok()
            && code.copies <= replicas
            && RaidRule { layout: shape.layout, chain: shape.chain.clone(), spread }.is_possible(sites)
    };
    match wish {
        Wish::Hold => holds(Racks::TooFew),
        Wish::Heal => holds(Racks::TooFew) && hosts > code.least_nodes(),
        Wish::SurviveRack => holds(Racks::Enough),
    }
}

fn explain(sites: &Sites<'_>, shape: &LayoutShape, redundancy: Redundancy, replicas: u32, wish: Wish) -> String {
    let hosts = sites.host_count();
    let there_are = |count: usize, noun: &str| match count {
        1 => format!("there is one {noun}"),
        count => format!("there are {}", counted(count as u64, noun)),
    };
    let (least, least_racks) = (redundancy.least_nodes(replicas), redundancy.least_racks(replicas));
    if let Some(code) = redundancy.code() {
        if code.copies > replicas {
            return format!(
                "{code} keeps {} of data that are written in {replicas}",
                counted(code.copies.into(), "copy")
            );
        }
        if let Some(why) = explain_chain(shape, code) {
            return why;
        }
    }
    match wish {
        Wish::SurviveRack => match least_racks {
            None => format!("{redundancy} of {} do not survive a rack", counted(replicas.into(), "copy")),
            Some(least) if sites.rack_count() < least as usize => {
                let racks = there_are(sites.rack_count(), "rack");
                format!("{redundancy} survives the loss of a rack with {least} racks or more, and {racks}")
            }
            Some(_) if shape.layout.has_chain() => {
                format!("the layout {} does not put {redundancy} into racks so that one may be lost", shape.layout)
            }
            Some(_) => {
                let least = redundancy.code().map_or(least, RaidCode::least_nodes_in_racks);
                let hosts = there_are(hosts, "host");
                format!(
                    "{redundancy} survives the loss of a rack with {least} hosts dealt to racks evenly, and {hosts}"
                )
            }
        },
        Wish::Heal if hosts >= least as usize => {
            let hosts = there_are(hosts, "host");
            format!("{redundancy} heals with {} hosts or more, and {hosts}", redundancy.least_nodes_to_heal(replicas))
        }
        _ => format!("{redundancy} needs {}, and {}", counted(least.into(), "host"), there_are(hosts, "host")),
    }
}

/// What a chain lacks for a code.
fn explain_chain(shape: &LayoutShape, code: RaidCode) -> Option<String> {
    let chain = shape.chain.as_ref()?;
    if !shape.layout.has_primaries() {
        let (nodes, members) = (chain.nodes().len(), code.slots + code.rows);
        let noun = if shape.layout == LayoutKind::Lsn { "localized storage nodes" } else { "nodes on the circle" };
        return (code.copies == 1 && nodes < members as usize)
            .then(|| format!("{code} needs {members} {noun}, and there are {nodes}"));
    }
    let copies = code.copies + code.rows;
    if copies > chain.replicas() {
        let copies = counted(copies.into(), "copy");
        return Some(format!(
            "rows lie where further copies would, so {code} on the layout {} needs {copies}, and the dataset has {}",
            shape.layout,
            chain.replicas()
        ));
    }
    (code.copies == 1 && code.slots > chain.primaries()).then(|| {
        let slots = counted(code.slots.into(), "primary");
        format!(
            "slots stay with primaries, so {code} on the layout {} needs {slots}, and there are {}",
            shape.layout,
            chain.primaries()
        )
    })
}

/// Of those that fit, the one that tolerates as many losses, or nearly; then the one that stores as much; then the widest.
fn choose_nearest(
    sites: &Sites<'_>,
    shape: &LayoutShape,
    wanted: Redundancy,
    replicas: u32,
    wish: Wish,
) -> Option<Redundancy> {
    let codes = (1..=4).flat_map(|rows| (2..=32).map(move |slots| RaidCode::single(slots, rows)));
    let mirrored = (2..=32).map(|slots| RaidCode { slots, ..RaidCode::RAID5 });
    let all = codes.chain(mirrored).map(Redundancy::Raid).chain([Redundancy::Copies]);
    let rank = |redundancy: &Redundancy| {
        let losses = redundancy.tolerates(replicas).abs_diff(wanted.tolerates(replicas));
        let stored = redundancy.stored_per_user_byte(replicas) - wanted.stored_per_user_byte(replicas);
        (losses, stored.abs())
    };
    let fitting = all.filter(|redundancy| fits(sites, shape, *redundancy, replicas, wish));
    fitting.min_by(|one, other| {
        let (one, other) = (rank(one), rank(other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    })
}

#[cfg(test)]
mod tests;
