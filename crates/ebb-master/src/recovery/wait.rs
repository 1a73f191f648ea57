//! Whom a recovery waits for, and for how long.
//!
//! What one member alone has is lost with it. So a recovery goes on without a member only when its node is dead or off by
//! plan, or has been waited for long enough; one that boots is back within seconds. Recoveries that wait hold no turn.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::InodeId;
use ebb_wire::pb::NodeState;

/// The second attempt comes so long after the first; the pauses double.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// The longest pause. A node that reports ends all pauses.
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// How long a recovery waits for silent members: what is left of the time after which they are dead, when its holder's session
/// has ended for the same cause. Who waits for the file has more time than that (30 s), so it sees the recovery's end.
#[must_use]
pub fn patience(dead_time: Duration, session_ttl: Duration) -> Duration {
    dead_time.saturating_sub(session_ttl).max(dead_time / 2)
}

/// What is known of a node that has a member.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// As the registry has it; one that this process has not heard of yet is unknown.
    pub state: NodeState,
    /// It has missed heartbeats.
    pub late: bool,
    /// A power plan switches it off.
    pub off: bool,
}

impl Silence {
    /// Whether it is known to be silent before anybody asks.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.late || self.state != NodeState::NodeLive
    }

    /// Whether to wait for it, after the recovery has waited for so long.
    #[must_use]
    pub fn is_waited_for(&self, waited: Duration, longest: Duration) -> bool {
        self.state != NodeState::NodeDead && !self.off && waited < longest
    }
}

/// Recoveries that wait.
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
    /// For how long a file has waited.
    #[must_use]
    pub fn span(&self, inode: InodeId, now: Moment) -> Duration {
        self.files.get(&inode).map_or(Duration::ZERO, |pauses| now.since(pauses.since))
    }

    /// An attempt met silence: the next one comes after a pause.
    pub fn on_attempt(&mut self, inode: InodeId, now: Moment) {
        let pauses = self.files.entry(inode).or_insert(Pauses { since: now, next: PAUSE_MIN });
        self.due.insert((now.after(pauses.next), inode));
        pauses.next = (pauses.next * 2).min(PAUSE_MAX);
    }

    /// It waits no more.
    pub fn on_done(&mut self, inode: InodeId) {
        self.files.remove(&inode);
    }

    /// Files whose pause is over.
    pub fn take_due(&mut self, now: Moment) -> BTreeSet<InodeId> {
        let mut due = BTreeSet::new();
        while let Some((_, inode)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.pop_first();
            due.insert(inode);
        }
        due
    }

    /// All files, whose pauses end now.
    pub fn take_all(&mut self) -> BTreeSet<InodeId> {
        std::mem::take(&mut self.due).into_iter().map(|(_, inode)| inode).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_boots_is_waited_for_and_who_is_dead_or_off_by_plan_is_not() {
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
