//! The work of users.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ebb_client::KnownMap;
use ebb_power::Supply;
use ebb_power::signal::{Quantity, Signal};
use ebb_runtime::virt::Dice;
use ebb_types::Result;
use parking_lot::Mutex;

use crate::balancer::Balancer;
use crate::measure::Latencies;
use crate::testbed::{Testbed, User};

/// A block: number of its file, number in the file.
pub type Block = (usize, u64);

/// Every block, in an order that a seed decides.
#[must_use]
pub fn all_blocks(bed: &Testbed, purpose: &str) -> Vec<Block> {
    blocks_of(bed, bed.setting.files as usize, purpose)
}

/// The same of so many files that are as long as the others.
#[must_use]
pub fn blocks_of(bed: &Testbed, files: usize, purpose: &str) -> Vec<Block> {
    let blocks = u64::from(bed.setting.blocks_per_file);
    let mut all: Vec<Block> = (0..files).flat_map(|file| (0..blocks).map(move |block| (file, block))).collect();
    bed.world.dice(purpose).shuffle(&mut all);
    all
}

/// Any block, all alike.
pub fn any_block(bed: &Testbed, dice: &mut Dice) -> Block {
    (dice.index(bed.setting.files as usize), dice.below(u64::from(bed.setting.blocks_per_file)))
}

/// Reads random blocks, one after the other, for so long.
pub async fn read_in_a_loop(bed: &Testbed, user: &User, span: Duration) -> Latencies {
    let (mut dice, mut seen) = (bed.world.dice("blocks to read"), Latencies::default());
    let (end, size) = (bed.world.now() + span, bed.setting.block_bytes);
    while bed.world.now() < end {
        let (file, block) = any_block(bed, &mut dice);
        let began = bed.world.now();
        match user.client.read(user.handles[file], block * size, size as u32).await {
            Ok(_) => seen.add(bed.world.now() - began),
            Err(_) => seen.failed += 1,
        }
    }
    seen
}

/// Reads random blocks at random moments of so long a time, each whether or not others wait.
pub async fn read_at_random(bed: &Testbed, user: &User, reads: usize, span: Duration) -> Latencies {
    let (mut dice, size) = (bed.world.dice("reads at random"), bed.setting.block_bytes);
    let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let mut tasks = Vec::new();
    for _ in 0..reads {
        let ((file, block), at) = (any_block(bed, &mut dice), Duration::from_millis(dice.below(span_ms)));
        let (user, world) = (user.clone(), bed.world.clone());
        tasks.push(user.runtime.clone().spawn("read", async move {
            world.sleep(at).await;
            let began = world.now();
            let read = user.client.read(user.handles[file], block * size, size as u32).await;
            read.is_ok().then(|| world.now() - began)
        }));
    }
    let mut seen = Latencies::default();
    for task in tasks {
        match task.join().await {
            Ok(Some(took)) => seen.add(took),
            _ => seen.failed += 1,
        }
    }
    seen
}

/// Overwrites random blocks, each made safe before the next, for so long.
pub async fn write_in_a_loop(bed: &Testbed, user: &User, span: Duration) -> Latencies {
    let (mut dice, mut seen) = (bed.world.dice("blocks to write"), Latencies::default());
    let (end, size) = (bed.world.now() + span, bed.setting.block_bytes);
    while bed.world.now() < end {
        let (file, block) = any_block(bed, &mut dice);
        let began = bed.world.now();
        match write_safely(user, file, block * size, bed.block(dice.bits() as u8)).await {
            Ok(()) => seen.add(bed.world.now() - began),
            Err(_) => seen.failed += 1,
        }
    }
    seen
}

async fn write_safely(user: &User, file: usize, at: u64, data: bytes::Bytes) -> Result<()> {
    user.client.write(user.handles[file], at, data).await?;
    user.client.fsync(user.handles[file]).await
}

/// The time and bytes of a full read or write.
#[derive(Clone, PartialEq, Debug)]
pub struct Whole {
    /// From the first request to the last answer.
    pub took: Duration,
    /// Of each block.
    pub latencies: Latencies,
}

