//! Sessions that wrote to a file and have not heard since that it is synced. Pure.
//!
//! Such a client counts what it wrote as lost if the file's stay ends without a word. So a proxy that ends in good order
//! waits until each of them has asked once more, and been answered that everything was kept.

use std::collections::BTreeMap;

use ebb_types::SessionId;

/// By session: how many of its writes were answered.
#[derive(Debug, Default)]
pub struct Unheard {
    written: BTreeMap<SessionId, Count>,
}

#[derive(Debug, Default)]
struct Count {
    written: u64,
    heard: u64,
}

impl Unheard {
    /// A write of a session was carried out.
    pub fn on_written(&mut self, session: SessionId) {
        self.written.entry(session).or_default().written += 1;
    }

    /// What a session hears of when a sync that begins now has succeeded.
    #[must_use]
    pub fn mark(&self, session: SessionId) -> u64 {
        self.written.get(&session).map_or(0, |count| count.written)
    }

    /// A sync that began at this mark is answered to the session that asked for it.
    pub fn on_heard(&mut self, session: SessionId, mark: u64) {
        let Some(count) = self.written.get_mut(&session) else { return };
        count.heard = count.heard.max(mark);
        if count.heard >= count.written {
            self.written.remove(&session);
        }
    }

    /// A session is told that everything is synced, or is over.
    pub fn forget(&mut self, session: SessionId) {
        self.written.remove(&session);
    }

    /// Sessions that wrote and have not heard.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.written.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId::new(1);
    const TWO: SessionId = SessionId::new(2);

    fn sessions(unheard: &Unheard) -> Vec<SessionId> {
        unheard.sessions().collect()
    }

    #[test]
    fn a_session_hears_of_what_it_wrote_before_the_sync_and_of_no_more() {
        let mut unheard = Unheard::default();
        unheard.on_written(ONE);
        unheard.on_written(TWO);
        let mark = unheard.mark(ONE);
        unheard.on_heard(ONE, mark);
        assert_eq!(sessions(&unheard), [TWO], "another one's sync is not told to it");
        unheard.on_written(ONE);
        let mark = unheard.mark(ONE);
        unheard.on_written(ONE);
        unheard.on_heard(ONE, mark);
        assert_eq!(sessions(&unheard), [ONE, TWO], "it wrote again while the sync was under way");
        unheard.forget(TWO);
        unheard.on_heard(ONE, unheard.mark(ONE));
        assert_eq!(sessions(&unheard), []);
    }
}
