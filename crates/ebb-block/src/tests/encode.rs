//! Check metablocks: made of slots on other nodes, proved, frozen and read for decoding.

use std::time::Duration;

use bytes::Bytes;
use ebb_code::{Code, Part, Present, Trailer};
use ebb_runtime::virt::World;
use ebb_types::{CHUNK_SIZE, Epoch, ErrorKind};
use ebb_wire::pb;

use super::rig::{Client, LONG, bytes, failures, hop, in_world, version, virt_server};
use crate::BlockServer;

pub(super) const RAID_SET: u64 = 900;

/// Six servers. Four metablocks with two copies each are on the first four.
pub(super) struct Rig {
    servers: Vec<BlockServer>,
    pub(super) hops: Vec<pb::Hop>,
    pub(super) client: Client,
    pub(super) slots: Vec<Bytes>,
}

impl Rig {
    pub(super) async fn new(world: &World, master: &str, lengths: [usize; 4]) -> Self {
        let mut servers = Vec::new();
        for host in ["h1", "h2", "h3", "h4", "h5", "h6"] {
            servers.push(virt_server(world, host, master).await);
        }
        let hops: Vec<_> = servers.iter().map(hop).collect();
        let client = Client::new(&world.process("client").runtime());
        let slots: Vec<Bytes> = lengths.iter().enumerate().map(|(slot, len)| bytes(*len, slot as u8 * 37)).collect();
        for (slot, data) in slots.iter().enumerate() {
            let members = [hops[slot].clone(), hops[(slot + 1) % 4].clone()];
            for (part, seq) in (0..data.len()).step_by(1 << 20).zip(1..) {
                let piece = data.slice(part..data.len().min(part + (1 << 20)));
                let results = client.write(&members, slot as u64 + 1, seq, part as u64, &piece, true, LONG).await;
                assert_eq!(failures(&results), [0, 0]);
            }
        }
        Self { servers, hops, client, slots }
    }

    /// The request to the fifth server, with the second row on the sixth.
    pub(super) fn message(&self) -> pb::EncodeSet {
        let slot = |slot: usize| pb::EncodeSlot {
            metablock: slot as u64 + 1,
            version: version(1, self.slots[slot].len().div_ceil(1 << 20) as u64),
            length: self.slots[slot].len() as u64,
            sources: vec![self.hops[slot].clone(), self.hops[(slot + 1) % 4].clone()],
        };
        let row = |row: usize| pb::EncodeRow { metablock: 100 + row as u64, target: Some(self.hops[4 + row].clone()) };
        pb::EncodeSet {
            raid_set: RAID_SET,
            code: Some(pb::RaidCode { copies: 1, slots: 4, rows: 2, domain: 0 }),
            slots: (0..4).map(slot).collect(),
            rows: vec![row(0), row(1)],
            rate_bytes_per_sec: 0,
        }
    }

    pub(super) async fn encode(&self, message: &pb::EncodeSet) -> ebb_types::Result<Vec<pb::EncodedRow>> {
        self.client.call(&self.hops[4], message).await.map(|reply| reply.rows)
    }

    /// All of a row, as its node serves it.
    pub(super) async fn row(&self, row: usize, made: &pb::EncodedRow) -> Bytes {
        let mut found = Vec::new();
        while (found.len() as u64) < made.length {
            let at = found.len() as u64;
            let read = self.client.read(&self.hops[4 + row], 100 + row as u64, made.version, at, 1 << 20).await;
            let (reply, data) = read.unwrap();
            assert_eq!((reply.version, reply.length), (made.version, made.length));
            found.extend_from_slice(&data);
        }
        found.into()
    }

    async fn promise(&self, at: usize, metablock: u64, epoch: Epoch) -> pb::PromisedReplica {
        let member = self.hops[at].member.unwrap();
        let name = pb::ReplicaName { metablock, volume: member.volume, incarnation: member.incarnation };
        let message = pb::PromiseEpoch { epoch: epoch.raw(), replicas: vec![name] };
        self.client.call(&self.hops[at], &message).await.unwrap().replicas.remove(0)
    }
}

