//! The model's numbers.

use std::time::Duration;

use ebb_types::ErrorKind;

use crate::SeededBug;
use crate::disk::Compression;
use crate::net::UNACKNOWLEDGED_MAX;

/// How a world behaves.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// Between different hosts.
    pub link: LinkOptions,
    /// Within a host.
    pub local: LinkOptions,
    /// Of every process, unless a process gets its own.
    pub disk: DiskOptions,
    /// Bytes that a connection takes in one direction before its writer waits: send buffer, wire and receive buffer.
    pub window_bytes: usize,
    /// Bytes that the kernel sends as one, before another connection has its turn at the port.
    pub segment_bytes_max: usize,
    /// How often a read or write of a connection moves fewer bytes than it could, as TCP may at any time.
    pub short_transfer: f64,
    /// Each process's clock runs up to this many millionths too fast or too slow.
    pub drift_ppm_max: u32,
    /// After this long without getting anything through, a connection breaks.
    pub retransmit_limit: Duration,
    /// Longest pause between two attempts of the kernel to get bytes through a partition (Linux: 120 s).
    pub retransmit_pause_max: Duration,
    /// Polls of tasks at one moment of virtual time before the world is declared to run in circles.
    pub polls_per_moment_max: u64,
    /// The effect of a panic in a task.
    pub panics: Panics,
    /// Events that [`crate::virt::World::events`] keeps; none unless a difference is looked for.
    pub kept_events_max: usize,
    /// A mistake that the code under test is to make.
    pub bug: Option<SeededBug>,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            link: LinkOptions::default(),
            local: LinkOptions::local(),
            disk: DiskOptions::default(),
            window_bytes: 4 << 20,
            // Of segmentation by the network card (GSO).
            segment_bytes_max: 64 << 10,
            short_transfer: 1.0 / 32.0,
            drift_ppm_max: 100,
            retransmit_limit: UNACKNOWLEDGED_MAX,
            retransmit_pause_max: Duration::from_secs(10),
            polls_per_moment_max: 20_000_000,
            panics: Panics::EndTheWorld,
            kept_events_max: 0,
            bug: None,
        }
    }
}

/// The effect of a panic in a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Panics {
    /// It goes on through [`crate::virt::World::run`], so a test fails.
    EndTheWorld,
    /// The task ends, as under tokio; [`crate::virt::World::panics`] lists it.
    EndTheTask,
}

/// How a link behaves in one direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkOptions {
    /// From one host's kernel to the other's.
    pub latency: Duration,
    /// At most this much is added to it, drawn anew for each segment; order is kept.
    pub jitter: Duration,
    /// Of the sender's and of the receiver's port.
    pub bandwidth_bytes_per_sec: u64,
    /// For segments up to a size, if it is another one: where a byte of data stands for many, a short message stands
    /// for itself.
    pub small: Option<Small>,
}

/// Segments, or accesses to a disk, that flow at a bandwidth of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Small {
    /// The longest of them.
    pub bytes_max: u64,
    /// Theirs.
    pub bandwidth_bytes_per_sec: u64,
}

impl Small {
    /// The bandwidth of so many bytes, of which longer ones have another one.
    fn bandwidth(small: Option<Self>, bytes: u64, others: u64) -> u64 {
        small.filter(|small| bytes <= small.bytes_max).map_or(others, |small| small.bandwidth_bytes_per_sec).max(1)
    }
}

impl LinkOptions {
    /// As it is through a port with a bandwidth of its own, if it has one.
    pub(super) fn by_port(self, bytes_per_sec: Option<u64>) -> Self {
        Self { bandwidth_bytes_per_sec: bytes_per_sec.unwrap_or(self.bandwidth_bytes_per_sec), ..self }
    }

    /// How long so many bytes occupy a port, in nanoseconds.
    pub(super) fn flow_ns(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(1_000_000_000) / Small::bandwidth(self.small, bytes, self.bandwidth_bytes_per_sec)
    }
}

impl Default for LinkOptions {
    /// Ten-gigabit Ethernet in one building.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(80),
            jitter: Duration::from_micros(60),
            bandwidth_bytes_per_sec: 1_250_000_000,
            small: None,
        }
    }
}

impl LinkOptions {
    /// Within a host.
    #[must_use]
    pub fn local() -> Self {
        Self {
            latency: Duration::from_micros(10),
            jitter: Duration::from_micros(5),
            bandwidth_bytes_per_sec: 5_000_000_000,
            small: None,
        }
    }
}

