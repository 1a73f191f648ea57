//! A process that says that it is a node, and is not: a copy of its directory, or the directory as it was.
//!
//! Each volume counts in its label how often it was opened, and syncs that before anything else. A counter that is not
//! above the recorded one belongs to a directory that was copied before: its twin is the node, or it went back in time.

use ebb_types::{NodeId, Result, VolumeId, bail};
use ebb_wire::pb;

use crate::shared::Shared;

/// What a registration is, compared with what is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// The node, started again.
    Welcome,
    /// This volume of it was started more often than its directory knows.
    Older { volume: u64, recorded: u64, told: u64 },
    /// This volume has less in its journal than it told.
    Shorter { volume: u64, recorded: u64, told: u64 },
}

/// `lsn`: how far a volume's journal is known to have come.
fn compare(recorded: &pb::Node, told: &pb::RegisterNode, lsn: impl Fn(VolumeId) -> u64) -> Verdict {
    for volume in told.volumes.iter().filter(|volume| volume.starts > 0) {
        let same = |known: &&pb::Volume| (known.id, known.incarnation) == (volume.id, volume.incarnation);
        let Some(known) = recorded.volumes.iter().find(same) else { continue };
        let other = recorded.boot_id().is_some_and(|boot| Some(boot) != told.boot_id());
        if volume.starts < known.starts || volume.starts == known.starts && other {
            return Verdict::Older { volume: volume.id, recorded: known.starts, told: volume.starts };
        }
        let reached = lsn(VolumeId::new(volume.id));
        if volume.lsn < reached {
            return Verdict::Shorter { volume: volume.id, recorded: reached, told: volume.lsn };
        }
    }
    Verdict::Welcome
}

/// Refuses a process that is not the node that it says, with the reason and the way on.
pub(crate) fn check(shared: &Shared, call: &pb::RegisterNode) -> Result<()> {
    let node = NodeId::new(call.node);
    let recorded = shared.group.machine().registered(node).cloned();
    let Some(recorded) = recorded else { return Ok(()) };
    let now = shared.runtime.now();
    let sentence = {
        let soft = shared.soft();
        let registry = &soft.registry;
        let verdict = compare(&recorded, call, |volume| registry.lsn(node, volume));
        let (volume, what) = match verdict {
            Verdict::Welcome => return Ok(()),
            Verdict::Older { volume, recorded, told } => {
                (volume, format!("was started {recorded} times, and its label there says {told}"))
            }
            Verdict::Shorter { volume, recorded, told } => {
                (volume, format!("has told of entry {recorded} of its journal, and has {told} there"))
            }
        };
        let path = call.volumes.iter().find(|told| told.id == volume).map_or("", |told| told.path.as_str());
        let found = format!(
            "volume v{volume} of {node} {what} ({}, {}, process {}, {path})",
            call.host, call.address, call.pid
        );
        match registry.lately(node, now).filter(|(boot, _)| boot.raw() != call.boot) {
            Some((_, pid)) => format!(
                "two processes say that they are {node}: {found}; the other one is process {pid} at {} and serves. One \
                 directory is a copy of the other: what writers tell one of them the other does not have, so the second one \
                 is refused. End it, and give it a directory of its own",
                recorded.address
            ),
            None => format!(
                "{node} went back in time: {found}. Its directory is a copy, or was put back from one: replicas there may lack \
                 what was acknowledged, and it is refused. Put the newest directory in place; if there is none, end the \
                 process, then `ebb node readmit {node}` takes the node in again as an empty one, and keeps what it has aside"
            ),
        }
    };
    if shared.soft().registry.on_twin(node, sentence.clone(), now) {
        tracing::error!(%node, "{sentence}");
    }
    bail!(Superseded, "{sentence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(starts: u64, lsn: u64) -> pb::Volume {
        pb::Volume { id: 5, incarnation: 9, starts, lsn, ..Default::default() }
    }

    fn judged(starts: u64, boot: u64, lsn: u64) -> Verdict {
        let recorded = pb::Node { id: 3, boot: 70, volumes: vec![volume(7, 0)], ..Default::default() };
        let told = pb::RegisterNode { node: 3, boot, volumes: vec![volume(starts, lsn)], ..Default::default() };
        compare(&recorded, &told, |_| 100)
    }

    #[test]
    fn who_was_started_less_often_than_recorded_is_an_older_copy() {
        assert_eq!(judged(7, 70, 100), Verdict::Welcome, "the same process");
        assert_eq!(judged(8, 71, 100), Verdict::Welcome, "started again");
        assert_eq!(judged(12, 71, 100), Verdict::Welcome, "starts that never came to register leave gaps");
        assert_eq!(judged(0, 71, 100), Verdict::Welcome, "a release that does not count");
        assert_eq!(
            judged(7, 71, 100),
            Verdict::Older { volume: 5, recorded: 7, told: 7 },
            "a copy that was started beside it"
        );
        assert_eq!(judged(6, 71, 100), Verdict::Older { volume: 5, recorded: 7, told: 6 }, "put back");
        assert_eq!(judged(8, 71, 99), Verdict::Shorter { volume: 5, recorded: 100, told: 99 }, "copied while it ran");
    }
}
