//! Ids, versions and errors across the edge between plain numbers and types.

use std::collections::BTreeMap;

use ebb_types::{
    BootId, Credentials, Declared, Domain, Epoch, Error, ErrorKind, Incarnation, InodeId, MetablockId, NodeId,
    RaidCode, Redundancy, Version, VolumeId, err,
};

use crate::pb;

impl From<Version> for pb::Version {
    fn from(version: Version) -> Self {
        Self { epoch: version.epoch.raw(), seq: version.seq }
    }
}

impl From<pb::Version> for Version {
    fn from(version: pb::Version) -> Self {
        Self::new(Epoch::new(version.epoch), version.seq)
    }
}

/// The version in an optional field; absent means (0, 0), as protobuf leaves defaults out.
#[must_use]
pub fn version(field: Option<pb::Version>) -> Version {
    field.map_or(Version::ZERO, Version::from)
}

impl From<RaidCode> for pb::RaidCode {
    fn from(code: RaidCode) -> Self {
        Self { copies: code.copies, slots: code.slots, rows: code.rows, domain: code.domain.to_raw() }
    }
}

/// Not checked: a message can have any numbers.
impl From<pb::RaidCode> for RaidCode {
    fn from(code: pb::RaidCode) -> Self {
        raid_code(code.copies, code.slots, code.rows, code.domain)
    }
}

/// With a domain of another release it is no code: it has a number of copies that none has.
fn raid_code(copies: u32, slots: u32, rows: u32, domain: u32) -> RaidCode {
    match Domain::from_raw(domain) {
        Some(domain) => RaidCode { copies, slots, rows, domain },
        None => RaidCode { copies: u32::MAX, slots, rows, domain: Domain::Host },
    }
}

impl pb::Dataset {
    /// The code of its settings, not checked; zeros if they have none.
    #[must_use]
    pub fn raid_code(&self) -> RaidCode {
        raid_code(self.raid_copies, self.raid_slots, self.raid_rows, self.raid_domain)
    }

    /// Gives its settings a code, or none by zeros.
    pub const fn set_raid_code(&mut self, code: &pb::RaidCode) {
        (self.raid_copies, self.raid_slots, self.raid_rows) = (code.copies, code.slots, code.rows);
        self.raid_domain = code.domain;
    }

    /// How its cold data are kept. A code out of bounds, of another release, counts as copies.
    #[must_use]
    pub fn redundancy(&self) -> Redundancy {
        Redundancy::from_raw(self.raid_code()).unwrap_or_default()
    }
}

impl pb::RaidSet {
    /// Its code, not checked.
    #[must_use]
    pub fn raid_code(&self) -> RaidCode {
        self.code.unwrap_or_default().into()
    }
}

impl From<&Error> for pb::Failure {
    fn from(error: &Error) -> Self {
        Self { kind: error.kind().raw(), detail: error.detail().to_owned() }
    }
}

impl From<pb::Failure> for Error {
    fn from(failure: pb::Failure) -> Self {
        Self::new(ErrorKind::from_raw(failure.kind), failure.detail)
    }
}

impl pb::ReportReplica {
    /// The report to the master about a replica that gave this error. `None` if the error says nothing about the replica.
    #[must_use]
    pub fn of(metablock: MetablockId, member: pb::Member, error: &Error) -> Option<Self> {
        let is_damage = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NoReplica | ErrorKind::VolumePoisoned);
        is_damage.then(|| Self { metablock: metablock.raw(), member: Some(member), failure: Some(error.into()) })
    }
}

/// The failure in an optional field; kind 0 and absence both mean that there was none.
pub fn failure(field: Option<pb::Failure>) -> Result<(), Error> {
    match field {
        Some(failure) if failure.kind != 0 => Err(failure.into()),
        _ => Ok(()),
    }
}

/// A field that no message may leave out. `Protocol` if one does; `field_name` names the field for a person.
pub fn required<T>(field: Option<T>, field_name: &str) -> Result<T, Error> {
    field.ok_or_else(|| err!(Protocol, "a message leaves out {field_name}"))
}

impl From<&Credentials> for pb::Credentials {
    fn from(credentials: &Credentials) -> Self {
        Self { uid: credentials.uid, gid: credentials.gid, groups: credentials.groups.clone() }
    }
}

impl From<pb::Credentials> for Credentials {
    fn from(credentials: pb::Credentials) -> Self {
        Self { uid: credentials.uid, gid: credentials.gid, groups: credentials.groups }
    }
}

