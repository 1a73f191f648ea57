//! The device behind files: how long its work takes, what waits for it, and its space.

use std::time::Duration;

use super::names::InodeNumber;
use crate::virt::DiskOptions;
use crate::virt::dice::{Dice, nanos};

/// An access as near to the last one, in the same file, needs no seek: kernels read ahead, and disks sort what waits.
const NEAR: u64 = 4 << 20;

/// An access to the device itself.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) bytes: u64,
    /// File and offset. None: a sync, which writes in several places.
    pub(super) at: Option<(InodeNumber, u64)>,
}

impl Access {
    pub(super) fn sync(bytes: u64) -> Self {
        Self { bytes, at: None }
    }
}

/// One device, which does one thing at a time.
#[derive(Clone)]
pub(super) struct Medium {
    pub(super) options: DiskOptions,
    /// Everything takes this many times as long.
    pub(super) slowness: f64,
    /// Taken by something that is not this process.
    pub(super) ballast_bytes: u64,
    /// At least the space of all files. Adding them up is slow, and it matters only near the end of the device.
    pub(super) used_bytes_bound: u64,
    /// Everything ends with an I/O error.
    pub(super) has_failed: bool,
    /// Grows with each failure.
    pub(super) failures: u64,
    /// When the device has done all its work so far.
    busy_until_ns: u64,
    /// Where the last access ended. None: elsewhere than in a file.
    head: Option<(InodeNumber, u64)>,
}

impl Medium {
    pub(super) fn new(options: DiskOptions) -> Self {
        Self {
            options,
            slowness: 1.0,
            ballast_bytes: 0,
            used_bytes_bound: 0,
            has_failed: false,
            failures: 0,
            busy_until_ns: 0,
            head: None,
        }
    }

    /// How long an operation takes, without waiting for others.
    pub(super) fn cost(&self, dice: &mut Dice, latency: Duration, bytes: u64) -> u64 {
        let jitter = 1.0 + self.options.jitter_ratio * (dice.below(1 << 20) as f64 / (1 << 20) as f64);
        ((nanos(latency) as f64 * jitter + self.options.flow_ns(bytes)) * self.slowness) as u64
    }

    /// How long so many bytes flow.
    pub(super) fn flow_ns(&self, bytes: u64) -> u64 {
        (self.options.flow_ns(bytes) * self.slowness) as u64
    }

    /// How long the head moves before an access, which is at its end afterwards.
    pub(super) fn seek(&mut self, access: Access) -> u64 {
        let goes_on =
            access.at.zip(self.head).is_some_and(|(at, head)| at.0 == head.0 && at.1.abs_diff(head.1) <= NEAR);
        // With nothing to write, a sync leaves the head where it is.
        if goes_on || access.bytes > 0 {
            self.head = access.at.map(|(file, offset)| (file, offset + access.bytes));
        }
        if goes_on || access.bytes == 0 { 0 } else { (nanos(self.options.seek) as f64 * self.slowness) as u64 }
    }

    /// When an operation is done that needs the device itself.
    pub(super) fn queue(&mut self, now_ns: u64, cost: u64) -> u64 {
        self.busy_until_ns = self.busy_until_ns.max(now_ns) + cost;
        self.busy_until_ns
    }

    /// Nothing waits for it any more.
    pub(super) fn forget_queue(&mut self) {
        self.busy_until_ns = 0;
    }

    /// Something else takes space until so many bytes are free; none: it takes nothing.
    pub(super) fn fill(&mut self, files_bytes: u64, free_bytes: Option<u64>) {
        let free = self.options.capacity_bytes.saturating_sub(files_bytes);
        self.ballast_bytes = free_bytes.map_or(0, |wanted| free.saturating_sub(wanted));
        self.used_bytes_bound = files_bytes + self.ballast_bytes;
    }
}
