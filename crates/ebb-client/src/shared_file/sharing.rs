//! State of a file that the proxy holds for several sessions, and the meaning of its end. Pure.
//!
//! No data of such a file is kept here: each read, write and sync is the proxy's. The client counts the changes that
//! are not known to be synced. If the proxy's lease ends without a word, they may be lost, and each open handle reports
//! an error.

use std::collections::BTreeSet;

use ebb_types::{ErrorKind, InodeId, SessionId};
use parking_lot::Mutex;

/// Name of a stay of a file at a proxy. Operations sent to one stay mean nothing to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stay {
    /// The proxy's process.
    pub boot: u64,
    /// The epoch under which it holds the file.
    pub epoch: u64,
}

/// The part of this client in a file that stays at a proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sharing {
    /// Which stay it is.
    pub stay: Stay,
    /// Where the proxy listens.
    pub address: String,
    /// How often the file was taken over before. It stays so until the stay ends.
    pub takeovers: u64,
    /// Changes that were answered.
    pub written: u64,
    /// How many of them are known to be synced.
    pub synced: u64,
    /// Changes that were sent and are not answered yet. A call that was dropped half-way stays counted: at worst, the
    /// proxy is asked once too often how the stay ended.
    pub under_way: u64,
}

impl Sharing {
    /// A stay that has just begun: nothing was written yet.
    pub fn new(stay: Stay, address: String, takeovers: u64) -> Self {
        Self { stay, address, takeovers, written: 0, synced: 0, under_way: 0 }
    }

    /// Whether the end of the stay matters to some change: one that is not known to be synced, or one without an answer.
    pub fn is_in_use(&self) -> bool {
        self.is_unsynced() || self.under_way > 0
    }

    /// Whether something was written that is not known to be synced.
    pub fn is_unsynced(&self) -> bool {
        self.written > self.synced
    }
}

/// How a stay of a file at a proxy ended, as far as this client can know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The proxy gave the lease back, with everything that it answered synced.
    Kept,
    /// The lease was lost, with the proxy's process or session. Changes that were not synced may be gone.
    Lost,
}

/// Whether an operation may have been carried out, judged by the attempts to send it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Fate {
    /// No attempt can have been carried out.
    #[default]
    NotDone,
    /// An attempt was sent, and no answer came.
    Unknown,
}

impl Fate {
    /// The fate after an attempt that failed like this.
    pub fn after(self, failure: ErrorKind) -> Self {
        match failure {
            ErrorKind::Timeout | ErrorKind::Disconnected | ErrorKind::Internal => Self::Unknown,
            _ => self,
        }
    }

    /// The fate after the same process of the proxy says that it does not hold the file under that epoch. It remembers
    /// all that it did for this session, so nothing was done. An attempt that is still on its way will be refused.
    pub fn after_refusal(self) -> Self {
        Self::NotDone
    }
}

/// Whether an attempt that failed like this is worth another one at the same place.
pub(crate) fn is_worth_repeating(failure: ErrorKind) -> bool {
    matches!(
        failure,
        ErrorKind::Timeout
            | ErrorKind::Disconnected
            | ErrorKind::Unreachable
            | ErrorKind::Overloaded
            | ErrorKind::ShuttingDown
            // The answering task ended without an answer. Its work goes on, and the repetition finds the result.
            | ErrorKind::Internal
    )
}

/// Numbers of requests to proxies, and the requests that still wait for their answers.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    outstanding: BTreeSet<u64>,
}

/// One request, whose answer the proxy remembers until it is dropped.
pub(crate) struct Request<'a> {
    requests: &'a Requests,
    /// The session that it belongs to, from its first attempt to its last.
    pub session: SessionId,
    /// Its number. 0: it may be carried out again.
    pub number: u64,
}

impl Requests {
    /// A request that is to be carried out once.
    pub fn once(&self, session: SessionId) -> Request<'_> {
        let mut waiting = self.0.lock();
        waiting.last += 1;
        let number = waiting.last;
        waiting.outstanding.insert(number);
        Request { requests: self, session, number }
    }

    /// The number to acknowledge if no request waits for an answer now: the one after the last.
    pub fn all_taken(&self) -> Option<u64> {
        let waiting = self.0.lock();
        waiting.outstanding.is_empty().then_some(waiting.last + 1)
    }

    /// A request that may be carried out any number of times.
    pub fn repeatable(&self, session: SessionId) -> Request<'_> {
        Request { requests: self, session, number: 0 }
    }
}

impl Request<'_> {
    /// For every request below this number, the answer was taken or is not wanted any more.
    pub fn acknowledged(&self) -> u64 {
        let waiting = self.requests.0.lock();
        waiting.outstanding.first().copied().unwrap_or(waiting.last + 1)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.requests.0.lock().outstanding.remove(&self.number);
    }
}

/// The error for an operation that may have been done or not.
pub(crate) fn unknown(inode: InodeId) -> ebb_types::Error {
    ebb_types::err!(
        Io,
        "{inode}: the proxy that held it for several clients was lost with this operation; it may have been done or not"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::Inode;

    #[test]
    fn a_request_without_an_answer_may_have_been_carried_out() {
        let fate = Fate::default();
        assert_eq!(fate.after(ErrorKind::Unreachable).after(ErrorKind::Overloaded), Fate::NotDone);
        assert_eq!(fate.after(ErrorKind::Disconnected).after(ErrorKind::Unreachable), Fate::Unknown);
        assert_eq!(fate.after(ErrorKind::Timeout).after_refusal(), Fate::NotDone);
    }

    #[test]
    fn an_answer_that_comes_after_the_end_of_its_stay_is_not_forgotten() {
        let stay = Stay { boot: 3, epoch: 5 };
        for (end, is_error) in [(End::Kept, false), (End::Lost, true)] {
            let inode = Inode::new(InodeId::new(7), 1 << 20);
            let mut core = inode.core.lock();
            core.hold.join(stay, "p:1".into(), 0);
            assert!(!core.end_sharing(end, inode.id), "nothing was answered yet");
            assert_eq!(core.on_changed(&stay, inode.id), is_error, "{end:?}");
            assert_eq!(core.sticky.latest() > 0, is_error, "{end:?}");
        }
    }

    #[test]
    fn answers_are_acknowledged_in_order_and_repeatable_requests_hold_nothing_up() {
        let requests = Requests::default();
        let session = SessionId::new(1);
        let (first, second) = (requests.once(session), requests.once(session));
        assert_eq!((first.number, second.number, second.acknowledged()), (1, 2, 1));
        assert_eq!(requests.repeatable(session).acknowledged(), 1);
        drop(first);
        assert_eq!(second.acknowledged(), 2);
        drop(second);
        assert_eq!(requests.repeatable(session).acknowledged(), 3);
    }
}
