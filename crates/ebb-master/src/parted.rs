//! Clients that cannot reach a node which the master hears.
//!
//! Such a client's sets go on without the node. Repair would bring it back at once, and the client would lose it again, for as
//! long as their network is parted. So no copy of that file goes there for a while, and for twice as long each time that it is
//! lost again. Plain values: moments come in as arguments.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{InodeId, NodeId};

/// After the first loss.
const FIRST: Duration = Duration::from_secs(20);
/// At most.
const LONGEST: Duration = Duration::from_secs(20 * 32);
/// Files and nodes that are remembered. Who is forgotten is tried once more.
const REMEMBERED_MAX: usize = 10_000;

/// What is held back.
#[derive(Debug, Default)]
pub struct Parted(BTreeMap<(InodeId, NodeId), Held>);

#[derive(Clone, Copy, Debug)]
struct Held {
    until: Moment,
    span: Duration,
}

impl Parted {
    /// A file's set went on without a node that the master hears.
    pub fn on_lost(&mut self, inode: InodeId, node: NodeId, now: Moment) {
        let known = self.0.get(&(inode, node)).copied();
        if known.is_some_and(|held| now < held.until) {
            return;
        }
        // One that held for long enough is another story.
        let again = known.filter(|held| now < held.until.after(held.span));
        let span = again.map_or(FIRST, |held| (held.span * 2).min(LONGEST));
        self.0.insert((inode, node), Held { until: now.after(span), span });
        if self.0.len() > REMEMBERED_MAX {
            self.0.retain(|_, held| now < held.until.after(held.span));
            let first = self.0.iter().min_by_key(|(_, held)| held.until).map(|(key, _)| *key);
            first.filter(|_| self.0.len() > REMEMBERED_MAX).map(|key| self.0.remove(&key));
        }
    }

    /// The master misses the node, too: it was the node, and not the way there. When it is back it is used at once.
    pub fn on_missed(&mut self, node: NodeId) {
        self.0.retain(|(_, other), _| *other != node);
    }

    /// Nodes that get no copy of this file now, and for how long.
    pub fn held_back(&self, inode: InodeId, now: Moment) -> impl Iterator<Item = (NodeId, Duration)> + '_ {
        let of_file = self.0.range((inode, NodeId::default())..=(inode, NodeId::new(u64::MAX)));
        of_file.filter(move |(_, held)| now < held.until).map(move |((_, node), held)| (*node, held.until.since(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                parted.on_lost(InodeId::new(7), NodeId::new(3), at(second));
                times.push(second);
            }
        }
        assert_eq!(times[..6], [0, 20, 60, 140, 300, 620]);
        assert!(times.len() < 145, "once in eleven minutes: {}", times.len());
    }

    #[test]
    fn who_stayed_for_long_begins_anew() {
        let mut parted = Parted::default();
        let lose = |parted: &mut Parted, now| parted.on_lost(InodeId::new(7), NodeId::new(3), at(now));
        lose(&mut parted, 0);
        lose(&mut parted, 5);
        assert!(is_held(&parted, 19) && !is_held(&parted, 20), "told twice is one loss");
        lose(&mut parted, 25);
        assert!(is_held(&parted, 64) && !is_held(&parted, 65));
        lose(&mut parted, 200);
        assert!(is_held(&parted, 219) && !is_held(&parted, 220));
        parted.on_lost(InodeId::new(8), NodeId::new(3), at(200));
        assert!(is_held(&parted, 210), "files for themselves");
        parted.on_missed(NodeId::new(3));
        assert!(!is_held(&parted, 210), "it was the node");
    }

    #[test]
    fn as_much_as_is_remembered_has_a_bound() {
        let mut parted = Parted::default();
        for inode in 0..REMEMBERED_MAX as u64 + 500 {
            parted.on_lost(InodeId::new(inode), NodeId::new(3), at(inode / 1000));
        }
        assert_eq!(parted.0.len(), REMEMBERED_MAX);
    }
}
