//! Metablocks that snapshots alone have.

use ebb_types::snapshot::DIRECTORY;
use ebb_types::{DatasetId, InodeId, MetablockId, Result, SnapshotId, Version, bail};
use ebb_wire::convert::version;
use ebb_wire::pb;
use imbl::OrdMap;

use crate::machine::{Call, Machine};
use crate::map::{Frozen, Metablock};
use crate::outcome::{Effect, Reply};
use crate::replicas::Owner;

/// A metablock that no file has any more.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// Always frozen, with the length of its members. It has no `left_out`.
    pub(crate) block: Metablock,
    /// The file that lost it, which may be gone.
    pub(crate) inode: InodeId,
    pub(crate) dataset: DatasetId,
}

/// All of them, each under the newest snapshot that has it. That number is in the index of owners, too.
#[derive(Clone, Default)]
pub(crate) struct KeptMetablocks(OrdMap<(SnapshotId, MetablockId), Kept>);

impl KeptMetablocks {
    pub(crate) fn get(&self, number: SnapshotId, id: MetablockId) -> Option<&Kept> {
        self.0.get(&(number, id))
    }

    pub(crate) fn get_mut(&mut self, number: SnapshotId, id: MetablockId) -> Option<&mut Kept> {
        self.0.get_mut(&(number, id))
    }

    /// Adds one. False if there is one already.
    pub(crate) fn insert(&mut self, number: SnapshotId, kept: Kept) -> bool {
        self.0.insert((number, kept.block.id), kept).is_none()
    }

    pub(crate) fn remove(&mut self, number: SnapshotId, id: MetablockId) -> Option<Kept> {
        self.0.remove(&(number, id))
    }

    /// Those under this number, in order.
    pub(crate) fn of(&self, number: SnapshotId) -> impl Iterator<Item = MetablockId> {
        let range = (number, MetablockId::new(0))..=(number, MetablockId::new(u64::MAX));
        self.0.range::<_, (SnapshotId, MetablockId)>(range).map(|((_, id), _)| *id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SnapshotId, &Kept)> {
        self.0.iter().map(|((number, _), kept)| (*number, kept))
    }
}

impl Machine {
    /// A metablock that snapshots alone have.
    pub(crate) fn kept(&self, id: MetablockId) -> Option<&Kept> {
        match self.replicas.owner_of(id)? {
            Owner::Kept(number) => self.snapshots.kept.get(number, id),
            Owner::File(_) | Owner::Heir(_) | Owner::RaidSet(_) => None,
        }
    }

    /// A file has lost this metablock, and a snapshot has it. It stays where it is, and its slot lives.
    pub(crate) fn keep_metablock(
        &mut self,
        call: &mut Call<'_>,
        (inode, dataset): (InodeId, DatasetId),
        number: SnapshotId,
        block: &Metablock,
    ) {
        let (metablock, members) = (block.id, block.members.to_vec());
        let length = block.stored_length();
        let frozen = block.frozen.unwrap_or(Frozen { raid_set: None, slot: 0, length });
        let kept = Kept {
            block: Metablock {
                length,
                frozen: Some(frozen),
                // I-13: a change of the set that was decided for the file is refused from here on.
                generation: block.generation + 1,
                left_out: None,
                ..block.clone()
            },
            inode,
            dataset,
        };
        self.replicas.give(metablock, Owner::Kept(number));
        self.datasets.count_kept(dataset, 0, length);
        assert!(self.snapshots.kept.insert(number, kept), "{number} keeps {metablock} twice");
        call.effects.push(Effect::SetChanged { inode, dataset, metablock, old: members.clone(), new: Vec::new() });
        call.effects.push(Effect::KeptChanged { dataset, metablock, old: Vec::new(), new: members });
        if !block.left_out().is_empty() {
            call.effects.push(Effect::LeftOutChanged { metablock, old: block.left_out().to_vec() });
        }
        if let Some(id) = frozen.raid_set {
            self.raise(call, id);
        }
    }

    /// No snapshot has this metablock any more: its replicas are to be deleted, or are ballast of its RAID set.
    pub(crate) fn free_kept(&mut self, call: &mut Call<'_>, number: SnapshotId, id: MetablockId) {
        let Some(Kept { block, dataset, .. }) = self.snapshots.kept.remove(number, id) else { return };
        self.datasets.count_kept(dataset, block.length, 0);
        let old = block.members.to_vec();
        call.effects.push(Effect::KeptChanged { dataset, metablock: id, old, new: Vec::new() });
        match block.frozen.and_then(|frozen| frozen.raid_set) {
            Some(raid_set) => self.kill_slot(call, raid_set, &block),
            None => self.replicas.free(id, &block.members, &[]),
        }
    }

