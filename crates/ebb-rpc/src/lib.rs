//! Calls between Ebb's processes.
//!
//! One framed TCP protocol for control and data (see `ebb_wire::frame`). A [`Connector`] keeps one connection to each
//! peer and multiplexes calls on it; a [`Server`] hands requests to a [`Service`]. Every call has a deadline; a peer
//! proves the cluster secret before anything is allocated for it; memory for requests in progress is bounded.

mod connector;
mod counters;
mod identity;
mod server;

pub use connector::{Channel, Connector, Response};
pub use counters::{Counters, Traffic};
pub use identity::{Identity, PeerInfo, Secret};
pub use server::{Answer, Payload, Request, Server, ServerOptions, Service, ServiceFuture};
