//! Figs. 12 and 13: small requests of a user that is always on: a key-value store and a search engine.

use std::sync::Arc;
use std::time::Duration;

use ebb_client::Access;
use ebb_plan::figure::Axis;
use ebb_plan::{Cell, Comparison, Figure, Mark, Section};
use ebb_power::signal::Signal;
use ebb_power::{PolicyKind, Supply};
use ebb_runtime::virt::Dice;
use ebb_types::Result;
use parking_lot::Mutex;

use crate::drive::follow;
use crate::hardware::MACHINES;
use crate::measure::Latencies;
use crate::part::Lab;
use crate::rivals::Rival;
use crate::signals;
use crate::testbed::{Layout, Setting, Testbed, User, on_arranged};

pub const SOURCES: &[&str] = &["Fig. 12a", "Fig. 12b", "Fig. 13"];

const NODES: u32 = 9;
const POWERS: [u32; 5] = [20, 30, 50, 70, 100];
/// Of a key-value request and of a search engine's, in bytes.
const OBJECT: u64 = 100_000;
const PAGE: u64 = 64 << 10;
/// Between two requests.
const PAUSE: Duration = Duration::from_millis(500);

/// Files of one block of 4 MB, a quarter of that here, so that small requests stay small.
const fn setting(files: u32) -> Setting {
    let setting = Setting::of(NODES, PolicyKind::AlwaysOn, Layout::RANDOM, 0);
    Setting { scale: 4, block_bytes: 1 << 20, files, blocks_per_file: 1, ..setting }
}

/// The sequence of requests: objects of `bytes` (at full size), popular by Zipf's law with an exponent of 1. The paper
/// says so of the key-value store. It does not describe the search engine's trace, so the same law serves both.
struct Requests {
    bytes: u64,
    /// Cumulative weights of the objects, in the order of their popularity.
    until: Vec<f64>,
    /// Place of each in the data.
    places: Vec<u64>,
    dice: Dice,
}

impl Requests {
    fn new(setting: Setting, bytes: u64, mut dice: Dice) -> Self {
        let stored = bytes.div_ceil(setting.scale);
        let count = u64::from(setting.files * setting.blocks_per_file) * (setting.block_bytes / stored);
        let mut sum = 0.0;
        let weight = |rank: u64| {
            sum += 1.0 / (rank as f64 + 1.0);
            sum
        };
        let until = (0..count).map(weight).collect();
        let mut places: Vec<u64> = (0..count).collect();
        dice.shuffle(&mut places);
        Self { bytes: stored, until, places, dice }
    }

    /// File, offset.
    fn at(&self, setting: Setting, rank: usize) -> (usize, u64) {
        let in_block = setting.block_bytes / self.bytes;
        let (block, slot) = (self.places[rank] / in_block, self.places[rank] % in_block);
        let per_file = u64::from(setting.blocks_per_file);
        ((block / per_file) as usize, block % per_file * setting.block_bytes + slot * self.bytes)
    }

    fn next(&mut self, setting: Setting) -> (usize, u64) {
        let whole = self.until.last().copied().unwrap_or(0.0);
        let drawn = self.dice.below(1 << 53) as f64 / (1_u64 << 53) as f64 * whole;
        let rank = self.until.partition_point(|until| *until <= drawn).min(self.until.len() - 1);
        self.at(setting, rank)
    }

    /// How often each block is asked for, as a share of all.
    fn popularity(&self, setting: Setting) -> Vec<f64> {
        let mut blocks = vec![0.0; (setting.files * setting.blocks_per_file) as usize];
        let mut before = 0.0;
        for rank in 0..self.until.len() {
            let (file, offset) = self.at(setting, rank);
            let block = file as u64 * u64::from(setting.blocks_per_file) + offset / setting.block_bytes;
            blocks[block as usize] += self.until[rank] - before;
            before = self.until[rank];
        }
        blocks
    }
}

/// Latencies in each step.
type Steps = Vec<Latencies>;

/// Requests at a steady rate, whether those before were answered or not, for so long.
async fn ask(bed: &Testbed, user: &User, mut requests: Requests, step: Duration, span: Duration) -> Steps {
    let (setting, began) = (bed.setting, bed.world.now());
    let count = span.as_nanos().div_ceil(step.as_nanos()) as usize;
    let steps: Arc<Mutex<Steps>> = Arc::new(Mutex::new(vec![Latencies::default(); count]));
    let mut tasks = Vec::new();
    while bed.world.now() - began < span {
        let (file, offset) = requests.next(setting);
        let (user, world, steps, bytes) = (user.clone(), bed.world.clone(), Arc::clone(&steps), requests.bytes);
        let at = ((world.now() - began).as_nanos() / step.as_nanos()) as usize;
        tasks.push(user.runtime.clone().spawn("request", async move {
            let asked = world.now();
            let read = user.client.read(user.handles[file], offset, bytes as u32).await;
            let mut steps = steps.lock();
            match read {
                Ok(_) => steps[at].add(world.now() - asked),
                Err(_) => steps[at].failed += 1,
            }
        }));
        bed.world.sleep(PAUSE).await;
    }
    for task in tasks {
        let _ended = task.join().await;
    }
    std::mem::take(&mut *steps.lock())
}

