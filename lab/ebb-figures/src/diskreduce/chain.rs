//! X2 on an expansion chain: the slots lie on the primaries. Reads with power for these alone, and with all nodes on.

use std::sync::Arc;
use std::time::Duration;

use ebb_client::Access;
use ebb_plan::{Cell, Comparison, Section};
use ebb_power::PolicyKind;
use ebb_types::{RaidCode, Redundancy, Result};

use super::power::{AT_ONCE_S, COPIES, FOUR_AND_TWO, supply_for};
use crate::drive::{Block, all_blocks, read_at_random, read_whole};
use crate::hardware::MACHINES;
use crate::measure::Latencies;
use crate::part::Lab;
use crate::testbed::{Layout, Setting, Testbed, User, on};

/// Requests of each reader at a time: enough to keep most disks busy at any moment. With two of them, and a quarter of the blocks,
/// copies come to 55 % of their disks' rate.
const STREAMS: usize = 8;
/// The same where few blocks are read. A client asks once for a block that several of its programs want.
const HOT_STREAMS: usize = 2;
/// One part in so many of the blocks is read all the time.
const HOT_PART: usize = 20;
/// The rate is that of the first and of the last part of the time.
const HOT_LOOK: Duration = Duration::from_secs(60);

/// Nodes of the shortest chain with so many primaries.
const fn chain_len(primaries: u32) -> u32 {
    primaries * COPIES
}

/// A chain with as many primaries as there are slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Chain {
    code: Option<RaidCode>,
    primaries: u32,
}

/// What is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Load {
    blocks: u32,
    /// Number of reads at random.
    reads: usize,
    /// Time in which a part is read over and over.
    hot: Duration,
}

#[derive(Clone, Debug)]
struct Seen {
    /// Reads with power for the primaries alone.
    asleep: Latencies,
    /// All nodes on, everything read once, in MB/s.
    whole: f64,
    /// All nodes on, a part read all the time: at first and at last, in MB/s.
    hot: (f64, f64),
}

impl Chain {
    fn run(self, seed: u64, load: Load) -> Result<Seen> {
        let layout = Layout::equal_work(self.primaries, COPIES);
        let nodes = chain_len(self.primaries);
        let setting = Setting { code: self.code, ..Setting::of(nodes, PolicyKind::Activation, layout, load.blocks) };
        on(seed, setting, |bed| async move {
            let user = bed.user("user", Some(Access::Read)).await?;
            let mut readers = Vec::new();
            for number in 0..nodes {
                readers.push(bed.user(&format!("reader{number}"), Some(Access::Read)).await?);
            }
            let whole = read_whole(&bed, &readers, STREAMS, None).await.took;
            let whole = bed.setting.bytes() as f64 / 1e6 / whole.as_secs_f64();
            let hot = read_hot(&bed, &readers, load.hot).await;
            bed.supply_and_wait(supply_for(self.primaries, nodes)).await?;
            let asleep = read_at_random(&bed, &user, load.reads, MACHINES.interval).await;
            Ok(Seen { asleep, whole, hot })
        })
    }
}

/// Reads a part of the blocks all the time. Rates at first, and when the blocks have their extra copies.
async fn read_hot(bed: &Testbed, readers: &[User], span: Duration) -> (f64, f64) {
    let mut blocks = all_blocks(bed, "what is read all the time");
    blocks.truncate((blocks.len() / HOT_PART).max(1));
    let (blocks, began): (Arc<Vec<Block>>, _) = (Arc::new(blocks), bed.world.now());
    let mut tasks = Vec::new();
    for (number, user) in readers.iter().flat_map(|reader| [reader; HOT_STREAMS]).enumerate() {
        let (user, world, blocks, size) =
            (user.clone(), bed.world.clone(), Arc::clone(&blocks), bed.setting.block_bytes);
        let mut dice = bed.world.dice(&format!("stream {number}"));
        tasks.push(user.runtime.clone().spawn("read all the time", async move {
            let (mut first, mut last) = (0_u64, 0_u64);
            while world.now() - began < span {
                let (file, block) = blocks[dice.index(blocks.len())];
                if user.client.read(user.handles[file], block * size, size as u32).await.is_ok() {
                    let at = world.now() - began;
                    first += u64::from(at < HOT_LOOK);
                    last += u64::from(at + HOT_LOOK >= span);
                }
            }
            (first, last)
        }));
    }
    let (mut first, mut last) = (0, 0);
    for task in tasks {
        if let Ok(read) = task.join().await {
            (first, last) = (first + read.0, last + read.1);
        }
    }
    let block_bytes = bed.setting.block_bytes * bed.setting.scale;
    let rate = |reads: u64| (reads * block_bytes) as f64 / 1e6 / HOT_LOOK.as_secs_f64();
    (rate(first), rate(last))
}

