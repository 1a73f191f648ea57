//! Looks at a cluster around a cut of its power, and the measures that follow from them.

use std::time::Duration;

use ebb_power::Battery;

/// The cluster at one moment. What it draws and does holds until the next look.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Look {
    /// Since the record began.
    pub at: Duration,
    /// Draw of the whole cluster.
    pub watts: f64,
    /// Supply of the whole cluster.
    pub supply_watts: f64,
    /// Nodes that serve.
    pub serving: usize,
}

/// Looks in their order, from before a cut of the power to after its return.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// All looks.
    pub looks: Vec<Look>,
    /// The supply falls.
    pub cut: Duration,
    /// It is back.
    pub back: Duration,
    /// Interval of the plans between them.
    pub interval: Duration,
    /// The battery at the cut.
    pub battery: Battery,
    /// Nodes of the cluster.
    pub nodes: usize,
    /// A mean may be above the supply by so much, in watts: the looks show it no finer.
    pub grain_watts: f64,
}

/// Draw above a limit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Over {
    /// Time above it.
    pub time: Duration,
    /// Energy above it.
    pub joules: f64,
    /// The part of the energy that the battery did not have either.
    pub missing_joules: f64,
}

/// Watts that count as equal.
const EQUAL_WATTS: f64 = 1e-6;

impl Record {
    /// Each look from a moment until another, and how long it holds.
    fn stretches(&self, from: Duration, until: Duration) -> impl Iterator<Item = (Look, Duration)> + '_ {
        let ends = self.looks.iter().skip(1).map(|next| next.at).chain([until]);
        self.looks.iter().zip(ends).filter_map(move |(look, end)| {
            let (begin, end) = (look.at.max(from), end.min(until));
            (begin < end).then(|| (Look { at: begin, ..*look }, end - begin))
        })
    }

    /// Time from the cut until the draw is within the supply for good. `None`: it is above it at the end of the low
    /// supply.
    #[must_use]
    pub fn within(&self) -> Option<Duration> {
        let mut since = Some(Duration::ZERO);
        for (look, holds) in self.stretches(self.cut, self.back) {
            if look.watts > look.supply_watts + EQUAL_WATTS {
                let end = look.at + holds;
                since = (end < self.back).then(|| end - self.cut);
            }
        }
        since
    }

    /// Time from the cut until every stretch of an interval that begins has a mean within the supply. `None`: the last
    /// stretch that can be seen has not.
    #[must_use]
    pub fn mean_within(&self) -> Option<Duration> {
        let last = self.back.checked_sub(self.interval).filter(|last| *last >= self.cut)?;
        let excess = self.excess();
        let slack = (self.grain_watts + EQUAL_WATTS) * self.interval.as_secs_f64();
        let begins = excess.iter().map(|point| point.0).filter(|begin| *begin <= last).chain([last]);
        let mut since = Some(Duration::ZERO);
        let mut was_over = false;
        for begin in begins {
            let joules = at(&excess, begin + self.interval) - at(&excess, begin);
            let is_over = joules > slack;
            if is_over {
                since = None;
            } else if was_over {
                since = Some(begin - self.cut);
            }
            was_over = is_over;
        }
        since
    }

    /// Joules drawn since the cut less joules supplied, at the beginning of each look and at the end.
    fn excess(&self) -> Vec<(Duration, f64)> {
        let mut joules = 0.0;
        let mut points = vec![(self.cut, joules)];
        for (look, holds) in self.stretches(self.cut, self.back) {
            joules += (look.watts - look.supply_watts) * holds.as_secs_f64();
            points.push((look.at + holds, joules));
        }
        points
    }

    /// Everything drawn above the supply since the cut.
    #[must_use]
    pub fn over(&self) -> Over {
        let (mut over, mut battery) = (Over::default(), self.battery);
        for (look, holds) in self.since_cut() {
            if look.watts > look.supply_watts + EQUAL_WATTS {
                over.time += holds;
                over.joules += (look.watts - look.supply_watts) * holds.as_secs_f64();
            }
            // Both ends are cut down to whole milliseconds, so that no part of one is lost in the sum.
            let ms = (look.at + holds).as_millis() - look.at.as_millis();
            let flow = battery.pass(look.supply_watts, look.watts, u64::try_from(ms).unwrap_or(u64::MAX));
            over.missing_joules += flow.missing_joules;
        }
        over
    }

    /// Time since the cut in which the draw was above the supply, and above `least_watts` where these are more.
    #[must_use]
    pub fn time_above(&self, least_watts: f64) -> Duration {
        let is_above = |look: &Look| look.watts > look.supply_watts.max(least_watts) + EQUAL_WATTS;
        self.since_cut().filter(|(look, _)| is_above(look)).map(|(_, holds)| holds).sum()
    }

    fn since_cut(&self) -> impl Iterator<Item = (Look, Duration)> + '_ {
        self.stretches(self.cut, self.looks.last().map_or(self.back, |last| last.at))
    }

    /// Time from the return of the power until every node serves for good. `None`: not all of them do at the end.
    #[must_use]
    pub fn all_serving(&self) -> Option<Duration> {
        let after = self.looks.iter().rev().take_while(|look| look.at >= self.back && look.serving >= self.nodes);
        after.last().map(|first| first.at - self.back)
    }
}

