//! Options of a group's log.

use std::time::Duration;

use ebb_meta::EPOCH_STEP_MAX;

use crate::log::WalOptions;

/// Settings of a group's log.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// The log's segments.
    pub wal: WalOptions,
    /// A checkpoint is written after this many entries (or an eighth of the inodes, if that is more)...
    pub checkpoint_entries: u64,
    /// ...or this many bytes of them, whichever comes first.
    pub checkpoint_bytes: u64,
    /// Time after which a proposal fails with `Timeout`.
    pub propose_timeout: Duration,
    /// Maximum step by which a command raises an epoch. Each step is random, so that two histories which part do not
    /// give the same epochs. With 1, epochs count up.
    pub epoch_step_max: u64,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            wal: WalOptions::default(),
            // To replay that many takes a fraction of a second. To write a checkpoint of a million files takes some
            // seconds.
            checkpoint_entries: 25_000,
            checkpoint_bytes: 64 << 20,
            propose_timeout: Duration::from_secs(20),
            epoch_step_max: EPOCH_STEP_MAX,
        }
    }
}
