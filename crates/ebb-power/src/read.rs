//! Choice of the awake replica node for a read: rules over a client's own knowledge, one for each dataset.
//!
//! Where a rule leaves several nodes alike, two choices decide: two nodes are drawn, and the one with the shorter queue
//! is asked (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001). Readers who all heard the
//! same would crowd the shortest queue of all; of two that each draws for itself they do not.
//!
//! Hit ratios draw: the two nodes furthest below theirs. They have a say in the end as well, or a block with two awake
//! copies would be read from both alike: a part of the reads that is missing counts for [`READS_PER_PART`] times so
//! many reads in the queue. So queues decide from read to read, and hit ratios over many reads.

use std::collections::BTreeMap;

pub use ebb_layout::Distance;
pub use ebb_types::ReadRule;

mod learned;
pub mod queue;

pub use learned::LearnedBalance;

use crate::plan::lookup::Awake;

/// A client's knowledge of one replica node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate<K> {
    /// The node.
    pub node: K,
    /// Time for which it still serves.
    pub awake: Awake,
    /// Expected time from the request to the end of the answer, in milliseconds: [`queue::Queues::expected`], or more.
    pub needs_ms: u64,
    /// Its distance from the reader.
    pub distance: Distance,
    /// It counts as dead, or does not answer.
    pub is_dead: bool,
    /// It is slower than its peers.
    pub is_slow: bool,
    /// It serves another dataset than the one that is read ([`crate::allot`]).
    pub is_foreign: bool,
    /// How many reads like this one wait there, as far as the reader knows: by [`queue::Queues::bytes`].
    pub queue: f64,
    /// How many other readers like this one waited there of late: [`queue::Queues::others`].
    pub others: f64,
    /// Its deficit against the share of reads that it should serve: [`LearnedBalance::below`].
    pub below: f64,
    /// A random number, for ties.
    pub draw: u64,
}

/// The order in which replica nodes are asked.
#[derive(Clone, PartialEq, Debug)]
pub struct Order<K> {
    /// The nodes.
    pub nodes: Vec<K>,
    /// The first two were drawn against each other. So many reads more may wait at the second than at the first before
    /// the first is the better choice; fewer, if negative.
    pub edge: Option<f64>,
}

/// A node that is below its hit ratio by this part is as good as one where a read less waits.
pub const READS_PER_PART: f64 = 5.0;

/// Among readers at the localized storage node of its sub-rack, a reader may be one of so many times as many as elsewhere. Where there
/// are more, every second read goes elsewhere. All hosts of the sub-rack share that node's link and disks.
pub const SUB_RACK_CROWD: f64 = 2.0;

