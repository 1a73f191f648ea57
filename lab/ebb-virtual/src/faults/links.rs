//! Links that are up, and bad: their segments arrive late.

use std::time::Duration;

use ebb_runtime::virt::{Dice, LinkOptions, World};

use super::kind::Undo;
use crate::cluster::{Cluster, Member};

/// One segment of a hundred is lost, and sent again after Linux' least time for that (200 ms); segments behind it wait.
/// Drawn for each segment, that is a delay by up to so much.
pub const LOSSY: LinkOptions = LinkOptions {
    latency: Duration::from_micros(80),
    jitter: Duration::from_millis(200),
    bandwidth_bytes_per_sec: 1_250_000_000,
    small: None,
};

/// Half of the way around the world.
pub const SLOW: LinkOptions = LinkOptions {
    latency: Duration::from_millis(200),
    jitter: Duration::from_millis(20),
    bandwidth_bytes_per_sec: 1_250_000_000,
    small: None,
};

/// One Mbit/s.
const NARROW: LinkOptions = LinkOptions {
    latency: Duration::from_micros(80),
    jitter: Duration::from_micros(60),
    bandwidth_bytes_per_sec: 125_000,
    small: None,
};

/// All links of a host turn bad in the same way.
pub fn begin_gray(cluster: &Cluster, world: &World, member: &Member, dice: &mut Dice) -> Undo {
    let host = member.process.host().to_owned();
    set(cluster, world, &host, *dice.pick(&[LOSSY, SLOW, NARROW]));
    let world = world.clone();
    Box::new(move |cluster| set(cluster, &world, &host, LinkOptions::default()))
}

/// All links are good again.
pub fn mend_gray(cluster: &Cluster, world: &World) {
    for member in cluster.members() {
        set(cluster, world, member.process.host(), LinkOptions::default());
    }
}

/// All links of a host are of this kind from now on.
pub fn set(cluster: &Cluster, world: &World, host: &str, options: LinkOptions) {
    let others = cluster.members().iter().map(|member| member.process.host()).filter(|other| *other != host);
    for other in others {
        world.link(host, other, options);
        world.link(other, host, options);
    }
}
