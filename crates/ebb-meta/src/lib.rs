//! The namespace as a deterministic state machine: `apply(command) -> reply and effects`.
//!
//! [`Machine`] is all that the masters agree on: inodes, names, attributes, ACLs, the metablock map, sets, write leases
//! and epochs, recoveries, sessions with their replies, locks, nodes and volumes, datasets, and the queue of deletes.
//! A command carries everything that is not state (time, placement, who is alive): the leader decided it before it
//! proposed the command, so that every master that applies the same commands is in the same state and has given the
//! same replies. [`Machine::digest`] tells whether that is so.
//!
//! This crate never does I/O, never reads a clock, never draws a random number and never panics on a command, however
//! malformed. It knows nothing of Raft, of connections, of read leases, of liveness or of free space: those are the
//! leader's, in `ebb-master`.
//!
//! A command either is refused and changes nothing (beyond the reply that is kept for its repetition), or is done
//! whole: each operation checks first and changes then. POSIX is followed as Linux with ext4 has it, to the order in
//! which errors win; comments name the place in Linux where a rule is not obvious. Path search permission is the
//! kernel's to check on mounts; here every change checks write and search permission of the directory it changes,
//! ownership where that is asked for, and the sticky bit; `Resolve` checks search permission along the path.
//!
//! Cloning a machine takes constant time: all tables are persistent maps of shared nodes. A checkpoint is written from
//! a clone while service goes on.
//!
//! Rules of our own:
//! - A request id is used up by its answer, good or bad: a repetition gets the same answer, a new attempt needs a new id.
//! - A write lease is given once for each epoch: taking it again by its holder changes nothing.
//! - Rename and link across datasets are refused (`CrossDevice`), as between project quotas: the layout of a file is
//!   that of the dataset that it was created in.
//! - An inode without names stays until `Reap`, whatever its kind.
//!
//! Reading order: [`outcome`], [`machine`], `inode`, `dir`, `tree`, `permission`, `acl`, then `ops/` one operation at a
//! time; `map`, `replicas`, `extras`, `lineage`, `lease`, `recovery`, `locks`, `waits`; `session`, `registry`, `dataset`; `query`, `resolve`,
//! `views`; `checkpoint`, `check`.
#![forbid(unsafe_code)]

mod acl;
mod check;
mod checkpoint;
mod dataset;
mod dir;
mod extras;
mod inode;
mod known;
mod lease;
mod lineage;
mod locks;
pub mod machine;
mod map;
mod ops;
pub mod outcome;
mod paths;
mod permission;
mod power;
mod query;
mod recovery;
mod registry;
mod replicas;
mod resolve;
mod session;
mod tree;
mod views;
mod waits;
mod xattr;

#[cfg(test)]
mod tests;

pub use checkpoint::{CHECKPOINT_FORMAT, Names, Rest};
pub use known::decode_known;
pub use lineage::{EPOCH_STEP_MAX, SESSION_DRAWN_MIN, Told};
pub use machine::Machine;
pub use outcome::{Applied, Counts, Effect, Reply};
pub use paths::Named;
pub use permission::{EXECUTE, READ, WRITE};
pub use query::{METABLOCKS_PER_REPLY, READ_DIR_LIMIT_MAX};
pub use session::REQUEST_WINDOW;
