//! One bounded resource that many owners share, so that none can take all of it. Pure.
//!
//! Each owner has an account under its key. A wish is granted
//! - as soon as there is room, if its owner then has no more than the guaranteed units;
//! - otherwise only while its owner has no more than is left for all others: one greedy owner ends with half, two with
//!   a third each, and there is always something left for the next.
//!
//! Waiters take turns by owner, so a long line of one owner delays only its own wishes.

use std::collections::{BTreeMap, VecDeque};

/// The accounts. `W` is the caller's handle of a waiter.
#[derive(Debug)]
pub(crate) struct Fair<K, W> {
    free: usize,
    guaranteed: usize,
    accounts: BTreeMap<K, Account<W>>,
    /// Owners with a line; the first one's turn is next.
    turns: VecDeque<K>,
}

#[derive(Debug)]
struct Account<W> {
    held: usize,
    line: VecDeque<(usize, W)>,
}

/// An owner's part of the resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Usage {
    /// Counts for its owner.
    pub charged: usize,
    /// Of that, the units that others cannot have meanwhile.
    pub taken: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Now,
    /// As soon as there is room: nothing overtakes it.
    WhenFree,
    /// Its owner has enough already.
    NotYet,
}

impl<K: Ord + Clone, W> Fair<K, W> {
    pub fn new(units: usize, guaranteed: usize) -> Self {
        Self { free: units, guaranteed, accounts: BTreeMap::new(), turns: VecDeque::new() }
    }

    /// The free units.
    pub fn free(&self) -> usize {
        self.free
    }

    /// The units of this owner.
    pub fn held(&self, key: &K) -> usize {
        self.accounts.get(key).map_or(0, |account| account.held)
    }

    fn verdict(&self, key: &K, units: usize) -> Verdict {
        let wanted = self.held(key) + units;
        if wanted <= self.guaranteed {
            if units <= self.free { Verdict::Now } else { Verdict::WhenFree }
        } else if wanted <= self.free {
            Verdict::Now
        } else {
            Verdict::NotYet
        }
    }

    /// Takes units if no wish waits and they are free for this owner now.
    pub fn try_take(&mut self, key: &K, units: usize) -> Option<Usage> {
        let is_free = self.turns.is_empty() && self.verdict(key, units) == Verdict::Now;
        is_free.then(|| self.grant(key, units, units))
    }

    /// Charges units that are in use already: of the resource it takes only as much as the owner may have.
    pub fn charge(&mut self, key: &K, units: usize) -> Usage {
        let held = self.held(key);
        let may = self.guaranteed.saturating_sub(held).max(self.free.saturating_sub(held));
        self.grant(key, units, units.min(may).min(self.free))
    }

    fn grant(&mut self, key: &K, charged: usize, taken: usize) -> Usage {
        self.free -= taken;
        self.account(key).held += charged;
        Usage { charged, taken }
    }

    fn account(&mut self, key: &K) -> &mut Account<W> {
        self.accounts.entry(key.clone()).or_insert_with(|| Account { held: 0, line: VecDeque::new() })
    }

    /// Joins the line of its owner. [`Fair::next_grants`] returns it when its turn has come.
    pub fn wait(&mut self, key: &K, units: usize, waiter: W) {
        let line = &mut self.account(key).line;
        line.push_back((units, waiter));
        if line.len() == 1 {
            self.turns.push_back(key.clone());
        }
    }

    /// Gives taken units back.
    pub fn give_back(&mut self, key: &K, held: Usage) {
        self.free += held.taken;
        self.account(key).held -= held.charged;
        self.forget_idle(key);
    }

    fn forget_idle(&mut self, key: &K) {
        if self.accounts.get(key).is_some_and(|account| account.held == 0 && account.line.is_empty()) {
            self.accounts.remove(key);
        }
    }

