//! The model: bytes that a job must send over links, from where the copies lie.

use super::Setup;

/// Bytes over links.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Traffic {
    /// Sent by all hosts.
    pub network: f64,
    /// Over one host's link in one direction, if all hosts do the same.
    pub host: f64,
    /// Over the link between racks in one direction.
    pub trunk: f64,
}

impl Traffic {
    /// The link that is busy for longest, all links being of one speed.
    #[must_use]
    pub const fn busiest(&self) -> f64 {
        self.host.max(self.trunk)
    }

    fn plus(self, other: Self) -> Self {
        Self { network: self.network + other.network, host: self.host + other.host, trunk: self.trunk + other.trunk }
    }
}

/// What a job of the figure has to send. Maps run beside their input, so that grep sends nothing; TeraGen writes its
/// input's bytes; TeraSort reads a sample where it is started, sends each host its part of all rows, and writes them.
#[must_use]
pub fn expected(setup: &Setup, job: &str, system: &str, (copies, racks): (u32, u32)) -> Traffic {
    let (hosts, bytes) = (f64::from(setup.hosts), setup.bytes as f64);
    let (copies, racks) = (f64::from(copies), f64::from(racks));
    let written = if system == "striped" {
        striped(hosts, bytes, copies, racks)
    } else {
        first_here(hosts, bytes, copies, racks)
    };
    match job {
        "teragen" => written,
        "terasort" => sampled(setup, racks).plus(shuffled(hosts, bytes, racks)).plus(written),
        _ => Traffic::default(),
    }
}

/// The first copy on the writer's host, the second in the other rack if there is one; each copy is forwarded by the one
/// before it.
fn first_here(hosts: f64, bytes: f64, copies: f64, racks: f64) -> Traffic {
    let network = bytes * (copies - 1.0);
    // Half of the writers are in each rack.
    let trunk = if racks > 1.0 && copies > 1.0 { bytes / 2.0 } else { 0.0 };
    Traffic { network, host: network / hosts, trunk }
}

/// Copies on any hosts, one in each rack. The writer sends to the nearest, which forwards: a copy on the writer's own
/// host costs nothing.
fn striped(hosts: f64, bytes: f64, copies: f64, racks: f64) -> Traffic {
    let network = bytes * (copies - copies / hosts);
    // One copy: half of what is written in a rack goes to the other. Two: all of it, once.
    let crosses = if copies > 1.0 { 1.0 } else { 0.5 };
    let trunk = if racks > 1.0 { crosses * bytes / 2.0 } else { 0.0 };
    Traffic { network, host: network / hosts, trunk }
}

/// Splits that TeraSort's sampler reads from, and bytes from each: 100,000 rows of 100 bytes in all (`TeraInputFormat` of Hadoop's
/// examples).
const SAMPLED_SPLITS: f64 = 10.0;
const SAMPLE_BYTES: f64 = 1e6;

/// The sampler runs in the first rack, on none of the hosts, and begins at the front of each split.
fn sampled(setup: &Setup, racks: f64) -> Traffic {
    let (bytes, split) = (setup.bytes as f64, setup.split as f64);
    let network = (bytes / split).min(SAMPLED_SPLITS) * split.min(SAMPLE_BYTES);
    let trunk = if racks > 1.0 { network / 2.0 } else { 0.0 };
    Traffic { network, host: network / f64::from(setup.hosts), trunk }
}

/// Bytes of a row between map and reduce, for each of the row's hundred: four lengths stand before key and value.
const SHUFFLED: f64 = 1.04;

/// Each host has its share of the rows, and gets its share of the keys.
fn shuffled(hosts: f64, bytes: f64, racks: f64) -> Traffic {
    let (bytes, network) = (bytes * SHUFFLED, bytes * SHUFFLED * (hosts - 1.0) / hosts);
    let trunk = if racks > 1.0 { bytes / 4.0 } else { 0.0 };
    Traffic { network, host: network / hosts, trunk }
}
