//! X2: reads of encoded data while nodes sleep, beside copies. The paper has all nodes on.
//!
//! Nodes take turns around a circle, so many at a time. Members at equal distances on it ([`Spread::Even`]) are decoded from
//! `k / (k + m)` of the nodes on. A model says what is at hand then. On an expansion chain the slots lie on the primaries.

use ebb_client::Access;
use ebb_layout::targets::ring;
use ebb_plan::figure::Axis;
use ebb_plan::{Cell, Comparison, Figure, Mark, Section};
use ebb_power::{PolicyKind, Supply};
use ebb_types::{RaidCode, Redundancy, Result};

use crate::drive::{read_at_random, read_whole};
use crate::hardware::MACHINES;
use crate::measure::Latencies;
use crate::part::Lab;
use crate::testbed::{Layout, Setting, on};

pub const SOURCES: &[&str] = &["X2"];

const NODES: u32 = 20;
/// Nodes that the supply pays for.
const PAID: [u32; 6] = [4, 8, 12, 14, 16, 18];
/// Those with a row in the table.
const TOLD: [u32; 5] = [4, 8, 14, 16, 18];
const FOUR_AND_TWO: RaidCode = RaidCode { copies: 1, slots: 4, rows: 2 };
/// A read that takes longer has waited for a node.
const AT_ONCE_S: f64 = 0.5;
const COPIES: u32 = 3;

/// How the data are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    Copies(u32),
    Coded(RaidCode),
}

const KEPT: [Kept; 5] =
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

    const fn code(self) -> Option<RaidCode> {
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

/// Where the members of a set lie on the circle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spread {
    Even,
    Neighbours,
}

/// Share of the data at hand while so many neighbours on the circle serve. Exact: over all places of the set and all rows.
fn at_hand(kept: Kept, spread: Spread, serving: u32) -> f64 {
    let (members, needed) = match kept {
        Kept::Copies(copies) => (copies, 1),
        Kept::Coded(code) => (code.slots + code.rows, code.slots),
    };
    let of = |first: u32| {
        let places = match spread {
            Spread::Even => ring::evenly(NODES, members, first),
            Spread::Neighbours => (first..first + members).map(|place| place % NODES).collect(),
        };
        let on = places.iter().filter(|place| **place < serving).count() as u32;
        // Fewer than are needed: a slot that is on is read there. Any member is a slot as often as another.
        if on >= needed { 1.0 } else { f64::from(on) / f64::from(members) }
    };
    (0..NODES).map(of).sum::<f64>() / f64::from(NODES)
}

/// The same with so many nodes powered, in turns. Of the time between two turns one node wakes for a second, and one falls
/// asleep for a second: they do not serve then.
fn expected(kept: Kept, paid: u32) -> f64 {
    if paid == NODES {
        return 1.0;
    }
    let step_s = MACHINES.interval.as_secs_f64() / f64::from(NODES);
    let one_less = (MACHINES.node.transition_ms() as f64 / 1000.0 / step_s).min(1.0);
    let of = |serving| at_hand(kept, Spread::Even, serving);
    one_less * of(paid - 1) + (1.0 - one_less) * of(paid)
}

