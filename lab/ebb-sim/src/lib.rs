//! A simulator of MapReduce on shared storage nodes: a cluster as flows over disks, links and cores.
//!
//! **What never happens here.** The crate uses no clock, thread or file, and no randomness except from the seed. A case
//! gives the same answer everywhere and always. A caller that has threads passes a [`measure::Runner`].
//!
//! "On the Use of Shared Storage in Shared-Nothing Environments" (Krish and others, IEEE Big Data 2013) takes the disks
//! of a few nodes. It puts them, or fewer, into one *localized storage node* (LSN) that the nodes share. The effect on
//! jobs depends on the disks of the LSN, on its link, and on the job. The paper simulates this with MRPerf. This crate
//! has:
//! - such a simulator;
//! - the paper's ten applications and four settings;
//! - an answer to the question that the paper calls a "practical control knob": the cheapest LSN that keeps a workload
//!   within a given slowdown in per cent.
//!
//! **What is simulated.**
//! - nodes in sub-racks, each with cores, a link in each direction, and disks;
//! - LSNs with a link and an array of disks over which data are striped;
//! - heartbeats, slots, and tasks that are sent to their data;
//! - maps that read, work, sort, spill and merge;
//! - reducers that fetch from up to five nodes at a time, merge, sort, work and write;
//! - file blocks in pipelines of several copies.
//!
//! Bytes and cycles are *flows* through the resources that they use. At each moment all rates are max-min fair. A disk
//! loses time to seeks as soon as two streams use it.
//!
//! **What is not simulated.** There are no failures, no speculative tasks and no page cache. There is no protocol: a
//! flow is never lost or resent. One job runs at a time.
//!
//! **Parameters that the paper leaves open** (disk rates, seeks, cost of a byte) are chosen once, in
//! [`cluster::Hardware`] and [`app`], with their source beside them. They are the same for every figure, and [`claims`]
//! compares all figures with them.
//!
//! Reading order: [`engine`] (time and flows), `queue` and `fill` (fair rates), [`cluster`] and [`app`] (the input),
//! [`site`] (a cluster as resources), `program` (a task as steps), `tracker`, [`layout`] and `reducer`, then [`job`],
//! which combines them. On top of it: [`measure`] (many runs), [`study`] (the paper's settings), [`claims`], [`sizing`]
//! (the knob), [`measured`] (its input from a running cluster's counters), [`readback`] (DiskReduce's reading experiment). `oracle/` checks the engine against SimGrid.
#![forbid(unsafe_code)]

pub mod app;
pub mod claims;
pub mod cluster;
pub mod engine;
mod fill;
pub mod job;
pub mod layout;
pub mod measure;
pub mod measured;
pub mod oracle;
pub mod program;
mod queue;
pub mod random;

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
