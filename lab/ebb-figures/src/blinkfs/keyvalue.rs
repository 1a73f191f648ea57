//! Fig. 12: a key-value store of a user that is always on.

use ebb_plan::figure::Axis;
use ebb_plan::{Cell, Comparison, Figure, Section};
use ebb_power::Supply;
use ebb_power::signal::Signal;
use ebb_types::Result;

use super::requests::{Arrivals, Load, MARKS, Steps, all, cell, mean, run};
use crate::hardware::MACHINES;
use crate::measure::Latencies;
use crate::part::Lab;
use crate::rivals::Rival;
use crate::signals;

pub const SOURCES: &[&str] = &["Fig. 12a", "Fig. 12b"];

const POWERS: [u32; 5] = [20, 30, 50, 70, 100];

/// Objects of 100 KB by Zipf's law, at a steady rate (Sec. 6.2). The paper does not give the exponent.
const fn load(files: u32) -> Load {
    Load { bytes: 100_000, skew: 1.0, arrivals: Arrivals::Steady, files }
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let mut section = Section::new("", &[]);
    steady(&mut section, lab)?;
    wind_and_sun(&mut section, lab)?;
    Ok(section)
}

fn steady(section: &mut Section, lab: &Lab<'_>) -> Result<()> {
    let (files, powers, minutes) = lab.effort.of((63, &POWERS[..], 20), (27, &[20, 50][..], 4));
    let cases: Vec<(Rival, u32)> =
        Rival::ALL.into_iter().flat_map(|rival| powers.iter().map(move |percent| (rival, *percent))).collect();
    let seen = lab.map(&cases, |(rival, percent)| {
        let signal = Signal::constant(Supply::Fraction(f64::from(*percent) / 100.0))?;
        run(*rival, &signal, lab.seed, load(files), MACHINES.interval * minutes).map(|steps| all(&steps))
    })?;
    let of = |rival, percent| cases.iter().position(|case| *case == (rival, percent)).map(|at| &seen[at]);
    let at = |rival, percent| of(rival, percent).and_then(mean);
    let (blink, proportional) = (at(Rival::Blink, 20), at(Rival::LoadProportional, 20));
    section.rows.push(
        Comparison::new(
            "Fig. 12a",
            "key-value store at 20 % power: blinking's mean latency against load-proportional's",
            "much lower".into(),
            Cell::number(blink.zip(proportional).map(|(one, other)| one / other), 2),
            format!("{} against {}.", cell(blink).human(), cell(proportional).human()),
        )
        .bound(blink.zip(proportional).is_some_and(|(one, other)| one < other)),
    );
    let rabbit = at(Rival::Rabbit, 20);
    section.rows.push(
        Comparison::new("Fig. 12a", "Rabbit below two nodes' power", "infinite".into(), cell(rabbit), "")
            .bound(rabbit.is_none()),
    );
    for percent in powers {
        let p90 = |rival| of(rival, *percent).filter(|seen| seen.failed == 0).and_then(Latencies::p90);
        let best = [at(Rival::Blink, *percent), at(Rival::Rabbit, *percent)]
            .into_iter()
            .flatten()
            .fold(f64::INFINITY, f64::min);
        let tide = at(Rival::Tide, *percent);
        let holds = tide.is_some_and(|tide| tide <= best * 1.05);
        section.rows.push(
            Comparison::new(
                "Fig. 12a",
                format!("mean latency at {percent} % power: tide; beside it the better of blinking and Rabbit"),
                cell(Some(best)),
                cell(tide),
                format!(
                    "90th percentile: tide {}, blinking {}, Rabbit {}. Tide's data is Rabbit's, three copies.",
                    cell(p90(Rival::Tide)).human(),
                    cell(p90(Rival::Blink)).human(),
                    cell(p90(Rival::Rabbit)).human()
                ),
            )
            .judged(holds, if holds { "no worse" } else { "worse" }),
        );
    }
    let mut figure = Figure::plane(
        "Fig. 12a: a key-value store at steady power",
        Axis::linear("power (% of the nodes')").from(0.0).to(100.0),
        Axis::log("mean latency (s)"),
    )
    .subtitle("objects of 100 KB by Zipf's law, two a second; three copies; a system that never answers has no point");
    for (rival, mark) in Rival::ALL.into_iter().zip(MARKS) {
        let points = powers.iter().filter_map(|percent| Some((f64::from(*percent), at(rival, *percent)?)));
        figure = figure.with(rival.name(), mark, points.collect());
    }
    section.figures.push(figure);
    Ok(())
}

fn wind_and_sun(section: &mut Section, lab: &Lab<'_>) -> Result<()> {
    let signal = signals::renewable()?;
    let (files, span) = lab.effort.of((63, signals::SPAN), (27, signals::STEP * 3));
    let seen = lab.map(&Rival::ALL, |rival| run(*rival, &signal, lab.seed, load(files), span))?;
    let whole = |rival: Rival| all(&seen[rival as usize]);
    let [blink, proportional, rabbit, tide] =
        [Rival::Blink, Rival::LoadProportional, Rival::Rabbit, Rival::Tide].map(whole);
    let ratio = blink.mean().zip(proportional.mean()).map(|(one, other)| one / other);
    section.rows.push(
        Comparison::new(
            "Fig. 12b",
            "key-value store under wind and sun: blinking's mean latency against load-proportional's",
            "lower".into(),
            Cell::number(ratio, 2),
            "The trace has the paper's mean, least power and compression; its values are not published.",
        )
        .bound(ratio.is_some_and(|ratio| ratio < 1.0)),
    );
    let unanswered = |seen: &Latencies| seen.failed;
    section.rows.push(
        Comparison::new(
            "Fig. 12b",
            "requests never answered: Rabbit (blinking, tide)",
            "some (none)".into(),
            Cell::text(format!("{} ({}, {})", unanswered(&rabbit), unanswered(&blink), unanswered(&tide))),
            "A request is given up after two intervals without a holder that any plan wakes. With the battery as a reservoir \
             every system rides through the lulls of this trace, Rabbit as well.",
        )
        .bound(blink.failed + tide.failed == 0),
    );
    section.figures.push(over_time(
        "Fig. 12b: a key-value store under wind and sun",
        "objects of 100 KB by Zipf's law, two a second; three days of power in three hours",
        &seen,
    ));
    Ok(())
}

/// Each rival's latency, step by step.
fn over_time(title: &str, subtitle: &str, seen: &[Steps]) -> Figure {
    let mut figure =
        Figure::plane(title, Axis::linear("minutes").from(0.0), Axis::log("mean latency in five minutes (s)"))
            .subtitle(subtitle);
    for ((rival, steps), mark) in Rival::ALL.into_iter().zip(seen).zip(MARKS) {
        let point = |(step, seen): (usize, &Latencies)| (step as f64 * 5.0, mean(seen).unwrap_or(f64::NAN));
        figure = figure.with(rival.name(), mark, steps.iter().enumerate().map(point).collect());
    }
    figure
}
