//! Reads events from JSON.
//!
//! An answer is read as a whole or refused: an event that cannot be read might be the one that takes power away.

use ebb_types::{Result, bail};
use serde_json::Value;

use super::{Calendar, EVENTS_MAX, Event, LEVELS, Payload, Turn, WINDOWS_MAX, Window};
use crate::signal::iso8601::{parse_duration, parse_time};

/// Watts above which no connection is.
const WATTS_MAX: f64 = 1e12;
/// Most prices, in any currency, and grams, for a kilowatt-hour.
const RATE_MAX: f64 = 1e9;
/// Priority of an event that names none: the lowest.
const NO_PRIORITY: u64 = u64::MAX;

impl Calendar {
    /// Reads the events of an answer to `GET /events`. Events with other targets than `targets` are left out; without
    /// `targets` every event counts, as the server has chosen them. Events without targets are for all.
    ///
    /// `Protocol`, with the event's name, for an event about power that cannot be read, and for too many of them.
    pub fn parse(answer: &[Value], targets: &[String]) -> Result<Self> {
        if answer.len() > EVENTS_MAX {
            bail!(Protocol, "{} events: at most {EVENTS_MAX} are read", answer.len());
        }
        let mut events = Vec::new();
        let mut room = WINDOWS_MAX;
        for value in answer {
            let event = parse_event(value, targets, &mut room).map_err(|error| error.context(name(value)))?;
            events.extend(event);
        }
        Ok(Self { events })
    }
}

/// Name of an event, for people.
fn name(value: &Value) -> String {
    let word = |key: &str| value.get(key).and_then(Value::as_str).filter(|word| !word.is_empty());
    let name = word("eventName").or_else(|| word("id")).unwrap_or("without a name");
    format!("event {}", name.chars().take(80).collect::<String>())
}

/// The list under a key; empty if there is none.
fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value]> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => bail!(Protocol, "{key} is no list"),
    }
}

/// None for an event that says nothing about power, or is for others.
fn parse_event(value: &Value, targets: &[String], room: &mut usize) -> Result<Option<Event>> {
    if !value.is_object() {
        bail!(Protocol, "it is no object");
    }
    if !is_for(list(value, "targets")?, targets) {
        return Ok(None);
    }
    let intervals = list(value, "intervals")?;
    let mut is_news = false;
    for interval in intervals {
        is_news |= list(interval, "payloads")?.iter().any(|payload| Kind::of(payload).is_some());
    }
    if !is_news {
        return Ok(None);
    }
    check_units(list(value, "payloadDescriptors")?)?;
    let priority = match value.get("priority") {
        None | Some(Value::Null) => NO_PRIORITY,
        Some(number) => match number.as_u64() {
            Some(priority) => priority,
            None => bail!(Protocol, "a priority of {number}: a whole number from 0"),
        },
    };
    let default = Period::parse(value.get("intervalPeriod"))?;
    let mut next_ms = match default.start {
        Start::At(start_ms) => Some(start_ms),
        // «Do it now» begins when it was said.
        Start::Now | Start::Absent => said_ms(value),
    };
    let mut windows = Vec::new();
    let (mut first_ms, mut last_ms) = (u64::MAX, 0);
    for interval in intervals {
        let own = Period::parse(interval.get("intervalPeriod"))?;
        let start_ms = match (own.start, next_ms) {
            (Start::At(start_ms), _) | (_, Some(start_ms)) => start_ms,
            (_, None) => bail!(Protocol, "an interval without a start"),
        };
        let length_ms = own.length.or(default.length).unwrap_or(u64::MAX);
        let end_ms = start_ms.saturating_add(length_ms);
        for payload in list(interval, "payloads")? {
            push_windows(payload, start_ms, length_ms, room, &mut windows)?;
        }
        (first_ms, last_ms) = (first_ms.min(start_ms), last_ms.max(end_ms));
        next_ms = Some(end_ms);
    }
    let (turn, until_ms) = match duration(value.get("duration"))? {
        None => (None, u64::MAX),
        Some(duration_ms) => {
            let length_ms = last_ms - first_ms;
            let repeats = length_ms > 0 && last_ms < u64::MAX && duration_ms > length_ms;
            (repeats.then_some(Turn { from_ms: first_ms, length_ms }), first_ms.saturating_add(duration_ms))
        }
    };
    Ok(Some(Event { priority, windows, turn, until_ms }))
}

/// Whether an event is for one of these. Targets are texts (3.1), or lists of values by type (3.0).
fn is_for(named: &[Value], targets: &[String]) -> bool {
    let is_one = |value: &Value| value.as_str().is_some_and(|name| targets.iter().any(|target| target == name));
    let values =
        |named: &Value| named.get("values").and_then(Value::as_array).is_some_and(|all| all.iter().any(is_one));
    targets.is_empty() || named.is_empty() || named.iter().any(|named| is_one(named) || values(named))
}

