//! Small requests of a user that is always on, and their latencies step by step.

use std::sync::Arc;
use std::time::Duration;

use ebb_client::Access;
use ebb_plan::{Cell, Mark};
use ebb_power::signal::Signal;
use ebb_power::{PolicyKind, Supply};
use ebb_runtime::virt::Dice;
use ebb_types::Result;
use parking_lot::Mutex;

use crate::drive::follow;
use crate::measure::Latencies;
use crate::rivals::Rival;
use crate::signals;
use crate::testbed::{Layout, Setting, Testbed, User, on, on_arranged};

const NODES: u32 = 9;
/// Between two requests at a steady rate.
const PAUSE: Duration = Duration::from_millis(500);

/// Files of one block of 4 MiB. A byte stands for itself, so that a request fetches as much as on a real cluster.
const fn setting(files: u32) -> Setting {
    let setting = Setting::of(NODES, PolicyKind::AlwaysOn, Layout::RANDOM, 0);
    Setting { scale: 1, block_bytes: 4 << 20, files, blocks_per_file: 1, ..setting }
}

/// When the user asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrivals {
    /// At a steady rate, whether the requests before were answered or not.
    Steady,
    /// One after the other: so long after the last answer.
    AfterAnswer(Duration),
}

/// Requests of a user.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Load {
    /// Of an object: each request reads one.
    pub bytes: u64,
    /// The exponent of Zipf's law, by which objects are popular. 0: all alike.
    pub skew: f64,
    /// When the user asks.
    pub arrivals: Arrivals,
    /// Files with the objects.
    pub files: u32,
}

/// The sequence of requests.
struct Requests {
    bytes: u64,
    /// Cumulative weights of the objects, in the order of their popularity.
    until: Vec<f64>,
    /// Place of each in the data.
    places: Vec<u64>,
    dice: Dice,
}

impl Requests {
    fn new(setting: Setting, load: Load, mut dice: Dice) -> Self {
        let count = u64::from(setting.files * setting.blocks_per_file) * (setting.block_bytes / load.bytes);
        let mut sum = 0.0;
        let weight = |rank: u64| {
            sum += (rank as f64 + 1.0).powf(-load.skew);
            sum
        };
        let until = (0..count).map(weight).collect();
        let mut places: Vec<u64> = (0..count).collect();
        dice.shuffle(&mut places);
        Self { bytes: load.bytes, until, places, dice }
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
pub(super) type Steps = Vec<Latencies>;

/// Asks for so long.
async fn ask(bed: &Testbed, user: &User, mut requests: Requests, arrivals: Arrivals, span: Duration) -> Steps {
    let (setting, began) = (bed.setting, bed.world.now());
    let count = span.as_nanos().div_ceil(signals::STEP.as_nanos()) as usize;
    let steps: Arc<Mutex<Steps>> = Arc::new(Mutex::new(vec![Latencies::default(); count]));
    let mut tasks = Vec::new();
    while bed.world.now() - began < span {
        let (file, offset) = requests.next(setting);
        let (user, world, steps, bytes) = (user.clone(), bed.world.clone(), Arc::clone(&steps), requests.bytes);
        let at = ((world.now() - began).as_nanos() / signals::STEP.as_nanos()) as usize;
        let request = user.runtime.clone().spawn("request", async move {
            let asked = world.now();
            let read = user.client.read(user.handles[file], offset, bytes as u32).await;
            let mut steps = steps.lock();
            match read {
                Ok(_) => steps[at].add(world.now() - asked),
                Err(_) => steps[at].failed += 1,
            }
        });
        match arrivals {
            Arrivals::Steady => {
                tasks.push(request);
                bed.world.sleep(PAUSE).await;
            }
            Arrivals::AfterAnswer(pause) => {
                let _ended = request.join().await;
                bed.world.sleep(pause).await;
            }
        }
    }
    for task in tasks {
        let _ended = task.join().await;
    }
    std::mem::take(&mut *steps.lock())
}

/// One run: latencies of the requests of each step of the signal.
pub(super) fn run(rival: Rival, signal: &Signal, seed: u64, load: Load, span: Duration) -> Result<Steps> {
    let setting = rival.on(setting(load.files));
    let requests = Requests::new(setting, load, Dice::new(seed, "requests"));
    let popularity = requests.popularity(setting);
    on_arranged(seed, setting, &rival.homes(NODES, &popularity), |mut bed| async move {
        let user = bed.user("user", Some(Access::Read)).await?;
        rival.prepare(&mut bed, &user, |block| popularity.get(block).copied().unwrap_or(0.0)).await?;
        measure(&bed, &user, signal, requests, (load.arrivals, span)).await
    })
}

/// The same at one supply, by a policy on a layout.
pub(super) fn steady(
    policy: PolicyKind,
    layout: Layout,
    supply: Supply,
    seed: u64,
    load: Load,
    span: Duration,
) -> Result<Latencies> {
    let setting = Setting { policy, layout, ..setting(load.files) };
    let (requests, signal) = (Requests::new(setting, load, Dice::new(seed, "requests")), Signal::constant(supply)?);
    on(seed, setting, |bed| async move {
        let user = bed.user("user", Some(Access::Read)).await?;
        measure(&bed, &user, &signal, requests, (load.arrivals, span)).await.map(|steps| all(&steps))
    })
}

async fn measure(
    bed: &Testbed,
    user: &User,
    signal: &Signal,
    requests: Requests,
    (arrivals, span): (Arrivals, Duration),
) -> Result<Steps> {
    bed.supply_and_wait(signal.at(Duration::ZERO)).await?;
    let (followed, steps) =
        tokio::join!(follow(bed, signal, signals::STEP / 10, span), ask(bed, user, requests, arrivals, span));
    followed.map(|()| steps)
}

/// All of them together.
pub(super) fn all(steps: &Steps) -> Latencies {
    let mut whole = Latencies::default();
    steps.iter().cloned().for_each(|step| whole.merge(step));
    whole
}

/// Mean in seconds; none if some requests were never answered.
pub(super) fn mean(seen: &Latencies) -> Option<f64> {
    seen.mean().filter(|_| seen.failed == 0)
}

/// Of the rivals' curves.
pub(super) const MARKS: [Mark; 4] = [Mark::Markers, Mark::Line, Mark::Dashed, Mark::DashedStep];

pub(super) fn cell(time: Option<f64>) -> Cell {
    time.map_or_else(|| "infinite".into(), |time| Cell::text(format!("{:.3} s", time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popular_objects_are_asked_for_more_often_and_all_fit() {
        let setting = setting(16);
        let load = Load { bytes: 100_000, skew: 1.0, arrivals: Arrivals::Steady, files: 16 };
        let requests = Requests::new(setting, load, Dice::new(1, "test"));
        let popularity = requests.popularity(setting);
        assert!((popularity.iter().sum::<f64>() - requests.until.last().unwrap()).abs() < 1e-9);
        for rank in 0..requests.until.len() {
            let (file, offset) = requests.at(setting, rank);
            assert!(file < 16 && offset % setting.block_bytes + requests.bytes <= setting.block_bytes);
        }
        let most = popularity.iter().copied().fold(0.0, f64::max);
        assert!(most > 2.0 * popularity.iter().sum::<f64>() / popularity.len() as f64);
    }

    #[test]
    fn objects_are_popular_alike_without_a_skew() {
        let setting = setting(4);
        let load = Load { bytes: 1 << 20, skew: 0.0, arrivals: Arrivals::Steady, files: 4 };
        let popularity = Requests::new(setting, load, Dice::new(1, "test")).popularity(setting);
        assert_eq!(popularity, [4.0; 4]);
    }
}
