//! Axes: the quantity, its scale and its marks.

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use super::ticks;

/// One axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// Name and unit.
    pub label: String,
    /// Mapping of numbers to distances.
    pub scale: Scale,
    /// Lowest value shown. `None`: that of the data.
    pub min: Option<f64>,
    /// Highest value shown. `None`: that of the data.
    pub max: Option<f64>,
    /// Shows bytes in their unit rather than plain numbers.
    pub bytes: bool,
    /// Marks whole numbers only: what is counted has no halves.
    pub whole: bool,
}

/// Mapping of numbers to distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Equal differences, equal distances. Starts at zero unless `min` says otherwise.
    Linear,
    /// Equal ratios, equal distances; nothing at or below zero can be shown.
    Log,
}

/// An axis with its limits and marks fixed, in the units of the drawing: logarithms on a log scale.
#[derive(Clone, Debug)]
pub struct Fixed {
    /// First and last place.
    pub range: std::ops::Range<f64>,
    /// Places of the marks.
    pub ticks: Vec<f64>,
    scale: Scale,
    bytes: bool,
}

impl Axis {
    /// Equal differences, from zero.
    #[must_use]
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear, min: None, max: None, bytes: false, whole: false }
    }

    /// Equal ratios.
    #[must_use]
    pub fn log(label: impl Into<String>) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label) }
    }

    /// From `min` on.
    #[must_use]
    pub const fn from(mut self, min: f64) -> Self {
        self.min = Some(min);
        self
    }

    /// Up to `max`.
    #[must_use]
    pub const fn to(mut self, max: f64) -> Self {
        self.max = Some(max);
        self
    }

    /// Marks in bytes.
    #[must_use]
    pub const fn bytes(mut self) -> Self {
        self.bytes = true;
        self
    }

    /// Marks at whole numbers.
    #[must_use]
    pub const fn whole(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Limits that hold all values, and round marks.
    pub(super) fn fix(&self, values: impl Iterator<Item = f64>) -> Fixed {
        let shown = values.filter(|value| value.is_finite() && (self.scale == Scale::Linear || *value > 0.0));
        let (low, high) =
            shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        let (range, mut ticks) = match self.scale {
            Scale::Linear => ticks::linear(self.min.unwrap_or(low.min(0.0)), self.max, high),
            Scale::Log => ticks::log(self.min.unwrap_or(low), self.max.unwrap_or(high)),
        };
        if self.whole {
            ticks.retain(|mark| (mark - mark.round()).abs() < 1e-9);
        }
        Fixed { range, ticks, scale: self.scale, bytes: self.bytes }
    }
}

impl Fixed {
    /// The place of a value. `None` if it cannot be shown.
    pub fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear => value,
            Scale::Log if value > 0.0 => value.log10(),
            Scale::Log => return None,
        };
        let slack = (self.range.end - self.range.start) * 1e-9;
        let inside = place >= self.range.start - slack && place <= self.range.end + slack;
        (place.is_finite() && inside).then_some(place)
    }

    /// The words at a mark.
    pub fn label(&self, place: f64) -> String {
        let value = match self.scale {
            Scale::Linear => place,
            Scale::Log => 10_f64.powf(place),
        };
        if self.bytes { ticks::bytes(value) } else { ticks::number(value) }
    }
}

/// As plotters sees it: places, already in logarithms where those are asked for.
impl Ranged for Fixed {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, limit: (i32, i32)) -> i32 {
        let share = (place - self.range.start) / (self.range.end - self.range.start);
        (f64::from(limit.0) + f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.clone()
    }
}
