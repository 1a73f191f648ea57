//! Recovery of a file whose holder is gone, and changes of sets by the master.

use std::collections::BTreeMap;

use ebb_types::{DatasetId, Epoch, InodeId, MetablockId, Result, Version, bail};
use ebb_wire::pb;

use crate::inode::{FILE_SIZE_MAX, Inode};
use crate::machine::{Call, Machine};
use crate::map::Metablock;
use crate::ops::grant::check_set;
use crate::outcome::{Effect, Reply};

impl Machine {
    /// Starts a recovery: raises the epoch, and fences off the holder, if there still is one. A recovery that ended
    /// half-way starts again by the same command.
    pub(crate) fn begin_recovery(&mut self, call: &mut Call<'_>, op: &pb::BeginRecovery) -> Result<Reply> {
        let id = InodeId::new(op.inode);
        let inode = self.inode(id)?;
        if inode.file().is_none() {
            bail!(Invalid, "{id} is not a regular file: it needs no recovery");
        }
        if inode.epoch.raw() != op.expected_epoch {
            bail!(StaleEpoch, "{id} is at {}, not e{}", inode.epoch, op.expected_epoch);
        }
        self.lose_lease(call, id);
        self.drop_extras(call, id);
        let inode = self.inode(id)?;
        if !inode.recovering() {
            self.snapshots.freeze_for(id, self.newly_frozen_below(inode.dataset));
        }
        assert!(self.inode(id)?.holder().is_none(), "{id} has a holder that its recovery does not fence off");
        let epoch = self.lineage.raised(self.inode_epoch(id), call.step);
        let inode = self.edit(id);
        inode.epoch = epoch;
        if let Some(file) = inode.file_mut() {
            file.recovering = true;
        }
        self.recovering.insert(id);
        call.changed(id);
        Ok(Reply::Epoch(epoch))
    }

    /// Records what the recovery found, whole or not at all. It must name every metablock that was ever committed. If
    /// one is missing, its members were not stamped: the recovery is not finished.
    pub(crate) fn finish_recovery(&mut self, call: &mut Call<'_>, op: &pb::FinishRecovery) -> Result<Reply> {
        let id = InodeId::new(op.inode);
        let found: BTreeMap<MetablockId, &pb::Metablock> =
            op.metablocks.iter().map(|block| (block.metablock_id(), block)).collect();
        self.check_recovered(id, op, &found)?;

        self.counted(id, |machine| machine.take_found(call, id, op, &found));
        call.changed(id);
        Ok(Reply::None)
    }

    fn take_found(
        &mut self,
        call: &mut Call<'_>,
        id: InodeId,
        op: &pb::FinishRecovery,
        found: &BTreeMap<MetablockId, &pb::Metablock>,
    ) {
        let frozen_below = self.frozen_below_of(id);
        let inode = self.edit(id);
        let before = inode.size;
        inode.size = inode.size.max(op.size);
        if op.written || inode.size != before {
            inode.modified(call.now);
        }
        let dataset = inode.dataset;
        let Some(file) = inode.file_mut() else { return };
        file.recovering = false;
        file.trim = None;
        // A metablock without a version has no bytes: it is freed, as at a release.
        let unwritten = |block: &Metablock| {
            is_recovered(block, frozen_below)
                && found.get(&block.id).is_none_or(|found| found.min_version() == Version::ZERO)
        };
        let gone = file.map.remove_where(unwritten);
        assert!(self.recovering.remove(&id).is_some(), "the recovery of {id} is not in the index");
        self.snapshots.thaw_for(id);
        for block in &gone {
            self.lose_metablock(call, id, dataset, block);
        }
        for (block, found) in found {
            self.stamp(call, id, *block, found);
        }
    }

