use proptest::prelude::*;

use super::*;

const FULL: f64 = 225.0;
const RESERVE: f64 = 540.0;

fn battery(filled: f64) -> Battery {
    let battery = Battery::full(FULL, 300.0);
    Battery { charge_joules: battery.capacity_joules * filled, ..battery }
}

const MINUTE: Duration = Duration::from_secs(60);

fn bounds(battery: &Battery) -> Bounds {
    let end = battery.charge_joules.max(battery.capacity_joules / 2.0);
    Bounds { reserve: RESERVE, end, full: FULL }
}

#[test]
fn a_steady_supply_is_its_own_level() {
    for filled in [0.5, 0.7, 1.0] {
        let level = tightest(&battery(filled), bounds(&battery(filled)), &[112.5; 60], MINUTE);
        assert!((level - 112.5).abs() < 1e-9, "{filled}: {level}");
    }
    let low = tightest(&battery(0.1), bounds(&battery(0.1)), &[112.5; 60], MINUTE);
    assert!(low < 112.5 && low > 100.0, "an empty battery is charged at leisure: {low}");
}

/// The full oscillation of BlinkFS: five minutes of 90 %, five of nothing. The mean is 45 %.
#[test]
fn an_oscillation_gives_its_mean_at_every_moment() {
    let swing = |minute: usize| if (minute / 5).is_multiple_of(2) { 0.9 * FULL } else { 0.0 };
    let mut battery = battery(0.5);
    let mut charges = Vec::new();
    for minute in 0..120 {
        let forecast: Vec<f64> = (minute..minute + 60).map(swing).collect();
        let level = tightest(&battery, bounds(&battery), &forecast, MINUTE);
        assert!((level - 0.45 * FULL).abs() < 2.0, "{level} W in minute {minute}");
        assert_eq!(battery.pass(swing(minute), level, 60_000).missing_joules, 0.0);
        charges.push(battery.charge_joules);
    }
    assert!(charges.iter().all(|charge| *charge >= RESERVE), "{charges:?}");
}

/// The mean of a minute is no level for a battery that lasts for seconds: with it half of the supply was spilled.
#[test]
fn a_battery_of_seconds_is_planned_in_seconds() {
    let hardware = Hardware::uniform(40.0, 9, crate::hardware::NodePower::REFERENCE).unwrap();
    let step = |seconds: f64| forecast_step(&hardware, &Battery::full(hardware.full_watts(), seconds));
    assert_eq!([300.0, 900.0].map(step), [MINUTE; 2]);
    assert_eq!([10.0, 0.0].map(step), [Duration::from_secs(2), STEP_MIN]);
    // Ten seconds of everything, then ten seconds of a third of it, over and over.
    let swing = |step: usize| if (step / 5).is_multiple_of(2) { FULL } else { FULL / 3.0 };
    let mut battery = Battery { efficiency: 1.0, ..Battery::full(FULL, 10.0) };
    let (mut spent, mut supplied) = (0.0, 0.0);
    for at in 0..200 {
        let forecast: Vec<f64> = (at..at + STEPS).map(swing).collect();
        let end = battery.charge_joules.max(battery.capacity_joules / 2.0);
        let level = tightest(&battery, Bounds { reserve: 100.0, end, full: FULL }, &forecast, step(10.0));
        assert_eq!(battery.pass(swing(at), level, 2_000).missing_joules, 0.0);
        (spent, supplied) = (spent + level, supplied + swing(at));
    }
    assert!(spent > 0.99 * supplied, "{spent} of {supplied}");
}

#[test]
fn energy_that_only_loses_in_the_battery_is_spent_at_once() {
    let lossy = Battery { efficiency: 0.64, ..battery(0.5) };
    assert_eq!(without_loss(100.0, 110.0, &lossy), 110.0, "125 W would be worth it");
    assert_eq!(without_loss(100.0, 130.0, &lossy), 100.0);
    assert_eq!(without_loss(100.0, 90.0, &lossy), 100.0, "the battery gives the rest");
}

proptest! {
    /// The level is followed minute by minute, with the rest of the forecast each time.
    #[test]
    fn the_charge_stays_within_its_bounds_and_nothing_is_spilled_that_could_be_used(
        supplies in proptest::collection::vec(0.0_f64..300.0, 1..60), filled in 0.05_f64..=1.0) {
        let mut battery = battery(filled);
        for minute in 0..supplies.len() {
            let (supply, before) = (supplies[minute], battery.charge_joules);
            let level = tightest(&battery, bounds(&battery), &supplies[minute..], MINUTE);
            let flow = battery.pass(supply, level, 60_000);
            prop_assert!(flow.missing_joules <= 1e-6 && battery.charge_joules >= RESERVE.min(before) - 1e-6, "{level} {battery:?}");
            let spilled = before + (supply - level) * 60.0 - battery.capacity_joules;
            prop_assert!(spilled <= 1e-6 || level >= FULL - 1e-6, "{spilled} J spilled at {level} W");
        }
    }

    /// No other draw with the same energy is more even: the sum of squares is least, by a search in steps of ten watts.
    #[test]
    fn the_draw_is_as_even_as_the_bounds_allow(supplies in proptest::collection::vec(0_u32..8, 2..6)) {
        let supplies: Vec<f64> = supplies.into_iter().map(|step| f64::from(step) * 30.0).collect();
        let small = Battery { capacity_joules: 6_000.0, charge_joules: 3_000.0, efficiency: 1.0, output_watts: 300.0 };
        let fixed = Bounds { reserve: 0.0, end: small.charge_joules, full: FULL };
        let (mut battery, mut squares, mut energy) = (small, 0.0, 0.0);
        for minute in 0..supplies.len() {
            let level = tightest(&battery, fixed, &supplies[minute..], MINUTE);
            battery.pass(supplies[minute], level, 60_000);
            (squares, energy) = (squares + level * level, energy + level);
        }
        let best = most_even(&supplies, small, energy - 1e-6);
        prop_assert!(squares <= best * 1.001 + 1.0, "{squares} {best} {supplies:?}");
    }
}

/// Least sum of squares of draws in steps of ten watts that spend at least this energy, by trying all.
fn most_even(supplies: &[f64], battery: Battery, energy: f64) -> f64 {
    let Some((supply, rest)) = supplies.split_first() else {
        return if energy <= 0.0 && battery.charge_joules >= 3_000.0 - 1e-6 { 0.0 } else { f64::INFINITY };
    };
    let draws = (0..=22).map(|step| f64::from(step) * 10.0);
    let of = |draw: f64| {
        let mut left = battery;
        let flow = left.pass(*supply, draw, 60_000);
        if flow.missing_joules > 1e-6 { f64::INFINITY } else { draw * draw + most_even(rest, left, energy - draw) }
    };
    draws.map(of).fold(f64::INFINITY, f64::min)
}
