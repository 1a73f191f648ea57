//! Sec. 3.5, run: a primary fails while the primaries alone are on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_client::Access;
use ebb_plan::{Cell, Comparison, Section};
use ebb_power::PolicyKind;
use ebb_types::{NodeId, Result, bail};
use ebb_wire::pb;

use crate::drive::{Block, all_blocks};
use crate::part::Lab;
use crate::testbed::{Layout, Setting, Testbed, User, on};

pub const SOURCES: &[&str] = &["Sec. 3.5"];

const PRIMARIES: u32 = 2;
const GEAR_SIZE: u32 = 2;
/// Two primaries and three gears of two: their columns are two recovery groups of three nodes.
const NODES: u32 = 8;
const GEARS: usize = 3;
const COPIES: u32 = 2;

/// Everything must have come about within this.
const PATIENCE: Duration = Duration::from_secs(1_200);
/// The failed one is put right so long after it failed.
const MENDED: Duration = Duration::from_secs(300);
/// Nothing moves for so long once it has settled.
const SETTLED: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// Observations after the failure.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    /// Nodes on before, and after, by their place on the chain, counted from 0; after, without the failed one.
    before: BTreeSet<usize>,
    after: BTreeSet<usize>,
    /// Until the data of the failed node could be read again.
    available: Duration,
    /// Until nothing lacked copies, with the power of before; the failed one was away.
    durable: Duration,
    /// How many copies that took.
    copies: u64,
    /// From when the failed one was back until nothing more was moved back to where the chain wants it.
    placed: Duration,
    /// Blocks that are not all there then: a copy of theirs is a guest of a node that sleeps, or has to go to one.
    waiting: u64,
    /// Nodes on then.
    at_last: BTreeSet<usize>,
}

fn run(seed: u64, blocks: u32) -> Result<Seen> {
    let layout = Layout::geared(PRIMARIES, GEAR_SIZE, COPIES);
    on(seed, Setting::of(NODES, PolicyKind::Activation, layout, blocks), |bed| async move {
        let user = bed.user("user", Some(Access::Read)).await?;
        let chain = bed.dataset().await?.chain;
        let place = |node: &u64| chain.iter().position(|one| one == node);
        bed.set_active(&user, PRIMARIES).await?;
        wait(&bed, "the primaries alone on", async || Ok(bed.nodes_on().await?.len() == PRIMARIES as usize)).await?;
        let before = bed.nodes_on().await?.iter().filter_map(place).collect();
        // Every node has changed over, and no change is expected.
        bed.world.sleep(Duration::from_secs(90)).await;
        let one_of_each = second_copies(&bed, &user, chain[0]).await?;
        let began = bed.world.now();
        bed.cluster().fail(NodeId::new(chain[0]))?;
        read(&bed, &user, &one_of_each).await?;
        let available = bed.world.now() - began;
        // The failed one has power as long as no other node needs it, in case it is only late; it does nothing with it.
        let after = bed.nodes_on().await?.iter().filter_map(place).filter(|place| *place > 0).collect();
        read(&bed, &user, &all_blocks(&bed, "after a failure")).await?;
        wait(&bed, "all copies", async || Ok(last_failure(&bed).await?.whole_ms > 0)).await?;
        let durable = bed.world.now() - began;
        let copies = bed.cluster().cluster_status().await?.repaired;
        bed.world.sleep(MENDED.saturating_sub(bed.world.now() - began)).await;
        let failure = last_failure(&bed).await?;
        if failure.placed_ms > 0 {
            bail!(Internal, "everything is in its place without the node that most of it belongs on: {failure:?}");
        }
        let mended = bed.world.now();
        bed.cluster().repair(NodeId::new(chain[0]))?;
        let (settled, waiting) = wait_until_settled(&bed).await?;
        let placed = settled - mended;
        wait(&bed, "the primaries alone on", async || Ok(bed.nodes_on().await?.len() == PRIMARIES as usize)).await?;
        let at_last = bed.nodes_on().await?.iter().filter_map(place).collect();
        read(&bed, &user, &all_blocks(&bed, "after all is restored")).await?;
        Ok(Seen { before, after, available, durable, copies, placed, waiting, at_last })
    })
}

/// The master's report of the failure.
async fn last_failure(bed: &Testbed) -> Result<pb::NodeFailure> {
    Ok(bed.cluster().cluster_status().await?.failures.last().copied().unwrap_or_default())
}

/// A block of a primary for each node that has second copies of its blocks.
async fn second_copies(bed: &Testbed, user: &User, primary: u64) -> Result<Vec<Block>> {
    let mut found: BTreeMap<u64, Block> = BTreeMap::new();
    for (file, map) in bed.maps(user).await?.iter().enumerate() {
        for record in map.iter().filter(|record| record.members.iter().any(|member| member.node == primary)) {
            let others = record.members.iter().filter(|member| member.node != primary);
            found.extend(others.map(|member| (member.node, (file, record.index))));
        }
    }
    Ok(found.into_values().collect())
}

