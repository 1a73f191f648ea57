//! What is due of one dataset, and where its slots stay and its rows go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_layout::raid::{
    Candidate, Held, RaidAsk, RaidPlans, RaidRule, Room, Sites, choose_sets, choose_sets_on_volumes, least_len_bytes,
    row_room_bytes, stand_in,
};
use ebb_layout::{ChainView, View, VolumeView};
use ebb_meta::{Cold, Due, Machine};
use ebb_types::{DatasetId, Domain, Encode, MetablockId, NodeId, RaidCode, RaidSetId};
use ebb_wire::pb;

use super::old;
use crate::placement::volumes;
use crate::registry::Patience;
use crate::shared::Shared;

/// Most candidates of one round.
const CANDIDATES_MAX: usize = 4096;
/// Delay of a dataset that sets none: most reads of data are within the day of its writing (DiskReduce, Sec. 4).
const DELAY_DEFAULT: Duration = Duration::from_secs(24 * 3600);
/// Delay of data that is encoded at once: time for a writer to correct itself, and for the last metablock to grow.
const AT_ONCE_FULL: Duration = Duration::from_secs(2);
const AT_ONCE_LAST: Duration = Duration::from_secs(10);
/// How long data that are encoded at once wait for others to fill a RAID set with. One of two slots takes as much room as two
/// copies do, and nothing merges it with others later.
const AT_ONCE_PATIENCE: Duration = Duration::from_secs(60);

/// A dataset's plans of one round, with what they are about.
pub(crate) struct Batch {
    pub dataset: DatasetId,
    pub code: RaidCode,
    pub delay: Duration,
    pub plans: RaidPlans,
    pub cold: BTreeMap<MetablockId, Cold>,
    /// Generations of RAID sets that may end.
    pub generations: BTreeMap<RaidSetId, u64>,
}

/// The code of a dataset that encodes, and how old data are then.
pub(crate) fn code_of(dataset: &pb::Dataset) -> Option<(RaidCode, Duration)> {
    let code = dataset.redundancy().code()?;
    let delay = match Encode::from_raw(dataset.encode)? {
        Encode::Off => return None,
        Encode::Immediate => AT_ONCE_FULL,
        Encode::Background if dataset.delay_ms == 0 => DELAY_DEFAULT,
        Encode::Background => Duration::from_millis(dataset.delay_ms),
    };
    Some((code, delay))
}

/// The longest row of any dataset that encodes, with its trailer, in bytes.
pub(crate) fn longest_row_bytes(machine: &Machine) -> u64 {
    let row = |dataset: &pb::Dataset| Some(row_room_bytes(dataset.metablock_size, code_of(dataset)?.0.slots));
    machine.datasets().filter_map(row).max().unwrap_or(0)
}

/// How old a full metablock is when it is due, and the last one of a file, to which more may be appended.
pub(crate) fn spans_of(dataset: &pb::Dataset, delay: Duration) -> (Duration, Duration) {
    match Encode::from_raw(dataset.encode) {
        Some(Encode::Immediate) => (AT_ONCE_FULL, AT_ONCE_LAST),
        _ => (delay, delay),
    }
}

/// How long what is due waits for others of its dataset before it shares a RAID set with fewer than it could.
fn patience_of(dataset: &pb::Dataset, delay: Duration) -> Duration {
    match Encode::from_raw(dataset.encode) {
        Some(Encode::Immediate) => AT_ONCE_PATIENCE,
        _ => delay,
    }
}

/// Facts for one choice.
struct Facts {
    machine: Machine,
    view: View,
    chain: Arc<ChainView>,
    dataset: pb::Dataset,
    code: RaidCode,
    delay: Duration,
    now_s: u64,
    room: Room,
}

/// Chooses RAID sets for a dataset. `None`: it encodes nothing.
pub(crate) async fn choose(shared: &Arc<Shared>, id: DatasetId) -> Option<Batch> {
    let facts = gather(shared, id)?;
    let own = Arc::clone(shared);
    shared.runtime.compute(move || choose_among(&own, id, &facts)).await
}

fn gather(shared: &Shared, id: DatasetId) -> Option<Facts> {
    let machine = shared.group.snapshot();
    let dataset = machine.dataset(id)?.clone();
    let (code, delay) = code_of(&dataset)?;
    let soft = shared.soft();
    let view = volumes(&shared.view(&machine, &soft), Patience::Prompt);
    let chain = soft.chains.chain(id)?;
    let now_s = shared.wall_ms() / 1000;
    let room = room_of(&view);
    Some(Facts { machine, view, chain, dataset, code, delay, now_s, room })
}

