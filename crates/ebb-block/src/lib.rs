//! The block server: it serves the replicas on this node's volumes to clients, other nodes and the master.
//!
//! `ebb_store` defines what a replica is and how it survives a crash. This crate makes replicas reachable on the
//! network.
//!
//! What a block server does:
//! - It registers with the master, reports its replicas and sends heartbeats.
//! - It takes versioned writes, and forwards them along the pipeline while it writes them itself.
//! - It serves synced chunks with the writers' checksums.
//! - It carries out the requests of recovery and repair.
//!
//! What it never does:
//! - decide on sets, versions or leases;
//! - answer for another member;
//! - retry a write on its own. If a hop of the pipeline fails, it reports the failure to the lease holder.
//!
//! Reading order:
//! - [`service`]: start, service and stop of a server;
//! - `node`: the state that its parts share;
//! - `handle`: from a request to an answer;
//! - `pipeline`: pipelined writes;
//! - `staging` and `direct`: the bytes of direct writes, which arrive before their write;
//! - `source`: copies from other nodes;
//! - `short_circuit`: file descriptors for clients of the same host;
//! - `register`: registration and heartbeats, the master's view of this node;
//! - `report`: the list of all replicas on the volumes;
//! - `identity`: the file that stores the node's id;
//! - `patrol`: scrubbing in the background.
#![forbid(unsafe_code)]

mod damage;
mod direct;
mod disks;
mod excuse;
mod feed;
#[doc(hidden)]
pub mod fuzz;
mod handle;
mod handoff;
mod identity;
mod node;
mod patrol;
mod pipeline;
mod raid;
mod read_queue;
mod register;
mod report;
mod rest;
mod seen;
pub mod service;
mod short_circuit;
mod source;
mod staging;
mod witness;

#[cfg(test)]
mod tests;

pub use patrol::PatrolOptions;
pub use service::{BlockOptions, BlockServer};
