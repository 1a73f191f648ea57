//! Calls between Ebb's processes.
//!
//! One framed TCP protocol for control and data (see `ebb_wire::frame`). A [`Connector`] keeps a few connections to
//! each peer and multiplexes calls on them; a [`Server`] hands requests to a [`Service`]. Every call has a deadline; a
//! peer proves the cluster secret before anything is allocated for it; memory for requests in progress is bounded,
//! and each peer has a share of it; payloads are read into buffers of their own and written from where they are.
//!
//! What it never does: send a request twice that may have been done (the caller knows whether that is safe), interpret
//! a message, retry on another peer.
//!
//! Reading order: `proof` and `handshake` (who is let in), `reader` and `writer` (frames), `pending`, `connection`,
//! `lane` and [`Connector`] (the caller's side), `fair`, `budget` and `pace` (what each peer may take), `served`, `reply` and
//! [`Server`] (the other one), [`Counters`].
#![forbid(unsafe_code)]

mod budget;
mod connection;
mod connector;
mod counters;
mod fair;
mod handshake;
mod identity;
mod lane;
mod outbox;
mod pace;
mod pending;
mod proof;
mod reader;
mod reply;
mod served;
mod server;
#[cfg(test)]
mod tests;
mod writer;

pub use connector::{Channel, Connector, Response, SMALL_CALL_MAX};
pub use counters::{Counters, Traffic};
pub use handshake::PROTOCOL;
pub use identity::{Identity, PeerInfo, Secret};
pub use server::{Answer, DRAIN_MAX, Payload, Request, Server, ServerOptions, Service, ServiceFuture};
