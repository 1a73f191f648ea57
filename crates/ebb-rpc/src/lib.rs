//! Calls between Ebb's processes.
//!
//! What this crate never does:
//! - send a request again that may have been executed: only the caller knows whether that is safe;
//! - interpret a message;
//! - retry on another peer.
//!
//! Control and data use one framed TCP protocol (see `ebb_wire::frame`). A [`Connector`] keeps a few connections to
//! each peer and multiplexes calls on them. A [`Server`] hands requests to a [`Service`].
//! - Every call has a deadline.
//! - A peer proves itself with a certificate of the cluster before the server reads a request of it.
//! - A call is made and answered by the roles that `ebb_wire::method` names, and by no others.
//! - Memory for requests in progress is bounded, and each peer has a share of it.
//! - Payloads are read into buffers of their own, and written without a copy.
//!
//! Reading order: `identity`, `tls` and `handshake` (authentication), `reader` and `writer` (frames), `pending`, `connection`,
//! `departure`, `lane` and [`Connector`] (the caller's side), `fair`, `budget` and `pace` (the limits for each peer), `served`,
//! `reply`, [`Caller`] and [`Server`] (the server's side), [`Counters`], [`attend`] (staying a trusted part of the cluster).
#![forbid(unsafe_code)]

mod attendance;
mod budget;
mod caller;
mod connection;
mod connector;
mod counters;
mod departure;
mod fair;
mod handshake;
mod identity;
mod lane;
mod outbox;
mod pace;
mod pending;
mod reader;
mod reply;
mod served;
mod server;
pub mod testing;
#[cfg(test)]
mod tests;
mod tls;
mod writer;

pub use attendance::{ANNOUNCE_EVERY, SPENT, announce, attend, revocation, revocations};
pub use caller::Caller;
pub use connector::{Channel, Connector, Response, SMALL_CALL_MAX};
pub use counters::{Counters, Traffic};
pub use departure::Departure;
pub use handshake::{OLDEST_PROTOCOL, PROTOCOL};
pub use identity::{Identity, LIFETIME, PeerInfo, Proof};
pub use server::{Answer, DRAIN_MAX, Payload, Request, Server, ServerOptions, Service, ServiceFuture};
