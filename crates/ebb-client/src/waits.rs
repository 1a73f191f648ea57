//! The reasons for which operations of a client wait, for a person who looks at a command that takes long.
//!
//! An operation enters before a step that may take long, and its entry goes when the step ends. Calls of one client run
//! side by side, so there may be several.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_runtime::Moment;
use parking_lot::Mutex;

/// A wait of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// When the operation began to wait.
    pub since: Moment,
    /// Completes the sentence "waiting for ...".
    pub reason: Cow<'static, str>,
}

/// The waits of one client. Clones share them, so that they can be read before the client is connected.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    last: u64,
    all: BTreeMap<u64, Wait>,
}

impl Waits {
    /// The operation that has waited longest.
    #[must_use]
    pub fn longest(&self) -> Option<Wait> {
        self.0.lock().all.values().min_by_key(|wait| wait.since).cloned()
    }

    pub(crate) fn enter(&self, since: Moment, reason: impl Into<Cow<'static, str>>) -> Waiting {
        let mut entries = self.0.lock();
        entries.last += 1;
        let number = entries.last;
        entries.all.insert(number, Wait { since, reason: reason.into() });
        Waiting { waits: self.clone(), number }
    }
}

/// An entry. It goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    waits: Waits,
    number: u64,
}

impl Waiting {
    /// Sets a reason that is known better now. The time of the wait goes on.
    pub fn set(&self, reason: impl Into<Cow<'static, str>>) {
        if let Some(wait) = self.waits.0.lock().all.get_mut(&self.number) {
            wait.reason = reason.into();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waits.0.lock().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_longest_wait_is_shown_with_its_newest_reason_until_it_ends() {
        let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
        let waits = Waits::default();
        let first = waits.enter(at(1), "the master to answer");
        let second = waits.enter(at(2), "n3");
        first.set("n1 or n2");
        assert_eq!(waits.longest(), Some(Wait { since: at(1), reason: "n1 or n2".into() }));
        drop(first);
        assert_eq!(waits.longest().unwrap().reason, "n3");
        drop(second);
        assert_eq!(waits.longest(), None);
    }
}
