//! What the master, the proxy, the members and the clients know, and the messages on their way.

use std::collections::BTreeSet;

/// The client that takes the file over, by the first of its handles.
pub const TAKER: usize = 1;

/// A lease, or a stay at the proxy: the epoch, and how often the file had been taken over when it began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Term {
    /// Fencing epoch.
    pub epoch: u8,
    /// Takeovers.
    pub count: u8,
}

/// What a client holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Hold {
    /// Neither lease nor stay.
    #[default]
    Nothing,
    /// The write lease, as it believes.
    Lease(Term),
    /// A part in a stay at the proxy.
    Shared(Term),
}

/// Who has the write lease, as it is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Holder {
    /// Nobody.
    #[default]
    Nobody,
    /// A client.
    Client(usize),
    /// The proxy.
    Proxy,
}

/// When a handle was opened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Age {
    /// Before the last takeover began.
    Older,
    /// While one may have been under way.
    Between,
    /// After all of them.
    Fresh,
}

/// An open handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle {
    /// How often the file had been taken over, as it knows.
    pub seen: u8,
    /// For the judgement alone.
    pub age: Age,
}

/// A client.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Client {
    /// Its lease or stay.
    pub hold: Hold,
    /// Its handles.
    pub handles: Vec<Handle>,
    /// A write that has passed the check and the gate: its handle, and the epoch under which it will act.
    pub entered: Option<(usize, u8)>,
}

/// A takeover, as the taker sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Takeover {
    /// None is under way.
    #[default]
    None,
    /// It has asked the master, under its lease of this epoch, with the gate shut.
    Counting(u8),
    /// It has asked the proxy.
    Asking,
    /// It was answered.
    Answered,
}

/// A message on its way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// To the proxy: a write by a handle of a client, in the stay of this epoch.
    Write(usize, usize, u8),
    /// To the proxy: a takeover, in the stay of this epoch; the number of the attempt.
    TakeOver(u8, u8),
    /// To the master: a takeover by the lease's holder, under this epoch; the number of the attempt.
    Count(u8, u8),
    /// To the taker: the answer to this attempt, the count.
    Counted(u8, u8),
}

/// What the last step showed, for the judgement alone.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Seen {
    /// An older handle changed the file after a takeover was answered.
    pub older_wrote: bool,
    /// A fresh handle was refused.
    pub fresh_refused: bool,
    /// An older one was.
    pub older_refused: bool,
    /// A fresh one wrote after a takeover.
    pub fresh_wrote: bool,
    /// A write from before a takeover came to the proxy after it.
    pub late_write: bool,
    /// A takeover was answered under a lease.
    pub by_lease: bool,
    /// One was answered by the proxy.
    pub by_proxy: bool,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct State {
    /// Logged: takeovers.
    pub count: u8,
    /// Logged: the holder.
    pub holder: Holder,
    /// Logged: the last epoch.
    pub epoch: u8,
    /// Members refuse epochs below this one.
    pub promised: u8,
    /// The proxy's stay.
    pub stay: Option<Term>,
    /// The proxy has counted this attempt in its stay, and has not ended the stay yet.
    pub ends: Option<u8>,
    /// The clients.
    pub clients: [Client; 2],
    /// The takeover.
    pub takeover: Takeover,
    /// Attempts so far.
    pub attempts: u8,
    /// Leases so far.
    pub grants: u8,
    /// Losses so far.
    pub losses: u8,
    /// Messages on their way.
    pub messages: BTreeSet<Message>,
    /// What the last step showed.
    pub seen: Seen,
}

impl State {
    /// Each client has the file open.
    #[must_use]
    pub fn opened() -> Self {
        let mut state = Self::default();
        for client in &mut state.clients {
            client.handles.push(Handle { seen: 0, age: Age::Fresh });
        }
        state
    }

    /// Whether a takeover was answered.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.takeover == Takeover::Answered
    }

    /// Whether a write is on its way to the proxy.
    #[must_use]
    pub fn has_write(&self) -> bool {
        self.messages.iter().any(|message| matches!(message, Message::Write(..)))
    }

    /// Whether a takeover may still be counted.
    #[must_use]
    pub fn may_be_counted(&self) -> bool {
        let is_under_way = matches!(self.takeover, Takeover::Counting(_) | Takeover::Asking);
        let asks = |message: &Message| matches!(message, Message::TakeOver(..) | Message::Count(..));
        is_under_way || self.ends.is_some() || self.messages.iter().any(asks)
    }
}
