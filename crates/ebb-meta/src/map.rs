//! The metablock map of one file.

use std::sync::Arc;

use ebb_types::{MetablockId, RaidSetId, Version};
use ebb_wire::pb;

/// Most members that are remembered as left out of one set.
pub(crate) const LEFT_OUT_MAX: usize = 16;

/// A metablock that never changes again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frozen {
    /// The RAID set that has it in a slot. None: its RAID set has ended, and it has all its copies.
    pub(crate) raid_set: Option<RaidSetId>,
    /// Its slot.
    pub(crate) slot: u32,
    /// The length of its members. The file shows as much or less: a cut is recorded, and not carried out.
    pub(crate) length: u64,
}

impl Frozen {
    /// The same without a RAID set.
    pub(crate) fn alone(self) -> Self {
        Self { raid_set: None, slot: 0, ..self }
    }
}

/// A metablock as it is recorded.
#[derive(Clone, Debug)]
pub(crate) struct Metablock {
    pub(crate) id: MetablockId,
    /// Number of the metablock in the file, from 0.
    pub(crate) index: u64,
    /// Committed version. (0, 0): the metablock was granted and never written.
    pub(crate) version: Version,
    /// Committed bytes.
    pub(crate) length: u64,
    /// Number of the set. Each change raises it.
    pub(crate) generation: u64,
    pub(crate) members: Arc<[pb::Member]>,
    /// Members that a recovery went on without. Few metablocks have any.
    pub(crate) left_out: Option<Arc<Vec<pb::LeftOut>>>,
    /// When its version was committed, in seconds since 1970; 0: by an earlier release.
    pub(crate) committed_s: u64,
    pub(crate) frozen: Option<Frozen>,
}

impl Metablock {
    /// The record for a message. Extra copies are not in it ([`crate::Machine::record_of`]).
    pub(crate) fn to_pb(&self) -> pb::Metablock {
        pb::Metablock {
            id: self.id.raw(),
            index: self.index,
            version: Some(self.version.into()),
            length: self.length,
            generation: self.generation,
            members: self.members.to_vec(),
            // The leader fills in the reserved room.
            reserved: 0,
            extra: Vec::new(),
            left_out: self.left_out().to_vec(),
            committed_s: self.committed_s,
            frozen: self.frozen.map(|frozen| pb::Frozen {
                raid_set: frozen.raid_set.map_or(0, RaidSetId::raw),
                slot: frozen.slot,
                length: frozen.length,
            }),
            heir_of: 0,
        }
    }

    /// Whether it never changes again: the record says so, or snapshots have what is below this id.
    pub(crate) fn is_frozen(&self, below: MetablockId) -> bool {
        self.frozen.is_some() || self.id < below
    }

    /// Length of its members in bytes, in which a cut of what is frozen changes nothing.
    pub(crate) fn stored_length(&self) -> u64 {
        self.frozen.map_or(self.length, |frozen| frozen.length)
    }

    /// Members that a recovery went on without.
    pub(crate) fn left_out(&self) -> &[pb::LeftOut] {
        self.left_out.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Replaces the members that are left out. A set of the wanted size needs none. A node in the set has everything.
    /// At most [`LEFT_OUT_MAX`] are kept.
    pub(crate) fn leave_out(&mut self, left_out: &[pb::LeftOut], wanted: usize) {
        // I-84: a node in both lists would count as a member with a copy that it may not have.
        let is_member = |node: u64| self.members.iter().any(|member| member.node == node);
        let mut kept: Vec<pb::LeftOut> = Vec::new();
        for one in left_out.iter().filter(|_| self.members.len() < wanted) {
            let Some(member) = one.member.filter(|member| !is_member(member.node)) else { continue };
            let is_known = kept.iter().any(|other| other.member.is_some_and(|other| other.node == member.node));
            if !is_known && kept.len() < LEFT_OUT_MAX {
                kept.push(*one);
            }
        }
        self.left_out = (!kept.is_empty()).then(|| Arc::new(kept));
    }

    pub(crate) fn from_pb(metablock: &pb::Metablock) -> Self {
        Self {
            id: metablock.metablock_id(),
            index: metablock.index,
            version: metablock.min_version(),
            length: metablock.length,
            generation: metablock.generation,
            members: metablock.members.as_slice().into(),
            left_out: (!metablock.left_out.is_empty()).then(|| Arc::new(metablock.left_out.clone())),
            committed_s: metablock.committed_s,
            frozen: metablock.frozen.map(|frozen| Frozen {
                raid_set: (frozen.raid_set != 0).then(|| RaidSetId::new(frozen.raid_set)),
                slot: frozen.slot,
                length: frozen.length,
            }),
        }
    }
}

/// The metablocks of one file, in order of index. Most files have one.
///
/// A plain vector suffices: a map is read far more often than it is changed in the middle. While a checkpoint is
/// written, the first change copies it once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    blocks: Vec<Metablock>,
    allocated_bytes: u64,
}

