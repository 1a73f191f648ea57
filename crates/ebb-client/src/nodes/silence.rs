//! Which nodes answer nothing at all: one call finds out by its deadline, and the others need not.
//!
//! A frozen node accepts bytes and says nothing. Each metablock with a member there would find that out by itself, seconds
//! each time. So what one call has found is known to all: as long as a node is silent, calls to it fail at once, reads go
//! elsewhere first, and it is not taken for a replacement. It is asked in the background until it answers.
//!
//! A node is silent if a call had no answer within its deadline and *no* call was answered since that one was sent. A
//! slow node that answers others is not silent. An answer right after the call was sent does not count: it was under
//! way before. A quarter of that deadline without any answer suffices if the master has missed its heartbeats, too.
//! The time that an earlier call waited for a connection in vain counts with a call, so that the next one need not
//! wait as long again. A node is silent as well if no connection to it was made for the deadline of connecting. Plain
//! values: moments come in as arguments.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::deadlines::{DIAL_TIMEOUT, LATE_WAIT, SUSPECT_TIME, WRITE_DEADLINE};

/// A deadline that passed by more than this was not kept by this process itself, which slept, or was frozen: that says nothing
/// of the other side.
const OVERSLEPT: Duration = Duration::from_secs(1);
/// An answer that comes so soon after a call was sent may have been under way before.
const UNDER_WAY: Duration = Duration::from_millis(500);

/// A host that is there refuses a connection sooner than this.
const REFUSED: Duration = Duration::from_millis(100);
/// Calls in vain that are no further apart belong together. Between two of them their callers pause, and calls fail at once while
/// no connection is tried.
const TOGETHER: Duration = WRITE_DEADLINE;

/// Evidence about each node's silence.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    answered: BTreeMap<u64, Moment>,
    silent: BTreeMap<u64, Moment>,
    in_vain: BTreeMap<u64, InVain>,
}

/// Calls, one after the other, that waited for a connection to a node and got none.
#[derive(Clone, Copy, Debug)]
struct InVain {
    since: Moment,
    until: Moment,
}

impl Silence {
    /// The node answered, whatever it said. True: it had been silent.
    pub fn on_answer(&mut self, node: u64, now: Moment) -> bool {
        self.answered.insert(node, now);
        self.in_vain.remove(&node);
        self.silent.remove(&node).is_some()
    }

    /// A call that was sent at `sent` had no answer within `deadline`. True: the node is silent from now on, and was not
    /// known to be.
    pub fn on_timeout(&mut self, node: u64, sent: Moment, deadline: Duration, now: Moment) -> bool {
        self.on_unanswered(node, sent, deadline..deadline + OVERSLEPT, now)
    }

    /// The connection of a call that was sent at `sent` broke before any answer. True: the node is silent from now
    /// on, and was not known to be. The kernel gives up a host that takes nothing at about the deadline of a call:
    /// whichever is first, the verdict on the node is the same.
    pub fn on_broken(&mut self, node: u64, sent: Moment, now: Moment) -> bool {
        self.on_unanswered(node, sent, SUSPECT_TIME..WRITE_DEADLINE + OVERSLEPT, now)
    }

    /// A call ended without an answer; it says something if it took as long as `counts`.
    fn on_unanswered(&mut self, node: u64, sent: Moment, counts: Range<Duration>, now: Moment) -> bool {
        let is_silent = counts.contains(&now.since(sent)) && !self.is_heard_since(node, sent.after(UNDER_WAY));
        is_silent && self.mark_silent(node, now)
    }

    /// A call that began at `sent` did not reach the node: no connection was made for that long, or the member before
    /// it in a chain did not answer. True: the node is silent from now on, and was not known to be.
    ///
    /// A call that is refused at once says that the node's host is there. A short call counts with those before it: it may have
    /// waited for a connection that another call had begun.
    pub fn on_unreached(&mut self, node: u64, sent: Moment, now: Moment) -> bool {
        let took = now.since(sent);
        if took < REFUSED || took >= WRITE_DEADLINE + OVERSLEPT || self.is_heard_since(node, sent) {
            return false;
        }
        let since = self.in_vain_since(node, sent).unwrap_or(sent);
        self.in_vain.insert(node, InVain { since, until: now });
        // A call that waited for much longer than a connection may take was not woken in time: the next one has to show it.
        took < DIAL_TIMEOUT + OVERSLEPT && now.since(since) >= DIAL_TIMEOUT && self.mark_silent(node, now)
    }

