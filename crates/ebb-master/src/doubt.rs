//! A log of the always-on node that may lack something, and until when that matters.
//!
//! What such a log lost belonged to files that were held, or not yet recovered, when this process opened it: of no other
//! file anything is needed, and what was logged since is there. As long as one of these files is where it was, recoveries
//! read the logs of all nodes. Once the last of them is past it, the log counts as whole again.

use std::collections::BTreeMap;

use ebb_meta::Machine;
use ebb_types::{Epoch, InodeId};

/// Files of which something may be missing, with the epoch that each was at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Doubtful(BTreeMap<InodeId, Epoch>);

impl Doubtful {
    /// Every file that is held or being recovered.
    pub fn of(machine: &Machine) -> Self {
        let epoch = |inode| machine.attr(inode).map_or(Epoch::default(), |attr| Epoch::new(attr.epoch));
        Self(machine.uncommitted_files().map(|inode| (inode, epoch(inode))).collect())
    }

    /// Forgets files that are past what could be missing; true: none is left.
    pub fn is_over(&mut self, machine: &Machine) -> bool {
        self.0.retain(|inode, epoch| !is_past(machine, *inode, *epoch));
        self.0.is_empty()
    }
}

/// Whether nobody needs anything that was logged for a file under an epoch: it is gone, or its members have everything, for
/// only then a lease is given back, and a recovery ends.
pub(crate) fn is_past(machine: &Machine, inode: InodeId, epoch: Epoch) -> bool {
    let Ok(attr) = machine.attr(inode) else { return true };
    let is_later = attr.epoch > epoch.raw() || (attr.epoch == epoch.raw() && machine.holder(inode).is_none());
    is_later && !attr.size_unknown
}
