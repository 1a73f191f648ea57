//! Fig. 13: a search engine of a user that is always on.

use ebb_plan::{Cell, Comparison, Section};
use ebb_types::Result;

use super::requests::{all, cell, mean, over_time, run};
use crate::measure::Latencies;
use crate::part::Lab;
use crate::rivals::Rival;
use crate::signals;

pub const SOURCES: &[&str] = &["Fig. 13"];

/// Of a request, in bytes.
const PAGE: u64 = 64 << 10;

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let mut section = Section::new("", &[]);
    let signal = signals::price()?;
    let (files, span) = lab.effort.of((63, signals::SPAN), (27, signals::STEP * 3));
    let seen = lab.map(&Rival::ALL, |rival| run(*rival, &signal, lab.seed, PAGE, files, span))?;
    let whole = |rival: Rival| all(&seen[rival as usize]);
    let [blink, rabbit, proportional, tide] =
        [Rival::Blink, Rival::Rabbit, Rival::LoadProportional, Rival::Tide].map(whole);
    // The service of one user that waits for each answer.
    let served = |seen: &Latencies| mean(seen).map(|mean| 1.0 / mean);
    let more = |other: &Latencies| served(&blink).zip(served(other)).map(|(one, other)| one / other - 1.0);
    section.rows.push(
        Comparison::new(
            "Fig. 13",
            "search on the price signal: blinking serves more than load-proportional by",
            Cell::Share(0.55, 0),
            Cell::share(more(&proportional), 0),
            "From the mean latency of requests at a steady rate: what a user who waits for each answer would get. The price \
             trace has the paper's mean, peak and least price; its values are not published.",
        )
        .bound(more(&proportional).is_some_and(|more| more > 0.0)),
    );
    let best = [served(&blink), served(&rabbit)].into_iter().flatten().fold(0.0, f64::max);
    let holds = served(&tide).is_some_and(|tide| tide >= best * 0.95);
    let p90 = |seen: &Latencies| cell(seen.p90()).human();
    section.rows.push(
        Comparison::new(
            "Fig. 13",
            "the same user's requests a minute: tide; beside it the better of blinking and Rabbit",
            Cell::Number(best * 60.0, 0),
            Cell::number(served(&tide).map(|tide| tide * 60.0), 0),
            format!("90th percentile: tide {}, blinking {}, Rabbit {}.", p90(&tide), p90(&blink), p90(&rabbit)),
        )
        .judged(holds, if holds { "no worse" } else { "worse" }),
    );
    section.rows.push(
        Comparison::new(
            "Fig. 13",
            "Rabbit leads while two nodes can run: its requests against blinking's",
            "more".into(),
            Cell::number(served(&rabbit).zip(served(&blink)).map(|(one, other)| one / other), 2),
            "",
        )
        .bound(served(&rabbit).zip(served(&blink)).is_some_and(|(one, other)| one >= other)),
    );
    section.figures.push(over_time(
        "Fig. 13: a search engine on a price signal",
        "requests of 64 KB by Zipf's law, two a second; one cent an hour at changing prices; three copies",
        &seen,
    ));
    Ok(section)
}
