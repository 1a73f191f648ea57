//! What went wrong and was dealt with, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::read::cache::Ahead;

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A reading of a client's counters since its start.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Metrics { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Debug, Default)]
        pub(crate) struct Cells { $(pub $name: Cell,)* }

        impl Cells {
            pub fn read(&self) -> Metrics { Metrics { $($name: self.$name.0.load(Ordering::Relaxed),)* } }
        }
    };
}

metrics! {
    /// Files whose lease was lost with unsynced data under it; their next write, fsync or close says EIO.
    lost_files,
    /// Bytes dropped with them.
    lost_bytes,
    /// Sessions opened after the first.
    sessions_expired,
    /// Recalls dealt with.
    recalls,
    /// Write leases of idle files that became read leases.
    lowered_leases,
    /// Writes sent again to a member that did not have them.
    resent_writes,
    /// Members replaced in a set.
    replaced_members,
    /// Sets that went on with fewer members because none was to be had.
    shrunk_sets,
    /// Reads that a member refused or did not answer, and another was asked.
    failed_reads,
    /// Reads that were asked of a second member because the first took long.
    hedged_reads,
    /// Reads from the files of block servers on this host.
    short_circuit_reads,
    /// Bytes fetched before a program asked for them.
    ahead_bytes,
    /// Of these, asked for later.
    used_ahead_bytes,
    /// Of these, dropped from memory before anybody asked for them; the rest is still there.
    unused_ahead_bytes,
    /// Reads that an extra copy answered.
    extra_reads,
    /// Replies whose bytes did not match their checksums.
    corrupt_reads,
    /// Operations that a proxy carried out.
    proxied_operations,
    /// Writes to shared files whose bytes went to the members from here.
    direct_writes,
    /// Their bytes.
    direct_bytes,
    /// Direct writes whose bytes a proxy fetched back from a member, because another one had lost them or sleeps.
    fetched_back_writes,
    /// Attempts to send an operation to a proxy again, because no answer came.
    repeated_operations,
    /// Operations that found that their file was not at that proxy any more.
    moved_operations,
    /// Operations that failed because nobody can say whether a proxy carried them out.
    unknown_operations,
    /// Stays of files at a proxy of whose end nothing was told.
    lost_stays,
    /// Times that everything was given back because this client's node was about to sleep.
    rests,
    /// Calls to nodes that are never awake when the client is, answered by way of a proxy.
    relayed_calls,
    /// Writes that were logged elsewhere because members slept.
    logged_writes,
    /// Writes that waited because a member that sleeps was to take all that it takes within an interval.
    waited_writes,
    /// Files committed.
    committed_files,
    /// Commit commands.
    commits,
}

impl Metrics {
    /// With what the cache counts of bytes that were fetched ahead.
    pub(crate) fn with_ahead(self, ahead: Ahead) -> Self {
        let Ahead { fetched, used, unused } = ahead;
        Self { ahead_bytes: fetched, used_ahead_bytes: used, unused_ahead_bytes: unused, ..self }
    }
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Cell(AtomicU64);

impl Cell {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}
