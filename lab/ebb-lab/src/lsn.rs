//! `ebb lab lsn`: the figures of localized storage nodes, or a plan of `ebb plan lsn` against the real services in virtual time.

use std::path::{Path, PathBuf};

use clap::Args;
use ebb_cli::Context;
use ebb_figures::lsn::against::{self, Plan, TOLERANCE};
use ebb_figures::{Effort, Outcome};
use ebb_types::{Result, err};

use super::paper::{self, PaperArgs};

#[derive(Debug, Args)]
pub struct LsnArgs {
    #[command(flatten)]
    paper: PaperArgs,
    /// File with the answer of `ebb plan lsn --within P --json`. Its cluster is built, its jobs run, and the exit code is 1 if
    /// one's slowdown differs from the plan's by more than 15 points.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["figure", "quick"])]
    against_plan: Option<PathBuf>,
}

/// Makes the figures, or runs the plan. False: the plan is further off than it may be.
pub fn run(context: &Context, args: &LsnArgs) -> Result<bool> {
    match &args.against_plan {
        Some(file) => run_plan(context, &args.paper, file),
        None => paper::run(context, &paper::LSN, &args.paper).map(|()| true),
    }
}

fn run_plan(context: &Context, args: &PaperArgs, file: &Path) -> Result<bool> {
    let text = std::fs::read_to_string(file).map_err(|error| err!(Invalid, "reading {}: {error}", file.display()))?;
    let plan = Plan::parse(&text).map_err(|error| error.context(format!("--against-plan {}", file.display())))?;
    let section = paper::in_worlds(context, (args.seed, Effort::Full), args.jobs, |lab| against::section(lab, &plan))?;
    let (agreeing, all) = (section.agreeing(), section.rows.len());
    let outcome = Outcome { section };
    let lead = "What the plan predicts, and what the real services take in virtual time.";
    let closing = format!("within {:.0} points of the plan; seed {}", TOLERANCE * 100.0, args.seed);
    paper::report(context, &outcome, outcome.json(args.seed), args.out.as_deref(), lead, &closing)?;
    Ok(agreeing == all)
}
