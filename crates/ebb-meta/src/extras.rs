//! Extra copies of metablocks that are read often. They lie beside the sets, and are never part of them.
//!
//! They count for no durability and take no writes. The grant of a write lease and the start of a recovery end the
//! file's extra copies in the same command. So a set has the same bytes as long as an extra copy of it is recorded
//! (I-56).

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_types::{Epoch, InodeId, MetablockId, NodeId, Result, Version, VolumeId, bail};
use ebb_wire::pb;
use imbl::OrdMap;

use crate::dataset::REPLICAS_MAX;
use crate::machine::{Call, Machine};
use crate::ops::grant::{check_generation, check_members};
use crate::outcome::{Effect, Reply};
use crate::recovery::check_idle;

/// Extra copies by file and metablock. No entry is empty.
#[derive(Clone, Default)]
pub(crate) struct Extras(OrdMap<(InodeId, MetablockId), Arc<[pb::Member]>>);

impl Extras {
    pub(crate) fn get(&self, inode: InodeId, block: MetablockId) -> &[pb::Member] {
        self.0.get(&(inode, block)).map_or(&[], |members| members)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (InodeId, MetablockId, &[pb::Member])> + '_ {
        self.0.iter().map(|((inode, block), members)| (*inode, *block, &**members))
    }

    /// Records the extra copies of a metablock, and returns the former ones.
    pub(crate) fn put(&mut self, inode: InodeId, block: MetablockId, members: &[pb::Member]) -> Vec<pb::Member> {
        let old = if members.is_empty() {
            self.0.remove(&(inode, block))
        } else {
            self.0.insert((inode, block), members.into())
        };
        old.map_or_else(Vec::new, |old| old.to_vec())
    }

    /// Metablocks of a file with extra copies.
    fn of_file(&self, inode: InodeId) -> Vec<MetablockId> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let range = (inode, MetablockId::new(0))..=(inode, MetablockId::new(u64::MAX));
        self.0.range::<_, (InodeId, MetablockId)>(range).map(|((_, block), _)| *block).collect()
    }
}

impl Machine {
    /// Extra copies of a metablock.
    #[must_use]
    pub fn extras(&self, id: MetablockId) -> &[pb::Member] {
        self.replicas.owner(id).map_or(&[], |inode| self.extras.get(inode, id))
    }

