//! The RAID sets of one batch: what goes together, where, and what waits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_types::{InodeId, MetablockId, RaidSetId};

use super::draft::{Draft, Entry, draft};
use super::grouping::{AT_ONCE, Grouped, Packer, Ready, Step, Within, group};
use super::plan::{KeptSet, Left, LeftReason, PlannedSlot, RaidPlan, RaidPlans, SetReason};
use super::repack::{KeptReason, OldSet, RepackReason, Room, SlotLife, choose_repack, live_slots};
use super::rows::choose_rows;
use super::work::{Work, row_len_bytes, row_room_bytes};
use super::{Candidate, Held, RaidAsk, RaidRule, Sites};
use crate::Chosen;

/// Of how many metablocks a RAID set is chosen, as a multiple of its slots: those of one file may all lie on few hosts.
const REACH: usize = 16;

impl Grouped for &Candidate {
    fn file(&self) -> InodeId {
        self.inode
    }

    fn directory(&self) -> InodeId {
        self.directory
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn waited(&self) -> Duration {
        self.waited
    }
}

/// The RAID sets to make of these candidates, which are one dataset's, and of the live slots of RAID sets that are due
/// for repacking. The order of the input does not matter.
///
/// `old` may have any RAID sets of the dataset; those that are not due are left alone. Candidates that make no RAID set
/// now, and RAID sets that are due and cannot be repacked now, are named with the reason.
#[must_use]
pub fn choose_sets(
    sites: &Sites<'_>,
    rule: &RaidRule,
    ask: &RaidAsk,
    candidates: &[Candidate],
    old: &[OldSet],
    held: &Held,
) -> RaidPlans {
    let mut candidates: Vec<&Candidate> = candidates.iter().collect();
    candidates.sort_by_key(|candidate| (candidate.inode, candidate.index, candidate.metablock));
    let work = Work::new(sites, rule, held);
    let mut left: Vec<usize> =
        (0..candidates.len()).filter(|index| !work.stays(candidates[*index]).is_empty()).collect();
    let able: BTreeSet<usize> = left.iter().copied().collect();
    let mut sets = Sets { work, candidates: &candidates, plans: RaidPlans::default(), crowded: BTreeSet::new() };
    let slots = rule.spread.code.slots as usize;
    group(&candidates, &mut left, &AT_ONCE, slots, &mut sets);
    sets.repack(old, ask.room, &mut left);
    let delay = if ask.room == Room::Tight { Duration::ZERO } else { ask.delay };
    let waited = Step { within: Within::Dataset, ready: Ready::Waited(delay) };
    group(&candidates, &mut left, &[waited], slots, &mut sets);
    let Sets { mut plans, crowded, .. } = sets;
    let left: BTreeSet<usize> = left.into_iter().collect();
    let unmade = (0..candidates.len()).filter(|index| left.contains(index) || !able.contains(index));
    plans.left = unmade
        .map(|index| {
            let reason = if !able.contains(&index) {
                LeftReason::NoMember
            } else if crowded.contains(&index) {
                LeftReason::NoHosts
            } else {
                LeftReason::Waits
            };
            Left { metablock: candidates[index].metablock, reason }
        })
        .collect();
    plans
}

/// A batch in progress.
struct Sets<'a, 'c> {
    work: Work<'a>,
    candidates: &'c [&'c Candidate],
    plans: RaidPlans,
    /// Candidates that no RAID set could be drafted around.
    crowded: BTreeSet<usize>,
}

/// A draft, and the candidates that are its slots, in order.
type Filled<'a> = (Draft<'a>, Vec<usize>);

impl<'a> Packer for Sets<'a, '_> {
    type Draft = Filled<'a>;

    fn reach(&self) -> usize {
        self.work.rule.spread.code.slots as usize * REACH
    }

    fn draft(&mut self, window: &[usize], step: Step) -> Option<(Vec<usize>, Filled<'a>)> {
        let parties: Vec<Vec<Entry<'a>>> = window.iter().map(|index| vec![self.entry(*index)]).collect();
        let drafted = draft(&self.work, &parties, step.within == Within::Dataset);
        // One that has waited, and goes with none of those that there are, is worth a sentence.
        if drafted.as_ref().is_none_or(|(_, came)| came.len() < 2 && window.len() > 1) {
            self.crowded.extend(window.first());
        }
        let (draft, came) = drafted?;
        let chosen = came.iter().map(|place| window[*place]).collect();
        Some((came, (draft, chosen)))
    }

    fn accept(&mut self, (draft, chosen): Filled<'a>, step: Step) {
        let why = match step.within {
            Within::File => SetReason::File,
            Within::Directory => SetReason::Directory,
            Within::Dataset => SetReason::Waited,
        };
        let metablocks = chosen.into_iter().map(|index| self.slot(index)).collect();
        self.make(&draft, metablocks, why, Vec::new());
    }
}

