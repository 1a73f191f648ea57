//! Routes between two nodes under the power plans: direct when both are awake, or by a proxy.

use ebb_power::Timetable;
use ebb_types::NodeId;

/// Route of a copy. A lesser route is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Route {
    /// From node to node, when both are awake.
    Direct {
        /// Time until then, in milliseconds. 0 means that both are awake now.
        wait_ms: u64,
    },
    /// By a proxy, because the two are never awake together for long enough.
    ByProxy,
}

/// Chooses the route from `source` to `target`. The nodes must be awake together for `need_ms`. `None` means that a
/// plan has switched one of them off.
#[must_use]
pub fn choose_route(plans: &Timetable, source: NodeId, target: NodeId, now_ms: u64, need_ms: u64) -> Option<Route> {
    plans.next_wake_ms(source, now_ms)?;
    plans.next_wake_ms(target, now_ms)?;
    Some(match plans.next_meeting_ms(source, target, now_ms, need_ms) {
        Some(met_ms) => Route::Direct { wait_ms: met_ms.saturating_sub(now_ms) },
        None => Route::ByProxy,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ebb_power::{Duty, NodePlan, OutOfReach, PolicyKind, PowerPlan};
    use ebb_types::PlanVersion;

    use super::*;

    fn node(duty: Duty) -> NodePlan {
        NodePlan { duty, ready_ms: 0, wake_ms: 0, suspend_ms: 0 }
    }

    #[test]
    fn nodes_that_never_serve_together_go_through_a_proxy_and_a_node_that_is_off_has_no_route() {
        let blinks = |start_ms, active_ms| node(Duty::Blink { start_ms, active_ms });
        let nodes = [blinks(0, 500), blinks(400, 500), blinks(1_000, 500), node(Duty::On), node(Duty::Off)];
        let nodes: BTreeMap<NodeId, NodePlan> = (1..).map(NodeId::new).zip(nodes).collect();
        let plan = PowerPlan {
            version: PlanVersion::new(1),
            policy: PolicyKind::BlinkCircular,
            start_ms: 0,
            interval_ms: 2_000,
            guard_ms: 0,
            budget_mw: 0,
            nodes,
            stalled: Vec::new(),
            out_of_reach: OutOfReach::default(),
            why: String::new(),
        };
        let mut plans = Timetable::default();
        plans.accept(plan, 0).unwrap();
        let way =
            |source, target, need_ms| choose_route(&plans, NodeId::new(source), NodeId::new(target), 10_000, need_ms);
        assert_eq!(way(1, 2, 50), Some(Route::Direct { wait_ms: 400 }));
        assert_eq!(way(1, 2, 200), Some(Route::ByProxy), "they serve together for 100 ms");
        assert_eq!(way(1, 3, 1), Some(Route::ByProxy));
        assert_eq!(way(4, 3, 100), Some(Route::Direct { wait_ms: 1_000 }));
        assert_eq!((way(5, 4, 1), way(4, 5, 1)), (None, None));
        assert!(Route::Direct { wait_ms: u64::MAX } < Route::ByProxy, "the shorter way is the lesser");
    }
}
