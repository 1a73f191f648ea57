//! What a session sent before it ended changes nothing after that.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Allocate, Client, Handle, IfLocked, Lock, LockKind, LockSort};
use ebb_runtime::virt::World;
use ebb_types::{ErrorKind, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::shared_op::{self, Op};

use super::harness::{Cluster, run, run_apart};
use super::{join, number, read_number, send, take_turns};

fn write_at(client: &Client, joined: &pb::JoinSharedReply, inode: InodeId, request: u64, offset: u64) -> pb::SharedOp {
    let write = shared_op::Write { offset, at_end: false, take_privileges: false };
    pb::SharedOp {
        session: client.session().raw(),
        request,
        acknowledged: request,
        boot: joined.boot,
        inode: inode.raw(),
        epoch: joined.epoch,
        op: Some(Op::Write(write)),
    }
}

#[test]
fn a_request_after_its_sessions_end_is_refused_and_an_earlier_one_is_answered() {
    run(30, come_late);
    run_apart(130, come_late);
}

async fn come_late(cluster: Cluster) {
    let (sharers, inode) = cluster.sharers(3).await;
    take_turns(&sharers).await;
    let (gone, other) = (&sharers[0].0, &sharers[1]);
    let joined = join(&cluster, gone, inode).await;
    let (first, second) = (
        write_at(gone, &joined, inode, 1000, 8),
        pb::SharedOp { request: 1001, ..write_at(gone, &joined, inode, 1000, 16) },
    );
    let answer = send(&cluster, &other.0, &first, &number(5)).await.unwrap();
    gone.disconnect().await.unwrap();
    assert_eq!(send(&cluster, &other.0, &first, &number(5)).await.unwrap(), answer, "it was done");
    for _ in 0..2 {
        let late = send(&cluster, &other.0, &second, &number(6)).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::SessionExpired, "{late}");
    }
    let read = Op::Read(shared_op::Read { offset: 0, length: 8 });
    let read = pb::SharedOp { request: 0, op: Some(read), ..second };
    let late = send(&cluster, &other.0, &read, &Bytes::new()).await.unwrap();
    assert_eq!(late.failure.map(|failure| failure.kind), Some(ErrorKind::SessionExpired.raw()));
    assert_eq!(read_number(other, 8).await, 5);
    assert_eq!(other.0.read(other.1, 0, 100).await.unwrap().len(), 16);
}

/// Goal: it is the end of the session that counts when an operation's turn comes, not when it arrives. Method: it arrives
/// while another one has the whole file, which waits for a node that is frozen; then its session ends.
#[test]
fn a_request_that_waits_as_its_session_ends_is_refused() {
    run(31, |cluster: Cluster| async move {
        let (sharers, inode) = cluster.sharers(3).await;
        take_turns(&sharers).await;
        let (gone, other) = (sharers[0].0.clone(), &sharers[1]);
        let joined = join(&cluster, &gone, inode).await;
        // Or its disconnecting would wait for the frozen node, too.
        gone.fsync(sharers[0].1).await.unwrap();
        cluster.freeze_node(0);
        let (client, handle) = sharers[2].clone();
        let runtime = cluster.world.process("c2").runtime();
        let holding = runtime.spawn("hole", async move { client.allocate(handle, Allocate::PunchHole, 0, 4).await });
        cluster.world.sleep(Duration::from_millis(100)).await;
        let waiting = write_at(&gone, &joined, inode, 1000, 8);
        let (own, asker, world) = (cluster.proxy_address(), other.0.clone(), cluster.world.clone());
        let late = cluster.world.process("c1").runtime().spawn("late", async move {
            let channel = asker.connector().channel(&own);
            (channel.call_sized(&waiting, vec![number(6)], 0, Duration::from_secs(20)).await, world.now())
        });
        cluster.world.sleep(Duration::from_millis(100)).await;
        gone.disconnect().await.unwrap();
        let ended_at = cluster.world.now();
        cluster.thaw_node(0);
        holding.join().await.unwrap().unwrap();
        let (reply, answered_at) = late.join().await.unwrap();
        assert!(answered_at >= ended_at, "it waited for its turn");
        let reply = reply.unwrap().message;
        assert_eq!(reply.failure.map(|failure| failure.kind), Some(ErrorKind::SessionExpired.raw()));
        assert_eq!(other.0.read(other.1, 0, 100).await.unwrap().len(), 8, "nothing was written");
    });
}

