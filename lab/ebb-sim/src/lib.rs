//! A MapReduce cluster as flows over disks, links and cores: what a shared storage node costs and saves.
//!
//! "On the Use of Shared Storage in Shared-Nothing Environments" (Krish and others, IEEE Big Data 2013) takes the disks
//! of a few nodes and puts them, or fewer, into one *localized storage node* (LSN) that the nodes share. Whether jobs
//! suffer depends on the disks of the LSN, on its link, and on the job. The paper simulates that with MRPerf; this crate
//! is such a simulator, the paper's ten applications and four settings, and the question that the paper calls a
//! "practical control knob": the cheapest LSN that keeps a workload within so many per cent.
//!
//! **What is simulated.** Nodes in sub-racks, each with cores, a link each way and disks; LSNs with a link and an array
//! of disks over which data is striped; heartbeats, slots, tasks that are sent to their data; maps that read, work,
//! sort, spill and merge; reducers that fetch from five nodes at a time, merge, sort, work and write; file blocks in
//! pipelines of several copies. Bytes and cycles are *flows* through the resources that they use, and at each moment
//! all rates are max-min fair. Disks lose time to seeks as soon as two streams want them.
//!
//! **What is not.** No failures, no speculative tasks, no page cache, no protocol: a flow is never lost or resent. One
//! job runs at a time.
//!
//! **What never happens here.** No clock, no thread, no file, no randomness that does not follow from the seed: a case
//! gives the same answer everywhere and always. Who has threads gives a [`measure::Runner`].
//!
//! **Parameters that the paper leaves open** (disk rates, seeks, cost of a byte) are chosen once, with their source
//! beside them, in [`cluster::Hardware`] and [`app`], and are the same for every figure: [`claims`] holds all figures
//! against them.
//!
//! Reading order: [`engine`] (time and flows), `queue` and `fill` (fair rates), [`cluster`] and [`app`] (what can be said),
//! [`site`] (a cluster as resources), `program` (a task as steps), `tracker`, [`layout`] and `reducer`, then [`job`]
//! which puts them together. On top of it: [`measure`] (many runs), [`study`] (the paper's settings), [`claims`],
//! [`sizing`] (the knob), [`readback`] (DiskReduce's reading experiment). `oracle/` checks the engine against SimGrid.
#![forbid(unsafe_code)]

pub mod app;
pub mod claims;
pub mod cluster;
pub mod engine;
mod fill;
pub mod job;
pub mod layout;
pub mod measure;
pub mod oracle;
mod program;
mod queue;
mod random;

pub mod readback;
mod reducer;
pub mod site;
pub mod sizing;
pub mod study;
mod tracker;

pub use app::App;
pub use cluster::{Cluster, DiskModel, Hardware, Placement};
pub use job::{JobOptions, JobReport, run};
pub use study::Study;
