//! D5: reads of what a dead node held, and making it again, by the number of nodes. D7 counts with what was measured here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ebb_client::{Access, Client, Handle};
use ebb_plan::figure::Axis;
use ebb_plan::{Cell, Comparison, Figure, Mark, Section};
use ebb_runtime::Runtime;
use ebb_runtime::virt::Process;
use ebb_types::{Credentials, NodeId, RaidCode, Redundancy, Result, bail};
use ebb_wire::pb;
use parking_lot::Mutex;

use super::reliability::{self, Measured};
use super::store::{COPIES, Shape, Store, Written, on};
use crate::hardware::MACHINES;
use crate::part::Lab;

pub const SOURCES: &[&str] = &["D5", "D7"];

const CODE: RaidCode = RaidCode::RAID6;
const SCALE: u64 = 64;
/// Stands for 16 MiB: deadlines of the services go by true bytes, and longer ones would not be kept here.
const METABLOCK: u64 = 256 << 10;
/// Metablocks of files for each node. With 8+2 a node has 30 members.
const PER_NODE: u32 = 24;
/// Reads for each reader.
const READS: usize = 4;
const LOOK: Duration = Duration::from_millis(100);

/// What was seen when a node died.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen {
    nodes: u32,
    /// MB/s of all readers together, of the metablocks that the node held: before, and without it.
    normal: f64,
    degraded: f64,
    /// The same of one reader.
    alone: [f64; 2],
    /// From the node's death until its members begin to be made again.
    detection: Duration,
    /// From then on until all are.
    span: Duration,
    /// Bytes that were made again, scaled up.
    made_bytes: f64,
    /// Read and written for each of them.
    work: f64,
    /// Of the first members that were made again, as many as are made at a time: the most on one node.
    crowd: usize,
}

/// Members that were made first, whose nodes are counted.
const MADE_FIRST: usize = 8;

impl Seen {
    /// MB/s of members that are made again.
    fn rebuild_rate(self) -> f64 {
        self.made_bytes / self.span.as_secs_f64() / 1e6
    }

    fn measured(self) -> Measured {
        let bytes = self.made_bytes * self.work;
        Measured { disks: self.nodes, detection: self.detection, cluster_bytes_per_s: bytes / self.span.as_secs_f64() }
    }
}

/// A reader on a node, with files open.
struct Reader {
    client: Client,
    runtime: Runtime,
    handles: Vec<(Handle, u64)>,
}

fn shape(nodes: u32, code: Option<RaidCode>) -> Shape {
    Shape { scale: SCALE, code, ..Shape::of(nodes, CODE, METABLOCK) }
}

async fn fill(store: &mut Store, nodes: u32, code: Option<RaidCode>) -> Result<()> {
    let directory = store.make_dataset("data", code).await?;
    for _ in 0..nodes * PER_NODE {
        store.write(directory, METABLOCK).await?;
    }
    Ok(())
}

/// An 8+2 dataset on so many nodes.
fn run(seed: u64, nodes: u32) -> Result<Seen> {
    on(seed, shape(nodes, Some(CODE)), |mut store| async move {
        fill(&mut store, nodes, Some(CODE)).await?;
        store.wait_until_encoded().await?;
        let place = store.world.dice("a node to lose").index(nodes as usize);
        let lost = store.nodes().await?[place];
        let sets = store.raid_sets().await?;
        let held: BTreeSet<u64> = sets
            .iter()
            .flat_map(|set| &set.slots)
            .filter(|slot| slot.members[0].node == lost.raw())
            .map(|slot| slot.inode)
            .collect();
        let files: Vec<Written> = store.files.iter().filter(|file| held.contains(&file.inode.raw())).copied().collect();
        let members = parts_on(&sets, lost);
        let readers = readers(&store, place, &files).await?;
        let normal = read(&store, &readers, READS * readers.len()).await?;
        let alone = read(&store, &readers[..1], files.len()).await?;
        let began = store.world.now();
        store.cluster.fail(lost)?;
        wait(&store, async || Ok(store.totals().await?.lost_some > 0)).await?;
        let degraded = read(&store, &readers, READS * readers.len()).await?;
        let degraded_alone = read(&store, &readers[..1], files.len()).await?;
        // The first member is recorded when it is made: it took as long as each of those that are made beside it.
        wait(&store, async || Ok(parts_on(&store.raid_sets().await?, lost) < members)).await?;
        let first = store.world.now();
        let crowd = crowd(&store, &sets, lost, members.min(MADE_FIRST)).await?;
        wait(&store, async || Ok(parts_on(&store.raid_sets().await?, lost) == 0)).await?;
        let span = store.world.now() - first;
        let made = members as f64 * (METABLOCK * SCALE) as f64;
        let work = f64::from(CODE.slots) + 1.0;
        Ok(Seen {
            nodes,
            normal,
            degraded,
            alone: [alone, degraded_alone],
            detection: first - began,
            span,
            made_bytes: made,
            work,
            crowd,
        })
    })
}

