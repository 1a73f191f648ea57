//! Tombstones of deleted ids: epochs below which the volume takes nothing for them.
//!
//! A recovery frees a grant without writes. Its lease holder may not know that yet, and its first write may come late.
//! A volume that had forgotten the replica and its promise would take that write, and the holder would believe that it
//! is synced (`DeleteForgetsPromise` in the protocol model). So a tombstone stays for as long as any holder can believe
//! in a lease of an older epoch. It is as durable as the deletion: in the journal's record and in every index after it.
//! After a start its time counts from the beginning.
//!
//! An id that was freed refuses every epoch, because it is never given out again. A replica that was only in excess may
//! come back: by a copy, or a write, of an epoch that is not below the deletion's.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{Epoch, MetablockId, Result, bail};

/// Tombstones at a time. With more deletions than this in the time that tombstones are kept, deletions wait.
const TOMBSTONES_MAX: usize = 1 << 18;

/// An id that was freed: no epoch is high enough.
pub(crate) const FREED: Epoch = Epoch::new(u64::MAX);

/// The tombstones of a volume.
#[derive(Debug)]
pub(crate) struct Tombstones {
    kept: Duration,
    by_id: BTreeMap<MetablockId, Tombstone>,
    /// Oldest first. If an id was deleted again, the later entry counts.
    by_age: VecDeque<(Moment, MetablockId)>,
}

#[derive(Clone, Copy, Debug)]
struct Tombstone {
    fence: Epoch,
    since: Moment,
}

impl Tombstones {
    /// The tombstones found at start. Their time counts from `now`.
    pub(crate) fn new(kept: Duration, found: BTreeMap<MetablockId, Epoch>, now: Moment) -> Self {
        let mut tombstones = Self { kept, by_id: BTreeMap::new(), by_age: VecDeque::new() };
        for (metablock, fence) in found {
            tombstones.add(metablock, fence, now);
        }
        tombstones
    }

    /// The lowest epoch that the volume accepts for a replica that it does not have.
    pub(crate) fn fence(&self, metablock: MetablockId) -> Epoch {
        self.by_id.get(&metablock).map(|tombstone| tombstone.fence).unwrap_or_default()
    }

    /// Adds a tombstone. A fence is never lowered.
    pub(crate) fn add(&mut self, metablock: MetablockId, fence: Epoch, now: Moment) {
        // I-25.
        let fence = fence.max(self.fence(metablock));
        assert!(self.by_age.back().is_none_or(|(last, _)| *last <= now), "tombstones are made in the order of time");
        self.by_id.insert(metablock, Tombstone { fence, since: now });
        self.by_age.push_back((now, metablock));
    }

    /// Removes tombstones after their time.
    pub(crate) fn expire(&mut self, now: Moment) {
        while let Some((since, metablock)) =
            self.by_age.front().copied().filter(|(since, _)| now.since(*since) >= self.kept)
        {
            self.by_age.pop_front();
            if self.by_id.get(&metablock).is_some_and(|tombstone| tombstone.since == since) {
                self.by_id.remove(&metablock);
            }
        }
    }

    /// Refuses deletions beyond the limit of tombstones.
    pub(crate) fn check_room(&self, more: usize) -> Result<()> {
        if self.by_age.len() + more > TOMBSTONES_MAX {
            bail!(
                Overloaded,
                "{} deletions of the last {:?} are remembered, which is the limit: repeat the others later",
                self.by_age.len(),
                self.kept
            );
        }
        Ok(())
    }

    /// All tombstones, for an index.
    pub(crate) fn list(&self) -> Vec<(MetablockId, Epoch)> {
        self.by_id.iter().map(|(metablock, tombstone)| (*metablock, tombstone.fence)).collect()
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_tombstone_refuses_for_its_time_and_never_less_than_before() {
        let (first, second) = (MetablockId::new(1), MetablockId::new(2));
        let mut tombstones = Tombstones::new(Duration::from_secs(10), BTreeMap::from([(first, Epoch::new(5))]), at(0));
        tombstones.add(second, FREED, at(3));
        tombstones.add(first, Epoch::new(4), at(6));
        assert_eq!((tombstones.fence(first), tombstones.fence(second)), (Epoch::new(5), FREED));
        tombstones.expire(at(12));
        assert_eq!(tombstones.list(), [(first, Epoch::new(5)), (second, FREED)], "deleted again: its time counts anew");
        tombstones.expire(at(13));
        assert_eq!(tombstones.list(), [(first, Epoch::new(5))]);
        tombstones.expire(at(16));
        assert!(tombstones.list().is_empty() && tombstones.by_age.is_empty());
        assert_eq!(tombstones.fence(first), Epoch::default());
    }

    #[test]
    fn memory_for_tombstones_is_bounded() {
        let mut tombstones = Tombstones::new(Duration::from_secs(10), BTreeMap::new(), at(0));
        (0..TOMBSTONES_MAX as u64).for_each(|raw| tombstones.add(MetablockId::new(raw), FREED, at(1)));
        assert_eq!(tombstones.check_room(1).unwrap_err().kind(), ErrorKind::Overloaded);
        tombstones.expire(at(11));
        tombstones.check_room(TOMBSTONES_MAX).unwrap();
    }
}
