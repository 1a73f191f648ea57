//! What this node has seen of the master, and whether the master takes it for the node that it says it is.
//!
//! The position is noted durably at registration, and while it moves on every ten seconds: a heartbeat is no sync. So a
//! master that went back by less than that is known again only by processes that have run since (docs/protocol.md, Going
//! back in time).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{Error, ErrorKind, Result, bail};
use ebb_wire::{Method, pb};
use parking_lot::Mutex;

use crate::identity::{self, Identity};
use crate::node::Node;

/// Between notes of a position that has moved on within a run.
const NOTE_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Seen {
    known: Mutex<Known>,
    /// Why the master does not take this process for the node.
    refused: Mutex<Option<Error>>,
    /// Why the master cannot register what this process declares.
    declined: Mutex<Option<Error>>,
    /// A master has taken it.
    registered: AtomicBool,
}

#[derive(Debug)]
struct Known {
    newest: pb::Position,
    noted: pb::Position,
    noted_at: Moment,
    /// A note is being written.
    noting: bool,
}

impl Known {
    /// Takes a position of a master that knew the position before. True: it is to be stored now.
    fn observe(&mut self, position: pb::Position, now: Moment) -> bool {
        let run = |position: &pb::Position| (position.lineage, position.run, position.mark);
        // Answers may overtake each other.
        if run(&position) != run(&self.newest) || position.index > self.newest.index {
            self.newest = position;
        }
        let is_new_run = run(&self.newest) != run(&self.noted);
        let is_due = is_new_run || (self.newest != self.noted && now.since(self.noted_at) >= NOTE_EVERY);
        is_due && !self.noting
    }
}

impl Seen {
    /// What was noted before this start.
    pub(crate) fn new(noted: pb::Position) -> Self {
        let known = Known { newest: noted, noted, noted_at: Moment::default(), noting: false };
        Self {
            known: Mutex::new(known),
            refused: Mutex::default(),
            declined: Mutex::default(),
            registered: AtomicBool::new(false),
        }
    }

    /// The newest position.
    pub(crate) fn position(&self) -> pb::Position {
        self.known.lock().newest
    }

    /// True: the master does not take this process for the node, for another reason than before.
    pub(crate) fn on_refused(&self, error: &Error) -> bool {
        if error.kind() != ErrorKind::Superseded {
            return false;
        }
        let before = self.refused.lock().replace(error.clone());
        before.as_ref() != Some(error)
    }

    /// True: the master cannot register what this process declares, for another reason than before.
    pub(crate) fn on_declined(&self, error: &Error) -> bool {
        if error.kind() != ErrorKind::Invalid {
            return false;
        }
        let before = self.declined.lock().replace(error.clone());
        before.as_ref() != Some(error)
    }

    /// Why the master cannot register what this process declares.
    pub(crate) fn declined(&self) -> Option<Error> {
        self.declined.lock().clone()
    }

    pub(crate) fn on_registered(&self) {
        *self.refused.lock() = None;
        *self.declined.lock() = None;
        self.registered.store(true, Ordering::Release);
    }

    /// Refuses what may rest on replicas that went back: all of it once the master has said so, and before it has said
    /// anything what a recovery would believe.
    pub(crate) fn check(&self, method: Method) -> Result<()> {
        if matches!(method, Method::Counters | Method::Rest) {
            return Ok(());
        }
        if let Some(error) = &*self.refused.lock() {
            return Err(error.clone());
        }
        if method == Method::PromiseEpoch && !self.registered.load(Ordering::Acquire) {
            bail!(Unavailable, "this node has not registered since it started: it answers no recovery before");
        }
        Ok(())
    }
}

/// Remembers a master's position. Where it cannot be stored, this process alone remembers it.
pub(crate) async fn remember_position(node: &Node, position: Option<pb::Position>) {
    let Some(position) = position.filter(|position| position.lineage != 0) else { return };
    let now = node.runtime.now();
    let position = {
        let mut known = node.seen.known.lock();
        if !known.observe(position, now) {
            return;
        }
        (known.noted_at, known.noting) = (now, true);
        known.newest
    };
    let identity = Identity { node: node.id(), position };
    let cluster = node.connector.identity().cluster;
    let written = identity::write(&node.runtime.disk(), &node.data_dir, cluster, &identity).await;
    let mut known = node.seen.known.lock();
    known.noting = false;
    match written {
        Ok(()) => known.noted = position,
        Err(error) => tracing::warn!(%error, "what was seen of the master is not noted on disk"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_run_is_noted_at_once_and_what_it_does_every_ten_seconds() {
        let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
        let position = |run, index| pb::Position { lineage: 7, run, mark: run * 10, index };
        let mut known = Known { newest: position(1, 50), noted: position(1, 50), noted_at: at(100), noting: false };
        assert!(!known.observe(position(1, 60), at(101)));
        assert!(!known.observe(position(1, 55), at(102)), "an answer that came late");
        assert_eq!(known.newest.index, 60);
        assert!(known.observe(position(1, 60), at(110)));
        known.noting = true;
        assert!(!known.observe(position(2, 61), at(111)), "one note at a time");
        known.noting = false;
        assert!(known.observe(position(2, 61), at(111)));
        (known.noted, known.noted_at) = (known.newest, at(111));
        assert!(!known.observe(position(2, 61), at(200)), "nothing has moved");
    }

    #[test]
    fn a_process_that_was_refused_serves_nothing() {
        let seen = Seen::new(pb::Position::default());
        assert_eq!(seen.check(Method::PromiseEpoch).unwrap_err().kind(), ErrorKind::Unavailable);
        seen.check(Method::ReadReplica).unwrap();
        seen.on_registered();
        seen.check(Method::PromiseEpoch).unwrap();
        let error = Error::new(ErrorKind::Superseded, "a copy");
        assert!(seen.on_refused(&error) && !seen.on_refused(&error), "told once");
        assert_eq!(seen.check(Method::ReadReplica), Err(error));
        seen.on_registered();
        seen.check(Method::ReadReplica).unwrap();
    }
}
