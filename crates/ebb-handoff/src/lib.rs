//! The handoff log: writes that sleeping members have not got yet, on the disks of nodes that are awake.
//!
//! A lease holder keeps every write until all members have synced it, and sends it to each when it wakes. That takes up to
//! an interval, and `fsync` cannot wait so long. So the holder has such writes **logged** on as many nodes as the file has
//! copies, the always-on one among them, and `fsync` returns. The log is read only when the holder dies: recovery has the
//! members make up for what they lack from it, before it looks which of them has most. As long as the holder lives it
//! sends what it has in memory, and a log is only ever written.
//!
//! What is promised:
//! - what [`HandoffLog::append`] has returned for **is synced**, and is there after any crash;
//! - after [`HandoffLog::read`] of a file under an epoch, nothing of a **lower epoch** is taken for that file, also after a
//!   crash: a holder that lost its lease cannot have anything logged that recovery has not seen;
//! - what is **missing is known**: a log that was lost, or is damaged anywhere, says so, by file and place, until nobody
//!   needs what it held;
//! - the log is **bounded**: when it is full, writers are refused, and wait for the members as without it.
//!
//! What never happens here: a read for a client, a decision who logs where, a write to a replica.
//!
//! Reading order: [`book`] (what is in the log, pure), `record` (its byte form), [`found`] (what an earlier process left),
//! [`log`] (on a disk).
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
