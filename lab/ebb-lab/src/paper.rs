//! `ebb lab rabbit`, `ebb lab blinkfs`, `ebb lab diskreduce` and `ebb lab lsn`: the figures of a paper, run in virtual time.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use ebb_cli::Context;
use ebb_figures::part::Step;
use ebb_figures::{Effort, Lab, Outcome, Part};
use ebb_plan::report::page;
use ebb_types::{Result, err};

#[derive(Debug, Args)]
pub struct PaperArgs {
    /// Figure or table to make, by its name in the paper, such as 6, table2 or d3 [default: all].
    #[arg(long, value_name = "NAME")]
    figure: Option<String>,
    /// Directory for figures (SVG), numbers (JSON) and a page with all of them. It is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Seed of all random choices.
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// Use fewer points, fewer blocks and shorter runs. The results then show the shape of the figures, not the
    /// numbers.
    #[arg(long)]
    quick: bool,
    /// Number of virtual worlds that run at a time [default: number of cores].
    #[arg(long)]
    pub jobs: Option<NonZeroUsize>,
}

/// A paper.
pub struct Paper {
    title: &'static str,
    intro: &'static [&'static str],
    parts: &'static [Part],
}

/// Rabbit.
pub const RABBIT: Paper =
    Paper { title: ebb_figures::rabbit::TITLE, intro: ebb_figures::rabbit::INTRO, parts: ebb_figures::rabbit::PARTS };

/// BlinkFS.
pub const BLINKFS: Paper = Paper {
    title: ebb_figures::blinkfs::TITLE,
    intro: ebb_figures::blinkfs::INTRO,
    parts: ebb_figures::blinkfs::PARTS,
};

/// DiskReduce.
pub const DISKREDUCE: Paper = Paper {
    title: ebb_figures::diskreduce::TITLE,
    intro: ebb_figures::diskreduce::INTRO,
    parts: ebb_figures::diskreduce::PARTS,
};

/// Localized storage nodes.
pub const LSN: Paper =
    Paper { title: ebb_figures::lsn::TITLE, intro: ebb_figures::lsn::INTRO, parts: ebb_figures::lsn::PARTS };

/// Makes the figures and prints the numbers.
pub fn run(context: &Context, paper: &Paper, args: &PaperArgs) -> Result<()> {
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    let outcome = in_worlds(context, (args.seed, effort), args.jobs, |lab| {
        ebb_figures::run(paper.title, paper.intro, paper.parts, lab, args.figure.as_deref())
    })?;
    let lead =
        format!("The paper's number, ours in virtual time, and the reason for a difference. Seed {}.", args.seed);
    let closing = format!("as the paper says, the others with a reason; seed {}", args.seed);
    report(context, &outcome, outcome.json(args.seed), args.out.as_deref(), &lead, &closing)
}

/// Makes something in worlds of a seed, several at a time, under a bar that counts them. As many as there are cores, unless
/// `jobs` says so.
pub fn in_worlds<T>(
    context: &Context,
    (seed, effort): (u64, Effort),
    jobs: Option<NonZeroUsize>,
    make: impl FnOnce(&Lab<'_>) -> T,
) -> T {
    let bar = context.output.item_bar(0, "worlds");
    let on_world = |step| match step {
        Step::More(count) => bar.inc_length(count as u64),
        Step::Done => bar.inc(1),
    };
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let made = make(&Lab { seed, effort, jobs: jobs.unwrap_or(cores), on_world: &on_world });
    bar.finish_and_clear();
    made
}

/// Prints what was measured on real processes, and writes it to `out`.
pub fn report_measured(
    context: &Context,
    outcome: &Outcome,
    rounds: u32,
    out: Option<&Path>,
    lead: &str,
) -> Result<()> {
    let closing = format!("as the paper says or as is held; {rounds} rounds");
    report(context, outcome, outcome.measured_json(rounds), out, lead, &closing)
}

/// Prints tables and rows, and how many agree; or prints `numbers`. Writes everything to `out`.
pub fn report(
    context: &Context,
    outcome: &Outcome,
    numbers: serde_json::Value,
    out: Option<&Path>,
    lead: &str,
    closing: &str,
) -> Result<()> {
    if let Some(dir) = out {
        write_all(dir, outcome, &numbers, lead)?;
    }
    let output = context.output;
    if output.json() {
        output.print_json(&numbers);
        return Ok(());
    }
    for table in outcome.section.tables.iter().chain([&outcome.table()]) {
        output.say("");
        output.say(&table.title);
        table.lines().iter().for_each(|line| output.say(line));
    }
    let (agreeing, all) = (outcome.section.agreeing(), outcome.section.rows.len());
    output.say(&format!("{agreeing} of {all} {closing}"));
    if let Some(dir) = out {
        output.say(&format!("wrote {}", dir.join("index.html").display()));
    }
    Ok(())
}

/// Writes figures, numbers and the page.
pub fn write_all(dir: &Path, outcome: &Outcome, numbers: &serde_json::Value, lead: &str) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|error| err!(Io, "making {}: {error}", dir.display()))?;
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|error| err!(Io, "writing {}: {error}", path.display()))
    };
    for (name, svg) in outcome.pictures() {
        write(&name, &svg)?;
    }
    write("numbers.json", &format!("{numbers:#}\n"))?;
    write("index.html", &page(&outcome.section.title, lead, std::slice::from_ref(&outcome.section)))
}
