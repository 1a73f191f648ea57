//! Setting the size without data: `truncate(2)`, `O_TRUNC`, and growth by a hole.
//!
//! ```text
//!  metablock   |   0   |   1   |   2   |   3   |
//!  size before |-----------------------------|
//!  cut         |------------|
//!                       |   ^ trim: a versioned write by the holder cuts the members of metablock 1 here
//!                       |       | freed at once |
//! ```
//! Setting the size needs the write lease, as only the holder knows how far the file reaches. There is one exception.
//! If no session holds the file, setting the recorded size changes times only.

use std::sync::Arc;

use ebb_types::{InodeId, MetablockId, Result, Version, bail};
use ebb_wire::convert::version;
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use crate::inode::{FILE_SIZE_MAX, FileBody, Inode};
use crate::machine::{Call, Machine};
use crate::map::{Frozen, Metablock};
use crate::permission::{self, WRITE};

impl Machine {
    /// Refuses a size that this request may not set now.
    pub(crate) fn check_size(&self, call: &Call<'_>, op: &meta_op::SetAttr, id: InodeId, inode: &Inode) -> Result<()> {
        if inode.is_directory() {
            bail!(IsDirectory, "{id} is a directory");
        }
        let Some(file) = inode.file() else { bail!(Invalid, "{id} is not a regular file: it has no size to set") };
        if !op.by_handle {
            permission::check(id, inode, &call.credentials, WRITE)?;
        }
        let size = op.size.unwrap_or(inode.size);
        if size > FILE_SIZE_MAX {
            bail!(FileTooLarge, "a size of {size} bytes is above {FILE_SIZE_MAX}");
        }
        check_lease(call, op, id, inode, file)?;
        if size > inode.size && file.trim.is_some() {
            bail!(
                Busy,
                "{id} may not grow before the trim of its last cut is on all members: commit it with `trimmed`"
            );
        }
        let metablock_size = self.datasets.settings(inode.dataset).metablock_size;
        let place = Place { id, inode, metablock_size, frozen_below: self.frozen_below(id, inode) };
        check_committed(&op.committed, place, file)?;
        check_trim(op, place, file, size)
    }

    /// Sets a size that has passed [`Self::check_size`].
    pub(crate) fn cut(&mut self, call: &mut Call<'_>, op: &meta_op::SetAttr, id: InodeId, size: u64) {
        let inode = self.edit(id);
        let dataset = inode.dataset;
        let metablock_size = self.datasets.settings(dataset).metablock_size;
        let (index, edge) = (size / metablock_size, size % metablock_size);
        let frozen_below = self.frozen_below_of(id);
        let inode = self.edit(id);
        let Some(file) = inode.file_mut() else { return };
        let held = file.holder.is_some();
        merge(file, &op.committed, call.now_s());
        // Ordering: after `merge`, which may raise lengths that the cut reduces.
        let gone = file.map.remove_where(|block| block.index > index || (block.index == index && edge == 0));
        if let Some(block) = file.map.at_index(index).map(|block| block.id) {
            file.map.update(block, |block| {
                // What its members have is longer from now on, and the rule does not say how long.
                if block.frozen.is_none() && block.is_frozen(frozen_below) && edge < block.length {
                    block.frozen = Some(Frozen { raid_set: None, slot: 0, length: block.length });
                }
                block.length = block.length.min(edge);
            });
        }
        let beyond = file.map.starting_at(index + u64::from(edge > 0));
        assert!(beyond.is_empty(), "{id} is cut to {size} bytes and keeps a metablock behind its end");
        file.trim = remaining_trim(file, op, edge);
        inode.size = size;
        // A commit that is on its way names the size from before, and is refused by this number.
        if held {
            inode.size_generation += 1;
        }
        inode.modified(call.now);
        if !call.credentials.is_root() {
            inode.kill_privileges();
        }
        let dataset = inode.dataset;
        for block in &gone {
            self.lose_metablock(call, id, dataset, block);
        }
        // One of the metablock that is cut may have more than that shows.
        self.end_heirs(call, id, |heir| heir.index >= index);
    }
}

fn check_lease(call: &Call<'_>, op: &meta_op::SetAttr, id: InodeId, inode: &Inode, file: &FileBody) -> Result<()> {
    match file.holder {
        _ if file.recovering => bail!(Busy, "{id} is being recovered: its size is not known yet"),
        Some(holder) if holder != call.session => bail!(LeaseHeld, "{id} is being written by {holder}"),
        Some(_) if op.epoch != inode.epoch.raw() => {
            bail!(StaleEpoch, "{id} is at {}, not e{}: the lease was lost", inode.epoch, op.epoch)
        }
        None if op.size != Some(inode.size) => {
            bail!(StaleEpoch, "setting the size of {id} needs its write lease, and {} has none", call.session)
        }
        _ => Ok(()),
    }
}

