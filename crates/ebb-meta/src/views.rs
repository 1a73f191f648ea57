//! The parts of the state that the leader's services read.

use std::sync::Arc;

use ebb_layout::SubRacks;
use ebb_types::{
    ClusterId, Credentials, DatasetId, HostName, InodeId, MetablockId, NodeId, Result, SessionId, VolumeId, bail,
};
use ebb_wire::pb;

use crate::machine::Machine;
use crate::map::Metablock;
use crate::outcome::Counts;
use crate::permission;
use crate::replicas::Owner;

impl Machine {
    /// Attributes of an inode. Fails with kind `Stale` if it is gone.
    pub fn attr(&self, inode: InodeId) -> Result<pb::Attr> {
        Ok(self.attr_of(inode, &*self.inode_at(inode)?))
    }

    /// Refuses with `AccessDenied` unless these credentials have all of `want` on the inode. `want` is a sum of
    /// [`crate::READ`], [`crate::WRITE`] and [`crate::EXECUTE`]. `Acquire` uses it when it opens files.
    pub fn check_access(&self, inode: InodeId, credentials: &Credentials, want: u32) -> Result<()> {
        permission::check(inode, &*self.inode_at(inode)?, credentials, want & 7)
    }

    /// The session with the write lease of a file, if any.
    #[must_use]
    pub fn holder(&self, inode: InodeId) -> Option<SessionId> {
        self.inodes.get(&inode).and_then(|inode| inode.holder())
    }