/// Reads every block once, by all users together, each with `streams` requests at a time. With a balancer, the
/// balancer chooses the node; otherwise each client chooses for itself.
pub async fn read_whole(bed: &Testbed, users: &[User], streams: usize, balancer: Option<Balancer>) -> Whole {
    let balancer = Arc::new(Mutex::new(balancer));
    let began = bed.world.now();
    let queue: Arc<Mutex<VecDeque<Block>>> = Arc::new(Mutex::new(all_blocks(bed, "all blocks").into()));
    let size = bed.setting.block_bytes;
    let mut tasks = Vec::new();
    for user in users {
        for _ in 0..streams {
            let (user, world, queue) = (user.clone(), bed.world.clone(), Arc::clone(&queue));
            let balancer = Arc::clone(&balancer);
            tasks.push(user.runtime.clone().spawn("stream", async move {
                let mut seen = Latencies::default();
                loop {
                    let Some((file, block)) = queue.lock().pop_front() else { return seen };
                    let began = world.now();
                    let chosen = balancer.lock().as_mut().and_then(|balancer| balancer.choose((file, block)));
                    let at = block * size;
                    let read = match chosen {
                        Some(record) => {
                            let map = KnownMap {
                                metablocks: &[record],
                                metablock_size: size,
                                file_size: at + size,
                                dataset: None,
                            };
                            user.client.read_by_map(map, at, size).await
                        }
                        None => user.client.read(user.handles[file], at, size as u32).await,
                    };
                    match read {
                        Ok(_) => seen.add(world.now() - began),
                        Err(_) => seen.failed += 1,
                    }
                }
            }));
        }
    }
    let mut latencies = Latencies::default();
    for task in tasks {
        if let Ok(seen) = task.join().await {
            latencies.merge(seen);
        }
    }
    Whole { took: bed.world.now() - began, latencies }
}

/// Writes as many blocks as there are, to new files: one for each user, all made safe. How long that took.
pub async fn write_whole(bed: &Testbed, users: &[User]) -> Result<Duration> {
    let began = bed.world.now();
    let blocks = bed.setting.files * bed.setting.blocks_per_file / users.len() as u32;
    let writers = users.iter().enumerate();
    let mut writes: Vec<_> = writers.map(|(number, user)| Box::pin(bed.write_one(user, number, blocks))).collect();
    let mut left = writes.len();
    let mut ended = vec![false; left];
    // All of them at once: each is polled until it has ended.
    poll_fn(|cx| {
        for (write, ended) in writes.iter_mut().zip(&mut ended).filter(|one| !*one.1) {
            if let Poll::Ready(result) = write.as_mut().poll(cx) {
                result?;
                (*ended, left) = (true, left - 1);
            }
        }
        if left == 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
    .map(|()| bed.world.now() - began)
}

/// Has the cluster follow a signal for so long. Its time begins now. The power manager knows the signal ahead. A bed
/// that makes its plans itself gets the supply change by change.
pub async fn follow(bed: &Testbed, signal: &Signal, step: Duration, span: Duration) -> Result<()> {
    if bed.has_manager() {
        bed.cluster().follow(&csv(signal, step, span)).await?;
        bed.world.sleep(span).await;
        return Ok(());
    }
    let began = bed.world.now();
    let mut last = None;
    while bed.world.now() - began < span {
        let supply = signal.at(bed.world.now() - began);
        if last != Some(supply) {
            bed.supply(supply).await?;
            last = Some(supply);
        }
        bed.world.sleep(step).await;
    }
    Ok(())
}

/// A signal as a trace with a line for each step.
fn csv(signal: &Signal, step: Duration, span: Duration) -> String {
    let column = match signal.at(Duration::ZERO) {
        Supply::Watts(_) => Quantity::Watts.column(),
        Supply::Fraction(_) => Quantity::Fraction.column(),
    };
    let mut csv = format!("seconds,{column}\n");
    let mut at = Duration::ZERO;
    while at < span {
        let (Supply::Watts(amount) | Supply::Fraction(amount)) = signal.at(at);
        csv.push_str(&format!("{},{amount}\n", at.as_secs_f64()));
        at += step;
    }
    csv
}
