//! Troubles that need an operator, in sentences: the place, the effect, and the way on. Pure.

use ebb_cli::output::human_bytes;
use ebb_types::{NodeId, VolumeId};
use ebb_wire::pb;

/// All that is wrong with disks, as the master knows it.
pub fn troubles(reply: &pb::ClusterStatusReply) -> Vec<String> {
    let standing = Some(reply.standing.clone()).filter(|standing| !standing.is_empty());
    let held = reply.deletions_held.then(|| {
        "a loss was accepted, and no replica is deleted until `ebb fsck` has come to its end and found none missing"
            .to_owned()
    });
    let disk = reply.disk.as_ref().and_then(of_disk);
    let own = standing.into_iter().chain(held).chain(disk);
    own.chain(reply.nodes.iter().flat_map(of_node)).collect()
}

/// The troubles of a node: a process that is refused, and its volumes.
pub fn of_node(node: &pb::Node) -> Vec<String> {
    let twin = Some(node.twin.clone()).filter(|twin| !twin.is_empty());
    let poisoned = node.volumes.iter().filter(|volume| is_poisoned(volume)).map(|volume| sentence(node, volume));
    twin.into_iter().chain(poisoned).collect()
}

/// Conditions that stop nothing, and that an operator should know: nodes that are slow beyond their peers.
pub fn notices(nodes: &[pb::Node], now_ms: u64) -> Vec<String> {
    nodes.iter().filter_map(|node| Some(gray_sentence(node, node.gray.as_ref()?, now_ms))).collect()
}

fn gray_sentence(node: &pb::Node, gray: &pb::Gray, now_ms: u64) -> String {
    let ms = |micros: u64| format!("{:.1} ms", micros as f64 / 1000.0);
    let (took, peers) = (ms(gray.took_us), ms(gray.peers_us));
    let found = match gray.clients {
        1 => "1 client finds".to_owned(),
        clients => format!("{clients} clients find"),
    };
    let why = match gray.cause() {
        pb::GrayCause::GrayDisk => format!("a small commit on its disk takes {took}, elsewhere {peers}"),
        pb::GrayCause::GrayBoth => {
            format!("its disk is slow, and {found} its answers late: {took}, from its peers {peers}")
        }
        _ => format!("{found} that it takes {took} to answer what its peers answer in {peers}"),
    };
    let seconds = now_ms.saturating_sub(gray.since_ms) / 1000;
    format!(
        "{} ({}) is gray for {seconds} s: {why}. It is read last, and writers do without it where another node is free. Look at its \
         disks, its links and its load; `ebb node drain {}` empties it",
        NodeId::new(node.id),
        node.host,
        NodeId::new(node.id),
    )
}

/// Whether the volume takes no work.
pub fn is_poisoned(volume: &pb::Volume) -> bool {
    volume.state() == pb::VolumeState::VolumePoisoned
}

fn sentence(node: &pb::Node, volume: &pb::Volume) -> String {
    let id = NodeId::new(node.id);
    let why = if volume.trouble.is_empty() { "a write or a sync failed there" } else { &volume.trouble };
    format!(
        "volume {} of {id} ({}, {}) is poisoned: {why}. It takes no work, and its replicas are made again elsewhere. Look at the \
         disk; if it is sound, end process {} there, then `ebb node start {id}`; if not, `ebb node drain {id}`",
        VolumeId::new(volume.id),
        node.host,
        volume.path,
        node.pid
    )
}

fn of_disk(disk: &pb::MasterDisk) -> Option<String> {
    (disk.free_bytes < disk.needed_bytes).then(|| {
        format!(
            "the master's disk is full: {} has {} of {} free, the log's next segment needs {}. What makes or grows something is \
             refused before long; reading and removing go on. Free space there",
            disk.path,
            human_bytes(disk.free_bytes),
            human_bytes(disk.capacity_bytes),
            human_bytes(disk.needed_bytes)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(state: pb::VolumeState) -> pb::Node {
        let volume = pb::Volume { id: 5, path: "/d/v0".into(), state: state.into(), ..Default::default() };
        let state = pb::NodeState::NodeLive.into();
        pb::Node { id: 3, host: "h3".into(), pid: 77, state, volumes: vec![volume], ..Default::default() }
    }

    #[test]
    fn a_poisoned_volume_is_reported_with_its_reason_and_the_way_on() {
        let mut poisoned = node(pb::VolumeState::VolumePoisoned);
        poisoned.volumes[0].trouble = "sync of a replica: Input/output error".into();
        let shown = of_node(&poisoned);
        assert_eq!(shown.len(), 1);
        for part in [
            "v5 of n3 (h3, /d/v0) is poisoned: sync of a replica: Input/output error",
            "process 77",
            "`ebb node drain n3`",
        ] {
            assert!(shown[0].contains(part), "{}", shown[0]);
        }
        assert_eq!(of_node(&node(pb::VolumeState::VolumeLive)), Vec::<String>::new());
    }

    #[test]
    fn a_gray_node_is_reported_with_its_effect() {
        let mut slow = node(pb::VolumeState::VolumeLive);
        assert_eq!(notices(std::slice::from_ref(&slow), 0), Vec::<String>::new());
        let gray = pb::Gray { since_ms: 10_000, took_us: 210_400, peers_us: 2300, clients: 1, ..Default::default() };
        for (cause, sentence) in [
            (pb::GrayCause::GrayDisk, "a small commit on its disk takes 210.4 ms, elsewhere 2.3 ms"),
            (
                pb::GrayCause::GrayAnswers,
                "1 client finds that it takes 210.4 ms to answer what its peers answer in 2.3 ms",
            ),
            (pb::GrayCause::GrayBoth, "its disk is slow, and 1 client finds its answers late: 210.4 ms"),
        ] {
            slow.gray = Some(pb::Gray { cause: cause.into(), ..gray });
            let shown = &notices(std::slice::from_ref(&slow), 45_000)[0];
            assert!(shown.starts_with("n3 (h3) is gray for 35 s: ") && shown.contains(sentence), "{shown}");
            assert!(of_node(&slow).is_empty(), "work goes on");
        }
    }

    #[test]
    fn a_full_disk_of_the_master_is_reported() {
        let disk = pb::MasterDisk {
            path: "/c/master".into(),
            free_bytes: 3 << 20,
            capacity_bytes: 1 << 30,
            needed_bytes: 16 << 20,
        };
        let mut reply = pb::ClusterStatusReply { disk: Some(disk), ..Default::default() };
        assert!(troubles(&reply)[0].contains("/c/master has 3.0 MiB of 1.0 GiB free"), "{:?}", troubles(&reply));
        reply.disk.as_mut().unwrap().free_bytes = 16 << 20;
        assert!(troubles(&reply).is_empty());
        assert!(troubles(&pb::ClusterStatusReply::default()).is_empty(), "an older master does not report it");
    }
}
