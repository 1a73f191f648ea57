//! Network partitions between a client and a node that the master hears.
//!
//! The sets of such a client continue without the node. Repair would bring the node back at once, and the client would
//! lose it again, for as long as the partition lasts. So the node gets no copy of that file for a while, and the time
//! doubles with each further loss (I-105).
//!
//! If the node itself was away, this does not apply: the node is used as soon as it is back. A client that reaches the
//! node again reports that, and is believed the first time. Plain values: moments come in as arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::deadlines::WRITE_DEADLINE;
use ebb_types::{InodeId, NodeId, SessionId};

/// Time for which a node is held back after the first loss.
const FIRST: Duration = Duration::from_secs(20);
/// Longest time.
const LONGEST: Duration = Duration::from_secs(20 * 32);
/// Maximum number of pairs of file and node. A forgotten pair is tried once more.
const REMEMBERED_MAX: usize = 10_000;

/// Maximum age of the calls behind a client's report of a loss. A client asks a silent node only every other second,
/// and may need another second for the report. So a report shortly after the node's return may be about the time before
/// it.
const BEFORE_RETURN: Duration = Duration::from_secs(1).saturating_add(WRITE_DEADLINE);

/// Nodes that are held back from files.
#[derive(Debug, Default)]
pub struct Parted {
    held: BTreeMap<(InodeId, NodeId), Parting>,
    /// Nodes that are or recently were away, each with the last moment of that.
    away: BTreeMap<NodeId, Moment>,
}

#[derive(Clone, Copy, Debug)]
struct Parting {
    /// Session whose sets continued without the node.
    holder: SessionId,
    lost: Moment,
    until: Moment,
    span: Duration,
    /// Whether the hold ended early, because the holder reached the node again.
    is_lifted: bool,
}

impl Parting {
    /// Whether a loss that is reported now is the known one.
    fn is_known(&self, now: Moment) -> bool {
        now < self.until || self.is_lifted && now < self.until.after(BEFORE_RETURN)
    }

    /// Whether a further loss belongs to the same partition: it came before the node had stayed for as long as it was
    /// held back.
    fn is_remembered(&self, now: Moment) -> bool {
        now < self.lost.after(self.span * 2)
    }
}

impl Parted {
    /// Records that a file's set continued without a node that the master hears. `holder` has the file's lease.
    pub fn on_lost(&mut self, holder: SessionId, inode: InodeId, node: NodeId, now: Moment) {
        if self.away.get(&node).is_some_and(|away| now.since(*away) < BEFORE_RETURN) {
            return;
        }
        let known = self.held.get(&(inode, node)).copied();
        if known.is_some_and(|held| held.is_known(now)) {
            return;
        }
        let again = known.filter(|held| held.is_remembered(now));
        let span = again.map_or(FIRST, |held| (held.span * 2).min(LONGEST));
        self.held.insert((inode, node), Parting { holder, lost: now, until: now.after(span), span, is_lifted: false });
        if self.held.len() > REMEMBERED_MAX {
            self.held.retain(|_, held| held.is_remembered(now));
            let first = self.held.iter().min_by_key(|(_, held)| held.until).map(|(key, _)| *key);
            first.filter(|_| self.held.len() > REMEMBERED_MAX).map(|key| self.held.remove(&key));
        }
    }

    /// Records that the master misses the node too, or that a new process of it has registered. The node itself was
    /// away, so it is used at once when it is back.
    pub fn on_away(&mut self, node: NodeId, now: Moment) {
        self.away.retain(|_, away| now.since(*away) < BEFORE_RETURN);
        if self.away.insert(node, now).is_none() {
            self.held.retain(|(_, other), _| *other != node);
        }
    }

    /// Records that a client reaches nodes again that did not answer it. A node that it lost repeatedly stays held
    /// back, because it would be lost again.
    pub fn on_reached(&mut self, holder: SessionId, nodes: &BTreeSet<NodeId>, now: Moment) {
        for ((_, node), held) in &mut self.held {
            if held.holder == holder && held.span == FIRST && now < held.until && nodes.contains(node) {
                (held.until, held.is_lifted) = (now, true);
            }
        }
    }