#[test]
fn any_two_parts_that_are_lost_are_decoded_from_the_rows() {
    in_world(31, |world, _, master| async move {
        let rig = Rig::new(&world, &master, [300_001, (5 << 20) / 2 + 77, 16 << 10, 1 << 20]).await;
        let made = rig.encode(&rig.message()).await.unwrap();
        let rows = [rig.row(0, &made[0]).await, rig.row(1, &made[1]).await];
        let row_len = rig.slots[1].len().next_multiple_of(CHUNK_SIZE as usize);
        let trailer = Trailer::decode(&rows[1][row_len..], made[1].length).unwrap();
        assert_eq!((trailer.raid_set.raw(), trailer.row, trailer.row_len()), (RAID_SET, 1, row_len as u64));
        assert_eq!(trailer.slots[2].as_ref().unwrap().sums, super::rig::sums(0, &rig.slots[2]));

        let code = Code::new(4, 2).unwrap();
        for (first, second) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
            let lost = [Part::Slot(first), Part::Slot(second)];
            let present = Present::all(code).without(lost[0]).without(lost[1]);
            let plan = code.plan_decode(&present, &lost).unwrap();
            let bytes_of = |part: Part| match part {
                Part::Slot(slot) => &rig.slots[slot][..],
                Part::Row(row) => &rows[row][..row_len],
            };
            let sources: Vec<&[u8]> = plan.sources().iter().map(|source| bytes_of(source.part)).collect();
            let (mut one, mut other) = (vec![0; rig.slots[first].len()], vec![0; rig.slots[second].len()]);
            plan.decode(&sources, &mut [&mut one, &mut other]).unwrap();
            assert!(one == rig.slots[first] && other == rig.slots[second], "slots {first} and {second}");
        }
        drop(rig.servers);
    });
}

#[test]
fn an_attempt_ends_where_a_slot_is_not_what_was_asked_for() {
    in_world(32, |world, _, master| async move {
        let rig = Rig::new(&world, &master, [100_000; 4]).await;
        let mut message = rig.message();
        message.slots[3].version = version(1, 2);
        assert_eq!(rig.encode(&message).await.unwrap_err().kind(), ErrorKind::StaleVersion);
        let mut message = rig.message();
        message.slots[0].length += 1;
        let error = rig.encode(&message).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StaleVersion, "{error}");
        // The rows of these attempts are there, and another one has rows of its own.
        let mut message = rig.message();
        message.rows.iter_mut().for_each(|row| row.metablock += 10);
        let made = rig.encode(&message).await.unwrap();
        assert_eq!(rig.encode(&message).await.unwrap(), made, "a repetition does no harm");
        // Other slots for rows that are there: the nodes have these writes already, and the proof finds what they are.
        message.slots.swap(0, 1);
        assert_eq!(rig.encode(&message).await.unwrap_err().kind(), ErrorKind::Corrupt);

        let mut message = rig.message();
        message.code = Some(pb::RaidCode { copies: 1, slots: 40, rows: 9, domain: 0 });
        assert_eq!(rig.encode(&message).await.unwrap_err().kind(), ErrorKind::Invalid);
        message = pb::EncodeSet { slots: Vec::new(), ..rig.message() };
        assert_eq!(rig.encode(&message).await.unwrap_err().kind(), ErrorKind::Invalid);
    });
}

