//! Extra copies of data that are read often, and their removal (BlinkFS, Sec. 4.2).
//!
//! The popularity of a block is an exponentially weighted moving average of its reads, updated each blink interval.
//! Extra copies are distributed in proportion to it, within a share of the unused capacity. Data that are written often
//! get none, because each copy slows writes down. When space is needed, or popularity falls, the extra copies go first.

use std::collections::BTreeMap;

use ebb_types::{MetablockId, NodeId, Result, bail};

pub mod tally;

/// Reads and writes of a block during an interval.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counts {
    /// Reads of parts of it, in [`tally::PARTS`].
    pub read_parts: u64,
    /// Writes.
    pub writes: u64,
}

/// Moving averages of a block, per interval.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Heat {
    /// Reads of the whole block.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
}

/// Averages below this are dropped.
const COLD: f64 = 1e-3;
/// Number of blocks with averages: those read most. They take some megabytes, and are more than the extra copies of a
/// cluster.
pub const BLOCKS_MAX: usize = 65_536;
/// A node's share of all reads has changed if it differs from the old one by this part of an even share.
const MOVED: f64 = 0.25;

/// Moving averages of all blocks that are not cold, and of no more than [`BLOCKS_MAX`].
#[derive(Clone, PartialEq, Debug)]
pub struct Popularity {
    weight: f64,
    heat: BTreeMap<MetablockId, Heat>,
}

impl Popularity {
    /// `weight` is that of the newest interval: above 0, at most 1.
    pub fn new(weight: f64) -> Result<Self> {
        if !(weight > 0.0 && weight <= 1.0) {
            bail!(Invalid, "a weight of {weight} for the newest interval; it must be above 0 and at most 1");
        }
        Ok(Self { weight, heat: BTreeMap::new() })
    }

    /// An interval has passed: `average += weight * (count - average)` for every block.
    pub fn on_interval(&mut self, counts: &BTreeMap<MetablockId, Counts>) {
        for block in counts.keys() {
            self.heat.entry(*block).or_default();
        }
        let weight = self.weight;
        self.heat.retain(|block, heat| {
            let now = counts.get(block).copied().unwrap_or_default();
            heat.reads += weight * (now.read_parts as f64 / f64::from(tally::PARTS) - heat.reads);
            heat.writes += weight * (now.writes as f64 - heat.writes);
            heat.reads >= COLD || heat.writes >= COLD
        });
        self.keep(BLOCKS_MAX);
    }

    /// Drops the blocks that are read least, until `most` are left.
    fn keep(&mut self, most: usize) {
        let Some(over) = self.heat.len().checked_sub(most).filter(|over| *over > 0) else { return };
        let mut order: Vec<(MetablockId, f64)> = self.heat.iter().map(|(block, heat)| (*block, heat.reads)).collect();
        order.sort_by(|(one, less), (other, more)| less.total_cmp(more).then(other.cmp(one)));
        for (block, _) in &order[..over] {
            self.heat.remove(block);
        }
    }

    /// Drops a block that is gone.
    pub fn forget(&mut self, block: MetablockId) {
        self.heat.remove(&block);
    }

    /// Averages of a block.
    #[must_use]
    pub fn heat(&self, block: MetablockId) -> Heat {
        self.heat.get(&block).copied().unwrap_or_default()
    }

    /// All blocks that are not cold.
    pub fn iter(&self) -> impl Iterator<Item = (MetablockId, Heat)> + '_ {
        self.heat.iter().map(|(block, heat)| (*block, *heat))
    }
}

/// The reads of each node's data for the policy: the ones used until now, unless some node's share of all reads has
/// changed. So a policy that weighs by them does not make a new plan for every small change.
#[must_use]
pub fn choose_loads(before: &BTreeMap<NodeId, f64>, now: &BTreeMap<NodeId, f64>) -> BTreeMap<NodeId, f64> {
    let part = |loads: &BTreeMap<NodeId, f64>, node: &NodeId| {
        let all: f64 = loads.values().sum();
        if all > 0.0 { loads.get(node).copied().unwrap_or(0.0) / all } else { 0.0 }
    };
    let nodes = before.keys().chain(now.keys());
    let even = 1.0 / before.len().max(now.len()).max(1) as f64;
    let has_moved = |node: &NodeId| (part(before, node) - part(now, node)).abs() > MOVED * even;
    if nodes.into_iter().any(has_moved) { now.clone() } else { before.clone() }
}

/// Rule for the distribution of extra copies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ExtraRule {
    /// Share of the capacity not used by ordinary copies that extra ones may take.
    pub unused_share: f64,
    /// Limit of a block's copies, with the ordinary ones.
    pub most_copies: u32,
    /// Reads per interval from which a block gets extra copies. It keeps them down to half of that.
    pub often_read: f64,
    /// Writes per interval from which a block gets no extra copy.
    pub often_written: f64,
}

