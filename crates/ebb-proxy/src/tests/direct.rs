//! Direct writes: the bytes go to the members, the word to the proxy.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Client, Handle};
use ebb_types::InodeId;
use ebb_wire::pb;
use ebb_wire::pb::shared_op::{self, Op};

use super::harness::{Cluster, run};
use super::{join, send, take_turns};

const MIB: u64 = 1 << 20;

fn filled(byte: u8, len: u64) -> Bytes {
    Bytes::from(vec![byte; len as usize])
}

async fn is_filled(sharer: &(Client, Handle), offset: u64, len: u64, byte: u8) -> bool {
    sharer.0.read(sharer.1, offset, len as u32).await.unwrap() == filled(byte, len)
}

/// Requests to the proxy by hand, with numbers that the client library does not use.
pub(super) struct ByHand<'a> {
    cluster: &'a Cluster,
    client: &'a Client,
    message: pb::SharedOp,
}

impl<'a> ByHand<'a> {
    pub async fn new(cluster: &'a Cluster, client: &'a Client, inode: InodeId) -> Self {
        let joined = join(cluster, client, inode).await;
        let message = pb::SharedOp {
            session: client.session().raw(),
            request: 1000,
            acknowledged: 1000,
            boot: joined.boot,
            inode: inode.raw(),
            epoch: joined.epoch,
            op: None,
        };
        Self { cluster, client, message }
    }

    pub async fn send(&self, request: u64, op: Op) -> ebb_types::Result<pb::SharedOpReply> {
        let message = pb::SharedOp { request, op: Some(op), ..self.message.clone() };
        send(self.cluster, self.client, &message, &Bytes::new()).await
    }

    /// A place for bytes.
    pub async fn ask(&self, request: u64, offset: u64, length: u64) -> Vec<pb::DirectPart> {
        let answer = self.send(request, Op::Direct(shared_op::Direct { offset, length })).await.unwrap();
        assert!(!answer.moved && answer.failure.is_none(), "{answer:?}");
        answer.parts
    }

    async fn apply(&self, request: u64, ticket: u64) -> pb::SharedOpReply {
        let apply = shared_op::Apply { ticket, abandon: false, take_privileges: false };
        self.send(request, Op::Apply(apply)).await.unwrap()
    }

    /// Puts bytes of a part with every member.
    async fn put(&self, ticket: u64, part: &pb::DirectPart, bytes: &Bytes) {
        let sums = bytes.chunks(ebb_types::CHUNK_SIZE as usize).map(ebb_wire::frame::crc32c).collect();
        for member in &part.members {
            let message = pb::PutStaged {
                ticket: Some(pb::Ticket { session: self.message.session, request: ticket }),
                metablock: part.metablock,
                volume: member.volume,
                incarnation: member.incarnation,
                epoch: self.message.epoch,
                offset: part.offset,
                checksums: Vec::clone(&sums),
                pipeline: Vec::new(),
                hears_held_up: false,
            };
            let mut kept = 0;
            for address in self.cluster.node_addresses() {
                let channel = self.client.connector().channel(&address);
                let answer = channel.call_with(&message, vec![bytes.clone()], Duration::from_secs(2)).await.unwrap();
                // The nodes that do not have this volume say so.
                kept += usize::from(answer.message.results[0].failure.is_none());
            }
            assert_eq!(kept, 1);
        }
    }
}

#[test]
fn bytes_put_at_the_members_are_read_by_all_in_one_order() {
    run(31, |cluster: Cluster| async move {
        let (sharers, _) = cluster.sharers(2).await;
        take_turns(&sharers).await;
        let (one, two) = (&sharers[0], &sharers[1]);
        // The last one lies in two metablocks.
        for (turn, offset) in [0, MIB, MIB / 2, 63 * MIB, 64 * MIB - MIB / 2].into_iter().enumerate() {
            let (writer, reader) = if turn % 2 == 0 { (one, two) } else { (two, one) };
            let byte = turn as u8 + 1;
            writer.0.write(writer.1, offset, filled(byte, MIB)).await.unwrap();
            assert!(is_filled(reader, offset, MIB, byte).await, "turn {turn}");
            assert!(is_filled(writer, offset, MIB, byte).await, "turn {turn}");
        }
        assert!(is_filled(two, 0, MIB / 2, 1).await && is_filled(two, 3 * MIB / 2, MIB / 2, 2).await);
        let direct = |sharer: &(Client, Handle)| sharer.0.metrics().direct_writes;
        assert_eq!((direct(one), direct(two)), (3, 2));
        // A small one over it, by way of the proxy, and back under a lease of one's own.
        two.0.write(two.1, 10, Bytes::from_static(b"small")).await.unwrap();
        assert_eq!(&one.0.read(one.1, 8, 9).await.unwrap()[..], b"\x01\x01small\x01\x01");
        one.0.fsync(one.1).await.unwrap();
        cluster.world.sleep(Duration::from_secs(8)).await;
        assert_eq!(&two.0.read(two.1, 8, 9).await.unwrap()[..], b"\x01\x01small\x01\x01");
        assert!(is_filled(one, 64 * MIB - MIB / 2, MIB, 5).await);
    });
}

