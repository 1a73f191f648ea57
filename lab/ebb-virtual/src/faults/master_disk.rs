//! Faults of the master's disk.
//!
//! The names have one copy as long as there is one master. An error that the disk reports may cost no acknowledged
//! change. Bits that flip are noticed at a start: the master refuses the file and names it. An operator then puts a
//! saved copy of that file back, which here is the same bit flipped again. A master that starts all the same has
//! everything, or the run's checks find the loss.

use std::path::PathBuf;
use std::time::Duration;

use ebb_runtime::virt::{Dice, DiskWork, PlannedFault};

use super::kind::Undo;
use crate::cluster::{Cluster, Member};

/// Where the master keeps everything.
pub const MASTER_DIR: &str = "/master";

/// A bit that is wrong on the master's disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rot {
    /// The file.
    pub path: PathBuf,
    /// The byte.
    pub offset: u64,
}

/// How long the master goes on after an error before its power fails: some starts, and changes behind them.
pub fn error_span(dice: &mut Dice) -> Duration {
    dice.span_between(Duration::from_secs(2), Duration::from_secs(8))
}

/// The disk fails once and is good again: the master ends, and its next process reads the page cache. Then the power
/// fails.
pub fn begin_error(member: &Member, dice: &mut Dice) -> Undo {
    let work = [DiskWork::Sync, DiskWork::Sync, DiskWork::Sync, DiskWork::Write, DiskWork::Read, DiskWork::SyncDir];
    let skip = u32::try_from(dice.below(3)).unwrap_or(0);
    member.process.plan_disk_fault(PlannedFault { skip, ..PlannedFault::next(*dice.pick(&work), MASTER_DIR) });
    let again = member.clone();
    Box::new(move |cluster| {
        again.process.cancel_disk_faults();
        again.process.crash();
        cluster.restart(&again);
    })
}

/// A bit flips while the master is killed and started again.
pub fn begin_rot(cluster: &Cluster, member: &Member, dice: &mut Dice) -> Undo {
    member.process.kill();
    let files: Vec<_> =
        member.process.disk_files().into_iter().filter(|(path, _)| path.starts_with(MASTER_DIR)).collect();
    let written: Vec<(PathBuf, usize)> = files
        .into_iter()
        .filter_map(|(path, _)| {
            let bytes = member.process.disk_content(&path)?;
            let end = bytes.iter().rposition(|byte| *byte != 0)? + 1;
            // The last batches may be younger than the hint that distinguishes them from torn ones
            // (docs/formats/master-log.md).
            let is_log = path.extension().is_some_and(|end| end == "segment");
            Some((path, if is_log { end / 2 } else { end }))
        })
        .collect();
    if cluster.rot().is_none() && !written.is_empty() {
        let (path, end) = dice.pick(&written).clone();
        let rot = Rot { path, offset: dice.below(end.max(1) as u64) };
        // The file was there a moment ago, and its process has ended.
        if member.process.flip_bits(&rot.path, rot.offset, 1).is_ok() {
            *cluster.rot() = Some(rot);
        }
    }
    cluster.restart(member);
    Box::new(|_| {})
}

/// Does the operator's part that the refusal asks for: the file is put back. False: no damage to it is known.
pub fn restore(cluster: &Cluster, member: &Member, refusal: &str) -> bool {
    let Some(rot) = cluster.rot().clone() else { return false };
    if !refusal.contains(&rot.path.display().to_string()) {
        return false;
    }
    *cluster.rot() = None;
    member.process.flip_bits(&rot.path, rot.offset, 1).is_ok()
}
