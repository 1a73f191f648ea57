//! The namespace as a deterministic state machine: `apply(command) -> reply and effects`.
//!
//! This crate never does I/O, reads a clock or draws a random number. It never panics on a command, however malformed.
//! Raft, connections, read leases, liveness and free space are the leader's, in `ebb-master`.
//!
//! [`Machine`] is the state that all masters agree on:
//! - inodes, names, attributes, ACLs and datasets;
//! - the metablock map and sets;
//! - write leases, epochs and recoveries;
//! - sessions with their replies, and locks;
//! - nodes and volumes;
//! - the queue of deletes.
//!
//! A command carries everything that is not state: the time, the placement, which nodes and sessions are alive. The
//! leader decides these before it proposes the command. So masters that apply the same commands have the same state and
//! give the same replies. [`Machine::digest`] shows whether they do.
//!
//! A command is either refused or executed whole. A refused command changes nothing beyond the reply that is kept for
//! its repetition. Each operation checks first and changes then.
//!
//! POSIX is followed as Linux with ext4 implements it, including the order in which errors take precedence. Where a
//! rule is not obvious, a comment cites the place in Linux. On mounts, the kernel checks path search permission. Each
//! change checks here:
//! - write and search permission of the directory that it changes;
//! - ownership, where the operation requires it;
//! - the sticky bit.
//!
//! `Resolve` checks search permission along the path.
//!
//! Cloning a machine takes constant time: all tables are persistent maps of shared nodes. A checkpoint is written from
//! a clone while service continues.
//!
//! Rules of Ebb's own:
//! - A request id is used up by its answer, good or bad. A repetition gets the same answer. A new attempt needs a new
//!   id.
//! - A write lease is granted once for each epoch. If its holder takes it again, nothing changes.
//! - Rename and link across datasets are refused (`CrossDevice`), as between project quotas. A file has the layout of
//!   the dataset in which it was created.
//! - An inode without names stays until `Reap`, whatever its kind.
//!
//! Reading order: [`outcome`], [`machine`], `inode`, `dir`, `tree`, `permission`, `acl`, then `ops/` one operation at a
//! time; `map`, `replicas`, `extras`, `lineage`, `lease`, `recovery`, `locks`, `waits`; `session`, `registry`, `removal`,
//! `dataset`, `trash`; `raid`; `snapshot`; `query`, `resolve`, `views`; `checkpoint`, `check`, `touched`.
#![forbid(unsafe_code)]

mod acl;
mod check;
mod checkpoint;
mod dataset;
mod dir;
mod extras;
mod felled;
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
mod raid;
mod recovery;
mod registry;
mod removal;
mod replicas;
mod resolve;
mod rights;
mod session;
mod snapshot;
mod summary;
mod touched;
mod trash;
mod tree;
pub mod trust;
pub mod version;
mod views;
mod waits;
mod xattr;

#[cfg(test)]
mod tests;

pub use checkpoint::{CHECKPOINT_FORMAT, Names, Remainder};
pub use known::decode_known;
pub use lineage::{EPOCH_STEP_MAX, PositionVerdict, SESSION_DRAWN_MIN};
pub use machine::Machine;
pub use outcome::{Applied, Counts, Effect, Reply};
pub use paths::Named;
pub use permission::{EXECUTE, READ, WRITE};
pub use query::{METABLOCKS_PER_REPLY, READ_DIR_LIMIT_MAX};
pub use raid::cold::{Cold, Due};
pub use raid::tally::RaidTally;
pub use session::REQUEST_WINDOW;
pub use trash::ExpiredName;
