//! Twins: processes that claim to be a node, but run from a copy of its directory, or from an older state of it.
//!
//! Each volume counts its starts in its label, and syncs the count before it does anything else. A count that is not
//! above the recorded one belongs to a copied directory. Either another process is the node, or the node went back in
//! time.
//!
//! A copy that was made while the node wrote nothing has all that the node has. It may go on in the node's place, but
//! not on another machine while the node is heard.

use ebb_types::{NodeId, Result, VolumeId, bail};
use ebb_wire::pb;

use crate::shared::Shared;

/// A registration compared with the recorded node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// It is the node, started again.
    Welcome,
    /// The volume was started more often than its label says.
    Older { volume: VolumeId, recorded: u64, claimed: u64 },
    /// The volume's journal is shorter than it once reported.
    Shorter { volume: VolumeId, recorded: u64, claimed: u64 },
}

/// Compares a registration with the recorded node. `lsn(volume)` is the highest position that the volume's journal has
/// reported.
// I-88: of all processes that claim to be one node at most one is served, and none whose directory went back.
fn compare(recorded: &pb::Node, call: &pb::RegisterNode, lsn: impl Fn(VolumeId) -> u64) -> Verdict {
    // A count of 0 comes from a release without this counter.
    for volume in call.volumes.iter().filter(|volume| volume.starts > 0) {
        let same = |known: &&pb::Volume| (known.id, known.incarnation) == (volume.id, volume.incarnation);
        let Some(known) = recorded.volumes.iter().find(same) else { continue };
        let other = recorded.boot_id().is_some_and(|boot| Some(boot) != call.boot_id());
        let id = VolumeId::new(volume.id);
        if volume.starts < known.starts || volume.starts == known.starts && other {
            return Verdict::Older { volume: id, recorded: known.starts, claimed: volume.starts };
        }
        let reached = lsn(id);
        if volume.lsn < reached {
            return Verdict::Shorter { volume: id, recorded: reached, claimed: volume.lsn };
        }
    }
    Verdict::Welcome
}

/// Whether two addresses are of different machines. A node that is started again may have another port.
fn is_elsewhere(one: &str, other: &str) -> bool {
    let machine = |address: &str| address.rsplit_once(':').map(|(host, _)| host.to_owned());
    machine(one) != machine(other)
}

/// Refuses a process that is not the node that it claims to be.
///
/// Errors: `Superseded`, with the reason and the remedy.
pub(crate) fn check(shared: &Shared, call: &pb::RegisterNode) -> Result<()> {
    let node = NodeId::new(call.node);
    let recorded = shared.group.machine().registered(node).cloned();
    let Some(recorded) = recorded else { return Ok(()) };
    let now = shared.runtime.now();
    let sentence = {
        let soft = shared.soft();
        let registry = &soft.registry;
        let other = registry.lately(node, now).filter(|(boot, _)| boot.raw() != call.boot);
        let (volume, finding) = match compare(&recorded, call, |volume| registry.lsn(node, volume)) {
            Verdict::Welcome if other.is_some() && is_elsewhere(&recorded.address, &call.address) => {
                (None, "would go on at another address".to_owned())
            }
            Verdict::Welcome => return Ok(()),
            Verdict::Older { volume, recorded, claimed } => {
                (Some(volume), format!("was started {recorded} times, and its label there says {claimed}"))
            }
            Verdict::Shorter { volume, recorded, claimed } => {
                (Some(volume), format!("has reported entry {recorded} of its journal, and has {claimed} there"))
            }
        };
        let subject = volume.map_or(node.to_string(), |volume| format!("volume {volume} of {node}"));
        let its_volume = call.volumes.iter().find(|known| volume.is_none_or(|volume| known.id == volume.raw()));
        let path = its_volume.map_or("", |known| known.path.as_str());
        let found = format!("{subject} {finding} ({}, {}, process {}, {path})", call.host, call.address, call.pid);
        match other {
            Some((_, pid)) => format!(
                "two processes say that they are {node}: {found}; the other one is process {pid} at {} and serves. One \
                  directory is a copy of the other: what writers send to one of them the other does not have, so the second one \
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

    fn compared(starts: u64, boot: u64, lsn: u64) -> Verdict {
        let recorded = pb::Node { id: 3, boot: 70, volumes: vec![volume(7, 0)], ..Default::default() };
        let call = pb::RegisterNode { node: 3, boot, volumes: vec![volume(starts, lsn)], ..Default::default() };
        compare(&recorded, &call, |_| 100)
    }

    #[test]
    fn another_port_is_the_same_machine() {
        assert!(!is_elsewhere("10.0.0.2:7001", "10.0.0.2:40001") && !is_elsewhere("[fd00::2]:7001", "[fd00::2]:7002"));
        assert!(is_elsewhere("10.0.0.2:7001", "10.0.0.3:7001") && is_elsewhere("h2:7001", "10.0.0.2:7001"));
    }

    #[test]
    fn a_process_started_less_often_than_recorded_is_an_older_copy() {
        let older = |claimed| Verdict::Older { volume: VolumeId::new(5), recorded: 7, claimed };
        let shorter = Verdict::Shorter { volume: VolumeId::new(5), recorded: 100, claimed: 99 };
        assert_eq!(compared(7, 70, 100), Verdict::Welcome, "the same process");
        assert_eq!(compared(8, 71, 100), Verdict::Welcome, "started again");
        assert_eq!(compared(12, 71, 100), Verdict::Welcome, "starts that never came to register leave gaps");
        assert_eq!(compared(0, 71, 100), Verdict::Welcome, "a release that does not count");
        assert_eq!(compared(7, 71, 100), older(7), "a copy that was started beside it");
        assert_eq!(compared(6, 71, 100), older(6), "put back");
        assert_eq!(compared(8, 71, 99), shorter, "copied while it ran");
    }
}
