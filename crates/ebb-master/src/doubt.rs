//! Doubt about a handoff log of the always-on node that may lack writes, and its end.
//!
//! The lost writes belonged to files that were held, or not yet recovered, when this process opened the log. Other
//! files need nothing from it, and later writes are complete. As long as one of these files is where it was, recoveries
//! read the logs of all nodes. Once the last of them is past it, the log counts as whole again.

use std::collections::BTreeMap;

use ebb_meta::Machine;
use ebb_types::{Epoch, InodeId};

/// Files whose writes may be missing from the log, each with its epoch at that time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Doubtful(BTreeMap<InodeId, Epoch>);

impl Doubtful {
    /// All files that are held or in recovery.
    pub fn of(machine: &Machine) -> Self {
        let epoch = |inode| machine.attr(inode).map_or(Epoch::default(), |attr| Epoch::new(attr.epoch));
        Self(machine.uncommitted_files().map(|inode| (inode, epoch(inode))).collect())
    }

    /// Drops files that no longer need the missing writes. Returns whether none is left.
    pub fn is_over(&mut self, machine: &Machine) -> bool {
        self.0.retain(|inode, epoch| !is_past(machine, *inode, *epoch));
        self.0.is_empty()
    }
}

/// Whether writes logged for a file under an epoch are no longer needed. Either the file is gone, or its members have
/// all writes: a lease is given back, and a recovery ends, only then.
pub(crate) fn is_past(machine: &Machine, inode: InodeId, epoch: Epoch) -> bool {
    let Ok(attr) = machine.attr(inode) else { return true };
    let is_later = attr.epoch > epoch.raw() || (attr.epoch == epoch.raw() && machine.holder(inode).is_none());
    is_later && !attr.size_unknown
}