/// Goal: a direct write does not wait for the whole deadline of a hop whose next member the master misses. Method: that member is frozen
/// so that the master misses it while the write is under way.
#[test]
fn a_direct_write_gives_a_chain_up_that_is_stuck() {
    run(36, |cluster: Cluster| async move {
        let (sharers, inode) = cluster.sharers(2).await;
        take_turns(&sharers).await;
        let (one, two) = (&sharers[0], &sharers[1]);
        one.0.write(one.1, 0, filled(1, MIB)).await.unwrap();
        let parts = ByHand::new(&cluster, &two.0, inode).await.ask(1000, 0, MIB).await;
        let last = parts[0].members.last().unwrap().node;
        cluster.freeze_node(usize::try_from(last).unwrap() - 1);
        cluster.world.sleep(Duration::from_millis(2300)).await;
        let started = cluster.world.now();
        one.0.write(one.1, MIB, filled(2, MIB)).await.unwrap();
        let took = cluster.world.now() - started;
        // Until it is missed, a second for the direct attempt, and one for the proxy's.
        assert!(took < Duration::from_millis(3000), "{took:?}");
        assert!(is_filled(two, MIB, MIB, 2).await);
        cluster.thaw_node(usize::try_from(last).unwrap() - 1);
    });
}

#[test]
fn writes_of_many_that_overlap_stay_whole() {
    run(32, |cluster: Cluster| async move {
        let (sharers, _) = cluster.sharers(4).await;
        take_turns(&sharers).await;
        let mut tasks = Vec::new();
        for (sharer, (client, handle)) in sharers.iter().cloned().enumerate() {
            let runtime = cluster.world.process(&format!("c{sharer}")).runtime();
            tasks.push(runtime.spawn("write and read", async move {
                for turn in 0..12u8 {
                    // Over the edge of two metablocks.
                    let at = 64 * MIB - MIB / 2;
                    client.write(handle, at, filled(sharer as u8 * 20 + turn, MIB)).await.unwrap();
                    let read = client.read(handle, at, MIB as u32).await.unwrap();
                    assert!(read.iter().all(|byte| *byte == read[0]), "parts of two writes");
                }
            }));
        }
        for task in tasks {
            task.join().await.unwrap();
        }
        assert!(sharers.iter().all(|(client, _)| client.metrics().direct_writes > 0));
    });
}

#[test]
fn a_report_is_carried_out_once_and_not_when_it_is_late() {
    run(33, |cluster: Cluster| async move {
        let (sharers, inode) = cluster.sharers(2).await;
        take_turns(&sharers).await;
        let hand = ByHand::new(&cluster, &sharers[0].0, inode).await;
        let parts = hand.ask(1001, 0, MIB).await;
        assert_eq!(hand.ask(1001, 0, MIB).await, parts, "asked again: the same place");
        hand.put(1001, &parts[0], &filled(1, MIB)).await;
        hand.put(1001, &parts[0], &filled(1, MIB)).await;
        let answer = hand.apply(1002, 1001).await;
        assert!(!answer.expired && answer.failure.is_none(), "{answer:?}");
        // Another client writes over it, and the report comes again: under its number, and under another one.
        sharers[1].0.write(sharers[1].1, 0, filled(2, MIB)).await.unwrap();
        assert_eq!(hand.apply(1002, 1001).await, answer);
        assert!(hand.apply(1003, 1001).await.expired);
        assert!(is_filled(&sharers[0], 0, MIB, 2).await);
        // One that comes too late: others may have gone before it.
        let parts = hand.ask(1004, 0, MIB).await;
        hand.put(1004, &parts[0], &filled(3, MIB)).await;
        let started = cluster.world.now();
        sharers[1].0.write(sharers[1].1, 5, Bytes::from_static(b"x")).await.unwrap();
        let waited = cluster.world.now() - started;
        assert!(waited > Duration::from_secs(4) && waited < Duration::from_secs(9), "{waited:?}");
        assert!(hand.apply(1005, 1004).await.expired);
        assert_eq!(&sharers[0].0.read(sharers[0].1, 4, 3).await.unwrap()[..], b"\x02x\x02");
    });
}

#[test]
fn bytes_lost_by_a_member_before_they_were_written_come_from_another() {
    run(34, |cluster: Cluster| async move {
        let (sharers, inode) = cluster.sharers(2).await;
        take_turns(&sharers).await;
        let hand = ByHand::new(&cluster, &sharers[0].0, inode).await;
        let parts = hand.ask(1001, MIB, MIB).await;
        hand.put(1001, &parts[0], &filled(7, MIB)).await;
        cluster.restart_node(0).await;
        // There are as many nodes as copies: no node could be a replacement.
        let answer = hand.apply(1002, 1001).await;
        assert!(!answer.expired && answer.failure.is_none(), "{answer:?}");
        sharers[1].0.fsync(sharers[1].1).await.unwrap();
        assert!(is_filled(&sharers[1], MIB, MIB, 7).await);
    });
}

#[test]
fn bytes_that_all_members_lost_are_reported() {
    run(35, |cluster: Cluster| async move {
        let (sharers, inode) = cluster.sharers(2).await;
        take_turns(&sharers).await;
        sharers[0].0.write(sharers[0].1, MIB, filled(1, MIB)).await.unwrap();
        sharers[0].0.fsync(sharers[0].1).await.unwrap();
        let hand = ByHand::new(&cluster, &sharers[0].0, inode).await;
        let parts = hand.ask(1001, MIB, MIB).await;
        hand.put(1001, &parts[0], &filled(7, MIB)).await;
        for node in 0..3 {
            cluster.restart_node(node).await;
        }
        let lost = hand.send(1002, Op::Apply(shared_op::Apply { ticket: 1001, ..Default::default() })).await.unwrap();
        assert!(lost.failure.is_some(), "{lost:?}");
        // What was synced is there, and the file goes on.
        assert!(is_filled(&sharers[1], MIB, MIB, 1).await);
        let _ = sharers[1].0.write(sharers[1].1, MIB, filled(2, MIB)).await;
        sharers[1].0.write(sharers[1].1, MIB, filled(3, MIB)).await.unwrap();
        assert!(is_filled(&sharers[0], MIB, MIB, 3).await);
    });
}
