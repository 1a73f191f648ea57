//! Events in, watts out.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::signal::Forecast;
use crate::signal::iso8601::parse_time;

const RULE: Rule = Rule {
    normal_watts: None,
    level_shares: [1.0, 0.75, 0.5, 0.0],
    money_per_hour: Some(0.02),
    grams_per_hour: Some(50.0),
};
const MOST: f64 = 265.0;
const HOUR: u64 = 3_600_000;

fn ms(text: &str) -> u64 {
    u64::try_from(parse_time(text).unwrap()).unwrap()
}

fn noon() -> u64 {
    ms("2026-06-15T12:00:00Z")
}

/// An event from noon on, of intervals of one hour with these payloads.
fn event(payloads: &[(&str, Value)]) -> Value {
    let interval = |(index, (kind, values)): (usize, &(&str, Value))| json!({ "id": index, "payloads": [{ "type": kind, "values": values }] });
    json!({
        "id": "e1", "objectType": "EVENT", "programID": "44", "eventName": "test",
        "createdDateTime": "2026-06-15T11:00:00Z",
        "intervalPeriod": { "start": "2026-06-15T12:00:00Z", "duration": "PT1H" },
        "intervals": payloads.iter().enumerate().map(interval).collect::<Vec<_>>(),
    })
}

fn parse(events: &[Value]) -> Calendar {
    Calendar::parse(events, &[]).unwrap()
}

fn watts(calendar: &Calendar, at_ms: u64) -> f64 {
    let Supply::Watts(watts) = RULE.supply_at(calendar, at_ms, MOST) else { panic!("watts") };
    watts
}

fn refused(event: Value) -> String {
    Calendar::parse(&[event], &[]).unwrap_err().to_string()
}

#[test]
fn each_payload_means_its_watts_while_it_lasts() {
    let calendar = parse(&[event(&[
        ("IMPORT_CAPACITY_LIMIT", json!([0.1])),
        ("SIMPLE", json!([2])),
        ("PRICE", json!([0.17])),
        ("GHG", json!([500])),
        ("PRICE", json!([-0.05])),
    ])]);
    let hours: Vec<f64> = (0..6).map(|hour| watts(&calendar, noon() + hour * HOUR).round()).collect();
    assert_eq!(hours, [100.0, 133.0, 118.0, 100.0, 265.0, 265.0]);
    assert_eq!(watts(&calendar, noon() - 1), MOST);
    assert_eq!(calendar.holds_for(noon() - 5), Some(Duration::from_millis(5)));
    assert_eq!(calendar.holds_for(noon()), Some(Duration::from_millis(HOUR)));
    assert_eq!(calendar.holds_for(noon() + 5 * HOUR), None);
    // Without a budget a price is no limit.
    let unbudgeted = Rule { money_per_hour: None, ..RULE };
    assert_eq!(unbudgeted.supply_at(&calendar, noon() + 2 * HOUR, MOST), Supply::Watts(MOST));
    let normal = Rule { normal_watts: Some(200.0), ..RULE };
    assert_eq!(normal.supply_at(&calendar, noon() + HOUR, MOST), Supply::Watts(100.0));
    assert_eq!(normal.supply_at(&Calendar::default(), noon(), 150.0), Supply::Watts(150.0));
}

#[test]
fn the_least_counts_and_priority_goes_first_within_a_type() {
    let with = |limit: f64, priority: Value| {
        let mut event = event(&[("IMPORT_CAPACITY_LIMIT", json!([limit]))]);
        event["priority"] = priority;
        event
    };
    let simple = event(&[("SIMPLE", json!([1]))]);
    assert_eq!(watts(&parse(&[with(0.25, json!(1)), with(0.05, Value::Null)]), noon()), 250.0);
    assert_eq!(watts(&parse(&[with(0.05, Value::Null), with(0.25, json!(0)), with(0.24, json!(0))]), noon()), 240.0);
    assert_eq!(watts(&parse(&[with(0.25, json!(0)), simple]), noon()), 0.75 * MOST);
}

#[test]
fn several_values_share_an_interval_and_intervals_may_be_unequal() {
    let mut prices = event(&[("PRICE", json!([0.1, 0.2, 0.4])), ("PRICE", json!([0.8]))]);
    prices["intervals"][0]["intervalPeriod"] = json!({ "duration": "PT3H" });
    let calendar = parse(&[prices]);
    let hours: Vec<f64> = (0..5).map(|hour| watts(&calendar, noon() + hour * HOUR).round()).collect();
    assert_eq!(hours, [200.0, 100.0, 50.0, 25.0, 265.0]);
}

