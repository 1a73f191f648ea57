//! Fig. 13: a search engine of a user that is always on, on a price signal.

use std::time::Duration;

use ebb_plan::figure::Axis;
use ebb_plan::{Cell, Comparison, Figure, Section};
use ebb_types::Result;

use super::requests::{Arrivals, Load, MARKS, Steps, all, cell, run};
use crate::measure::Latencies;
use crate::part::Lab;
use crate::rivals::Rival;
use crate::signals;

pub const SOURCES: &[&str] = &["Fig. 13"];

/// Of a page, in bytes (Sec. 6.2).
const PAGE: u64 = 64 << 10;
/// The user asks so long after an answer. With it Rabbit comes to the paper's 57 queries a minute, while it never waits.
const PAUSE: Duration = Duration::from_millis(1_050);
/// The paper does not describe the trace's popularity: pages by Zipf's law, and pages that are all alike.
const SKEWS: [(f64, &str); 2] = [(1.0, "pages by Zipf's law"), (0.0, "all pages alike")];

/// Queries that were answered.
fn answered(seen: &Latencies) -> f64 {
    seen.seconds.len() as f64
}

/// Runs of all rivals with pages of one popularity.
struct Runs {
    minutes: f64,
    steps: Vec<Steps>,
}

impl Runs {
    fn of(&self, rival: Rival) -> Latencies {
        all(&self.steps[rival as usize])
    }

    /// Queries a minute.
    fn rate(&self, rival: Rival) -> f64 {
        answered(&self.of(rival)) / self.minutes
    }

    fn against(&self, one: Rival, other: Rival) -> f64 {
        self.rate(one) / self.rate(other)
    }
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let signal = signals::price()?;
    let (files, span) = lab.effort.of((63, signals::SPAN), (27, signals::STEP * 3));
    let cases: Vec<(f64, Rival)> =
        SKEWS.iter().flat_map(|(skew, _)| Rival::ALL.into_iter().map(move |rival| (*skew, rival))).collect();
    let mut seen = lab.map(&cases, |(skew, rival)| {
        let load = Load { bytes: PAGE, skew: *skew, arrivals: Arrivals::AfterAnswer(PAUSE), files };
        run(*rival, &signal, lab.seed, load, span)
    })?;
    let mut section = Section::new("", &[]);
    for (_, pages) in SKEWS {
        let steps: Vec<Steps> = seen.drain(..Rival::ALL.len()).collect();
        let runs = Runs { minutes: span.as_secs_f64() / 60.0, steps };
        rows(&mut section, pages, &runs);
        section.figures.push(figure(pages, &runs));
    }
    Ok(section)
}

fn rows(section: &mut Section, pages: &str, runs: &Runs) {
    let more = runs.against(Rival::Blink, Rival::LoadProportional) - 1.0;
    section.rows.push(
        Comparison::new(
            "Fig. 13",
            format!("search on the price signal, {pages}: blinking serves more than load-proportional by"),
            Cell::Share(0.55, 0),
            Cell::Share(more, 1),
            "The price never leaves less than two thirds of the nodes' power. With three copies few queries wait then, \
             under either policy, and a query that waits is one of sixty a minute. The trace's values are not published.",
        )
        .bound(more > 0.0),
    );
    let best = runs.rate(Rival::Blink).max(runs.rate(Rival::Rabbit));
    let holds = runs.rate(Rival::Tide) >= best * 0.99;
    let p90 = |rival| cell(runs.of(rival).p90()).human();
    section.rows.push(
        Comparison::new(
            "Fig. 13",
            format!("queries a minute, {pages}: tide; beside it the better of blinking and Rabbit"),
            Cell::Number(best, 1),
            Cell::Number(runs.rate(Rival::Tide), 1),
            format!(
                "90th percentile: tide {}, blinking {}, Rabbit {}.",
                p90(Rival::Tide),
                p90(Rival::Blink),
                p90(Rival::Rabbit)
            ),
        )
        .judged(holds, if holds { "no worse" } else { "worse" }),
    );
    let rabbit = runs.rate(Rival::Rabbit);
    section.rows.push(
        Comparison::new(
            "Fig. 13",
            format!("queries a minute of Rabbit, {pages}; beside it the paper's"),
            Cell::Number(57.0, 0),
            Cell::Number(rabbit, 1),
            format!("It leads while two nodes can run. Blinking: {:.1}.", runs.rate(Rival::Blink)),
        )
        .bound(rabbit >= runs.rate(Rival::Blink)),
    );
}

fn figure(pages: &str, runs: &Runs) -> Figure {
    let mut figure = Figure::plane(
        format!("Fig. 13: a search engine on a price signal, {pages}"),
        Axis::linear("minutes").from(0.0),
        Axis::linear("queries a minute").from(0.0),
    )
    .subtitle("one user asks for pages of 64 KB, each a second after the last answer; one cent an hour; three copies");
    let step_minutes = signals::STEP.as_secs_f64() / 60.0;
    for ((rival, steps), mark) in Rival::ALL.into_iter().zip(&runs.steps).zip(MARKS) {
        let point = |(step, seen): (usize, &Latencies)| (step as f64 * step_minutes, answered(seen) / step_minutes);
        figure = figure.with(rival.name(), mark, steps.iter().enumerate().map(point).collect());
    }
    figure
}
