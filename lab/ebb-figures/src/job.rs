//! A MapReduce job whose workers live on the nodes: work goes to a holder of the data, as in `ebb_worker`, one block at a
//! time.
//!
//! Workers are frozen with their nodes. They follow the rules of [`ebb_power::work`]: no block begins on a node that falls
//! asleep before it has ended. A worker takes the next block that its own node holds, those that fewer others hold first.
//! With none left it takes one from a holder that serves for long enough, and then one whose worker sleeps for longer
//! than the work takes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_client::Access;
use ebb_power::work::{Pace, Turn};
use ebb_types::{HostName, Result};
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
    /// To a worker on this node.
    Given(u32),
    Done,
}

struct Work {
    /// Of the job that is under way.
    number: u64,
    blocks: Vec<State>,
    /// Nodes that hold each block.
    holders: Vec<Vec<u32>>,
    /// Blocks that each node holds, in the order in which it takes them.
    own: Vec<Vec<usize>>,
    /// Of all workers: they run on like machines.
    pace: Pace,
    done: usize,
}

impl Work {
    fn new(holders: Vec<Vec<u32>>, nodes: u32, computing: Duration) -> Self {
        let own = vec![Vec::new(); nodes as usize];
        // Until a block has ended: it takes as long to read as to compute.
        let pace = Pace::guess(2.0 * computing.as_secs_f64());
        Self { number: 0, blocks: Vec::new(), holders, own, pace, done: 0 }
    }

    /// Every block is to be counted, while these nodes are on for good.
    fn start_job(&mut self, on: &BTreeSet<u32>) {
        let good = |block: &usize| self.holders[*block].iter().filter(|place| on.contains(place)).count();
        for (place, own) in self.own.iter_mut().enumerate() {
            *own = (0..self.holders.len()).filter(|block| self.holders[*block].contains(&(place as u32))).collect();
            own.sort_by_key(good);
        }
        self.number += 1;
        self.blocks = vec![State::Todo; self.holders.len()];
        self.done = 0;
    }

    /// What is under way counts no more, and nothing new begins.
    fn stop(&mut self) {
        self.number += 1;
        self.blocks.clear();
        self.own.iter_mut().for_each(Vec::clear);
    }

    /// The next block for a worker on a node, and the job's number.
    fn give_block(&mut self, place: u32, turn: impl Fn(u32) -> Turn) -> Option<(u64, usize)> {
        let need = self.pace.need_ms(1);
        if !turn(place).may_begin(need) {
            return None;
        }
        let is_todo = |block: usize| self.blocks[block] == State::Todo;
        let is_near = |block: usize| self.holders[block].iter().any(|holder| turn(*holder).may_begin(need));
        let is_stranded = |block: usize| match self.blocks[block] {
            State::Given(worker) => worker != place && turn(worker).is_sooner_elsewhere(need),
            State::Todo | State::Done => false,
        };
        let mut all = 0..self.blocks.len();
        let own = self.own[place as usize].iter().copied().find(|block| is_todo(*block));
        let block = own
            .or_else(|| all.clone().find(|block| is_todo(*block) && is_near(*block)))
            .or_else(|| all.find(|block| is_stranded(*block) && is_near(*block)))?;
        self.blocks[block] = State::Given(place);
        Some((self.number, block))
    }

    /// A worker is done with a block. The first that has counted it counts.
    fn end(&mut self, number: u64, block: usize, place: u32, is_good: bool) {
        if number != self.number || self.blocks[block] == State::Done {
            return;
        }
        if is_good {
            self.blocks[block] = State::Done;
            self.done += 1;
        } else if self.blocks[block] == State::Given(place) {
            self.blocks[block] = State::Todo;
        }
    }
}

/// The workers of a cluster.
pub struct Workers {
    work: Arc<Mutex<Work>>,
}

impl Workers {
    /// One on every node, with a thread for each core. To be started while all nodes are awake.
    pub async fn start(bed: &Testbed, scheduler: &User) -> Result<Self> {
        let each = MACHINES.computing(bed.setting.block_bytes * bed.setting.scale) * MACHINES.cores;
        let work = Arc::new(Mutex::new(Work::new(bed.holders(scheduler).await?, bed.setting.nodes, each)));
        for place in 0..bed.setting.nodes {
            let user = bed.user_on(place, Access::Read).await?;
            for _ in 0..MACHINES.cores {
                let thread = Thread {
                    place,
                    user: user.clone(),
                    work: Arc::clone(&work),
                    size: bed.setting.block_bytes,
                    per_file: bed.setting.blocks_per_file as usize,
                    each,
                };
                user.runtime.spawn("worker", thread.run());
            }
        }
        Ok(Self { work })
    }