#[test]
fn an_event_can_be_repeated_or_cut_short() {
    let mut daily = event(&[("SIMPLE", json!([3])), ("SIMPLE", json!([0]))]);
    daily["duration"] = json!("P9999Y");
    let calendar = parse(&[daily.clone()]);
    for turn in [0, 1, 2, 9_999] {
        assert_eq!(watts(&calendar, noon() + turn * 2 * HOUR), 0.0);
        assert_eq!(watts(&calendar, noon() + (turn * 2 + 1) * HOUR), MOST);
        assert_eq!(calendar.holds_for(noon() + turn * 2 * HOUR + 7), Some(Duration::from_millis(HOUR - 7)));
    }
    assert_eq!(watts(&calendar, noon() - 1), MOST);
    daily["duration"] = json!("PT30M");
    let calendar = parse(&[daily]);
    assert_eq!((watts(&calendar, noon() + HOUR / 2 - 1), watts(&calendar, noon() + HOUR / 2)), (0.0, MOST));
    assert_eq!(calendar.holds_for(noon()), Some(Duration::from_millis(HOUR / 2)));
    assert_eq!(calendar.holds_for(noon() + HOUR / 2), None);
}

#[test]
fn do_it_now_begins_when_it_was_said() {
    for start in ["0001-01-01", "0001-01-01T00:00:00Z", "0000-00-00"] {
        let mut alert = event(&[("SIMPLE", json!([3]))]);
        alert["intervalPeriod"] = json!({ "start": start, "duration": "P9999Y" });
        let calendar = parse(&[alert.clone()]);
        assert_eq!((watts(&calendar, noon() - HOUR - 1), watts(&calendar, noon() + HOUR)), (MOST, 0.0));
        assert_eq!(calendar.holds_for(noon()), None);
        alert["createdDateTime"] = Value::Null;
        assert!(refused(alert).contains("an interval without a start"));
    }
}

#[test]
fn targets_choose_events() {
    let mut ours = event(&[("SIMPLE", json!([3]))]);
    let counts = |event: &Value, targets: &[&str]| {
        let targets: Vec<String> = targets.iter().map(|target| (*target).to_owned()).collect();
        Calendar::parse(std::slice::from_ref(event), &targets).unwrap().count()
    };
    assert_eq!((counts(&ours, &["a"]), counts(&ours, &[])), (1, 1));
    ours["targets"] = json!(["a", "b"]);
    assert_eq!((counts(&ours, &["b"]), counts(&ours, &["c"]), counts(&ours, &[])), (1, 0, 1));
    ours["targets"] = json!([{ "type": "GROUP", "values": ["a"] }]);
    assert_eq!((counts(&ours, &["a"]), counts(&ours, &["c"])), (1, 0));
}

#[test]
fn an_event_that_cannot_be_read_refuses_the_answer_and_one_about_other_things_does_not() {
    let with = |key: &str, value: Value| {
        let mut event = event(&[("IMPORT_CAPACITY_LIMIT", json!([1]))]);
        event[key] = value;
        event
    };
    let said = refused(with("intervalPeriod", json!({ "start": "soon" })));
    assert!(said.contains("event test") && said.contains("soon"), "{said}");
    assert!(refused(with("intervalPeriod", json!({ "duration": 5 }))).contains("no text"));
    assert!(refused(with("intervals", json!({}))).contains("intervals is no list"));
    assert!(refused(with("priority", json!(-1))).contains("priority of -1"));
    assert!(refused(with("duration", json!("P1M"))).contains("months"));
    let in_amperes = json!([{ "payloadType": "IMPORT_CAPACITY_LIMIT", "units": "AMPS" }]);
    assert!(refused(with("payloadDescriptors", in_amperes)).contains("AMPS"));
    for (kind, values) in [
        ("IMPORT_CAPACITY_LIMIT", json!([-1])),
        ("IMPORT_CAPACITY_LIMIT", json!(["1"])),
        ("IMPORT_CAPACITY_LIMIT", json!([])),
        ("SIMPLE", json!([4])),
        ("SIMPLE", json!([0.5])),
        ("GHG", json!([-1])),
        ("PRICE", json!([null])),
    ] {
        let said = refused(event(&[(kind, values.clone())]));
        assert!(said.contains("value"), "{kind} {values}: {said}");
    }
    assert!(refused(json!(7)).contains("no object"));
    let mut other = event(&[("ALERT_FLEX_ALERT", json!(["be careful"])), ("DISPATCH_SETPOINT", json!([5]))]);
    other["intervalPeriod"] = json!({ "start": "soon" });
    assert_eq!(parse(&[other, json!({ "eventName": "report only" })]).count(), 0);
    let many = vec![json!({}); EVENTS_MAX + 1];
    assert!(Calendar::parse(&many, &[]).is_err());
    let long = event(&[("PRICE", Value::from(vec![1.0; WINDOWS_MAX + 1]))]);
    assert!(refused(long).contains("more than"));
}

