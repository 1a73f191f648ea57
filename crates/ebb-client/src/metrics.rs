//! Counters of a client's operations, and of the faults that it handled.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::read::cache::Ahead;

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The values of a client's counters since its start.
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
    /// Files whose lease was lost while they had unsynced data. Their next write, fsync or close
    /// returns EIO.
    lost_files,
    /// Unsynced bytes dropped with the lost files.
    lost_bytes,
    /// Sessions opened after the first.
    sessions_expired,
    /// Recalls handled.
    recalls,
    /// Write leases of idle files that became read leases.
    lowered_leases,
    /// Writes sent again to a member that did not have them.
    resent_writes,
    /// Members replaced in a set.
    replaced_members,
    /// Sets that continued with fewer members because no replacement was available.
    shrunk_sets,
    /// Reads that a member refused or did not answer, so that the client asked another member.
    failed_reads,
    /// Reads that a member refused because too much waited there, so that the client asked another member.
    refused_reads,
    /// Reads decoded from other parts of a RAID set, because no member could be asked or had the bytes.
    degraded_reads,
    /// Bytes that were read for those.
    degraded_source_bytes,
    /// Frozen metablocks that were copied for a write.
    thawed_metablocks,
    /// Their bytes.
    thawed_bytes,
    /// Reads sent to a second member because the first took long.
    hedged_reads,
    /// Reads from the files of block servers on this host.
    short_circuit_reads,
    /// Their bytes.
    short_circuit_bytes,
    /// Bytes fetched before a program asked for them.
    ahead_bytes,
    /// Bytes fetched ahead that a program asked for later.
    used_ahead_bytes,
    /// Bytes fetched ahead and dropped from memory before a program asked for them. The remaining
    /// bytes are still in memory.
    unused_ahead_bytes,
    /// Reads that an extra copy answered.
    extra_reads,
    /// Replies whose bytes did not match their checksums.
    corrupt_reads,
    /// Operations that a proxy carried out.
    proxied_operations,
    /// Writes to shared files whose bytes went from this client to the members.
    direct_writes,
    /// Bytes of direct writes.
    direct_bytes,
    /// Direct writes whose bytes a proxy fetched back from a member, because another member had
    /// lost them or sleeps.
    fetched_back_writes,
    /// Attempts to send an operation to a proxy again, because no answer came.
    repeated_operations,
    /// Operations sent to a proxy that no longer had their file.
    moved_operations,
    /// Operations that failed because it is unknown whether a proxy carried them out.
    unknown_operations,
    /// Stays of files at a proxy that ended without a report.
    lost_stays,
    /// Times that the client gave everything back because its node was about to sleep.
    rests,
    /// Calls, answered by way of a proxy, to nodes that are never awake together with the client.
    relayed_calls,
    /// Writes that were logged elsewhere because members slept.
    logged_writes,
    /// Copies of those writes in logs, all together.
    log_copies,
    /// Writes that members which had slept got from the log, one count for each member.
    fed_writes,
    /// Writes that waited because a sleeping member would have exceeded its debt limit.
    waited_writes,
    /// Files committed.
    committed_files,
    /// Commit commands.
    commits,
}

impl Metrics {
    /// Adds the cache's counters of bytes fetched ahead.
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