/// How a disk behaves, or one of its spindles.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DiskOptions {
    /// Of a read, before its bytes flow.
    pub read_latency: Duration,
    /// Of a write into the page cache.
    pub write_latency: Duration,
    /// Of a sync, before the dirty bytes flow.
    pub sync_latency: Duration,
    /// Of work on names.
    pub name_latency: Duration,
    /// Each latency is stretched by up to this ratio.
    pub jitter_ratio: f64,
    /// Of an access that is far from the last one. Nothing on an SSD.
    pub seek: Duration,
    /// Between disk and memory.
    pub bandwidth_bytes_per_sec: u64,
    /// For accesses up to a size, if it is another one: where a byte of data stands for many, a record of the store's own
    /// stands for itself.
    pub small: Option<Small>,
    /// An aligned write of at least so many bytes goes around the page cache: its bytes flow at once, and not with the
    /// next sync. Real disks take 256 KiB so; no write does unless a world says so.
    pub direct_bytes_min: u64,
    /// What its administrator has set for the whole file system. No byte is saved by it: contents are random.
    pub compression: Option<Compression>,
    /// Size in bytes.
    pub capacity_bytes: u64,
}

impl Default for DiskOptions {
    /// A data-centre SSD.
    fn default() -> Self {
        Self {
            read_latency: Duration::from_micros(90),
            write_latency: Duration::from_micros(15),
            sync_latency: Duration::from_micros(400),
            name_latency: Duration::from_micros(20),
            jitter_ratio: 0.5,
            seek: Duration::ZERO,
            bandwidth_bytes_per_sec: 1_000_000_000,
            small: None,
            direct_bytes_min: u64::MAX,
            compression: None,
            capacity_bytes: 1 << 40,
        }
    }
}

impl DiskOptions {
    /// How long so many bytes flow, in nanoseconds.
    pub(super) fn flow_ns(&self, bytes: u64) -> f64 {
        bytes as f64 * 1e9 / Small::bandwidth(self.small, bytes, self.bandwidth_bytes_per_sec) as f64
    }
}

/// How often a disk fails.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DiskFaults {
    /// Probability that a read fails with an I/O error.
    pub read_error: f64,
    /// Probability that a write fails with an I/O error; a prefix of it may have been written.
    pub write_error: f64,
    /// Probability that a sync fails. As on Linux, the changes that it was to make durable are then durable or never
    /// will be, and the next sync does not report it (<https://lwn.net/Articles/752063/>).
    pub sync_error: f64,
}

/// Work on a disk, as a [`PlannedFault`] names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskWork {
    /// Reading a file.
    Read,
    /// Writing to a file.
    Write,
    /// Syncing a file.
    Sync,
    /// Reserving space for a file.
    Allocate,
    /// Changing a file's length.
    SetLen,
    /// Freeing a range of a file.
    Punch,
    /// Compressing a file.
    Compress,
    /// Opening or making a file.
    Open,
    /// Renaming a file; the path is the target's.
    Rename,
    /// Removing a file.
    Remove,
    /// Syncing a directory.
    SyncDir,
}

impl DiskWork {
    /// The operation's name in the world's trace.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Allocate => "allocate",
            Self::SetLen => "set_len",
            Self::Punch => "punch",
            Self::Compress => "compress",
            Self::Open => "open",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::SyncDir => "sync_dir",
        }
    }
}

/// A failure that is sure to come, at a chosen place. It has no effect but the error, with one exception: after a
/// failed sync of a file its changes are saved or never will be, as [`DiskFaults::sync_error`] says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedFault {
    /// The operation that fails.
    pub work: DiskWork,
    /// Only on paths with this in them.
    pub path_part: String,
    /// So many go well before.
    pub skip: u32,
    /// So many fail then.
    pub count: u32,
    /// The kind of the error: `Io`, `NoSpace`.
    pub error: ErrorKind,
}

impl PlannedFault {
    /// The next such operation fails with an I/O error.
    #[must_use]
    pub fn next(work: DiskWork, path_part: &str) -> Self {
        Self { work, path_part: path_part.to_owned(), skip: 0, count: 1, error: ErrorKind::Io }
    }

    /// The same with the disk full.
    #[must_use]
    pub fn no_space(work: DiskWork, path_part: &str) -> Self {
        Self { error: ErrorKind::NoSpace, ..Self::next(work, path_part) }
    }
}
