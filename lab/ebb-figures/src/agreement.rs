//! Whether the virtual cluster agrees with a real one about power: the same load on a real cluster and on a virtual one
//! of as many nodes, at the same levels of power, each as a share of the service at full power in the same run.
//!
//! The load is limited in its rate, so that neither cluster's disks and cores decide: service that is missing at less
//! power was waited for.

use std::time::Duration;

use ebb_client::Client;
use ebb_plan::{Cell, Table};
use ebb_power::PolicyKind;
use ebb_runtime::Runtime;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::Result;
use ebb_virtual::power::PowerCluster;

use crate::data::{Data, TestFiles};
use crate::testbed::Layout;

/// Fractions of the nodes' power that are compared with full power.
pub const LEVELS: [f64; 3] = [0.2, 0.5, 0.8];
/// Shares of the real and of the virtual cluster may differ by so much.
pub const TOLERANCE: f64 = 0.10;

/// What the load reads.
const FILES: TestFiles = TestFiles { directory: "lab-power", count: 24 };
/// Readers, and the rate at which each asks.
const STREAMS: usize = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// The data that are measured, and the number of repeats.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// Times that all levels are measured; the medians are compared.
    pub runs: usize,
    /// Intervals of each measurement.
    pub intervals: u32,
    /// The cluster's blink interval.
    pub interval: Duration,
}

/// The service of each run at [`LEVELS`], as a share of its own full power.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Shares {
    runs: Vec<Vec<f64>>,
}

impl Shares {
    /// Median, least and most at a level.
    #[must_use]
    pub fn at(&self, level: usize) -> Option<(f64, f64, f64)> {
        let mut seen: Vec<f64> = self.runs.iter().filter_map(|run| run.get(level).copied()).collect();
        seen.sort_unstable_by(f64::total_cmp);
        Some((*seen.get(seen.len() / 2)?, *seen.first()?, *seen.last()?))
    }
}

/// Real and virtual beside each other.
#[derive(Clone, PartialEq, Debug)]
pub struct Agreement {
    /// Of the cluster of processes.
    pub real: Shares,
    /// Of the one in virtual time.
    pub simulated: Shares,
}

impl Agreement {
    /// Largest difference between the medians of a level.
    #[must_use]
    pub fn worst(&self) -> f64 {
        let difference = |level| Some((self.real.at(level)?.0 - self.simulated.at(level)?.0).abs());
        (0..LEVELS.len()).filter_map(difference).fold(0.0, f64::max)
    }

    /// Per cent of full power, level by level.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = [
            ("power", "power"),
            ("real", "real"),
            ("least", "least"),
            ("most", "most"),
            ("virtual", "virtual"),
            ("difference", "difference"),
        ];
        let mut table = Table::new("Throughput as a share of full power (%)", &columns);
        for (at, level) in LEVELS.iter().enumerate() {
            let (Some(real), Some(simulated)) = (self.real.at(at), self.simulated.at(at)) else { continue };
            let percent = |share: f64| Cell::Number(share * 100.0, 1);
            table.row(vec![
                Cell::Number(level * 100.0, 0),
                percent(real.0),
                percent(real.1),
                percent(real.2),
                percent(simulated.0),
                percent(real.0 - simulated.0),
            ]);
        }
        table
    }
}

/// The virtual cluster's shares.
pub fn simulate(seed: u64, nodes: usize, policy: PolicyKind, load: Load) -> Result<Shares> {
    World::run(seed, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, nodes, policy, load.interval).await?;
        let client = cluster.connect("client").await?;
        let runtime = world.process("client").runtime();
        measure(&runtime, &client, load, async |share| cluster.set_fraction(share).await).await
    })
}

/// Puts the load on a cluster, at all levels of power, and returns its shares. `set` gives the nodes a fraction of
/// their power. The data are written first, and removed in the end.
pub async fn measure(
    runtime: &Runtime,
    client: &Client,
    load: Load,
    set: impl AsyncFn(f64) -> Result<()>,
) -> Result<Shares> {
    set(1.0).await?;
    let data = FILES.make(client, Layout::balanced(3)).await?;
    let measured = measure_data(&data, runtime, client, load, set).await;
    data.close(client).await;
    FILES.remove(client).await?;
    measured
}

async fn measure_data(
    data: &Data,
    runtime: &Runtime,
    client: &Client,
    load: Load,
    set: impl AsyncFn(f64) -> Result<()>,
) -> Result<Shares> {
    let mut shares = Shares::default();
    for run in 0..load.runs {
        let full = serve_at(data, 1.0, runtime, client, load, &set, run).await?;
        let mut of_run = Vec::new();
        for level in LEVELS {
            let served = serve_at(data, level, runtime, client, load, &set, run).await?;
            of_run.push(served as f64 / full.max(1) as f64);
        }
        shares.runs.push(of_run);
    }
    set(1.0).await?;
    Ok(shares)
}

/// Blocks served at a level of power.
async fn serve_at(
    data: &Data,
    level: f64,
    runtime: &Runtime,
    client: &Client,
    load: Load,
    set: &impl AsyncFn(f64) -> Result<()>,
    run: usize,
) -> Result<u64> {
    set(level).await?;
    // The plan has begun, and every node has changed over.
    runtime.sleep(load.interval * 2 + Duration::from_secs(1)).await;
    let end = runtime.now().after(load.interval * load.intervals);
    let mut readers = Vec::new();
    for stream in 0..STREAMS {
        let (client, handles, own) = (client.clone(), data.handles.clone(), runtime.clone());
        let (bytes, blocks) = (data.block_bytes, data.blocks_per_file);
        readers.push(runtime.spawn("reader", async move {
            let (mut served, mut number) = (0_u64, (run * STREAMS + stream) * 31);
            loop {
                let began = own.now();
                if own.now() >= end {
                    return Ok::<u64, ebb_types::Error>(served);
                }
                number += 1;
                let block = number as u64 * 7 % blocks;
                client.read(handles[number * 5 % FILES.count], block * bytes, bytes as u32).await?;
                // A read that ends after the end was not served within it.
                served += u64::from(own.now() < end);
                own.sleep(PAUSE.saturating_sub(own.now().since(began))).await;
            }
        }));
    }
    let mut served = 0;
    for reader in readers {
        served += reader.join().await??;
    }
    Ok(served)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load { runs: 1, intervals: 3, interval: Duration::from_secs(2) };

    #[test]
    fn less_power_serves_less_and_the_same_seed_the_same() {
        let one = simulate(5, 9, PolicyKind::BlinkCircular, LOAD).unwrap();
        let [low, half, most] = [0, 1, 2].map(|level| one.at(level).unwrap().0);
        assert!(low < half && half <= most && most <= 1.01, "{one:?}");
        assert!(low > 0.1, "three copies are awake a third of the time: {one:?}");
        assert_eq!(simulate(5, 9, PolicyKind::BlinkCircular, LOAD).unwrap(), one);
    }

    #[test]
    fn the_worst_level_counts() {
        let shares = |runs: &[[f64; 3]]| Shares { runs: runs.iter().map(|run| run.to_vec()).collect() };
        let real = shares(&[[0.2, 0.9, 1.0], [0.3, 0.8, 1.0], [0.4, 0.7, 1.0]]);
        let agreement = Agreement { real, simulated: shares(&[[0.25, 0.75, 1.0]]) };
        assert!((agreement.worst() - 0.05).abs() < 1e-9, "{agreement:?}");
        assert_eq!(agreement.table().rows().len(), LEVELS.len());
    }
}
