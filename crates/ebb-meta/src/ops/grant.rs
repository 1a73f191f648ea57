//! Grants of metablocks to a holder, and changes of their sets.

use std::collections::BTreeSet;

use ebb_types::{Epoch, InodeId, MetablockId, NodeId, Result, Version, VolumeId, bail};
use ebb_wire::convert::version;
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use crate::dataset::REPLICAS_MAX;
use crate::inode::{FILE_SIZE_MAX, FileBody, Inode};
use crate::machine::{Call, Machine, NUMBER_MAX, take_id};
use crate::map::Metablock;
use crate::outcome::Effect;
use crate::raid::thaw::Heir;
use crate::replicas::Owner;

/// Most metablocks of one request.
const GRANTS_MAX: usize = 1024;

impl Machine {
    /// Grants a metablock for each index, on the members that the leader has chosen. An index that has one keeps it.
    pub(crate) fn grant(&mut self, call: &mut Call<'_>, op: &meta_op::Grant) -> Result<pb::MetaReply> {
        let id = InodeId::new(op.inode);
        let inode = self.check_holder(call, id, Epoch::new(op.epoch))?;
        if op.indexes.len() > GRANTS_MAX {
            bail!(Invalid, "{} metablocks in one grant are more than {GRANTS_MAX}", op.indexes.len());
        }
        let metablock_size = self.datasets.settings(inode.dataset).metablock_size;
        for (at, index) in op.indexes.iter().enumerate() {
            if index.checked_mul(metablock_size).is_none_or(|start| start >= FILE_SIZE_MAX) {
                bail!(FileTooLarge, "metablock {index} of {id} lies beyond the largest file");
            }
            let frozen_below = self.frozen_below(id, inode);
            let is_new = |file: &FileBody| match file.map.at_index(*index) {
                None => true,
                // A frozen one gets an heir, unless it has one that can be filled.
                Some(block) => {
                    let fits = |heir: &Heir| heir.of == block.id && !heir.lies_on(&op.exclude_nodes);
                    block.is_frozen(frozen_below) && !file.heirs.iter().any(fits)
                }
            };
            if inode.file().is_some_and(is_new) {
                let placement = call.placements.get(at).map_or(&[][..], |placement| &placement.members);
                if placement.is_empty() {
                    bail!(NoSpace, "no volumes for metablock {index} of {id}");
                }
                self.check_placement(placement)?;
            }
        }
        let metablocks = op.indexes.iter().enumerate().map(|(at, index)| self.granted(call, op, *index, at)).collect();
        Ok(pb::MetaReply { metablocks, ..self.attr_reply(id)? })
    }

    fn granted(&mut self, call: &mut Call<'_>, op: &meta_op::Grant, index: u64, at: usize) -> pb::Metablock {
        let id = InodeId::new(op.inode);
        let placements = call.placements;
        let members = placements.get(at).map_or(&[][..], |placement| &placement.members);
        let found = self.inodes.get(&id).and_then(|inode| {
            let block = inode.file()?.map.at_index(index)?;
            Some((block.clone(), self.is_frozen(id, inode, block)))
        });
        if let Some((block, is_frozen)) = found {
            if !is_frozen {
                return block.to_pb();
            }
            self.end_heirs(call, id, |heir| heir.of == block.id && heir.lies_on(&op.exclude_nodes));
            return self.grant_heir(call, id, &block, members);
        }
        self.place(call, id, index, members).to_pb()
    }

    /// Makes a metablock at an index where the file has none.
    pub(super) fn place(&mut self, call: &mut Call<'_>, id: InodeId, index: u64, members: &[pb::Member]) -> Metablock {
        let block = Metablock {
            id: take_id!(self.next.metablock, MetablockId),
            index,
            version: Version::ZERO,
            length: 0,
            generation: 1,
            members: members.into(),
            left_out: None,
            committed_s: 0,
            frozen: None,
        };
        let inode = self.edit(id);
        let dataset = inode.dataset;
        if let Some(file) = inode.file_mut() {
            assert!(file.map.insert(block.clone()), "{id} has a metablock at index {index} already");
        }
        // I-87: two files with one metablock would overwrite each other's bytes.
        assert!(self.replicas.add(Owner::File(id), block.id, members), "{} is assigned twice", block.id);
        call.effects.push(Effect::SetChanged {
            inode: id,
            dataset,
            metablock: block.id,
            old: Vec::new(),
            new: members.to_vec(),
        });
        block
    }

    /// Replaces the set of a metablock for the file's holder. This is a compare-and-swap on epoch and generation.
    pub(crate) fn change_set(&mut self, call: &mut Call<'_>, op: &meta_op::ChangeSet) -> Result<pb::MetaReply> {
        let (id, block) = (InodeId::new(op.inode), MetablockId::new(op.metablock));
        let inode = self.check_holder(call, id, Epoch::new(op.epoch))?;
        check_set(id, inode, block, op.generation)?;
        // I-63: a holder writes to an heir, and has no say where a frozen one lies.
        if inode.file().and_then(|file| file.map.get(block)).is_some_and(|block| self.is_frozen(id, inode, block)) {
            bail!(Busy, "{block} of {id} is frozen: a write goes to its heir");
        }
        self.check_placement(&op.members)?;
        let synced = version(op.version);
        if synced.epoch > inode.epoch {
            bail!(Invalid, "{block} of {id}: version {synced} is ahead of the file's {}", inode.epoch);
        }
        let changed = self.swap_set(call, id, block, &op.members, synced);
        Ok(pb::MetaReply { metablocks: changed.into_iter().collect(), ..self.attr_reply(id)? })
    }