/// Refuses a unit that is not the usual one of a payload.
fn check_units(descriptors: &[Value]) -> Result<()> {
    for descriptor in descriptors {
        let text = |key: &str| descriptor.get(key).and_then(Value::as_str);
        let wanted: &[&str] = match text("payloadType") {
            Some("IMPORT_CAPACITY_LIMIT") => &["KW"],
            Some("PRICE") => &["KWH"],
            // Grams for a kilowatt-hour, whatever the energy's unit is called.
            Some("GHG") => &["GHG", "KWH"],
            _ => continue,
        };
        if let Some(unit) = text("units").filter(|unit| !wanted.contains(unit)) {
            let unit: String = unit.chars().take(40).collect();
            bail!(Protocol, "{} in {unit:?}: {} is read", text("payloadType").unwrap_or_default(), wanted.join(" or "));
        }
    }
    Ok(())
}

/// A type of payload that says something about power.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ImportLimit,
    Simple,
    Price,
    Ghg,
}

impl Kind {
    fn of(payload: &Value) -> Option<Self> {
        match payload.get("type")?.as_str()? {
            "IMPORT_CAPACITY_LIMIT" => Some(Self::ImportLimit),
            "SIMPLE" => Some(Self::Simple),
            "PRICE" => Some(Self::Price),
            "GHG" => Some(Self::Ghg),
            _ => None,
        }
    }

    fn payload(self, value: &Value) -> Result<Payload> {
        let number = value.as_f64().filter(|number| number.is_finite());
        let payload = match (self, number) {
            (Self::ImportLimit, Some(kilowatts)) if (0.0..=WATTS_MAX / 1000.0).contains(&kilowatts) => {
                Some(Payload::ImportLimit(kilowatts * 1000.0))
            }
            (Self::Simple, Some(level)) if (0..LEVELS).any(|known| known as f64 == level) => {
                Some(Payload::Simple(level as usize))
            }
            // A price can be below 0.
            (Self::Price, Some(price)) if price.abs() <= RATE_MAX => Some(Payload::Price(price)),
            (Self::Ghg, Some(grams)) if (0.0..=RATE_MAX).contains(&grams) => Some(Payload::Ghg(grams)),
            _ => None,
        };
        match payload {
            Some(payload) => Ok(payload),
            None => {
                bail!(Protocol, "a value that cannot be: {}", value.to_string().chars().take(60).collect::<String>())
            }
        }
    }
}

/// Several values share the interval in equal parts (user guide 3.1.1, 7.3: multi-valued payloads).
fn push_windows(
    payload: &Value,
    start_ms: u64,
    length_ms: u64,
    room: &mut usize,
    windows: &mut Vec<Window>,
) -> Result<()> {
    let Some(kind) = Kind::of(payload) else { return Ok(()) };
    let values = list(payload, "values")?;
    if values.is_empty() {
        bail!(Protocol, "a payload without a value");
    }
    if values.len() > 1 && length_ms == u64::MAX {
        bail!(Protocol, "{} values in an interval without an end", values.len());
    }
    let Some(left) = room.checked_sub(values.len()) else {
        bail!(Protocol, "more than {WINDOWS_MAX} intervals");
    };
    *room = left;
    let count = values.len() as u128;
    // In 128 bits: the product of a length and a count need not fit in 64.
    let part = |index: usize| start_ms.saturating_add((u128::from(length_ms) * index as u128 / count) as u64);
    for (index, value) in values.iter().enumerate() {
        let window = Window { start_ms: part(index), end_ms: part(index + 1), payload: kind.payload(value)? };
        windows.push(window);
    }
    Ok(())
}

/// Beginning and length of an interval.
struct Period {
    start: Start,
    /// In milliseconds; `u64::MAX`: no end. None: not said.
    length: Option<u64>,
}

#[derive(Clone, Copy)]
enum Start {
    Absent,
    /// Now, or after the interval before.
    Now,
    At(u64),
}

impl Period {
    fn parse(value: Option<&Value>) -> Result<Self> {
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return Ok(Self { start: Start::Absent, length: None });
        };
        if !value.is_object() {
            bail!(Protocol, "an intervalPeriod that is no object");
        }
        let start = match value.get("start") {
            None | Some(Value::Null) => Start::Absent,
            Some(Value::String(text)) if is_now(text) => Start::Now,
            Some(Value::String(text)) => Start::At(since_epoch(parse_time(text)?)),
            Some(other) => bail!(Protocol, "a start that is no text: {other}"),
        };
        Ok(Self { start, length: duration(value.get("duration"))? })
    }
}

/// The beginning of time means now: `0001-01-01` (3.1), `0000-00-00` (3.0), with or without a time of day.
fn is_now(text: &str) -> bool {
    text.starts_with("0001-01-01") || text.starts_with("0000-")
}

/// What lies before the Unix epoch has begun.
fn since_epoch(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}

/// In milliseconds; `u64::MAX` without an end. None: not said.
fn duration(value: Option<&Value>) -> Result<Option<u64>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(parse_duration(text)?.unwrap_or(u64::MAX))),
        Some(other) => bail!(Protocol, "a duration that is no text: {other}"),
    }
}

/// When the server made the event, if it says so.
fn said_ms(value: &Value) -> Option<u64> {
    let text = value.get("createdDateTime").and_then(Value::as_str)?;
    parse_time(text).ok().map(since_epoch)
}
