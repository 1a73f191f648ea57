//! The paper's figures as statements that can be checked: its number, ours, and the reason for a difference.
//!
//! All statements about the 20-node and the 5-node studies use one set of hardware parameters ([`Hardware::default`])
//! and one number of copies at the LSN; three things were chosen by these very numbers, once: the array's
//! stripe, its piece, and that number of copies. Where a number is out of reach with these, `Claim::remark` names the
//! experiment that reaches it, and that experiment is a row of its own.
//!
//! [`Hardware::default`]: crate::cluster::Hardware

use ebb_types::Result;
use serde::Serialize;

use crate::app::App;
use crate::cluster::{Cluster, DiskModel, Hardware, MIB, Placement};
use crate::measure::{Runner, Timing, compare};
use crate::study::Study;

mod real;
mod small;
mod twenty;

/// Largest difference of normalized times that counts as close in the simulated studies.
pub const TOLERANCE: f64 = 0.15;

/// One statement of the paper.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Claim {
    /// `Fig. 5`.
    pub figure: String,
    /// The compared quantity.
    pub quantity: String,
    /// The paper's number: a normalized time, a ratio of times, or a count.
    pub paper: f64,
    /// The kind of the statement.
    pub relation: Relation,
    /// Ours.
    pub ours: f64,
    /// Whether ours is on the same side: slower if the paper says slower, at most if it says at most.
    pub same_direction: bool,
    /// Whether ours is within [`TOLERANCE`] of the paper's.
    pub close: bool,
    /// Whether the statement belongs to a study that must be close.
    pub binding: bool,
    /// The reason for a difference, or the reading of the paper's sentence.
    pub remark: String,
}

/// Kind of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Ours should be this number, on the same side of 1.
    Is,
    /// Ours should be this count; it is not a time.
    Count,
    /// Ours should be at most this number.
    AtMost,
    /// Ours should be more than this number.
    MoreThan,
    /// Ours should differ from 1 by at most this number, either way.
    Within,
}

impl Relation {
    /// Distance of ours from the statement, in the numbers' own unit; 0 if a bound is kept.
    #[must_use]
    pub fn away(self, paper: f64, ours: f64) -> f64 {
        match self {
            Self::Is | Self::Count => (ours - paper).abs(),
            Self::AtMost => (ours - paper).max(0.0),
            Self::MoreThan => (paper - ours).max(0.0),
            Self::Within => ((ours - 1.0).abs() - paper).max(0.0),
        }
    }
}

impl Claim {
    fn new(figure: &str, quantity: impl Into<String>, relation: Relation, paper: f64, ours: f64) -> Self {
        let away = relation.away(paper, ours);
        let same_direction = match relation {
            Relation::Is | Relation::Count => {
                let side = |value: f64| if value > 1.005 { 1 } else { -i32::from(value < 0.995) };
                side(paper) == side(ours) || side(paper) == 0
            }
            Relation::AtMost | Relation::Within => away <= TOLERANCE,
            Relation::MoreThan => ours > paper,
        };
        Self {
            figure: figure.to_owned(),
            quantity: quantity.into(),
            paper,
            relation,
            ours,
            same_direction,
            close: away <= TOLERANCE,
            binding: true,
            remark: String::new(),
        }
    }

    fn remark(mut self, remark: &str) -> Self {
        remark.clone_into(&mut self.remark);
        self
    }

    /// Makes it a statement that is reported and not required.
    fn free(mut self, remark: &str) -> Self {
        self.binding = false;
        self.remark(remark)
    }
}

/// All statements of the paper's evaluation, in its order.
///
/// # Errors
/// Those of a run.
pub fn all(runner: &dyn Runner, seeds: &[u64]) -> Result<Vec<Claim>> {
    let studies = ["real-cluster", "20-node", "5-node", "better-nodes"];
    let claims: Result<Vec<Vec<Claim>>> = studies.iter().map(|study| of_study(study, runner, seeds)).collect();
    Ok(claims?.concat())
}

