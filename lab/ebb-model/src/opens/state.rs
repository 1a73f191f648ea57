//! The state of the master and the client, and the messages on their way.

use std::collections::BTreeSet;

/// A request of the client that is answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Request {
    /// Makes the file.
    Make,
    /// Opens it: the client's opening of this number.
    Open(u8),
}

/// All of it. Openings are numbered; the maker of the file counts as having it open by number 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct State {
    /// Logged: it was made.
    pub is_made: bool,
    /// Logged: the answer to the file's maker, as long as it may be asked for again.
    pub is_unacknowledged: bool,
    /// Logged: it has a name.
    pub is_named: bool,
    /// Logged: its space is given to others.
    pub is_freed: bool,
    /// In the master's memory: the client counts as having it open, since this opening.
    pub noted: Option<u8>,
    /// In the master's memory: the client has not reported its open files to this process yet.
    pub is_reclaiming: bool,
    /// The client's handles.
    pub handles: u8,
    /// The client believes that it counts, or may.
    pub is_registered: bool,
    /// Its openings so far.
    pub openings: u8,
    /// It waits for the answer to having made the file.
    pub is_making: bool,
    /// It waits for the answer to this opening.
    pub opening: Option<u8>,
    /// It has begun to make it.
    pub has_begun: bool,
    /// Times that it said that the file is closed.
    pub forgotten: u8,
    /// Starts of the master's process after the first.
    pub restarts: u8,
    /// Requests on their way.
    pub requests: BTreeSet<Request>,
    /// Answers on their way, of the process that lives.
    pub answers: BTreeSet<Request>,
    /// On their way: that the file is closed, as far as openings up to this one go.
    pub forgets: BTreeSet<u8>,
    /// On their way: reports to a new master process. Whether the file is open, and the last opening.
    pub reclaims: BTreeSet<(bool, u8)>,
    /// On its way: the question whether the file is still open.
    pub is_asked: bool,
}

impl State {
    /// The file is there, and no client can ever use it.
    #[must_use]
    pub fn is_forsaken(&self) -> bool {
        let is_idle = self.handles == 0 && !self.is_making && self.opening.is_none();
        self.is_made && !self.is_named && !self.is_freed && is_idle
    }
}