#[test]
fn a_rule_must_be_possible() {
    RULE.check().unwrap();
    for wrong in [
        Rule { level_shares: [0.5, 0.75, 0.5, 0.0], ..RULE },
        Rule { level_shares: [1.5, 0.75, 0.5, 0.0], ..RULE },
        Rule { level_shares: [1.0, f64::NAN, 0.5, 0.0], ..RULE },
        Rule { normal_watts: Some(0.0), ..RULE },
        Rule { money_per_hour: Some(-1.0), ..RULE },
        Rule { grams_per_hour: Some(f64::NAN), ..RULE },
    ] {
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}

/// Any of the values that an event could have, possible or not.
fn words() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        (-1e12_f64..1e12).prop_map(Value::from),
        Just(json!("PT15M")),
        Just(json!("P9999Y")),
        Just(json!("2026-06-15T12:00:00Z")),
        Just(json!("0001-01-01")),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!([1, 2])),
        Just(json!({})),
    ]
}

proptest! {
    /// Whatever a server says, the power is from 0 to the most, also in a forecast.
    #[test]
    fn no_answer_gives_more_than_the_most(
        start in words(), length in words(), duration in words(), priority in words(), values in proptest::collection::vec(words(), 0..4),
        kind in prop_oneof![Just("SIMPLE"), Just("PRICE"), Just("GHG"), Just("IMPORT_CAPACITY_LIMIT"), Just("CURVE")],
        normal in proptest::option::of(0.1_f64..1e4), most in 0.0_f64..1e3, at_ms in any::<u64>(),
    ) {
        let mut event = event(&[(kind, Value::from(values))]);
        event["intervalPeriod"] = json!({ "start": start, "duration": length });
        event["duration"] = duration;
        event["priority"] = priority;
        if let Ok(calendar) = Calendar::parse(&[event], &[]) {
            let rule = Rule { normal_watts: normal, ..RULE };
            for at_ms in [at_ms, noon(), noon() + HOUR, u64::MAX] {
                let Supply::Watts(watts) = rule.supply_at(&calendar, at_ms, most) else { panic!("watts") };
                prop_assert!((0.0..=most).contains(&watts), "{watts} W");
                prop_assert!(calendar.holds_for(at_ms).is_none_or(|left| !left.is_zero()));
            }
        }
    }

    /// Between two changes the supply is the same, so the mean of a forecast is the mean of the supplies.
    #[test]
    fn a_forecast_has_the_energy_of_the_events(
        levels in proptest::collection::vec(0_usize..LEVELS, 1..12), minutes in 1_u64..40, turns in 0_u64..5, from in 0_u64..600,
    ) {
        let payloads: Vec<_> = levels.iter().map(|level| ("SIMPLE", json!([level]))).collect();
        let mut event = event(&payloads);
        event["intervalPeriod"]["duration"] = json!(format!("PT{minutes}M"));
        event["duration"] = json!(format!("PT{}M", turns * minutes * levels.len() as u64 + 3));
        let calendar = parse(&[event]);
        let now_ms = noon() + from * 60_000 - HOUR;
        let span = Duration::from_secs(3_600);
        let forecast = Forecast::of(span, MOST, |after| {
            let at_ms = now_ms + u64::try_from(after.as_millis()).unwrap();
            (watts(&calendar, at_ms), calendar.holds_for(at_ms))
        });
        let means = forecast.watts_per_step(Duration::from_secs(60), 60);
        for (minute, mean) in means.into_iter().enumerate() {
            prop_assert!((mean - watts(&calendar, now_ms + minute as u64 * 60_000)).abs() < 1e-9);
        }
    }
}
