//! The master: raft, leases, recovery and repair around the namespace.
//!
//! A master is a deterministic state machine (`ebb_meta::Machine`) behind a replicated log, and services around it
//! that decide what the log does not: who must give a lease back, where replicas go, when a node counts as dead. The
//! group has one member now, but nothing skips the log: a change is proposed, appended, synced, committed, applied,
//! and only then answered or seen by a reader.
//!
//! State is of two kinds. What must survive goes through the log: namespace, map, write leases, sessions with their
//! last replies, nodes. What can be found out again is soft and dies with the process: read leases and open handles
//! (sessions reclaim them), liveness and damage (nodes report it), queues of work.
//!
//! What this crate never does: answer from state that is not on stable storage; grant a lease while another session
//! may hold one in its way; delete a replica before every volume has reported; wait without a bound; keep data.
//!
//! Deciders are plain state machines without clock or I/O, each with a thin shell:
//!
//! | decider | shell |
//! |---|---|
//! | [`leases`]: who may cache, who may write | `acquire` |
//! | [`leases::watches`]: who keeps names and attributes | `fence`, `keep` |
//! | [`leases::sharing`]: which files go to the proxy | `acquire` |
//! | [`sessions`]: who lives, what each has to be told | `poll`, `freshen` (sizes of files being written) |
//! | [`registry`]: nodes and volumes | `nodes`, `placement` |
//! | [`gray`]: which nodes are slow beyond their peers | `gray::run`, `placement` |
//! | [`reserve`]: room promised to writers | `room` |
//! | `ebb_layout`, `ebb_power::chain`: where copies go, which chain a dataset gets | `placement`, `chains` |
//! | [`recovery`]: what members' answers mean | `recovery::run` |
//! | `ebb_power::Timetable`: which node sleeps when | `power` |
//! | [`served`]: bytes that programs were served | `poll`, `power` |
//! | [`popular`]: what is read often | `poll` |
//! | [`copies`]: the next step for a set, whatever the reason | `copies::reconciler`, `copies::executor` |
//! | [`failures`]: what a failed node has cost, and how far the cluster is over it | `failures::run` |
//! | [`fewer`]: with how few copies a set goes on; [`parted`]: which nodes are not brought back at once | `placement`, `admin` |
//! | [`shortage`]: why a set is short | `admin`, `fsck` |
//! | [`fsck`]: what a set is found to be | `fsck`, `describe`, `admin` |
//!
//! Reading order: [`log`] (what is on disk), [`group`] (the raft task), `soft` (the one owner of what is not logged), `view`
//! (what decisions go by), the deciders, then [`service`] (which handler answers which call) and `upkeep` (what time brings).
#![forbid(unsafe_code)]

pub mod accept;
mod acquire;
mod admin;
mod chains;
pub mod copies;
mod deletes;
mod describe;
mod doubt;
pub mod failures;
mod fence;
pub mod fewer;
mod freshen;
pub mod fsck;
pub mod gray;
pub mod group;
pub mod handoff;
mod holdings;
mod keep;
pub mod leases;
pub mod log;
mod nameless;
mod namespace;
mod nodes;
pub mod options;
pub mod parted;
mod patience;
mod placement;
mod poll;
pub mod popular;
mod power;
pub mod recovery;
pub mod registry;
pub mod reserve;
mod room;
pub mod served;
pub mod service;
pub mod sessions;
mod shared;
pub mod shortage;
mod soft;
mod standing;
#[cfg(test)]
mod tests;
mod twins;
mod upkeep;
mod view;
pub mod vigil;
mod vouched;
mod waker;
pub mod work;

pub use ebb_layout::OverloadRule;
pub use options::Options;
pub use service::Master;