/// Three copies on as many nodes. Nothing is decoded.
fn run_copies(seed: u64, nodes: u32) -> Result<Seen> {
    on(seed, shape(nodes, None), |mut store| async move {
        fill(&mut store, nodes, None).await?;
        let place = store.world.dice("a node to lose").index(nodes as usize);
        let lost = store.nodes().await?[place];
        let began = store.world.now();
        let before = store.cluster.cluster_status().await?.repaired;
        store.cluster.fail(lost)?;
        let is_dead = async || {
            let nodes = store.cluster.cluster_status().await?.nodes;
            Ok(nodes.iter().any(|node| node.id == lost.raw() && node.state() == pb::NodeState::NodeDead))
        };
        wait(&store, is_dead).await?;
        let dead = store.world.now();
        let is_whole =
            async || Ok(store.cluster.cluster_status().await?.failures.last().is_some_and(|one| one.whole_ms > 0));
        wait(&store, is_whole).await?;
        let span = store.world.now() - dead;
        let copies = store.cluster.cluster_status().await?.repaired - before;
        let made_bytes = copies as f64 * (METABLOCK * SCALE) as f64;
        Ok(Seen {
            nodes,
            normal: 0.0,
            degraded: 0.0,
            alone: [0.0; 2],
            detection: dead - began,
            span,
            made_bytes,
            work: 2.0,
            crowd: 0,
        })
    })
}

/// Waits until so many members are made again, and tells how many of them are on the node that has most.
async fn crowd(store: &Store, before: &[pb::RaidSet], lost: NodeId, count: usize) -> Result<usize> {
    let own = |sets: &[pb::RaidSet]| -> BTreeSet<(u64, u64)> {
        let slots = sets.iter().flat_map(|set| &set.slots);
        let slots = slots.flat_map(|slot| slot.members.iter().map(|member| (slot.metablock, member.node)));
        let rows = sets.iter().flat_map(|set| &set.rows);
        slots.chain(rows.filter_map(|row| Some((row.metablock, row.member?.node)))).collect()
    };
    let old = own(before);
    wait(store, async || Ok(parts_on(before, lost) - parts_on(&store.raid_sets().await?, lost) >= count)).await?;
    let mut on: BTreeMap<u64, usize> = BTreeMap::new();
    own(&store.raid_sets().await?).difference(&old).for_each(|(_, node)| *on.entry(*node).or_default() += 1);
    Ok(on.into_values().max().unwrap_or(0))
}

/// Members of RAID sets on a node.
fn parts_on(sets: &[pb::RaidSet], node: NodeId) -> usize {
    let slots = sets.iter().flat_map(|set| &set.slots).flat_map(|slot| &slot.members);
    let rows = sets.iter().flat_map(|set| &set.rows).filter_map(|row| row.member.as_ref());
    slots.chain(rows).filter(|member| member.node == node.raw()).count()
}

/// As [`Store::wait_until`], with a finer clock.
async fn wait(store: &Store, is_so: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let end = store.world.now() + Duration::from_secs(7_200);
    while !is_so().await? {
        if store.world.now() > end {
            bail!(Timeout, "a dead node's data are not made again: {:?}", store.totals().await?);
        }
        store.world.sleep(LOOK).await;
    }
    Ok(())
}

/// One on every node but for this place.
async fn readers(store: &Store, without: usize, files: &[Written]) -> Result<Vec<Reader>> {
    let mut readers = Vec::new();
    for place in (0..store.shape.nodes as usize).filter(|place| *place != without) {
        let (client, process): (Client, Process) = store.cluster.connect_on(place, &format!("reader{place}")).await?;
        let mut handles = Vec::new();
        for file in files {
            handles.push((client.open(&Credentials::root(), file.inode, Access::Read).await?.0, file.len));
        }
        readers.push(Reader { client, runtime: process.runtime(), handles });
    }
    Ok(readers)
}

/// So many reads of a metablock, by turns over the files, each by a reader that is free. MB/s.
async fn read(store: &Store, readers: &[Reader], count: usize) -> Result<f64> {
    let queue: Arc<Mutex<VecDeque<usize>>> = Arc::new(Mutex::new((0..count).collect()));
    let began = store.world.now();
    let mut tasks = Vec::new();
    for reader in readers {
        let (client, handles, queue) = (reader.client.clone(), reader.handles.clone(), Arc::clone(&queue));
        tasks.push(reader.runtime.spawn("reader", async move {
            let mut bytes = 0;
            loop {
                let Some(next) = queue.lock().pop_front() else { return Ok(bytes) };
                let (handle, len) = handles[next % handles.len()];
                bytes += client.read(handle, 0, len as u32).await?.len() as u64;
            }
        }));
    }
    let mut bytes = 0;
    for task in tasks {
        let read: Result<u64> = task.join().await?;
        bytes += read?;
    }
    Ok((bytes * SCALE) as f64 / (store.world.now() - began).as_secs_f64() / 1e6)
}

