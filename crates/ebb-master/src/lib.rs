//! The master: raft, leases, recovery and repair around the namespace.
//!
//! What this crate never does:
//! - answer from state that is not on stable storage;
//! - grant a lease while another session may hold a conflicting one;
//! - delete a replica before every volume has reported;
//! - wait without a bound;
//! - store file data.
//!
//! A master is a deterministic state machine (`ebb_meta::Machine`) behind a replicated log. Services around the machine
//! decide what the log does not: which session must give a lease back, where replicas go, when a node counts as dead.
//! The raft group has one member now, but nothing bypasses the log. A change is proposed, appended, synced, committed
//! and applied. Only then is it answered or visible to a reader.
//!
//! State is of two kinds:
//! - *Logged state* must survive: namespace, map, write leases, sessions with their last replies, nodes.
//! - *Soft state* ends with the process, and is collected again by the next one: read leases and open handles (sessions
//!   reclaim them), liveness and damage (nodes report them), queues of work.
//!
//! Deciders are plain state machines without clock or I/O. Each has a thin shell:
//!
//! | decider | shell |
//! |---|---|
//! | [`leases`]: which sessions may cache, and which may write | `acquire` |
//! | [`leases::watches`]: which sessions cache names and attributes | `fence`, `keep` |
//! | [`leases::sharing`]: which files go to the proxy | `acquire` |
//! | [`sessions`]: which are alive, and the messages for each | `poll`, `freshen` (sizes of files being written) |
//! | [`registry`]: nodes and volumes | `nodes`, `placement` |
//! | [`gray`]: which nodes are slower than their peers | `gray::run`, `placement` |
//! | [`reserve`]: room reserved for writers | `room` |
//! | `ebb_layout`, `ebb_power::chain`: where copies go, which chain a dataset gets | `placement`, `chains` |
//! | [`recovery`]: what the members' answers mean | `recovery::run` |
//! | `ebb_power::Timetable`: which node sleeps when | `power` |
//! | [`served`]: count of the bytes that programs were served | `poll`, `power` |
//! | [`popular`]: which data are read often | `poll` |
//! | `ebb_power::allot`: which dataset each node serves alone | `poll`, `allotment` |
//! | [`copies`]: the next step for a set, whatever the reason | `copies::reconciler`, `copies::executor` |
//! | [`failures`]: the damage of a failed node, and how much of it is restored | `failures::run` |
//! | [`fewer`]: the fewest copies with which a set continues | `placement`, `admin` |
//! | [`parted`]: which nodes are not brought back into a file's sets at once | `placement`, `admin` |
//! | [`shortage`]: why a set is short | `admin`, `fsck` |
//! | [`fsck`]: the verdict on a set | `fsck`, `describe`, `admin` |
//!
//! Reading order: [`log`] (the files on disk), [`group`] (the raft task), `soft` (the single owner of the soft state),
//! `view` (the input of decisions), the deciders, then [`service`] (which handler answers which call) and `upkeep`
//! (periodic work).
#![forbid(unsafe_code)]

pub mod accept;
mod acquire;
mod admin;
mod admission;
mod allotment;
mod attendance;
mod caller;
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
mod joins;
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
mod raid;
mod reach;
pub mod recovery;
pub mod registry;
mod removal;
pub mod reserve;
mod rights;
mod room;
pub mod served;
pub mod service;
pub mod sessions;
mod shared;
pub mod shortage;
mod snapshots;
mod soft;
mod standing;
#[cfg(test)]
mod tests;
mod trash;
mod twins;
mod upkeep;
mod version;
mod view;
pub mod vigil;
mod vouched;
mod waker;
pub mod work;

pub use ebb_layout::OverloadRule;
pub use options::Options;
pub use service::Master;