impl Map {
    /// Committed bytes in all metablocks.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Metablock> {
        self.blocks.iter()
    }

    /// Metablocks from index `first` on.
    pub(crate) fn starting_at(&self, first: u64) -> &[Metablock] {
        &self.blocks[self.blocks.partition_point(|block| block.index < first)..]
    }

    pub(crate) fn at_index(&self, index: u64) -> Option<&Metablock> {
        self.blocks.binary_search_by_key(&index, |block| block.index).ok().map(|at| &self.blocks[at])
    }

    pub(crate) fn get(&self, id: MetablockId) -> Option<&Metablock> {
        self.position(id).map(|at| &self.blocks[at])
    }

    /// Place of a metablock in the vector. Files are mostly written from front to back, so ids mostly rise with the
    /// index. A binary search comes first, and a walk over all only if it fails.
    fn position(&self, id: MetablockId) -> Option<usize> {
        self.blocks
            .binary_search_by_key(&id, |block| block.id)
            .ok()
            .or_else(|| self.blocks.iter().position(|block| block.id == id))
    }

    /// Adds a metablock. False if the file has one of this index: nothing changes then.
    pub(crate) fn insert(&mut self, block: Metablock) -> bool {
        match self.blocks.binary_search_by_key(&block.index, |other| other.index) {
            Ok(_) => false,
            Err(at) => {
                if self.blocks.is_empty() {
                    self.blocks.reserve_exact(1);
                }
                self.allocated_bytes = self.allocated_bytes.saturating_add(block.length);
                self.blocks.insert(at, block);
                true
            }
        }
    }

    /// Changes one metablock, but not its index or id. False if the file has no such metablock.
    pub(crate) fn update(&mut self, id: MetablockId, change: impl FnOnce(&mut Metablock)) -> bool {
        let Some(at) = self.position(id) else { return false };
        let block = &mut self.blocks[at];
        let (length, version, generation) = (block.length, block.version, block.generation);
        let place = (block.index, block.id);
        let frozen = block.frozen;
        change(block);
        // I-63: the RAID set names this version, and this length.
        let is_kept = frozen.is_none_or(|old| {
            block.version == version && block.frozen.is_some_and(|frozen| frozen.length == old.length)
        });
        assert!(is_kept, "{} is frozen at {version} and changes to {}", block.id, block.version);
        assert!((block.index, block.id) == place, "{} changes its place in the map", block.id);
        // I-6, I-13: committed bytes stay committed, and a compare-and-swap never meets an old number again.
        assert!(block.version >= version, "{} goes back from {version} to {}", block.id, block.version);
        assert!(block.generation >= generation, "the set of {} goes back to an older number", block.id);
        self.allocated_bytes = self.allocated_bytes.saturating_sub(length).saturating_add(block.length);
        true
    }

    /// Removes the metablocks that `free` selects, and returns them in order.
    pub(crate) fn remove_where(&mut self, free: impl Fn(&Metablock) -> bool) -> Vec<Metablock> {
        if !self.blocks.iter().any(&free) {
            return Vec::new();
        }
        let (gone, kept) = std::mem::take(&mut self.blocks).into_iter().partition(|block| free(block));
        self.blocks = kept;
        // Counted anew: a checkpoint may name lengths whose sum overflows, and a saturated sum cannot be reduced.
        self.allocated_bytes = self.blocks.iter().fold(0u64, |sum, block| sum.saturating_add(block.length));
        gone
    }
}
