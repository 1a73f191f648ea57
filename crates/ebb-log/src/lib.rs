//! The common parts of Ebb's three write-ahead logs.
//!
//! The master's log, a volume's journal and the handoff log keep different records. They make the same promise: a
//! record that was acknowledged is there after any crash, and a record that is lost later is missed, with file and
//! offset. This crate has the parts of that promise. A log adds its records, and decides when a segment may go.
//!
//! What never happens here: a decision on the meaning of a record, a file that a log did not ask for, a repair.
//!
//! | part | meaning |
//! |---|---|
//! | [`frame`] | the shape of a record on disk: where its checksum is, where the next one begins, which batch it belongs to |
//! | [`end`] | state of a log at the place of the next frame: free, torn by a crash, or damaged |
//! | [`search`] | frames behind damage, at a bounded price however the bytes look |
//! | [`sums`] | checksums of any part of some bytes |
//! | [`names`] | the files of a log, by number |
//! | [`make`] | segments with durable space and a durable name |
//! | [`appender`] | the end of the newest segment: one write and one sync for each batch |
//! | [`group`] | group commit: one batch for all callers that wait |
//!
//! # Torn or damaged
//! A batch is written only when the batch before it is synced. So a crash can tear the last batch only. Where a valid
//! frame of a later batch lies behind bytes that are none, these bytes had been synced, and are damaged. Without one
//! behind them, they are a torn end, and their batch was never acknowledged. Damage to the very last batch looks like a
//! torn end. Each log has a proof of its own against that: the master's hint, a volume's seal, the handoff log's doubt.
#![forbid(unsafe_code)]

pub mod appender;
pub mod end;
pub mod frame;
pub mod group;
pub mod make;
pub mod names;
pub mod search;
pub mod sums;

pub use appender::{Appender, Sync};
pub use end::{End, find_end};
pub use frame::{Frame, Framing, whole_frame};
pub use group::{GroupCommit, Lead, Sequence};
pub use names::Names;
pub use search::Search;
pub use sums::{PartSums, sum_of_parts};