/// Whether any volume that takes data is tight: copies of what is young go then, too, as they are a cache.
fn room_of(view: &View) -> Room {
    let is_tight = |volume: &VolumeView| Room::of(volume.free_bytes, volume.capacity_bytes) == Room::Tight;
    let tight = view.volumes.iter().any(|volume| volume.usable && !volume.off && is_tight(volume));
    if tight { Room::Tight } else { Room::Ample }
}

fn choose_among(shared: &Shared, id: DatasetId, facts: &Facts) -> Option<Batch> {
    let Facts { machine, view, chain, dataset, code, delay, now_s, room } = facts;
    let (full, last) = match spans_of(dataset, *delay) {
        (full, last) if *room == Room::Tight => (AT_ONCE_FULL.min(full), AT_ONCE_LAST.min(last)),
        spans => spans,
    };
    let due = Due {
        min_len: least_len_bytes(dataset.metablock_size),
        full_s: now_s.saturating_sub(full.as_secs()),
        last_s: now_s.saturating_sub(last.as_secs()),
    };
    let now = shared.runtime.now();
    let cold: BTreeMap<MetablockId, Cold> = {
        let mut soft = shared.soft();
        soft.encoding.forget_old(now);
        let is_free = |cold: &Cold| {
            !soft.encoding.is_left_alone(cold.inode, now)
                && !soft.encoding.is_a_slot(cold.metablock)
                && !soft.work.copies.contains_key(&cold.metablock)
        };
        let is_asked = |inode| soft.encoding.is_encode_asked(inode);
        let all = machine.cold_metablocks(id, due, is_asked).filter(is_free).take(CANDIDATES_MAX);
        all.map(|cold| (cold.metablock, cold)).collect()
    };
    let candidates: Vec<Candidate> = {
        let soft = shared.soft();
        let candidate = |cold: &Cold| match to_candidate(cold, *now_s, *delay) {
            // It waits for no others to share a RAID set with.
            candidate if soft.encoding.is_encode_asked(cold.inode) => {
                Candidate { waited: candidate.waited.max(patience_of(dataset, *delay)), ..candidate }
            }
            candidate => candidate,
        };
        cold.values().map(candidate).collect()
    };
    let ask = RaidAsk { delay: patience_of(dataset, *delay), room: *room };
    let old = old::gather(shared, machine, id);
    let held = held(machine, id, code.domain);
    let plans = match code.domain {
        Domain::Host => {
            let sites = Sites::of(view);
            let rule = rule_over(&sites, Arc::clone(chain), *code)?;
            choose_sets(&sites, &rule, &ask, &candidates, &old.sets, &held)
        }
        Domain::Volume => choose_sets_on_volumes(view, *code, &ask, &candidates, &old.sets, &held).ok()?,
    };
    let mut cold = cold;
    cold.extend(old.slots);
    Some(Batch { dataset: id, code: *code, delay: *delay, plans, cold, generations: old.generations })
}

/// The rule between hosts. None: the chain's layout does not go with the code.
pub(super) fn rule_over(sites: &Sites<'_>, chain: Arc<ChainView>, code: RaidCode) -> Option<RaidRule> {
    let layout = chain.layout();
    RaidRule::new(sites, layout, Some(chain).filter(|_| layout.has_chain()), code).ok()
}

fn to_candidate(cold: &Cold, now_s: u64, delay: Duration) -> Candidate {
    Candidate {
        metablock: cold.metablock,
        inode: cold.inode,
        directory: cold.directory,
        index: cold.index,
        len_bytes: cold.length,
        waited: Duration::from_secs(now_s.saturating_sub(cold.committed_s)).saturating_sub(delay),
        members: cold.members.iter().map(|member| (member.node_id(), member.volume_id())).collect(),
    }
}

/// Slots and check bytes of the dataset's RAID sets on each node, or by what stands in for its volumes.
pub(super) fn held(machine: &Machine, dataset: DatasetId, domain: Domain) -> Held {
    let mut held = Held::default();
    let place = |member: &pb::Member| match domain {
        Domain::Host => member.node_id(),
        Domain::Volume => stand_in(member.volume_id()),
    };
    let mut add = |node: NodeId, bytes: Option<u64>| match bytes {
        Some(bytes) => *held.check_bytes.entry(node).or_default() += bytes,
        None => *held.thin.entry(node).or_default() += 1,
    };
    for set in machine.raid_sets().filter(|set| set.dataset == dataset.raw()) {
        set.slots.iter().flat_map(|slot| &slot.members).for_each(|member| add(place(member), None));
        set.rows.iter().for_each(|row| row.member.iter().for_each(|member| add(place(member), Some(row.length))));
    }
    held
}
