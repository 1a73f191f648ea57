//! Writes that may not be on disks yet. Pure.
//!
//! A write is answered when all members have received it. If the proxy and the members' power fail together, the write
//! is lost, and its client learns that. No other client may have seen it then, as bytes that were read must never
//! disappear. So what a session reads of others' writes is synced first. Its own writes need not be.

use std::ops::Range;

use ebb_types::SessionId;

/// Most writes that are kept apart. Further ones are merged.
const WRITES_MAX: usize = 1024;

/// Writes since the last sync.
#[derive(Debug, Default)]
pub struct Unsynced {
    last: u64,
    writes: Vec<Write>,
}

#[derive(Debug)]
struct Write {
    number: u64,
    /// None if the write was merged from several sessions.
    session: Option<SessionId>,
    range: Range<u64>,
}

impl Unsynced {
    /// Records a write of a session. The range includes bytes that came to be because the file grew.
    pub fn add(&mut self, session: SessionId, range: Range<u64>) {
        assert!(range.start <= range.end, "a write that ends before it starts concerns no reader: {range:?}");
        self.last += 1;
        let number = self.last;
        if let Some(write) = self.writes.last_mut().filter(|write| is_next(write, session, &range)) {
            // The newer number counts for both: a sync that started in between does not cover all of it.
            write.number = number;
            write.range = write.range.start.min(range.start)..write.range.end.max(range.end);
            return;
        }
        if self.writes.len() >= WRITES_MAX {
            // One write of several sessions: it concerns all of them, which costs a sync too many and loses nothing.
            let ranges = || self.writes.iter().map(|write| &write.range).chain([&range]);
            let start = ranges().map(|range| range.start).min().unwrap_or(0);
            let end = ranges().map(|range| range.end).max().unwrap_or(u64::MAX);
            self.writes = vec![Write { number, session: None, range: start..end }];
            return;
        }
        self.writes.push(Write { number, session: Some(session), range });
        debug_assert!(self.writes.is_sorted_by_key(|write| write.number), "writes are out of order");
    }

    /// Whether a sync has to come before `session` gets the bytes of `range`.
    #[must_use]
    pub fn concerns(&self, session: SessionId, range: &Range<u64>) -> bool {
        let is_others = |write: &&Write| write.session != Some(session);
        let overlaps = |write: &Write| write.range.start < range.end && range.start < write.range.end;
        self.writes.iter().filter(is_others).any(overlaps)
    }

    /// Number of the last write that a sync covers if it starts now.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.last
    }

    /// Records the success of a sync that started at this mark.
    pub fn on_synced(&mut self, mark: u64) {
        assert!(mark <= self.last, "a sync goes up to write {mark}, and there were {} writes", self.last);
        self.writes.retain(|write| write.number > mark);
    }
}

/// Whether a write continues the same session's last write.
fn is_next(write: &Write, session: SessionId, range: &Range<u64>) -> bool {
    write.session == Some(session) && range.start <= write.range.end && write.range.start <= range.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId::new(1);
    const TWO: SessionId = SessionId::new(2);

    #[test]
    fn a_read_waits_only_for_a_sync_of_writes_of_others_in_its_range() {
        let mut unsynced = Unsynced::default();
        unsynced.add(ONE, 0..10);
        let mark = unsynced.mark();
        unsynced.add(TWO, 20..30);
        assert!(!unsynced.concerns(ONE, &(0..20)) && unsynced.concerns(ONE, &(0..21)));
        assert!(unsynced.concerns(TWO, &(9..10)) && !unsynced.concerns(TWO, &(10..40)));
        unsynced.on_synced(mark);
        assert!(!unsynced.concerns(TWO, &(0..u64::MAX)) && unsynced.concerns(ONE, &(0..u64::MAX)));
    }

    #[test]
    fn a_sync_that_began_before_a_write_says_nothing_of_it() {
        let mut unsynced = Unsynced::default();
        unsynced.add(ONE, 0..10);
        let mark = unsynced.mark();
        unsynced.add(ONE, 10..20);
        unsynced.on_synced(mark);
        assert!(unsynced.concerns(TWO, &(15..16)), "both are one by now, so neither is forgotten");
    }

    #[test]
    fn the_record_is_bounded_and_covers_everything() {
        let mut unsynced = Unsynced::default();
        for at in 0..3000 {
            unsynced.add(if at % 2 == 0 { ONE } else { TWO }, at * 10..at * 10 + 5);
        }
        assert!(unsynced.writes.len() <= WRITES_MAX);
        assert!(unsynced.concerns(ONE, &(0..1)) && unsynced.concerns(TWO, &(0..1)));
    }
}
