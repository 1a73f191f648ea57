//! Events of OpenADR 3 (OpenADR Alliance, Definition 3.0.1 and 3.1.1, with their user guide) as a signal.
//!
//! A grid operator publishes events. Each has intervals with payloads. [`Calendar::parse`] reads them, and a [`Rule`]
//! says what they mean for this cluster:
//!
//! | payload | power |
//! |---|---|
//! | `IMPORT_CAPACITY_LIMIT` | its kilowatts |
//! | `SIMPLE` | the configured share of the normal power for its level, 0 to 3 |
//! | `PRICE` | what a sum of money an hour buys |
//! | `GHG` | what a mass of CO2 an hour allows |
//!
//! The least of them counts, and never more than the normal power. Of several events with one type of payload, those
//! with the highest priority count (the least number), and the least of these. Other payloads are no news about power.
//!
//! `randomizeStart` is not followed: a cluster is one load, and its plan is to be the same in every process.

use std::time::Duration;

use ebb_types::{Result, bail};

use super::budget::Budget;
use crate::hardware::Supply;

mod event;
#[cfg(test)]
mod tests;

/// Most events of a calendar.
pub const EVENTS_MAX: usize = 1_000;
/// Most intervals of all of its events.
pub const WINDOWS_MAX: usize = 4_000;
/// Levels of `SIMPLE`.
pub const LEVELS: usize = 4;

/// All events that a server has for this cluster.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Calendar {
    events: Vec<Event>,
}

/// One event. Times are in milliseconds since the Unix epoch; `u64::MAX` is never.
#[derive(Clone, PartialEq, Debug)]
struct Event {
    /// The least number goes first.
    priority: u64,
    windows: Vec<Window>,
    /// The windows come again after so long.
    turn: Option<Turn>,
    /// Nothing of it counts from then on.
    until_ms: u64,
}

/// Windows that are repeated. All of them are within one turn.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Turn {
    from_ms: u64,
    /// More than 0.
    length_ms: u64,
}

/// A time with a payload.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Window {
    start_ms: u64,
    end_ms: u64,
    payload: Payload,
}

/// A payload that says something about power.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Payload {
    /// Watts.
    ImportLimit(f64),
    /// Below [`LEVELS`].
    Simple(usize),
    /// Money for a kilowatt-hour.
    Price(f64),
    /// Grams for a kilowatt-hour.
    Ghg(f64),
}

/// Number of the types of [`Payload`].
const TYPES: usize = 4;

impl Payload {
    const fn type_index(self) -> usize {
        match self {
            Self::ImportLimit(_) => 0,
            Self::Simple(_) => 1,
            Self::Price(_) => 2,
            Self::Ghg(_) => 3,
        }
    }
}

/// What events mean for this cluster.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rule {
    /// Power without an event. None: all that the cluster can draw.
    pub normal_watts: Option<f64>,
    /// Share of the normal power at each level of `SIMPLE`.
    pub level_shares: [f64; LEVELS],
    /// Money an hour, in the unit of the prices. None: prices do not matter.
    pub money_per_hour: Option<f64>,
    /// Grams of CO2 an hour. None: they do not matter.
    pub grams_per_hour: Option<f64>,
}

impl Rule {
    /// `Invalid` if a share or a budget cannot be, or if a higher level would leave more power.
    pub fn check(&self) -> Result<()> {
        if self.normal_watts.is_some_and(|watts| !(watts.is_finite() && watts > 0.0)) {
            bail!(Invalid, "a normal power that is not above 0 W");
        }
        let shares = &self.level_shares;
        let falls = shares.windows(2).all(|pair| pair[1] <= pair[0]);
        if !falls || !shares.iter().all(|share| (0.0..=1.0).contains(share)) {
            bail!(
                Invalid,
                "shares {shares:?} of the levels 0 to 3: each from 0 to 1, and none above the one before it"
            );
        }
        for per_hour in [self.money_per_hour, self.grams_per_hour].into_iter().flatten() {
            Budget::new(per_hour, 1.0)?;
        }
        Ok(())
    }

