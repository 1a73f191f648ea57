//! Trying disks to which nobody writes: only a write shows how slow a disk is, and that it has failed.

use ebb_store::Volume;
use ebb_types::{Error, ErrorKind};

use crate::node::Node;

/// A volume with so many commits in the last seconds need not be timed.
const TIMED_ENOUGH: u32 = 8;

/// Times disks without recent commits, so that a disk that is well again is reported.
pub(crate) fn time_idle(node: &Node) {
    for volume in node.volumes.iter() {
        if volume.commit_latency().is_none_or(|(_, count)| count < TIMED_ENOUGH) {
            try_disk(node, volume);
        }
    }
}

/// Tries a disk after this error of a read. On a disk with cold data alone no write would show that it has failed, and
/// what it has would not be made again elsewhere.
pub(crate) fn try_after(node: &Node, volume: &Volume, error: &Error) {
    if error.kind() == ErrorKind::Io {
        try_disk(node, volume);
    }
}

/// Tries all disks: bytes could not be read for an answer that was under way, and the answer does not tell from which.
pub(crate) fn try_all(node: &Node) {
    try_in_turn(node, &node.volumes);
}

fn try_disk(node: &Node, volume: &Volume) {
    try_in_turn(node, std::slice::from_ref(volume));
}

/// A task of its own, because a slow disk must not delay the caller. One at a time: the next heartbeat or read tries again.
fn try_in_turn(node: &Node, volumes: &[Volume]) {
    let sound: Vec<Volume> = volumes.iter().filter(|volume| volume.poisoned().is_none()).cloned().collect();
    if !sound.is_empty()
        && let Ok(place) = node.timing.clone().try_acquire_owned()
    {
        node.runtime.spawn("try disks", async move {
            let _place = place;
            for volume in sound {
                if let Err(error) = volume.time_disk().await {
                    tracing::debug!(%error, "trying a disk");
                }
            }
        });
    }
}
