//! How much room a node offers to YARN: a decision of plain values.

use std::fmt;
use std::time::Duration;

use ebb_power::work::Turn;

/// The part of its room that a node offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// All.
    Whole,
    /// None: nothing begins there.
    Nothing,
}

/// What is long, and what is soon.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Absences up to this length need nothing.
    pub absent: Duration,
    /// So long before it goes a node offers nothing.
    pub lead: Duration,
}

impl Bounds {
    /// Whether an absence is more than tasks can wait for; `None`: its end is not known.
    fn is_long(&self, absent: Option<Duration>) -> bool {
        absent.is_none_or(|absent| absent > self.absent)
    }
}

/// A decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decided {
    /// What the node offers.
    pub share: Share,
    /// Time in which what runs there may end; zero if it need not.
    pub left: Duration,
    /// The reason.
    pub reason: Reason,
}

/// An absence that no plan has yet: the supply is known to fall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Until it begins.
    pub left: Duration,
    /// Its length, if that is known.
    pub absent: Option<Duration>,
}

/// The reason for a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// No plan lets it sleep.
    AlwaysOn,
    /// It serves for so long.
    Serves(Duration),
    /// Its absences are short.
    Blinks(Duration),
    /// It goes in so long; for how long, if that is known.
    Goes(Duration, Option<Duration>),
    /// It is expected to go in so long, because the supply falls; for how long, if that is known.
    Expected(Duration, Option<Duration>),
    /// It sleeps for so long.
    Sleeps(Duration),
    /// No plan wakes it.
    Off,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: &Duration| time.as_secs_f64().round();
        match self {
            Self::AlwaysOn => f.write_str("no plan lets it sleep"),
            Self::Serves(left) => write!(f, "it serves for {} s", seconds(left)),
            Self::Blinks(absent) => write!(f, "it is away for {} s only", seconds(absent)),
            Self::Goes(left, Some(absent)) => write!(f, "it goes in {} s, for {} s", seconds(left), seconds(absent)),
            Self::Goes(left, None) => write!(f, "it goes in {} s, and no plan wakes it", seconds(left)),
            Self::Expected(left, Some(absent)) => {
                write!(f, "it is expected to go in {} s, for {} s", seconds(left), seconds(absent))
            }
            Self::Expected(left, None) => {
                write!(f, "it is expected to go in {} s, for longer than is known", seconds(left))
            }
            Self::Sleeps(left) => write!(f, "it sleeps for {} s", seconds(left)),
            Self::Off => f.write_str("it is off, and no plan wakes it"),
        }
    }
}

/// What a node offers that is in this turn, is expected to go, and offered `before` so far. A plan counts before what is
/// expected.
#[must_use]
pub fn choose_share(turn: Turn, expected: Option<Expected>, before: Option<Share>, bounds: &Bounds) -> Decided {
    let by_plan = share_by_plan(turn, before, bounds);
    match expected.filter(|expected| expected.left <= bounds.lead && bounds.is_long(expected.absent)) {
        Some(Expected { left, absent }) if turn.is_awake() && by_plan.share == Share::Whole => {
            Decided { share: Share::Nothing, left, reason: Reason::Expected(left, absent) }
        }
        _ => by_plan,
    }
}

