//! The progress of a scrub.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use ebb_cli::Context;
use ebb_cli::directory::ClusterDir;
use ebb_wire::pb;

use crate::cluster::status;

/// Nodes report about once in a second.
const LOOK: Duration = Duration::from_millis(500);

/// Shows how much of the data nodes have read. Never returns.
pub async fn show_progress(context: &Context, cluster: &ClusterDir) -> Infallible {
    let bar = context.output.byte_bar(0, "reading all replicas");
    let mut before = BTreeMap::new();
    loop {
        if let Ok(reply) = status::ask(cluster).await {
            let (read, all) = progress(&reply.nodes, &mut before);
            bar.set_length(all);
            bar.set_position(read);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Bytes that volumes have read since they were first seen, and bytes that they store. Only of nodes that answer: others
/// are not scrubbed. `before` has what each had read when it was first seen.
fn progress(nodes: &[pb::Node], before: &mut BTreeMap<u64, u64>) -> (u64, u64) {
    let answers = |node: &&pb::Node| matches!(node.state(), pb::NodeState::NodeLive | pb::NodeState::NodeDraining);
    let volumes = nodes.iter().filter(answers).flat_map(|node| &node.volumes);
    volumes.fold((0, 0), |(read, all), volume| {
        let first = before.entry(volume.id).or_insert(volume.scrubbed_bytes);
        // A node that was started again counts from 0.
        *first = volume.scrubbed_bytes.min(*first);
        (read + (volume.scrubbed_bytes - *first).min(volume.used_bytes), all + volume.used_bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(state: pb::NodeState, scrubbed_bytes: u64) -> pb::Node {
        let volume = pb::Volume { id: 1, used_bytes: 100, scrubbed_bytes, ..Default::default() };
        pb::Node { volumes: vec![volume], state: state.into(), ..Default::default() }
    }

    #[test]
    fn only_what_was_read_since_the_begin_counts() {
        let mut before = BTreeMap::new();
        let mut look = |state, scrubbed| progress(&[node(state, scrubbed)], &mut before);
        assert_eq!(look(pb::NodeState::NodeLive, 50), (0, 100));
        assert_eq!(look(pb::NodeState::NodeLive, 90), (40, 100));
        assert_eq!(look(pb::NodeState::NodeLive, 400), (100, 100), "another scrub ran beside it");
        assert_eq!(look(pb::NodeState::NodeDead, 400), (0, 0));
        assert_eq!(look(pb::NodeState::NodeLive, 10), (0, 100), "it was started again");
        assert_eq!(look(pb::NodeState::NodeLive, 30), (20, 100));
    }
}
