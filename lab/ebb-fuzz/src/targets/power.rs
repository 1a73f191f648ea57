//! Plans, power sources, and what the power manager keeps.

use std::collections::BTreeMap;

use ebb_power::PolicyKind;
use ebb_power::plan::timetable::Timetable;
use ebb_power::plan::{Duty, NodePlan, OutOfReach, PowerPlan};
use ebb_power::signal::nut::Listing;
use ebb_power::signal::ups::{UpsReading, UpsRule};
use ebb_power::signal::{End, Prediction, Trace};
use ebb_power_drivers::fuzz as client;
use ebb_power_manager::fuzz as manager;
use ebb_types::{DatasetId, NodeId, PlanVersion};

use crate::target::{Cap, Shape, Target, nothing};

/// A thing of so many bytes is a tree of values, and its text is kept beside it.
const JSON: Cap = Cap { base: 64 << 10, times: 64 };

pub(super) const PLAN: Target = Target {
    name: "power/plan",
    source: "a peer, the master's log",
    cap: Cap { base: 16 << 10, times: 16 },
    shape: Shape::Bytes,
    cases: 10_000,
    decode: |bytes| {
        let Ok(plan) = PowerPlan::decode(bytes) else { return false };
        let again = PowerPlan::decode(&plan.encode());
        assert!(again.is_ok_and(|again| again == plan), "a plan comes back");
        let mut timetable = Timetable::default();
        let first = plan.nodes.keys().next().copied().unwrap_or_default();
        let _ = timetable.accept(plan.clone(), 0);
        for at_ms in [0, plan.start_ms, plan.start_ms.saturating_add(plan.interval_ms), u64::MAX >> 11] {
            let other = plan.nodes.keys().last().copied().unwrap_or_default();
            let _ = (plan.is_awake(first, at_ms), plan.awake_for(first, at_ms), plan.next_wake_ms(first, at_ms));
            let _ = (plan.next_switch(first, at_ms), plan.next_state_ms(first, at_ms));
            let _ = (plan.next_meeting(first, other, at_ms, 10), timetable.next_action(first, at_ms));
            let _ = (timetable.awake_for(first, at_ms), timetable.next_switch(first, at_ms));
        }
        true
    },
    samples: || {
        let node = |duty| NodePlan { duty, ready_ms: 900, wake_ms: 50, suspend_ms: 20 };
        let duties = [Duty::On, Duty::Off, Duty::Blink { start_ms: 100, active_ms: 500 }];
        let nodes = (1..).map(NodeId::new).zip(duties.map(node)).collect::<BTreeMap<_, _>>();
        let plan = |nodes| PowerPlan {
            version: PlanVersion::new(3),
            policy: PolicyKind::Tide,
            start_ms: 1000,
            interval_ms: 2000,
            guard_ms: 10,
            budget_mw: 90_000,
            nodes,
            stalled: vec![DatasetId::new(4)],
            out_of_reach: OutOfReach { metablocks: 7, example: "/a".to_owned() },
            why: "the sun is low".to_owned(),
        };
        vec![plan(BTreeMap::new()).encode(), plan(nodes).encode()]
    },
    repair: nothing,
};

