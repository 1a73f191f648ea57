//! Rows, table and figure of the deaths.

use ebb_plan::figure::{Axis, Bars};
use ebb_plan::{Cell, Comparison, Figure, Section, Table};

use super::{Death, Kept, Seen};
use crate::lsn::bed;

impl Kept {
    const fn words(self) -> &'static str {
        match self {
            Self::Baseline => "three copies on hosts",
            Self::One => "one copy on an LSN",
            Self::Two => "two copies on two LSNs",
            Self::Raid => "4+2 over LSNs",
        }
    }
}

impl Death {
    const fn words(self) -> &'static str {
        match self {
            Self::Disk => "a disk",
            Self::Node => "a node",
        }
    }
}

pub fn section(seen: &[Seen]) -> Section {
    let mut section = Section::new("", &[]);
    section.tables.push(table(seen));
    section.rows.extend(seen.iter().map(row));
    section.figures.push(figure(seen));
    section
}

fn table(seen: &[Seen]) -> Table {
    let columns = [
        ("kept", "kept as"),
        ("died", "dies"),
        ("stored", "stored for each byte"),
        ("quiet_s", "job before, s"),
        ("job_s", "job, s"),
        ("out_of_reach", "out of reach"),
        ("whole_s", "whole after, s"),
        ("lost", "lost"),
    ];
    let mut table = Table::new("A disk or a node dies under a search", &columns);
    for one in seen {
        let share = |bytes: u64| Cell::share(Some(bytes as f64 / one.user_bytes as f64), 1);
        table.row(vec![
            Cell::text(one.kept.words()),
            Cell::text(one.death.words()),
            Cell::Number(one.stored, 2),
            Cell::Number(one.quiet_s, 1),
            Cell::number(one.job_s, 1),
            share(one.out_of_reach),
            Cell::number(one.whole_s, 0),
            share(one.lost),
        ]);
    }
    table
}

/// With one copy what dies is out of reach, and a disk's data are lost; otherwise everything is in reach and nothing is lost.
fn row(one: &Seen) -> Comparison {
    let is_single = one.kept == Kept::One;
    let (expected, holds) = match (is_single, one.death) {
        (false, _) => ("none, the job ends", one.lost == 0 && one.out_of_reach == 0 && one.job_s.is_some()),
        (true, Death::Disk) => ("the disk's", one.lost > 0 && one.job_s.is_none()),
        (true, Death::Node) => ("until it is back", one.lost == 0 && one.out_of_reach > 0 && one.job_s.is_none()),
    };
    let mib = |bytes: u64| format!("{:.0} MiB", bed::mib(bytes));
    let job = one
        .job_s
        .map_or("the job fails".to_owned(), |job| format!("the job takes {:.2} of its time", job / one.quiet_s));
    let quantity = format!("{}, {} dies: out of reach", one.kept.words(), one.death.words());
    let ours = if one.out_of_reach == 0 { "none".to_owned() } else { mib(one.out_of_reach) };
    let whole = one.whole_s.map_or("not whole again without it".to_owned(), |s| format!("whole again after {s:.0} s"));
    let why = format!("Of {}; {} lost in the end; {job}; {whole}.", mib(one.user_bytes), mib(one.lost));
    Comparison::new("Deaths", quantity, expected.into(), Cell::text(ours), why)
        .judged(holds, if holds { "as expected" } else { "does not hold" })
}

fn figure(seen: &[Seen]) -> Figure {
    let categories = Kept::ALL.map(|kept| kept.words().to_owned()).to_vec();
    let of = |death: Death, value: fn(&Seen) -> f64| {
        let one = |kept| seen.iter().find(|one| (one.kept, one.death) == (kept, death)).map_or(f64::NAN, value);
        Kept::ALL.map(one).to_vec()
    };
    let over = |one: &Seen| one.job_s.map_or(f64::NAN, |job| job / one.quiet_s);
    let groups = Death::ALL.map(|death| (format!("{} dies", death.words()), of(death, over))).to_vec();
    let y = Axis::linear("time of the job, of the same without a death");
    let bars = Bars { categories, y, groups, stacked: false, line: Some(1.0) };
    Figure::bars("Deaths: a search while a disk or a node dies (a gap: it fails)", bars)
}
