//! The command line: long runs, and one case again.

use std::process::ExitCode;
use std::time::Duration;

use crate::mutate::input;
use crate::run::{Found, Report, run, run_input};
use crate::target::Target;

/// How it is used.
pub const USAGE: &str = "usage: ebb-fuzz list
       ebb-fuzz run [TARGET] [--seconds N] [--seed N]     every target, or those whose names begin so; N seconds each
       ebb-fuzz replay TARGET SEED CASE                   a case again, with the panic's whole message
       ebb-fuzz replay TARGET FILE                        an input from a file";

/// Runs a command: 0 good, 1 a fault was found, 2 usage.
pub fn main(words: &[String], targets: &[Target]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["list"] => {
            targets.iter().for_each(|target| println!("{:24} {:24} {}", target.name, target.cap, target.source));
            ExitCode::SUCCESS
        }
        ["run", ref rest @ ..] => run_all(rest, targets),
        ["replay", name, seed, case] => match (find(targets, name), seed.parse(), case.parse()) {
            (Some(target), Ok(seed), Ok(case)) => {
                replay(target, seed, case, input(target, &(target.samples)(), seed, case))
            }
            _ => wrong(),
        },
        ["replay", name, path] => match (find(targets, name), read(path)) {
            (Some(target), Ok(bytes)) => replay(target, 0, 0, bytes),
            (_, Err(error)) => {
                eprintln!("{path}: {error}");
                ExitCode::from(2)
            }
            (None, _) => wrong(),
        },
        _ => wrong(),
    }
}

fn wrong() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

#[allow(clippy::disallowed_methods, reason = "a program at the rim")]
fn read(path: &str) -> std::io::Result<Vec<u8>> {
    std::fs::read(path)
}

/// The target of this name.
#[must_use]
pub fn find<'a>(targets: &'a [Target], name: &str) -> Option<&'a Target> {
    targets.iter().find(|target| target.name == name)
}

fn replay(target: &Target, seed: u64, case: u64, bytes: Vec<u8>) -> ExitCode {
    match run_input(target, &bytes) {
        Ok(taken) => {
            let verdict = if taken.is_good { "taken" } else { "refused" };
            println!(
                "{}: {} bytes, {verdict}: {} bytes of memory, {:?}",
                target.name,
                bytes.len(),
                taken.peak,
                taken.time
            );
            ExitCode::SUCCESS
        }
        Err(fault) => {
            print!("{}", Found { target: target.name, seed, case, fault, bytes });
            ExitCode::FAILURE
        }
    }
}

fn run_all(words: &[&str], targets: &[Target]) -> ExitCode {
    let (mut prefix, mut seconds, mut seed) = ("", 10, 1);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        match *word {
            "--seconds" => match number() {
                Some(summary) => seconds = summary,
                None => return wrong(),
            },
            "--seed" => match number() {
                Some(summary) => seed = summary,
                None => return wrong(),
            },
            name if prefix.is_empty() && !name.starts_with('-') => prefix = name,
            _ => return wrong(),
        }
    }
    let chosen: Vec<&Target> = targets.iter().filter(|target| target.name.starts_with(prefix)).collect();
    if chosen.is_empty() {
        return wrong();
    }
    quietly(|| {
        let faults: usize = chosen
            .iter()
            .map(|target| {
                let report = run(target, seed, 0..u64::MAX - 1, Some(Duration::from_secs(seconds)));
                print!("{}", summary(target, &report));
                report.faults.len()
            })
            .sum();
        if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    })
}

/// A line for a target, and its faults.
#[must_use]
pub fn summary(target: &Target, report: &Report) -> String {
    let Report { cases, taken, peak, share, slowest, faults } = report;
    let line = format!(
        "{:18} {cases:>9} cases, {} % taken, at most {} of its cap ({} KiB for {} bytes), slowest {:.1} ms, {}\n",
        target.name,
        taken * 100 / cases.max(&1),
        format_args!("{}.{} %", share / 10, share % 10),
        peak.0 >> 10,
        peak.1,
        slowest.as_secs_f64() * 1e3,
        if faults.is_empty() { "no fault".to_owned() } else { format!("{} FAULTS", faults.len()) }
    );
    faults.iter().fold(line, |text, found| format!("{text}{found}"))
}

/// Without the words of panics that are caught and reported anyway.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = work();
    std::panic::set_hook(hook);
    result
}