    /// Puts other members in the place of those of a metablock that snapshots alone have. They have its bytes, and promise never to take
    /// others.
    pub(crate) fn change_kept(&mut self, call: &mut Call<'_>, op: &pb::ChangeKept) -> Result<Reply> {
        let id = MetablockId::new(op.metablock);
        let Some(Owner::Kept(number)) = self.replicas.owner_of(id) else {
            bail!(NotFound, "{id} is not what snapshots alone have");
        };
        let Some(Kept { block, dataset, .. }) = self.snapshots.kept.get(number, id) else {
            bail!(Internal, "{id} is kept for {number}, and has no record");
        };
        // I-75: a copy of other bytes, or one that was decided on older members, is not recorded.
        if block.generation != op.generation || block.version != version(op.version) {
            bail!(
                SetChanged,
                "{id} is at generation {} and {}, not {}",
                block.generation,
                block.version,
                op.generation
            );
        }
        if let Some(raid_set) = block.frozen.and_then(|frozen| frozen.raid_set) {
            bail!(Busy, "{id} is frozen: its members are moved by its RAID set {raid_set} alone");
        }
        self.check_placement(&op.members)?;
        let (old, dataset) = (block.members.to_vec(), *dataset);
        self.replicas.change_set(id, &old, &op.members);
        self.edit_metablock(id, |block| {
            block.members = op.members.as_slice().into();
            block.generation += 1;
        });
        call.effects.push(Effect::KeptChanged { dataset, metablock: id, old, new: op.members.clone() });
        Ok(Reply::None)
    }

    /// A metablock that snapshots alone have: the file that lost it, which may be gone, the dataset and the record.
    #[must_use]
    pub fn kept_metablock(&self, id: MetablockId) -> Option<(InodeId, DatasetId, pb::Metablock)> {
        self.kept(id).map(|kept| (kept.inode, kept.dataset, kept.block.to_pb()))
    }

    /// Every metablock that snapshots alone have: their dataset, and its members.
    pub fn kept_placed(&self) -> impl Iterator<Item = (DatasetId, &[pb::Member])> + '_ {
        self.snapshots.kept.iter().map(|(_, kept)| (kept.dataset, &kept.block.members[..]))
    }

    /// The path of the file that has this metablock in the newest snapshot with it. It walks that snapshot's names.
    #[must_use]
    pub fn kept_path(&self, id: MetablockId) -> Option<String> {
        let Some(Owner::Kept(number)) = self.replicas.owner_of(id) else { return None };
        let (kept, snapshot) = (self.snapshots.kept.get(number, id)?, self.snapshots.get(number)?);
        let settings = self.datasets.settings(kept.dataset);
        let root = settings.path.trim_end_matches('/');
        let top = format!("{root}/{}/{}", String::from_utf8_lossy(DIRECTORY), String::from_utf8_lossy(&snapshot.name));
        let mut open = vec![(top.clone(), InodeId::new(settings.root_inode))];
        while let Some((path, directory)) = open.pop() {
            for (_, name, inode) in self.entries_in(number, directory, 0) {
                let path = format!("{path}/{}", String::from_utf8_lossy(name));
                if inode == kept.inode {
                    return Some(path);
                }
                if self.inode_in(number, inode).is_some_and(crate::inode::Inode::is_directory) {
                    open.push((path, inode));
                }
            }
        }
        // It had no name then, or the snapshot is removed and has lost the way to it.
        Some(top)
    }

    /// Metablocks that snapshots alone have, in order of snapshot, with the dataset of each.
    #[cfg(test)]
    pub(crate) fn kept_metablocks(&self) -> impl Iterator<Item = (DatasetId, pb::Metablock)> + '_ {
        self.snapshots.kept.iter().map(|(_, kept)| (kept.dataset, kept.block.to_pb()))
    }

    /// Whether snapshots alone have this metablock.
    pub(crate) fn is_kept(&self, id: MetablockId) -> bool {
        self.kept(id).is_some()
    }
}

impl Kept {
    pub(crate) fn to_pb(&self, number: SnapshotId) -> pb::KeptMetablock {
        pb::KeptMetablock {
            snapshot: number.raw(),
            inode: self.inode.raw(),
            dataset: self.dataset.raw(),
            metablock: Some(self.block.to_pb()),
        }
    }

    /// As it is in a checkpoint. Refuses what no file can have lost to a snapshot.
    pub(crate) fn from_pb(record: &pb::KeptMetablock) -> Result<Self> {
        let Some(block) = record.metablock.as_ref().map(Metablock::from_pb) else {
            bail!(Corrupt, "a kept metablock without its record");
        };
        let is_whole = block.frozen.is_some_and(|frozen| frozen.length == block.length);
        if !is_whole || block.left_out.is_some() || block.version == Version::ZERO {
            bail!(Corrupt, "{} is kept for snap{} and not frozen as a whole", block.id, record.snapshot);
        }
        Ok(Self { block, inode: InodeId::new(record.inode), dataset: DatasetId::new(record.dataset) })
    }
}