    /// Files that need a recovery or are in one, in order.
    pub fn recovering(&self) -> impl Iterator<Item = InodeId> + '_ {
        self.recovering.iter().copied()
    }

    /// Whether members may have bytes of a file that no commit has recorded. This holds for a file that is held, and
    /// for one whose recovery is not finished.
    #[must_use]
    pub fn may_have_uncommitted(&self, inode: InodeId) -> bool {
        self.holder(inode).is_some() || self.recovering.contains(&inode)
    }

    /// All files with [`Self::may_have_uncommitted`]: held files first, then files in recovery.
    pub fn uncommitted_files(&self) -> impl Iterator<Item = InodeId> + '_ {
        self.held.iter().map(|(_, inode)| *inode).chain(self.recovering())
    }

    /// Those of a dataset.
    pub fn uncommitted_files_of(&self, dataset: DatasetId) -> impl Iterator<Item = InodeId> + '_ {
        self.uncommitted_files().filter(move |id| self.lives_in(*id, dataset))
    }

    /// Files whose write lease this session has, in order.
    pub fn held_files(&self, session: SessionId) -> impl Iterator<Item = InodeId> + '_ {
        let range = (session, InodeId::new(0))..=(session, InodeId::new(u64::MAX));
        self.held.range::<_, (SessionId, InodeId)>(range).map(|(_, inode)| *inode)
    }

    /// All metablocks of a file, in order of index. Inodes of other kinds have none.
    pub fn metablocks(&self, inode: InodeId) -> Result<Vec<pb::Metablock>> {
        let file = self.inode(inode)?.file();
        Ok(file.into_iter().flat_map(|file| file.map.iter()).map(|block| self.record_of(inode, block)).collect())
    }

    /// The same for messages to clients, also of a file in a snapshot. What snapshots have of a live one is frozen there, though its
    /// record need not say so.
    pub fn shown_metablocks(&self, inode: InodeId) -> Result<Vec<pb::Metablock>> {
        self.metablocks_at(inode, 0, usize::MAX)
    }

    /// A metablock for a message to clients, with its extra copies. What snapshots have (`below`: see [`Machine::frozen_below`]) is
    /// frozen, though its record need not say so: a holder writes to an heir.
    pub(crate) fn shown(&self, id: InodeId, below: MetablockId, block: &Metablock) -> pb::Metablock {
        let record = self.record_of(id, block);
        if record.frozen.is_none() && block.is_frozen(below) {
            let frozen = pb::Frozen { raid_set: 0, slot: 0, length: block.length };
            return pb::Metablock { frozen: Some(frozen), ..record };
        }
        record
    }

    /// A metablock as it is recorded, with its extra copies.
    pub(crate) fn record_of(&self, inode: InodeId, block: &Metablock) -> pb::Metablock {
        pb::Metablock { extra: self.extras.get(inode, block.id).to_vec(), ..block.to_pb() }
    }

    /// The trim of a file's last metablock, as long as some member may lack it.
    #[must_use]
    pub fn pending_trim(&self, inode: InodeId) -> Option<pb::meta_op::Trim> {
        self.inodes.get(&inode).and_then(|inode| inode.file()).and_then(|file| file.trim.as_deref().copied())
    }

    /// A metablock of a file by its id, and the file. None if no file has it: it was freed, or never granted. An id from
    /// [`Self::next_metablock`] on was never granted.
    #[must_use]
    pub fn find_metablock(&self, id: MetablockId) -> Option<(InodeId, pb::Metablock)> {
        let inode = self.replicas.owner(id)?;
        let block = self.inodes.get(&inode)?.file()?.map.get(id)?;
        Some((inode, self.record_of(inode, block)))
    }

    /// The record of a metablock by its id, whoever has it. None of what has no record of its own: heirs, rows and ballast.
    #[must_use]
    pub fn find_record(&self, id: MetablockId) -> Option<pb::Metablock> {
        match self.replicas.owner_of(id)? {
            Owner::File(_) => self.find_metablock(id).map(|(_, record)| record),
            Owner::Kept(number) => self.snapshots.kept.get(number, id).map(|kept| kept.block.to_pb()),
            Owner::Heir(_) | Owner::RaidSet(_) => None,
        }
    }

    /// The one record of a metablock, wherever it is kept.
    pub(crate) fn metablock(&self, id: MetablockId) -> Option<&Metablock> {
        match self.replicas.owner_of(id)? {
            Owner::File(inode) => self.inodes.get(&inode)?.file()?.map.get(id),
            Owner::Kept(number) => self.snapshots.kept.get(number, id).map(|kept| &kept.block),
            Owner::Heir(_) | Owner::RaidSet(_) => None,
        }
    }

    /// Changes where a metablock lies in its one record, but neither its version nor its length. Nothing happens without one.
    pub(crate) fn edit_metablock(&mut self, id: MetablockId, change: impl FnOnce(&mut Metablock)) {
        match self.replicas.owner_of(id) {
            Some(Owner::File(inode)) => {
                if let Some(file) = self.edit_unshown(inode).file_mut() {
                    file.map.update(id, change);
                }
            }
            Some(Owner::Kept(number)) => {
                if let Some(kept) = self.snapshots.kept.get_mut(number, id) {
                    change(&mut kept.block);
                }
            }
            Some(Owner::Heir(_) | Owner::RaidSet(_)) | None => {}
        }
    }

    /// Whether a file has this metablock, or a snapshot, or a RAID set.
    #[must_use]
    pub fn has_metablock(&self, id: MetablockId) -> bool {
        self.replicas.owner_of(id).is_some()
    }

    /// Volumes with members of sets, in order. It includes volumes without a registered node.
    pub fn replica_volumes(&self) -> impl Iterator<Item = VolumeId> + '_ {
        self.replicas.volumes()
    }

    /// Metablocks with a member on this volume, in order.
    pub fn on_volume(&self, volume: VolumeId) -> impl Iterator<Item = MetablockId> + '_ {
        self.replicas.on_volume(volume)
    }

    /// Pairs of a home and a metablock with a copy away from it, in order, from this pair on.
    pub fn away_from(&self, home: NodeId, first: MetablockId) -> impl Iterator<Item = (NodeId, MetablockId)> + '_ {
        self.replicas.away_from(home, first)
    }

    /// Freed metablocks whose deletion this volume has not confirmed, in order.
    pub fn deleted_on(&self, volume: VolumeId) -> impl Iterator<Item = MetablockId> + '_ {
        self.replicas.deleted_on(volume)
    }

    /// Inodes without a name that have not been freed, in order.
    pub fn orphans(&self) -> impl Iterator<Item = InodeId> + '_ {
        self.orphans.iter().copied()
    }

    /// Whether the holder of a removed file has discarded writes that it had not committed.
    #[must_use]
    pub fn is_emptied(&self, inode: InodeId) -> bool {
        self.inodes.get(&inode).and_then(|inode| inode.file()).is_some_and(|file| file.emptied)
    }

    /// Whether a file never had a name, and may get one.
    #[must_use]
    pub fn is_linkable(&self, inode: InodeId) -> bool {
        self.inodes.get(&inode).and_then(|inode| inode.file()).is_some_and(|file| file.linkable)
    }

    /// Sessions and the files that they made, as long as the session may not have the reply. The reply is kept for a
    /// repeated request.
    pub fn unacknowledged_opens(&self) -> impl Iterator<Item = (SessionId, InodeId)> + '_ {
        let made = |outcome: &crate::session::Outcome| {
            let reply = outcome.as_ref().as_ref().ok().filter(|reply| reply.created);
            reply.and_then(|reply| reply.attr).map(|attr| InodeId::new(attr.inode))
        };
        let made_by = move |(id, session)| {
            let session: &crate::session::Session = session;
            session.replies.values().filter_map(made).map(move |inode| (id, inode))
        };
        self.sessions.iter().flat_map(made_by).filter(|(_, inode)| self.inodes.contains_key(inode))
    }

    /// Registered nodes, in order. Fields that are not recorded (boot, state, use) are 0.
    pub fn nodes(&self) -> impl Iterator<Item = &pb::NodeRecord> + '_ {
        self.registry.nodes()
    }

    /// The sub-racks that the nodes have declared.
    #[must_use]
    pub fn sub_racks(&self) -> &Arc<SubRacks> {
        self.registry.sub_racks()
    }

    /// A registered node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&pb::NodeRecord> {
        self.registry.node(id)
    }

    /// The last registration of a node.
    #[must_use]
    pub fn registered(&self, id: NodeId) -> Option<&pb::Node> {
        self.node(id)?.node.as_ref()
    }

    /// Recorded volumes of a node; none of an unknown one.
    #[must_use]
    pub fn volumes_of(&self, id: NodeId) -> Vec<VolumeId> {
        self.registered(id).iter().flat_map(|node| &node.volumes).map(|volume| VolumeId::new(volume.id)).collect()
    }

    /// Open sessions with their hosts and roles, in order.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, HostName, &str)> + '_ {
        self.sessions.iter().map(|(id, session)| (id, session.host.clone(), &*session.role))
    }

    /// Replicas of another history, in order of volume.
    pub fn quarantined(&self) -> impl Iterator<Item = (ebb_types::VolumeId, MetablockId)> + '_ {
        self.replicas.quarantined()
    }

    /// Whether this replica belongs to another history.
    #[must_use]
    pub fn is_quarantined(&self, volume: ebb_types::VolumeId, id: MetablockId) -> bool {
        self.replicas.is_quarantined(volume, id)
    }

    /// Number of inodes of a dataset, and their committed bytes (of one copy).
    #[must_use]
    pub fn dataset_usage(&self, dataset: u64) -> (u64, u64) {
        let usage = self.datasets.usage(DatasetId::new(dataset));
        (usage.inodes, usage.bytes)
    }

    /// Bytes that snapshots of a dataset alone have, of one copy.
    #[must_use]
    pub fn kept_bytes(&self, dataset: DatasetId) -> u64 {
        self.datasets.usage(dataset).kept_bytes
    }

    /// Whether a snapshot that can be read has this metablock of a file, too.
    #[must_use]
    pub fn is_in_snapshot(&self, inode: InodeId, id: MetablockId) -> bool {
        self.inodes.get(&inode).is_some_and(|inode| self.snapshots.newest_with(inode.dataset, id).is_some())
    }

    /// Settings of the dataset of an inode.
    pub fn dataset_of(&self, inode: InodeId) -> Result<pb::Dataset> {
        let dataset = self.inode_at(inode)?.dataset;
        match self.datasets.get(dataset) {
            Some(settings) => Ok(settings.clone()),
            None => bail!(Internal, "{inode} is in {dataset}, which is not recorded"),
        }
    }

    /// Settings of a dataset.
    #[must_use]
    pub fn dataset(&self, id: DatasetId) -> Option<&pb::Dataset> {
        self.datasets.get(id)
    }

    /// Every metablock of every file: its dataset, its file and its members. It walks all inodes once.
    pub fn placed(&self) -> impl Iterator<Item = (DatasetId, InodeId, &[pb::Member])> + '_ {
        self.inodes.iter().flat_map(|(id, inode)| {
            let blocks = inode.file().into_iter().flat_map(|file| file.map.iter());
            blocks.map(move |block| (inode.dataset, *id, &block.members[..]))
        })
    }

    /// Every metablock that was ever written, from this file on: its dataset, its file, its id and its members.
    pub fn written_from(
        &self,
        first: InodeId,
    ) -> impl Iterator<Item = (DatasetId, InodeId, MetablockId, &[pb::Member])> + '_ {
        self.inodes.range::<_, InodeId>(first..).flat_map(|(id, inode)| {
            let blocks = inode.file().into_iter().flat_map(|file| file.map.iter());
            let written = blocks.filter(|block| block.version != ebb_types::Version::ZERO);
            written.map(move |block| (inode.dataset, *id, block.id, &block.members[..]))
        })
    }

    /// All datasets, in order. A dataset without a root, but with inodes, has an empty path.
    pub fn datasets(&self) -> impl Iterator<Item = &pb::Dataset> + '_ {
        self.datasets.iter()
    }

    /// Sizes of the tables.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            inodes: self.inodes.len() as u64,
            metablocks: self.replicas.count() as u64,
            sessions: self.sessions.len() as u64,
            held: self.held.len() as u64,
            nodes: self.registry.len() as u64,
            orphans: self.orphans.len() as u64,
            deleted: self.replicas.deleted_count() as u64,
        }
    }

    /// The id of the next metablock. No id from here on was ever granted.
    #[must_use]
    pub fn next_metablock(&self) -> MetablockId {
        self.next.metablock
    }

    /// The cluster's id, if it is set.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }
}