/// The supply for so many of these nodes at a time, of all nodes' full power.
fn supply_for(paid: u32, nodes: u32) -> Supply {
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

impl Case {
    fn run(self, seed: u64, blocks: u32, reads: usize) -> Result<Latencies> {
        let layout = Layout::balanced(self.kept.copies());
        let setting = Setting { code: self.kept.code(), ..Setting::of(NODES, self.policy, layout, blocks) };
        on(seed, setting, |bed| async move {
            let user = bed.user("user", Some(Access::Read)).await?;
            bed.supply_and_wait(supply_for(self.paid, NODES)).await?;
            Ok(read_at_random(&bed, &user, reads, MACHINES.interval * 3).await)
        })
    }
}

/// Nodes of the shortest chain with so many primaries.
const fn chain_len(primaries: u32) -> u32 {
    primaries * COPIES
}

/// A chain with as many primaries as there are slots, and power for these. The reads, and MB/s of a full read with all nodes on.
fn on_chain(seed: u64, code: Option<RaidCode>, primaries: u32, blocks: u32, reads: usize) -> Result<(Latencies, f64)> {
    let layout = Layout::equal_work(primaries, COPIES);
    let nodes = chain_len(primaries);
    let setting = Setting { code, ..Setting::of(nodes, PolicyKind::Activation, layout, blocks) };
    on(seed, setting, |bed| async move {
        let user = bed.user("user", Some(Access::Read)).await?;
        let mut readers = Vec::new();
        for number in 0..nodes {
            readers.push(bed.user(&format!("reader{number}"), Some(Access::Read)).await?);
        }
        let whole = read_whole(&bed, &readers, 2, None).await.took;
        bed.supply_and_wait(supply_for(primaries, nodes)).await?;
        let seen = read_at_random(&bed, &user, reads, MACHINES.interval).await;
        Ok((seen, bed.setting.bytes() as f64 / 1e6 / whole.as_secs_f64()))
    })
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let (blocks, reads, paid) = lab.effort.of((160, 400, &PAID[..]), (64, 100, &TOLD[2..4]));
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
            let Some(circular) = case(PolicyKind::BlinkCircular) else { continue };
            let p99 = |seen: &Latencies| seen.percentile(99).unwrap_or(f64::NAN);
            let tide = case(PolicyKind::Tide);
            let beside = tide.map_or_else(String::new, |seen| {
                format!(" tide: {:.0} %, {:.1} s.", 100.0 * seen.share_within(AT_ONCE_S), p99(seen))
            });
            let why = format!(
                "Beside it: the model, with nodes that wake and fall asleep. 99th percentile {:.1} s. On neighbours it would be {:.0} \
                 %.{beside} {} failed.",
                p99(circular),
                at_hand(kept, Spread::Neighbours, paid) * 100.0,
                circular.failed + tide.map_or(0, |seen| seen.failed)
            );
            let quantity = format!(
                "{} ({:.2} stored), power for {paid} of {NODES} nodes: reads that wait for no node",
                kept.name(),
                kept.stored_per_user_byte()
            );
            let (model, share) = (expected(kept, paid), circular.share_within(AT_ONCE_S));
            section.rows.push(
                Comparison::new("X2", quantity, Cell::Share(model, 0), Cell::Share(share, 0), why)
                    .bound((share - model).abs() < 0.05),
            );
        }
    }
    chains(lab, &mut section, blocks, reads)?;
    section.figures.extend([shares(paid, &of), percentiles(paid, &of)]);
    Ok(section)
}

fn chains(lab: &Lab<'_>, section: &mut Section, blocks: u32, reads: usize) -> Result<()> {
    let codes = [FOUR_AND_TWO, RaidCode::RAID6];
    let cases: Vec<(Option<RaidCode>, u32)> =
        codes.into_iter().flat_map(|code| [(Some(code), code.slots), (None, code.slots)]).collect();
    let seen = lab.map(&cases, |(code, primaries)| on_chain(lab.seed, *code, *primaries, blocks, reads))?;
    for (pair, code) in seen.chunks(2).zip(codes) {
        let [(encoded, encoded_rate), (copied, copied_rate)] = pair else { continue };
        let name = Redundancy::Raid(code).to_string();
        let share = encoded.share_within(AT_ONCE_S);
        let why = format!(
            "Rabbit's floor of {} primaries with {:.2} stored for each user byte instead of 3. Three copies there: {:.0} %.",
            code.slots,
            Redundancy::Raid(code).stored_per_user_byte(COPIES),
            copied.share_within(AT_ONCE_S) * 100.0
        );
        let quantity = format!(
            "{name} on a chain, power for its {} primaries of {} nodes: reads that wait for no node",
            code.slots,
            chain_len(code.slots)
        );
        section
            .rows
            .push(Comparison::new("X2", quantity, Cell::Share(1.0, 0), Cell::Share(share, 0), why).bound(share > 0.99));
        let expected = f64::from(code.slots) / f64::from(chain_len(code.slots));
        let why = "All nodes on. The slots lie on the primaries, so what is encoded is read at their rate; copies are read on all.";
        section.rows.push(Comparison::new(
            "X2",
            format!("{name} on a chain: rate of a full read, of that of three copies"),
            Cell::Share(expected, 0),
            Cell::Share(encoded_rate / copied_rate, 0),
            why,
        ));
    }
    Ok(())
}