/// Reads blocks, each until it is answered.
async fn read(bed: &Testbed, user: &User, blocks: &[Block]) -> Result<()> {
    let size = bed.setting.block_bytes;
    for (file, block) in blocks {
        let (at, handle) = (block * size, user.handles[*file]);
        wait(bed, "bytes for a reader", async || Ok(user.client.read(handle, at, size as u32).await.is_ok())).await?;
    }
    Ok(())
}

/// Waits until no block has gone back to its place for [`SETTLED`]. The moment of the last, and the number that are still off.
async fn wait_until_settled(bed: &Testbed) -> Result<(Duration, u64)> {
    let (mut last, mut waiting) = (bed.world.now(), u64::MAX);
    wait(bed, "most blocks in their places", async || {
        let failure = last_failure(bed).await?;
        if failure.misplaced != waiting {
            (last, waiting) = (bed.world.now(), failure.misplaced);
        }
        Ok(failure.placed_ms > 0 || bed.world.now() - last > SETTLED)
    })
    .await?;
    Ok((last, waiting))
}

/// Waits until it is so.
async fn wait(bed: &Testbed, event: &str, mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let end = bed.world.now() + PATIENCE;
    while !is_so().await? {
        if bed.world.now() > end {
            let plan = bed.cluster().status().await.map(|status| status.why).unwrap_or_default();
            bail!(Timeout, "after {PATIENCE:?} there are still not {event}; the plan says {plan:?}");
        }
        bed.world.sleep(LOOK).await;
    }
    Ok(())
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let blocks = lab.effort.of(512, 96);
    let seen = lab.map(&[blocks], |blocks| run(lab.seed, *blocks))?.remove(0);
    let (fewest, woken) = ((PRIMARIES - 1) as usize + GEARS, seen.after.difference(&seen.before).count());
    let names = |places: &BTreeSet<usize>| {
        let names: Vec<String> = places.iter().map(|place| (place + 1).to_string()).collect();
        names.join(", ")
    };
    let after =
        format!("Of {NODES} on the chain {} were on before, {} after.", names(&seen.before), names(&seen.after));
    let mut section = Section::new("", &[]);
    let mut row = |quantity: &str, paper: Cell, ours: Cell, why: String| {
        section.rows.push(Comparison::new("Sec. 3.5", quantity, paper, ours, why));
    };
    row(
        "nodes on after a primary has failed, with gears: p - 1 and its recovery group",
        Cell::Count(fewest as u64),
        Cell::Count(seen.after.len() as u64),
        after,
    );
    row(
        "of them woken: the recovery group and nothing else",
        Cell::Count(GEARS as u64),
        Cell::Count(woken as u64),
        String::new(),
    );
    let times = "The paper gives no time. Ours is that until the node is missed, until the plan begins, and until its nodes are awake.";
    row(
        "until what it held can be read again (s)",
        Cell::Missing,
        Cell::Number(seen.available.as_secs_f64(), 1),
        times.into(),
    );
    let mut time = |quantity: &str, span: Duration, why: String| {
        section.rows.push(Comparison::new(
            "Sec. 3.5",
            quantity,
            Cell::Missing,
            Cell::Number(span.as_secs_f64(), 1),
            why,
        ));
    };
    time(
        "until nothing lacks copies, with the power of before (s)",
        seen.durable,
        format!(
            "A node is taken for dead after ten seconds here; then {} copies are made on nodes that are on.",
            seen.copies
        ),
    );
    time(
        "from the failed node's return until nothing more goes back to where the chain wants it, on the primaries alone (s)",
        seen.placed,
        format!(
            "Without it nothing is moved. It comes back with its disk, but its replicas are out of date. {} of {blocks} blocks \
             wait for a node that sleeps.",
            seen.waiting
        ),
    );
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_primary_wakes_its_recovery_group_and_nothing_else() {
        let seen = run(3, 96).unwrap();
        let woken: Vec<usize> = seen.after.difference(&seen.before).copied().collect();
        assert_eq!(seen.before, BTreeSet::from([0, 1]));
        // Columns of the grid of gears: places 2, 4, 6 or 3, 5, 7.
        assert!(woken == [2, 4, 6] || woken == [3, 5, 7], "{seen:?}");
        assert_eq!(seen.after.len(), 4, "the failed one is not counted on, the other primary is");
        assert!(seen.available > Duration::ZERO, "{seen:?}");
        assert!(seen.available < seen.durable && seen.durable < MENDED, "availability, then durability: {seen:?}");
        assert!(seen.copies >= 40, "half of the blocks had a copy there: {seen:?}");
        assert!(seen.waiting <= 3, "what waits for sleepers is an exception: {seen:?}");
        assert!(seen.placed > Duration::ZERO && seen.at_last == seen.before, "{seen:?}");
    }
}
