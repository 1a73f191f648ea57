//! `ebb lab virtual`.

use std::ops::Range;

use ebb_types::{Result, err};
use ebb_virtual::{Report, VirtualOptions};
use serde_json::json;

use crate::cli::Context;

/// Runs one seed or a range of them; false: something promised did not hold.
pub fn run(context: &Context, seed: Option<u64>, seeds: Option<&str>) -> Result<bool> {
    match (seed, seeds) {
        (Some(seed), _) => {
            let report = run_seed(seed)?;
            print(context, &report);
            Ok(report.violations.is_empty())
        }
        (None, Some(text)) => run_range(context, parse_range(text)?),
        (None, None) => Err(err!(Invalid, "which seeds? give --seed N or --seeds FIRST..END")),
    }
}

fn run_range(context: &Context, range: Range<u64>) -> Result<bool> {
    let total = range.end - range.start;
    let bar = context.output.item_bar(total, "seeds");
    let mut failed = Vec::new();
    for seed in range {
        let report = run_seed(seed)?;
        if !report.violations.is_empty() {
            bar.suspend(|| print(context, &report));
            failed.push(seed);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let passed = total - failed.len() as u64;
    if context.output.json() {
        context.output.print_json(&json!({"passed": passed, "failed": failed.len(), "failed_seeds": failed}));
    }
    context.output.say(&format!("{passed} passed, {} failed", failed.len()));
    Ok(failed.is_empty())
}

/// A world has a runtime of its own, so it runs on a thread that is in none.
fn run_seed(seed: u64) -> Result<Report> {
    let run = std::thread::spawn(move || ebb_virtual::run(seed, VirtualOptions::default()));
    run.join().map_err(|_| err!(Internal, "seed {seed} ended in a panic; what it said stands above"))
}

fn print(context: &Context, report: &Report) {
    if context.output.json() {
        context.output.print_json(&json!(report));
        return;
    }
    context.output.say(&format!(
        "seed {}: trace {}, {:.0} virtual seconds, {} writes ({} acknowledged, {} by fsync), {} reads, {} violations",
        report.seed,
        report.trace_hash,
        report.virtual_seconds,
        report.writes,
        report.acked,
        report.firm,
        report.reads,
        report.violations.len(),
    ));
    let faults: Vec<String> = report.faults.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    context.output.say(&format!("  faults: {}", faults.join(", ")));
    for violation in &report.violations {
        context.output.say(&format!("  VIOLATION {violation:?}"));
    }
}

fn parse_range(text: &str) -> Result<Range<u64>> {
    let parsed = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    parsed
        .filter(|range: &Range<u64>| !range.is_empty())
        .ok_or_else(|| err!(Invalid, "--seeds {text:?}: write it as 0..500"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_seeds() {
        assert_eq!(parse_range("0..500").unwrap(), 0..500);
        assert!(parse_range("5..5").is_err());
        assert!(parse_range("5").is_err());
    }
}
