//! Powered times of nodes that share the power for fewer of them, within a period.

use crate::plan::Duty;
use crate::policy::Ask;

/// Watts above the draw of all nodes asleep, and the rest that is left for nodes in turns.
#[derive(Clone, Copy, Debug)]
pub struct Power {
    /// Watts for waking nodes, as a mean.
    pub watts: f64,
    /// Share of the energy put into the battery that comes out again; none: there is no charge to use.
    pub efficiency: Option<f64>,
}

impl Power {
    /// Power of an ask.
    pub fn of(ask: &Ask<'_>) -> Self {
        let has_charge = ask.battery.charge_joules > 0.0 && ask.battery.output_watts > 0.0;
        Self { watts: ask.headroom_watts().max(0.0), efficiency: has_charge.then_some(ask.battery.efficiency) }
    }

    /// Share of the time for which `more` watts can be drawn on top of `steady` ones. The battery gives what is missing
    /// in that time, and gets it back in the rest of it, with its loss.
    pub fn share(self, steady: f64, more: f64) -> f64 {
        let left = self.watts - steady;
        if left >= more {
            return 1.0;
        }
        let Some(efficiency) = self.efficiency.filter(|_| left > 0.0) else { return 0.0 };
        left * efficiency / (more - left + left * efficiency)
    }

    /// Watts as a mean for nodes of `each` watts in turns, on top of `steady` ones. At any moment either so many whole
    /// nodes are powered, or one more.
    pub fn in_turns(self, steady: f64, each: f64) -> f64 {
        let whole = ((self.watts - steady) / each + 1e-9).floor().max(0.0) * each;
        whole + each * self.share(steady + whole, each)
    }
}

/// Nodes with the same time each, one after the other around the circle: (place, powered milliseconds). `watts` is
/// their mean draw.
pub fn even(ask: &Ask<'_>, places: &[usize], watts: f64, period_ms: u64) -> Vec<(usize, u64)> {
    let all: f64 = places.iter().map(|place| extra(ask, *place)).sum();
    let each = (period_ms as f64 * (watts / all).min(1.0)) as u64;
    places.iter().map(|place| (*place, each)).collect()
}

/// Nodes with times by their shares of the reads. A read waits `s^2 / 2 P` on average for a node that does not serve for
/// `s` of `P` seconds. The mean is least if `s` is in proportion to `watts / share`; `leaning` from 0 to 1 leads from
/// equal times to these. A node that would be powered for the whole period is on for good, and the others share the
/// rest.
pub fn by_share(
    ask: &Ask<'_>,
    places: &[usize],
    shares: &[f64],
    watts: f64,
    period_ms: u64,
    leaning: f64,
) -> Vec<(usize, u64)> {
    let period = period_ms as f64;
    let mut on: Vec<usize> = Vec::new();
    let mut turns: Vec<usize> = places.to_vec();
    loop {
        let left = watts - on.iter().map(|place| extra(ask, *place)).sum::<f64>();
        let all: f64 = turns.iter().map(|place| extra(ask, *place)).sum();
        if turns.is_empty() || left >= all {
            on.append(&mut turns);
            return on.into_iter().map(|place| (place, period_ms)).collect();
        }
        let weight = |place: usize| (extra(ask, place) / shares[place].max(1e-9)).powf(leaning);
        // Joules that are not spent, with the transitions, which draw power and do not serve.
        let lost = |place: usize| lost_ms(ask, place) * extra(ask, place);
        let unspent = period * (all - left) + turns.iter().map(|place| lost(*place)).sum::<f64>();
        let weights: f64 = turns.iter().map(|place| weight(*place) * extra(ask, *place)).sum();
        let active = |place: usize| period + lost_ms(ask, place) - weight(place) * unspent / weights;
        let full: Vec<usize> = turns.iter().copied().filter(|place| active(*place) >= period).collect();
        if full.is_empty() {
            let blinking = turns.iter().map(|place| (*place, active(*place).max(0.0) as u64));
            return on.iter().map(|place| (*place, period_ms)).chain(blinking).collect();
        }
        turns.retain(|place| !full.contains(place));
        on.extend(full);
    }
}

/// Duties with the powered times end to end around the period: at any moment as many nodes are powered as at any other,
/// or one more (McNaughton's wrap-around rule, 1959).
pub fn end_to_end(nodes: usize, times: &[(usize, u64)], period_ms: u64) -> Vec<Duty> {
    let mut duties = vec![Duty::Off; nodes];
    let mut at = 0;
    for (place, active_ms) in times {
        duties[*place] = Duty::blink(at, *active_ms, period_ms);
        if *active_ms < period_ms {
            at += active_ms;
        }
    }
    duties
}

/// Duties of nodes around the circle: starts at equal distances.
pub fn around(nodes: usize, times: &[(usize, u64)], period_ms: u64) -> Vec<Duty> {
    let mut duties = vec![Duty::Off; nodes];
    for (index, (place, active_ms)) in times.iter().enumerate() {
        duties[*place] = Duty::blink(period_ms * index as u64 / times.len() as u64, *active_ms, period_ms);
    }
    duties
}

fn extra(ask: &Ask<'_>, place: usize) -> f64 {
    ask.extra(ask.circle[place])
}

fn lost_ms(ask: &Ask<'_>, place: usize) -> f64 {
    (ask.power(ask.circle[place]).transition_ms() + 2 * ask.timing.guard_ms) as f64
}