/// Uses a file now and then; two such clients keep it at the proxy.
async fn keep_busy(world: World, sharer: (Client, Handle)) {
    loop {
        read_number(&sharer, 0).await;
        world.sleep(Duration::from_secs(1)).await;
    }
}

/// Goal: the former holder of a lock does not overwrite the new one's bytes. Method: a client that has the lock is
/// cut off, writes into the cut link, loses its session, and the network delivers the write after another client has
/// the lock.
#[test]
fn a_session_that_lost_its_locks_overwrites_no_other() {
    for seed in 32..36 {
        run(seed, lose_locks);
        run_apart(seed + 100, lose_locks);
    }
}

async fn lose_locks(cluster: Cluster) {
    let (sharers, inode) = cluster.sharers(4).await;
    take_turns(&sharers).await;
    for (number, sharer) in sharers.iter().enumerate().skip(2) {
        let runtime = cluster.world.process(&format!("c{number}")).runtime();
        runtime.spawn("keep busy", keep_busy(cluster.world.clone(), sharer.clone()));
    }
    let (cut, next) = (&sharers[0], &sharers[1]);
    let lock = |owner| Lock { kind: LockKind::Exclusive, pid: Some(1), ..Lock::release_all(owner, LockSort::Flock) };
    cut.0.set_lock(inode, lock(1), IfLocked::Wait).await.unwrap();
    cut.0.write(cut.1, 0, number(1)).await.unwrap();
    cut.0.fsync(cut.1).await.unwrap();
    let session = cut.0.session();

    cluster.cut_off("c0");
    let (client, handle) = cut.clone();
    let runtime = cluster.world.process("c0").runtime();
    let late = runtime.spawn("late", async move { client.write(handle, 0, number(2)).await });
    let before = next.0.metrics();
    next.0.set_lock(inode, lock(2), IfLocked::Wait).await.unwrap();
    assert_eq!(read_number(next, 0).await, 1, "the write is still on its way");

    cluster.let_in("c0");
    cluster.world.sleep(Duration::from_secs(15)).await;
    assert_eq!(read_number(next, 0).await, 1, "the lock is another's by now");
    assert_eq!(late.join().await.unwrap().unwrap_err().kind().errno(), ErrorKind::Io.errno());
    assert_ne!(cut.0.session(), session);
    let after = next.0.metrics();
    assert_eq!(after.moved_operations, before.moved_operations, "the file was at the proxy all the time");
    assert!(after.proxied_operations >= before.proxied_operations + 2, "{after:?}");
    // It has lost no more than that.
    cut.0.write(cut.1, 8, number(3)).await.unwrap();
    cut.0.fsync(cut.1).await.unwrap();
    assert_eq!((read_number(next, 0).await, read_number(next, 8).await), (1, 3));
}

/// Goal: a proxy that hears nothing of the master carries nothing out for a session that may be over. Method: it is
/// cut off from the master after it learned that a session lives. The session ends, which takes until that answer is
/// too old. Then a request arrives that the session had sent before.
#[test]
fn a_session_that_ended_while_the_proxy_was_cut_off_writes_nothing_more() {
    for seed in 140..144 {
        run_apart(seed, |cluster: Cluster| async move {
            let (sharers, inode) = cluster.sharers(3).await;
            take_turns(&sharers).await;
            let (gone, other) = (sharers[0].0.clone(), &sharers[1]);
            let joined = join(&cluster, &gone, inode).await;
            let first = write_at(&gone, &joined, inode, 1000, 8);
            send(&cluster, &other.0, &first, &number(5)).await.unwrap();
            gone.fsync(sharers[0].1).await.unwrap();
            let began = cluster.world.now();
            cluster.world.partition("proxy", "master");
            gone.disconnect().await.unwrap();
            assert!(cluster.world.now() - began > Duration::from_secs(2), "its end waits until nobody believes in it");
            let second = pb::SharedOp { request: 1001, ..write_at(&gone, &joined, inode, 1000, 8) };
            let (own, asker) = (cluster.proxy_address(), other.0.clone());
            let late = asker.connector().channel(&own);
            let refused = late.call_sized(&second, vec![number(6)], 0, Duration::from_secs(4)).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Timeout, "it waits for the master's word");
            cluster.world.mend("proxy", "master");
            let error = send(&cluster, &other.0, &second, &number(6)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::SessionExpired, "{error}");
            assert_eq!(read_number(other, 8).await, 5);
        });
    }
}
