//! Cases on all cores, each once.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebb_sim::JobReport;
use ebb_sim::measure::{Case, Runner};
use ebb_types::{Result, err};
use indicatif::ProgressBar;

use crate::output::Output;

/// Runs cases on as many threads as there are cores; tells how far it is on stderr; never runs a case twice.
pub struct Threads {
    count: usize,
    bar: ProgressBar,
    /// By everything that a case says.
    known: Mutex<BTreeMap<String, JobReport>>,
}

impl Threads {
    /// All cores.
    pub fn new(output: Output) -> Self {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { count, bar: output.item_bar(0, "runs"), known: Mutex::new(BTreeMap::new()) }
    }

    /// The progress bar goes.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, JobReport>> {
        // A report is inserted whole or not at all.
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Runner for Threads {
    fn run_all(&self, cases: &[Case]) -> Result<Vec<JobReport>> {
        let keys: Vec<String> = cases.iter().map(|case| format!("{case:?}")).collect();
        let mut wanted: BTreeMap<&str, &Case> = keys.iter().map(String::as_str).zip(cases).collect();
        wanted.retain(|key, _| !self.known().contains_key(*key));
        // The largest first, so that no core is left with a long one at the end.
        let mut work: Vec<(&str, &Case)> = wanted.into_iter().collect();
        work.sort_by_key(|(_, case)| std::cmp::Reverse(case.cluster.nodes * (case.app.mappers + case.app.reducers)));
        self.bar.inc_length(work.len() as u64);
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..self.count.min(work.len()) {
                scope.spawn(|| {
                    while let Some((key, case)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                        match case.run() {
                            Ok(report) => {
                                self.known().insert((*key).to_owned(), report);
                                self.bar.inc(1);
                            }
                            Err(error) => {
                                *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                                // The others have nothing left to take.
                                next.store(work.len(), Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
        });
        if let Some(error) = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            return Err(error);
        }
        let known = self.known();
        let report = |key: &String| known.get(key).cloned().ok_or_else(|| err!(Internal, "a case was not run: {key}"));
        keys.iter().map(report).collect()
    }
}