fn share_by_plan(turn: Turn, before: Option<Share>, bounds: &Bounds) -> Decided {
    let ms = Duration::from_millis;
    let whole = |reason| Decided { share: Share::Whole, left: Duration::ZERO, reason };
    let nothing = |left, reason| Decided { share: Share::Nothing, left, reason };
    match turn {
        Turn::Always => whole(Reason::AlwaysOn),
        Turn::Awake { left_ms, next_ms, .. } => {
            let (left, absent) = (ms(left_ms), next_ms.map(|next| ms(next.saturating_sub(left_ms))));
            match absent {
                Some(short) if !bounds.is_long(absent) => whole(Reason::Blinks(short)),
                _ if left > bounds.lead => whole(Reason::Serves(left)),
                _ => nothing(left, Reason::Goes(left, absent)),
            }
        }
        // A short rest of a long absence changes nothing: what it offered when it went, it offers until it serves.
        Turn::Asleep { wakes_in_ms } => {
            let left = ms(wakes_in_ms);
            if !bounds.is_long(Some(left)) && before != Some(Share::Nothing) {
                whole(Reason::Blinks(left))
            } else {
                nothing(Duration::ZERO, Reason::Sleeps(left))
            }
        }
        Turn::Off => nothing(Duration::ZERO, Reason::Off),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { absent: Duration::from_secs(300), lead: Duration::from_secs(60) };

    fn offered(turn: Turn, before: Option<Share>) -> (Share, String) {
        let decided = choose_share(turn, None, before, &BOUNDS);
        (decided.share, decided.reason.to_string())
    }

    fn awake(left_s: u64, next_s: Option<u64>) -> Turn {
        Turn::Awake { left_ms: left_s * 1000, whole_ms: left_s * 1000, next_ms: next_s.map(|next| next * 1000) }
    }

    #[test]
    fn a_node_that_blinks_keeps_its_room() {
        assert_eq!(offered(Turn::Always, None).0, Share::Whole);
        assert_eq!(offered(awake(20, Some(60)), None), (Share::Whole, "it is away for 40 s only".into()));
        assert_eq!(offered(Turn::Asleep { wakes_in_ms: 40_000 }, Some(Share::Whole)).0, Share::Whole);
        assert_eq!(offered(Turn::Asleep { wakes_in_ms: 40_000 }, None).0, Share::Whole);
    }

    #[test]
    fn a_node_that_goes_for_long_offers_nothing_from_before_it_goes_until_it_serves() {
        assert_eq!(offered(awake(100, Some(1000)), None), (Share::Whole, "it serves for 100 s".into()));
        let going = choose_share(awake(50, Some(1000)), None, Some(Share::Whole), &BOUNDS);
        assert_eq!((going.share, going.left), (Share::Nothing, Duration::from_secs(50)));
        assert_eq!(going.reason.to_string(), "it goes in 50 s, for 950 s");
        assert_eq!(offered(awake(50, None), None).1, "it goes in 50 s, and no plan wakes it");
        assert_eq!(offered(Turn::Asleep { wakes_in_ms: 900_000 }, None).0, Share::Nothing);
        let short_rest = Turn::Asleep { wakes_in_ms: 10_000 };
        assert_eq!(offered(short_rest, Some(Share::Nothing)), (Share::Nothing, "it sleeps for 10 s".into()));
        assert_eq!(offered(Turn::Off, None).0, Share::Nothing);
        assert_eq!(offered(awake(500, Some(5000)), Some(Share::Nothing)).0, Share::Whole, "it serves again");
    }

    #[test]
    fn a_node_that_is_expected_to_go_for_long_offers_nothing_from_the_lead_on() {
        let expected = |left, absent: Option<u64>| {
            let seconds = Duration::from_secs;
            let expected = Expected { left: seconds(left), absent: absent.map(seconds) };
            choose_share(Turn::Always, Some(expected), Some(Share::Whole), &BOUNDS)
        };
        assert_eq!(expected(61, Some(1000)).share, Share::Whole, "not yet");
        assert_eq!(expected(60, Some(300)).share, Share::Whole, "not for long");
        let going = expected(55, Some(1000));
        assert_eq!((going.share, going.left), (Share::Nothing, Duration::from_secs(55)));
        assert_eq!(going.reason.to_string(), "it is expected to go in 55 s, for 1000 s");
        assert_eq!(expected(55, None).reason.to_string(), "it is expected to go in 55 s, for longer than is known");
        let soon = Some(Expected { left: Duration::from_secs(50), absent: None });
        let goes = choose_share(awake(20, None), soon, None, &BOUNDS);
        assert_eq!(goes.left, Duration::from_secs(20), "its plan tells better");
        assert_eq!(choose_share(Turn::Off, soon, None, &BOUNDS).reason, Reason::Off);
    }
}
