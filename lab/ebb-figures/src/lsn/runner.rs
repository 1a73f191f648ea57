//! The simulator's cases on the real services: [`ebb_sim::claims`] then states the paper's figures of them, as it does of the
//! simulator.

use ebb_sim::claims::testbed_hardware;
use ebb_sim::cluster::Hardware;
use ebb_sim::job::Bytes;
use ebb_sim::measure::{Case, Runner};
use ebb_sim::site::Busy;
use ebb_sim::{App, Cluster, JobReport};
use ebb_types::Result;
use parking_lot::Mutex;

use super::bed::Means;
use super::job::{self, JobTimes};
use super::tracker::Choice;
use super::{bed, show};
use crate::part::Lab;

/// What was run: a job on a cluster.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The cluster.
    pub cluster: Cluster,
    /// The application.
    pub app: String,
    /// How it went.
    pub times: JobTimes,
}

/// Runs cases in virtual worlds, one world for all applications of a cluster.
pub struct Worlds<'a> {
    lab: &'a Lab<'a>,
    /// Cases of other hardware are not run, and have no time.
    hardware: Hardware,
    /// Factor on bytes and tasks of every application.
    size: f64,
    means: Means,
    /// Everything that was run.
    pub seen: Mutex<Vec<Seen>>,
}

impl<'a> Worlds<'a> {
    /// A runner of the cases with this hardware.
    #[must_use]
    pub fn new(lab: &'a Lab<'a>, hardware: Hardware, size: f64) -> Self {
        Self { lab, hardware, size, means: Means::default(), seen: Mutex::default() }
    }

    /// The same with other disks, or another limit for what is under way.
    #[must_use]
    pub fn with(self, means: Means) -> Self {
        Self { means, ..self }
    }
}

/// Whether a case is run. Cases of other hardware are experiments with the simulator's own parameters, and one LSN does not hold two
/// copies of a block.
fn is_run(case: &Case, hardware: &Hardware) -> bool {
    let Cluster { lsn_replicas, sub_racks, .. } = case.cluster;
    case.cluster.hardware == *hardware && (!case.cluster.is_shared() || lsn_replicas <= sub_racks)
}

/// A report that says only how long it took.
fn report(seconds: f64, times: Option<JobTimes>) -> JobReport {
    JobReport {
        seconds,
        map_seconds: times.map_or(f64::NAN, |times| times.map_seconds),
        local_maps: times.map_or(0, |times| times.near_maps),
        bytes: Bytes::default(),
        busy: Busy::default(),
        events: 0,
    }
}

/// Cases that share a world: those of one cluster and seed.
struct Group {
    cluster: Cluster,
    seed: u64,
    /// Their places in the list of cases.
    cases: Vec<(usize, App)>,
}

impl Group {
    fn run(&self, means: Means) -> Result<Vec<(usize, JobTimes)>> {
        bed::with(self.seed, &self.cluster, means, |bed| async move {
            let mut inputs: Vec<(App, Option<job::Input>)> = Vec::new();
            let mut all = Vec::new();
            for (place, app) in &self.cases {
                let same = |other: &App| (other.mappers, other.map_input_bytes) == (app.mappers, app.map_input_bytes);
                let input = match inputs.iter().find(|(other, _)| same(other)) {
                    Some((_, input)) => input.clone(),
                    None => {
                        let input = job::write_input(&bed, app).await?;
                        bed.world.sleep(bed::REST).await;
                        inputs.push((app.clone(), input.clone()));
                        input
                    }
                };
                let times = job::run(&bed, app, input.as_ref(), Choice::Located, self.seed).await;
                all.push((
                    *place,
                    times.map_err(|error| error.context(format!("{} on {}", app.name, show::name(&self.cluster))))?,
                ));
            }
            Ok(all)
        })
    }
}

impl Runner for Worlds<'_> {
    fn run_all(&self, cases: &[Case]) -> Result<Vec<JobReport>> {
        let mut groups: Vec<Group> = Vec::new();
        for (place, case) in cases.iter().enumerate().filter(|(_, case)| is_run(case, &self.hardware)) {
            let app = case.app.scaled(self.size);
            let is_its = |group: &&mut Group| group.cluster == case.cluster && group.seed == case.options.seed;
            match groups.iter_mut().find(is_its) {
                Some(group) => group.cases.push((place, app)),
                None => {
                    let (cluster, seed) = (case.cluster.clone(), case.options.seed);
                    groups.push(Group { cluster, seed, cases: vec![(place, app)] });
                }
            }
        }
        let mut reports: Vec<JobReport> = cases.iter().map(|_| report(f64::NAN, None)).collect();
        for (place, times) in self.lab.map(&groups, |group| group.run(self.means))?.into_iter().flatten() {
            let case = &cases[place];
            self.seen.lock().push(Seen { cluster: case.cluster.clone(), app: case.app.name.clone(), times });
            reports[place] = report(times.seconds, Some(times));
        }
        Ok(reports)
    }
}

/// The simulator on the disks of [`bed::DISK`], for the same cases.
pub struct SameDisks {
    hardware: Hardware,
    size: f64,
    /// Everything that was simulated.
    pub seen: Mutex<Vec<Seen>>,
}

impl SameDisks {
    /// A runner of the cases with this hardware, as for [`Worlds`].
    #[must_use]
    pub fn new(hardware: Hardware, size: f64) -> Self {
        Self { hardware, size, seen: Mutex::default() }
    }

    fn simulate(&self, case: &Case) -> Result<JobReport> {
        if !is_run(case, &self.hardware) {
            return Ok(report(f64::NAN, None));
        }
        let cluster = Cluster { hardware: testbed_hardware(), ..case.cluster.clone() };
        let found = ebb_sim::run(&cluster, &case.app.scaled(self.size), case.options)?;
        let times = JobTimes {
            seconds: found.seconds,
            map_seconds: found.map_seconds,
            near_maps: found.local_maps,
            network_bytes: 0,
            sub_rack_bytes: 0,
            replaced: 0,
        };
        self.seen.lock().push(Seen { cluster: case.cluster.clone(), app: case.app.name.clone(), times });
        Ok(found)
    }
}

impl Runner for SameDisks {
    fn run_all(&self, cases: &[Case]) -> Result<Vec<JobReport>> {
        cases.iter().map(|case| self.simulate(case)).collect()
    }
}