    /// Puts members in place that have passed [`check_members`]. The version `synced` is on all of them, so it counts
    /// as committed.
    pub(crate) fn swap_set(
        &mut self,
        call: &mut Call<'_>,
        id: InodeId,
        block: MetablockId,
        members: &[pb::Member],
        synced: Version,
    ) -> Option<pb::Metablock> {
        debug_assert!(check_members(members).is_ok(), "{block} gets a set that is not checked: {members:?}");
        let wanted = self.wanted_copies(id);
        // What a snapshot shows of a held file was kept with its lease. Of others only members change.
        let inode = self.edit_unshown(id);
        let dataset = inode.dataset;
        assert!(synced.epoch <= inode.epoch, "{block} gets {synced} before {id} is at that epoch");
        let file = inode.file_mut()?;
        let (old, before) = file.map.get(block).map(|block| (block.members.clone(), block.left_out().to_vec()))?;
        file.map.update(block, |block| {
            block.members = members.into();
            // I-13: a change that was compared with the old set is refused from here on.
            block.generation += 1;
            block.version = block.version.max(synced);
            block.leave_out(&before, wanted);
        });
        let now = file.map.get(block).map(Metablock::to_pb);
        self.replicas.change_set(block, &old, members);
        let (old, new) = (old.to_vec(), members.to_vec());
        call.effects.push(Effect::SetChanged { inode: id, dataset, metablock: block, old, new });
        // Ordering: after the effect of the set, so that services see a member before the extra copy that it replaces
        // ends.
        self.yield_extras(call, id, block, members);
        if !before.is_empty() {
            call.effects.push(Effect::LeftOutChanged { metablock: block, old: before });
        }
        now
    }

    /// The file. Refuses a caller without its write lease under this epoch.
    pub(crate) fn check_holder(&self, call: &Call<'_>, id: InodeId, epoch: Epoch) -> Result<&Inode> {
        let inode = self.inode(id)?;
        if inode.file().is_none() {
            bail!(Invalid, "{id} is not a regular file");
        }
        if inode.holder() != Some(call.session) || inode.epoch != epoch {
            bail!(StaleEpoch, "{} does not hold {id} under {epoch} ({})", call.session, inode.epoch);
        }
        Ok(inode)
    }
}

/// Refuses if the metablock is not the file's, or its set is at another generation.
pub(crate) fn check_generation(id: InodeId, inode: &Inode, block: MetablockId, generation: u64) -> Result<()> {
    let Some(found) = inode.file().and_then(|file| file.map.get(block)) else {
        bail!(NotFound, "{block} is not a metablock of {id}");
    };
    // I-13: a change that was decided on an older set would drop or bring back members.
    if found.generation != generation {
        bail!(SetChanged, "the set of {block} is at generation {}, not {generation}", found.generation);
    }
    Ok(())
}

/// Refuses if the members of the set are not the file's to change; see [`check_generation`].
pub(crate) fn check_set(id: InodeId, inode: &Inode, block: MetablockId, generation: u64) -> Result<()> {
    check_generation(id, inode, block, generation)?;
    // I-65: its members are the RAID set's to change, which looks where they lie.
    let found = inode.file().and_then(|file| file.map.get(block));
    if let Some(id) = found.and_then(|found| found.frozen?.raid_set) {
        bail!(Busy, "{block} is frozen: its members are moved by its RAID set {id} alone");
    }
    Ok(())
}

/// Refuses a malformed set. Each of these makes it so:
/// - it has no members, or more than [`REPLICAS_MAX`];
/// - it counts a node or a volume twice;
/// - two copies belong to one node;
/// - a copy lies on a node that another copy belongs to. That copy could not go home.
pub(crate) fn check_members(members: &[pb::Member]) -> Result<()> {
    if members.is_empty() || members.len() > REPLICAS_MAX as usize {
        bail!(Invalid, "a set of {} members is not between 1 and {REPLICAS_MAX}", members.len());
    }
    let is_id = |raw| (1..=NUMBER_MAX).contains(&raw);
    if let Some(member) = members.iter().find(|member| !is_id(member.node) || !is_id(member.volume)) {
        bail!(Invalid, "a set with volume {} of node {}, which nobody has", member.volume, member.node);
    }
    // I-18: two copies on one node would fail together.
    let nodes: BTreeSet<NodeId> = members.iter().map(pb::Member::node_id).collect();
    let volumes: BTreeSet<VolumeId> = members.iter().map(pb::Member::volume_id).collect();
    if nodes.len() != members.len() || volumes.len() != members.len() {
        bail!(Invalid, "a set must not count a node twice: {members:?}");
    }
    let homes: BTreeSet<NodeId> = members.iter().map(pb::Member::home_id).collect();
    let guests = members.iter().filter(|member| member.is_guest());
    if homes.len() != members.len() || guests.clone().any(|guest| nodes.contains(&guest.home_id())) {
        bail!(Invalid, "two copies of a set belong to one node, or one lies where another belongs: {members:?}");
    }
    Ok(())
}