/// Value at a time between points, on straight lines from each to the next.
fn at(points: &[(Duration, f64)], time: Duration) -> f64 {
    let next = points.partition_point(|point| point.0 <= time);
    match (next.checked_sub(1).and_then(|before| points.get(before)), points.get(next)) {
        (Some(before), Some(after)) => {
            let share = (time - before.0).as_secs_f64() / (after.0 - before.0).as_secs_f64();
            before.1 + (after.1 - before.1) * share
        }
        (Some(only), None) | (None, Some(only)) => only.1,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: f64 = 100.0;
    const LOW: f64 = 40.0;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// A record of draws that each begin at a second: cut at 10 s, back at 30 s, an interval of 4 s, no battery.
    fn record(draws: &[(f64, f64)]) -> Record {
        let (cut, back) = (seconds(10.0), seconds(30.0));
        let look = |&(at_s, watts): &(f64, f64)| {
            let at = seconds(at_s);
            let supply_watts = if at < cut || at >= back { FULL } else { LOW };
            Look { at, watts, supply_watts, serving: (watts / 10.0) as usize }
        };
        // As a record has it: a look at each change of the supply, and one at the end.
        let mut draws = draws.to_vec();
        for at_s in [10.0, 30.0, 40.0] {
            if draws.iter().all(|draw| draw.0 != at_s) {
                let before = draws.iter().filter(|draw| draw.0 < at_s).max_by(|one, other| one.0.total_cmp(&other.0));
                draws.push((at_s, before.map_or(FULL, |draw| draw.1)));
            }
        }
        draws.sort_by(|one, other| one.0.total_cmp(&other.0));
        let looks = draws.iter().map(look).collect();
        Record { looks, cut, back, interval: seconds(4.0), battery: Battery::NONE, nodes: 10, grain_watts: 0.0 }
    }

    /// By hand. 100 W on a supply of 40 W for 2 s, 70 W for 1 s: 2 * 60 + 30 joules. The draw is 20 W below the
    /// supply afterwards. A mean of 4 s is within the supply if these 20 W make good what is left of the excess.
    /// A mean that begins y seconds before the second step has 60 y + 30 joules above the supply. It has 3 - y
    /// seconds at 20 W below it. Both are equal for y = 0.375.
    #[test]
    fn a_draw_that_comes_down_in_steps() {
        let seen = record(&[(0.0, 100.0), (12.0, 70.0), (13.0, 20.0), (30.5, 50.0), (33.0, 100.0)]);
        assert_eq!(seen.within(), Some(seconds(3.0)));
        assert_eq!(seen.over(), Over { time: seconds(3.0), joules: 150.0, missing_joules: 150.0 });
        // Stretches are looked at where a look begins: at 12 s it is within, at 10 s not.
        assert_eq!(seen.mean_within(), Some(seconds(2.0)));
        assert_eq!(seen.all_serving(), Some(seconds(3.0)));
        let mut fine = seen;
        let at_cut = fine.looks[1];
        let more = (1..100).map(|at| Look { at: seconds(10.0 + f64::from(at) / 50.0), ..at_cut });
        fine.looks.splice(2..2, more);
        let since = fine.mean_within().unwrap();
        assert!((1.62..1.65).contains(&since.as_secs_f64()), "2 s - 0.375 s: {since:?}");
        assert_eq!(fine.within(), Some(seconds(3.0)));
    }

    #[test]
    fn the_battery_has_a_part_of_it() {
        let mut seen = record(&[(0.0, 100.0), (12.0, 20.0), (20.0, 90.0), (21.0, 20.0)]);
        seen.battery = Battery { charge_joules: 100.0, ..Battery::full(100.0, 2.0) };
        // 120 J of which it has 100; 8 s at 20 W below the supply put 160 into it, of which 50 are drawn.
        assert_eq!(seen.over(), Over { time: seconds(3.0), joules: 170.0, missing_joules: 20.0 });
        // It gives 30 W at most.
        seen.battery = Battery { output_watts: 30.0, ..Battery::full(100.0, 10.0) };
        assert_eq!(seen.over().missing_joules, 2.0 * 30.0 + 20.0);
        assert_eq!(seen.time_above(0.0), seconds(3.0));
        assert_eq!(seen.time_above(90.0), seconds(2.0));
    }

    #[test]
    fn a_draw_that_never_comes_down() {
        let seen = record(&[(0.0, 100.0)]);
        assert_eq!((seen.within(), seen.mean_within()), (None, None));
        assert_eq!(seen.over().joules, 20.0 * 60.0);
        assert_eq!(seen.all_serving(), Some(Duration::ZERO), "nothing slept");
    }

    /// Two seconds of each interval at 70 W, two at 10 W: the mean is the supply, and no instant stays within it.
    #[test]
    fn a_mean_is_held_where_no_instant_is() {
        let swings = (0..8).flat_map(|number| {
            let begin = 12.0 + 4.0 * f64::from(number);
            [(begin, 70.0), (begin + 2.0, 10.0)]
        });
        let swings: Vec<(f64, f64)> = [(0.0, 100.0)].into_iter().chain(swings.filter(|draw| draw.0 < 30.0)).collect();
        let seen = record(&swings);
        assert_eq!(seen.within(), None, "it is above the supply when that ends");
        assert_eq!(seen.mean_within(), Some(seconds(2.0)));
        // A tenth of a second too long: 60 W more, of four seconds.
        let mut late: Vec<(f64, f64)> = swings.into_iter().filter(|draw| draw.0 != 28.0).collect();
        late.push((27.9, 70.0));
        let mut late = record(&late);
        assert_eq!(late.mean_within(), None);
        late.grain_watts = 1.6;
        assert_eq!(late.mean_within(), Some(seconds(2.0)));
    }

    #[test]
    fn a_stray_look_above_the_supply_counts() {
        let seen = record(&[(0.0, 100.0), (11.0, 30.0), (20.0, 50.0), (20.01, 30.0)]);
        assert_eq!(seen.within(), Some(seconds(10.01)));
        assert_eq!(seen.mean_within(), Some(seconds(1.0)));
        assert_eq!(seen.all_serving(), None, "three of ten");
    }

    #[test]
    fn nothing_is_said_of_a_mean_when_less_than_an_interval_was_seen() {
        let mut seen = record(&[(0.0, 30.0)]);
        assert_eq!((seen.within(), seen.mean_within()), (Some(Duration::ZERO), Some(Duration::ZERO)));
        seen.interval = seconds(21.0);
        assert_eq!(seen.mean_within(), None);
    }
}
