//! What the master keeps on its disk: identity, write-ahead log, checkpoints.
//!
//! The raft log is the only log. Its format is in `docs/formats/master-log.md`, the checkpoints' in
//! `docs/formats/checkpoint.md`. Reading order: [`record`] (bytes of one record), [`segment`] (one file, and what a
//! damaged one means), [`wal`] (the sequence of files), [`hint`] (up to where it was synced), `tail` (what lies behind that, at a start),
//! [`memory`] (raft's view), [`checkpoint`], [`data_dir`].

pub mod checkpoint;
pub mod data_dir;
#[doc(hidden)]
pub mod fuzz;
pub mod hint;
pub mod memory;
pub mod record;
pub mod segment;
mod tail;
pub mod wal;

#[cfg(test)]
mod tests;

pub use checkpoint::{Checkpoint, CheckpointWriter};
pub use data_dir::DataDir;
pub use memory::LogMemory;
pub use wal::{Batch, Recovered, Wal, WalOptions};

/// Advice for putting a saved copy of the data directory in place.
pub(crate) const OLDER: &str =
    "one that is older than what nodes have seen is refused, and `ebb master accept-loss` goes on with it";