/// A file that a holder tells of, and what bounds it.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) id: InodeId,
    pub(super) inode: &'a Inode,
    /// In bytes.
    pub(super) metablock_size: u64,
    /// Snapshots have metablocks with lower ids.
    pub(super) frozen_below: MetablockId,
}

/// Checks the metablocks that a holder names: they are the file's, and within their size and the file's epoch.
pub(super) fn check_committed(committed: &[pb::CommitMetablock], place: Place<'_>, file: &FileBody) -> Result<()> {
    let Place { id, inode, metablock_size, frozen_below } = place;
    for entry in committed {
        let block = MetablockId::new(entry.id);
        if file.map.get(block).is_none() {
            bail!(NotFound, "{block} is not a metablock of {id}: it was freed, or is another file's");
        }
        if entry.length > metablock_size {
            bail!(Invalid, "{block} of {id}: {} bytes are more than a metablock of {metablock_size}", entry.length);
        }
        let is_frozen = file.map.get(block).is_some_and(|found| {
            found.is_frozen(frozen_below) && (version(entry.version), entry.length) != (found.version, found.length)
        });
        // I-63: what is written goes to an heir.
        if is_frozen {
            bail!(Busy, "{block} of {id} is frozen: a write goes to its heir");
        }
        if version(entry.version).epoch > inode.epoch {
            bail!(Invalid, "{block} of {id}: version {} is ahead of the file's epoch", version(entry.version));
        }
    }
    Ok(())
}

/// Records what a holder has synced. Commits may overtake each other, so the length of the highest version counts.
pub(super) fn merge(file: &mut FileBody, committed: &[pb::CommitMetablock], now_s: u64) {
    for entry in committed {
        let reported = version(entry.version);
        file.map.update(MetablockId::new(entry.id), |block: &mut Metablock| {
            // A further commit of the recorded version repeats known facts. It never shortens the length.
            if reported > block.version {
                block.version = reported;
                block.length = entry.length;
                block.committed_s = now_s;
            } else if reported == block.version {
                block.length = block.length.max(entry.length);
            }
        });
    }
}

/// A cut inside the bytes of a metablock needs a trim. A trim needs such a metablock, and a version above its last.
fn check_trim(op: &meta_op::SetAttr, place: Place<'_>, file: &FileBody, size: u64) -> Result<()> {
    let Place { id, inode, metablock_size, frozen_below } = place;
    let (index, edge) = (size / metablock_size, size % metablock_size);
    // A cut inside what is frozen is recorded, and not carried out.
    let block = file.map.at_index(index).filter(|block| edge != 0 && !block.is_frozen(frozen_below));
    let reported = op.committed.iter().rfind(|entry| block.is_some_and(|block| entry.id == block.id.raw()));
    let Some(trim) = &op.trim else {
        let recorded = block.filter(|_| size < inode.size).map_or(0, |block| block.length);
        let length = reported.map_or(0, |entry| entry.length).max(recorded);
        if length > edge {
            bail!(Invalid, "cutting {id} to {size} bytes cuts a metablock of {length} bytes: name its trim");
        }
        return Ok(());
    };
    let Some(block) = block.filter(|block| block.id.raw() == trim.metablock) else {
        bail!(Invalid, "the trim of {id} names m{}, which a cut at {size} does not cut", trim.metablock);
    };
    let last: Version = block.version.max(version(reported.and_then(|entry| entry.version)));
    let at = version(trim.version);
    // The trim is a write of its own: at a version that was sent before, a member would take it for done.
    if trim.length != edge || at.epoch != inode.epoch || at <= last {
        bail!(
            Invalid,
            "the trim of {} to {} bytes at {at} does not follow {last} at {edge} bytes",
            block.id,
            trim.length
        );
    }
    Ok(())
}

/// The trim that members may lack: the new one, or an older one that is not done.
fn remaining_trim(file: &FileBody, op: &meta_op::SetAttr, edge: u64) -> Option<Arc<meta_op::Trim>> {
    if let Some(trim) = &op.trim {
        return Some(Arc::new(*trim));
    }
    let old = file.trim.as_ref()?;
    file.map.get(MetablockId::new(old.metablock))?;
    Some(Arc::new(meta_op::Trim { length: old.length.min(edge), ..**old }))
}
