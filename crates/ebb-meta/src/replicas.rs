//! Where metablocks lie, the other way round: by id and by volume; and what has been freed and not yet deleted.

use ebb_types::{InodeId, MetablockId, NodeId, VolumeId};
use ebb_wire::pb;
use imbl::{OrdMap, OrdSet};

use crate::map::Metablock;

/// Index over the maps of all files, and the queue of deletes.
///
/// Invariant: everything but `deleted` and `quarantined` follows from the inodes and is not in checkpoints.
#[derive(Clone, Default)]
pub(crate) struct Replicas {
    owners: OrdMap<MetablockId, InodeId>,
    on_volume: OrdSet<(VolumeId, MetablockId)>,
    /// Metablocks with a copy that is away from this home.
    away: OrdSet<(NodeId, MetablockId)>,
    /// Replicas of freed metablocks, until their volume is known to have none.
    deleted: OrdMap<(VolumeId, MetablockId), pb::Member>,
    /// Replicas of another history.
    quarantined: OrdSet<(VolumeId, MetablockId)>,
}

impl Replicas {
    pub(crate) fn owner(&self, id: MetablockId) -> Option<InodeId> {
        self.owners.get(&id).copied()
    }

    pub(crate) fn count(&self) -> usize {
        self.owners.len()
    }

    /// A metablock of this file; the answer is false if another has it.
    pub(crate) fn add(&mut self, inode: InodeId, block: &Metablock) -> bool {
        self.index(block.id, &block.members);
        self.owners.insert(block.id, inode).is_none()
    }

    /// The metablock is in no file any more: its replicas are to be deleted.
    pub(crate) fn free(&mut self, block: &Metablock) {
        self.owners.remove(&block.id);
        self.unindex(block.id, &block.members);
        let left_out = block.left_out().iter().filter_map(|one| one.member);
        for member in block.members.iter().copied().chain(left_out) {
            self.queue_delete(block.id, member);
        }
    }

    pub(crate) fn queue_delete(&mut self, id: MetablockId, member: pb::Member) {
        self.deleted.insert((member.volume_id(), id), member);
    }

    pub(crate) fn change_set(&mut self, id: MetablockId, old: &[pb::Member], new: &[pb::Member]) {
        self.unindex(id, old);
        self.index(id, new);
    }

    fn index(&mut self, id: MetablockId, members: &[pb::Member]) {
        for member in members {
            self.on_volume.insert((member.volume_id(), id));
            if member.is_guest() {
                self.away.insert((member.home_id(), id));
            }
        }
    }

    fn unindex(&mut self, id: MetablockId, members: &[pb::Member]) {
        for member in members {
            self.on_volume.remove(&(member.volume_id(), id));
            if member.is_guest() {
                self.away.remove(&(member.home_id(), id));
            }
        }
    }

    /// What is away from home, from (node, metablock) on, in order.
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

    /// The volume is known not to have this metablock any more.
    pub(crate) fn drop_deleted(&mut self, volume: VolumeId, id: MetablockId) {
        self.deleted.remove(&(volume, id));
    }

    /// From volume to volume, not from replica to replica: volumes are few.
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

    /// How many (volume, metablock) pairs the index has.
    pub(crate) fn placed_count(&self) -> usize {
        self.on_volume.len()
    }

    /// Whether the index knows this metablock as the inode's, on exactly these volumes and away from these homes, among others.
    pub(crate) fn knows(&self, inode: InodeId, block: &Metablock) -> bool {
        self.owner(block.id) == Some(inode)
            && block.members.iter().all(|member| {
                self.on_volume.contains(&(member.volume_id(), block.id))
                    && member.is_guest() == self.away.contains(&(member.home_id(), block.id))
            })
    }
}