    /// Start of the calls in vain, with one of `sent` among them. Calls that wait together are reported in any order.
    fn in_vain_since(&self, node: u64, sent: Moment) -> Option<Moment> {
        let before = self.in_vain.get(&node)?;
        (sent <= before.until.after(TOGETHER)).then_some(before.since.min(sent))
    }

    /// Since when there is a call and no answer of any: of one that is sent at `sent`, and those in vain before it.
    fn unheard_since(&self, node: u64, sent: Moment) -> Moment {
        let since = self.in_vain_since(node, sent).unwrap_or(sent);
        self.answered(node).map_or(since, |answered| answered.max(since))
    }

    /// When a call that was sent at `sent` has waited long enough, if that is before its deadline: the master misses the node's
    /// heartbeats, or calls before it have waited, too.
    pub fn ends_early(&self, node: u64, sent: Moment, deadline: Duration, is_late: bool) -> Option<Moment> {
        match (self.in_vain_since(node, sent), is_late) {
            (_, true) => Some(self.unheard_since(node, sent).after(LATE_WAIT)),
            (Some(since), false) => Some(since.after(deadline).max(sent.after(LATE_WAIT))),
            (None, false) => None,
        }
    }

    /// A call that was sent at `sent` has no answer yet, and the master misses the node's heartbeats, or calls before it
    /// were made in vain. True: the node is silent from now on.
    pub fn on_waited(&mut self, node: u64, sent: Moment, now: Moment) -> bool {
        let is_silent = now.since(self.unheard_since(node, sent)) >= LATE_WAIT;
        is_silent && self.mark_silent(node, now)
    }

    /// When the node last answered.
    pub fn answered(&self, node: u64) -> Option<Moment> {
        self.answered.get(&node).copied()
    }

    fn is_heard_since(&self, node: u64, sent: Moment) -> bool {
        self.answered.get(&node).is_some_and(|answered| *answered >= sent)
    }

    /// True: that is news.
    fn mark_silent(&mut self, node: u64, now: Moment) -> bool {
        let is_news = !self.silent.contains_key(&node);
        self.silent.entry(node).or_insert(now);
        is_news
    }

    /// Since when the node is silent.
    pub fn since(&self, node: u64) -> Option<Moment> {
        self.silent.get(&node).copied()
    }

    /// All silent nodes.
    pub fn all(&self) -> impl Iterator<Item = u64> + '_ {
        self.silent.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(4);