impl pb::meta_op::Op {
    /// Whether it is answered from applied state; everything else is a mutation and goes through the log.
    #[must_use]
    pub fn is_query(&self) -> bool {
        matches!(
            self,
            Self::Lookup(_)
                | Self::GetAttr(_)
                | Self::ReadDir(_)
                | Self::ReadLink(_)
                | Self::GetXattr(_)
                | Self::ListXattr(_)
                | Self::StatFs(_)
                | Self::GetMap(_)
                | Self::Resolve(_)
                | Self::TestLock(_)
                | Self::ListDatasets(_)
                | Self::Summarize(_)
                | Self::GetRaidSets(_)
        )
    }
}

impl pb::Member {
    /// The node, typed.
    #[must_use]
    pub fn node_id(&self) -> NodeId {
        NodeId::new(self.node)
    }

    /// The volume, typed.
    #[must_use]
    pub fn volume_id(&self) -> VolumeId {
        VolumeId::new(self.volume)
    }

    /// The volume's incarnation, typed.
    #[must_use]
    pub fn incarnation_id(&self) -> Incarnation {
        Incarnation::new(self.incarnation)
    }

    /// The node that the copy belongs to: its own, unless it is a guest.
    #[must_use]
    pub fn home_id(&self) -> NodeId {
        NodeId::new(if self.home == 0 { self.node } else { self.home })
    }

    /// Whether it is away from home.
    #[must_use]
    pub fn is_guest(&self) -> bool {
        self.home != 0
    }

    /// Whether both are the same replica. Their homes do not matter.
    #[must_use]
    pub fn is_at(&self, other: &Self) -> bool {
        (self.node, self.volume, self.incarnation) == (other.node, other.volume, other.incarnation)
    }
}

impl pb::Hop {
    /// The member that is reached there. `Protocol` if the message leaves it out.
    pub fn required_member(&self) -> Result<pb::Member, Error> {
        required(self.member, "the member of a hop")
    }
}

/// The dataset of each node that serves one alone.
pub fn serving<'a>(nodes: impl IntoIterator<Item = &'a pb::Node>) -> BTreeMap<u64, u64> {
    nodes.into_iter().filter_map(|node| Some((node.id, node.serves?))).collect()
}

/// Which start of a process a field names. 0 names none.
fn boot(field: u64) -> Option<BootId> {
    (field != 0).then(|| BootId::new(field))
}

impl pb::MemberResult {
    /// Which process of the node answered. None: the hop before it says why nothing is known of it.
    #[must_use]
    pub fn boot_id(&self) -> Option<BootId> {
        boot(self.boot)
    }

    /// Whether it tells of a failure.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.kind != 0)
    }
}

impl From<pb::CommitRefusal> for Error {
    fn from(refusal: pb::CommitRefusal) -> Self {
        match required(refusal.failure, "why a commit is refused") {
            Ok(failure) => failure.into(),
            Err(error) => error,
        }
    }
}

impl pb::Node {
    /// Its last start that is known.
    #[must_use]
    pub fn boot_id(&self) -> Option<BootId> {
        boot(self.boot)
    }

    /// What it declares of its place.
    #[must_use]
    pub fn declared(&self) -> Declared<'_> {
        Declared { node: Some(NodeId::new(self.id)), host: &self.host, rack: &self.rack, serves: &self.serves_hosts }
    }
}

impl pb::RegisterNode {
    /// Which node it is. None: a new one.
    #[must_use]
    pub fn node_id(&self) -> Option<NodeId> {
        (self.node != 0).then(|| NodeId::new(self.node))
    }

    /// This start of it. None: it does not say.
    #[must_use]
    pub fn boot_id(&self) -> Option<BootId> {
        boot(self.boot)
    }
}

impl pb::RegisterNodeCommand {
    /// Which node it is. None: a new one.
    #[must_use]
    pub fn node_id(&self) -> Option<NodeId> {
        (self.node != 0).then(|| NodeId::new(self.node))
    }

    /// What it declares of its place.
    #[must_use]
    pub fn declared(&self) -> Declared<'_> {
        Declared { node: self.node_id(), host: &self.host, rack: &self.rack, serves: &self.serves_hosts }
    }
}

impl pb::MetaReply {
    /// The inode that lost a name.
    #[must_use]
    pub fn displaced(&self) -> Option<InodeId> {
        (self.displaced_inode != 0).then(|| InodeId::new(self.displaced_inode))
    }
}

impl pb::Metablock {
    /// The id, typed.
    #[must_use]
    pub fn metablock_id(&self) -> MetablockId {
        MetablockId::new(self.id)
    }

    /// Whether a RAID set has it, which alone moves its members.
    #[must_use]
    pub fn is_in_raid_set(&self) -> bool {
        self.frozen.is_some_and(|frozen| frozen.raid_set != 0)
    }

    /// The lowest version that a reader accepts.
    #[must_use]
    pub fn min_version(&self) -> Version {
        version(self.version)
    }

    /// Whether something that was written to it is committed. Else it may have been granted ahead of need, and no
    /// member holds anything.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.min_version() != Version::ZERO
    }
}
