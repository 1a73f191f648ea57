//! Which worker begins which of the waiting splits now: pure. A call begins only if it can end before its worker sleeps,
//! and work that waits for a sleeping worker is done by another that is free.

use std::collections::VecDeque;
use std::time::Duration;

use ebb_power::work::{Pace, Turn};

use crate::plan::{Batch, BatchLimits, Locality, Work};

/// Seconds for a byte, until a worker has ended its first call: 16 MiB/s.
const FIRST_GUESS: f64 = 1.0 / (16 << 20) as f64;
/// Splits of another worker that are looked at when a worker is free: a bound for long queues of which nothing fits.
const SCANNED_MAX: usize = 1024;

/// The workers of a job, and what waits for each.
#[derive(Clone, Debug)]
pub(crate) struct Crew {
    members: Vec<Member>,
    locality: Locality,
    limits: BatchLimits,
    calls_each: usize,
}

#[derive(Clone, Debug)]
struct Member {
    ready: VecDeque<Batch>,
    running: usize,
    /// Calls that failed as a whole.
    strikes: u32,
    turn: Turn,
    pace: Pace,
    is_dead: bool,
}

impl Crew {
    /// So many workers, all of them awake for now.
    pub fn new(workers: usize, locality: Locality, limits: BatchLimits, calls_each: usize) -> Self {
        let member = Member {
            ready: VecDeque::new(),
            running: 0,
            strikes: 0,
            turn: Turn::Always,
            pace: Pace::guess(FIRST_GUESS),
            is_dead: false,
        };
        Self { members: vec![member; workers], locality, limits, calls_each: calls_each.max(1) }
    }

    pub fn turn(&self, worker: usize) -> Turn {
        self.members[worker].turn
    }

    /// The worker's node is in this state now.
    pub fn set_turn(&mut self, worker: usize, turn: Turn) {
        self.members[worker].turn = turn;
    }

    /// Batches that wait for their workers to be free or awake.
    pub fn add(&mut self, batches: impl IntoIterator<Item = Batch>) {
        for batch in batches {
            self.members[batch.worker].ready.push_back(batch);
        }
    }

    /// Removes all that waits for a worker.
    pub fn drain(&mut self, worker: usize) -> Vec<Batch> {
        self.members[worker].ready.drain(..).collect()
    }

    /// Removes all that waits.
    pub fn drain_all(&mut self) -> Vec<Batch> {
        (0..self.members.len()).flat_map(|worker| self.drain(worker)).collect()
    }

    /// Batches that wait: those of workers that are awake, and all.
    pub fn backlog(&self) -> (usize, usize) {
        let awake = self.members.iter().filter(|member| member.turn.is_awake());
        (awake.map(|member| member.ready.len()).sum(), self.members.iter().map(|member| member.ready.len()).sum())
    }

    /// Milliseconds until the first of the sleeping workers wakes. `None` if none sleeps, or none wakes again.
    pub fn wakes_in_ms(&self) -> Option<u64> {
        let wakes = self.members.iter().filter_map(|member| match member.turn {
            Turn::Asleep { wakes_in_ms } => Some(wakes_in_ms),
            _ => None,
        });
        wakes.min()
    }

    /// Milliseconds that a worker needs for so many bytes.
    pub fn need_ms(&self, worker: usize, bytes: u64) -> u64 {
        self.members[worker].pace.need_ms(bytes)
    }

    /// A call of so many bytes ended after so long, all of which its worker was awake.
    pub fn learn(&mut self, worker: usize, bytes: u64, took: Duration) {
        self.members[worker].pace.learn(bytes, took);
    }

    /// A call to a worker began.
    pub fn on_begun(&mut self, worker: usize) {
        self.members[worker].running += 1;
    }

    /// A call to a worker is over, whatever came of it.
    pub fn on_over(&mut self, worker: usize) {
        self.members[worker].running -= 1;
    }

    /// A worker has answered: earlier failures do not count against it.
    pub fn forgive(&mut self, worker: usize) {
        self.members[worker].strikes = 0;
    }

    /// A call to a worker failed as a whole. Returns how many have, one after the other.
    pub fn strike(&mut self, worker: usize) -> u32 {
        self.members[worker].strikes += 1;
        self.members[worker].strikes
    }

    /// A worker was given up. Returns all that waits for it.
    pub fn bury(&mut self, worker: usize) -> Vec<Batch> {
        self.members[worker].is_dead = true;
        self.drain(worker)
    }

    /// The next call to a worker. `None`: it is busy or asleep, or nothing that waits can end before it sleeps.
    ///
    /// Its own work comes first. With none left it takes splits from another worker: those that it holds, too, and of a
    /// worker that cannot begin them in time also those that a third one holds which is awake.
    pub fn next_call(&mut self, worker: usize) -> Option<Batch> {
        if !self.is_free(worker) {
            return None;
        }
        self.own(worker).or_else(|| self.taken_over(worker))
    }

