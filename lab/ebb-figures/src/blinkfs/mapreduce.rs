//! Fig. 11: word counts whose workers live on the blinking nodes, at steady power and under wind and sun.

use std::time::Duration;

use ebb_plan::figure::{Axis, Bars};
use ebb_plan::{Cell, Comparison, Figure, Mark, Section};
use ebb_power::signal::Signal;
use ebb_power::{PolicyKind, Supply};
use ebb_types::Result;

use crate::drive::follow;
use crate::job::Workers;
use crate::part::Lab;
use crate::rivals::Rival;
use crate::signals;
use crate::testbed::{Layout, Setting, on_arranged};

pub const SOURCES: &[&str] = &["Fig. 11a", "Fig. 11b"];

const NODES: u32 = 9;
const POWERS: [u32; 6] = [20, 30, 40, 50, 70, 100];
/// A job that has not ended by then has stalled.
const PATIENCE: Duration = Duration::from_secs(600);

/// Files of 150 MB, the mean of the paper's (100 to 200 MB); a quick look takes fewer.
fn setting(files: u32, blocks_per_file: u32) -> Setting {
    let setting = Setting::of(NODES, PolicyKind::AlwaysOn, Layout::RANDOM, 0);
    Setting { files, blocks_per_file, ..setting }
}

/// Mean time of jobs one after the other, in seconds; none if one stalls.
fn steady(rival: Rival, percent: u32, seed: u64, files: u32, jobs: u32) -> Result<Option<f64>> {
    let homes = rival.homes(NODES, &vec![1.0; files as usize]);
    on_arranged(seed, rival.on(setting(files, 36)), &homes, |mut bed| async move {
        let user = bed.user("scheduler", None).await?;
        let workers = Workers::start(&bed, &user).await?;
        rival.prepare(&mut bed, &user, |_| 1.0).await?;
        bed.supply_and_wait(Supply::Fraction(f64::from(percent) / 100.0)).await?;
        let mut took = Duration::ZERO;
        for _ in 0..jobs {
            match workers.count(&bed, PATIENCE).await? {
                Some(one) => took += one,
                None => return Ok(None),
            }
        }
        Ok(Some(took.as_secs_f64() / f64::from(jobs)))
    })
}

/// Jobs of small files that ended in each step of the signal.
fn stream(rival: Rival, signal: &Signal, seed: u64, span: Duration) -> Result<Vec<u64>> {
    let homes = rival.homes(NODES, &[1.0; 27]);
    on_arranged(seed, rival.on(setting(27, 1)), &homes, |mut bed| async move {
        let user = bed.user("scheduler", None).await?;
        let workers = Workers::start(&bed, &user).await?;
        rival.prepare(&mut bed, &user, |_| 1.0).await?;
        let began = bed.world.now();
        let mut ended = vec![0; (span.as_secs() / signals::STEP.as_secs()) as usize];
        let count = async {
            while bed.world.now() - began < span {
                let left = span.saturating_sub(bed.world.now() - began);
                if workers.count(&bed, left).await?.is_some() {
                    let step = (bed.world.now() - began).as_secs() / signals::STEP.as_secs();
                    if let Some(step) = ended.get_mut(step as usize) {
                        *step += 1;
                    }
                }
            }
            Result::Ok(())
        };
        let (followed, counted) = tokio::join!(follow(&bed, signal, signals::STEP / 10, span), count);
        followed.and(counted).map(|()| ended)
    })
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let mut section = Section::new("", &[]);
    steady_power(&mut section, lab)?;
    wind_and_sun(&mut section, lab)?;
    Ok(section)
}

fn steady_power(section: &mut Section, lab: &Lab<'_>) -> Result<()> {
    let (files, jobs, powers) = lab.effort.of((27, 5, &POWERS[..]), (18, 2, &[20, 50][..]));
    let cases: Vec<(Rival, u32)> =
        Rival::ALL.into_iter().flat_map(|rival| powers.iter().map(move |percent| (rival, *percent))).collect();
    let seen = lab.map(&cases, |(rival, percent)| steady(*rival, *percent, lab.seed, files, jobs))?;
    let of = |rival, percent| cases.iter().position(|case| *case == (rival, percent)).and_then(|at| seen[at]);
    let sooner = |rival| Some(1.0 - of(Rival::Blink, 50)? / of(rival, 50)?);
    for (rival, printed, why) in [
        (
            Rival::Rabbit,
            0.42,
            "Both have the energy of four nodes. Activation spends none of it on transitions. Blinking loses two seconds of \
             each turn to them, and half a second before, in which clients on the node give back what others would wait \
             for. No task begins that could not end. What held the prototype's Rabbit up is not told.",
        ),
        (
            Rival::LoadProportional,
            0.65,
            "Every file is read once, so that all nodes are as popular and this policy is staggered blinking, with copies \
             anywhere. The prototype's popularity is that of an initial run, its work is shared out beforehand, and the job \
             waits for the node that sleeps most.",
        ),
    ] {
        let ours = sooner(rival);
        let quantity = format!("word count at 50 % power: blinking ends sooner than {} by", rival.name());
        section.rows.push(Comparison::new("Fig. 11a", quantity, Cell::Share(printed, 0), Cell::share(ours, 0), why));
    }
    let cell = |time: Option<f64>| time.map_or_else(|| "stalls".into(), |time| Cell::text(format!("{time:.0} s")));
    let blink = of(Rival::Blink, 20);
    section.rows.push(
        Comparison::new("Fig. 11a", "word count at 20 % power: blinking", "ends".into(), cell(blink), "")
            .bound(blink.is_some()),
    );
    let rabbit = of(Rival::Rabbit, 20);
    section.rows.push(
        Comparison::new("Fig. 11a", "word count at 20 % power: Rabbit", "stalls".into(), cell(rabbit), "")
            .bound(rabbit.is_none()),
    );
    for percent in powers {
        let (tide, better) = (of(Rival::Tide, *percent), of(Rival::Blink, *percent));
        let best = [better, of(Rival::Rabbit, *percent)].into_iter().flatten().fold(f64::INFINITY, f64::min);
        let holds = tide.is_some_and(|tide| tide <= best * 1.05);
        let quantity = format!("word count at {percent} % power: tide; beside it the better of blinking and Rabbit");
        let why = "Three copies each; tide's data is Rabbit's.";
        section.rows.push(
            Comparison::new("Fig. 11a", quantity, cell(Some(best)), cell(tide), why)
                .judged(holds, if holds { "no worse" } else { "worse" }),
        );
    }
    let mut figure = Figure::plane(
        "Fig. 11a: a word count at steady power",
        Axis::linear("power (% of the nodes')").from(0.0).to(100.0),
        Axis::log("completion time (s)"),
    )
    .subtitle("27 files of 150 MB, nine nodes, three copies, interval 60 s; a system that stalls has no point");
    for (rival, mark) in Rival::ALL.into_iter().zip([Mark::Markers, Mark::Line, Mark::Dashed, Mark::DashedStep]) {
        let points = powers.iter().filter_map(|percent| Some((f64::from(*percent), of(rival, *percent)?)));
        figure = figure.with(rival.name(), mark, points.collect());
    }
    section.figures.push(figure);
    Ok(())
}

