//! How far a job is, and its result.

use std::time::Duration;

use ebb_layout::Distance;
use ebb_types::InodeId;

use crate::meter::Carried;

/// Time after which a call to a worker is slow.
pub const SLOW_AFTER: Duration = Duration::from_millis(300);

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Files found so far.
    pub files: u64,
    /// Splits found so far.
    pub splits_found: u64,
    /// Splits counted or given up.
    pub splits_done: u64,
    /// Bytes in the files found so far.
    pub bytes_found: u64,
    /// Bytes in the splits that are done.
    pub bytes_done: u64,
    /// All files were found: the totals above are final.
    pub walked: bool,
    /// The split that a worker has had for longest, if that is longer than [`SLOW_AFTER`].
    pub slowest: Option<Slow>,
}

/// Work that takes long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slow {
    /// The file.
    pub inode: InodeId,
    /// Begin of the split in it, in bytes.
    pub offset: u64,
}

/// The result of a job.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct Report {
    /// Words in all files, as `wc -w` counts them; of a search, lines as `grep -F -c` does.
    pub words: u64,
    /// Time from start to end.
    pub seconds: f64,
    /// Splits that were counted.
    pub splits: u64,
    /// Of these, counted on a host that holds a replica.
    pub local_splits: u64,
    /// Of the splits, counted in the sub-rack of a localized storage node that holds a replica, where no host with a worker
    /// holds one.
    pub sub_rack_splits: u64,
    /// Bytes between hosts, both ways, headers included: on the coordinator's connections and on the workers' own.
    pub network_bytes: u64,
    /// Of these, between hosts of one sub-rack.
    pub sub_rack_bytes: u64,
    /// Splits that no worker could count; their words are missing above.
    pub failed: u64,
    /// Files found.
    pub files: u64,
    /// Their length in all.
    pub input_bytes: u64,
    /// The first errors of failed splits.
    #[serde(skip)]
    pub errors: Vec<String>,
}

impl Report {
    /// Adds what connections have carried.
    pub(crate) fn add_carried(&mut self, carried: Carried) {
        self.network_bytes += carried.network_bytes;
        self.sub_rack_bytes += carried.sub_rack_bytes;
    }

    /// Counts a split that was done so near to a replica.
    pub(crate) fn count_split(&mut self, nearness: Distance) {
        self.splits += 1;
        self.local_splits += u64::from(nearness == Distance::Host);
        self.sub_rack_splits += u64::from(nearness == Distance::SubRack);
    }
}
