//! *DiskReduce: RAIDing the Cloud*.

use ebb_types::Result;

use crate::plots;
use crate::raid::Scheme;
use crate::raid::overhead::{Code, Grouping, overhead};
use crate::raid::reliability::{Inputs, loss};
use crate::raid::sizes::Lognormal;
use crate::report::{Comparison, Section};
use crate::table::{Cell, Table};

const COPIES: Scheme = Scheme::Copies(3);
const CODE: Scheme = Scheme::Code { data: 8, check: 2 };
const BLOCKS: Code = Code { data: 8, check: 2, block_bytes: 64_000_000 };
const TEN_MINUTES: f64 = 600.0;

/// The section.
pub fn section() -> Result<Section> {
    let mut section = Section::new(
        "DiskReduce: RAIDing the Cloud",
        &[
            "Expected bytes lost per year by the Markov model, and check bytes by grouping for a file-size distribution.",
            "The distribution is lognormal in the middle of the paper's data on nine clusters, chosen once: median 4 MB, \
         mean 100 MB, largest 5 TB, 30 files in a directory.",
        ],
    );
    section.rows = reliability();
    section.rows.extend(space()?);
    let both = [COPIES, CODE];
    section.figures.push(plots::loss_curves(&Inputs::paper(1e15, TEN_MINUTES), &both, 80e12, 10e15));
    section.figures.push(plots::loss_curves(&Inputs::paper(1e15, 0.0), &both, 80e12, 10e15));
    section.figures.push(space_figure()?);
    section.tables.push(table());
    Ok(section)
}

fn lost(user_bytes: f64, detection_s: f64, scheme: Scheme) -> f64 {
    loss(&Inputs::paper(user_bytes, detection_s), scheme).bytes_lost_per_year
}

/// Size at which the code loses least.
fn minimum() -> (f64, f64) {
    let sizes = (0..=2_000).map(|step| 80e12 * (10e15_f64 / 80e12).powf(f64::from(step) / 2_000.0));
    let best = sizes.map(|size| (size, lost(size, TEN_MINUTES, CODE))).min_by(|one, other| one.1.total_cmp(&other.1));
    best.unwrap_or((f64::NAN, f64::NAN))
}

fn reliability() -> Vec<Comparison> {
    let bytes = |quantity: &str, paper: f64, ours: f64, remark: &str| {
        Comparison::new("Fig. 3a", quantity, Cell::Bytes(paper), Cell::Bytes(ours), remark)
    };
    let (copies, code) = (lost(10e15, TEN_MINUTES, COPIES), lost(10e15, TEN_MINUTES, CODE));
    let (size, least) = minimum();
    let falls = lost(80e12, 0.0, CODE) / lost(10e15, 0.0, CODE);
    vec![
        bytes("3 copies, 10 PB: lost a year", 87.0, copies, ""),
        bytes("8+2, 10 PB: lost a year", 3.3e3, code, "The paper says only: less than 4 KB."),
        Comparison::new(
            "Fig. 3a",
            "8+2 against 3 copies at 10 PB",
            Cell::Number(38.0, 0),
            Cell::Number(code / copies, 1),
            "The text calls it about an order of magnitude; its own model gives 38.",
        ),
        bytes("8+2, 80 TB: lost a year", 585.0, lost(80e12, TEN_MINUTES, CODE), ""),
        bytes("8+2: least that any size loses", 384.0, least, ""),
        bytes("8+2: size at which it loses least", 310e12, size, ""),
        Comparison::new(
            "Fig. 3b",
            "8+2, instant detection: loss at 80 TB against 10 PB",
            Cell::Number(125.0, 0),
            Cell::Number(falls, 0),
            "Repair gets faster in proportion to size, so loss falls in proportion.",
        ),
    ]
}

fn space() -> Result<Vec<Comparison>> {
    let sizes = Lognormal::DISKREDUCE.files(200_000)?;
    let row = |grouping, paper: f64, remark: &str| {
        let quantity = format!("8+2 {grouping}: check bytes as a share of data");
        let ours = overhead(&sizes, BLOCKS, grouping);
        Comparison::new("Sec. 2", quantity, Cell::Share(paper, 0), Cell::Share(ours, 1), remark)
    };
    Ok(vec![
        row(Grouping::File, 0.50, "About 50 % in the paper."),
        row(
            Grouping::Directory,
            0.25,
            "Near 25 % in the paper, which gives no number of files in a directory: 30 here, and sets at the end of a \
             directory are not full.",
        ),
        row(Grouping::Across, 0.25, ""),
        Comparison::new(
            "Sec. 1",
            "3 copies: overhead",
            Cell::Share(2.0, 0),
            Cell::Share(COPIES.ideal_overhead(), 0),
            "",
        ),
        Comparison::new(
            "Sec. 1",
            "8+2: ideal overhead",
            Cell::Share(0.25, 0),
            Cell::Share(CODE.ideal_overhead(), 0),
            "",
        ),
    ])
}

fn space_figure() -> Result<crate::figure::Figure> {
    let kinds = [(1e6, 22e6), (4e6, 100e6), (20e6, 200e6), (120e6, 577e6)];
    let mut names = Vec::new();
    let mut found = Vec::new();
    for (median_bytes, mean_bytes) in kinds {
        let sizes = Lognormal { median_bytes, mean_bytes, ..Lognormal::DISKREDUCE }.files(100_000)?;
        names.push(format!("{:.0} / {:.0} MB", median_bytes / 1e6, mean_bytes / 1e6));
        found.push(Grouping::ALL.map(|grouping| overhead(&sizes, BLOCKS, grouping)).to_vec());
    }
    Ok(plots::overheads(
        "8+2, 64 MB blocks; median / mean of file sizes, over the range of the paper's clusters",
        &names,
        &found,
    ))
}

fn table() -> Table {
    let columns = [
        ("user", "user data"),
        ("scheme", "scheme"),
        ("disks", "disks"),
        ("repair", "detect and repair (s)"),
        ("lost", "lost a year"),
        ("exact", "chain solved exactly"),
    ];
    let mut table = Table::new("The model at some sizes, 10 minutes to detect", &columns);
    for user_bytes in [80e12, 310e12, 1e15, 10e15] {
        for scheme in [COPIES, CODE] {
            let found = loss(&Inputs::paper(user_bytes, TEN_MINUTES), scheme);
            table.row(vec![
                Cell::Bytes(user_bytes),
                Cell::text(scheme.to_string()),
                Cell::Number(found.disks, 0),
                Cell::Number(found.repair_s, 0),
                Cell::Bytes(found.bytes_lost_per_year),
                Cell::Bytes(found.bytes_lost_per_year_exact),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_comes_out() {
        for row in reliability() {
            assert!(row.agrees(), "{}: {} {}", row.quantity, row.paper.human(), row.ours.human());
        }
    }

    #[test]
    fn grouping_comes_out() {
        for row in space().unwrap() {
            let near = row.difference().unwrap().abs() < if row.quantity.contains("directory") { 0.1 } else { 0.02 };
            assert!(near, "{}: {} {}", row.quantity, row.paper.human(), row.ours.human());
        }
    }
}
