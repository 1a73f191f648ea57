//! Replicas of metablocks on one volume: bytes, chunk sums, versions, promises, and all of it still there after a crash.
//!
//! A [`Volume`] is a directory (`docs/formats/`). Small writes and overwrites go to its journal first, so that a synced
//! one costs a single fdatasync and never tears; long writes of whole chunks go straight to the file, beyond a replica's
//! end or to a free place beside the old bytes, and only their sums and places to the journal. One task commits for all writers at once. Everything is done through
//! `ebb_runtime`, so the same code runs on a disk that loses at a crash whatever was not synced.
//!
//! It never talks to the network, never decides who is a member of a set, never serves what is not synced, never
//! serves bytes that it knows to be damaged, and never goes on after a failed sync: the volume is then poisoned until
//! the process starts again.
//!
//! Reading order: `record` (what can happen to a replica), `state` (what that means for sums and
//! lengths), `plan` (from a write to a record), `replica` (received and synced), `write`, `flush` (group commit),
//! `read`, `share` (descriptors for
//! readers of the host), `checkpoint`, `recover` and `replay` (start), `extents` (contents merged), then `admin`, `pull`, `scrub`,
//! `rest`, `notice` (what is said of a full disk), `tombstones` (what is remembered of the deleted). The formats are in `label`, `batch`, `journal`, `index`.
#![forbid(unsafe_code)]

mod admin;
mod batch;
mod checkpoint;
mod chunks;
mod codec;
mod crc;
mod extents;
mod files;
mod flush;
#[doc(hidden)]
pub mod fuzz;
mod index;
mod journal;
mod label;
mod latency;
mod notice;
mod overlay;
mod plan;
mod pull;
mod read;
mod record;
mod recover;
mod replay;
mod replica;
mod rest;
mod scrub;
mod share;
mod space;
mod state;
mod tombstones;
mod volume;
mod write;

#[cfg(test)]
mod tests;

pub use admin::{Deletion, Description, ReplicaSummary, ReplicaVersion};
pub use label::Label;
pub use plan::Change;
pub use pull::{Pull, PullFuture, PullSource, SourceChunks};
pub use read::{Found, ReadChunks, ReadData};
pub use scrub::ScrubOutcome;
pub use share::{Reader, SharedReplica};
pub use volume::{Volume, VolumeOptions};
pub use write::{Progress, Write};