pub(super) const TRACE: Target = Target {
    name: "power/trace",
    source: "an operator's CSV file",
    cap: Cap { base: 16 << 10, times: 64 },
    shape: Shape::Text,
    cases: 8_000,
    decode: |bytes| {
        let Ok(trace) = Trace::parse("t.csv", &String::from_utf8_lossy(bytes)) else { return false };
        for factor in [1.0, 1e-3, 1e6] {
            let Ok(trace) = trace.clone().compressed(factor) else { continue };
            for end in [End::Repeat, End::Hold] {
                for seconds in [0.0, 1.5, 1e5, 1e12] {
                    assert!(trace.at(seconds, end).value >= 0.0);
                    assert!(trace.holds_for(seconds, end).is_none_or(|left| left >= 0.0), "{seconds} s of {trace:?}");
                }
            }
            assert!(trace.mean() >= 0.0 && trace.length_s() > 0.0, "{trace:?}");
        }
        true
    },
    samples: || {
        [
            "# sun\nseconds,watts\n100, 50\n160, 80\n220,20\n",
            "seconds,watts,price\n0,5,0.1\n900,6,0.2\n",
            "seconds,fraction\n0,0.5\n30,0.2\n100,1\n105,0\n",
            "seconds,price\n0,4\n",
            "seconds,carbon\n0,250\n1800,0\n",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
    repair: nothing,
};

pub(super) const FOLLOW: Target = Target {
    name: "power/follow",
    source: "an operator's call",
    cap: Cap { base: 64 << 10, times: 64 },
    shape: Shape::Message(0),
    cases: 5_000,
    decode: manager::follow,
    samples: manager::calls,
    repair: nothing,
};

pub(super) const SETTINGS: Target = Target {
    name: "power/settings",
    source: "settings.json",
    cap: JSON,
    shape: Shape::Text,
    cases: 5_000,
    decode: manager::settings,
    samples: manager::all_settings,
    repair: nothing,
};

pub(super) const ACCOUNT: Target = Target {
    name: "power/account",
    source: "account.json",
    cap: JSON,
    shape: Shape::Text,
    cases: 5_000,
    decode: manager::account,
    samples: manager::accounts,
    repair: nothing,
};

pub(super) const UPS: Target = Target {
    name: "power/ups",
    source: "upsd",
    cap: Cap { base: 64 << 10, times: 64 },
    shape: Shape::Text,
    cases: 5_000,
    decode: |bytes| {
        let mut listing = Listing::default();
        let mut has_supply = false;
        for line in String::from_utf8_lossy(bytes).lines() {
            let Ok(parsed) = listing.on_line(line) else { break };
            let Some(reading) = parsed.and_then(|variables| UpsReading::from_variables(&variables).ok()) else {
                continue;
            };
            let rule = UpsRule {
                mains_watts: 200.0,
                bridge: std::time::Duration::from_secs(600),
                capacity_joules: Some(1e6),
                reserve: 0.1,
            };
            has_supply |= rule.supply(&reading, std::time::Duration::from_secs(5)).is_ok();
        }
        has_supply
    },
    samples: || {
        let listing = "BEGIN LIST VAR ups\nVAR ups ups.status \"OB LB\"\nVAR ups battery.charge \"80\"\n\
             VAR ups battery.runtime \"600\"\nVAR ups ups.load \"30\"\nVAR ups ups.realpower.nominal \"900\"\nEND LIST VAR ups\n";
        let on_line = listing.replace("OB LB", "OL CHRG").replace("VAR ups ups.load \"30\"\n", "");
        vec![listing.into(), on_line.into_bytes(), b"ERR DATA-STALE\n".to_vec()]
    },
    repair: nothing,
};

pub(super) const REDFISH: Target = Target {
    name: "power/redfish",
    source: "a management controller",
    cap: JSON,
    shape: Shape::Text,
    cases: 5_000,
    decode: client::redfish,
    samples: client::answers,
    repair: nothing,
};

pub(super) const CARBON: Target = Target {
    name: "power/carbon",
    source: "a carbon service",
    cap: JSON,
    shape: Shape::Text,
    cases: 5_000,
    decode: client::carbon,
    samples: client::intensities,
    repair: nothing,
};

pub(super) const OPENADR: Target = Target {
    name: "power/openadr",
    source: "an OpenADR server",
    cap: JSON,
    shape: Shape::Text,
    cases: 5_000,
    decode: client::openadr,
    samples: client::openadr_answers,
    repair: nothing,
};

pub(super) const PREDICTION: Target = Target {
    name: "power/prediction",
    source: "an operator's CSV file",
    cap: Cap { base: 16 << 10, times: 64 },
    shape: Shape::Text,
    cases: 5_000,
    decode: |bytes| {
        let Ok(prediction) = Prediction::parse("p.csv", &String::from_utf8_lossy(bytes)) else { return false };
        for now_s in [0, 1_700_000_030, 1 << 40] {
            let hour = std::time::Duration::from_secs(3_600);
            let forecast = prediction.forecast(std::time::Duration::from_secs(now_s), 70.0, hour, 265.0);
            assert!(forecast.steps().iter().all(|step| (0.0..=265.0).contains(&step.watts)), "{prediction:?}");
        }
        true
    },
    samples: || vec![b"# tomorrow\nunix_seconds,watts\n1700000000,100\n1700000060,40\n1700000120,70\n".to_vec()],
    repair: nothing,
};

pub(super) const IPMITOOL: Target = Target {
    name: "power/ipmitool",
    source: "ipmitool",
    cap: Cap { base: 4 << 10, times: 16 },
    shape: Shape::Text,
    cases: 3_000,
    decode: client::ipmitool,
    samples: client::states,
    repair: nothing,
};
