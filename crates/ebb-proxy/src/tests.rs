//! Shared files through a master, a proxy, block servers and clients in the virtual world.

mod direct;
mod ends;
mod harness;
mod sessions;
mod stopovers;
mod takeovers;
mod tending;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Client, Handle, SetAttr};
use ebb_runtime::Task;
use ebb_types::{Credentials, ErrorKind, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::shared_op::{self, Op};

use self::harness::{Cluster, run};

fn number(value: u64) -> Bytes {
    Bytes::copy_from_slice(&value.to_le_bytes())
}

async fn read_number(sharer: &(Client, Handle), offset: u64) -> u64 {
    let data = sharer.0.read(sharer.1, offset, 8).await.unwrap();
    u64::from_le_bytes(data[..].try_into().unwrap())
}

/// Turns until the file is shared.
async fn take_turns(sharers: &[(Client, Handle)]) {
    for turn in 0..40 {
        let (client, handle) = &sharers[turn % sharers.len()];
        client.write(*handle, 0, number(turn as u64)).await.unwrap();
        if sharers.iter().all(|(client, _)| client.metrics().proxied_operations > 0) {
            return;
        }
    }
    panic!("forty turns, and the file is not shared");
}

#[test]
fn writers_in_turns_are_sent_to_the_proxy_and_a_lone_one_goes_back() {
    run(1, |cluster: Cluster| async move {
        let (sharers, inode) = cluster.sharers(2).await;
        take_turns(&sharers).await;
        for turn in 0..50u64 {
            let (writer, reader) = (&sharers[turn as usize % 2], &sharers[(turn as usize + 1) % 2]);
            writer.0.write(writer.1, 8, number(turn)).await.unwrap();
            assert_eq!(read_number(reader, 8).await, turn);
            assert_eq!(read_number(writer, 8).await, turn);
            let attr = reader.0.get_attr(&Credentials::root(), inode).await.unwrap();
            assert_eq!(attr.size, 16);
        }
        let set = SetAttr { size: Some(100), by_handle: true, ..SetAttr::default() };
        assert_eq!(sharers[0].0.set_attr(&Credentials::root(), inode, set).await.unwrap().size, 100);
        assert_eq!(sharers[1].0.read(sharers[1].1, 90, 100).await.unwrap(), vec![0; 10]);
        // One goes on alone: after a while without the proxy.
        for turn in 0..8 {
            sharers[0].0.write(sharers[0].1, 8, number(turn)).await.unwrap();
            cluster.world.sleep(Duration::from_secs(1)).await;
        }
        let before = sharers[0].0.metrics().proxied_operations;
        sharers[0].0.write(sharers[0].1, 8, number(77)).await.unwrap();
        sharers[0].0.fsync(sharers[0].1).await.unwrap();
        assert_eq!(sharers[0].0.metrics().proxied_operations, before);
        assert_eq!(read_number(&sharers[1], 8).await, 77);
    });
}

#[test]
fn appends_of_many_clients_stay_whole_and_none_is_lost() {
    run(2, |cluster: Cluster| async move {
        let (sharers, _) = cluster.sharers(4).await;
        take_turns(&sharers).await;
        let start = 8;
        let mut tasks = Vec::new();
        for (sharer, (client, handle)) in sharers.iter().cloned().enumerate() {
            let runtime = cluster.world.process(&format!("c{sharer}")).runtime();
            tasks.push(runtime.spawn("append", async move {
                let mut places = Vec::new();
                for turn in 0..50u64 {
                    let record = vec![sharer as u8 * 50 + turn as u8 + 1; 100 + turn as usize];
                    places.push(client.append(handle, record.into()).await.unwrap());
                }
                client.fsync(handle).await.unwrap();
                places
            }));
        }
        let mut places = BTreeSet::new();
        for task in tasks {
            places.extend(task.join().await.unwrap());
        }
        assert_eq!((places.len(), places.first()), (200, Some(&start)));
        let data = sharers[0].0.read(sharers[0].1, 0, 1 << 20).await.unwrap();
        let mut seen = BTreeSet::new();
        let mut at = start as usize;
        while at < data.len() {
            let mark = data[at];
            let len = 100 + (mark as usize - 1) % 50;
            assert!(data[at..at + len].iter().all(|byte| *byte == mark), "the record at {at} is whole");
            assert!(places.contains(&(at as u64)) && seen.insert(mark));
            at += len;
        }
        assert_eq!(seen.len(), 200);
    });
}

async fn send(
    cluster: &Cluster,
    client: &Client,
    message: &pb::SharedOp,
    data: &Bytes,
) -> ebb_types::Result<pb::SharedOpReply> {
    let channel = client.connector().channel(&cluster.proxy_address());
    let sent = channel.call_sized(message, vec![data.clone()], 0, Duration::from_secs(5)).await?;
    Ok(sent.message)
}

async fn join(cluster: &Cluster, client: &Client, inode: InodeId) -> pb::JoinSharedReply {
    let channel = client.connector().channel(&cluster.proxy_address());
    let message = pb::JoinShared { session: client.session().raw(), inode: inode.raw() };
    channel.call(&message, Duration::from_secs(5)).await.unwrap()
}

#[test]
fn a_repeated_append_is_answered_and_a_late_one_is_refused() {
    run(3, |cluster: Cluster| async move {
        let (sharers, inode) = cluster.sharers(2).await;
        take_turns(&sharers).await;
        let client = &sharers[0].0;
        let joined = join(&cluster, client, inode).await;
        let write = shared_op::Write { offset: 0, at_end: true, take_privileges: false };
        // Numbers that the client library does not use in this test.
        let first = pb::SharedOp {
            session: client.session().raw(),
            request: 1000,
            acknowledged: 1000,
            boot: joined.boot,
            inode: inode.raw(),
            epoch: joined.epoch,
            op: Some(Op::Write(write)),
        };
        let data = Bytes::from_static(b"once");
        let answer = send(&cluster, client, &first, &data).await.unwrap();
        assert_eq!((answer.offset, answer.moved), (8, false));
        assert_eq!(send(&cluster, client, &first, &data).await.unwrap(), answer, "answered, not done again");
        let size = client.get_attr(&Credentials::root(), inode).await.unwrap().size;
        assert_eq!(size, 12);

        let elsewhere = pb::SharedOp { boot: joined.boot + 2, request: 1001, ..first.clone() };
        let refused = send(&cluster, client, &elsewhere, &data).await.unwrap();
        assert!(refused.moved && !refused.kept && refused.boot == joined.boot, "another process was meant");

        let next = pb::SharedOp { request: 1002, acknowledged: 1002, ..first.clone() };
        send(&cluster, client, &next, &data).await.unwrap();
        let late = send(&cluster, client, &first, &data).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Stale, "its answer was taken");

        // Quiet, and back again under a higher epoch: a request for the old one changes nothing.
        cluster.world.sleep(Duration::from_secs(6)).await;
        let again = join(&cluster, client, inode).await;
        assert!(again.epoch > joined.epoch);
        let old = pb::SharedOp { request: 1003, ..next.clone() };
        let refused = send(&cluster, client, &old, &data).await.unwrap();
        assert!(refused.moved && refused.kept, "given back with everything synced");
        assert_eq!(send(&cluster, client, &next, &data).await.unwrap().offset, 12, "still answered as it was then");
        assert_eq!(client.get_attr(&Credentials::root(), inode).await.unwrap().size, 16);
    });
}

