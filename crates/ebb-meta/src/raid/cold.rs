//! Metablocks that could become slots of RAID sets.

use std::collections::BTreeSet;

use ebb_types::{DatasetId, InodeId, MetablockId, Version};
use ebb_wire::pb;

use crate::Machine;
use crate::map::Metablock;

/// A metablock that could become a slot. As a rule no RAID set has it, and it has as many copies as wanted, as far as the
/// records say.
#[derive(Clone, PartialEq, Debug)]
pub struct Cold {
    /// Itself.
    pub metablock: MetablockId,
    /// Its file. A snapshot may have it alone, and the file may be gone.
    pub inode: InodeId,
    /// A directory with a name of the file. 0: a snapshot has the metablock alone.
    pub directory: InodeId,
    /// Which metablock of the file.
    pub index: u64,
    /// Its committed version.
    pub version: Version,
    /// The length of its replicas in bytes. The file may show less.
    pub length: u64,
    /// When that version was committed, in seconds since 1970.
    pub committed_s: u64,
    /// Its members.
    pub members: Vec<pb::Member>,
    /// Whether it is frozen already, so that no writer needs to be asked.
    pub is_frozen: bool,
}

/// Which metablocks are old and long enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Length of the shortest, in bytes.
    pub min_len: u64,
    /// Full ones were committed at this second since 1970, or earlier.
    pub full_s: u64,
    /// The same for the last one of a file, to which more may be appended.
    pub last_s: u64,
}

impl Due {
    /// Whether the last change is long enough ago. `full`: length of a full metablock of the dataset, in bytes.
    pub(super) fn is_old(&self, block: &Metablock, full: u64) -> bool {
        block.committed_s <= if block.length < full { self.last_s } else { self.full_s }
    }
}

/// Whether all copies are there and at home, and no truncation still shortens the metablock.
///
/// `wanted`: number of copies. `trimmed`: the metablock of the file's truncation.
pub(super) fn is_settled(block: &Metablock, wanted: usize, trimmed: Option<u64>) -> bool {
    block.members.len() >= wanted
        && block.left_out().is_empty()
        && trimmed != Some(block.id.raw())
        && !block.members.iter().any(pb::Member::is_guest)
}

impl Machine {
    /// Metablocks of a dataset that are due and could become slots now: those of files in the order of their directories, then those
    /// that snapshots alone have. It walks all names.
    ///
    /// `is_asked`: files whose metablocks are due whatever their age. A Seal asks the same again, and whether a lease
    /// or a recovery is in its way.
    pub fn cold_metablocks<'a>(
        &'a self,
        dataset: DatasetId,
        due: Due,
        is_asked: impl Fn(InodeId) -> bool + Clone + 'a,
    ) -> impl Iterator<Item = Cold> + 'a {
        let full = self.datasets.settings(dataset).metablock_size;
        let is_due = move |block: &Metablock, now: bool| {
            block.frozen.is_none_or(|frozen| frozen.raid_set.is_none())
                && block.version != Version::ZERO
                && block.length >= due.min_len
                && (now || due.is_old(block, full))
        };
        let mut several_names = BTreeSet::new();
        let files = self.names().filter_map(move |named| {
            let inode = self.inodes.get(&named.inode).filter(|inode| inode.dataset == dataset)?;
            let file = inode.file().filter(|_| !inode.recovering())?;
            (inode.nlink < 2 || several_names.insert(named.inode)).then_some((named, file))
        });
        let asked = is_asked.clone();
        let live = files.flat_map(move |(named, file)| {
            let wanted = self.wanted_copies(named.inode);
            let trimmed = file.trim.as_ref().map(|trim| trim.metablock);
            let now = asked(named.inode);
            let blocks = file.map.iter().filter(move |block| is_due(block, now) && is_settled(block, wanted, trimmed));
            blocks.map(move |block| Cold::new(block, named.inode, named.parent))
        });
        let wanted = self.wanted_in(dataset);
        let kept = self.snapshots.kept.iter().map(|(_, kept)| kept).filter(move |kept| {
            kept.dataset == dataset
                && is_due(&kept.block, is_asked(kept.inode))
                && is_settled(&kept.block, wanted, None)
        });
        // Its file may be gone: those of one file go together, whatever directory it was in.
        live.chain(kept.map(|kept| Cold::new(&kept.block, kept.inode, InodeId::default())))
    }
}

impl Cold {
    fn new(block: &Metablock, inode: InodeId, directory: InodeId) -> Self {
        Self {
            metablock: block.id,
            inode,
            directory,
            index: block.index,
            version: block.version,
            length: block.stored_length(),
            committed_s: block.committed_s,
            members: block.members.to_vec(),
            is_frozen: block.frozen.is_some(),
        }
    }
}
