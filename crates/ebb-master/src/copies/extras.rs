//! The choice of extra copies to make or remove: a view in, choices with reasons out.

pub(crate) mod look;

use std::collections::BTreeMap;

use ebb_power::popularity::{Block, Change, ExtraRule, Heat, choose_extra};
use ebb_types::{DatasetId, MetablockId};
use ebb_wire::pb;

use super::Reason;

/// Condition of an existing extra copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It may stay.
    Good,
    /// Its node or volume is lost or being drained, or it is damaged.
    Lost,
    /// Its volume is short of room.
    Tight,
}

/// A metablock that is read, or that has extra copies.
#[derive(Clone, PartialEq, Debug)]
pub struct MetablockView {
    /// The metablock.
    pub id: MetablockId,
    /// The file's dataset.
    pub dataset: DatasetId,
    /// Committed bytes.
    pub bytes: u64,
    /// Number of copies that the dataset wants.
    pub wanted: u32,
    /// Average reads and writes.
    pub heat: Heat,
    /// Whether the file is not in recovery and the metablock has no copy in progress. A holder that does not write
    /// gives the lease back.
    pub is_idle: bool,
    /// Its extra copies, oldest first.
    pub extras: Vec<(pb::Member, Fit)>,
}

/// The input of the choice.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct View {
    /// Metablocks, by id.
    pub metablocks: Vec<MetablockView>,
    /// Bytes that ordinary copies leave free, on all nodes. Bytes of extra copies count as free.
    pub unused_bytes: u64,
    /// Share of the unused bytes for each dataset's extra copies. A dataset without an entry has none.
    pub shares: BTreeMap<DatasetId, f64>,
    /// Rule for the number of extra copies. Its share is replaced by the dataset's.
    pub rule: ExtraRule,
    /// Whether the averages are meaningful. A new master process does not know earlier reads.
    pub is_warm: bool,
    /// Whether repair has work, which comes first and may use all of the nodes' limits.
    pub is_repairing: bool,
}

/// A change of the extra copies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Choice {
    /// Remove an extra copy.
    TakeBack {
        /// The metablock.
        metablock: MetablockId,
        /// The extra copy.
        extra: pb::Member,
        /// Reason for the removal.
        reason: Reason,
    },
    /// Make one more extra copy.
    Make {
        /// The metablock.
        metablock: MetablockId,
    },
}

/// Chooses the changes to make now: removals first, then new copies of the most popular metablocks of each dataset.
#[must_use]
pub fn choose(view: &View) -> Vec<Choice> {
    let mut steps = Vec::new();
    for metablock in &view.metablocks {
        let has_share = view.shares.contains_key(&metablock.dataset);
        for (extra, fit) in &metablock.extras {
            let reason = match fit {
                Fit::Lost => Reason::ExtraLost,
                Fit::Tight => Reason::ExtraTight,
                Fit::Good if !has_share => Reason::NoShare,
                Fit::Good => continue,
            };
            steps.push(Choice::TakeBack { metablock: metablock.id, extra: *extra, reason });
        }
    }
    if !view.is_warm {
        return steps;
    }
    // I-57: all datasets together take at most the unused bytes, however large their shares.
    let scale = view.shares.values().sum::<f64>().max(1.0);
    let mut makes = Vec::new();
    for (dataset, share) in &view.shares {
        let rule = ExtraRule { unused_share: share / scale, ..view.rule };
        let own: Vec<&MetablockView> =
            view.metablocks.iter().filter(|metablock| metablock.dataset == *dataset && metablock.bytes > 0).collect();
        let blocks: Vec<Block> = own.iter().map(|metablock| block(metablock)).collect();
        for Change { id, from, to } in choose_extra(&rule, &blocks, view.unused_bytes) {
            let Ok(at) = own.binary_search_by_key(&id, |metablock| metablock.id) else { continue };
            let metablock = own[at];
            let good = metablock.extras.iter().filter(|(_, fit)| *fit == Fit::Good);
            if to > from {
                // One copy at a time. Otherwise other metablocks' first copies would wait for this one's third.
                makes.extend((metablock.is_idle && !view.is_repairing).then_some(Choice::Make { metablock: id }));
            } else {
                let gone = good.rev().take((from - to) as usize);
                let take_back =
                    |(extra, _): &(_, _)| Choice::TakeBack { metablock: id, extra: *extra, reason: Reason::Unpopular };
                steps.extend(gone.map(take_back));
            }
        }
    }
    steps.extend(makes);
    steps
}

