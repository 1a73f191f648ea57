//! The proxy: one lease holder for files that several clients write, and a relay between nodes that are never awake
//! together.
//!
//! What it never does:
//! - decide that a file is shared: the master does;
//! - keep state that it would miss after a crash;
//! - answer under a lease that it may have lost;
//! - wait or grow without a bound.
//!
//! **Shared files.** A lease that alternates between two writers costs a recall, a sync and two entries of the master's
//! log for each turn. So the master refers sessions that take turns to a proxy. The proxy is a client like any other,
//! with a session of its own. It takes the write lease of such a file and orders the operations on it. It gives the
//! lease back when, for a while, at most one client has used the file. Clients send it single operations and cache
//! nothing.
//!
//! Promises for each operation:
//! - **Once.** It is executed once, however often it is sent ([`results`]).
//! - **Epoch.** It is executed only under the **epoch** that the client received when it joined. A request that arrives
//!   late, after the file was elsewhere, changes nothing.
//! - **Session.** It is executed only while its client's **session lives** ([`sessions`]).
//! - **Survival.** A write is answered when **every member has received it**, so that it survives the proxy.
//! - **Atomic reads.** A read returns all of a write or nothing of it ([`ranges`]).
//! - **Monotonic reads.** Before a client reads another client's write, that write **is synced** ([`unsynced`]). So
//!   reads never go back, even if the proxy and a member's power fail together.
//!
//! **Relay.** A node that blinks may never be awake together with the nodes that call its block server. The proxy holds
//! such calls ([`holds`], `relay`). It carries a call out when the server's node wakes, and answers when the caller's
//! node wakes. Replicas that the master copies between nodes that are never awake together are kept here on the way
//! (`stopover`).
//!
//! **One proxy or several.** A cluster's only proxy runs in the master's process. It exchanges messages with the master
//! like a remote one, except for one question: whether a session lives. Several proxies are separate processes, and a
//! hash of a file's id assigns the file to one of them. The master vouches to them in advance for live sessions, with a
//! time for which this holds whatever happens ([`beliefs`]).
//!
//! Reading order:
//! - [`options`], [`requests`], [`beliefs`], [`sessions`];
//! - the pure parts: [`results`], [`ranges`], [`uses`], [`unsynced`], [`unheard`], [`tickets`] (direct writes in
//!   transit);
//! - `file`, `files` (which files are held), `ended` (files given back), `carry` (operations);
//! - [`holds`], `relay`;
//! - `stopover`;
//! - `front` (which part answers a call), [`proxy`] (start and stop), [`hosted`] (the proxy in the master's process).
#![forbid(unsafe_code)]

pub mod beliefs;
mod carry;
mod ended;
mod file;
mod files;
mod front;
pub mod holds;
pub mod hosted;
pub mod options;
pub mod proxy;
pub mod ranges;
mod relay;
pub mod requests;
pub mod results;
pub mod sessions;
mod stopover;
#[cfg(test)]
mod tests;
pub mod tickets;
pub mod unheard;
pub mod unsynced;
pub mod uses;

pub use hosted::Hosted;
pub use options::ProxyOptions;
pub use proxy::Proxy;
pub use sessions::Sessions;