impl<'a> Sets<'a, '_> {
    fn entry(&self, index: usize) -> Entry<'a> {
        let candidate = self.candidates[index];
        Entry { len_bytes: candidate.len_bytes, stays: self.work.stays(candidate) }
    }

    fn slot(&self, index: usize) -> (MetablockId, u64) {
        (self.candidates[index].metablock, self.candidates[index].len_bytes)
    }

    /// Chooses the rows of a draft whose slots are these metablocks, and counts what the plan takes.
    fn make(
        &mut self,
        draft: &Draft<'a>,
        metablocks: Vec<(MetablockId, u64)>,
        why: SetReason,
        dissolves: Vec<RaidSetId>,
    ) {
        assert_eq!(metablocks.len(), draft.len(), "each slot has a metablock");
        let longest = metablocks.iter().map(|slot| slot.1).max().unwrap_or(0);
        let room = row_room_bytes(longest, self.work.rule.spread.code.slots);
        let mut hosts = Vec::new();
        let mut slots = Vec::new();
        for (number, (metablock, len_bytes)) in metablocks.into_iter().enumerate() {
            let stay = draft.stay(number);
            let mut members = Vec::new();
            for (volume, reason) in stay.volumes.iter().zip(&stay.reasons) {
                hosts.extend(self.work.sites.host_of(volume.node));
                let (node, incarnation, reason) = (volume.node, volume.incarnation, *reason);
                members.push(Chosen { node, volume: volume.volume, incarnation, home: node, reason });
            }
            slots.push(PlannedSlot { metablock, len_bytes, members });
        }
        let first = slots.first().map_or_else(MetablockId::default, |slot| slot.metablock);
        let rows = choose_rows(&self.work, draft.frame, &hosts, room, first);
        let rows = rows.expect("a draft keeps hosts for its rows");
        for (volume, _) in &rows {
            self.work.promise(volume, row_len_bytes(longest), room);
        }
        for member in slots.iter().flat_map(|slot| &slot.members) {
            *self.work.held.thin.entry(member.node).or_default() += 1;
        }
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        self.plans.sets.push(RaidPlan { slots, rows, why, dissolves });
    }

    /// New RAID sets of what lives in old ones: several old ones where their nodes differ, and candidates for the rest.
    fn repack(&mut self, old: &[OldSet], room: Room, left: &mut Vec<usize>) {
        let copies = self.work.rule.spread.code.copies;
        let mut due: Vec<(RepackReason, &OldSet, Vec<Entry<'a>>)> = Vec::new();
        for set in old {
            let Some(reason) = choose_repack(set, copies, room) else { continue };
            match live_slots(&self.work, set) {
                Ok(live) => due.push((reason, set, live)),
                Err(why) => self.plans.kept.push(KeptSet { raid_set: set.id, why }),
            }
        }
        due.sort_by_key(|(reason, set, live)| (*reason, live.len(), set.id));
        while !due.is_empty() {
            let window = self.choose_beside(due[0].1, left);
            let of_old = due.iter().take(REACH).map(|(_, _, live)| live.clone());
            let parties: Vec<Vec<Entry<'a>>> =
                of_old.chain(window.iter().map(|index| vec![self.entry(*index)])).collect();
            let old_count = parties.len() - window.len();
            match draft(&self.work, &parties, true) {
                Some((draft, came)) if draft.len() > 1 => {
                    self.make_repacked(&draft, &came, &mut due, old_count, &window, left);
                }
                drafted => {
                    let why = if drafted.is_some() { KeptReason::Alone } else { KeptReason::NoHosts };
                    self.plans.kept.push(KeptSet { raid_set: due.remove(0).1.id, why });
                }
            }
        }
    }

    /// Candidates to go with what lives in an old RAID set: of the same directory first, and none that is longer.
    fn choose_beside(&self, old: &OldSet, left: &[usize]) -> Vec<usize> {
        let live = old.slots.iter().filter(|slot| slot.life == SlotLife::Live);
        let longest = live.clone().map(|slot| slot.len_bytes).max().unwrap_or(0);
        let directories: BTreeSet<InodeId> = live.map(|slot| slot.directory).collect();
        let mut beside: Vec<usize> =
            left.iter().copied().filter(|index| self.candidates[*index].len_bytes <= longest).collect();
        beside.sort_by_key(|index| {
            let candidate = self.candidates[*index];
            (!directories.contains(&candidate.directory), Reverse(candidate.len_bytes), *index)
        });
        beside.truncate(self.reach());
        beside
    }

    fn make_repacked(
        &mut self,
        draft: &Draft<'a>,
        came: &[usize],
        due: &mut Vec<(RepackReason, &OldSet, Vec<Entry<'a>>)>,
        old_count: usize,
        window: &[usize],
        left: &mut Vec<usize>,
    ) {
        let mut metablocks = Vec::new();
        let mut dissolves = BTreeMap::new();
        for party in came {
            match party.checked_sub(old_count) {
                None => {
                    let (reason, set, _) = &due[*party];
                    dissolves.insert(set.id, *reason);
                    let live = set.slots.iter().filter(|slot| slot.life == SlotLife::Live);
                    metablocks.extend(live.map(|slot| (slot.metablock, slot.len_bytes)));
                }
                Some(place) => {
                    metablocks.push(self.slot(window[place]));
                    left.retain(|index| *index != window[place]);
                }
            }
        }
        let why = SetReason::Repacked(due[0].0);
        due.retain(|(_, set, _)| !dissolves.contains_key(&set.id));
        self.make(draft, metablocks, why, dissolves.into_keys().collect());
    }
}
