//! The proxy: one lease holder for files that several clients write.
//!
//! A lease that goes back and forth between two writers costs a recall, a sync and two entries of the master's log for
//! each turn. So the master sends those who take turns to a proxy. It is a client like any other, with a session of its
//! own: it takes the write lease of such a file, orders what is done to it, and gives the lease back when for a while
//! no more than one client has used the file. Clients send it single operations and keep nothing.
//!
//! What is promised for each operation:
//! - it is carried out **once**, however often it is sent ([`results`]);
//! - it is carried out under the **epoch** that the client was told when it joined, or not at all: a request that comes
//!   late, when the file has been somewhere else, changes nothing;
//! - it is carried out while its client's **session lives**, or not at all ([`sessions`]);
//! - a write is answered when **every member has received it**, so that it survives the proxy;
//! - a read is whole: it meets all of a write or nothing of it ([`ranges`]);
//! - what a client reads of another one's writes **is synced** before it is told ([`unsynced`]): reads never go back,
//!   even if the proxy and a member's power fail together.
//!
//! The other half of it holds calls to block servers that are never awake when their callers are, on nodes that blink
//! too ([`holds`], `relay`): one is carried out when its node wakes, and answered when its caller does. Replicas that the master
//! has copied between nodes that are never awake together stop over here (`stopover`).
//!
//! What the proxy never does: decide that a file is shared (the master does), keep anything that it would miss after a
//! crash, answer for a lease that it may have lost, wait or grow without a bound.
//!
//! The only proxy of a cluster lives in the master's process and talks to it by messages, but for one question, whether a
//! session lives. Several are processes of their own, and files are dealt to them by a hash of their ids; they are told
//! beforehand which sessions live, and for how long that is so whatever happens ([`beliefs`]).
//!
//! Reading order: [`options`], [`beliefs`], [`sessions`]; the plain parts [`results`], [`ranges`], [`uses`], [`unsynced`], [`unheard`],
//! [`tickets`] (direct writes on their way); `file`, `files` (which
//! files are held), `ended` (stays that are over), `carry` (operations); [`holds`], `relay`; `stopover`; `front` (who answers), [`proxy`] (start and stop), [`hosted`] (in the
//! master's process).
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
