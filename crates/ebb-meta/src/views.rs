//! What the leader's services read of the state.

use ebb_types::{
    ClusterId, Credentials, DatasetId, HostName, InodeId, MetablockId, NodeId, Result, SessionId, VolumeId, bail,
};
use ebb_wire::pb;

use crate::machine::Machine;
use crate::outcome::Counts;
use crate::permission;

impl Machine {
    /// Attributes of an inode. Kind `Stale` if it is gone.
    pub fn attr(&self, inode: InodeId) -> Result<pb::Attr> {
        Ok(self.attr_of(inode, self.inode(inode)?))
    }

    /// Refuses with `AccessDenied` unless these credentials have all of `want`, a sum of [`crate::READ`],
    /// [`crate::WRITE`] and [`crate::EXECUTE`], on the inode. For `Acquire`, which opens files.
    pub fn check_access(&self, inode: InodeId, credentials: &Credentials, want: u32) -> Result<()> {
        permission::check(inode, self.inode(inode)?, credentials, want & 7)
    }

    /// The session with the write lease of a file.
    #[must_use]
    pub fn holder(&self, inode: InodeId) -> Option<SessionId> {
        self.inodes.get(&inode).and_then(|inode| inode.holder())
    }

    /// Files whose holder is gone and whose recovery has not finished, in order.
    pub fn recovering(&self) -> impl Iterator<Item = InodeId> + '_ {
        self.recovering.iter().copied()
    }

    /// Whether members may have bytes of a file that no commit has told: it is held, or its holder is gone and its recovery has
    /// not finished.
    #[must_use]
    pub fn may_have_uncommitted(&self, inode: InodeId) -> bool {
        self.holder(inode).is_some() || self.recovering.contains(&inode)
    }

    /// All files of which that is so: those that are held, and then those that are being recovered.
    pub fn uncommitted_files(&self) -> impl Iterator<Item = InodeId> + '_ {
        self.held.iter().map(|(_, inode)| *inode).chain(self.recovering())
    }

    /// Files that a session has the write lease of, in order.
    pub fn held_files(&self, session: SessionId) -> impl Iterator<Item = InodeId> + '_ {
        let range = (session, InodeId::new(0))..=(session, InodeId::new(u64::MAX));
        self.held.range::<_, (SessionId, InodeId)>(range).map(|(_, inode)| *inode)
    }

    /// All metablocks of a file, in order of index; of another kind of inode, none.
    pub fn metablocks(&self, inode: InodeId) -> Result<Vec<pb::Metablock>> {
        let file = self.inode(inode)?.file();
        Ok(file.into_iter().flat_map(|file| file.map.iter()).map(|block| self.told(inode, block)).collect())
    }

    /// A metablock as clients are told of it: with its extra copies.
    pub(crate) fn told(&self, inode: InodeId, block: &crate::map::Metablock) -> pb::Metablock {
        pb::Metablock { extra: self.extras.get(inode, block.id).to_vec(), ..block.to_pb() }
    }

    /// The versioned write that cuts a file's last metablock, while it may not be on all members.
    #[must_use]
    pub fn pending_trim(&self, inode: InodeId) -> Option<pb::meta_op::Trim> {
        self.inodes.get(&inode).and_then(|inode| inode.file()).and_then(|file| file.trim.as_deref().copied())
    }

    /// A metablock by its id, and its file. None: it was freed (if below [`Self::next_metablock`]) or never granted.
    #[must_use]
    pub fn find_metablock(&self, id: MetablockId) -> Option<(InodeId, pb::Metablock)> {
        let inode = self.replicas.owner(id)?;
        let block = self.inodes.get(&inode)?.file()?.map.get(id)?;
        Some((inode, self.told(inode, block)))
    }

    /// Whether a file has this metablock.
    #[must_use]
    pub fn has_metablock(&self, id: MetablockId) -> bool {
        self.replicas.owner(id).is_some()
    }

    /// Volumes that members of sets are on, in order. Also those that no node has any more.
    pub fn replica_volumes(&self) -> impl Iterator<Item = VolumeId> + '_ {
        self.replicas.volumes()
    }

    /// Metablocks with a member on this volume, in order.
    pub fn on_volume(&self, volume: VolumeId) -> impl Iterator<Item = MetablockId> + '_ {
        self.replicas.on_volume(volume)
    }

    /// Homes and metablocks with a copy away from them, in order, from this one on.
    pub fn away_from(&self, home: NodeId, first: MetablockId) -> impl Iterator<Item = (NodeId, MetablockId)> + '_ {
        self.replicas.away_from(home, first)
    }

    /// Freed metablocks that this volume may still have replicas of, in order.
    pub fn deleted_on(&self, volume: VolumeId) -> impl Iterator<Item = MetablockId> + '_ {
        self.replicas.deleted_on(volume)
    }

    /// Inodes without a name that have not been reaped, in order.
    pub fn orphans(&self) -> impl Iterator<Item = InodeId> + '_ {
        self.orphans.iter().copied()
    }

    /// Whether the holder of a file without a name has thrown away what it had not committed.
    #[must_use]
    pub fn is_emptied(&self, inode: InodeId) -> bool {
        self.inodes.get(&inode).and_then(|inode| inode.file()).is_some_and(|file| file.emptied)
    }

    /// Whether a file never had a name and may get one.
    #[must_use]
    pub fn is_linkable(&self, inode: InodeId) -> bool {
        self.inodes.get(&inode).and_then(|inode| inode.file()).is_some_and(|file| file.linkable)
    }

    /// Who made which file and may not have heard of it yet: the reply is kept for the session to ask again.
    pub fn untold(&self) -> impl Iterator<Item = (SessionId, InodeId)> + '_ {
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

    /// Registered nodes, in order. What is not recorded (boot, state, use) is 0 in them.
    pub fn nodes(&self) -> impl Iterator<Item = &pb::NodeRecord> + '_ {
        self.registry.nodes()
    }

    /// A node that was ever registered, and not removed since.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&pb::NodeRecord> {
        self.registry.node(id)
    }

    /// A node as it registered last.
    #[must_use]
    pub fn registered(&self, id: NodeId) -> Option<&pb::Node> {
        self.node(id)?.node.as_ref()
    }

    /// Open sessions, in order, with their host and role.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, HostName, &str)> + '_ {
        self.sessions.iter().map(|(id, session)| (id, session.host.clone(), &*session.role))
    }

    /// Replicas of another history, by volume.
    pub fn quarantined(&self) -> impl Iterator<Item = (ebb_types::VolumeId, MetablockId)> + '_ {
        self.replicas.quarantined()
    }

    /// Whether this replica is another history's.
    #[must_use]
    pub fn is_quarantined(&self, volume: ebb_types::VolumeId, id: MetablockId) -> bool {
        self.replicas.is_quarantined(volume, id)
    }

    /// Inodes of a dataset, and their committed bytes (of one copy).
    #[must_use]
    pub fn dataset_usage(&self, dataset: u64) -> (u64, u64) {
        let usage = self.datasets.usage(DatasetId::new(dataset));
        (usage.inodes, usage.bytes)
    }

    /// Settings of the dataset that an inode is in.
    pub fn dataset_of(&self, inode: InodeId) -> Result<pb::Dataset> {
        let dataset = self.inode(inode)?.dataset;
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

    /// Every metablock of every file: its dataset, its file, and its members. Looks at every inode once.
    pub fn placed(&self) -> impl Iterator<Item = (DatasetId, InodeId, &[pb::Member])> + '_ {
        self.inodes.iter().flat_map(|(id, inode)| {
            let blocks = inode.file().into_iter().flat_map(|file| file.map.iter());
            blocks.map(move |block| (inode.dataset, *id, &block.members[..]))
        })
    }

    /// Every metablock that was ever written, from a file on: its dataset, its file, itself, its members.
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

    /// All datasets, in order; one whose root was removed, and that still has inodes, has an empty path.
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

    /// The id that the next metablock will have: none from here on was ever granted.
    #[must_use]
    pub fn next_metablock(&self) -> MetablockId {
        self.next.metablock
    }

    /// The cluster, once it has been named.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }
}
