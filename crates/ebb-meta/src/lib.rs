//! The namespace as a deterministic state machine: `apply(command) -> reply and effects`.
#![allow(unused_variables, missing_docs, clippy::pedantic)]
use ebb_types::*;
use ebb_wire::pb;

#[derive(Clone, Debug)]
pub struct Applied {
    pub reply: Result<Reply>,
    pub effects: Vec<Effect>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    None,
    Meta(pb::MetaReply),
    Session(SessionId),
    Node(pb::RegisterNodeReply),
    Lease { attr: pb::Attr, metablocks: Vec<pb::Metablock> },
    Epoch(Epoch),
}

#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// The set of a metablock. Of a grant `old` is empty, of a free `new` is.
    SetChanged { inode: InodeId, metablock: MetablockId, old: Vec<pb::Member>, new: Vec<pb::Member> },
    Orphaned(InodeId),
    Freed(InodeId),
    Changed { inode: InodeId, by: SessionId },
    LockGranted { session: SessionId, inode: InodeId, owner: u64, flock: bool, deadlock: bool },
    LeaseEnded { inode: InodeId, session: SessionId },
    NeedsRecovery(InodeId),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub inodes: u64,
    pub metablocks: u64,
    pub sessions: u64,
    pub nodes: u64,
    pub orphans: u64,
    pub deleted: u64,
}

#[derive(Clone)]
pub struct Machine;

impl Machine {
    pub fn new() -> Self { unreachable!() }
    pub fn apply(&mut self, command: &pb::Command) -> Applied { unreachable!() }
    pub fn query(&self, session: SessionId, credentials: &Credentials, op: &pb::meta_op::Op) -> Result<pb::MetaReply> { unreachable!() }
    pub fn records(&self, index: u64, term: u64) -> impl Iterator<Item = pb::CheckpointRecord> + '_ { std::iter::empty() }
    pub fn from_records(records: impl Iterator<Item = Result<pb::CheckpointRecord>>) -> Result<(Self, u64, u64)> { unreachable!() }
    pub fn digest(&self) -> u64 { unreachable!() }
    pub fn check(&self) -> Vec<String> { unreachable!() }
    pub fn attr(&self, inode: InodeId) -> Result<pb::Attr> { unreachable!() }
    pub fn holder(&self, inode: InodeId) -> Option<SessionId> { unreachable!() }
    pub fn recovering(&self) -> impl Iterator<Item = InodeId> + '_ { std::iter::empty() }
    pub fn held_files(&self, session: SessionId) -> impl Iterator<Item = InodeId> + '_ { std::iter::empty() }
    pub fn metablocks(&self, inode: InodeId) -> Result<Vec<pb::Metablock>> { unreachable!() }
    pub fn pending_trim(&self, inode: InodeId) -> Option<pb::meta_op::Trim> { unreachable!() }
    pub fn find_metablock(&self, id: MetablockId) -> Option<(InodeId, pb::Metablock)> { unreachable!() }
    pub fn on_volume(&self, volume: VolumeId) -> impl Iterator<Item = MetablockId> + '_ { std::iter::empty() }
    pub fn deleted_on(&self, volume: VolumeId) -> impl Iterator<Item = MetablockId> + '_ { std::iter::empty() }
    pub fn orphans(&self) -> impl Iterator<Item = InodeId> + '_ { std::iter::empty() }
    pub fn nodes(&self) -> impl Iterator<Item = &pb::NodeRecord> + '_ { std::iter::empty() }
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, HostName, &str)> + '_ { std::iter::empty() }
    pub fn dataset_of(&self, inode: InodeId) -> Result<pb::Dataset> { unreachable!() }
    pub fn datasets(&self) -> impl Iterator<Item = &pb::Dataset> + '_ { std::iter::empty() }
    pub fn counts(&self) -> Counts { unreachable!() }
    pub fn next_metablock(&self) -> MetablockId { unreachable!() }
    pub fn cluster(&self) -> Option<ClusterId> { unreachable!() }
}
