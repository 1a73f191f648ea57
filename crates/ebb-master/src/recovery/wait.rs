//! Waits of recoveries for silent members.
//!
//! Writes that only one member has are lost with it. So a recovery goes on without a member only if its node is dead or
//! off by plan, or was waited for long enough (I-83). A node that boots is back within seconds. A waiting recovery
//! occupies no slot.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::InodeId;
use ebb_wire::pb::NodeState;

/// Pause before the second attempt. The pauses double.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Longest pause. A node that reports ends all pauses.
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// Time for which a recovery waits for silent members.
///
/// It is the rest of the time to a node's death, counted from the end of the holder's session, if both ended for the
/// same cause. Sessions wait longer for the file (30 s), so they see the end of the recovery.
#[must_use]
pub fn patience(dead_time: Duration, session_ttl: Duration) -> Duration {
    dead_time.saturating_sub(session_ttl).max(dead_time / 2)
}

/// The silence of a node with a member.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// State in the registry. A node that this process has never heard is unknown.
    pub state: NodeState,
    /// Whether it has missed heartbeats.
    pub late: bool,
    /// Whether a power plan switches it off.
    pub off: bool,
}

impl Silence {
    /// Whether the node is known to be silent without a call to it.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.late || self.state != NodeState::NodeLive
    }

    /// Whether to wait for the node, after a wait of `waited` already. `longest` is the limit.
    #[must_use]
    pub fn is_waited_for(&self, waited: Duration, longest: Duration) -> bool {
        self.state != NodeState::NodeDead && !self.off && waited < longest
    }
}

/// Recoveries that wait, with their pauses.
#[derive(Debug, Default)]
pub struct Waiting {
    files: BTreeMap<InodeId, Pauses>,
    due: BTreeSet<(Moment, InodeId)>,
}

#[derive(Debug)]
struct Pauses {
    since: Moment,
    next: Duration,
}

impl Waiting {
    /// Time for which a file has waited.
    #[must_use]
    pub fn span(&self, inode: InodeId, now: Moment) -> Duration {
        self.files.get(&inode).map_or(Duration::ZERO, |pauses| now.since(pauses.since))
    }

    /// Records an attempt that met silence. The next one follows after a pause.
    pub fn on_attempt(&mut self, inode: InodeId, now: Moment) {
        let pauses = self.files.entry(inode).or_insert(Pauses { since: now, next: PAUSE_MIN });
        self.due.insert((now.after(pauses.next), inode));
        pauses.next = (pauses.next * 2).min(PAUSE_MAX);
    }

    /// Forgets a file whose recovery is done.
    pub fn on_done(&mut self, inode: InodeId) {
        self.files.remove(&inode);
    }

    /// Removes and returns the files whose pause is over.
    pub fn take_due(&mut self, now: Moment) -> BTreeSet<InodeId> {
        let mut due = BTreeSet::new();
        while let Some((_, inode)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.pop_first();
            due.insert(inode);
        }
        due
    }

    /// Ends all pauses, and returns their files.
    pub fn take_all(&mut self) -> BTreeSet<InodeId> {
        std::mem::take(&mut self.due).into_iter().map(|(_, inode)| inode).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_booting_node_is_waited_for_and_one_that_is_dead_or_off_by_plan_is_not() {
        let longest = patience(Duration::from_secs(30), Duration::from_secs(10));
        assert_eq!(longest, Duration::from_secs(20));
        let silence = |state, off| Silence { state, late: true, off };
        for state in [NodeState::NodeUnknown, NodeState::NodeLive] {
            assert!(silence(state, false).is_waited_for(Duration::ZERO, longest));
            assert!(silence(state, false).is_waited_for(Duration::from_secs(19), longest));
            assert!(!silence(state, false).is_waited_for(longest, longest), "not for ever");
            assert!(!silence(state, true).is_waited_for(Duration::ZERO, longest), "it is off");
        }
        assert!(!silence(NodeState::NodeDead, false).is_waited_for(Duration::ZERO, longest));
    }

    #[test]
    fn pauses_double_and_end_when_a_node_reports() {
        let (mut waiting, file) = (Waiting::default(), InodeId::new(7));
        let mut now = Moment::default();
        let mut pauses = Vec::new();
        for _ in 0..5 {
            waiting.on_attempt(file, now);
            let begin = now;
            while waiting.take_due(now).is_empty() {
                now = now.after(Duration::from_millis(100));
            }
            pauses.push(now.since(begin).as_millis());
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 4000]);
        assert_eq!(waiting.span(file, now), Duration::from_millis(11_500));
        waiting.on_attempt(file, now);
        assert_eq!(waiting.take_all(), BTreeSet::from([file]));
        waiting.on_done(file);
        assert_eq!(waiting.span(file, now), Duration::ZERO);
    }
}
