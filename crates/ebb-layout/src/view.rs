//! The knowledge of a layout about the cluster.

use ebb_types::{HostName, Incarnation, NodeId, RackName, VolumeId};

/// Every volume that the master knows of, usable or not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// In any order: plans do not depend on it.
    pub volumes: Vec<VolumeView>,
}

/// One volume of one node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeView {
    /// Its node.
    pub node: NodeId,
    /// Itself.
    pub volume: VolumeId,
    /// Its present life; goes into the set's record.
    pub incarnation: Incarnation,
    /// Declared host of the node.
    pub host: HostName,
    /// Declared rack of the host.
    pub rack: RackName,
    /// Size, in bytes.
    pub capacity_bytes: u64,
    /// Free now, in bytes; the caller should subtract granted space that is not yet written.
    pub free_bytes: u64,
    /// Requests in progress on the node.
    pub load: u32,
    /// Live, not draining, not poisoned: may take new replicas.
    pub usable: bool,
    /// Its node is switched off by the power plan: it may be a home, whose copy is a guest elsewhere until it is on again.
    pub off: bool,
}

/// Most of a volume that is kept free for its own journal and tables, in bytes.
const RESERVE_BYTES_MAX: u64 = 256 << 20;

impl VolumeView {
    /// The space that new replicas leave free on this volume: 2 % of it, at most 256 MiB. A volume filled to the last
    /// byte could no longer journal the overwrites of its replicas.
    #[must_use]
    pub fn reserve_bytes(&self) -> u64 {
        (self.capacity_bytes / 50).min(RESERVE_BYTES_MAX)
    }

    /// Whether a replica of `bytes` fits above the reserve.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        bytes.checked_add(self.reserve_bytes()).is_some_and(|needed| self.free_bytes >= needed)
    }
}