/// Share of the nodes that are paid for, in percent.
fn percent(paid: u32) -> f64 {
    100.0 * f64::from(paid) / f64::from(NODES)
}

fn shares<'a>(paid: &[u32], of: &dyn Fn(Case) -> Option<&'a Latencies>) -> Figure {
    let figure = Figure::plane(
        "X2: what is encoded is at hand while k of k + m nodes are on",
        Axis::linear("nodes on at a time (% of all)").from(0.0).to(100.0),
        Axis::linear("reads that wait for no node (%)").from(0.0).to(100.0),
    )
    .subtitle("20 nodes take turns around the circle; markers measured, lines by the model, dashed with members on neighbours");
    KEPT.into_iter().enumerate().fold(figure, |figure, (hue, kept)| {
        let measured = |paid: &u32| {
            let seen = of(Case { kept, policy: PolicyKind::BlinkCircular, paid: *paid })?;
            Some((percent(*paid), 100.0 * seen.share_within(AT_ONCE_S)))
        };
        let model = |paid: u32| (percent(paid), 100.0 * expected(kept, paid));
        let beside = |paid: u32| (percent(paid), 100.0 * at_hand(kept, Spread::Neighbours, paid));
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

fn percentiles<'a>(paid: &[u32], of: &dyn Fn(Case) -> Option<&'a Latencies>) -> Figure {
    let figure = Figure::plane(
        "X2: the longest of a hundred reads",
        Axis::linear("power (% of the nodes)").from(0.0).to(100.0),
        Axis::log("99th percentile of read latency (s)"),
    )
    .subtitle("20 nodes on the circle, under tide; reads of 4 MB blocks at random moments, interval 60 s");
    KEPT.into_iter().filter(|kept| has_tide(*kept)).fold(figure, |figure, kept| {
        let point = |paid: &u32| {
            Some((percent(*paid), of(Case { kept, policy: PolicyKind::Tide, paid: *paid })?.percentile(99)?))
        };
        figure.with(kept.name(), Mark::Line, paid.iter().filter_map(point).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_of_n_nodes_have_everything_at_hand_if_members_are_even() {
        for kept in &KEPT[3..] {
            let code = kept.code().unwrap();
            let floor = (NODES * code.slots).div_ceil(code.slots + code.rows);
            assert_eq!(at_hand(*kept, Spread::Even, floor), 1.0, "{kept:?}");
            assert!(at_hand(*kept, Spread::Even, floor - 1) < 1.0, "{kept:?}");
            assert!(at_hand(*kept, Spread::Neighbours, floor) < 1.0, "{kept:?}");
        }
        assert!((at_hand(Kept::Copies(1), Spread::Even, 5) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn encoded_data_are_at_hand_as_the_model_says() {
        let case = |paid| Case { kept: Kept::Coded(FOUR_AND_TWO), policy: PolicyKind::BlinkCircular, paid };
        for paid in [8, 15] {
            let (seen, model) = (case(paid).run(3, 64, 150).unwrap(), expected(case(paid).kept, paid));
            let share = seen.share_within(AT_ONCE_S);
            assert!((share - model).abs() < 0.12 && seen.failed == 0, "{share} {model} {seen:?}");
        }
    }

    #[test]
    fn on_a_chain_the_primaries_are_enough() {
        let (seen, _) = on_chain(3, Some(FOUR_AND_TWO), 4, 64, 60).unwrap();
        assert!(seen.share_within(AT_ONCE_S) > 0.99, "{seen:?}");
    }
}