    /// The supply at a time, in watts for the whole cluster. `most_watts` is all that the cluster can draw, and no
    /// supply is above it.
    #[must_use]
    pub fn supply_at(&self, calendar: &Calendar, now_ms: u64, most_watts: f64) -> Supply {
        let normal = self.normal_watts.unwrap_or(most_watts).min(most_watts).max(0.0);
        let mut ruling: [Option<(u64, f64)>; TYPES] = [None; TYPES];
        for event in &calendar.events {
            for payload in event.payloads_at(now_ms) {
                let Some(watts) = self.watts_of(payload, normal) else { continue };
                let ruler = &mut ruling[payload.type_index()];
                *ruler = match *ruler {
                    Some((priority, least)) if priority == event.priority => Some((priority, least.min(watts))),
                    Some((priority, least)) if priority < event.priority => Some((priority, least)),
                    _ => Some((event.priority, watts)),
                };
            }
        }
        Supply::Watts(ruling.into_iter().flatten().map(|(_, watts)| watts).fold(normal, f64::min))
    }

    /// Watts of a payload, where it matters.
    fn watts_of(&self, payload: Payload, normal_watts: f64) -> Option<f64> {
        let bought = |per_hour: Option<f64>, rate| {
            // A cap of nothing is no budget: the normal power may be 0 W.
            Some(Budget::new(per_hour?, normal_watts.max(f64::MIN_POSITIVE)).ok()?.watts_for(rate))
        };
        match payload {
            Payload::ImportLimit(watts) => Some(watts),
            Payload::Simple(level) => Some(self.level_shares[level] * normal_watts),
            Payload::Price(price) => bought(self.money_per_hour, price),
            Payload::Ghg(grams) => bought(self.grams_per_hour, grams),
        }
    }
}

impl Calendar {
    /// Number of its events that say something about power.
    #[must_use]
    pub fn count(&self) -> usize {
        self.events.len()
    }

    /// Time from `now_ms` on in which no interval begins or ends. `None` if none does any more.
    #[must_use]
    pub fn holds_for(&self, now_ms: u64) -> Option<Duration> {
        let next = self.events.iter().filter_map(|event| event.next_change_ms(now_ms)).min()?;
        Some(Duration::from_millis(next - now_ms))
    }
}

impl Event {
    /// The moment of the first turn that corresponds to this one, and the time between the two.
    fn first_turn_ms(&self, now_ms: u64) -> (u64, u64) {
        match self.turn {
            Some(turn) if now_ms >= turn.from_ms => {
                let shift_ms = (now_ms - turn.from_ms) / turn.length_ms * turn.length_ms;
                (now_ms - shift_ms, shift_ms)
            }
            _ => (now_ms, 0),
        }
    }

    fn payloads_at(&self, now_ms: u64) -> impl Iterator<Item = Payload> + '_ {
        let (at_ms, _) = self.first_turn_ms(now_ms);
        let holds = move |window: &&Window| now_ms < self.until_ms && (window.start_ms..window.end_ms).contains(&at_ms);
        self.windows.iter().filter(holds).map(|window| window.payload)
    }

    /// The next time after `now_ms` at which one of its windows begins or ends.
    fn next_change_ms(&self, now_ms: u64) -> Option<u64> {
        if now_ms >= self.until_ms {
            return None;
        }
        let (at_ms, shift_ms) = self.first_turn_ms(now_ms);
        let ends = self.windows.iter().flat_map(|window| [window.start_ms, window.end_ms]);
        let turn_ends = self.turn.map(|turn| turn.from_ms.saturating_add(turn.length_ms));
        let later = ends.chain(turn_ends).filter(|end| *end > at_ms).map(|end| end.saturating_add(shift_ms));
        later.chain([self.until_ms]).min().filter(|next| *next < u64::MAX)
    }
}