/// Goal: an attempt that fails leaves no file that its volume does not know. Method: the second row is refused at once, while the first
/// one is being made on the encoder's own volume.
#[test]
fn an_attempt_that_fails_leaves_only_what_its_volume_knows() {
    in_world(38, |world, _, master| async move {
        let rig = Rig::new(&world, &master, [100_000; 4]).await;
        let mut message = rig.message();
        message.rows[1].target.as_mut().unwrap().address = "nowhere".to_owned();
        rig.encode(&message).await.unwrap_err();
        world.sleep(Duration::from_secs(1)).await;
        let stored = world.process("h5").disk_files();
        let stored = stored.iter().filter(|(path, _)| path.components().any(|part| part.as_os_str() == "replicas"));
        let known = rig.servers[4].volumes()[0].replica_count();
        assert_eq!((stored.count(), known), (1, 1), "row 0, which is deleted as a stray");
    });
}

#[test]
fn another_copy_is_read_where_the_first_is_dead() {
    in_world(33, |world, _, master| async move {
        let rig = Rig::new(&world, &master, [100_000, 70_000, 2_000_000, 5]).await;
        world.process("h1").crash();
        let made = rig.encode(&rig.message()).await.unwrap();
        let row = rig.row(0, &made[0]).await;
        let sum = |at: usize| rig.slots.iter().filter_map(|slot| slot.get(at)).fold(0, |sum, byte| sum ^ byte);
        assert!((0..2_000_000).all(|at| row[at] == sum(at)), "row 0 is the sum of the slots");
    });
}

#[test]
fn frozen_and_retired_replicas_refuse_writers_and_retired_ones_readers_too() {
    in_world(34, |world, _, master| async move {
        let rig = Rig::new(&world, &master, [50_000; 4]).await;
        let made = rig.encode(&rig.message()).await.unwrap();
        let frozen = rig.promise(4, 100, Epoch::FROZEN).await;
        assert_eq!((frozen.version, frozen.length, frozen.failure), (made[0].version, made[0].length, None));
        let frozen = rig.promise(0, 1, Epoch::FROZEN).await;
        assert_eq!((frozen.version, frozen.length, frozen.failure), (version(1, 1), 50_000, None));
        let absent = rig.promise(2, 1, Epoch::FROZEN).await;
        assert_eq!(absent.failure.map(|failure| failure.kind), Some(ErrorKind::NoReplica.raw()));

        let write = rig.client.write(&rig.hops[..1], 1, 2, 0, &bytes(10, 9), true, LONG).await;
        assert_eq!(failures(&write), [ErrorKind::StaleEpoch.raw()]);
        rig.client.read(&rig.hops[0], 1, version(1, 1), 0, 1 << 20).await.unwrap();
        assert_eq!(rig.promise(0, 1, Epoch::RETIRED).await.failure, None);
        let refused = rig.client.read(&rig.hops[0], 1, version(1, 1), 0, 1 << 20).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoReplica);
        let read = pb::ReadReplica {
            metablock: 1,
            volume: rig.hops[0].member.unwrap().volume,
            min_version: version(1, 1),
            length: 1 << 20,
            raid_set: RAID_SET,
            ..Default::default()
        };
        let channel = rig.client.connector.channel(&rig.hops[0].address);
        assert_eq!(channel.call_with(&read, Vec::new(), LONG).await.unwrap().payload, rig.slots[0]);
        assert_eq!(rig.promise(0, 1, Epoch::FROZEN).await.failure.unwrap().kind, ErrorKind::StaleEpoch.raw());
    });
}