    /// Nodes that get no copy of this file at present, each with the rest of its time.
    pub fn held_back(&self, inode: InodeId, now: Moment) -> impl Iterator<Item = (NodeId, Duration)> + '_ {
        let of_file = self.held.range((inode, NodeId::default())..=(inode, NodeId::new(u64::MAX)));
        of_file.filter(move |(_, held)| now < held.until).map(move |((_, node), held)| (*node, held.until.since(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId::new(1);

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    fn is_held(parted: &Parted, now: u64) -> bool {
        parted.held_back(InodeId::new(7), at(now)).any(|(node, _)| node == NodeId::new(3))
    }

    /// A client loses a node each time as soon as the node is a member again: how often within a day.
    #[test]
    fn a_set_that_loses_a_node_again_and_again_does_so_more_and_more_seldom() {
        let (mut parted, mut times) = (Parted::default(), Vec::new());
        for second in 0..86_400 {
            if !is_held(&parted, second) {
                parted.on_lost(ONE, InodeId::new(7), NodeId::new(3), at(second));
                times.push(second);
            }
        }
        assert_eq!(times[..6], [0, 20, 60, 140, 300, 620]);
        assert!(times.len() < 145, "once in eleven minutes: {}", times.len());
    }

    #[test]
    fn a_node_present_for_long_starts_with_a_new_count() {
        let mut parted = Parted::default();
        let lose = |parted: &mut Parted, now| parted.on_lost(ONE, InodeId::new(7), NodeId::new(3), at(now));
        lose(&mut parted, 0);
        lose(&mut parted, 5);
        assert!(is_held(&parted, 19) && !is_held(&parted, 20), "told twice is one loss");
        lose(&mut parted, 25);
        assert!(is_held(&parted, 64) && !is_held(&parted, 65));
        lose(&mut parted, 200);
        assert!(is_held(&parted, 219) && !is_held(&parted, 220));
        parted.on_lost(ONE, InodeId::new(8), NodeId::new(3), at(200));
        assert!(is_held(&parted, 210), "files for themselves");
        parted.on_away(NodeId::new(3), at(210));
        assert!(!is_held(&parted, 210), "it was the node");
    }

    #[test]
    fn a_node_that_its_client_reaches_again_is_used_at_once() {
        let mut parted = Parted::default();
        let lose = |parted: &mut Parted, now| parted.on_lost(ONE, InodeId::new(7), NodeId::new(3), at(now));
        let reach = |parted: &mut Parted, holder, node, now| {
            parted.on_reached(holder, &BTreeSet::from([NodeId::new(node)]), at(now));
        };
        lose(&mut parted, 100);
        reach(&mut parted, SessionId::new(2), 3, 101);
        reach(&mut parted, ONE, 4, 101);
        assert!(is_held(&parted, 101), "another client, another node");
        reach(&mut parted, ONE, 3, 101);
        assert!(!is_held(&parted, 101));
        lose(&mut parted, 105);
        assert!(!is_held(&parted, 105), "it was called before");
        lose(&mut parted, 106);
        reach(&mut parted, ONE, 3, 107);
        assert!(is_held(&parted, 145) && !is_held(&parted, 146), "it comes and goes");
        lose(&mut parted, 300);
        reach(&mut parted, ONE, 3, 301);
        assert!(!is_held(&parted, 301), "another story");
        lose(&mut parted, 322);
        reach(&mut parted, ONE, 3, 323);
        assert!(is_held(&parted, 323), "it comes and goes more slowly");
    }

    /// A host is off for less time than it takes the master to miss it.
    #[test]
    fn a_node_that_started_anew_is_used_at_once() {
        let mut parted = Parted::default();
        parted.on_lost(ONE, InodeId::new(7), NodeId::new(3), at(100));
        parted.on_away(NodeId::new(3), at(101));
        assert!(!is_held(&parted, 101), "told before its start");
        parted.on_lost(ONE, InodeId::new(7), NodeId::new(3), at(104));
        assert!(!is_held(&parted, 104), "called before its start");
        parted.on_lost(ONE, InodeId::new(7), NodeId::new(3), at(107));
        assert!(is_held(&parted, 107), "it started, and is not reached");
    }

    #[test]
    fn a_node_that_was_missed_is_used_as_soon_as_it_is_heard() {
        let mut parted = Parted::default();
        (100..=110).for_each(|now| parted.on_away(NodeId::new(3), at(now)));
        parted.on_lost(ONE, InodeId::new(7), NodeId::new(3), at(112));
        assert!(!is_held(&parted, 112), "the client has not heard that it is back");
        parted.on_lost(ONE, InodeId::new(7), NodeId::new(3), at(116));
        assert!(is_held(&parted, 116));
    }

    #[test]
    fn as_much_as_is_remembered_has_a_bound() {
        let mut parted = Parted::default();
        for inode in 0..REMEMBERED_MAX as u64 + 500 {
            parted.on_lost(ONE, InodeId::new(inode), NodeId::new(3), at(inode / 1000));
        }
        assert_eq!(parted.held.len(), REMEMBERED_MAX);
    }
}
