//! `ebb lab metablocks`: block sizes, metablocks, locations and prefetch on a running cluster, beside the paper's numbers.
//!
//! Every file is written anew before it is measured, by a client that then ends, so that no client has any of it in
//! memory. Each round runs every case, and the medians of the rounds are reported. Nothing is left in the cluster.

mod bonnie;
mod figure2;
mod measure;
mod site;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ebb_cli::Context;
use ebb_cli::units::ByteSize;
use ebb_client::Unit;
use ebb_figures::metablocks::{self as lab, BONNIE, CASES, Gauge, PREFETCHES, Placing, READERS, Reader, Seen};
use ebb_figures::{Effort, Outcome};
use ebb_plan::Section;
use ebb_types::{Result, bail};
use indicatif::ProgressBar;

use self::site::Site;
use super::paper;

/// Least bytes of a file for a useful result: a few of the largest blocks.
const SIZE_MIN: u64 = 32 << 20;
/// Bytes of a file unless `--size` says otherwise.
const SIZE: u64 = 512 << 20;

#[derive(Debug, Args)]
pub struct MetablocksArgs {
    /// Figure to make instead of all that needs only a running cluster: 2, the MapReduce jobs on HDFS and on Ebb. It
    /// starts clusters of its own, and needs root and a source tree.
    #[arg(long, value_enum, conflicts_with = "parts")]
    figure: Option<FigureArg>,
    /// Bytes that are searched and read in each case, at least 32MiB, in one file at a time with one copy; for --figure
    /// 2 the input of each job [default: 512MiB, or 192MiB for --figure 2].
    #[arg(long)]
    size: Option<ByteSize>,
    /// Number of times that everything is measured; medians are reported.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Parts to measure, comma-separated.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Search, Part::Prefetch, Part::Bonnie, Part::Seeks])]
    parts: Vec<Part>,
    /// Directory of figure2.sh, for --figure 2 [default: tests/hadoop of the source tree].
    #[arg(long, value_name = "DIR", requires = "figure")]
    scripts: Option<PathBuf>,
    /// File with what an earlier run with --out measured (measured.jsonl): it is shown, and nothing is measured. Given
    /// several times, the runs count as rounds of one.
    #[arg(long, value_name = "FILE", requires = "figure", conflicts_with_all = ["size", "rounds", "scripts"])]
    from: Vec<PathBuf>,
    /// Directory for figures (SVG), numbers (JSON) and a page with all of them. It is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl MetablocksArgs {
    fn bytes(&self) -> u64 {
        self.size.map_or(SIZE, |size| size.0)
    }
}

/// Figures that are made by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FigureArg {
    /// Fig. 2: grep, TeraGen and TeraSort.
    #[value(name = "2")]
    Jobs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// Table 1 and Fig. 1: a search with and without locations.
    Search,
    /// Sections 3 and 5: prefetch by percentages, and with spare bandwidth.
    Prefetch,
    /// Table 2: random and sequential reads, by bonnie++ on a mount and by Ebb's own reader.
    Bonnie,
    /// Table 2 in virtual time: sequential reads from disks that seek. It alone needs no cluster.
    Seeks,
}

/// Measures, reports, and removes everything again.
pub async fn run(context: &Context, args: &MetablocksArgs) -> Result<()> {
    if let Some(size) = args.size.filter(|size| size.0 < SIZE_MIN) {
        bail!(Invalid, "--size {size}: at least {}", ByteSize(SIZE_MIN));
    }
    if args.rounds == 0 {
        bail!(Invalid, "--rounds 0: at least 1");
    }
    if args.figure == Some(FigureArg::Jobs) {
        return figure2::run(context, args).await;
    }
    if args.parts.contains(&Part::Bonnie) {
        bonnie::check()?;
    }
    let mut section = if args.parts.iter().all(|part| *part == Part::Seeks) {
        Section::new(lab::TITLE, &[])
    } else {
        on_the_cluster(context, args).await?
    };
    if args.parts.contains(&Part::Seeks) {
        // Nothing else is under way by now: its worlds have threads of their own.
        let modelled = paper::in_worlds(context, (SEED, Effort::Full), None, lab::seeks::section)?;
        section.rows.extend(modelled.rows);
        section.tables.extend(modelled.tables);
    }
    let outcome = Outcome { section };
    let about = "The paper's number, ours on this cluster, and the reason for a difference.";
    paper::report_measured(context, &outcome, args.rounds, args.out.as_deref(), about)
}

/// The last line of a program's output that says something.
fn last_line(output: &str) -> Option<&str> {
    output.lines().rfind(|line| !line.trim().is_empty())
}

async fn on_the_cluster(context: &Context, args: &MetablocksArgs) -> Result<Section> {
    let site = Site::make(context.cluster()?, args.bytes()).await?;
    let seen = rounds(context, args, &site).await;
    let gone = site.remove().await;
    let seen = seen?;
    gone?;
    Ok(lab::section(&seen))
}

/// Chance decides nothing here but the places of blocks.
const SEED: u64 = 1;

async fn rounds(context: &Context, args: &MetablocksArgs, site: &Site) -> Result<Seen> {
    let mut seen = Seen::new(site.nodes(), args.bytes());
    let per_round = |part: &Part| match part {
        Part::Search => CASES.len(),
        Part::Prefetch => PREFETCHES.len() * READERS.len(),
        Part::Bonnie => BONNIE.len() * 3,
        Part::Seeks => 0,
    };
    let all = args.parts.iter().map(per_round).sum::<usize>() as u64 * u64::from(args.rounds);
    let bar = context.output.item_bar(all, "measurements");
    let done = one_after_the_other(args, site, &mut seen, &bar).await;
    bar.finish_and_clear();
    done.map(|()| seen)
}

async fn one_after_the_other(args: &MetablocksArgs, site: &Site, seen: &mut Seen, bar: &ProgressBar) -> Result<()> {
    for _ in 0..args.rounds {
        if args.parts.contains(&Part::Search) {
            for (case, repeats) in CASES.iter().zip(&mut seen.searches) {
                repeats.push(measure::search(site, case.0, case.0.prefetch, case.1).await?);
                bar.inc(1);
            }
        }
        if args.parts.contains(&Part::Prefetch) {
            for (setting, of) in PREFETCHES.iter().zip(&mut seen.readers) {
                for reader in READERS {
                    of[reader as usize].push(match reader {
                        Reader::Search => measure::search(site, lab::FINE, *setting, Placing::Blind).await?,
                        Reader::Sequential => measure::sequential(site, lab::FINE, *setting, Unit::Chunks).await?,
                        Reader::Random => measure::random(site, lab::FINE, *setting, Unit::Chunks).await?,
                    });
                    bar.inc(1);
                }
            }
        }
        if args.parts.contains(&Part::Bonnie) {
            for (setting, of) in BONNIE.iter().zip(&mut seen.speeds) {
                of[Gauge::Bonnie as usize].push(bonnie::run(site, *setting).await?);
                bar.inc(1);
                for (gauge, unit) in [(Gauge::Chunks, Unit::Chunks), (Gauge::Blocks, Unit::Blocks)] {
                    of[gauge as usize].push(measure::speeds(site, *setting, unit).await?);
                    bar.inc(1);
                }
            }
        }
    }
    Ok(())
}