/// One run: latencies in each step of the signal.
fn run(rival: Rival, signal: &Signal, seed: u64, bytes: u64, files: u32, span: Duration) -> Result<Steps> {
    let setting = rival.on(setting(files));
    let requests = Requests::new(setting, bytes, Dice::new(seed, "requests"));
    let popularity = requests.popularity(setting);
    on_arranged(seed, setting, &rival.homes(NODES, &popularity), |mut bed| async move {
        let user = bed.user("user", Some(Access::Read)).await?;
        rival.prepare(&mut bed, &user, |block| popularity.get(block).copied().unwrap_or(0.0)).await?;
        bed.supply_and_wait(signal.at(Duration::ZERO)).await?;
        let (followed, steps) = tokio::join!(
            follow(&bed, signal, signals::STEP / 10, span),
            ask(&bed, &user, requests, signals::STEP, span)
        );
        followed.map(|()| steps)
    })
}

/// All of them together.
fn all(steps: &Steps) -> Latencies {
    let mut whole = Latencies::default();
    steps.iter().cloned().for_each(|step| whole.merge(step));
    whole
}

/// Mean in seconds; none if some requests were never answered.
fn mean(seen: &Latencies) -> Option<f64> {
    seen.mean().filter(|_| seen.failed == 0)
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let mut section = Section::new("", &[]);
    steady(&mut section, lab)?;
    wind_and_sun(&mut section, lab)?;
    search(&mut section, lab)?;
    Ok(section)
}

const MARKS: [Mark; 4] = [Mark::Markers, Mark::Line, Mark::Dashed, Mark::DashedStep];

fn cell(time: Option<f64>) -> Cell {
    time.map_or_else(|| "infinite".into(), |time| Cell::text(format!("{:.3} s", time)))
}

fn steady(section: &mut Section, lab: &Lab<'_>) -> Result<()> {
    let (files, powers, minutes) = lab.effort.of((63, &POWERS[..], 20), (27, &[20, 50][..], 4));
    let cases: Vec<(Rival, u32)> =
        Rival::ALL.into_iter().flat_map(|rival| powers.iter().map(move |percent| (rival, *percent))).collect();
    let seen = lab.map(&cases, |(rival, percent)| {
        let signal = Signal::constant(Supply::Fraction(f64::from(*percent) / 100.0))?;
        run(*rival, &signal, lab.seed, OBJECT, files, MACHINES.interval * minutes).map(|steps| all(&steps))
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
    let seen = lab.map(&Rival::ALL, |rival| run(*rival, &signal, lab.seed, OBJECT, files, span))?;
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
            "A request is given up after two intervals without a holder that any plan wakes.",
        )
        .bound(rabbit.failed > blink.failed),
    );
    section.figures.push(over_time(
        "Fig. 12b: a key-value store under wind and sun",
        "objects of 100 KB by Zipf's law, two a second; three days of power in three hours",
        &seen,
    ));
    Ok(())
}

/// Each rival's latency, step by step.
fn over_time(title: &str, subtitle: &str, seen: &[Vec<Latencies>]) -> Figure {
    let mut figure =
        Figure::plane(title, Axis::linear("minutes").from(0.0), Axis::log("mean latency in five minutes (s)"))
            .subtitle(subtitle);
    for ((rival, steps), mark) in Rival::ALL.into_iter().zip(seen).zip(MARKS) {
        let point = |(step, seen): (usize, &Latencies)| (step as f64 * 5.0, mean(seen).unwrap_or(f64::NAN));
        figure = figure.with(rival.name(), mark, steps.iter().enumerate().map(point).collect());
    }
    figure
}

fn search(section: &mut Section, lab: &Lab<'_>) -> Result<()> {
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popular_objects_are_asked_for_more_often_and_all_fit() {
        let setting = setting(16);
        let requests = Requests::new(setting, OBJECT, Dice::new(1, "test"));
        let popularity = requests.popularity(setting);
        assert!((popularity.iter().sum::<f64>() - requests.until.last().unwrap()).abs() < 1e-9);
        for rank in 0..requests.until.len() {
            let (file, offset) = requests.at(setting, rank);
            assert!(file < 16 && offset % setting.block_bytes + requests.bytes <= setting.block_bytes);
        }
        let most = popularity.iter().copied().fold(0.0, f64::max);
        assert!(most > 2.0 * popularity.iter().sum::<f64>() / popularity.len() as f64);
    }
}