    /// The waiters whose turn has come, with their units. `is_gone`: whether a waiter waits no more.
    pub fn next_grants(&mut self, is_gone: impl Fn(&W) -> bool) -> Vec<(K, Usage, W)> {
        let mut grants = Vec::new();
        let mut passed_over = 0;
        while passed_over < self.turns.len() {
            let Some(key) = self.turns.pop_front() else { break };
            let line = &mut self.account(&key).line;
            while line.front().is_some_and(|(_, waiter)| is_gone(waiter)) {
                line.pop_front();
            }
            let Some(units) = line.front().map(|(units, _)| *units) else {
                self.forget_idle(&key);
                continue;
            };
            match self.verdict(&key, units) {
                Verdict::WhenFree => {
                    self.turns.push_front(key);
                    break;
                }
                Verdict::NotYet => {
                    passed_over += 1;
                    self.turns.push_back(key);
                }
                Verdict::Now => {
                    passed_over = 0;
                    let held = self.grant(&key, units, units);
                    let line = &mut self.account(&key).line;
                    let (_, waiter) = line.pop_front().expect("looked at above");
                    if !line.is_empty() {
                        self.turns.push_back(key.clone());
                    }
                    grants.push((key, held, waiter));
                }
            }
        }
        grants
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Pool = Fair<u8, u32>;

    fn take_all(pool: &mut Pool, key: u8, units: usize) -> Vec<Usage> {
        std::iter::from_fn(|| pool.try_take(&key, units)).collect()
    }

    fn names(pool: &mut Pool) -> Vec<u32> {
        pool.next_grants(|_| false).into_iter().map(|(_, _, waiter)| waiter).collect()
    }

    #[test]
    fn a_greedy_owner_leaves_as_much_as_it_has_and_the_next_one_finds_room() {
        let mut pool = Pool::new(240, 20);
        assert_eq!(take_all(&mut pool, 1, 10).len(), 12);
        assert_eq!(take_all(&mut pool, 2, 10).len(), 6);
        assert_eq!(take_all(&mut pool, 3, 10).len(), 3);
        assert!(pool.try_take(&4, 20).is_some(), "the guaranteed units are there");
    }

    #[test]
    fn owners_take_turns_and_a_long_line_delays_only_its_own() {
        let mut pool = Pool::new(100, 10);
        let held = take_all(&mut pool, 1, 10);
        assert_eq!(held.len(), 5);
        let others: Vec<Usage> = (2..7).map(|key| pool.try_take(&key, 10).unwrap()).collect();
        for waiter in 0..5 {
            pool.wait(&1, 10, waiter);
        }
        pool.wait(&7, 10, 70);
        pool.wait(&7, 10, 71);
        assert_eq!(names(&mut pool), []);
        pool.give_back(&2, others[0]);
        assert_eq!(names(&mut pool), [70], "the first in line has its share already");
        held.iter().for_each(|held| pool.give_back(&1, *held));
        assert_eq!(names(&mut pool), [0, 71, 1], "each has as much as is left");
    }

    #[test]
    fn no_owner_overtakes_one_that_waits_for_its_guaranteed_share() {
        let mut pool = Pool::new(30, 20);
        let first = pool.try_take(&1, 15).unwrap();
        pool.wait(&2, 20, 2);
        assert_eq!(names(&mut pool), []);
        assert!(pool.try_take(&3, 1).is_none());
        pool.wait(&3, 1, 3);
        assert_eq!(names(&mut pool), [], "small ones would keep it waiting for ever");
        pool.give_back(&1, first);
        assert_eq!(names(&mut pool), [2, 3]);
    }

    #[test]
    fn bytes_in_use_are_charged_to_their_owner_and_take_no_more_than_its_share() {
        let mut pool = Pool::new(100, 10);
        let answers = pool.charge(&1, 1000);
        assert_eq!(answers, Usage { charged: 1000, taken: 100 });
        pool.give_back(&1, answers);
        let first = pool.charge(&1, 40);
        let second = pool.charge(&1, 40);
        assert_eq!((first.taken, second.taken, pool.free()), (40, 20, 40));
        assert!(pool.try_take(&1, 1).is_none());
        assert!(pool.try_take(&2, 40).is_some());
        pool.give_back(&1, second);
        assert_eq!(pool.held(&1), 40);
    }

    #[test]
    fn waiters_that_gave_up_hold_no_other_up() {
        let mut pool = Pool::new(10, 10);
        let held = pool.try_take(&1, 10).unwrap();
        for waiter in 0..3 {
            pool.wait(&2, 10, waiter);
        }
        pool.wait(&3, 5, 9);
        pool.give_back(&1, held);
        let granted: Vec<u32> = pool.next_grants(|waiter| *waiter < 3).into_iter().map(|(.., waiter)| waiter).collect();
        assert_eq!(granted, [9]);
        assert_eq!(pool.accounts.len(), 1, "an owner without units and wishes is forgotten");
    }

    proptest! {
        /// In any order of wishes: never more than there is, and once all is given back no wish waits.
        #[test]
        fn nothing_is_lost_and_no_request_waits_for_ever(wishes in proptest::collection::vec((0..5_u8, 1..20_usize, any::<bool>()), 1..80)) {
            let mut pool = Pool::new(40, 20);
            let mut held: VecDeque<(u8, Usage)> = VecDeque::new();
            let mut waiting = 0;
            for (number, (key, units, gives_back)) in wishes.into_iter().enumerate() {
                pool.wait(&key, units, number as u32);
                waiting += 1;
                if gives_back && let Some((key, one)) = held.pop_front() {
                    pool.give_back(&key, one);
                }
                let granted = pool.next_grants(|_| false);
                waiting -= granted.len();
                held.extend(granted.into_iter().map(|(key, one, _)| (key, one)));
                prop_assert_eq!(pool.free() + held.iter().map(|(_, one)| one.taken).sum::<usize>(), 40);
            }
            while let Some((key, one)) = held.pop_front() {
                pool.give_back(&key, one);
                let granted = pool.next_grants(|_| false);
                waiting -= granted.len();
                held.extend(granted.into_iter().map(|(key, one, _)| (key, one)));
            }
            prop_assert_eq!((waiting, pool.free(), pool.accounts.len()), (0, 40, 0));
        }
    }
}
