//! Where metablocks lie, by id and by volume. It also holds the queue of deletions.

use ebb_types::{InodeId, MetablockId, NodeId, RaidSetId, SnapshotId, VolumeId};
use ebb_wire::pb;
use imbl::{OrdMap, OrdSet};

use crate::map::Metablock;

/// What a metablock belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// A file, whose map has it.
    File(InodeId),
    /// A file that is written: it is to take a frozen metablock's place.
    Heir(InodeId),
    /// Snapshots alone, of which this is the newest that has it.
    Kept(SnapshotId),
    /// A RAID set: a row, or ballast.
    RaidSet(RaidSetId),
}

/// Index over the maps of all files, what snapshots keep and the RAID sets, and the queue of deletes.
///
/// Invariant: everything but `deleted` and `quarantined` follows from the other tables and is not in checkpoints.
#[derive(Clone, Default)]
pub(crate) struct Replicas {
    owners: OrdMap<MetablockId, Owner>,
    on_volume: OrdSet<(VolumeId, MetablockId)>,
    /// Metablocks with a copy away from this home.
    away: OrdSet<(NodeId, MetablockId)>,
    /// Replicas of freed metablocks, until the master knows that their volume has none.
    deleted: OrdMap<(VolumeId, MetablockId), pb::Member>,
    /// Replicas of another history.
    quarantined: OrdSet<(VolumeId, MetablockId)>,
}

impl Replicas {
    /// The file that has a metablock in its map.
    pub(crate) fn owner(&self, id: MetablockId) -> Option<InodeId> {
        match self.owners.get(&id)? {
            Owner::File(inode) => Some(*inode),
            Owner::Heir(_) | Owner::Kept(_) | Owner::RaidSet(_) => None,
        }
    }

    pub(crate) fn owner_of(&self, id: MetablockId) -> Option<Owner> {
        self.owners.get(&id).copied()
    }

    pub(crate) fn count(&self) -> usize {
        self.owners.len()
    }

    /// Adds a metablock. False if the index had it already.
    pub(crate) fn add(&mut self, owner: Owner, id: MetablockId, members: &[pb::Member]) -> bool {
        self.index(id, members);
        self.owners.insert(id, owner).is_none()
    }

    /// Gives a metablock another owner.
    pub(crate) fn give(&mut self, id: MetablockId, owner: Owner) {
        assert!(self.owners.insert(id, owner).is_some(), "{id} gets an owner and is in no index");
    }

    /// Removes a freed metablock from the index, and queues the deletion of its replicas.
    pub(crate) fn free(&mut self, id: MetablockId, members: &[pb::Member], left_out: &[pb::LeftOut]) {
        assert!(self.owners.remove(&id).is_some(), "{id} is freed twice");
        self.unindex(id, members);
        // A node that was left out of the set may still have its replica.
        let left_out = left_out.iter().filter_map(|one| one.member);
        for member in members.iter().copied().chain(left_out) {
            self.queue_delete(id, member);
        }
    }

    /// Has a replica deleted, of whatever life it is.
    pub(crate) fn queue_delete(&mut self, id: MetablockId, member: pb::Member) {
        // I-26: the deletion may come late, and would hit a replica that became a member meanwhile.
        assert!(
            !self.owners.contains_key(&id),
            "{id} is in use, and every replica of it on v{} would go",
            member.volume
        );
        self.load_deleted(id, member);
    }

    /// Takes a queued deletion of a checkpoint in. Its metablock may be loaded later.
    pub(crate) fn load_deleted(&mut self, id: MetablockId, member: pb::Member) {
        self.deleted.insert((member.volume_id(), id), member);
    }

    /// Drops queued deletions of what is in use. A release before this one queued them for extra copies whose metablocks RAID sets
    /// had still. Volumes report such copies as strays.
    pub(crate) fn drop_deleted_in_use(&mut self) {
        let in_use: Vec<_> = self.deleted.keys().filter(|(_, id)| self.owners.contains_key(id)).copied().collect();
        for key in in_use {
            self.deleted.remove(&key);
        }
    }

    pub(crate) fn change_set(&mut self, id: MetablockId, old: &[pb::Member], new: &[pb::Member]) {
        assert!(self.owners.contains_key(&id), "the set of {id} changes, and nothing has it");
        // Ordering: a member in both sets is removed first, and then added.
        self.unindex(id, old);
        self.index(id, new);
    }

    pub(crate) fn index(&mut self, id: MetablockId, members: &[pb::Member]) {
        for member in members {
            self.on_volume.insert((member.volume_id(), id));
            if member.is_guest() {
                self.away.insert((member.home_id(), id));
            }
        }
    }

