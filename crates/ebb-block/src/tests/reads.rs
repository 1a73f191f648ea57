//! What answers to reads tell of other reads.

use std::time::Duration;

use bytes::Bytes;
use ebb_rpc::Response;
use ebb_wire::pb;

use super::rig::{Client, LONG, bytes, hop, in_world, version, virt_server};

const PART: u64 = 256 << 10;

async fn read(client: &Client, hop: &pb::Hop, part: u64, queue_max: Option<u64>) -> Response<pb::ReadReplicaReply> {
    let volume = hop.member.unwrap().volume;
    let min_version = version(1, 1);
    let read = pb::ReadReplica {
        metablock: 5,
        volume,
        min_version,
        offset: part * PART,
        length: PART,
        queue_max,
        raid_set: 0,
        sums_only: false,
    };
    client.connector.channel(&hop.address).call_with(&read, Vec::new(), LONG).await.unwrap()
}

#[test]
fn a_read_tells_of_the_others_and_is_refused_above_its_limit() {
    in_world(11, |world, _, master| async move {
        let hop = hop(&virt_server(&world, "h1", &master).await);
        let runtime = world.process("client").runtime();
        // Each has connections of its own.
        let clients: Vec<Client> = (0..4).map(|_| Client::new(&runtime)).collect();
        let block = bytes(1 << 20, 3);
        clients[0].write(std::slice::from_ref(&hop), 5, 1, 0, &block, true, LONG).await;
        for client in &clients {
            assert_eq!(read(client, &hop, 0, Some(0)).await.message.queued_bytes, Some(0), "nothing else is read");
        }
        // Some seconds for each part.
        world.process("h1").slow_disk(1000.0);
        let refused = async {
            runtime.sleep(Duration::from_millis(20)).await;
            let refused = read(&clients[3], &hop, 3, Some(3 * PART - 1)).await;
            let nothing = pb::ReadReplicaReply { queued_bytes: Some(3 * PART), is_busy: true, ..Default::default() };
            assert_eq!((refused.message, refused.payload), (nothing, Bytes::new()));
            read(&clients[3], &hop, 3, Some(3 * PART)).await
        };
        let in_turn = async |part: u64| {
            runtime.sleep(Duration::from_millis(5 * part)).await;
            read(&clients[part as usize], &hop, part, None).await
        };
        let [a, b, c] = [0, 1, 2].map(in_turn);
        let (a, b, c, d) = tokio::join!(a, b, c, refused);
        let told = [&a, &b, &c, &d].map(|answer| answer.message.queued_bytes.unwrap() / PART);
        assert_eq!(told, [0, 1, 2, 3], "each those before it");
        assert_eq!([a, b, c, d].map(|answer| answer.payload).concat(), block);
        assert_eq!(read(&clients[0], &hop, 0, Some(0)).await.message.queued_bytes, Some(0), "nothing is left");
    });
}
