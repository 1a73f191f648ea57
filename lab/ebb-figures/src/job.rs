//! A MapReduce job whose workers live on the nodes: work goes to a holder of the data, as in `ebb_worker`, one block at a
//! time.
//!
//! Workers are frozen with their nodes. A worker takes the next block that its own node holds, those that fewer others
//! hold first; with none left, one that a node holds which is on for good. A block whose worker has not ended it in two
//! intervals is given out once more, as Hadoop does with stragglers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_client::Access;
use ebb_types::Result;
use parking_lot::Mutex;

use crate::hardware::MACHINES;
use crate::testbed::{Testbed, User};

/// How often the scheduler looks for the end.
const LOOK: Duration = Duration::from_millis(100);
/// How often an idle worker looks for work.
const IDLE: Duration = Duration::from_millis(250);
/// A frozen process finds its sleep over when it wakes: so much at most is computed while it is frozen.
const PIECE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Todo,
    Given(Duration),
    Done,
}

#[derive(Default)]
struct Work {
    /// Of the job that is under way.
    number: u64,
    blocks: Vec<State>,
    /// Blocks that each node holds, in the order in which it takes them.
    own: Vec<Vec<usize>>,
    /// Blocks that a node holds which is on for good.
    anybody: Vec<usize>,
    done: usize,
}

impl Work {
    fn give_block(&mut self, place: u32, now: Duration) -> Option<(u64, usize)> {
        let is_todo = |block: &&usize| self.blocks[**block] == State::Todo;
        let own = self.own.get(place as usize)?.iter().find(is_todo);
        let block = *own.or_else(|| self.anybody.iter().find(is_todo))?;
        self.blocks[block] = State::Given(now);
        Some((self.number, block))
    }

    fn end(&mut self, number: u64, block: usize, is_good: bool) {
        if number != self.number || self.blocks[block] == State::Done {
            return;
        }
        self.blocks[block] = if is_good { State::Done } else { State::Todo };
        self.done += usize::from(is_good);
    }

    /// Gives blocks out again that have been under way for too long.
    fn give_again(&mut self, now: Duration) {
        for state in &mut self.blocks {
            if matches!(state, State::Given(since) if now - *since > MACHINES.interval * 2) {
                *state = State::Todo;
            }
        }
    }
}

/// The workers of a cluster.
pub struct Workers {
    work: Arc<Mutex<Work>>,
    /// Nodes that hold each block.
    holders: Vec<Vec<u32>>,
}

impl Workers {
    /// One on every node, with a thread for each core. To be started while all nodes are awake.
    pub async fn start(bed: &Testbed, scheduler: &User) -> Result<Self> {
        let work = Arc::new(Mutex::new(Work::default()));
        let holders = bed.holders(scheduler).await?;
        for place in 0..bed.setting.nodes {
            let user = bed.user_on(place, Access::Read).await?;
            for _ in 0..MACHINES.cores {
                let thread = Thread {
                    place,
                    user: user.clone(),
                    world: bed.world.clone(),
                    work: Arc::clone(&work),
                    size: bed.setting.block_bytes,
                    per_file: bed.setting.blocks_per_file as usize,
                    each: MACHINES.computing(bed.setting.block_bytes * bed.setting.scale) * MACHINES.cores,
                };
                user.runtime.spawn("worker", thread.run());
            }
        }
        Ok(Self { work, holders })
    }

    /// Counts every block once. How long it took; none if it has not ended within `patience`.
    pub async fn count(&self, bed: &Testbed, patience: Duration) -> Result<Option<Duration>> {
        let began = bed.world.now();
        self.begin_job(&bed.places_on().await?, bed.setting.nodes);
        loop {
            bed.world.sleep(LOOK).await;
            let now = bed.world.now();
            let mut work = self.work.lock();
            if work.done == self.holders.len() {
                return Ok(Some(now - began));
            }
            if now - began > patience {
                work.number += 1;
                work.own.clear();
                return Ok(None);
            }
            work.give_again(now);
        }
    }

    fn begin_job(&self, on: &BTreeSet<u32>, nodes: u32) {
        let mut work = self.work.lock();
        let good = |block: &usize| self.holders[*block].iter().filter(|place| on.contains(place)).count();
        let own = |place: u32| {
            let mut own: Vec<usize> = (0..self.holders.len()).collect();
            own.retain(|block| self.holders[*block].contains(&place));
            own.sort_by_key(good);
            own
        };
        *work = Work {
            number: work.number + 1,
            blocks: vec![State::Todo; self.holders.len()],
            own: (0..nodes).map(own).collect(),
            anybody: (0..self.holders.len()).filter(|block| good(block) > 0).collect(),
            done: 0,
        };
    }
}

struct Thread {
    place: u32,
    user: User,
    world: ebb_runtime::virt::World,
    work: Arc<Mutex<Work>>,
    size: u64,
    per_file: usize,
    /// Computing for a block, on one core.
    each: Duration,
}

impl Thread {
    async fn run(self) {
        loop {
            let next = self.work.lock().give_block(self.place, self.world.now());
            let Some((number, block)) = next else {
                self.user.runtime.sleep(IDLE).await;
                continue;
            };
            let counted = self.count(block).await;
            self.work.lock().end(number, block, counted.is_ok());
        }
    }

    async fn count(&self, block: usize) -> Result<()> {
        let (file, at) = (block / self.per_file, (block % self.per_file) as u64 * self.size);
        self.user.client.read(self.user.handles[file], at, self.size as u32).await?;
        let mut left = self.each;
        while !left.is_zero() {
            let piece = left.min(PIECE);
            self.user.runtime.sleep(piece).await;
            left -= piece;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_takes_its_own_blocks_and_of_those_the_rarest() {
        let workers = Workers { work: Arc::default(), holders: vec![vec![0, 1], vec![0], vec![2]] };
        workers.begin_job(&[0, 1].into(), 3);
        let mut work = workers.work.lock();
        assert_eq!(work.give_block(0, Duration::ZERO), Some((1, 1)));
        assert_eq!(work.give_block(1, Duration::ZERO), Some((1, 0)));
        assert_eq!(work.give_block(1, Duration::ZERO), None, "only a sleeping node has the rest");
        work.end(1, 0, true);
        work.give_again(MACHINES.interval * 3);
        assert_eq!((work.done, work.give_block(0, Duration::ZERO)), (1, Some((1, 1))));
    }
}
