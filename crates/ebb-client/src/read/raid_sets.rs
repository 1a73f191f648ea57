//! What this client knows of RAID sets: their records, for a moment, and their trailers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_code::Trailer;
use ebb_runtime::Moment;
use ebb_types::{Result, bail, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{GetRaidSets, Op};
use parking_lot::Mutex;

use crate::shared::Shared;

/// How long a record is believed. Members and rows may move after that, and slots die.
const BELIEVED: Duration = Duration::from_secs(1);
/// Most records and trailers that are kept. A trailer of 8+2 over 64 MiB has 128 KiB.
const RECORDS_MAX: usize = 1024;
const TRAILERS_MAX: usize = 64;

/// Records by a metablock of theirs, and trailers by RAID set.
#[derive(Debug, Default)]
pub(crate) struct RaidSets {
    records: Mutex<BTreeMap<u64, (Arc<pb::RaidSet>, Moment)>>,
    trailers: Mutex<BTreeMap<u64, Arc<Trailer>>>,
}

impl RaidSets {
    fn record(&self, metablock: u64, now: Moment) -> Option<Arc<pb::RaidSet>> {
        let records = self.records.lock();
        records.get(&metablock).filter(|(_, asked)| now.since(*asked) < BELIEVED).map(|(set, _)| Arc::clone(set))
    }

    fn keep_record(&self, metablock: u64, set: &Arc<pb::RaidSet>, now: Moment) {
        let mut records = self.records.lock();
        records.retain(|_, (_, asked)| now.since(*asked) < BELIEVED);
        if records.len() < RECORDS_MAX {
            records.insert(metablock, (Arc::clone(set), now));
        }
    }

    /// A member did not have what the record says.
    pub fn forget(&self, metablock: u64) {
        self.records.lock().remove(&metablock);
    }

    /// The trailer of a RAID set. What it says never changes.
    pub fn trailer(&self, raid_set: u64) -> Option<Arc<Trailer>> {
        self.trailers.lock().get(&raid_set).cloned()
    }

    /// Keeps a trailer.
    pub fn keep_trailer(&self, trailer: Trailer) -> Arc<Trailer> {
        let trailer = Arc::new(trailer);
        let mut trailers = self.trailers.lock();
        if trailers.len() >= TRAILERS_MAX {
            trailers.pop_first();
        }
        trailers.insert(trailer.raid_set.raw(), Arc::clone(&trailer));
        trailer
    }
}

/// The RAID set of a metablock, as the master has it now or had it a moment ago.
///
/// Errors: `NotFound` if it is in none.
pub(crate) async fn of_metablock(shared: &Arc<Shared>, metablock: u64) -> Result<Arc<pb::RaidSet>> {
    let asked = shared.runtime.now();
    if let Some(known) = shared.raid_sets.record(metablock, asked) {
        return Ok(known);
    }
    let reply = shared.own_meta(Op::GetRaidSets(GetRaidSets { metablocks: vec![metablock] })).await?;
    let is_its = |set: &pb::RaidSet| set.slots.iter().any(|slot| slot.metablock == metablock);
    let Some(set) = reply.raid_sets.into_iter().find(is_its) else {
        bail!(NotFound, "m{metablock} is in no RAID set");
    };
    let code = set.code.ok_or_else(|| err!(Protocol, "rs{} without a code", set.id))?;
    if set.slots.len() > code.slots as usize || set.rows.len() != code.rows as usize {
        bail!(Protocol, "rs{} has {} slots and {} rows", set.id, set.slots.len(), set.rows.len());
    }
    let set = Arc::new(set);
    shared.raid_sets.keep_record(metablock, &set, asked);
    Ok(set)
}
