//! Figures for reports: data and words in, a self-contained SVG out. `plotters` draws.
//!
//! A [`Figure`] has the contents and no positions: sizes, colours, ticks and the legend are chosen here, so that all
//! figures of a report look alike. Colours are those of Okabe and Ito (<https://jfly.uni-koeln.de/color/>), which
//! people with any colour vision can distinguish. Lines also differ in dashes or markers, for print without colour.

mod axis;
mod bars;
mod frame;
mod plane;
mod ticks;

use crate::table::escape;

pub use axis::{Axis, Scale};

/// One figure of a report.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// The figure's message, in a few words.
    pub title: String,
    /// The setting: parameters, and the source of the data. May be empty.
    pub subtitle: String,
    /// The data.
    pub chart: Chart,
}

/// The two shapes that figures have.
#[derive(Clone, PartialEq, Debug)]
pub enum Chart {
    /// Numbers against numbers.
    Plane {
        /// To the right.
        x: Axis,
        /// Upwards.
        y: Axis,
        /// Drawn in this order, the first in the first colour.
        series: Vec<Series>,
    },
    /// Numbers against names.
    Bars(Bars),
}

/// One line, staircase or cloud of a plane.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub mark: Mark,
    /// The points in the order in which they are joined; a point that is not finite interrupts the line.
    pub points: Vec<(f64, f64)>,
    /// Number of its colour, for a series with the same colour in all figures. `None`: the next colour of this figure.
    pub hue: Option<usize>,
}

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Joined points.
    Line,
    /// Joined points, dashed.
    Dashed,
    /// Level from each point to the next, then a jump.
    Step,
    /// Steps as with [`Mark::Step`], dashed.
    DashedStep,
    /// Joined points, each with a marker.
    Markers,
    /// Markers alone: a paper's measurements beside our line.
    Points,
    /// A thin grey line: the ideal, a limit.
    Reference,
}

/// Bars for each of some names.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    /// Names along the bottom.
    pub categories: Vec<String>,
    /// Upwards; always from zero.
    pub y: Axis,
    /// Name of each group and its value for every category; a value that is not finite leaves a gap.
    pub groups: Vec<(String, Vec<f64>)>,
    /// On top of each other rather than side by side.
    pub stacked: bool,
    /// A line across, at the value to compare the bars with.
    pub line: Option<f64>,
}

impl Figure {
    /// A figure of numbers against numbers.
    #[must_use]
    pub fn plane(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        let chart = Chart::Plane { x, y, series: Vec::new() };
        Self { title: title.into(), subtitle: String::new(), chart }
    }

    /// A figure of bars.
    #[must_use]
    pub fn bars(title: impl Into<String>, bars: Bars) -> Self {
        Self { title: title.into(), subtitle: String::new(), chart: Chart::Bars(bars) }
    }

    /// With a line below the title.
    #[must_use]
    pub fn subtitle(mut self, subtitle: impl Into<String>) -> Self {
        self.subtitle = subtitle.into();
        self
    }

    /// With one more series.
    ///
    /// # Panics
    /// If the figure has bars.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, mark: Mark, points: Vec<(f64, f64)>) -> Self {
        match &mut self.chart {
            Chart::Plane { series, .. } => series.push(Series { name: name.into(), mark, points, hue: None }),
            Chart::Bars(_) => panic!("{:?} has bars, not series", self.title),
        }
        self
    }

    /// The series added last has this colour in every figure.
    #[must_use]
    pub fn hue(mut self, hue: usize) -> Self {
        if let Chart::Plane { series, .. } = &mut self.chart
            && let Some(last) = series.last_mut()
        {
            last.hue = Some(hue);
        }
        self
    }

    /// The figure as one SVG document.
    #[must_use]
    pub fn svg(&self) -> String {
        let drawn = match &self.chart {
            Chart::Plane { x, y, series } => plane::draw(self, x, y, series),
            Chart::Bars(bars) => bars::draw(self, bars),
        };
        // The picture's name, for screen readers and for search.
        drawn.replacen("<svg ", "<svg role=\"img\" ", 1).replacen(
            ">\n",
            &format!(">\n<title>{}</title>\n", escape(&self.title)),
            1,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(points: Vec<(f64, f64)>) -> Figure {
        Figure::plane("Loss & size", Axis::log("user data (B)"), Axis::log("lost (B/year)"))
            .with("ours", Mark::Line, points)
            .with("limit", Mark::Reference, vec![(1e12, 5.0)])
    }

    #[test]
    fn a_figure_is_a_document_with_its_words() {
        let svg = sample(vec![(1e12, 10.0), (1e15, 1000.0)]).subtitle("x < y").svg();
        assert!(svg.starts_with("<svg role=\"img\" "), "{}", &svg[..80]);
        assert!(svg.contains("<title>Loss &amp; size</title>"), "{svg}");
        assert!(svg.contains("x &lt; y") && svg.contains("ours"), "{svg}");
        assert!(svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn a_value_that_cannot_be_drawn_leaves_a_gap_and_no_nan() {
        for points in
            [vec![], vec![(1.0, f64::NAN)], vec![(1.0, 1.0)], vec![(0.0, -1.0), (1.0, f64::INFINITY), (2.0, 3.0)]]
        {
            let svg = sample(points.clone()).svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{points:?}: {svg}");
            let linear = Figure::plane("t", Axis::linear("x"), Axis::linear("y")).with("s", Mark::Step, points).svg();
            assert!(!linear.contains("NaN") && !linear.contains("inf"));
        }
    }

    #[test]
    fn a_series_with_a_hue_keeps_it_at_every_place() {
        let points = || vec![(1.0, 1.0), (2.0, 2.0)];
        let plain = || Figure::plane("t", Axis::linear("x"), Axis::linear("y"));
        let alone = plain().with("a", Mark::Line, points()).hue(3).svg();
        let second = plain().with("b", Mark::Line, points()).with("a", Mark::Line, points()).hue(3).svg();
        // The fourth of the palette.
        assert!(alone.contains("#CC79A7") && second.contains("#CC79A7"), "{alone}");
        assert!(!plain().with("a", Mark::Line, points()).svg().contains("#CC79A7"));
    }

    #[test]
    fn bars_stand_beside_or_on_each_other() {
        let bars = Bars {
            categories: vec!["a".into(), "b".into()],
            y: Axis::linear("y"),
            groups: vec![("one".into(), vec![1.0, 2.0]), ("two".into(), vec![3.0, f64::NAN])],
            stacked: false,
            line: Some(1.5),
        };
        let beside = Figure::bars("t", bars.clone()).svg();
        let stacked = Figure::bars("t", Bars { stacked: true, ..bars.clone() }).svg();
        // Background, three bars, two legend squares.
        assert_eq!(beside.matches("<rect").count(), 6);
        assert_eq!(stacked.matches("<rect").count(), 6);
        assert_ne!(beside, stacked);
        let bare = Figure::bars("t", Bars { line: None, ..bars }).svg();
        assert_eq!(beside.matches("<polyline").count(), bare.matches("<polyline").count() + 1);
    }
}
