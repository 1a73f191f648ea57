//! Messages between clients and the proxy, and the network that loses, delays and repeats them.
//!
//! Questions to the master are answered at once here. The answer is old by the time that it is used, because anything
//! may happen in between.

use crate::names::{ClientName, Epoch};
use crate::sharing::log::Log;

/// The wish of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wish {
    /// To append this write.
    Write(u8),
    /// To have everything synced.
    Sync,
    /// To be shown the file.
    Read,
}

/// One stay of the file at the proxy: a process of it, and the epoch of its lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Seat {
    /// The proxy's process.
    pub boot: u8,
    /// Of its lease.
    pub epoch: Epoch,
}

/// `SharedOp`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Request {
    /// The client.
    pub client: ClientName,
    /// Which of its operations.
    pub number: u8,
    /// The stay that is meant.
    pub seat: Seat,
    /// Its wish.
    pub wish: Wish,
}

/// The proxy's answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Answer {
    /// Carried out.
    Done,
    /// The content of the file.
    Content(Log),
    /// The operation was not carried out: the file is not here under that epoch. `kept`: all answered writes are
    /// synced.
    Moved {
        /// Whether the lease went back with everything synced.
        kept: bool,
    },
    /// The lease was lost while it was carried out.
    Failed,
}

/// `SharedOpReply`. It answers one sending of a request, so it names the stay that was meant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reply {
    /// To whom.
    pub client: ClientName,
    /// To which operation.
    pub number: u8,
    /// The stay that was meant.
    pub seat: Seat,
    /// The process that answers.
    pub boot: u8,
    /// The answer.
    pub answer: Answer,
}

/// Everything that was sent and could still matter. Delivery takes nothing out, as in [`crate::message::Network`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Network {
    /// To the proxy.
    pub requests: Vec<Request>,
    /// From it.
    pub replies: Vec<Reply>,
}

impl Network {
    /// Sends a request; sending twice is sending once.
    pub fn request(&mut self, request: Request) {
        insert(&mut self.requests, request);
    }

    /// Sends an answer to a request.
    pub fn reply(&mut self, reply: Reply) {
        insert(&mut self.replies, reply);
    }
}

fn insert<T: Ord>(all: &mut Vec<T>, one: T) {
    if let Err(place) = all.binary_search(&one) {
        all.insert(place, one);
    }
}
