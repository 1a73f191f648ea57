//! The metablock map of one file.

use std::sync::Arc;

use ebb_types::{MetablockId, Version};
use ebb_wire::pb;

/// Members that are remembered as left out of one set.
pub(crate) const LEFT_OUT_MAX: usize = 16;

/// A metablock as it is recorded.
#[derive(Clone, Debug)]
pub(crate) struct Metablock {
    pub(crate) id: MetablockId,
    /// Which metablock of the file.
    pub(crate) index: u64,
    /// Committed; (0, 0): granted and never written.
    pub(crate) version: Version,
    /// Committed bytes in it.
    pub(crate) length: u64,
    /// Raised at each change of the set.
    pub(crate) generation: u64,
    pub(crate) members: Arc<[pb::Member]>,
    /// Members that a recovery went on without; hardly any metablock has some.
    pub(crate) left_out: Option<Arc<Vec<pb::LeftOut>>>,
}

impl Metablock {
    /// As messages tell it.
    pub(crate) fn to_pb(&self) -> pb::Metablock {
        pb::Metablock {
            id: self.id.raw(),
            index: self.index,
            version: Some(self.version.into()),
            length: self.length,
            generation: self.generation,
            members: self.members.to_vec(),
            // Room is the leader's to tell; extra copies are told beside the map ([`crate::Machine::told`]).
            reserved: 0,
            extra: Vec::new(),
            left_out: self.left_out().to_vec(),
        }
    }

    /// Members that a recovery went on without.
    pub(crate) fn left_out(&self) -> &[pb::LeftOut] {
        self.left_out.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Replaces them by those for which there is room: a set that is as large as wanted needs none, and a node that is in it
    /// has what is needed.
    pub(crate) fn leave_out(&mut self, left_out: &[pb::LeftOut], wanted: usize) {
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
        }
    }
}

/// The metablocks of one file, in order of index. Most files have one.
///
/// A plain vector: a map is read far more often than it is changed in the middle, and is copied at most once for each
/// checkpoint that is being written.
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

    /// Those whose index is not below `first`.
    pub(crate) fn starting_at(&self, first: u64) -> &[Metablock] {
        &self.blocks[self.blocks.partition_point(|block| block.index < first)..]
    }

    pub(crate) fn at_index(&self, index: u64) -> Option<&Metablock> {
        self.blocks.binary_search_by_key(&index, |block| block.index).ok().map(|at| &self.blocks[at])
    }

    pub(crate) fn get(&self, id: MetablockId) -> Option<&Metablock> {
        self.position(id).map(|at| &self.blocks[at])
    }

    /// Ids mostly rise with the index, as files are mostly written from front to back: look where that would put the
    /// metablock, and only then everywhere.
    fn position(&self, id: MetablockId) -> Option<usize> {
        self.blocks
            .binary_search_by_key(&id, |block| block.id)
            .ok()
            .or_else(|| self.blocks.iter().position(|block| block.id == id))
    }

    /// Adds a metablock; false, and nothing done, if the index has one.
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

    /// Changes one metablock; its index and id stay.
    pub(crate) fn update(&mut self, id: MetablockId, change: impl FnOnce(&mut Metablock)) -> bool {
        let Some(at) = self.position(id) else { return false };
        let block = &mut self.blocks[at];
        let before = block.length;
        change(block);
        self.allocated_bytes = self.allocated_bytes.saturating_sub(before).saturating_add(block.length);
        true
    }

    /// Takes out those that `free` picks, in order.
    pub(crate) fn remove_where(&mut self, free: impl Fn(&Metablock) -> bool) -> Vec<Metablock> {
        if !self.blocks.iter().any(&free) {
            return Vec::new();
        }
        let (gone, kept) = std::mem::take(&mut self.blocks).into_iter().partition(|block| free(block));
        self.blocks = kept;
        self.allocated_bytes = self.blocks.iter().fold(0u64, |sum, block| sum.saturating_add(block.length));
        gone
    }
}