impl Default for ExtraRule {
    /// At most six copies (as in the paper) and half of the unused capacity, for blocks that are read once per interval
    /// and written less often.
    fn default() -> Self {
        Self { unused_share: 0.5, most_copies: 6, often_read: 1.0, often_written: 1.0 }
    }
}

/// A block as the decision sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Block {
    /// Which.
    pub id: MetablockId,
    /// Bytes of one copy.
    pub bytes: u64,
    /// Copies that its dataset asks for.
    pub ordinary: u32,
    /// Extra copies that it has.
    pub extra: u32,
    /// Its averages.
    pub heat: Heat,
}

/// More or fewer extra copies of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Which.
    pub id: MetablockId,
    /// Extra copies that it has.
    pub from: u32,
    /// Extra copies that it is to have.
    pub to: u32,
}

/// Blocks that are to have more or fewer extra copies, with `unused_bytes` free beside all ordinary copies (extra ones
/// do not count as used). Removals come first, then the most popular blocks.
///
/// A block gets a copy when its part has grown by a whole copy, and gives one up when its part is half a copy below its
/// number. So small changes of its part move nothing.
#[must_use]
pub fn choose_extra(rule: &ExtraRule, blocks: &[Block], unused_bytes: u64) -> Vec<Change> {
    let budget = unused_bytes as f64 * rule.unused_share.clamp(0.0, 1.0);
    let mut after = blocks.to_vec();
    // A block that loses its last extra copy may have too few reads to get one again. Its part then goes to others, and
    // the decision is made once more: the next call must not take back what this one leaves. Each round but the last
    // ends the claim of a block.
    loop {
        let wanted = choose_copies(rule, &after, budget);
        let loses_claim =
            |(block, to): (&Block, &u32)| block.extra > 0 && *to == 0 && block.heat.reads < rule.often_read;
        let again = after.iter().zip(&wanted).any(loses_claim);
        after.iter_mut().zip(wanted).for_each(|(block, to)| block.extra = to);
        if !again {
            break;
        }
    }
    let changes = blocks.iter().zip(&after).filter(|(block, after)| block.extra != after.extra);
    let mut changes: Vec<(f64, Change)> = changes
        .map(|(block, after)| (block.heat.reads, Change { id: block.id, from: block.extra, to: after.extra }))
        .collect();
    changes.sort_by(|(one_reads, one), (other_reads, other)| {
        let grows = |change: &Change| change.to > change.from;
        grows(one).cmp(&grows(other)).then(other_reads.total_cmp(one_reads)).then(one.id.cmp(&other.id))
    });
    changes.into_iter().map(|(_, change)| change).collect()
}

/// Extra copies of each block, as [`choose_extra`] describes it.
fn choose_copies(rule: &ExtraRule, blocks: &[Block], budget: f64) -> Vec<u32> {
    let parts = parts(rule, blocks, budget);
    let keep = |block: &Block, part: f64| {
        let has = f64::from(block.extra);
        if part >= has + 1.0 {
            (part + 1e-9).floor()
        } else if part < has - 0.5 {
            part.ceil().min(has)
        } else {
            has
        }
    };
    let mut wanted: Vec<u32> = blocks.iter().zip(&parts).map(|(block, part)| keep(block, *part) as u32).collect();
    fit(blocks, &parts, &mut wanted, budget);
    wanted
}

/// Extra copies of each block, in proportion to its reads and up to its limit. The remainder goes to the others.
fn parts(rule: &ExtraRule, blocks: &[Block], budget: f64) -> Vec<f64> {
    let most = |block: &Block| {
        let often_read = if block.extra > 0 { rule.often_read / 2.0 } else { rule.often_read };
        let is_read = block.heat.reads > 0.0 && block.heat.reads >= often_read;
        let is_hot = is_read && block.heat.writes < rule.often_written && block.bytes > 0;
        if is_hot { f64::from(rule.most_copies.saturating_sub(block.ordinary)) } else { 0.0 }
    };
    let most: Vec<f64> = blocks.iter().map(most).collect();
    let mut parts = vec![0.0; blocks.len()];
    let mut open: Vec<usize> = (0..blocks.len()).filter(|at| most[*at] > 0.0).collect();
    let mut left = budget;
    while !open.is_empty() && left > 0.0 {
        // Copies in proportion to reads: `reads * factor` copies of `bytes` each use up the remaining budget.
        let weight: f64 = open.iter().map(|at| blocks[*at].heat.reads * blocks[*at].bytes as f64).sum();
        let factor = left / weight;
        let (full, rest): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|at| blocks[**at].heat.reads * factor >= most[**at]);
        if full.is_empty() {
            rest.iter().for_each(|at| parts[*at] = blocks[*at].heat.reads * factor);
            break;
        }
        for at in full {
            parts[at] = most[at];
            left -= most[at] * blocks[at].bytes as f64;
        }
        open = rest;
    }
    parts
}

