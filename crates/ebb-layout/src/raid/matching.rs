//! Which item takes which spot: each spot takes one, each group of spots so many, and the sum of the costs is the least.
//!
//! Items come one by one. An item finds the cheapest way in, on which others may change their spots (successive shortest
//! paths; Ahuja, Magnanti, Orlin: *Network Flows*, Sec. 9.7). So the items so far always lie as cheaply as they can. One
//! that finds no way changes nothing.

use std::collections::VecDeque;

/// A spot that an item may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    pub spot: usize,
    pub cost: i64,
}

/// Items in their spots.
#[derive(Clone, Debug)]
pub(super) struct Matching {
    group_of: Vec<usize>,
    groups: usize,
    most: usize,
    offers: Vec<Vec<Offer>>,
    /// By item: the offer that it has.
    chosen: Vec<usize>,
}

/// A place on the way of an item: another item, a spot or a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    Item(usize),
    Spot(usize),
    Group(usize),
}

/// The cheapest known way to each stop.
struct Ways {
    spots: usize,
    groups: usize,
    cost: Vec<Option<i64>>,
    /// The stop before, and of a spot that was reached from an item: by which of its offers.
    before: Vec<Option<(Stop, usize)>>,
    open: VecDeque<Stop>,
    is_open: Vec<bool>,
}

impl Ways {
    fn index(&self, stop: Stop) -> usize {
        match stop {
            Stop::Spot(spot) => spot,
            Stop::Group(group) => self.spots + group,
            Stop::Item(item) => self.spots + self.groups + item,
        }
    }

    fn cost(&self, stop: Stop) -> Option<i64> {
        self.cost[self.index(stop)]
    }

    fn reach(&mut self, stop: Stop, cost: i64, before: Option<(Stop, usize)>) {
        let index = self.index(stop);
        if self.cost[index].is_none_or(|known| cost < known) {
            self.cost[index] = Some(cost);
            self.before[index] = before;
            if !self.is_open[index] {
                self.is_open[index] = true;
                self.open.push_back(stop);
            }
        }
    }

    /// The next stop from which ways go on, and its cost.
    fn next(&mut self) -> Option<(Stop, i64)> {
        let stop = self.open.pop_front()?;
        let index = self.index(stop);
        self.is_open[index] = false;
        Some((stop, self.cost[index].expect("a stop is open when it has been reached")))
    }
}

impl Matching {
    /// Empty, over spots that belong to these groups, each of which takes `most`.
    pub fn new(group_of: Vec<usize>, most: usize) -> Self {
        let groups = group_of.iter().max().map_or(0, |last| last + 1);
        Self { group_of, groups, most, offers: Vec::new(), chosen: Vec::new() }
    }

    /// Over spots that have nothing in common.
    pub fn of_spots(spots: usize) -> Self {
        Self::new(vec![0; spots], usize::MAX)
    }

    /// One spot more, in the first group.
    pub fn add_spot(&mut self) -> usize {
        self.group_of.push(0);
        self.groups = self.groups.max(1);
        self.group_of.len() - 1
    }

    /// The spot of an item.
    pub fn spot(&self, item: usize) -> usize {
        self.offers[item][self.chosen[item]].spot
    }

    /// Which of its offers an item has.
    pub fn offer(&self, item: usize) -> usize {
        self.chosen[item]
    }

    /// Adds an item; false, and nothing is changed, if it finds no spot.
    #[must_use]
    pub fn add(&mut self, offers: Vec<Offer>) -> bool {
        self.add_below(offers, i64::MAX)
    }

    /// The same, if the sum of the costs grows by less than this.
    #[must_use]
    pub fn add_below(&mut self, offers: Vec<Offer>, limit: i64) -> bool {
        let item = self.offers.len();
        let mut taken_by = vec![None; self.group_of.len()];
        let mut used = vec![Vec::new(); self.groups];
        for other in 0..item {
            taken_by[self.spot(other)] = Some(other);
            used[self.group_of[self.spot(other)]].push(self.spot(other));
        }
        self.offers.push(offers);
        let ways = self.find_ways(item, &taken_by, &used);
        let end = (0..self.groups).filter(|group| used[*group].len() < self.most);
        let end = end.filter_map(|group| Some((ways.cost(Stop::Group(group))?, group))).min();
        let Some((_, group)) = end.filter(|(cost, _)| *cost < limit) else {
            self.offers.pop();
            return false;
        };
        self.chosen.push(usize::MAX);
        let mut at = Stop::Group(group);
        while let Some((before, offer)) = ways.before[ways.index(at)] {
            if let Stop::Item(item) = before {
                self.chosen[item] = offer;
            }
            at = before;
        }
        true
    }