#[test]
fn synced_bytes_survive_the_proxy_and_a_loss_of_others_is_reported() {
    for seed in 10..14 {
        run(seed, |cluster: Cluster| async move {
            let (sharers, _) = cluster.sharers(2).await;
            take_turns(&sharers).await;
            let (one, two) = (&sharers[0], &sharers[1]);
            one.0.write(one.1, 0, number(111)).await.unwrap();
            one.0.fsync(one.1).await.unwrap();
            two.0.write(two.1, 8, number(222)).await.unwrap();
            cluster.restart_master().await;
            assert_eq!(read_number(two, 0).await, 111);
            assert_eq!(read_number(one, 8).await, 222, "every member had received it");
            // The one has synced; the other cannot know that no member lost its power as well.
            one.0.write(one.1, 16, number(1)).await.unwrap();
            let error = two.0.write(two.1, 24, number(2)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            two.0.write(two.1, 24, number(2)).await.unwrap();
            two.0.fsync(two.1).await.unwrap();
            assert_eq!((read_number(one, 16).await, read_number(one, 24).await), (1, 2));
        });
    }
}

/// What became of appends: the byte that each is made of, and where it is.
type Appended = Vec<(u8, ebb_types::Result<u64>)>;

/// Each sharer appends so many records of 50 bytes, one every 20 ms, and syncs. What became of each, with the byte that it is made of,
/// which is its own if they are 255 at most.
fn append_beside(cluster: &Cluster, sharers: &[(Client, Handle)], turns: u8) -> Vec<Task<Appended>> {
    let append = |(sharer, (client, handle)): (usize, (Client, Handle))| {
        let runtime = cluster.world.process(&format!("c{sharer}")).runtime();
        let own = runtime.clone();
        runtime.spawn("append", async move {
            let mut appended = Vec::new();
            for turn in 0..turns {
                let mark = (sharer as u8).wrapping_mul(turns).wrapping_add(turn + 1);
                appended.push((mark, client.append(handle, vec![mark; 50].into()).await));
                own.sleep(Duration::from_millis(20)).await;
            }
            client.fsync(handle).await.unwrap();
            appended
        })
    };
    sharers.iter().cloned().enumerate().map(append).collect()
}

#[test]
fn operations_under_way_when_the_proxy_dies_are_done_once_or_fail() {
    for seed in 20..26 {
        run(seed, |cluster: Cluster| async move {
            let (sharers, _) = cluster.sharers(3).await;
            take_turns(&sharers).await;
            let tasks = append_beside(&cluster, &sharers, 60);
            cluster.world.sleep(Duration::from_millis(400)).await;
            cluster.restart_master().await;
            let mut places = BTreeSet::new();
            let data = {
                let mut all = Vec::new();
                for task in tasks {
                    let mut failed = 0;
                    for (mark, appended) in task.join().await.unwrap() {
                        match appended {
                            Ok(at) => all.push((at, mark)),
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                                failed += 1;
                            }
                        }
                    }
                    assert!(failed <= 2, "{failed} failures of one crash");
                }
                let data = sharers[0].0.read(sharers[0].1, 0, 1 << 20).await.unwrap();
                for (at, mark) in all {
                    assert!(places.insert(at), "two appends at {at}");
                    assert!(data[at as usize..at as usize + 50].iter().all(|byte| *byte == mark), "append at {at}");
                }
                data
            };
            // Each mark is there once at most, also of those that failed.
            let marks: Vec<u8> = data[8..].chunks(50).map(|record| record[0]).collect();
            let distinct: BTreeSet<u8> = marks.iter().copied().collect();
            assert_eq!(distinct.len(), marks.len(), "an append was done twice");
        });
    }
}