/// The replica nodes in the order for requests, without sleeping ones. First come nodes that stay awake until their answer is
/// expected. A read that a node falls asleep over is lost, with what was sent of it. Then come the other nodes, longest
/// awake first: a node about to sleep is still better than none. Then come slow nodes, and dead ones last. Among these,
/// nodes that serve another dataset come last. Among equals the nearer comes first, then the one with the larger deficit,
/// then a random one. Of the first two, if they are equals, the one with the shorter queue is first; deficits count as reads
/// there. Under the balanced rule a node in the reader's sub-rack is first, unless others
/// crowd it ([`SUB_RACK_CROWD`]).
#[must_use]
pub fn order<K: Copy>(rule: ReadRule, mut candidates: Vec<Candidate<K>>) -> Order<K> {
    candidates.retain(|one| !one.awake.is_asleep());
    let by_merit = |one: &Candidate<K>, other: &Candidate<K>| {
        let is_short = |candidate: &Candidate<K>| !candidate.awake.serves_for(candidate.needs_ms);
        let longest = other.awake.cmp(&one.awake);
        // Under the balanced rule a node in the same rack counts as far.
        let distance = |candidate: &Candidate<K>| match (rule, candidate.distance) {
            (ReadRule::Balanced, Distance::Rack) => Distance::Far,
            (_, distance) => distance,
        };
        let nearer = distance(one).cmp(&distance(other));
        let idler = one.queue.total_cmp(&other.queue);
        let below = other.below.total_cmp(&one.below);
        let by_rule = match rule {
            _ if is_short(one) => longest,
            ReadRule::Balanced | ReadRule::Nearest => nearer,
            ReadRule::LeastLoaded => idler,
            ReadRule::LongestAwake => longest,
            ReadRule::HitRatio => below,
        };
        let sound = one.is_dead.cmp(&other.is_dead).then(one.is_slow.cmp(&other.is_slow));
        let own = one.is_foreign.cmp(&other.is_foreign);
        sound.then(is_short(one).cmp(&is_short(other))).then(own).then(by_rule).then(nearer)
    };
    candidates.sort_by(|one, other| {
        let drawn = other.below.total_cmp(&one.below).then(one.draw.cmp(&other.draw));
        by_merit(one, other).then(drawn)
    });
    if let [first, second, ..] = &mut candidates[..]
        && rule == ReadRule::Balanced
        && leaves_sub_rack(first, second)
    {
        std::mem::swap(first, second);
        return Order { nodes: candidates.into_iter().map(|candidate| candidate.node).collect(), edge: None };
    }
    let edge = |one: &Candidate<K>, other: &Candidate<K>| READS_PER_PART * (other.below - one.below);
    let mut drawn = None;
    if let [first, second, ..] = &mut candidates[..]
        && by_merit(first, second).is_eq()
    {
        if second.queue < first.queue + edge(first, second) {
            std::mem::swap(first, second);
        }
        drawn = Some(edge(first, second));
    }
    Order { nodes: candidates.into_iter().map(|candidate| candidate.node).collect(), edge: drawn }
}

/// Whether a read leaves the sub-rack for a node with nothing against it but the distance. Where others crowd the localized
/// storage node, every second one does, and the rest go on telling how crowded it is. Own reads do not count: what a
/// reader reads ahead waits for its own link, wherever it is read.
fn leaves_sub_rack<K>(lsn: &Candidate<K>, other: &Candidate<K>) -> bool {
    let is_only_nearer = lsn.distance == Distance::SubRack && other.distance > Distance::SubRack;
    let merits = |one: &Candidate<K>| (one.is_dead, one.is_slow, one.is_foreign, one.awake.serves_for(one.needs_ms));
    let is_crowded = lsn.others + 1.0 >= SUB_RACK_CROWD * (other.others + 1.0);
    is_only_nearer && merits(lsn) == merits(other) && is_crowded && lsn.draw.is_multiple_of(2)
}

/// Share of the reads it could serve that a node should serve: `(B / n) / b_i`, at most 1. `B` blocks are read from `n`
/// active nodes, and it stores `b_i` of them (Rabbit, Sec. 3.2). The paper prints the inverse, but its examples show
/// this one: 1 for the `n`-th node of an equal-work chain, `p / n` for a primary.
#[must_use]
pub fn desired_hit_ratio(blocks: f64, active: f64, stored: f64) -> f64 {
    (blocks / active.max(1.0) / stored.max(1.0)).min(1.0)
}

/// Rabbit's load balancer: compares each node's share so far with the share that it should have.
#[derive(Clone, PartialEq, Debug)]
pub struct HitBalance<K> {
    nodes: BTreeMap<K, Hits>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Hits {
    desired: f64,
    served: u64,
    could: u64,
}

/// Reads after which all counts are halved, so that old reads do not outweigh recent ones.
const MEMORY: u64 = 1 << 16;

impl<K: Ord + Copy> HitBalance<K> {
    /// A balancer without counts. `desired`: see [`desired_hit_ratio`]. A node without an entry should serve all the
    /// reads that it can.
    #[must_use]
    pub fn new(desired: impl IntoIterator<Item = (K, f64)>) -> Self {
        let hits = |(node, desired)| (node, Hits { desired, ..Hits::default() });
        Self { nodes: desired.into_iter().map(hits).collect() }
    }