    fn at(ms: u64) -> Moment {
        Moment::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn a_node_is_silent_when_nothing_at_all_was_answered() {
        let mut silence = Silence::default();
        silence.on_answer(1, at(900));
        assert!(silence.on_timeout(1, at(1000), DEADLINE, at(5000)));
        assert!(!silence.on_timeout(1, at(1500), DEADLINE, at(5500)), "that is known");
        assert_eq!((silence.since(1), silence.since(2)), (Some(at(5000)), None));
        assert_eq!(silence.all().collect::<Vec<_>>(), [1]);
        assert!(silence.on_answer(1, at(6000)));
        assert_eq!(silence.since(1), None);
    }

    #[test]
    fn of_one_that_is_late_less_is_enough() {
        let mut silence = Silence::default();
        assert!(!silence.on_waited(1, at(1000), at(1900)), "it may answer yet");
        assert!(silence.on_waited(1, at(1000), at(2000)));
        silence.on_answer(2, at(1500));
        assert_eq!(silence.ends_early(2, at(1000), DEADLINE, true), Some(at(2500)));
        assert!(!silence.on_waited(2, at(1000), at(2400)), "it answers others");
        assert!(silence.on_waited(2, at(1000), at(2500)), "and does so no more");
    }

    #[test]
    fn an_answer_that_was_under_way_when_a_call_was_sent_says_nothing_of_it() {
        let mut silence = Silence::default();
        silence.on_answer(1, at(1001));
        assert!(silence.on_timeout(1, at(1000), DEADLINE, at(5000)));
    }

    #[test]
    fn a_connection_that_breaks_after_as_long_a_silence_says_the_same() {
        let mut silence = Silence::default();
        assert!(!silence.on_broken(1, at(1000), at(3900)), "a process that ends has nothing to do with silence");
        silence.on_answer(2, at(2000));
        assert!(!silence.on_broken(2, at(1000), at(4900)), "it answered meanwhile");
        assert!(silence.on_broken(1, at(1000), at(4900)));
        assert!(!silence.on_broken(1, at(1000), at(4900)), "that is known");
    }

    #[test]
    fn the_wait_for_a_connection_counts() {
        let mut silence = Silence::default();
        assert!(!silence.on_unreached(1, at(1000), at(3990)));
        assert_eq!(
            silence.ends_early(1, at(4010), DEADLINE, false),
            Some(at(5010)),
            "a second of its own, four in all"
        );
        assert_eq!(
            silence.ends_early(1, at(4010), DEADLINE, true),
            Some(at(2000)),
            "of one that is late a second of all is enough"
        );
        assert!(silence.on_waited(1, at(4010), at(5010)));
        assert_eq!(silence.ends_early(1, at(7991), DEADLINE, false), None, "that was long ago");
        silence.on_unreached(2, at(1000), at(3900));
        silence.on_answer(2, at(4005));
        assert_eq!(silence.ends_early(2, at(4010), DEADLINE, false), None, "it answers");
        silence.on_unreached(3, at(1000), at(1010));
        assert_eq!(silence.ends_early(3, at(1020), DEADLINE, false), None, "it refused");
    }

    /// Calls wait for connections that other calls have begun, so that one may fail soon after it was sent.
    #[test]
    fn a_node_that_refuses_all_connections_is_silent() {
        let mut silence = Silence::default();
        assert!(silence.on_unreached(1, at(1000), at(4000)));
        assert!(!silence.on_unreached(1, at(1200), at(4200)), "that is known");
        assert!(!silence.on_unreached(2, at(1000), at(2900)));
        assert!(!silence.on_unreached(2, at(3200), at(3700)));
        assert_eq!(silence.ends_early(2, at(4600), DEADLINE, false), Some(at(5600)), "the short one went on with it");
        assert!(silence.on_unreached(2, at(4600), at(4800)), "three seconds of all of them");
        assert!(!silence.on_unreached(3, at(1000), at(2900)));
        silence.on_answer(3, at(3000));
        assert!(!silence.on_unreached(3, at(3200), at(6100)), "it answered meanwhile");
        assert!(!silence.on_unreached(4, at(1000), at(60_000)), "this process slept");
        assert!(!silence.on_unreached(5, at(1000), at(5000)), "this process slept for a while");
        assert!(silence.on_unreached(5, at(5050), at(5250)), "but the next call finds the same");
    }

    #[test]
    fn calls_that_waited_together_count_from_the_first_one_in_any_order() {
        let mut silence = Silence::default();
        assert!(!silence.on_unreached(1, at(3900), at(4100)));
        assert!(!silence.on_unreached(1, at(1200), at(4100)));
        assert_eq!(silence.ends_early(1, at(4200), DEADLINE, false), Some(at(5200)), "from 1200 on");
        assert!(silence.on_unreached(1, at(4200), at(4400)));
    }

    #[test]
    fn one_that_answers_others_or_that_was_not_waited_for_is_not() {
        let mut silence = Silence::default();
        silence.on_answer(1, at(2000));
        assert!(!silence.on_timeout(1, at(1000), DEADLINE, at(5000)), "it is slow with one thing");
        assert!(!silence.on_timeout(2, at(1000), DEADLINE, at(3000)), "its own word, within the deadline");
        assert!(!silence.on_timeout(3, at(1000), DEADLINE, at(60_000)), "this process slept");
    }
}
