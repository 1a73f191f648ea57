//! The handoff log: writes that sleeping members have not got yet, on the disks of nodes that are awake.
//!
//! What never happens here: a read for a client, a decision on which nodes log, a write to a replica.
//!
//! A lease holder keeps every write until all members have synced it, and sends it to each member when the member
//! wakes. That takes up to one interval, and `fsync` cannot wait so long. So the holder has such writes **logged** on
//! as many nodes as the file has copies, and on at least two. The always-on node is one of them. Then `fsync` returns.
//!
//! While the holder lives, it sends the writes from its memory, and logs are only written. A log is read only when the
//! holder dies. Recovery then brings the members up to date from the log, before it compares which member has most.
//!
//! Promises:
//! - **Durability.** What [`HandoffLog::append`] has returned for is synced, and survives any crash.
//! - **Fencing.** After [`HandoffLog::read`] of a file under an epoch, the log refuses writes of a **lower epoch** to
//!   that file, also after a crash. A holder that has lost its lease cannot log a write that recovery has not seen.
//! - **Detection of loss.** A log that was lost, or is damaged anywhere, reports it with file and offset. It does so
//!   until its content is no longer needed.
//! - **Group commit.** Writes that wait for a sync go with the next one, together. The log of the always-on node serves
//!   all holders, and would otherwise sync for one after the other.
//! - **Bound.** A full log refuses writers. They then wait for the members, as they would without a log.
//!
//! Reading order: [`book`] (the contents of a log, pure), `record` (the byte form), [`found`] (the log of an earlier
//! process), [`log`] (the log on a disk).
#![forbid(unsafe_code)]

pub mod book;
pub mod found;
#[doc(hidden)]
pub mod fuzz;
pub mod log;
mod record;

pub use book::{Book, Logged};
pub use found::Doubt;
pub use log::HandoffLog;
pub use record::split;
