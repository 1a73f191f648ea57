//! RAID sets: which cold metablocks give up copies for check metablocks, which of their members stay, and where the rows
//! lie (Fan, Tantisiriroj, Xiao, Gibson: *DiskReduce*).
//!
//! A **RAID set** has `k` **slots**, each for a data metablock of any length, and `m` **rows**, each for a check
//! metablock as long as the longest slot. An empty slot is zeros. A slot is **thin** when it has as few members as its
//! code keeps. What is asked here, and where it is answered:
//!
//! | question | answer |
//! |---|---|
//! | can the cluster hold, heal, keep through a rack's loss a redundancy? | [`explain_unfit`] |
//! | which metablocks go together, and when? | [`grouping`] |
//! | which member of each stays, where do rows go, what is repacked? | [`choose_sets`] |
//! | which member of each stays beside rows that are there? | [`choose_stays`] |
//! | do members lie where they may? | [`check_spread`] |
//! | is everything decodable, how many losses are left, what is mended first? | [`tolerates`], [`fewest_fatal_losses`] |
//! | where is a lost member made again? | [`choose_rebuild`] |
//! | the same inside one node, where volumes lie apart | [`volumes`] |
//!
//! The caller asks with a batch: what is due in some directories, not all that the dataset has. What it knows of the
//! rest is [`Held`]: two numbers for each node, kept as members come and go.
//!
//! Three rules come before all wishes. A plan keeps the spread rule ([`spread`]). It never takes a node that is off or has no
//! room. And chance has no part: one copy of three, kept by lot, makes some nodes hold twice as much as others, and a
//! read of everything wait for these.
//!
//! Reading order: [`spread`], [`losses`], `rule.rs` (what each layout wants), [`grouping`], `matching.rs`, `draft.rs` (a
//! RAID set while it is filled), `rows.rs`, [`repack`], [`sets`], [`rebuild`], [`fit`], [`volumes`].

use std::sync::Arc;
use std::time::Duration;

use ebb_types::{InodeId, MetablockId, NodeId, VolumeId};

mod draft;
pub mod fit;
pub mod grouping;
pub mod losses;
mod matching;
pub mod plan;
pub mod rebuild;
pub mod repack;
mod rows;
mod rule;
pub mod sets;
mod sites;
pub mod spread;
pub mod stays;
#[cfg(test)]
mod tests;
pub mod volumes;
mod work;

pub use fit::{Wish, explain_unfit};
pub use losses::{RebuildTime, choose_rebuild_time, fewest_fatal_losses, tolerates};
pub use plan::{KeptSet, Left, LeftReason, PlannedSlot, RaidPlan, RaidPlans, SetReason};
pub use rebuild::{RebuildAsk, choose_rebuild};
pub use repack::{KeptReason, OldSet, OldSlot, RepackReason, Room, SlotLife, choose_repack};
pub use rule::RaidRule;
pub use sets::choose_sets;
pub use sites::Sites;
pub use spread::{Part, Racks, RaidMembers, Seat, SpreadRule, Violation, check_spread};
pub use stays::choose_stays;
pub use volumes::{choose_sets_on_volumes, explain_unfit_volumes, rule_on_volumes, stand_in, stand_ins};
pub use work::{Held, row_len_bytes, row_room_bytes};

use crate::{ChainView, LayoutKind};

/// A metablock that could become a slot. All its members are good, and none is a guest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Candidate {
    /// Itself.
    pub metablock: MetablockId,
    /// Its file.
    pub inode: InodeId,
    /// The directory of its file.
    pub directory: InodeId,
    /// Which metablock of the file.
    pub index: u64,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// For how long it has been due.
    pub waited: Duration,
    /// In the order of its record.
    pub members: Vec<(NodeId, VolumeId)>,
}

/// Input of [`choose_sets`] besides what is to be encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RaidAsk {
    /// What is due for so long makes a RAID set with anything of its dataset.
    pub delay: Duration,
    /// How much room there is. Where it is tight nothing waits.
    pub room: Room,
}

/// Metablocks of less than this are left in their copies, by the dataset's metablock size.
///
/// In the size distributions of DiskReduce's clusters these hold 0.1 to 0.35 % of the bytes, and are most of the files:
/// it costs 0.6 % of space at most to leave them, and spares most of the records.
#[must_use]
pub fn least_len_bytes(metablock_size: u64) -> u64 {
    (1 << 20).min(metablock_size / 4)
}

/// A dataset's layout and, if it goes by one, its chain.
#[derive(Clone, PartialEq, Debug)]
pub struct LayoutShape {
    /// The layout.
    pub layout: LayoutKind,
    /// Its chain or circle.
    pub chain: Option<Arc<ChainView>>,
}