/// A run of this part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    Code(u32),
    Copies(u32),
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let steps = lab.effort.of(vec![11, 16, 24], vec![11, 16]);
    let last = steps[steps.len() - 1];
    let cases: Vec<Case> = steps.iter().map(|nodes| Case::Code(*nodes)).chain([Case::Copies(last)]).collect();
    let mut all = lab.map(&cases, |case| match case {
        Case::Code(nodes) => run(lab.seed, *nodes),
        Case::Copies(nodes) => run_copies(lab.seed, *nodes),
    })?;
    let copies = all.pop().expect("three copies are the last case");
    let mut section = Section::new("", &[]);
    rows(&mut section, &all);
    section.figures.push(figure(&all));
    let code = all[all.len() - 1];
    reliability::add(&mut section, copies.measured(), code.measured())?;
    Ok(section)
}

fn rows(section: &mut Section, all: &[Seen]) {
    let (first, last) = (all[0], all[all.len() - 1]);
    let slots = f64::from(CODE.slots);
    let link = MACHINES.link_bytes_per_sec as f64 / 1e6;
    let name = Redundancy::Raid(CODE).to_string();
    for seen in all {
        let quantity =
            format!("{name} on {} nodes, a reader on each: reads of a dead node's metablocks (MB/s)", seen.nodes);
        // Each byte is eight on the readers' links, of which an eighth or so lies on the reader's own node.
        let bound = f64::from(seen.nodes - 1) * link / slots;
        let why = format!(
            "Beside it what the readers' links carry if each byte needs eight. The same metablocks before: {:.0} MB/s, as all lay on one disk.",
            seen.normal
        );
        section.rows.push(
            Comparison::new("D5", quantity, Cell::Number(bound, 0), Cell::Number(seen.degraded, 0), why)
                .bound(seen.degraded >= 0.5 * bound),
        );
    }
    section.rows.push(
        Comparison::new(
            "D5",
            format!("{name} on {} nodes, one reader: degraded rate of the normal one", last.nodes),
            Cell::Share(1.0 / slots, 0),
            Cell::Share(last.alone[1] / last.alone[0], 0),
            format!(
                "{:.0} MB/s degraded, {:.0} MB/s normal. Beside it an eighth: eight bytes for each cross one link.",
                last.alone[1], last.alone[0]
            ),
        )
        .bound(last.alone[1] / last.alone[0] >= 0.9 / slots),
    );
    for seen in all {
        let quantity = format!("{name} on {} nodes: members made again (MB/s)", seen.nodes);
        let why = format!("{:.1} GB in {:.1} s.", seen.made_bytes / 1e9, seen.span.as_secs_f64());
        section.rows.push(Comparison::new("D5", quantity, Cell::Missing, Cell::Number(seen.rebuild_rate(), 0), why));
    }
    let growth = last.rebuild_rate() / first.rebuild_rate();
    let linear = f64::from(last.nodes) / f64::from(first.nodes);
    section.rows.push(
        Comparison::new(
            "D5",
            format!("times as fast with {} nodes as with {}", last.nodes, first.nodes),
            Cell::Number(linear, 1),
            Cell::Number(growth, 2),
            format!(
                "The paper repairs over all disks at once. A node makes one member at a time, which needs eight bytes for each on its link. \
                 Of the first {MADE_FIRST} members that were done {} were on one node with {} nodes, and {} with {}.",
                first.crowd, first.nodes, last.crowd, last.nodes
            ),
        )
        .bound(growth >= 0.8 * linear),
    );
    section.rows.push(
        Comparison::new(
            "D5",
            "until a lost member begins to be made again (s)",
            Cell::Number(600.0, 0),
            Cell::Number(last.detection.as_secs_f64(), 0),
            format!(
                "The paper's ten minutes are until a failure is noticed. Here a node counts as dead after ten seconds, and a RAID set that can \
                 bear a further loss then waits ten minutes for it. {COPIES} copies wait for nothing."
            ),
        )
        .bound((last.detection.as_secs_f64() / 600.0 - 1.0).abs() <= 0.05),
    );
}

fn figure(all: &[Seen]) -> Figure {
    let points =
        |of: &dyn Fn(&Seen) -> f64| all.iter().map(|seen| (f64::from(seen.nodes), of(seen))).collect::<Vec<_>>();
    Figure::plane(
        "D5: degraded reads and rebuilding by the number of nodes",
        Axis::linear("nodes").from(0.0).whole(),
        Axis::linear("MB/s").from(0.0),
    )
    .subtitle("8+2; one node has died; a reader on every other node")
    .with("degraded reads, all readers", Mark::Markers, points(&|seen| seen.degraded))
    .with("members made again", Mark::Markers, points(&|seen| seen.rebuild_rate()))
    .with("degraded reads, one reader", Mark::Dashed, points(&|seen| seen.alone[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_node_s_data_are_read_and_made_again() {
        let seen = run(6, 11).unwrap();
        assert!(seen.alone[1] < seen.alone[0] / 2.0 && seen.alone[1] > seen.alone[0] / 12.0, "{seen:?}");
        assert!(seen.degraded > seen.alone[1], "{seen:?}");
        assert!(seen.detection > Duration::from_secs(600) && seen.span > Duration::ZERO, "{seen:?}");
    }
}