    /// Deficit of a node against the reads that it should have served, as a share of those that it could have served.
    #[must_use]
    pub fn below(&self, node: K) -> f64 {
        let hits = self.nodes.get(&node).copied().unwrap_or(Hits { desired: 1.0, ..Hits::default() });
        hits.desired - hits.served as f64 / hits.could.max(1) as f64
    }

    /// Counts a read that any of `could` might have served, and `served` did.
    pub fn count(&mut self, could: impl IntoIterator<Item = K>, served: K) {
        let new = || Hits { desired: 1.0, ..Hits::default() };
        let mut is_full = false;
        for node in could {
            let hits = self.nodes.entry(node).or_insert_with(new);
            hits.could += 1;
            is_full |= hits.could >= MEMORY;
        }
        self.nodes.entry(served).or_insert_with(new).served += 1;
        if is_full {
            self.nodes.values_mut().for_each(|hits| {
                hits.could /= 2;
                hits.served /= 2;
            });
        }
    }

    /// Chooses the node with the largest deficit among the active nodes with a block, and counts the read. This read
    /// counts as one that each could have served. Among equals it is the first.
    pub fn choose(&mut self, holders: impl IntoIterator<Item = K> + Clone) -> Option<K> {
        let below = |node: K| {
            let hits = self.nodes.get(&node).copied().unwrap_or(Hits { desired: 1.0, ..Hits::default() });
            hits.desired - hits.served as f64 / (hits.could + 1) as f64
        };
        let mut best: Option<(f64, K)> = None;
        for node in holders.clone() {
            let below = below(node);
            if best.is_none_or(|(most, _)| below > most) {
                best = Some((below, node));
            }
        }
        let (_, chosen) = best?;
        self.count(holders, chosen);
        Some(chosen)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use ebb_layout::targets::{Chain, Targets, equal_work};
    use proptest::prelude::*;

    use super::*;

    fn candidate(node: u32, awake: Awake, distance: Distance, queue: f64, below: f64) -> Candidate<u32> {
        let draw = u64::from(node);
        let (is_dead, is_slow, is_foreign) = (false, false, false);
        Candidate {
            node,
            awake,
            needs_ms: 100,
            distance,
            is_dead,
            is_slow,
            is_foreign,
            queue,
            others: 0.0,
            below,
            draw,
        }
    }

    #[test]
    fn each_rule_has_its_own_first() {
        let dead = Candidate { is_dead: true, ..candidate(6, Awake::Always, Distance::Host, 0.0, 0.9) };
        let candidates = [
            dead,
            candidate(1, Awake::ForMs(500), Distance::Far, 0.0, 0.1),
            candidate(2, Awake::ForMs(900), Distance::Rack, 3.0, -0.3),
            candidate(3, Awake::ForMs(600), Distance::Host, 9.0, 0.2),
            candidate(4, Awake::Asleep, Distance::Host, 0.0, 0.0),
            candidate(5, Awake::ForMs(40), Distance::Host, 0.0, 0.0),
            candidate(7, Awake::ForMs(60), Distance::Far, 0.0, 0.0),
        ];
        let order = |rule| order(rule, candidates.to_vec()).nodes;
        let last = "sleepers are left out, those about to sleep come late, longest awake first, and dead ones last";
        assert_eq!(order(ReadRule::Balanced), [3, 1, 2, 7, 5, 6], "{last}");
        assert_eq!(order(ReadRule::Nearest), [3, 2, 1, 7, 5, 6]);
        assert_eq!(order(ReadRule::LeastLoaded), [1, 2, 3, 7, 5, 6]);
        assert_eq!(order(ReadRule::LongestAwake), [2, 3, 1, 7, 5, 6]);
        assert_eq!(order(ReadRule::HitRatio), [3, 1, 2, 7, 5, 6]);
    }

    #[test]
    fn a_node_that_sleeps_before_its_answer_comes_after_one_that_does_not() {
        let left = |node, left_ms, needs_ms| Candidate {
            needs_ms,
            ..candidate(node, Awake::ForMs(left_ms), Distance::Far, 0.0, 0.0)
        };
        let nodes = |candidates: &[Candidate<u32>]| order(ReadRule::Balanced, candidates.to_vec()).nodes;
        assert_eq!(nodes(&[left(1, 5_000, 6_000), left(2, 3_000, 2_000)]), [2, 1]);
        assert_eq!(nodes(&[left(1, 5_000, 6_000), left(2, 3_000, 4_000)]), [1, 2], "neither: the longest awake");
        let always = candidate(3, Awake::Always, Distance::Far, 9.0, -0.5);
        assert_eq!(nodes(&[left(1, 5_000, 6_000), Candidate { needs_ms: 60_000, ..always }]), [3, 1]);
    }

    #[test]
    fn own_host_first_then_the_shorter_queue_of_the_two_furthest_below_their_parts() {
        let one = |node, distance, queue, below| candidate(node, Awake::Always, distance, queue, below);
        let order = |candidates: &[Candidate<u32>]| order(ReadRule::Balanced, candidates.to_vec());
        let nodes = |candidates: &[Candidate<u32>]| order(candidates).nodes;
        let far = |node, queue, below| one(node, Distance::Far, queue, below);
        let with_host = [far(4, 3.0, 0.5), far(9, 1.0, 0.5), one(1, Distance::Host, 9.0, 0.5), far(2, 1.0, 0.5)];
        assert_eq!(order(&with_host), Order { nodes: vec![1, 2, 4, 9], edge: None });
        assert_eq!(order(&with_host[..2]), Order { nodes: vec![9, 4], edge: Some(0.0) });
        let parts = |first, second| [far(0, 0.0, -0.1), far(1, first, 0.7), far(2, second, 0.9), far(3, 0.0, 0.2)];
        assert_eq!(nodes(&parts(5.0, 5.0)), [2, 1, 3, 0], "queues are alike: the parts decide");
        assert_eq!(nodes(&parts(5.0, 5.9)), [2, 1, 3, 0], "a fifth of the reads is worth one in the queue");
        let drawn = order(&parts(5.0, 6.1));
        assert_eq!(drawn.nodes, [1, 2, 3, 0], "the shorter of two, and never the third");
        assert!((drawn.edge.unwrap() - 1.0).abs() < 1e-9, "{drawn:?}");
        assert_eq!(nodes(&[far(5, 0.0, 0.5), one(6, Distance::Rack, 1.0, 0.5)]), [5, 6], "the rack does not count");
        assert_eq!(nodes(&[one(8, Distance::Host, 9.0, 0.5), one(7, Distance::SubRack, 0.0, 0.5)]), [8, 7]);
    }

    #[test]
    fn every_second_read_leaves_a_sub_rack_whose_node_others_crowd() {
        let far = candidate(5, Awake::Always, Distance::Far, 0.0, 0.5);
        let lsn = |others, draw| {
            let lsn = candidate(7, Awake::Always, Distance::SubRack, 99.0, 0.5);
            Candidate { others, draw, ..lsn }
        };
        let first = |one, other| order(ReadRule::Balanced, vec![one, other]).nodes[0];
        assert_eq!([0, 1].map(|draw| first(far, lsn(0.9, draw))), [7, 7], "the own queue says nothing");
        assert_eq!([0, 1].map(|draw| first(far, lsn(1.0, draw))), [5, 7]);
        assert_eq!([0, 1].map(|draw| first(Candidate { others: 8.0, ..far }, lsn(16.0, draw))), [7, 7]);
        for worse in [
            Candidate { is_slow: true, ..far },
            Candidate { is_dead: true, ..far },
            Candidate { is_foreign: true, ..far },
            Candidate { awake: Awake::ForMs(40), ..far },
        ] {
            assert_eq!(first(worse, lsn(9.0, 0)), 7, "{worse:?}");
        }
        assert_eq!(order(ReadRule::Nearest, vec![far, lsn(9.0, 0)]).nodes, [7, 5]);
    }

    #[test]
    fn nodes_that_serve_another_dataset_come_after_all_that_can_serve_this_one() {
        let one = |node, awake, distance| candidate(node, awake, distance, 0.0, 0.5);
        let foreign = |candidate| Candidate { is_foreign: true, ..candidate };
        let candidates = [
            foreign(one(1, Awake::Always, Distance::Host)),
            one(2, Awake::Always, Distance::Far),
            foreign(one(3, Awake::Always, Distance::Far)),
            one(4, Awake::ForMs(40), Distance::Rack),
            Candidate { is_slow: true, ..one(5, Awake::Always, Distance::Far) },
            one(6, Awake::Asleep, Distance::Far),
        ];
        for rule in [ReadRule::Balanced, ReadRule::Nearest, ReadRule::LeastLoaded, ReadRule::HitRatio] {
            let order = order(rule, candidates.to_vec());
            assert_eq!(order.nodes, [2, 1, 3, 4, 5], "{rule:?}");
            assert_eq!(order.edge, None, "{rule:?}: no other one is drawn against the only one of its own");
        }
        let order = order(ReadRule::Balanced, candidates[..1].to_vec());
        assert_eq!(order.nodes, [1], "data are read wherever they are");
    }

    #[test]
    fn the_paper_s_examples_settle_the_fraction() {
        // p = 5, n = 20: a primary p / n, the 20th node 1.
        assert!((desired_hit_ratio(1_000.0, 20.0, 200.0) - 0.25).abs() < 1e-12);
        assert!((desired_hit_ratio(1_000.0, 20.0, 50.0) - 1.0).abs() < 1e-12);
    }

    /// The nodes that hold each block, each copy laid over its run in an order that has nothing to do with the other
    /// copies'.
    pub(crate) fn holders(stored: &Targets, blocks: u64, seed: u64) -> Vec<Vec<usize>> {
        let mut holders = vec![Vec::new(); blocks as usize];
        for copy in 0..stored.copies() {
            let mut places: Vec<u64> = (0..blocks).collect();
            places.sort_by_key(|block| mix(*block ^ seed << 20 ^ (copy as u64) << 40));
            let run = stored.copy(copy).iter().enumerate().flat_map(|(node, held)| vec![node; *held as usize]);
            run.zip(places).for_each(|(node, block)| holders[block as usize].push(node));
        }
        holders
    }

    /// SplitMix64's finisher: an order that has nothing to do with the numbers.
    pub(crate) fn mix(number: u64) -> u64 {
        let mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    proptest! {
        #[test]
        fn a_full_read_is_shared_evenly(primaries in 1_u32..4, seed in 0_u64..1_000) {
            let (replicas, blocks) = (3_u32, 1_700_u64);
            let count = primaries * 8;
            let chain = Chain::new(count, primaries, replicas).unwrap();
            let stored = equal_work::targets(chain, blocks).unwrap();
            let holders = holders(&stored, blocks, seed);
            let per_node = stored.blocks_per_node();
            let mut balance = HitBalance::new(per_node.iter().enumerate()
                .map(|(node, held)| (node, desired_hit_ratio(blocks as f64, f64::from(count), *held as f64))));
            let mut served = vec![0_f64; count as usize];
            for holders in &holders {
                served[balance.choose(holders.iter().copied()).unwrap()] += 1.0;
            }
            let mean = blocks as f64 / f64::from(count);
            let deviation = (served.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / f64::from(count)).sqrt();
            // The paper's own balancer: 1.79 of 70.83.
            prop_assert!(deviation < 0.0253 * mean.max(70.83), "{deviation} {served:?}");
        }
    }
}