    /// Whether a frozen call would end sooner elsewhere: its worker sleeps for longer than the work takes, and a free
    /// worker may begin each of its splits.
    pub fn is_stranded(&self, batch: &Batch) -> bool {
        let owner = batch.worker;
        let takes = |worker: usize| {
            worker != owner
                && self.is_free(worker)
                && self.members[worker].ready.is_empty()
                && batch.work.iter().all(|work| self.may_take_over(worker, owner, work))
        };
        self.turn(owner).is_sooner_elsewhere(self.need_ms(owner, batch.bytes)) && (0..self.members.len()).any(takes)
    }

    fn is_free(&self, worker: usize) -> bool {
        let member = &self.members[worker];
        !member.is_dead && member.turn.is_awake() && member.running < self.calls_each
    }

    fn own(&mut self, worker: usize) -> Option<Batch> {
        let Member { ready, turn, pace, .. } = &mut self.members[worker];
        let (turn, pace) = (*turn, *pace);
        let front = ready.front_mut()?;
        let room = pace.units_in(turn.room_ms());
        let mut bytes = 0;
        let fits = front.work.iter().take_while(|work| {
            bytes += work.bytes();
            bytes <= room
        });
        let fits = match fits.count() {
            // One that no turn is long enough for.
            0 if turn.may_begin(pace.need_ms(front.work.first()?.bytes())) => 1,
            fits => fits,
        };
        if fits >= front.work.len() {
            return ready.pop_front();
        }
        (fits > 0).then(|| front.take_front(fits))
    }

    /// Splits that wait for another worker: up to half of what the one with the most has, if it may begin them itself.
    fn taken_over(&mut self, worker: usize) -> Option<Batch> {
        let mut others: Vec<usize> = (0..self.members.len()).filter(|other| *other != worker).collect();
        others.sort_by_key(|other| std::cmp::Reverse(self.ready_bytes(*other)));
        let room = self.members[worker].pace.units_in(self.turn(worker).room_ms());
        others.into_iter().find_map(|owner| {
            let most = match self.turn(owner).is_awake() {
                true => (self.ready_bytes(owner) / 2).max(1),
                false => u64::MAX,
            };
            let (mut places, mut bytes, mut message_bytes) = (Vec::new(), 0, 0);
            for (place, work) in self.scan(owner) {
                if places.len() >= self.limits.splits_max || bytes >= most {
                    break;
                }
                let sum = (bytes + work.bytes(), message_bytes + work.message_bytes());
                let fits = sum.0 <= room.min(self.limits.bytes_max) && sum.1 <= self.limits.message_bytes_max;
                // The first may be one that no turn, and no call, is long enough for.
                if (fits || places.is_empty()) && self.may_take_over(worker, owner, work) {
                    (bytes, message_bytes) = sum;
                    places.push(place);
                }
            }
            self.remove(owner, &places, worker)
        })
    }

    fn ready_bytes(&self, worker: usize) -> u64 {
        self.members[worker].ready.iter().map(|batch| batch.bytes).sum()
    }

    /// The splits that wait for a worker, those first that it would begin last.
    fn scan(&self, owner: usize) -> impl Iterator<Item = ((usize, usize), &Work)> {
        let batches = self.members[owner].ready.iter().enumerate().rev();
        let works = batches
            .flat_map(|(batch, ready)| ready.work.iter().enumerate().rev().map(move |(at, work)| ((batch, at), work)));
        works.take(SCANNED_MAX)
    }

    /// Whether `worker` may begin a split that waits for `owner`.
    fn may_take_over(&self, worker: usize, owner: usize, work: &Work) -> bool {
        let need = self.need_ms(worker, work.bytes());
        if work.tried.contains(&worker) || !self.turn(worker).may_begin(need) {
            return false;
        }
        let holds = |other: usize| work.holders.contains(&other);
        let is_near = holds(worker) == (self.locality == Locality::Located);
        if is_near && self.turn(owner).may_begin(need) {
            return true;
        }
        // The owner sleeps, or will before it has ended. Some copy must be awake for as long.
        let is_readable = holds(worker)
            || work.holders.is_empty()
            || work.holders.iter().any(|holder| self.turn(*holder).may_begin(need));
        let is_late = match self.turn(owner) {
            Turn::Always => false,
            Turn::Awake { .. } => !self.turn(owner).may_begin(need),
            turn => turn.is_sooner_elsewhere(need),
        };
        is_late && is_readable
    }

    /// Moves splits at these places, the last first, to a call of another worker.
    fn remove(&mut self, owner: usize, places: &[(usize, usize)], worker: usize) -> Option<Batch> {
        let mut taken = Batch::of(worker);
        for (batch, at) in places {
            let ready = &mut self.members[owner].ready;
            taken.add(ready[*batch].remove(*at));
            if ready[*batch].work.is_empty() {
                ready.remove(*batch);
            }
        }
        (!taken.work.is_empty()).then_some(taken)
    }
}

#[cfg(test)]
mod tests;