#[test]
fn encoding_ends_before_its_node_sleeps() {
    in_world(35, |world, _, master| async move {
        let rig = Rig::new(&world, &master, [3 << 20; 4]).await;
        let message = pb::EncodeSet { rate_bytes_per_sec: 4 << 20, ..rig.message() };
        let client = world.process("client2").runtime();
        let (hop, other) = (rig.hops[4].clone(), Client::new(&client));
        let encoding = client.spawn("encode", async move { other.call(&hop, &message).await });
        client.sleep(Duration::from_millis(300)).await;
        rig.client.call(&rig.hops[4], &pb::Rest { ms: 10_000 }).await.unwrap();
        assert_eq!(encoding.join().await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    });
}

impl Rig {
    /// The request to make `metablock` again, without these parts, by metablock.
    pub(super) fn rebuild(
        &self,
        made: &[pb::EncodedRow],
        metablock: u64,
        target: usize,
        lost: &[u64],
    ) -> pb::RebuildReplica {
        let encoded = self.message();
        let mut slots = encoded.slots;
        slots.iter_mut().filter(|slot| lost.contains(&slot.metablock)).for_each(|slot| slot.sources.clear());
        let row = |(row, made): (pb::EncodeRow, &pb::EncodedRow)| pb::RebuildRow {
            metablock: row.metablock,
            length: made.length,
            sources: row.target.into_iter().filter(|_| !lost.contains(&row.metablock)).collect(),
        };
        let member = self.hops[target].member.unwrap();
        pb::RebuildReplica {
            raid_set: RAID_SET,
            code: encoded.code,
            slots,
            rows: encoded.rows.into_iter().zip(made).map(row).collect(),
            metablock,
            volume: member.volume,
            incarnation: member.incarnation,
            epoch: Epoch::FROZEN.raw(),
            rate_bytes_per_sec: 0,
            heir: 0,
            front_bytes: 0,
            anew: false,
        }
    }

    /// All bytes of a replica.
    pub(super) async fn replica(&self, at: usize, metablock: u64, length: u64) -> Bytes {
        let mut found = Vec::new();
        while (found.len() as u64) < length {
            let offset = found.len() as u64;
            found.extend_from_slice(
                &self.client.read(&self.hops[at], metablock, version(1, 1), offset, 1 << 20).await.unwrap().1,
            );
        }
        found.into()
    }
}

#[test]
fn slots_and_rows_that_are_lost_are_made_again() {
    in_world(36, |world, _, master| async move {
        let rig = Rig::new(&world, &master, [300_001, (5 << 20) / 2 + 77, 16 << 10, 1 << 20]).await;
        let made = rig.encode(&rig.message()).await.unwrap();
        let rows = [rig.row(0, &made[0]).await, rig.row(1, &made[1]).await];

        // Two slots at once, and then each row with another part lost.
        for (metablock, slot) in [(1, 0), (2, 1)] {
            let rebuilt = rig.client.call(&rig.hops[5], &rig.rebuild(&made, metablock, 5, &[1, 2])).await.unwrap();
            let length = rig.slots[slot].len() as u64;
            assert_eq!((rebuilt.version, rebuilt.length), (version(1, length.div_ceil(1 << 20)), length));
            assert!(rig.replica(5, metablock, length).await == rig.slots[slot]);
        }
        let rebuilt = rig.client.call(&rig.hops[0], &rig.rebuild(&made, 101, 0, &[101, 3])).await.unwrap();
        assert_eq!(rebuilt.length, made[1].length);
        assert!(rig.replica(0, 101, made[1].length).await == rows[1], "with its trailer");
        // No row is left: the checksums of the slots' members say what it has to be.
        rig.client.call(&rig.hops[1], &rig.rebuild(&made, 100, 1, &[100, 101])).await.unwrap();
        assert!(rig.replica(1, 100, made[0].length).await == rows[0]);
        let frozen = rig.promise(1, 100, Epoch::new(9)).await.failure.unwrap();
        assert_eq!(frozen.kind, ErrorKind::StaleEpoch.raw(), "what is made again is frozen");

        let error = rig.client.call(&rig.hops[5], &rig.rebuild(&made, 1, 5, &[1, 2, 3])).await;
        assert!(error.is_ok(), "the replica is there already: {error:?}");
        let error = rig.client.call(&rig.hops[4], &rig.rebuild(&made, 1, 4, &[1, 2, 3])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let error = rig.client.call(&rig.hops[4], &rig.rebuild(&made, 77, 4, &[])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    });
}

#[test]
fn what_does_not_match_its_writers_checksums_is_not_kept() {
    in_world(37, |world, _, master| async move {
        let rig = Rig::new(&world, &master, [100_000; 4]).await;
        let made = rig.encode(&rig.message()).await.unwrap();
        // Another metablock 3, of the same version and length, on a server that has none: a source that lies.
        let lie = bytes(100_000, 99);
        assert_eq!(failures(&rig.client.write(&rig.hops[5..], 3, 1, 0, &lie, true, LONG).await), [0]);
        let mut message = rig.rebuild(&made, 1, 4, &[1]);
        message.slots[2].sources = vec![rig.hops[5].clone()];
        message.rows[1].sources.clear();
        let error = rig.client.call(&rig.hops[4], &message).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "what lies is left out, and too little is left: {error}");
        let absent = rig.client.read(&rig.hops[4], 1, version(1, 1), 0, 1 << 20).await.unwrap_err();
        assert!(matches!(absent.kind(), ErrorKind::NoReplica | ErrorKind::StaleVersion), "{absent}");
        rig.client.call(&rig.hops[4], &rig.rebuild(&made, 1, 4, &[1])).await.unwrap();
        assert!(rig.replica(4, 1, 100_000).await == rig.slots[0]);
    });
}

/// Flips a bit of a replica, out of sight of its server.
async fn damage(world: &World, rig: &Rig, at: usize, metablock: u64) {
    let pb::Member { volume, incarnation, .. } = rig.hops[at].member.unwrap();
    let name = pb::ReplicaName { metablock, volume, incarnation };
    let described = rig.client.call(&rig.hops[at], &pb::DescribeReplicas { replicas: vec![name] }).await.unwrap();
    let host = format!("h{}", at + 1);
    world.process(&host).flip_bits(described.replicas[0].file.as_ref(), 70_000, 1).unwrap();
}

#[test]
fn a_node_that_reads_damage_reports_it_and_takes_another_copy() {
    in_world(38, |world, state, master| async move {
        let rig = Rig::new(&world, &master, [100_000; 4]).await;
        let made = rig.encode(&rig.message()).await.unwrap();
        let message = rig.rebuild(&made, 4, 4, &[4]);
        let verify = pb::VerifySet {
            raid_set: RAID_SET,
            code: message.code,
            slots: rig.message().slots,
            rows: message.rows.clone(),
            rate_bytes_per_sec: 0,
        };
        assert_eq!(rig.client.call(&rig.hops[5], &verify).await.unwrap().faults, ["", ""]);
        assert!(state.0.lock().damaged.is_empty(), "nothing is damaged");

        damage(&world, &rig, 1, 2).await;
        damage(&world, &rig, 5, 101).await;
        let faults = rig.client.call(&rig.hops[5], &verify).await.unwrap().faults;
        assert!(faults[0].is_empty() && faults[1].starts_with("it is damaged"), "{faults:?}");
        rig.client.call(&rig.hops[4], &message).await.unwrap();
        assert!(rig.replica(4, 4, 100_000).await == rig.slots[3]);
        world.process("client").runtime().sleep(Duration::from_secs(1)).await;
        let of = |report: &pb::ReportReplica| (report.metablock, report.member.unwrap().node);
        let reported: Vec<(u64, u64)> = state.0.lock().damaged.iter().map(of).collect();
        let node = |at: usize| rig.hops[at].member.unwrap().node;
        assert!(reported.contains(&(2, node(1))) && reported.contains(&(101, node(5))), "{reported:?}");
        assert!(reported.len() <= 4, "each reader reports each once: {reported:?}");

        // Its node has not met the damage. The row is made again all the same, where it is.
        let good = rig.row(0, &made[0]).await;
        damage(&world, &rig, 4, 100).await;
        rig.client.call(&rig.hops[4], &rig.rebuild(&made, 100, 4, &[100, 101])).await.unwrap();
        assert!(rig.replica(4, 100, made[0].length).await == good);
    });
}
