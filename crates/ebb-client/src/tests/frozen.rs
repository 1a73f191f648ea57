//! Members that are frozen: what finding that out costs.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_types::InodeId;

use super::harness::{Cluster, create, pattern, read_all, run, run_with_ttl};
use crate::{Client, Handle, IfLocked, Lock, LockKind, LockSort};

/// Files with copies on five hosts, and on which of these each has one.
async fn files(client: &Client, prefix: &str, count: u64) -> Vec<(Handle, InodeId, Vec<String>)> {
    let mut files = Vec::new();
    for number in 0..count {
        let (handle, inode) = create(client, InodeId::ROOT, &format!("{prefix}{number}")).await;
        client.write(handle, 0, pattern(number, 5000)).await.unwrap();
        client.fsync(handle).await.unwrap();
        let hosts = client.locations(inode).await.unwrap().remove(0).hosts;
        files.push((handle, inode, hosts.iter().map(|host| host.as_str().to_owned()).collect()));
    }
    files
}

/// What one call has found out about a frozen member, the others need not: with a deadline for each of them, twenty files
/// would take minutes. The time is virtual.
#[test]
fn a_frozen_member_costs_one_deadline_and_not_one_for_each_file() {
    run(65, 5, |cluster| async move {
        let client = cluster.client("client").await;
        let files = files(&client, "f", 20).await;
        let mut copies = BTreeMap::new();
        files.iter().flat_map(|file| &file.2).for_each(|host| *copies.entry(host.clone()).or_insert(0) += 1);
        let (host, _) = copies.into_iter().max_by_key(|(_, count)| *count).unwrap();
        let frozen = process(&cluster, &host);
        frozen.freeze();
        let begun = cluster.world.now();
        for (number, (handle, ..)) in files.iter().enumerate() {
            client.write(*handle, 0, pattern(number as u64 + 100, 5000)).await.unwrap();
            client.fsync(*handle).await.unwrap();
            // For longer than connections to it last: what breaks is not an answer.
            cluster.world.sleep(Duration::from_secs(1)).await;
        }
        let took = cluster.world.now() - begun - Duration::from_secs(files.len() as u64);
        assert!(took < Duration::from_secs(6), "{took:?}");
        for (_, inode, _) in &files {
            let hosts = client.locations(*inode).await.unwrap().remove(0).hosts;
            let is_there = hosts.iter().any(|at| at.as_str() == host);
            assert!(hosts.len() == 3 && !is_there, "each copy that was there is elsewhere: {hosts:?}");
        }
        frozen.thaw();
        cluster.world.sleep(Duration::from_secs(5)).await;
        for (number, (handle, ..)) in files.iter().enumerate() {
            assert_eq!(read_all(&client, *handle).await.unwrap(), &pattern(number as u64 + 100, 5000)[..]);
        }
    });
}

/// A program that works on one file after the other, by way of several clients, does not wait a deadline for each.
#[test]
fn a_member_missed_by_the_master_keeps_no_client_waiting_long() {
    run(66, 5, |cluster| async move {
        let mut all = Vec::new();
        for name in ["a", "b", "c"] {
            let client = cluster.client(name).await;
            let files = files(&client, name, 12).await;
            all.push((client, files));
        }
        let host = all[0].1[0].2[0].clone();
        let frozen = process(&cluster, &host);
        frozen.freeze();
        let begun = cluster.world.now();
        for (client, files) in &all {
            let (handle, ..) = files.iter().find(|file| file.2.contains(&host)).expect("one of twelve is there");
            client.write(*handle, 0, pattern(7, 5000)).await.unwrap();
            client.fsync(*handle).await.unwrap();
        }
        let took = cluster.world.now() - begun;
        assert!(took < Duration::from_secs(8), "three deadlines would be twelve seconds: {took:?}");
        frozen.thaw();
    });
}

/// Goal: a grant that lies unread at a frozen host is not taken for a lock when the host is back after its session.
/// Method: freezes at many moments around the answer; another one has the lock by the time of the thaw.
#[test]
fn a_grant_that_was_read_too_late_is_not_a_lock() {
    // Shorter than a call waits for its answer: one that was not heard in time is asked for again by itself.
    run_with_ttl(Duration::from_secs(3), 67, 3, |cluster| async move {
        let one = cluster.client("one").await;
        let (_, inode) = create(&one, InodeId::ROOT, "file").await;
        let lock = |kind| Lock { kind, end: Some(9), ..Lock::release_all(5, LockSort::Fcntl) };
        let mut granted = 0;
        for step in 0..20 {
            let host = format!("two{step}");
            let (process, two) = cluster.process_with(cluster.options(&host)).await;
            let freezing = async {
                cluster.world.sleep(Duration::from_micros(50 * step)).await;
                process.freeze();
                cluster.world.sleep(Duration::from_millis(100)).await;
                granted += u32::from(one.test_lock(inode, lock(LockKind::Exclusive)).await.unwrap().is_some());
                one.set_lock(inode, lock(LockKind::Exclusive), IfLocked::Wait).await.unwrap();
                process.thaw();
                cluster.world.now()
            };
            let asking =
                async { (two.set_lock(inode, lock(LockKind::Exclusive), IfLocked::Fail).await, cluster.world.now()) };
            let ((asked, answered), thawed) = tokio::join!(asking, freezing);
            assert!(asked.is_err() || answered < thawed, "step {step}: told of a lock that another one has");
            one.set_lock(inode, lock(LockKind::Unlock), IfLocked::Fail).await.unwrap();
            process.kill();
        }
        assert!(granted > 0, "no freeze came between the grant and its answer");
    });
}

fn process<'a>(cluster: &'a Cluster, host: &str) -> &'a ebb_runtime::virt::Process {
    let processes = cluster.nodes.iter().map(|node| &node.process);
    processes.into_iter().find(|process| process.host() == host).expect("the host of a node")
}
