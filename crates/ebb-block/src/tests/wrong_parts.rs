//! Parts of a RAID set whose checksums are right, and whose bytes are not what was encoded.

use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::virt::World;
use ebb_types::ErrorKind;
use ebb_wire::pb;

use super::encode::{RAID_SET, Rig};
use super::master::FakeMaster;
use super::rig::{LONG, failures, in_world, version};

const LENGTH: usize = 100_000;

/// Writes these bytes to a server without a replica of the metablock, as its writer would have. Returns where they are.
async fn lie(rig: &Rig, at: usize, metablock: u64, bytes: &Bytes) -> Vec<pb::Hop> {
    let hops = vec![rig.hops[at].clone()];
    assert_eq!(failures(&rig.client.write(&hops, metablock, 1, 0, bytes, true, LONG).await), [0]);
    hops
}

fn with_a_flipped_bit(bytes: &Bytes) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[70_001] ^= 4;
    bytes.into()
}

fn verify_of(rebuild: &pb::RebuildReplica) -> pb::VerifySet {
    let (code, slots, rows) = (rebuild.code, rebuild.slots.clone(), rebuild.rows.clone());
    pb::VerifySet { raid_set: RAID_SET, code, slots, rows, rate_bytes_per_sec: 0 }
}

/// Metablock and node of each report to the master since it was asked last.
async fn reported(world: &World, master: &FakeMaster) -> Vec<(u64, u64)> {
    world.process("client").runtime().sleep(Duration::from_secs(1)).await;
    std::mem::take(&mut master.0.lock().damaged)
        .iter()
        .map(|report| (report.metablock, report.member.unwrap().node))
        .collect()
}

#[test]
fn a_row_that_its_slots_do_not_give_is_reported_and_made_again() {
    in_world(41, |world, state, master| async move {
        let rig = Rig::new(&world, &master, [LENGTH; 4]).await;
        let made = rig.encode(&rig.message()).await.unwrap();
        let node = |at: usize| rig.hops[at].member.unwrap().node;
        for row in [0, 1] {
            let good = rig.row(row, &made[row]).await;
            let metablock = 100 + row as u64;
            let mut message = rig.rebuild(&made, metablock, row, &[]);
            message.rows[row].sources = lie(&rig, row, metablock, &with_a_flipped_bit(&good)).await;
            let verify = verify_of(&message);
            let faults = rig.client.call(&rig.hops[5], &verify).await.unwrap().faults;
            assert_eq!(faults[row], "from byte 70001 on it is not what the slots give");
            assert!(faults[1 - row].is_empty(), "{faults:?}");
            assert_eq!(reported(&world, &state).await, [(metablock, node(row))]);

            message.rows[row].sources.clear();
            rig.client.call(&rig.hops[row], &message).await.unwrap();
            assert!(
                rig.replica(row, metablock, made[row].length).await != good,
                "by its checksums it is there already"
            );
            message.anew = true;
            rig.client.call(&rig.hops[row], &message).await.unwrap();
            assert!(rig.replica(row, metablock, made[row].length).await == good);
            assert_eq!(rig.client.call(&rig.hops[5], &verify).await.unwrap().faults, ["", ""]);
        }
    });
}

/// Goal: the rows, which are right, are not made to fit a slot that is wrong: it would be lost.
#[test]
fn a_slot_that_is_not_what_was_encoded_is_made_again_and_no_row_is() {
    in_world(42, |world, state, master| async move {
        let rig = Rig::new(&world, &master, [LENGTH; 4]).await;
        let made = rig.encode(&rig.message()).await.unwrap();
        let mut message = rig.rebuild(&made, 3, 5, &[]);
        message.slots[2].sources = lie(&rig, 5, 3, &with_a_flipped_bit(&rig.slots[2])).await;
        let faults = rig.client.call(&rig.hops[4], &verify_of(&message)).await.unwrap().faults;
        assert!(faults.iter().all(|fault| fault.starts_with("from byte 70001 on")), "{faults:?}");
        let wrong = (3, rig.hops[5].member.unwrap().node);
        assert_eq!(reported(&world, &state).await, [wrong]);

        // As a source it is found out, and not decoded from.
        let mut other = rig.rebuild(&made, 2, 4, &[2]);
        other.slots[2].sources = message.slots[2].sources.clone();
        rig.client.call(&rig.hops[4], &other).await.unwrap();
        assert!(rig.replica(4, 2, LENGTH as u64).await == rig.slots[1]);
        assert_eq!(reported(&world, &state).await, [wrong]);
        for row in [0, 1] {
            let mut other = rig.rebuild(&made, 100 + row as u64, row, &[100 + row as u64]);
            other.slots[2].sources = message.slots[2].sources.clone();
            rig.client.call(&rig.hops[row], &other).await.unwrap();
            assert!(rig.replica(row, 100 + row as u64, made[row].length).await == rig.row(row, &made[row]).await);
        }

        message.slots[2].sources.clear();
        message.anew = true;
        rig.client.call(&rig.hops[5], &message).await.unwrap();
        assert!(rig.replica(5, 3, LENGTH as u64).await == rig.slots[2]);
    });
}

/// Goal: a rebuild does without a row that lies, if another one is left. Method: three rows, of which the first is gone and the
/// second is wrong.
#[test]
fn a_rebuild_finds_the_row_that_lies() {
    in_world(43, |world, state, master| async move {
        let rig = Rig::new(&world, &master, [LENGTH; 4]).await;
        let mut encode = rig.message();
        encode.code = Some(pb::RaidCode { copies: 1, slots: 4, rows: 3, domain: 0 });
        encode.rows.push(pb::EncodeRow { metablock: 102, target: Some(rig.hops[0].clone()) });
        let made = rig.encode(&encode).await.unwrap();
        let row = |row: usize, sources: Vec<pb::Hop>| pb::RebuildRow {
            metablock: 100 + row as u64,
            length: made[row].length,
            sources,
        };
        let lying = lie(&rig, 2, 101, &with_a_flipped_bit(&rig.row(1, &made[1]).await)).await;
        let wrong = (101, lying[0].member.unwrap().node);
        let last = vec![rig.hops[0].clone()];
        let mut message = rig.rebuild(&made, 2, 4, &[2]);
        message.code = encode.code;
        message.rows = vec![row(0, Vec::new()), row(1, lying.clone()), row(2, last.clone())];
        rig.client.call(&rig.hops[4], &message).await.unwrap();
        assert!(rig.replica(4, 2, LENGTH as u64).await == rig.slots[1]);
        assert_eq!(reported(&world, &state).await, [wrong]);

        // A row is made of right slots alone, though one of them is gone.
        (message.metablock, message.volume) = (100, rig.hops[3].member.unwrap().volume);
        message.incarnation = rig.hops[3].member.unwrap().incarnation;
        rig.client.call(&rig.hops[3], &message).await.unwrap();
        assert!(rig.replica(3, 100, made[0].length).await == rig.row(0, &made[0]).await);
        assert_eq!(reported(&world, &state).await, [wrong]);

        // Without the last row nothing tells what was there.
        let gone = rig.rebuild(&made, 2, 5, &[2]);
        message = pb::RebuildReplica { rows: vec![row(0, Vec::new()), row(1, lying), row(2, Vec::new())], ..gone };
        message.code = encode.code;
        let error = rig.client.call(&rig.hops[5], &message).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let absent = rig.client.read(&rig.hops[5], 2, version(1, 1), 0, 1 << 20).await.unwrap_err();
        assert!(matches!(absent.kind(), ErrorKind::NoReplica | ErrorKind::StaleVersion), "{absent}");
    });
}
