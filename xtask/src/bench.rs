//! Measures, beside references of the same run: a number alone says as much about the machine as about the code.
//!
//! Each [`Row`] has a name, a unit and a function that measures once. A run measures every row [`ROUNDS`] times, round
//! by round, so that a busy minute touches all rows alike, and prints medians with the spread. Adding a row: a function
//! and a line in [`rows`]. Programs of the workspace (`examples/` of the crates) are rows too: their output is passed
//! on as it is, after the references.

use crate::step::Step;
use crate::tree::Tree;

mod cache;
mod disk;
mod loopback;

/// Measurements of each row.
const ROUNDS: usize = 5;

/// Something to measure.
struct Row {
    name: &'static str,
    unit: &'static str,
    measure: fn() -> std::io::Result<f64>,
}

/// Every reference, in the order of the table.
fn rows() -> Vec<Row> {
    vec![
        Row { name: "loopback tcp, 1 MiB writes", unit: "GiB/s", measure: loopback::throughput },
        Row { name: "loopback tcp, 64 B there and back", unit: "us", measure: loopback::round_trip },
        Row { name: "disk, 4 KiB write + fdatasync", unit: "us", measure: disk::small_sync },
        Row { name: "disk, 64 MiB write + fdatasync", unit: "MiB/s", measure: disk::stream_sync },
        Row { name: "page cache, 1 MiB preads", unit: "GiB/s", measure: cache::sequential },
        Row { name: "page cache, 4 KiB preads", unit: "us", measure: cache::small },
    ]
}

/// Measures all references and programs, or those whose name contains `filter`.
pub fn run(filter: &str) -> bool {
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.name.contains(filter)).collect();
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for (row, samples) in rows.iter().zip(&mut samples) {
            match (row.measure)() {
                Ok(value) => samples.push(value),
                Err(error) => {
                    println!("{}: {error}", row.name);
                    return false;
                }
            }
        }
    }
    println!("{:<36} {:>10} {:>10} {:>10}  unit", "reference", "median", "least", "most");
    for (row, samples) in rows.iter().zip(samples) {
        let [least, median, most] = summary(samples);
        println!("{:<36} {median:>10.2} {least:>10.2} {most:>10.2}  {}", row.name, row.unit);
    }
    programs(filter)
}

fn summary(mut samples: Vec<f64>) -> [f64; 3] {
    samples.sort_by(f64::total_cmp);
    [samples[0], samples[samples.len() / 2], samples[samples.len() - 1]]
}

/// Crates whose `examples/` are measurements.
const MEASURED: &[&str] = &["ebb-rpc", "ebb-meta", "ebb-store", "ebb-client"];

fn programs(filter: &str) -> bool {
    let tree = match Tree::load() {
        Ok(tree) => tree,
        Err(sentence) => {
            println!("{sentence}");
            return false;
        }
    };
    let mut good = true;
    for package in MEASURED {
        let folder = format!("crates/{package}/examples/");
        for file in tree.ending(".rs").filter(|file| file.path.starts_with(&folder)) {
            let name = file.path[folder.len()..].trim_end_matches(".rs");
            if format!("{package} {name}").contains(filter) {
                println!("-- {package} {name}");
                let step = Step::cargo("program", &["run", "-q", "-p", package, "--example", name]);
                good &= step.showing(|_| true).run();
            }
        }
    }
    good
}

/// A scratch file beside the build, on the disk that the build uses; gone when dropped.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> std::io::Result<Self> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::tree::root().join("target"), Into::into);
        let folder = target.join("bench");
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder.join(format!("{name}.{}", std::process::id()))))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(summary(vec![5.0, 1.0, 9.0]), [1.0, 5.0, 9.0]);
    }

    #[test]
    fn every_reference_measures_something() {
        for row in rows() {
            let value = (row.measure)().unwrap();
            assert!(value.is_finite() && value > 0.0, "{}: {value}", row.name);
        }
    }
}
