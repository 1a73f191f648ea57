//! Whether the virtual cluster agrees with a real one about power: the same load on a real cluster and on a virtual one
//! of as many nodes, at the same levels of power, each as a share of the service at full power in the same run.
//!
//! The load is limited in its rate, so that neither cluster's disks and cores decide: service that is missing at less
//! power was waited for.

use std::time::Duration;

use ebb_client::{Client, Handle};
use ebb_plan::{Cell, Table};
use ebb_power::PolicyKind;
use ebb_runtime::virt::{Dice, World, WorldOptions};
use ebb_runtime::{Moment, Runtime, Task};
use ebb_types::Result;
use ebb_virtual::power::PowerCluster;

use crate::compliance::layout;
use crate::data::{Data, TestFiles};

/// Fractions of the nodes' power that are compared with full power.
pub const LEVELS: [f64; 3] = [0.2, 0.5, 0.8];
/// Shares of the real and of the virtual cluster may differ by so much.
pub const TOLERANCE: f64 = 0.10;

/// What the load reads, and a file for each writer.
const FILES: TestFiles = TestFiles { directory: "lab-power", count: 24 + WRITERS };
/// Readers, and the rate at which each asks.
const READERS: usize = 4;
const READ_PAUSE: Duration = Duration::from_millis(100);
/// Reads of a reader before its order begins anew: more than it gets to in a run.
const ORDER_LEN: usize = 4_096;
/// Writers of a block each, made safe, and their rate.
const WRITERS: usize = 2;
const WRITE_PAUSE: Duration = Duration::from_millis(250);

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

/// What one cluster served.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Service {
    /// Reads.
    pub reads: Shares,
    /// Writes, each made safe.
    pub writes: Shares,
}

/// Real and virtual beside each other.
#[derive(Clone, PartialEq, Debug)]
pub struct Agreement {
    /// Of the cluster of processes.
    pub real: Service,
    /// Of the one in virtual time.
    pub simulated: Service,
}

impl Agreement {
    /// Reads and writes, real and virtual.
    fn kinds(&self) -> [(&'static str, &Shares, &Shares); 2] {
        let (real, simulated) = (&self.real, &self.simulated);
        [("reads", &real.reads, &simulated.reads), ("writes", &real.writes, &simulated.writes)]
    }

    /// Largest difference between the medians of a level.
    #[must_use]
    pub fn worst(&self) -> f64 {
        let of = |real: &Shares, simulated: &Shares, level| Some((real.at(level)?.0 - simulated.at(level)?.0).abs());
        let all = self.kinds().into_iter().flat_map(|(_, real, simulated)| {
            (0..LEVELS.len()).filter_map(|level| of(real, simulated, level)).collect::<Vec<_>>()
        });
        all.fold(0.0, f64::max)
    }

    /// Per cent of full power, level by level.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = [
            ("work", "work"),
            ("power", "power"),
            ("real", "real"),
            ("least", "least"),
            ("most", "most"),
            ("virtual", "virtual"),
            ("difference", "difference"),
        ];
        let mut table = Table::new("Throughput as a share of full power (%)", &columns);
        for (name, real, simulated) in self.kinds() {
            for (at, level) in LEVELS.iter().enumerate() {
                let (Some(real), Some(simulated)) = (real.at(at), simulated.at(at)) else { continue };
                let percent = |share: f64| Cell::Number(share * 100.0, 1);
                table.row(vec![
                    name.into(),
                    Cell::Number(level * 100.0, 0),
                    percent(real.0),
                    percent(real.1),
                    percent(real.2),
                    percent(simulated.0),
                    percent(real.0 - simulated.0),
                ]);
            }
        }
        table
    }
}

/// The virtual cluster's shares.
pub fn simulate(seed: u64, nodes: usize, policy: PolicyKind, load: Load) -> Result<Service> {
    World::run(seed, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, nodes, policy, load.interval).await?;
        let client = cluster.connect("client").await?;
        let runtime = world.process("client").runtime();
        measure(&runtime, &client, policy, load, async |share| cluster.set_fraction(share).await).await
    })
}

/// Puts the load on a cluster, at all levels of power, and returns its shares. `set` gives the nodes a fraction of
/// their power. The data are written first, in the layout that goes with the policy, and removed in the end.
pub async fn measure(
    runtime: &Runtime,
    client: &Client,
    policy: PolicyKind,
    load: Load,
    set: impl AsyncFn(f64) -> Result<()>,
) -> Result<Service> {
    set(1.0).await?;
    let data = FILES.make(client, layout(policy)).await?;
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
) -> Result<Service> {
    let mut service = Service::default();
    for run in 0..load.runs {
        let full = serve_at(data, 1.0, runtime, client, load, &set, run).await?;
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for level in LEVELS {
            let served = serve_at(data, level, runtime, client, load, &set, run).await?;
            reads.push(served.0 as f64 / full.0.max(1) as f64);
            writes.push(served.1 as f64 / full.1.max(1) as f64);
        }
        service.reads.runs.push(reads);
        service.writes.runs.push(writes);
    }
    set(1.0).await?;
    Ok(service)
}

