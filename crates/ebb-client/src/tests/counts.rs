//! What things cost, counted in messages and syncs.

use ebb_types::Role;
use std::time::Duration;

use ebb_rpc::{Connector, Counters};
use ebb_wire::pb;

use super::harness::{Cluster, create, identity, pattern, run};

/// Requests that block servers answered, and syncs of theirs, so far.
async fn work_done(cluster: &Cluster) -> Vec<(u64, u64)> {
    let runtime = cluster.world.process("meter").runtime();
    let connector = Connector::new(runtime, identity("meter", Role::Operator), Counters::default());
    let mut done = Vec::new();
    for node in &cluster.nodes {
        let channel = connector.channel(&format!("{}:7100", node.process.ip()));
        let counters = channel.call(&pb::Counters {}, Duration::from_secs(5)).await.unwrap();
        done.push((counters.calls, counters.syncs));
    }
    done
}

/// One round trip and one parallel sync: each member gets one message and syncs its journal once, and no other call
/// is made.
#[test]
fn a_small_synced_write_costs_each_member_one_message_and_one_sync() {
    run(31, 3, |cluster| async move {
        let client = cluster.client("client").await;
        let (handle, _) = create(&client, ebb_types::InodeId::ROOT, "file").await;
        client.write(handle, 0, pattern(0, 8 * 4096)).await.unwrap();
        client.fsync(handle).await.unwrap();
        // The journal's seal, the first commit and what else a beginning brings are over.
        cluster.world.sleep(Duration::from_secs(5)).await;
        for (round, len) in [4096usize, 10, 4096, 60_000].into_iter().enumerate() {
            let before = work_done(&cluster).await;
            for turn in 0..20u64 {
                client.write(handle, turn % 8 * 4096, pattern(turn, len)).await.unwrap();
                client.fsync(handle).await.unwrap();
            }
            let after = work_done(&cluster).await;
            for (before, after) in before.iter().zip(&after) {
                // Beside these: the question itself, and connections that say hello.
                let (calls, syncs) = (after.0 - before.0, after.1 - before.1);
                assert!((20..=23).contains(&calls), "round {round}: {calls} calls for 20 writes");
                assert!((20..=21).contains(&syncs), "round {round}: {syncs} syncs for 20 writes");
            }
        }
    });
}
