//! What the volume remembers of deleted ids: below which epoch nothing is taken for them.
//!
//! A recovery frees a grant that nobody wrote to. Its holder may not know yet, and its first write may come late: a
//! volume that had forgotten the replica with its promise would take it, and the holder would believe that it is
//! synced (`DeleteForgetsPromise` in the protocol model). So a grave stays for as long as any holder can believe in a
//! lease of an older epoch. It is as durable as the deletion: in the journal's record and in every index after it. After a
//! start its time counts from the beginning.
//!
//! An id that was freed refuses every epoch, for it is never given out again. A replica that was only in excess may come
//! back: by a copy, or a write, of an epoch that is not below the deletion's.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{Epoch, MetablockId, Result, bail};

/// Graves at a time. With more deletions than this in the time that graves are kept, deletions wait.
const GRAVES_MAX: usize = 1 << 18;

/// An id that was freed: no epoch is high enough.
pub(crate) const FREED: Epoch = Epoch::new(u64::MAX);

/// The graves of a volume.
#[derive(Debug)]
pub(crate) struct Graves {
    kept: Duration,
    by_id: BTreeMap<MetablockId, Grave>,
    /// Oldest first; of an id that was deleted again the later entry counts.
    by_age: VecDeque<(Moment, MetablockId)>,
}

#[derive(Clone, Copy, Debug)]
struct Grave {
    fence: Epoch,
    dug: Moment,
}

impl Graves {
    /// Those that were found at start, as if dug now.
    pub(crate) fn new(kept: Duration, found: BTreeMap<MetablockId, Epoch>, now: Moment) -> Self {
        let mut graves = Self { kept, by_id: BTreeMap::new(), by_age: VecDeque::new() };
        for (metablock, fence) in found {
            graves.dig(metablock, fence, now);
        }
        graves
    }

    /// The lowest epoch that is taken for a replica which the volume does not have.
    pub(crate) fn fence(&self, metablock: MetablockId) -> Epoch {
        self.by_id.get(&metablock).map(|grave| grave.fence).unwrap_or_default()
    }

    /// Remembers a deletion. A fence is never lowered.
    pub(crate) fn dig(&mut self, metablock: MetablockId, fence: Epoch, now: Moment) {
        let fence = fence.max(self.fence(metablock));
        self.by_id.insert(metablock, Grave { fence, dug: now });
        self.by_age.push_back((now, metablock));
    }

    /// Forgets graves whose time is up.
    pub(crate) fn weather(&mut self, now: Moment) {
        while let Some((dug, metablock)) = self.by_age.front().copied().filter(|(dug, _)| now.since(*dug) >= self.kept)
        {
            self.by_age.pop_front();
            if self.by_id.get(&metablock).is_some_and(|grave| grave.dug == dug) {
                self.by_id.remove(&metablock);
            }
        }
    }

    /// Refuses deletions beyond what can be remembered.
    pub(crate) fn check_room(&self, more: usize) -> Result<()> {
        if self.by_age.len() + more > GRAVES_MAX {
            bail!(
                Overloaded,
                "{} deletions of the last {:?} are remembered, and no more can be: delete the others later",
                self.by_age.len(),
                self.kept
            );
        }
        Ok(())
    }

    /// All of them, for an index.
    pub(crate) fn list(&self) -> Vec<(MetablockId, Epoch)> {
        self.by_id.iter().map(|(metablock, grave)| (*metablock, grave.fence)).collect()
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
    fn a_grave_refuses_for_its_time_and_never_less_than_before() {
        let (first, second) = (MetablockId::new(1), MetablockId::new(2));
        let mut graves = Graves::new(Duration::from_secs(10), BTreeMap::from([(first, Epoch::new(5))]), at(0));
        graves.dig(second, FREED, at(3));
        graves.dig(first, Epoch::new(4), at(6));
        assert_eq!((graves.fence(first), graves.fence(second)), (Epoch::new(5), FREED));
        graves.weather(at(12));
        assert_eq!(graves.list(), [(first, Epoch::new(5)), (second, FREED)], "deleted again: its time counts anew");
        graves.weather(at(13));
        assert_eq!(graves.list(), [(first, Epoch::new(5))]);
        graves.weather(at(16));
        assert!(graves.list().is_empty() && graves.by_age.is_empty());
        assert_eq!(graves.fence(first), Epoch::default());
    }

    #[test]
    fn memory_for_graves_is_bounded() {
        let mut graves = Graves::new(Duration::from_secs(10), BTreeMap::new(), at(0));
        (0..GRAVES_MAX as u64).for_each(|raw| graves.dig(MetablockId::new(raw), FREED, at(1)));
        assert_eq!(graves.check_room(1).unwrap_err().kind(), ErrorKind::Overloaded);
        graves.weather(at(11));
        graves.check_room(GRAVES_MAX).unwrap();
    }
}