fn block(metablock: &MetablockView) -> Block {
    let extra = metablock.extras.iter().filter(|(_, fit)| *fit == Fit::Good).count();
    Block {
        id: metablock.id,
        bytes: metablock.bytes,
        ordinary: metablock.wanted,
        extra: u32::try_from(extra).unwrap_or(u32::MAX),
        heat: metablock.heat,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(node: u64) -> pb::Member {
        pb::Member { node, volume: node, incarnation: 1, home: 0 }
    }

    fn metablock(id: u64, reads: f64, extras: &[(u64, Fit)]) -> MetablockView {
        MetablockView {
            id: MetablockId::new(id),
            dataset: DatasetId::new(1),
            bytes: 100,
            wanted: 3,
            heat: Heat { reads, writes: 0.0 },
            is_idle: true,
            extras: extras.iter().map(|(node, fit)| (member(*node), *fit)).collect(),
        }
    }

    fn view(metablocks: Vec<MetablockView>, share: f64) -> View {
        let shares = BTreeMap::from([(DatasetId::new(1), share)]);
        View { metablocks, unused_bytes: 1000, shares, is_warm: true, ..View::default() }
    }

    fn make(id: u64) -> Choice {
        Choice::Make { metablock: MetablockId::new(id) }
    }

    fn take_back(id: u64, node: u64, reason: Reason) -> Choice {
        Choice::TakeBack { metablock: MetablockId::new(id), extra: member(node), reason }
    }

    #[test]
    fn popular_blocks_are_copied_and_cooled_ones_lose_their_extras_first() {
        let metablocks = || vec![metablock(1, 40.0, &[]), metablock(2, 9.0, &[]), metablock(3, 0.0, &[(4, Fit::Good)])];
        let mut all = view(metablocks(), 0.5);
        assert_eq!(choose(&all), [take_back(3, 4, Reason::Unpopular), make(1), make(2)]);
        all.is_repairing = true;
        assert_eq!(choose(&all), [take_back(3, 4, Reason::Unpopular)], "repair goes first");
        let begun = View { is_warm: false, ..view(vec![metablock(1, 0.0, &[(4, Fit::Good), (5, Fit::Lost)])], 0.5) };
        assert_eq!(choose(&begun), [take_back(1, 5, Reason::ExtraLost)], "nothing is known of reads yet");
        let no_shares = View { shares: BTreeMap::new(), ..view(metablocks(), 0.5) };
        assert_eq!(choose(&no_shares), [take_back(3, 4, Reason::NoShare)]);
    }

    #[test]
    fn lost_or_obstructing_extras_go_and_files_under_write_get_none() {
        let lost = metablock(1, 40.0, &[(4, Fit::Lost), (5, Fit::Tight), (6, Fit::Good)]);
        assert_eq!(
            choose(&view(vec![lost], 0.9)),
            [take_back(1, 4, Reason::ExtraLost), take_back(1, 5, Reason::ExtraTight), make(1)]
        );
        let written = MetablockView { heat: Heat { reads: 40.0, writes: 2.0 }, ..metablock(1, 0.0, &[(4, Fit::Good)]) };
        assert_eq!(choose(&view(vec![written], 0.9)), [take_back(1, 4, Reason::Unpopular)]);
        let held = MetablockView { is_idle: false, ..metablock(1, 40.0, &[]) };
        assert_eq!(choose(&view(vec![held], 0.9)), []);
    }

    proptest! {
        /// Carried out to the end, extra copies stay within all shares together, and no metablock has more than six copies.
        #[test]
        fn steps_that_are_carried_out_stay_within_the_shares(
            drawn in proptest::collection::vec((0.0_f64..50.0, 0.0_f64..2.0, 1_u64..200, 1_u32..8, 0_usize..4, 0_u64..2), 0..12),
            shares in proptest::collection::vec(0.0_f64..0.9, 2),
            unused_bytes in 0_u64..4_000,
        ) {
            let one = |(id, (reads, writes, bytes, wanted, extras, dataset))| MetablockView {
                id: MetablockId::new(id),
                dataset: DatasetId::new(dataset),
                bytes,
                wanted,
                heat: Heat { reads, writes },
                is_idle: true,
                extras: (0..extras as u64).map(|node| (member(10 + node), Fit::Good)).collect(),
            };
            let mut view = View {
                metablocks: (1..).zip(drawn).map(one).collect(),
                unused_bytes,
                shares: (0..).map(DatasetId::new).zip(shares.iter().copied()).collect(),
                is_warm: true,
                ..View::default()
            };
            for round in 0..40 {
                let steps = choose(&view);
                prop_assert!(round < 39 || steps.is_empty(), "it never ends: {:?}", steps);
                for step in steps {
                    match step {
                        Choice::TakeBack { metablock, extra, .. } => {
                            let found = view.metablocks.iter_mut().find(|found| found.id == metablock).unwrap();
                            found.extras.retain(|(member, _)| *member != extra);
                        }
                        Choice::Make { metablock } => {
                            let found = view.metablocks.iter_mut().find(|found| found.id == metablock).unwrap();
                            found.extras.push((member(100 + round), Fit::Good));
                            prop_assert!(found.wanted as usize + found.extras.len() <= 6);
                            prop_assert!(found.heat.writes < 1.0);
                        }
                    }
                }
            }
            let used: u64 = view.metablocks.iter().map(|one| one.extras.len() as u64 * one.bytes).sum();
            let share: f64 = shares.iter().sum::<f64>().min(1.0);
            prop_assert!(used as f64 <= unused_bytes as f64 * share * (1.0 + 1e-6) + 1e-6, "{} of {}", used, unused_bytes);
        }
    }
}
