//! One state of everything.

use crate::names::{CLIENTS, ClientName, Epoch};
use crate::sharing::client::Client;
use crate::sharing::history::History;
use crate::sharing::message::{Network, Seat};
use crate::sharing::proxy::Proxy;
use crate::sharing::store::Store;

/// A holder of the write lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Holder {
    /// A client.
    Client(ClientName),
    /// This process of the proxy.
    Proxy(u8),
}

/// The record of the master.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Master {
    /// Of the file.
    pub epoch: Epoch,
    /// The holder of the write lease.
    pub holder: Option<Holder>,
}

/// All processes, the network, the true history, and the used part of the bounds.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct State {
    /// The members.
    pub store: Store,
    /// The master.
    pub master: Master,
    /// The proxy.
    pub proxy: Proxy,
    /// By client.
    pub clients: [Client; CLIENTS],
    /// The messages that were sent.
    pub network: Network,
    /// Stays that a client may have heard of: an answer to a join comes late, too.
    pub seats: Vec<Seat>,
    /// The history.
    pub history: History,
    /// Calls of fsync.
    pub syncs: u8,
    /// Reads.
    pub reads: u8,
    /// Losses of power.
    pub power_cuts: u8,
}