    pub(crate) fn unindex(&mut self, id: MetablockId, members: &[pb::Member]) {
        for member in members {
            let placed = self.on_volume.remove(&(member.volume_id(), id));
            assert!(placed.is_some(), "{id} is not in the index of v{}", member.volume);
            if member.is_guest() {
                let away = self.away.remove(&(member.home_id(), id));
                assert!(away.is_some(), "{id} is not in the index of n{}'s guests", member.home);
            }
        }
    }

    /// Pairs of a home and a metablock with a copy away from it, in order, from this pair on.
    pub(crate) fn away_from(
        &self,
        home: NodeId,
        first: MetablockId,
    ) -> impl Iterator<Item = (NodeId, MetablockId)> + '_ {
        self.away.range((home, first)..).copied()
    }

    pub(crate) fn away_count(&self) -> usize {
        self.away.len()
    }

    /// The volume has no replica of this metablock any more: its deletion leaves the queue.
    pub(crate) fn drop_deleted(&mut self, volume: VolumeId, id: MetablockId) {
        self.deleted.remove(&(volume, id));
    }

    /// Volumes with members, in order. It jumps from volume to volume, as volumes are few and replicas are many.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = VolumeId> + '_ {
        let next =
            |from: VolumeId| self.on_volume.range((from, MetablockId::new(0))..).next().map(|(volume, _)| *volume);
        std::iter::successors(next(VolumeId::new(0)), move |last| next(VolumeId::new(last.raw() + 1)))
    }

    pub(crate) fn on_volume(&self, volume: VolumeId) -> impl Iterator<Item = MetablockId> + '_ {
        let range = (volume, MetablockId::new(0))..=(volume, MetablockId::new(u64::MAX));
        self.on_volume.range::<_, (VolumeId, MetablockId)>(range).map(|(_, id)| *id)
    }

    pub(crate) fn deleted_on(&self, volume: VolumeId) -> impl Iterator<Item = MetablockId> + '_ {
        let range = (volume, MetablockId::new(0))..=(volume, MetablockId::new(u64::MAX));
        self.deleted.range::<_, (VolumeId, MetablockId)>(range).map(|((_, id), _)| *id)
    }

    /// Ends what is known of a volume that is gone: replicas to delete there, and those of another history.
    pub(crate) fn forget_volume(&mut self, volume: VolumeId) {
        assert!(self.on_volume(volume).next().is_none(), "{volume} is forgotten and holds members");
        for id in self.deleted_on(volume).collect::<Vec<_>>() {
            self.deleted.remove(&(volume, id));
        }
        let range = (volume, MetablockId::new(0))..=(volume, MetablockId::new(u64::MAX));
        let foreign: Vec<_> = self.quarantined.range::<_, (VolumeId, MetablockId)>(range).copied().collect();
        for key in foreign {
            self.quarantined.remove(&key);
        }
    }

    pub(crate) fn deleted(&self) -> impl Iterator<Item = (MetablockId, pb::Member)> + '_ {
        self.deleted.iter().map(|((_, id), member)| (*id, *member))
    }

    pub(crate) fn deleted_count(&self) -> usize {
        self.deleted.len()
    }

    pub(crate) fn quarantine(&mut self, volume: VolumeId, id: MetablockId) {
        self.quarantined.insert((volume, id));
    }

    pub(crate) fn release_quarantined(&mut self, volume: VolumeId, id: MetablockId) {
        self.quarantined.remove(&(volume, id));
    }

    pub(crate) fn is_quarantined(&self, volume: VolumeId, id: MetablockId) -> bool {
        self.quarantined.contains(&(volume, id))
    }

    pub(crate) fn quarantined(&self) -> impl Iterator<Item = (VolumeId, MetablockId)> + '_ {
        self.quarantined.iter().copied()
    }

    pub(crate) fn is_placed(&self, id: MetablockId, volume: VolumeId) -> bool {
        self.on_volume.contains(&(volume, id))
    }

    /// How many pairs of volume and metablock the index has.
    pub(crate) fn placed_count(&self) -> usize {
        self.on_volume.len()
    }

    /// Whether the index has this metablock for the inode, with exactly these guests, and at least on these volumes.
    pub(crate) fn knows(&self, inode: InodeId, block: &Metablock) -> bool {
        self.owner(block.id) == Some(inode) && self.is_indexed(block.id, &block.members)
    }

    /// Whether the index has exactly these guests, and at least these volumes.
    pub(crate) fn is_indexed(&self, id: MetablockId, members: &[pb::Member]) -> bool {
        members.iter().all(|member| {
            self.on_volume.contains(&(member.volume_id(), id))
                && member.is_guest() == self.away.contains(&(member.home_id(), id))
        })
    }
}
