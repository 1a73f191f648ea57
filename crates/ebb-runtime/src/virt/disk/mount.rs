//! A spindle as one life of the process found it, and the failures that end this.
//!
//! A spindle that fails takes its file system with it, as on Linux: memory that was not written is lost as in a power cut,
//! and everything ends with an I/O error. Once it is there again it is mounted anew. What was opened or begun before stays
//! dead for good, so nobody takes bytes for written that went down with the old mount.

use std::path::Path;

use ebb_types::{Result, bail};

use super::inode::Inode;
use super::{State, VirtualDisk};

/// What is on a spindle that is there again after its failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restored {
    /// What a power cut at the moment of the failure would have left.
    AsItWas,
    /// Nothing: it is another one.
    Empty,
}

/// What an operation was begun on, or a file opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mount {
    /// Of the process.
    pub(super) life: u64,
    /// The spindle's index.
    pub(super) spindle: usize,
    /// How often it had failed before.
    failures: u64,
}

impl State {
    /// Where a path leads to.
    pub(super) fn mount(&self, life: u64, path: &Path) -> Mount {
        let spindle = self.spindles.index_of(path);
        Mount { life, spindle, failures: self.spindles[spindle].failures }
    }

    /// Whether the spindle is still there, and has been all the time. The caller has looked at the life.
    pub(super) fn is_mounted(&self, mount: Mount) -> bool {
        let medium = &self.spindles[mount.spindle];
        !medium.has_failed && medium.failures == mount.failures
    }

    /// Refuses work on a spindle that has failed.
    pub(super) fn check_mount(&self, mount: Mount, kind: &str, path: &Path) -> Result<()> {
        if !self.is_mounted(mount) {
            bail!(Io, "cannot {kind} {}: input/output error, its spindle has failed", path.display());
        }
        Ok(())
    }

    /// Memory is lost that belongs to some spindles: of each unsynced change it is drawn what becomes of it. Returns how
    /// often what happened, by the names of the faults.
    pub(super) fn lose_memory(&mut self, is_hit: impl Fn(usize) -> bool) -> [(&'static str, u64); 3] {
        let Self { in_flight, inodes, names, dice, spindles, ahead, .. } = self;
        for (number, (file, change)) in std::mem::take(in_flight) {
            let inode = inodes.get_mut(&file).expect("a file with work in progress is open");
            if !is_hit(inode.spindle) {
                in_flight.insert(number, (file, change));
            } else if dice.coin() {
                inode.change(number, change);
            }
        }
        let (mut lost, mut torn) = (0, 0);
        for inode in inodes.values_mut().filter(|inode| is_hit(inode.spindle)) {
            let toll = inode.crash(dice);
            lost += toll.lost;
            torn += toll.torn;
        }
        let (lost_names, _) = names.crash(dice, |path| is_hit(spindles.index_of(path)));
        ahead.retain(|file| inodes.get(&file).is_some_and(|inode| !is_hit(inode.spindle)));
        for spindle in (0..spindles.count()).filter(|spindle| is_hit(*spindle)) {
            spindles[spindle].forget_queue();
        }
        [("lost_write", lost), ("torn_write", torn), ("lost_name", lost_names)]
    }

    /// Empties files without a name on a spindle. Handles that are dead keep them, and they must not take space there.
    fn empty_unnamed(&mut self, spindle: usize) {
        self.collect();
        let Self { inodes, names, .. } = self;
        let is_lost = |(number, inode): &(&u64, &mut Inode)| inode.spindle == spindle && !names.lead_to(**number);
        for (_, inode) in inodes.iter_mut().filter(is_lost) {
            inode.lose_everything();
        }
    }
}

impl VirtualDisk {
    /// A spindle fails, until it is restored. False if it has failed already.
    pub(in crate::virt) fn fail_spindle(&self, spindle: usize) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        let medium = &mut state.spindles[spindle];
        if std::mem::replace(&mut medium.has_failed, true) {
            return false;
        }
        medium.failures += 1;
        let losses = state.lose_memory(|index| index == spindle);
        state.empty_unnamed(spindle);
        let State { locks, spindles, .. } = state;
        locks.retain(|path| spindles.index_of(path) != spindle);
        self.count_losses(losses);
        true
    }

    /// A spindle that has failed is there again. False if it has not failed.
    pub(in crate::virt) fn restore_spindle(&self, spindle: usize, restored: Restored) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        if !std::mem::replace(&mut state.spindles[spindle].has_failed, false) {
            return false;
        }
        if restored == Restored::Empty {
            let State { names, spindles, .. } = state;
            names.wipe_where(|path| spindles.index_of(path) == spindle && !spindles.leads_to_mount(path));
            state.empty_unnamed(spindle);
        }
        true
    }
}
