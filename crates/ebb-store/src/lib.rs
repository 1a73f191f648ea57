//! Replicas of metablocks on one volume: bytes, chunk sums, versions and promises, all of which survive a crash.
//!
//! What this crate never does:
//! - use the network;
//! - decide which nodes are members of a set;
//! - serve bytes that are not synced;
//! - serve bytes that it knows to be damaged;
//! - continue after a failed sync: the volume is then poisoned until the process starts again.
//!
//! A [`Volume`] is a directory (`docs/formats/`).
//! - *Small writes and overwrites* go to the volume's journal first. So a synced write costs one fdatasync and is never
//!   torn.
//! - *Long writes of whole chunks* go straight to the file: beyond the replica's end, or to a free place beside the old
//!   bytes. Only their sums and places go to the journal.
//! - *Group commit.* One task commits for all writers together.
//!
//! All I/O goes through `ebb_runtime`. So the same code runs on a virtual disk, which loses at a crash all that was not
//! synced.
//!
//! Reading order:
//! - `record` (what can happen to a replica), `state` (the effect on sums and lengths), `plan` (from a write to a
//!   record);
//! - `replica` (received and synced), `write`, `flush` (group commit), `read`, `short_circuit` (descriptors for readers on the
//!   host);
//! - `checkpoint`, `recover` and `replay` (start), `extents` (contents merged);
//! - then `admin`, `pull`, `scrub`, `housekeeping`, `compress` (frozen replicas, by the file system), `notice` (log messages about a
//!   full disk), `tombstones` (records of deleted ids).
//!
//! The formats are in `label`, `batch`, `journal`, `index`.
#![forbid(unsafe_code)]

mod admin;
mod batch;
mod checkpoint;
mod chunks;
mod codec;
mod compress;
mod crc;
mod extents;
mod files;
mod flush;
#[doc(hidden)]
pub mod fuzz;
mod housekeeping;
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
mod removed;
mod replay;
mod replica;
mod scrub;
mod short_circuit;
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
pub use read::{Found, Purpose, ReadChunks, ReadData};
pub use scrub::ScrubOutcome;
pub use short_circuit::{Reader, ShortCircuitReplica};
pub use volume::{Volume, VolumeOptions};
pub use write::{Progress, Write};
