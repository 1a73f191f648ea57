//! The answer to `ebb power status`.

use std::time::Duration;

use ebb_power::manager::absence::Absence;
use ebb_power::signal::Origin;
use ebb_power::{Duty, NodeState};
use ebb_types::{NodeId, Result, bail};
use ebb_wire::pb;

use crate::feed::Feed;
use crate::manager::PowerManager;

/// Steps of the forecast that are shown.
const STEP: Duration = Duration::from_secs(60);
const STEPS: usize = 60;
/// How often absences are expected anew: a policy weighs many plans for it.
const EXPECT: Duration = Duration::from_secs(2);

/// A state as the power client reports it; none if it does not know.
pub(crate) const fn state(powered: pb::PoweredState) -> Option<NodeState> {
    match powered {
        pb::PoweredState::PoweredAsleep => Some(NodeState::Asleep),
        pb::PoweredState::PoweredWaking => Some(NodeState::Waking),
        pb::PoweredState::PoweredAwake => Some(NodeState::Awake),
        pb::PoweredState::PoweredFallingAsleep => Some(NodeState::FallingAsleep),
        pb::PoweredState::PoweredUnknown | pb::PoweredState::PoweredGone => None,
    }
}

/// Answers `PowerStatus`.
pub(crate) fn status(manager: &PowerManager) -> Result<pb::PowerStatusReply> {
    let now = manager.now();
    let mut state = manager.state.lock();
    let state = &mut *state;
    let (Some(core), Some(known)) = (&state.core, &state.known) else {
        bail!(Unavailable, "the power manager does not know the cluster yet: ask again in a moment");
    };
    let foreseen = state.foreseen.as_ref();
    if state.absences.as_ref().is_none_or(|(at, _)| now.moment.saturating_sub(*at) >= EXPECT) {
        state.absences = Some((now.moment, core.expected_absences(now, &known.core(foreseen))));
    }
    let absences = state.absences.iter().flat_map(|(_, absences)| absences);
    let sample = core.sample(now);
    let plan = core.plans().at(now.wall_ms);
    let (account, hardware) = (core.account(), &known.hardware);
    let node = |id: &NodeId| {
        let reported = state.seen.nodes.iter().find(|one| one.node == id.raw()).cloned().unwrap_or_default();
        let (start_ms, active_ms) = match plan.and_then(|plan| Some((plan, plan.nodes.get(id)?.duty))) {
            Some((_, Duty::Blink { start_ms, active_ms })) => (start_ms, active_ms),
            Some((plan, duty)) => (0, duty.active_ms(plan.interval_ms)),
            None => (0, state.settings.interval_ms),
        };
        let watts = match reported.state() {
            pb::PoweredState::PoweredAsleep => hardware.node(*id).map_or(0.0, |power| power.asleep_watts),
            pb::PoweredState::PoweredGone => 0.0,
            _ => hardware.node(*id).map_or(0.0, |power| power.active_watts),
        };
        pb::PowerNode {
            id: id.raw(),
            state: reported.state,
            watts,
            start_s: start_ms as f64 / 1000.0,
            active_s: active_ms as f64 / 1000.0,
            pids: reported.pids,
            wakes: reported.wakes,
            joules: account.nodes.get(id).map_or(0.0, |account| account.joules),
            host: known.hosts.get(id).cloned().unwrap_or_default(),
            hosts_served: known.lsns.get(id).map_or(0, |lsn| lsn.hosts),
            stored_bytes: known.lsns.get(id).map_or(0, |lsn| lsn.stored_bytes),
        }
    };
    let nodes: Vec<pb::PowerNode> = hardware.nodes().keys().map(node).collect();
    let source = match sample.origin {
        Origin::Override => "operator".to_owned(),
        Origin::Source => state.settings.feed.as_ref().map_or_else(|| "no source: full power".to_owned(), Feed::name),
        Origin::Fallback(doubt) => format!("fallback: {doubt}"),
    };
    Ok(pb::PowerStatusReply {
        policy: core.settings().policy.name().to_owned(),
        plan_version: core.plans().version().raw(),
        budget_watts: hardware.cluster_watts(sample.supply),
        drawn_watts: hardware.base_watts() + nodes.iter().map(|node| node.watts).sum::<f64>(),
        joules: account.joules,
        source,
        why: plan.map_or_else(String::new, |plan| known.sentence(plan)),
        held_back: state.held_back.as_ref().map_or_else(String::new, ToString::to_string),
        over_joules: account.over_joules,
        battery_joules: core.battery().charge_joules,
        interval_ms: plan.map_or(state.settings.interval_ms, |plan| plan.interval_ms),
        base_watts: hardware.base_watts(),
        served_bytes: account.served_bytes,
        away: known.away.clone(),
        forecast: foreseen.map_or_else(String::new, |foreseen| foreseen.origin.clone()),
        forecast_watts: foreseen.map_or_else(Vec::new, |foreseen| foreseen.forecast.watts_per_step(STEP, STEPS)),
        absences: absences.map(|of| absence(of, now.wall_ms)).collect(),
        nodes,
    })
}

fn absence((node, absence): (&NodeId, &Absence), now_ms: u64) -> pb::ExpectedAbsence {
    pb::ExpectedAbsence {
        node: node.raw(),
        leaves_in_ms: absence.leaves_ms.saturating_sub(now_ms),
        lasts_ms: absence.returns_ms.map(|returns| returns.saturating_sub(absence.leaves_ms)),
    }
}