    /// Bellman and Ford's ways from an item: to a spot, on to its group or to the item that gives it up; and from a full
    /// group to an item that leaves it.
    fn find_ways(&self, item: usize, taken_by: &[Option<usize>], used: &[Vec<usize>]) -> Ways {
        let (spots, groups) = (self.group_of.len(), self.groups);
        let stops = spots + groups + self.offers.len();
        let mut ways = Ways {
            spots,
            groups,
            cost: vec![None; stops],
            before: vec![None; stops],
            open: VecDeque::new(),
            is_open: vec![false; stops],
        };
        ways.reach(Stop::Item(item), 0, None);
        while let Some((stop, cost)) = ways.next() {
            match stop {
                Stop::Item(item) => {
                    for (number, offer) in self.offers[item].iter().enumerate() {
                        if taken_by[offer.spot] != Some(item) {
                            ways.reach(Stop::Spot(offer.spot), cost + offer.cost, Some((stop, number)));
                        }
                    }
                }
                Stop::Spot(spot) => match taken_by[spot] {
                    None => ways.reach(Stop::Group(self.group_of[spot]), cost, Some((stop, 0))),
                    Some(other) => {
                        let gives_up = self.offers[other][self.chosen[other]].cost;
                        ways.reach(Stop::Item(other), cost - gives_up, Some((stop, 0)));
                    }
                },
                Stop::Group(group) => {
                    for spot in &used[group] {
                        ways.reach(Stop::Spot(*spot), cost, Some((stop, 0)));
                    }
                }
            }
        }
        ways
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The least cost of all ways to give every item a spot; none if there is no way.
    fn naive(items: &[Vec<Offer>], group_of: &[usize], most: usize, taken: &mut Vec<usize>) -> Option<i64> {
        let Some((first, rest)) = items.split_first() else { return Some(0) };
        let mut best = None;
        for offer in first {
            let in_group = taken.iter().filter(|spot| group_of[**spot] == group_of[offer.spot]).count();
            if taken.contains(&offer.spot) || in_group >= most {
                continue;
            }
            taken.push(offer.spot);
            let cost = naive(rest, group_of, most, taken).map(|rest| rest + offer.cost);
            taken.pop();
            best = [best, cost].into_iter().flatten().min();
        }
        best
    }

    prop_compose! {
        fn any_items()(items in prop::collection::vec(prop::collection::btree_map(0..7_usize, 0..9_i64, 0..5), 0..7))
            -> Vec<Vec<Offer>>
        {
            let offers = |item: std::collections::BTreeMap<usize, i64>| {
                item.into_iter().map(|(spot, cost)| Offer { spot, cost }).collect()
            };
            items.into_iter().map(offers).collect()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Goal: an item is refused only if it cannot be placed beside those before it, and the sum is always the least.
        /// Method: every way of placing them.
        #[test]
        fn items_lie_as_cheaply_as_they_can(
            items in any_items(), groups in prop::collection::vec(0..3_usize, 7), most in 1..4_usize,
        ) {
            let mut matching = Matching::new(groups.clone(), most);
            let mut placed: Vec<Vec<Offer>> = Vec::new();
            for item in items {
                placed.push(item.clone());
                let least = naive(&placed, &groups, most, &mut Vec::new());
                prop_assert_eq!(matching.add(item), least.is_some());
                let Some(least) = least else {
                    placed.pop();
                    continue;
                };
                let spots: Vec<usize> = (0..placed.len()).map(|item| matching.spot(item)).collect();
                let cost: i64 = placed.iter().enumerate().map(|(item, offers)| offers[matching.offer(item)].cost).sum();
                let distinct: std::collections::BTreeSet<_> = spots.iter().collect();
                prop_assert_eq!((cost, distinct.len()), (least, placed.len()));
                for group in 0..3 {
                    prop_assert!(spots.iter().filter(|spot| groups[**spot] == group).count() <= most);
                }
            }
        }
    }
}
