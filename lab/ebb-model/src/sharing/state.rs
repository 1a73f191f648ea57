//! One state of everything.

use crate::names::{CLIENTS, ClientName, Epoch};
use crate::sharing::client::Client;
use crate::sharing::history::History;
use crate::sharing::message::{Network, Seat};
use crate::sharing::proxy::Proxy;
use crate::sharing::store::Store;

/// Who has the write lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Holder {
    /// A client.
    Client(ClientName),
    /// This process of the proxy.
    Proxy(u8),
}

/// What the master has recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Master {
    /// Of the file.
    pub epoch: Epoch,
    /// Who has the write lease.
    pub holder: Option<Holder>,
}

/// All processes, the network, the true history, and what of the bounds is used up.
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
    /// What was sent.
    pub network: Network,
    /// Stays that a client may have been told of: an answer to a join comes late, too.
    pub seats: Vec<Seat>,
    /// What happened.
    pub history: History,
    /// Calls of fsync.
    pub syncs: u8,
    /// Reads.
    pub reads: u8,
    /// Losses of power.
    pub power_cuts: u8,
}
