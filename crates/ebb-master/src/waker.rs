//! Whether a silent node had a chance to speak. Pure.
//!
//! A node that sleeps by plan speaks again when the power client has woken it. While the power client is absent
//! (killed, frozen, its host down), nodes miss their turns and are silent without being broken. To take them for dead
//! would give up their copies. I-61.

use std::time::Duration;

use ebb_power::Timetable;
use ebb_runtime::Moment;
use ebb_types::NodeId;
use ebb_wire::pb;

use crate::registry::Heartbeat;

/// The power client, as last heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waker {
    heard: Moment,
    /// Time before that for which it had woken nodes by plan without a gap.
    kept: Duration,
}

impl Waker {
    /// Records that the power client asks for plans.
    pub fn on_watch(call: &pb::WatchPower, now: Moment) -> Self {
        Self { heard: now, kept: Duration::from_millis(call.kept_ms) }
    }
}

/// The silence of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    pub node: NodeId,
    pub silent: Duration,
    /// Time for which the node is waited for while it is awake.
    pub patience: Duration,
}

/// Whether the node owed a heartbeat: it was awake without being woken, or the power client was there to wake it.
/// `wall_ms` is this moment in milliseconds since the Unix epoch.
pub(crate) fn owed_heartbeat(
    plans: &Timetable,
    waker: Option<Waker>,
    silence: Silence,
    now: Moment,
    wall_ms: u64,
) -> Heartbeat {
    let Silence { node, silent, patience } = silence;
    let (from_ms, until_ms) = if plans.serves_throughout(node, before(wall_ms, silent), wall_ms) {
        (before(wall_ms, silent), wall_ms)
    } else if let Some(Waker { heard, kept }) = waker {
        let since_heard = now.since(heard);
        (before(wall_ms, silent.min(since_heard.saturating_add(kept))), before(wall_ms, since_heard))
    } else {
        (wall_ms, wall_ms)
    };
    if from_ms < until_ms && plans.is_overdue(node, from_ms, until_ms, millis(patience)) {
        Heartbeat::Owed
    } else if plans.next_wake_ms(node, wall_ms).is_none() {
        Heartbeat::Off
    } else {
        Heartbeat::NotYet
    }
}

/// The span in whole milliseconds.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The moment `span` before `now_ms`.
pub(crate) fn before(now_ms: u64, span: Duration) -> u64 {
    now_ms.saturating_sub(millis(span))
}

#[cfg(test)]
mod tests {
    use ebb_power::{Duty, NodePlan, OutOfReach, PolicyKind, PowerPlan};
    use ebb_types::PlanVersion;

    use super::*;

    const NODE: NodeId = NodeId::new(1);
    const SECOND: Duration = Duration::from_secs(1);

    /// In force since `start_ms`, with an interval of a second.
    fn plans(duty: Duty, start_ms: u64) -> Timetable {
        let plan = PowerPlan {
            version: PlanVersion::new(1),
            policy: PolicyKind::BlinkCircular,
            start_ms,
            interval_ms: 1_000,
            guard_ms: 0,
            budget_mw: 0,
            nodes: [(NODE, NodePlan { duty, ready_ms: 0, wake_ms: 0, suspend_ms: 0 })].into(),
            stalled: Vec::new(),
            out_of_reach: OutOfReach::default(),
            why: String::new(),
        };
        let mut plans = Timetable::default();
        plans.accept(plan, start_ms).unwrap();
        plans
    }

    /// At 100 s, of a node that was heard 20 s ago and has 5 s.
    fn heartbeat(plans: &Timetable, waker: Option<Waker>) -> Heartbeat {
        let silence = Silence { node: NODE, silent: SECOND * 20, patience: SECOND * 5 };
        owed_heartbeat(plans, waker, silence, Moment::default().after(SECOND * 100), 100_000)
    }

    fn heard(at: u32, kept: Duration) -> Option<Waker> {
        Some(Waker { heard: Moment::default().after(SECOND * at), kept })
    }

    #[test]
    fn a_node_that_takes_turns_is_waited_for_while_no_waker_is_known() {
        let blinks = plans(Duty::Blink { start_ms: 0, active_ms: 200 }, 0);
        assert_eq!(heartbeat(&blinks, None), Heartbeat::NotYet, "no power client has been heard");
        assert_eq!(heartbeat(&blinks, heard(99, SECOND * 60)), Heartbeat::Owed);
        assert_eq!(heartbeat(&blinks, heard(99, SECOND)), Heartbeat::NotYet, "it has not been there for long");
        assert_eq!(heartbeat(&blinks, heard(82, SECOND * 60)), Heartbeat::NotYet, "it is gone since");
        assert_eq!(heartbeat(&blinks, heard(100, SECOND * 7)), Heartbeat::Owed, "it is back, and has had its time");
        let off = plans(Duty::Off, 0);
        assert_eq!((heartbeat(&off, None), heartbeat(&off, heard(99, SECOND * 60))), (Heartbeat::Off, Heartbeat::Off));
    }

    #[test]
    fn a_node_that_is_on_needs_no_waker_and_one_that_came_on_does() {
        assert_eq!(heartbeat(&Timetable::default(), None), Heartbeat::Owed, "there are no plans");
        assert_eq!(heartbeat(&plans(Duty::On, 80_000), None), Heartbeat::Owed);
        let since = plans(Duty::On, 81_000);
        assert_eq!(heartbeat(&since, None), Heartbeat::NotYet, "it may have slept before that plan");
        assert_eq!(heartbeat(&since, heard(99, SECOND * 60)), Heartbeat::Owed);
    }
}