/// Steps in which tide ends fewer jobs than the better of blinking and Rabbit by more than a tenth.
fn behind(seen: &[Vec<u64>]) -> usize {
    let of = |rival: Rival| &seen[rival as usize];
    let best = of(Rival::Blink).iter().zip(of(Rival::Rabbit)).map(|(one, other)| *one.max(other));
    best.zip(of(Rival::Tide)).filter(|(best, tide)| (**tide as f64) < 0.9 * *best as f64).count()
}

fn wind_and_sun(section: &mut Section, lab: &Lab<'_>) -> Result<()> {
    let signal = signals::renewable()?;
    let span = lab.effort.of(signals::SPAN, signals::STEP * 6);
    let seen = lab.map(&Rival::ALL, |rival| stream(*rival, &signal, lab.seed, span))?;
    let total = |rival: Rival| seen[rival as usize].iter().sum::<u64>();
    let (blink, proportional) = (total(Rival::Blink), total(Rival::LoadProportional));
    section.rows.push(
        Comparison::new(
            "Fig. 11b",
            "small word counts in three hours of wind and sun: blinking against load-proportional",
            "more".into(),
            Cell::Number(blink as f64 / proportional.max(1) as f64, 2),
            "The trace has the paper's mean, least power and compression; its values are not published.",
        )
        .bound(blink > proportional),
    );
    let stalled = |rival: Rival| seen[rival as usize].iter().filter(|jobs| **jobs == 0).count();
    section.rows.push(
        Comparison::new(
            "Fig. 11b",
            "five-minute steps in which no job ends: Rabbit (blinking, tide)",
            "some (none)".into(),
            Cell::text(format!("{} ({}, {})", stalled(Rival::Rabbit), stalled(Rival::Blink), stalled(Rival::Tide))),
            "With the battery as a reservoir every system rides through the lulls of this trace, Rabbit as well.",
        )
        .bound(stalled(Rival::Blink) + stalled(Rival::Tide) == 0),
    );
    let (tide, best) = (total(Rival::Tide), blink.max(total(Rival::Rabbit)));
    section.rows.push(
        Comparison::new(
            "Fig. 11b",
            "small word counts in three hours: tide; beside it the better of blinking and Rabbit",
            Cell::Count(best),
            Cell::Count(tide),
            format!(
                "Blinking {blink}, Rabbit {}, load-proportional {proportional}. Step by step tide ends fewer than the better \
                 of two by more than a tenth in {} of {}.",
                total(Rival::Rabbit),
                behind(&seen),
                seen[0].len()
            ),
        )
        .bound(tide as f64 >= best as f64 * 0.95),
    );
    section.figures.push(
        Figure::bars(
            "Fig. 11b: small word counts under wind and sun",
            Bars {
                categories: (0..seen[0].len()).step_by(3).map(|step| format!("{}", step * 5)).collect(),
                y: Axis::linear("jobs in a quarter of an hour"),
                groups: Rival::ALL
                    .iter()
                    .zip(&seen)
                    .map(|(rival, jobs)| {
                        let quarters = jobs.chunks(3).map(|three| three.iter().sum::<u64>() as f64);
                        (rival.name().to_owned(), quarters.collect())
                    })
                    .collect(),
                stacked: false,
                line: None,
            },
        )
        .subtitle("minutes from the start; 27 files of one block; three days of power in three hours"),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_little_power_blinking_ends_and_rabbit_stalls() {
        assert!(steady(Rival::Blink, 20, 7, 6, 1).unwrap().is_some());
        assert_eq!(steady(Rival::Rabbit, 20, 7, 6, 1).unwrap(), None);
    }
}
