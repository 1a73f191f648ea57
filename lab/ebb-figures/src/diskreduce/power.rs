//! X2: reads of encoded data while nodes sleep, beside copies. The paper has all nodes on.
//!
//! Nodes take turns around a circle, so many at a time. Members at equal distances on it ([`Spread::Even`]) are decoded from
//! `k / (k + m)` of the nodes on. A model says what is at hand then. Expansion chains are in [`chain`].

use ebb_client::Access;
use ebb_plan::figure::Axis;
use ebb_plan::{Cell, Comparison, Figure, Mark, Section};
use ebb_power::{PolicyKind, Supply};
use ebb_types::{RaidCode, Redundancy, Result};

use super::at_hand::{Spread, as_recorded, at_hand, expected, in_theory};
use super::{chain, waiting};
use crate::drive::read_at_random;
use crate::hardware::MACHINES;
use crate::measure::Latencies;
use crate::part::Lab;
use crate::testbed::{Layout, Setting, on};

pub const SOURCES: &[&str] = &["X2"];

/// Nodes on the circle.
pub const NODES: u32 = 20;
/// Nodes that the supply pays for.
const PAID: [u32; 6] = [4, 8, 12, 14, 16, 18];
/// Those with a row in the table.
const TOLD: [u32; 5] = [4, 8, 14, 16, 18];
/// The code of the smaller RAID sets.
pub const FOUR_AND_TWO: RaidCode = RaidCode::single(4, 2);
/// A read that takes longer has waited for a node.
pub const AT_ONCE_S: f64 = 0.5;
/// Copies of what is young.
pub const COPIES: u32 = 3;

/// How the data are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// So many copies.
    Copies(u32),
    /// By this code.
    Coded(RaidCode),
}

/// All ways.
pub const KEPT: [Kept; 5] =
    [Kept::Copies(1), Kept::Copies(2), Kept::Copies(3), Kept::Coded(FOUR_AND_TWO), Kept::Coded(RaidCode::RAID6)];

impl Kept {
    fn name(self) -> String {
        match self {
            Self::Copies(1) => "one copy".to_owned(),
            Self::Copies(copies) => format!("{copies} copies"),
            Self::Coded(code) => Redundancy::Raid(code).to_string(),
        }
    }

    fn stored_per_user_byte(self) -> f64 {
        match self {
            Self::Copies(copies) => f64::from(copies),
            Self::Coded(code) => Redundancy::Raid(code).stored_per_user_byte(COPIES),
        }
    }

    /// Its code, if it is encoded.
    #[must_use]
    pub const fn code(self) -> Option<RaidCode> {
        match self {
            Self::Copies(_) => None,
            Self::Coded(code) => Some(code),
        }
    }

    /// Copies of what is young.
    const fn copies(self) -> u32 {
        match self {
            Self::Copies(copies) => copies,
            Self::Coded(_) => COPIES,
        }
    }
}

/// Whether it is measured under `tide`, too.
const fn has_tide(kept: Kept) -> bool {
    matches!(kept, Kept::Copies(COPIES) | Kept::Coded(_))
}

