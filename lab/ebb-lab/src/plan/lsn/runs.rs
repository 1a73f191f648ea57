//! Simulated cases on all cores, each once.

use std::collections::BTreeMap;
use std::sync::Mutex;

use ebb_cli::output::Output;
use ebb_sim::JobReport;
use ebb_sim::measure::{Case, Runner};
use ebb_types::{Result, err};

use super::super::parallel::Workers;

/// Runs cases on [`Workers`], each case only once.
pub struct Runs {
    workers: Workers,
    /// Reports by the text of the whole case.
    known: Mutex<BTreeMap<String, JobReport>>,
}

impl Runs {
    /// Without any reports.
    pub fn new(output: Output) -> Self {
        Self { workers: Workers::new(output, "runs"), known: Mutex::default() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, JobReport>> {
        // A report is inserted whole or not at all.
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Runner for Runs {
    fn run_all(&self, cases: &[Case]) -> Result<Vec<JobReport>> {
        let keys: Vec<String> = cases.iter().map(|case| format!("{case:?}")).collect();
        let mut wanted: BTreeMap<&str, &Case> = keys.iter().map(String::as_str).zip(cases).collect();
        wanted.retain(|key, _| !self.known().contains_key(*key));
        // The largest first, so that no core is left with a long one at the end.
        let mut work: Vec<(&str, &Case)> = wanted.into_iter().collect();
        work.sort_by_key(|(_, case)| std::cmp::Reverse(case.cluster.nodes * (case.app.mappers + case.app.reducers)));
        let reports = self.workers.map(&work, |(_, case)| case.run())?;
        let mut known = self.known();
        known.extend(work.iter().map(|(key, _)| (*key).to_owned()).zip(reports));
        let report = |key: &String| known.get(key).cloned().ok_or_else(|| err!(Internal, "a case was not run: {key}"));
        keys.iter().map(report).collect()
    }
}