    /// All metablocks with extra copies, with their files.
    pub fn all_extras(&self) -> impl Iterator<Item = (InodeId, MetablockId, &[pb::Member])> + '_ {
        self.extras.iter()
    }

    /// Whether the record names a replica of the metablock on this volume: a member's, one that leaves a RAID set and
    /// may still be needed, or an extra copy.
    #[must_use]
    pub fn is_placed_on(&self, id: MetablockId, volume: VolumeId) -> bool {
        let is_there = |member: &pb::Member| member.volume_id() == volume;
        self.replicas.is_placed(id, volume) || self.extras(id).iter().any(is_there)
    }

    /// Whether a recovery went on without this volume's replica of a metablock, and the set still lacks copies.
    #[must_use]
    pub fn is_left_out(&self, id: MetablockId, volume: VolumeId) -> bool {
        let Some(inode) = self.replicas.owner(id) else { return false };
        let wanted = self.wanted_copies(inode);
        let block = self.inodes.get(&inode).and_then(|inode| inode.file()?.map.get(id));
        let block = block.filter(|block| block.members.len() < wanted);
        let mut members = block.into_iter().flat_map(|block| block.left_out()).filter_map(|one| one.member);
        members.any(|member| member.volume_id() == volume)
    }

    /// Replaces the extra copies of a metablock, while the file has no holder. This is a compare-and-swap on epoch,
    /// generation and the former extra copies.
    pub(crate) fn change_extras(&mut self, call: &mut Call<'_>, op: &pb::ChangeExtras) -> Result<Reply> {
        let (id, block) = (InodeId::new(op.inode), MetablockId::new(op.metablock));
        let inode = self.inode(id)?;
        check_idle(id, inode, Epoch::new(op.epoch))?;
        check_generation(id, inode, block, op.generation)?;
        let Some(found) = inode.file().and_then(|file| file.map.get(block)) else {
            bail!(NotFound, "{block} is not a metablock of {id}");
        };
        if self.extras.get(id, block) != op.before {
            bail!(SetChanged, "the extra copies of {block} are others by now");
        }
        if !op.members.is_empty() {
            self.check_placement(&op.members)?;
            if found.version == Version::ZERO {
                bail!(Invalid, "{block} of {id} was never written: there is nothing to copy");
            }
            // What leaves a RAID set is soon deleted, and an extra copy in its place with it.
            let leaving = found.frozen.and_then(|frozen| {
                let set = self.raid.get(frozen.raid_set?)?;
                set.slots.get(frozen.slot as usize).map(|slot| &slot.leaving)
            });
            let members = found.members.iter().chain(leaving.into_iter().flatten());
            let nodes: BTreeSet<NodeId> = members.map(pb::Member::node_id).collect();
            if op.members.iter().any(|extra| nodes.contains(&extra.node_id())) {
                bail!(Invalid, "{block} has a member on the node of an extra copy: {:?}", op.members);
            }
            if found.members.len() + op.members.len() > REPLICAS_MAX as usize {
                bail!(Invalid, "{block} would have more than {REPLICAS_MAX} copies");
            }
        }
        // I-56: the file is idle, so the copy and the set have the same version until a lease or a recovery ends this.
        self.put_extras(call, id, block, &op.members);
        Ok(Reply::None)
    }

    /// Ends the file's extra copies: a writer or a recovery is about to change its metablocks.
    pub(crate) fn drop_extras(&mut self, call: &mut Call<'_>, id: InodeId) {
        for block in self.extras.of_file(id) {
            self.put_extras(call, id, block, &[]);
        }
        assert!(self.extras.of_file(id).is_empty(), "{id} is about to change and has extra copies");
    }

    /// Ends the extra copies of one metablock.
    pub(crate) fn end_extras_of(&mut self, call: &mut Call<'_>, id: InodeId, block: MetablockId) {
        if !self.extras.get(id, block).is_empty() {
            self.put_extras(call, id, block, &[]);
        }
    }

    /// Ends the extra copies of a file that is being freed, and returns them: what becomes of them depends on their metablocks.
    pub(crate) fn take_extras(&mut self, call: &mut Call<'_>, id: InodeId) -> Vec<(MetablockId, Vec<pb::Member>)> {
        let mut taken = Vec::new();
        for block in self.extras.of_file(id) {
            taken.push((block, self.extras.get(id, block).to_vec()));
            self.put_extras(call, id, block, &[]);
        }
        taken
    }

    /// Queues the deletion of extra copies of metablocks that are gone.
    ///
    /// Snapshots and RAID sets may have one still. Its copies are strays, which are deleted by their lives: a queued deletion is one of
    /// any life, and would hit a member that comes to this volume later.
    pub(crate) fn free_extras(&mut self, extras: Vec<(MetablockId, Vec<pb::Member>)>) {
        for (block, members) in extras {
            if self.replicas.owner_of(block).is_none() {
                members.into_iter().for_each(|member| self.replicas.queue_delete(block, member));
            }
        }
    }

    /// Ends the extra copies on nodes that have become members. A copy on the same volume is now the member's replica.
    pub(crate) fn yield_extras(
        &mut self,
        call: &mut Call<'_>,
        id: InodeId,
        block: MetablockId,
        members: &[pb::Member],
    ) {
        let is_beside = |extra: &&pb::Member| members.iter().all(|member| member.node != extra.node);
        let old = self.extras.get(id, block);
        let kept: Vec<pb::Member> = old.iter().filter(is_beside).copied().collect();
        if kept.len() != old.len() {
            self.put_extras(call, id, block, &kept);
        }
    }

    fn put_extras(&mut self, call: &mut Call<'_>, inode: InodeId, metablock: MetablockId, members: &[pb::Member]) {
        let old = self.extras.put(inode, metablock, members);
        call.effects.push(Effect::ExtrasChanged { inode, metablock, old, new: members.to_vec() });
    }

    /// Broken invariants of extra copies, a sentence each.
    pub(crate) fn check_extras(&self, broken: &mut Vec<String>) {
        for (id, block, members) in self.extras.iter() {
            let mut expect = |holds: bool, rule: &str| {
                if !holds {
                    broken.push(format!("{block} of {id}: {rule}"));
                }
            };
            let file = self.inodes.get(&id).and_then(|inode| inode.file());
            let found = file.and_then(|file| file.map.get(block));
            expect(found.is_some(), "extra copies of a metablock that is not the file's");
            expect(
                file.is_some_and(|file| file.holder.is_none() && !file.recovering),
                "extra copies of a file that is written",
            );
            expect(check_members(members).is_ok(), "its extra copies are malformed");
            let nodes: BTreeSet<NodeId> =
                found.iter().flat_map(|block| block.members.iter()).map(pb::Member::node_id).collect();
            expect(
                members.iter().all(|extra| !nodes.contains(&extra.node_id())),
                "a member and an extra copy on one node",
            );
        }
    }
}