/// The supply for so many of these nodes at a time, of all nodes' full power.
pub fn supply_for(paid: u32, nodes: u32) -> Supply {
    let (node, nodes) = (MACHINES.node, f64::from(nodes));
    let watts = f64::from(paid) * (node.active_watts - node.asleep_watts) + nodes * node.asleep_watts;
    Supply::Fraction((watts / (nodes * node.active_watts) + 1e-6).min(1.0))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Case {
    kept: Kept,
    policy: PolicyKind,
    paid: u32,
}

/// Reads, and the share of them that waits for no node by the places that the master has recorded.
struct Seen {
    reads: Latencies,
    by_records: f64,
}

impl Case {
    fn run(self, seed: u64, blocks: u32, reads: usize) -> Result<Seen> {
        let layout = Layout::balanced(self.kept.copies());
        let setting = Setting { code: self.kept.code(), ..Setting::of(NODES, self.policy, layout, blocks) };
        on(seed, setting, |bed| async move {
            let user = bed.user("user", Some(Access::Read)).await?;
            let by_records = expected(&as_recorded(&bed, &user).await?, self.paid);
            bed.supply_and_wait(supply_for(self.paid, NODES)).await?;
            let reads = read_at_random(&bed, &user, reads, MACHINES.interval * 3).await;
            Ok(Seen { reads, by_records })
        })
    }
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let (blocks, reads, paid) = lab.effort.of((160, 1_000, &PAID[..]), (64, 100, &TOLD[2..4]));
    let mut cases = Vec::new();
    for (kept, paid) in KEPT.into_iter().flat_map(|kept| paid.iter().map(move |paid| (kept, *paid))) {
        cases.push(Case { kept, policy: PolicyKind::BlinkCircular, paid });
        if has_tide(kept) {
            cases.push(Case { kept, policy: PolicyKind::Tide, paid });
        }
    }
    let seen = lab.map(&cases, |case| case.run(lab.seed, blocks, reads))?;
    let of = |wanted: Case| cases.iter().position(|case| *case == wanted).map(|at| &seen[at]);
    let mut section = Section::new("", &[]);
    for kept in KEPT {
        for paid in paid.iter().copied().filter(|paid| TOLD.contains(paid)) {
            let case = |policy| of(Case { kept, policy, paid });
            let Some(Seen { reads: circular, by_records }) = case(PolicyKind::BlinkCircular) else { continue };
            let p99 = |seen: &Latencies| seen.percentile(99).unwrap_or(f64::NAN);
            let tide = case(PolicyKind::Tide).map(|seen| &seen.reads);
            let beside = tide.map_or_else(String::new, |seen| {
                format!(" tide: {:.0} %, {:.1} s.", 100.0 * seen.share_within(AT_ONCE_S), p99(seen))
            });
            let why = format!(
                "Beside it: the model, with nodes that wake and fall asleep. By the places in the records it is {:.0} %. 99th \
                 percentile {:.1} s. On neighbours it would be {:.0} %.{beside} {} failed.",
                by_records * 100.0,
                p99(circular),
                at_hand(&in_theory(kept, Spread::Neighbours), paid) * 100.0,
                circular.failed + tide.map_or(0, |seen| seen.failed)
            );
            let quantity = format!(
                "{} ({:.2} stored), power for {paid} of {NODES} nodes: reads that wait for no node",
                kept.name(),
                kept.stored_per_user_byte()
            );
            let model = expected(&in_theory(kept, Spread::Even), paid);
            let share = circular.share_within(AT_ONCE_S);
            section.rows.push(
                Comparison::new("X2", quantity, Cell::Share(model, 0), Cell::Share(share, 0), why)
                    .bound((share - by_records).abs() < 0.05),
            );
        }
    }
    chain::rows(lab, &mut section)?;
    waiting::rows(lab, &mut section)?;
    section.figures.extend([shares(paid, &of), percentiles(paid, &of)]);
    Ok(section)
}

/// Share of the nodes that are paid for, in percent.
fn percent(paid: u32) -> f64 {
    100.0 * f64::from(paid) / f64::from(NODES)
}

fn shares<'a>(paid: &[u32], of: &dyn Fn(Case) -> Option<&'a Seen>) -> Figure {
    let figure = Figure::plane(
        "X2: what is encoded is at hand while k of k + m nodes are on",
        Axis::linear("nodes on at a time (% of all)").from(0.0).to(100.0),
        Axis::linear("reads that wait for no node (%)").from(0.0).to(100.0),
    )
    .subtitle("20 nodes take turns around the circle; markers measured, lines by the model, dashed with members on neighbours");
    KEPT.into_iter().enumerate().fold(figure, |figure, (hue, kept)| {
        let measured = |paid: &u32| {
            let seen = of(Case { kept, policy: PolicyKind::BlinkCircular, paid: *paid })?;
            Some((percent(*paid), 100.0 * seen.reads.share_within(AT_ONCE_S)))
        };
        let [even, neighbours] = [Spread::Even, Spread::Neighbours].map(|spread| in_theory(kept, spread));
        let model = |paid: u32| (percent(paid), 100.0 * expected(&even, paid));
        let beside = |paid: u32| (percent(paid), 100.0 * at_hand(&neighbours, paid));
        let figure = figure
            .with(kept.name(), Mark::Markers, paid.iter().filter_map(measured).collect())
            .hue(hue)
            .with(format!("{}, model", kept.name()), Mark::Line, (1..=NODES).map(model).collect())
            .hue(hue);
        match kept.code() {
            Some(_) => figure
                .with(format!("{}, on neighbours", kept.name()), Mark::Dashed, (1..=NODES).map(beside).collect())
                .hue(hue),
            None => figure,
        }
    })
}

fn percentiles<'a>(paid: &[u32], of: &dyn Fn(Case) -> Option<&'a Seen>) -> Figure {
    let figure = Figure::plane(
        "X2: the longest of a hundred reads",
        Axis::linear("power (% of the nodes)").from(0.0).to(100.0),
        Axis::log("99th percentile of read latency (s)"),
    )
    .subtitle("20 nodes on the circle, under tide; reads of 4 MB blocks at random moments, interval 60 s");
    KEPT.into_iter().filter(|kept| has_tide(*kept)).fold(figure, |figure, kept| {
        let point = |paid: &u32| {
            Some((percent(*paid), of(Case { kept, policy: PolicyKind::Tide, paid: *paid })?.reads.percentile(99)?))
        };
        figure.with(kept.name(), Mark::Line, paid.iter().filter_map(point).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_data_are_at_hand_as_the_model_says() {
        let case = |paid| Case { kept: Kept::Coded(FOUR_AND_TWO), policy: PolicyKind::BlinkCircular, paid };
        for paid in [8, 15] {
            let Seen { reads, by_records } = case(paid).run(3, 64, 150).unwrap();
            let share = reads.share_within(AT_ONCE_S);
            assert!((share - by_records).abs() < 0.12 && reads.failed == 0, "{share} {by_records} {reads:?}");
        }
    }
}