/// Blocks read and written at a level of power.
async fn serve_at(
    data: &Data,
    level: f64,
    runtime: &Runtime,
    client: &Client,
    load: Load,
    set: &impl AsyncFn(f64) -> Result<()>,
    run: usize,
) -> Result<(u64, u64)> {
    set(level).await?;
    // The plan has begun, and every node has changed over.
    runtime.sleep(load.interval * 2 + Duration::from_secs(1)).await;
    let end = runtime.now().after(load.interval * load.intervals);
    let (bytes, blocks) = (data.block_bytes, data.blocks_per_file);
    let (read, written) = data.handles.split_at(data.handles.len() - WRITERS);
    let mut readers = Vec::new();
    for stream in 0..READERS {
        let (client, order) = (client.clone(), any_order(read, blocks, run * READERS + stream));
        let request = move |number: u64| {
            let (client, (handle, block)) = (client.clone(), order[number as usize % order.len()]);
            async move { client.read(handle, block * bytes, bytes as u32).await.map(drop) }
        };
        readers.push(runtime.spawn("reader", served_until(runtime.clone(), end, READ_PAUSE, request)));
    }
    let mut writers = Vec::new();
    for handle in written.iter().copied() {
        let (client, content) = (client.clone(), data.block(run as u8));
        let request = move |number: u64| {
            let (client, content) = (client.clone(), content.clone());
            async move {
                client.write(handle, number % blocks * bytes, content).await?;
                client.fsync(handle).await
            }
        };
        writers.push(runtime.spawn("writer", served_until(runtime.clone(), end, WRITE_PAUSE, request)));
    }
    Ok((sum(readers).await?, sum(writers).await?))
}

/// Blocks in an order in which the one says nothing of the next one: how long a reader waits depends on where the next
/// block lies, so a short round would make one wait of many.
fn any_order(handles: &[Handle], blocks: u64, reader: usize) -> Vec<(Handle, u64)> {
    let mut dice = Dice::new(reader as u64, "blocks of a reader");
    (0..ORDER_LEN).map(|_| (handles[dice.index(handles.len())], dice.below(blocks))).collect()
}

async fn sum(tasks: Vec<Task<Result<u64>>>) -> Result<u64> {
    let mut sum = 0;
    for task in tasks {
        sum += task.join().await??;
    }
    Ok(sum)
}

/// Requests one after the other, of which as many are counted as ended within the time.
async fn served_until<Work: Future<Output = Result<()>> + Send>(
    runtime: Runtime,
    end: Moment,
    pause: Duration,
    request: impl Fn(u64) -> Work + Send,
) -> Result<u64> {
    let mut served = 0;
    for number in 1.. {
        let began = runtime.now();
        if began >= end {
            break;
        }
        request(number).await?;
        served += u64::from(runtime.now() < end);
        runtime.sleep(pause.saturating_sub(runtime.now().since(began))).await;
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
        let [low, half, most] = [0, 1, 2].map(|level| one.reads.at(level).unwrap().0);
        assert!(low < half && half <= most && most <= 1.01, "{one:?}");
        assert!(low > 0.1, "three copies are awake a third of the time: {one:?}");
        assert!((0..3).all(|level| one.writes.at(level).unwrap().0 > 0.5), "writes need no member: {one:?}");
        assert_eq!(simulate(5, 9, PolicyKind::BlinkCircular, LOAD).unwrap(), one);
    }

    #[test]
    fn the_worst_level_counts() {
        let shares = |runs: &[[f64; 3]]| Shares { runs: runs.iter().map(|run| run.to_vec()).collect() };
        let reads = shares(&[[0.2, 0.9, 1.0], [0.3, 0.8, 1.0], [0.4, 0.7, 1.0]]);
        let writes = shares(&[[0.5, 1.0, 1.0]]);
        let real = Service { reads, writes: writes.clone() };
        let mut agreement = Agreement { real, simulated: Service { reads: shares(&[[0.25, 0.75, 1.0]]), writes } };
        assert!((agreement.worst() - 0.05).abs() < 1e-9, "{agreement:?}");
        agreement.simulated.writes = shares(&[[0.5, 0.8, 1.0]]);
        assert!((agreement.worst() - 0.2).abs() < 1e-9, "{agreement:?}");
        assert_eq!(agreement.table().rows().len(), 2 * LEVELS.len());
    }
}
