//! How much may be wrong at a time, so that no promise has to be suspended.
//!
//! A fault **impairs** a block server when it comes back with all that it had synced: any number may be impaired at a
//! time. A fault **mars** one when synced data on it are gone or wrong: one at a time, only when every set is known to
//! be complete, and the next only after repair has made every set complete again. While one is marred, the number of
//! other impaired ones is limited. It leaves a set of three copies one that is neither. Where there are two copies,
//! none may be impaired. With more, the only good copy of an acknowledged write could be out of reach for so long that
//! a set goes on without it, and two copies would be lost. Where a set goes on without an impaired one, the data of
//! that one are out of date, also when it is there again. So the impaired ones beside the marred one stay the same
//! until every set is complete.

use std::collections::{BTreeMap, BTreeSet};

/// The faults of now and before.
#[derive(Debug)]
pub struct Budget {
    /// Block servers that may be impaired beside a marred one.
    beside_marred_max: usize,
    impaired: BTreeMap<String, u32>,
    marred: Option<String>,
    /// Those that were impaired since, too.
    beside_marred: BTreeSet<String>,
    /// The fault that mars goes on.
    still_marring: bool,
    ever_marred: BTreeSet<String>,
}

impl Budget {
    /// Nothing is wrong yet with a cluster that keeps so many copies.
    #[must_use]
    pub fn new(copies: u32) -> Self {
        Self {
            beside_marred_max: usize::from(copies > 2),
            impaired: BTreeMap::new(),
            marred: None,
            beside_marred: BTreeSet::new(),
            still_marring: false,
            ever_marred: BTreeSet::new(),
        }
    }

    /// Counts a fault that impairs these block servers; false: it may not come now.
    pub fn impair(&mut self, names: &[String]) -> bool {
        if let Some(marred) = &self.marred {
            let mut others: BTreeSet<String> = self.impaired.keys().chain(names).cloned().collect();
            others.extend(self.beside_marred.iter().cloned());
            others.remove(marred);
            if others.len() > self.beside_marred_max {
                return false;
            }
            self.beside_marred = others;
        }
        for name in names {
            *self.impaired.entry(name.clone()).or_default() += 1;
        }
        true
    }

    /// The end of a fault that impaired.
    pub fn recover(&mut self, names: &[String]) {
        for name in names {
            if let Some(count) = self.impaired.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.impaired.remove(name);
                }
            }
        }
    }

    /// Whether a block server may be marred, if every set is complete.
    #[must_use]
    pub fn may_mar(&self, name: &str) -> bool {
        self.marred.is_none() && self.impaired.keys().all(|other| other == name)
    }

    /// Counts a fault that mars. The caller has asked [`Budget::may_mar`] and knows that every set is complete.
    pub fn mar(&mut self, name: &str) {
        assert!(self.may_mar(name), "{name} is marred beyond the budget");
        self.marred = Some(name.to_owned());
        self.still_marring = true;
        self.ever_marred.insert(name.to_owned());
    }

    /// The fault that mars does no further damage.
    pub fn end_marring(&mut self) {
        self.still_marring = false;
    }

    /// Every set was found complete, all replicas having been read.
    pub fn found_complete(&mut self) {
        if !self.still_marring {
            self.marred = None;
            self.beside_marred.clear();
        }
    }

    /// Whether no block server is impaired or marred.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.marred.is_none() && self.impaired.is_empty()
    }

    /// Whether one is marred now.
    #[must_use]
    pub fn is_marred(&self) -> bool {
        self.marred.is_some()
    }

    /// Whether something on this one may be gone or wrong, now or a while ago.
    #[must_use]
    pub fn was_marred(&self, name: &str) -> bool {
        self.ever_marred.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn one_is_marred_at_a_time_and_then_few_are_impaired() {
        let mut budget = Budget::new(3);
        assert!(budget.is_untouched());
        assert!(budget.impair(&names(&["a", "b", "c"])));
        assert!(!budget.is_untouched() && !budget.may_mar("a"), "others are impaired");
        budget.recover(&names(&["b", "c"]));
        assert!(budget.may_mar("a") && !budget.may_mar("b"));
        budget.mar("a");
        assert!(!budget.may_mar("a"));
        assert!(budget.impair(&names(&["b"])));
        assert!(budget.impair(&names(&["a", "b"])), "the same ones");
        assert!(!budget.impair(&names(&["c"])));
    }

    #[test]
    fn the_impaired_node_beside_a_marred_one_stays_the_same_until_every_set_is_complete() {
        let mut budget = Budget::new(3);
        budget.mar("a");
        assert!(budget.impair(&names(&["b"])));
        budget.recover(&names(&["b"]));
        assert!(!budget.impair(&names(&["c"])), "a set may have gone on without b, and c is the only good copy");
        assert!(budget.impair(&names(&["b"])));
        budget.recover(&names(&["b"]));
        budget.end_marring();
        budget.found_complete();
        assert!(budget.impair(&names(&["c"])));
    }

    #[test]
    fn of_two_copies_the_other_one_is_left_alone() {
        let mut budget = Budget::new(2);
        budget.mar("a");
        assert!(budget.impair(&names(&["a"])) && !budget.impair(&names(&["b"])));
    }

    #[test]
    fn the_next_one_waits_for_repair() {
        let mut budget = Budget::new(3);
        budget.mar("a");
        budget.found_complete();
        assert!(budget.is_marred(), "it goes on");
        budget.end_marring();
        budget.found_complete();
        assert!(budget.may_mar("b") && budget.was_marred("a") && !budget.was_marred("b"));
    }
}
