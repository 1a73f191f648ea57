//! Names and numbers under which clients see snapshots of datasets.
//!
//! A file in a snapshot is another inode than the live one, or programs such as tar would take both for hard links. Its number is
//! made of the snapshot's place and the live number:
//! ```text
//!   63   62           47 46                                  0
//!  | 1 |     place      |        inode of the live tree       |
//! ```
//! Place 0 is no snapshot: with the root directory of a dataset it is the directory that lists the dataset's snapshots.

use crate::InodeId;

/// The name in the root directory of a dataset that leads to its snapshots. It is found by name alone: no listing has it.
pub const DIRECTORY: &[u8] = b".snapshot";
/// Inodes from here on have no number in a snapshot.
pub const INODES_END: u64 = 1 << PLACE_SHIFT;

const PLACE_SHIFT: u32 = 47;
/// Ids from counters are below `1 << 62`.
const MARK: u64 = 1 << 63;

/// An inode as a snapshot shows it, or the directory that lists the snapshots of a dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// The snapshot's place among all snapshots, from 1 on; 0: the list of the snapshots of the dataset that is rooted at `inode`.
    pub place: u16,
    /// The inode of the live tree, below [`INODES_END`].
    pub inode: InodeId,
}

impl Shown {
    /// The number for clients.
    #[must_use]
    pub const fn id(self) -> InodeId {
        assert!(self.inode.raw() < INODES_END, "an inode too high for a snapshot: it would be taken for another one");
        InodeId::new(MARK | (self.place as u64) << PLACE_SHIFT | self.inode.raw())
    }
}

impl InodeId {
    /// What the number stands for in a snapshot. None of an inode of the live tree.
    #[must_use]
    pub const fn shown(self) -> Option<Shown> {
        if self.raw() & MARK == 0 {
            return None;
        }
        let place = (self.raw() >> PLACE_SHIFT) as u16;
        Some(Shown { place, inode: Self::new(self.raw() & (INODES_END - 1)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_snapshots_never_meet_live_ones_and_come_back() {
        for (place, inode) in [(0, 1), (1, 1), (7, 12_345), (u16::MAX, INODES_END - 1)] {
            let shown = Shown { place, inode: InodeId::new(inode) };
            assert_eq!(shown.id().shown(), Some(shown));
            assert!(shown.id().raw() > 1 << 62);
        }
        assert_eq!(InodeId::new((1 << 62) - 1).shown(), None);
    }
}
