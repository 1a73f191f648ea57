//! The block server: replicas on this node's volumes, served to clients, other nodes and the master.
//!
//! It registers with the master, reports what it has and sends heartbeats; it takes versioned writes and forwards them
//! along the pipeline while it writes them itself; it serves synced chunks with the writers' checksums; it carries out
//! what recovery and repair ask for. What a replica is and how it survives is `ebb_store`'s business; here it gets its
//! address.
//!
//! It never decides on sets, versions or leases, never answers for another member, and never retries a write of its
//! own accord: a hop that fails is a result for the holder.
//!
//! Reading order: [`service`] (life of a server), `node` (what its parts share), `handle` (from a request to an
//! answer), `chain` (pipelined writes), `staging` and `direct` (bytes that come before their write), `source` (copies from other nodes), `share` (descriptors for clients of the
//! host), `register` (the master's view), `report` (all that the volumes have), `identity` (the file that remembers the
//! node's id), `patrol` (scrubbing in the background).
#![forbid(unsafe_code)]

mod chain;
mod direct;
mod excuse;
#[doc(hidden)]
pub mod fuzz;
mod handle;
mod handoff;
mod identity;
mod node;
mod patrol;
mod register;
mod report;
mod rest;
mod seen;
pub mod service;
mod share;
mod source;
mod staging;
mod witness;

#[cfg(test)]
mod tests;

pub use patrol::PatrolOptions;
pub use service::{BlockOptions, BlockServer};
