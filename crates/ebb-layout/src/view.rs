//! The knowledge of a layout about the cluster.

use std::sync::Arc;

use ebb_types::{HostName, Incarnation, NodeId, RackName, VolumeId};

use crate::SubRacks;

/// Every volume that the master knows of, usable or not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// In any order: plans do not depend on it.
    pub volumes: Vec<VolumeView>,
    /// The declared sub-racks.
    pub sub_racks: Arc<SubRacks>,
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
    /// Number of its disk among all; 0: not known, so it counts as a disk of its own.
    pub device: u64,
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
    /// Kept for rows of RAID sets, in bytes, beside [`VolumeView::reserve_bytes`]; see [`row_reserve_bytes`].
    pub kept_bytes: u64,
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

    /// Whether a replica of `bytes` fits above the reserve and what is kept.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        let kept = self.reserve_bytes().saturating_add(self.kept_bytes);
        bytes.checked_add(kept).is_some_and(|needed| self.free_bytes >= needed)
    }

    /// Whether a row, or a member that is made again, fits above the reserve. It may use what is kept.
    #[must_use]
    pub fn has_row_room(&self, bytes: u64) -> bool {
        Self { kept_bytes: 0, ..self.clone() }.has_room(bytes)
    }
}

/// Rows that each volume has room for when it is full for everything else.
const ROWS_KEPT: u64 = 2;
/// At most one part in so many of a volume is kept for them.
const KEPT_PART: u64 = 10;

/// What a volume of this size keeps for rows of so many bytes.
///
/// On full volumes removed files give nothing back before their RAID sets are repacked, and that takes room for new rows first.
/// So does encoding, which gives back more than it takes.
#[must_use]
pub fn row_reserve_bytes(capacity_bytes: u64, row_bytes: u64) -> u64 {
    (ROWS_KEPT * row_bytes).min(capacity_bytes / KEPT_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_rows_is_room_for_nothing_else() {
        let (gib, mib) = (1 << 30, 1 << 20);
        assert_eq!(row_reserve_bytes(100 * gib, 65 * mib), 130 * mib);
        assert_eq!(row_reserve_bytes(gib, 65 * mib), gib / 10, "of a small volume less");
        assert_eq!(row_reserve_bytes(gib, 0), 0, "nothing is encoded");
        let kept_bytes = row_reserve_bytes(100 * gib, 65 * mib);
        let volume = VolumeView { capacity_bytes: 100 * gib, kept_bytes, ..VolumeView::default() };
        let with = |free_bytes| VolumeView { free_bytes, ..volume.clone() };
        let reserve = volume.reserve_bytes();
        assert!(!with(reserve + 129 * mib).has_room(0) && with(reserve + 131 * mib).has_room(mib));
        assert!(with(reserve + 65 * mib).has_row_room(65 * mib) && !with(reserve + 64 * mib).has_row_room(65 * mib));
    }
}