    /// Counts every block once. How long it took; none if it has not ended within `patience`.
    pub async fn count(&self, bed: &Testbed, patience: Duration) -> Result<Option<Duration>> {
        let began = bed.world.now();
        let on = bed.places_on().await?;
        self.work.lock().start_job(&on);
        loop {
            bed.world.sleep(LOOK).await;
            let now = bed.world.now();
            let mut work = self.work.lock();
            if work.done == work.holders.len() {
                return Ok(Some(now - began));
            }
            if now - began > patience {
                work.stop();
                return Ok(None);
            }
        }
    }
}

struct Thread {
    place: u32,
    user: User,
    work: Arc<Mutex<Work>>,
    size: u64,
    per_file: usize,
    /// Computing for a block, on one core.
    each: Duration,
}

impl Thread {
    async fn run(self) {
        loop {
            let next = self.work.lock().give_block(self.place, |place| self.turn(place));
            let Some((number, block)) = next else {
                self.user.runtime.sleep(IDLE).await;
                continue;
            };
            let (since, turn) = (self.user.runtime.now(), self.turn(self.place));
            let counted = self.count(block).await;
            let took = self.user.runtime.now().since(since);
            let mut work = self.work.lock();
            if counted.is_ok() && turn.room_ms() >= took.as_millis() as u64 {
                work.pace.learn(1, took);
            }
            work.end(number, block, self.place, counted.is_ok());
        }
    }

    /// What a node does for work, as this worker knows it.
    fn turn(&self, place: u32) -> Turn {
        self.user.client.turn_of(&HostName::new(format!("h{}", place + 1)))
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

    const SHORT: Duration = Duration::from_secs(1);

    fn work(holders: &[&[u32]], on: &[u32]) -> Work {
        let mut work = Work::new(holders.iter().map(|some| some.to_vec()).collect(), 3, SHORT);
        work.start_job(&on.iter().copied().collect());
        work
    }

    const fn awake(left_ms: u64) -> Turn {
        Turn::Awake { left_ms, whole_ms: 30_000, next_ms: Some(60_000) }
    }

    #[test]
    fn a_node_takes_its_own_blocks_and_of_those_the_rarest() {
        let mut work = work(&[&[0, 1], &[0], &[2]], &[0, 1]);
        let turn = |place| if place == 2 { Turn::Off } else { Turn::Always };
        assert_eq!(work.give_block(0, turn), Some((1, 1)));
        assert_eq!(work.give_block(1, turn), Some((1, 0)));
        assert_eq!(work.give_block(1, turn), None, "only a sleeping node has the rest");
        work.end(1, 0, 1, true);
        work.end(1, 1, 0, false);
        assert_eq!((work.done, work.give_block(0, turn)), (1, Some((1, 1))));
    }

    #[test]
    fn a_block_begins_only_where_it_can_end() {
        let mut work = work(&[&[0], &[1], &[1]], &[]);
        let turn = |place| [awake(1_000), awake(20_000), awake(20_000)][place as usize];
        assert_eq!(work.give_block(0, turn), None, "two seconds do not fit into one");
        assert_eq!(work.give_block(1, turn), Some((1, 1)));
        assert_eq!(work.give_block(2, turn), Some((1, 2)), "of another holder that serves for long enough");
        assert_eq!(work.give_block(2, turn), None, "the last holder falls asleep first");
    }

    #[test]
    fn a_stranded_block_is_given_again_and_counts_once() {
        let mut work = work(&[&[0, 1]], &[]);
        assert_eq!(work.give_block(0, |_| awake(20_000)), Some((1, 0)));
        assert_eq!(work.give_block(1, |_| awake(20_000)), None, "its worker is at it");
        let soon = |place| if place == 0 { Turn::Asleep { wakes_in_ms: 1_000 } } else { awake(20_000) };
        assert_eq!(work.give_block(1, soon), None, "its worker ends it sooner");
        let late = |place| if place == 0 { Turn::Asleep { wakes_in_ms: 30_000 } } else { awake(20_000) };
        assert_eq!(work.give_block(1, late), Some((1, 0)));
        work.end(1, 0, 0, false);
        assert_eq!(work.give_block(2, late), None, "the second is at it");
        work.end(1, 0, 1, true);
        work.end(1, 0, 0, true);
        assert_eq!(work.done, 1);
    }
}