/// Rows of the section on X2.
pub fn rows(lab: &Lab<'_>, section: &mut Section) -> Result<()> {
    let (blocks, reads, hot_s) = lab.effort.of((640, 400, 300), (96, 100, 120));
    let load = Load { blocks, reads, hot: Duration::from_secs(hot_s) };
    let codes = [FOUR_AND_TWO, RaidCode::RAID6];
    let cases: Vec<Chain> = codes
        .into_iter()
        .flat_map(|code| [Some(code), None].map(|kept| Chain { code: kept, primaries: code.slots }))
        .collect();
    let seen = lab.map(&cases, |chain| chain.run(lab.seed, load))?;
    for (pair, code) in seen.chunks(2).zip(codes) {
        let [encoded, copied] = pair else { continue };
        let name = Redundancy::Raid(code).to_string();
        let nodes = chain_len(code.slots);
        let share = encoded.asleep.share_within(AT_ONCE_S);
        let why = format!(
            "Rabbit's floor of {} primaries with {:.2} stored for each user byte instead of 3. Three copies there: {:.0} %.",
            code.slots,
            Redundancy::Raid(code).stored_per_user_byte(COPIES),
            copied.asleep.share_within(AT_ONCE_S) * 100.0
        );
        let quantity = format!(
            "{name} on a chain, power for its {} primaries of {nodes} nodes: reads that wait for no node",
            code.slots
        );
        section
            .rows
            .push(Comparison::new("X2", quantity, Cell::Share(1.0, 0), Cell::Share(share, 0), why).bound(share > 0.99));
        let expected = f64::from(code.slots) / f64::from(nodes);
        let mut row = |quantity: &str, expected: f64, (ours, others): (f64, f64), why: &str| {
            let quantity = format!("{name} on a chain, all nodes on: {quantity}, of that of three copies");
            let why = format!("{why} {ours:.0} and {others:.0} MB/s.");
            let share = Cell::Share(ours / others, 0);
            let is_so = (ours / others - expected).abs() < 0.07;
            section.rows.push(Comparison::new("X2", quantity, Cell::Share(expected, 0), share, why).bound(is_so));
        };
        row(
            "rate of a full read",
            expected,
            (encoded.whole, copied.whole),
            "The slots lie on the primaries, copies on all nodes.",
        );
        row(
            "a twentieth is read all the time, rate at first",
            expected,
            (encoded.hot.0, copied.hot.0),
            "In the first minute.",
        );
        row(
            "the same in the last of five minutes",
            1.0,
            (encoded.hot.1, copied.hot.1),
            "Blocks that are read often have extra copies by then.",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_chain_the_primaries_are_enough() {
        let seen = Chain { code: Some(FOUR_AND_TWO), primaries: 4 }
            .run(3, Load { blocks: 64, reads: 60, hot: Duration::from_secs(180) })
            .unwrap();
        assert!(seen.asleep.share_within(AT_ONCE_S) > 0.99, "{seen:?}");
        assert!(seen.hot.1 > 1.5 * 3.0 * 125.0, "extra copies of three blocks have other disks: {seen:?}");
    }
}