/// Removes copies beyond their block's part until all fit, first from the blocks with the fewest reads for each copy.
/// The whole copies of all parts fit together, so no block falls below its part.
fn fit(blocks: &[Block], parts: &[f64], wanted: &mut [u32], budget: f64) {
    let due = |at: usize| (parts[at] + 1e-9).floor() as u32;
    let mut used: f64 =
        blocks.iter().zip(&*wanted).map(|(block, copies)| block.bytes as f64 * f64::from(*copies)).sum();
    let mut order: Vec<usize> = (0..blocks.len()).filter(|at| wanted[*at] > due(*at)).collect();
    order.sort_by(|one, other| worth(&blocks[*one], wanted[*one]).total_cmp(&worth(&blocks[*other], wanted[*other])));
    for at in order {
        while wanted[at] > due(at) && used > budget {
            wanted[at] -= 1;
            used -= blocks[at].bytes as f64;
        }
    }
}

/// Reads for each copy, with `extra` extra ones.
fn worth(block: &Block, extra: u32) -> f64 {
    block.heat.reads / f64::from(block.ordinary + extra).max(1.0)
}

/// Extra copies to give up until `bytes` are free, first those of the blocks with the fewest reads for each copy.
#[must_use]
pub fn reclaim(blocks: &[Block], bytes: u64) -> Vec<Change> {
    let mut order: Vec<&Block> = blocks.iter().filter(|block| block.extra > 0 && block.bytes > 0).collect();
    order.sort_by(|one, other| worth(one, one.extra).total_cmp(&worth(other, other.extra)).then(one.id.cmp(&other.id)));
    let mut freed = 0_u64;
    let mut changes = Vec::new();
    for block in order {
        if freed >= bytes {
            break;
        }
        let needed = (bytes - freed).div_ceil(block.bytes);
        let gone = u32::try_from(needed).unwrap_or(u32::MAX).min(block.extra);
        freed = freed.saturating_add(u64::from(gone) * block.bytes);
        changes.push(Change { id: block.id, from: block.extra, to: block.extra - gone });
    }
    changes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(id: u64, reads: f64, extra: u32) -> Block {
        Block { id: MetablockId::new(id), bytes: 64, ordinary: 3, extra, heat: Heat { reads, writes: 0.0 } }
    }

    fn wanted(changes: &[Change]) -> Vec<(u64, u32)> {
        changes.iter().map(|change| (change.id.raw(), change.to)).collect()
    }

    const ALL: ExtraRule = ExtraRule { unused_share: 1.0, most_copies: 6, often_read: 1.0, often_written: 1.0 };

    #[test]
    fn averages_follow_and_forget() {
        let mut popularity = Popularity::new(0.5).unwrap();
        let one = MetablockId::new(1);
        let read = BTreeMap::from([(one, Counts { read_parts: 8 * u64::from(tally::PARTS), writes: 2 })]);
        popularity.on_interval(&read);
        popularity.on_interval(&read);
        assert_eq!(popularity.heat(one), Heat { reads: 6.0, writes: 1.5 });
        (0..13).for_each(|_| popularity.on_interval(&BTreeMap::new()));
        assert_eq!(popularity.iter().count(), 0, "cold blocks take no memory");
        assert!(Popularity::new(0.0).is_err() && Popularity::new(1.1).is_err());
    }

    #[test]
    fn the_least_read_blocks_are_dropped_first() {
        let mut popularity = Popularity::new(1.0).unwrap();
        let counts = [5, 1, 9, 1].map(|read_parts| Counts { read_parts, writes: 0 });
        popularity.on_interval(&(1..).map(MetablockId::new).zip(counts).collect());
        popularity.keep(2);
        assert_eq!(popularity.iter().map(|(block, _)| block.raw()).collect::<Vec<_>>(), [1, 3]);
        popularity.keep(2);
        assert_eq!(popularity.iter().count(), 2);
    }

    #[test]
    fn loads_change_when_a_part_moves_and_not_when_all_of_it_grows() {
        let loads = |reads: [f64; 4]| (1..).map(NodeId::new).zip(reads).collect::<BTreeMap<_, _>>();
        let before = loads([10.0, 10.0, 10.0, 10.0]);
        assert_eq!(choose_loads(&before, &loads([90.0, 88.0, 91.0, 95.0])), before);
        let moved = loads([10.0, 10.0, 10.0, 30.0]);
        assert_eq!(choose_loads(&before, &moved), moved);
        assert_eq!(choose_loads(&BTreeMap::new(), &moved), moved);
        assert_eq!(choose_loads(&moved, &BTreeMap::new()), BTreeMap::new(), "no reads any more");
    }

    #[test]
    fn copies_go_by_popularity_up_to_the_most() {
        // Room for six copies: four reads' worth to the first, of which it can have three.
        let blocks = [block(1, 12.0, 0), block(2, 4.0, 0), block(3, 2.0, 0), block(4, 0.0, 0)];
        assert_eq!(wanted(&choose_extra(&ALL, &blocks, 6 * 64)), [(1, 3), (2, 2), (3, 1)]);
        let often = Block { heat: Heat { reads: 90.0, writes: 3.0 }, ..block(5, 0.0, 2) };
        assert_eq!(wanted(&choose_extra(&ALL, &[often], 1 << 20)), [(5, 0)], "often written: the ordinary copies only");
    }

    #[test]
    fn small_changes_move_nothing() {
        let waver = |reads| [block(1, reads, 1), block(2, 10.0, 1)];
        for reads in [7.0, 10.0, 14.0] {
            assert_eq!(choose_extra(&ALL, &waver(reads), 2 * 64), [], "{reads}");
        }
        assert_eq!(wanted(&choose_extra(&ALL, &waver(2.0), 3 * 64)), [(2, 2)]);
        assert_eq!(wanted(&choose_extra(&ALL, &waver(0.0), 2 * 64)), [(1, 0), (2, 2)], "reclaimed before dealt out");
    }

    #[test]
    fn a_block_that_is_hardly_read_gets_no_extra_copy() {
        let blocks = [block(1, 0.9, 0), block(2, 0.6, 1), block(3, 0.4, 1)];
        assert_eq!(wanted(&choose_extra(&ALL, &blocks, 1 << 20)), [(3, 0), (2, 3)]);
    }

    #[test]
    fn space_is_taken_from_the_least_read_blocks() {
        let blocks = [block(1, 9.0, 2), block(2, 1.0, 1), block(3, 2.0, 2), block(4, 0.0, 0)];
        assert_eq!(wanted(&reclaim(&blocks, 130)), [(2, 0), (3, 0)]);
        assert_eq!(wanted(&reclaim(&blocks, 1 << 30)), [(2, 0), (3, 0), (1, 0)]);
        assert_eq!(reclaim(&blocks, 0), []);
    }

    fn blocks() -> impl Strategy<Value = Vec<Block>> {
        let one = (0.0_f64..50.0, 0.0_f64..2.0, 0_u32..4, 1_u64..200, 1_u32..8);
        proptest::collection::vec(one, 0..20).prop_map(|drawn| {
            let block = |(id, (reads, writes, extra, bytes, ordinary))| Block {
                id: MetablockId::new(id),
                bytes,
                ordinary,
                extra,
                heat: Heat { reads, writes },
            };
            (1..).zip(drawn).map(block).collect()
        })
    }

    proptest! {
        #[test]
        fn extra_copies_stay_within_their_bounds(blocks in blocks(), unused in 0_u64..5_000, share in 0.0_f64..1.0) {
            let rule = ExtraRule { unused_share: share, ..ALL };
            let changes = choose_extra(&rule, &blocks, unused);
            let mut after = blocks.clone();
            for change in &changes {
                let block = after.iter_mut().find(|block| block.id == change.id).unwrap();
                prop_assert_eq!(block.extra, change.from);
                block.extra = change.to;
                prop_assert!(change.to < change.from || block.ordinary + change.to <= rule.most_copies);
                prop_assert!(change.to < change.from || block.heat.writes < rule.often_written);
            }
            let used: u64 = after.iter().map(|block| u64::from(block.extra) * block.bytes).sum();
            prop_assert!(used as f64 <= unused as f64 * share * (1.0 + 1e-6) + 1e-6, "{} of {}", used, unused as f64 * share);
            // A second call gives nothing up, and reverses no decision.
            let again = choose_extra(&rule, &after, unused);
            prop_assert!(again.iter().all(|change| change.to > change.from), "{:?}", again);
        }

        #[test]
        fn reclaiming_frees_enough_or_everything(blocks in blocks(), bytes in 0_u64..3_000) {
            let freed: u64 = reclaim(&blocks, bytes).iter().map(|change| {
                let block = blocks.iter().find(|block| block.id == change.id).unwrap();
                u64::from(change.from - change.to) * block.bytes
            }).sum();
            let all: u64 = blocks.iter().map(|block| u64::from(block.extra) * block.bytes).sum();
            prop_assert!(freed >= bytes.min(all));
        }
    }
}