/// The statements about the figures of one study, by its name.
///
/// # Errors
/// Those of a run. Invalid: there is no such study.
pub fn of_study(name: &str, runner: &dyn Runner, seeds: &[u64]) -> Result<Vec<Claim>> {
    match Study::by_name(name)?.name {
        "real-cluster" => real::claims(runner, seeds),
        "20-node" => twenty::claims(runner, seeds),
        "5-node" => small::claims(runner, seeds),
        _ => twenty::better_nodes(runner, seeds),
    }
}

/// Timings of one cluster by application.
struct Times(Vec<Timing>);

impl Times {
    fn timing(&self, app: &str) -> &Timing {
        self.0.iter().find(|timing| timing.app == app).expect("every application was run")
    }

    fn of(&self, app: &str) -> f64 {
        self.timing(app).normalized_time
    }

    fn seconds(&self, app: &str) -> f64 {
        self.timing(app).seconds
    }

    fn baseline_seconds(&self, app: &str) -> f64 {
        self.timing(app).baseline_seconds
    }

    fn mean(&self, apps: &[&str]) -> f64 {
        apps.iter().map(|app| self.of(app)).sum::<f64>() / apps.len() as f64
    }

    fn all_but(&self, apps: &[&str]) -> Vec<&str> {
        self.0.iter().map(|timing| timing.app.as_str()).filter(|app| !apps.contains(app)).collect()
    }

    fn worst_but(&self, apps: &[&str]) -> f64 {
        self.all_but(apps).into_iter().map(|app| self.of(app)).fold(0.0, f64::max)
    }

    /// The time farthest from 1.
    fn farthest_but(&self, apps: &[&str]) -> f64 {
        let far = |a: &f64, b: &f64| (a - 1.0).abs().total_cmp(&(b - 1.0).abs());
        self.all_but(apps).into_iter().map(|app| self.of(app)).max_by(far).expect("ten applications")
    }

    fn mean_of_all(&self) -> f64 {
        self.mean(&self.all_but(&[]))
    }
}

fn times(runner: &dyn Runner, clusters: &[Cluster], apps: &[App], seeds: &[u64]) -> Result<Vec<Times>> {
    Ok(compare(runner, None, clusters, apps, seeds)?.into_iter().map(Times).collect())
}

fn study(name: &str) -> Cluster {
    Study::by_name(name).expect("it is one of ours").cluster
}

/// The three programs of figure 4: 1 GB for each of 15 workers.
#[must_use]
pub fn figure_4_apps() -> Vec<App> {
    let gib = 1024.0 * MIB;
    let like = |name: &str, bytes: [f64; 3], tasks: [usize; 2]| {
        let one = App::by_name(name).expect("it is in table II");
        App {
            map_input_bytes: bytes[0] * gib,
            map_output_bytes: bytes[1] * gib,
            reduce_output_bytes: bytes[2] * gib,
            mappers: tasks[0],
            reducers: tasks[1],
            ..one
        }
    };
    vec![
        like("TeraGen", [0.0, 15.0, 0.0], [15, 0]),
        like("Grep", [15.0, 0.0015, 0.0015], [240, 30]),
        like("TeraSort", [15.0, 15.0, 15.0], [240, 30]),
    ]
}

/// The testbed's own disks; its LSNs are "identical to the rest of the nodes", with more disks: no array's cache.
#[must_use]
pub fn testbed_hardware() -> Hardware {
    let disk = DiskModel::ES2;
    Hardware { disk, array_piece_bytes: disk.write_run_bytes, array_stripe_bytes: UNLIMITED, ..Hardware::default() }
}

/// A stripe that grows with the array: seeks become fewer with each disk.
pub const UNLIMITED: f64 = 1e6 * MIB;

#[cfg(test)]
mod tests;
