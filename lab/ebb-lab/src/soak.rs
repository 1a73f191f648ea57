//! `ebb lab soak`: virtual clusters with new seeds until the time is over.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use ebb_cli::Context;
use ebb_cli::units::Span;
use ebb_runtime::{Moment, Runtime};
use ebb_types::{Error, Result, err};
use ebb_virtual::Report;
use ebb_virtual::swarm::{self, Next};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::virtual_cluster::{self, Work};

/// Interval between progress messages.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub struct SoakArgs {
    /// Duration of the run, such as 30min or 8h.
    #[arg(long, default_value = "1h")]
    time: Span,
    /// Number of clusters that run at a time, each on one core.
    #[arg(long, default_value = "1")]
    jobs: NonZeroUsize,
    /// First seed [default: random, so that no run repeats the last one].
    #[arg(long)]
    first: Option<u64>,
}

/// Runs seed after seed. False: a guarantee did not hold.
pub fn run(context: &Context, args: &SoakArgs) -> Result<bool> {
    if args.time.0.is_zero() {
        return Err(err!(Invalid, "--time 0: a soak takes some time"));
    }
    let runtime = Runtime::real();
    // Below 2^40: short enough to be typed again.
    let first = args.first.unwrap_or_else(|| runtime.random_u64() >> 24);
    let interrupted = Arc::new(AtomicBool::new(false));
    listen(&runtime, Arc::clone(&interrupted))?;
    context.output.say(&format!(
        "from seed {first} on, {}, {} at a time",
        humantime::format_duration(args.time.0),
        args.jobs
    ));

    let (start, mut last_progress) = (runtime.now(), runtime.now());
    let mut totals = Totals::default();
    swarm::run_each(
        first..u64::MAX,
        args.jobs,
        |seed| kind_of(seed).run(seed, None),
        |report| {
            if !report.violations.is_empty() {
                virtual_cluster::print(context, &report, &kind_of(report.seed), None);
            }
            totals.add(&report);
            let now = runtime.now();
            if now.since(last_progress) >= PROGRESS_EVERY {
                last_progress = now;
                context.output.say(&totals.sentence(start, now));
            }
            let is_over = now.since(start) >= args.time.0 || interrupted.load(Ordering::Relaxed);
            if is_over { Next::Stop } else { Next::GoOn }
        },
    );
    let now = runtime.now();
    if context.output.json() {
        context.output.print_json(&totals.json(first, now.since(start)));
    }
    context.output.say(&totals.sentence(start, now));
    Ok(totals.failed.is_empty())
}

/// Small clusters under faults find most in a given time. A large one takes the time of many.
const fn kind_of(seed: u64) -> Work {
    match seed % 10 {
        0..3 => Work::Faults(Vec::new()),
        3 => Work::Single,
        4..7 => Work::Power { policy: None, signal: None },
        7 => Work::Raid,
        8 => Work::Snapshots,
        _ => Work::Large,
    }
}

/// From here on ctrl-C ends the soak and not the program, so that the program can still print the results.
fn listen(runtime: &Runtime, interrupted: Arc<AtomicBool>) -> Result<()> {
    let mut interrupts =
        signal(SignalKind::interrupt()).map_err(|error| Error::from_io(&error, "listening for ctrl-C"))?;
    runtime.spawn("listen for ctrl-C", async move {
        interrupts.recv().await;
        interrupted.store(true, Ordering::Relaxed);
        // The running cluster goes on to its end. A second ctrl-C ends the program at once.
        interrupts.recv().await;
        std::process::exit(130);
    });
    Ok(())
}

/// The results so far.
#[derive(Default)]
struct Totals {
    passed: u64,
    failed: Vec<u64>,
    virtual_seconds: f64,
    writes: u64,
    reads: u64,
    injected: BTreeMap<String, u64>,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        if report.violations.is_empty() {
            self.passed += 1;
        } else {
            self.failed.push(report.seed);
        }
        self.virtual_seconds += report.virtual_seconds;
        self.writes += report.writes;
        self.reads += report.reads;
        for (kind, count) in &report.injected {
            *self.injected.entry(kind.clone()).or_default() += count;
        }
    }

    fn sentence(&self, start: Moment, now: Moment) -> String {
        let minutes = now.since(start).as_secs_f64() / 60.0;
        format!(
            "{minutes:.1} min: {} seeds passed, {} failed; {:.1} virtual hours, {} faults, {} writes, {} reads",
            self.passed,
            self.failed.len(),
            self.virtual_seconds / 3600.0,
            self.injected.values().sum::<u64>(),
            self.writes,
            self.reads,
        )
    }

    fn json(&self, first: u64, took: Duration) -> serde_json::Value {
        json!({
            "first": first,
            "seconds": took.as_secs_f64(),
            "passed": self.passed,
            "failed": self.failed.len(),
            "failed_seeds": self.failed,
            "virtual_seconds": self.virtual_seconds,
            "writes": self.writes,
            "reads": self.reads,
            "injected": self.injected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_cluster_has_its_turn() {
        let kinds: Vec<String> = (0..10).map(|seed| kind_of(seed).arguments()).collect();
        let wanted = [("", 3), (" --single", 1), (" --power", 3), (" --raid", 1), (" --snapshots", 1), (" --large", 1)];
        for (kind, turns) in wanted {
            assert_eq!(kinds.iter().filter(|one| *one == kind).count(), turns, "{kinds:?}");
        }
    }
}
