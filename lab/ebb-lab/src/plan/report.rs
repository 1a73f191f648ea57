//! `ebb plan report`: every analytic number of the papers beside ours, on one page.

use std::path::PathBuf;

use clap::Args;
use ebb_cli::Context;
use ebb_plan::papers;
use ebb_plan::report::{AGREEING, page};
use ebb_plan::{Cell, Section, Table};
use ebb_types::Result;

use super::emit::{self, Answer, EmitArgs};
use super::{lsn, parallel};

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// File for the page: one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

const LEAD: &str = "Each analytic number of the papers next to that of Ebb's planners: the paper's number, ours, and the \
    difference. Ours is as the paper says if it differs by at most 2 %, a simulated run time by at most 15 percentage \
    points, or if it keeps the paper's bound or range; for all others a sentence says why. Numbers that need a running \
    cluster are measured elsewhere and not shown here.";

/// Makes all sections, on all cores, and writes the page.
pub fn run(context: &Context, args: &ReportArgs) -> Result<()> {
    let mut sections: Vec<Section> = parallel::map(context.output, "papers", papers::ALL, |(_, make)| make())?;
    // This section uses all cores itself.
    sections.push(lsn::section(context.output)?);
    emit::write(&args.out, &page("Ebb: the papers' figures, reproduced", LEAD, &sections))?;
    let table = table(&sections);
    let answer = Answer {
        notes: vec![format!("wrote {}", args.out.display())],
        json: table.json(),
        tables: vec![table],
        figure: None,
    };
    EmitArgs::default().emit(context.output, &answer)
}

fn table(sections: &[Section]) -> Table {
    let columns = [
        ("section", "paper"),
        ("numbers", "numbers"),
        ("agreeing", AGREEING),
        ("explained", "explained"),
        ("figures", "figures"),
    ];
    let mut table = Table::new("The papers' numbers beside ours", &columns);
    for section in sections {
        let agreeing = section.agreeing();
        table.row(vec![
            Cell::text(section.title.split(':').next().unwrap_or_default()),
            Cell::count(section.rows.len()),
            Cell::count(agreeing),
            Cell::count(section.rows.len() - agreeing),
            Cell::count(section.figures.len()),
        ]);
    }
    table
}