    fn check_recovered(
        &self,
        id: InodeId,
        op: &pb::FinishRecovery,
        found: &BTreeMap<MetablockId, &pb::Metablock>,
    ) -> Result<()> {
        let inode = self.inode(id)?;
        let Some(file) = inode.file().filter(|file| file.recovering && inode.epoch.raw() == op.epoch) else {
            bail!(StaleEpoch, "{id} is not being recovered under e{} ({})", op.epoch, inode.epoch);
        };
        if op.size > FILE_SIZE_MAX {
            bail!(FileTooLarge, "a size of {} bytes is above {FILE_SIZE_MAX}", op.size);
        }
        let metablock_size = self.datasets.settings(inode.dataset).metablock_size;
        let frozen_below = self.frozen_below(id, inode);
        for (block, found) in found {
            match file.map.get(*block) {
                None => bail!(NotFound, "{block} is not a metablock of {id}"),
                Some(recorded) if !is_recovered(recorded, frozen_below) => bail!(Invalid, "{block} of {id} is frozen"),
                Some(_) => {}
            }
            if found.min_version() == Version::ZERO {
                continue;
            }
            self.check_placement(&found.members)?;
            if found.length > metablock_size || found.min_version().epoch > inode.epoch {
                bail!(Invalid, "{block} of {id}: {} bytes at {}", found.length, found.min_version());
            }
        }
        // I-15: a committed version is on every member of its set. A recovery that found less has not asked all of
        // them.
        let written = |block: &&Metablock| is_recovered(block, frozen_below) && block.version != Version::ZERO;
        let missing = file
            .map
            .iter()
            .filter(written)
            .find(|block| found.get(&block.id).is_none_or(|found| found.min_version() < block.version));
        if let Some(block) = missing {
            bail!(Invalid, "{} of {id} was committed at {} and not found again", block.id, block.version);
        }
        Ok(())
    }

    fn stamp(&mut self, call: &mut Call<'_>, id: InodeId, block: MetablockId, found: &pb::Metablock) {
        let (wanted, now_s) = (self.wanted_copies(id), call.now_s());
        let Some(file) = self.edit(id).file_mut() else { return };
        let Some((old, before)) = file.map.get(block).map(|block| (block.members.clone(), block.left_out().to_vec()))
        else {
            return;
        };
        file.map.update(block, |block| {
            assert!(found.min_version() >= block.version, "a recovery takes {} back", block.id);
            block.version = found.min_version();
            block.length = found.length;
            block.committed_s = now_s;
        });
        // The set is swapped after the version, so that the new members are recorded with their versions.
        if *old != found.members[..] {
            self.swap_set(call, id, block, &found.members, Version::ZERO);
        }
        let Some(file) = self.edit(id).file_mut() else { return };
        file.map.update(block, |block| block.leave_out(&found.left_out, wanted));
        if !before.is_empty() || !found.left_out.is_empty() {
            call.effects.push(Effect::LeftOutChanged { metablock: block, old: before });
        }
    }

    /// How many copies a file's metablocks are to have.
    pub(crate) fn wanted_copies(&self, id: InodeId) -> usize {
        self.inode(id).map_or(0, |inode| self.wanted_in(inode.dataset))
    }

    /// The same of a dataset.
    pub(crate) fn wanted_in(&self, dataset: DatasetId) -> usize {
        self.datasets.settings(dataset).replicas.max(1) as usize
    }

    /// Replaces a set for the master. This is a compare-and-swap on epoch and generation, while the file has no holder.
    pub(crate) fn master_change_set(&mut self, call: &mut Call<'_>, op: &pb::MasterChangeSet) -> Result<Reply> {
        let (id, block) = (InodeId::new(op.inode), MetablockId::new(op.metablock));
        let inode = self.inode(id)?;
        check_idle(id, inode, Epoch::new(op.epoch))?;
        check_set(id, inode, block, op.generation)?;
        self.check_placement(&op.members)?;
        self.swap_set(call, id, block, &op.members, Version::ZERO);
        call.changed(id);
        Ok(Reply::None)
    }
}

/// Refuses if the file has a holder, is being recovered, or is at another epoch.
pub(crate) fn check_idle(id: InodeId, inode: &Inode, epoch: Epoch) -> Result<()> {
    if inode.epoch != epoch {
        bail!(StaleEpoch, "{id} is at {}, not {epoch}", inode.epoch);
    }
    if let Some(holder) = inode.holder() {
        bail!(LeaseHeld, "{id} is being written by {holder}, which alone changes its sets");
    }
    if inode.recovering() {
        bail!(Busy, "{id} is being recovered");
    }
    Ok(())
}

/// Whether a recovery asks for a metablock, stamps it, and frees it if it was never written. It leaves out what is frozen:
/// nobody writes that, its only copy may sleep (I-63), and a snapshot reads exactly the version that it has.
pub(crate) fn is_recovered(block: &Metablock, frozen_below: MetablockId) -> bool {
    !block.is_frozen(frozen_below)
}
