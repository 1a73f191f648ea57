//! One situation at a time.

use std::sync::Arc;
use std::time::Duration;

use ebb_types::{ErrorKind, HostName, InodeId};
use ebb_wire::pb;

use super::harness::{BLOCK, Blocks, Heard, METABLOCK, create, pattern, read_all, root, run, run_with};
use crate::{Access, Allocate, Created, IfLocked, KnownMap, Lock, LockKind, LockSort, NewFile, Seek, SetAttr, SetTime};

#[test]
fn written_bytes_are_read_by_the_writer_and_by_others() {
    run(1, 3, |cluster| async move {
        let (one, two) = (cluster.client("h0").await, cluster.client("client").await);
        let dir = cluster.small_dataset(&one, 3).await;
        let data = pattern(1, (3 * METABLOCK + 12_345) as usize);
        let (handle, inode) = create(&one, dir, "file").await;
        one.write(handle, 0, data.clone()).await.unwrap();
        assert_eq!(read_all(&one, handle).await.unwrap(), &data[..]);
        // Not committed yet: the other client's open recalls the lease.
        let (other, attr) = two.open(&root(), inode, Access::Read).await.unwrap();
        assert_eq!(attr.size, data.len() as u64);
        assert_eq!(read_all(&two, other).await.unwrap(), &data[..]);
        assert_eq!(one.metrics().recalls, 1);
        assert_eq!(two.locations(inode).await.unwrap().len(), 4);
        let text = two.get_xattr(&root(), inode, b"user.ebb.locations").await.unwrap();
        assert_eq!(String::from_utf8(text).unwrap().lines().count(), 4);
        one.disconnect().await.unwrap();
        two.disconnect().await.unwrap();
    });
}

/// Goal: a recall that overtakes the answer to the create which brings the lease leaves no lease behind that is not the
/// master's. Method: it comes while the create is on its way; inode numbers are given out one after the other. One that
/// only asks for the size gives nothing back: the master still has this client for the holder when it next reads.
#[test]
fn a_lease_recalled_before_its_grant_arrives_is_not_believed() {
    for keep in [pb::LeaseMode::LeaseNone, pb::LeaseMode::LeaseWrite] {
        run(31, 3, |cluster| async move {
            let (one, two) = (cluster.client("h0").await, cluster.client("h1").await);
            let (_, before) = create(&one, InodeId::ROOT, "before").await;
            let coming = InodeId::new(before.raw() + 1);
            let recall = async {
                cluster.world.sleep(Duration::from_micros(10)).await;
                one.shared.on_recall(&pb::Recall { inode: coming.raw(), keep: keep as i32, ..Default::default() });
            };
            let ((handle, inode), ()) = tokio::join!(create(&one, InodeId::ROOT, "file"), recall);
            assert_eq!(inode, coming);
            cluster.world.sleep(Duration::from_secs(1)).await;
            assert!(read_all(&one, handle).await.unwrap().is_empty());
            let (other, _) = two.open(&root(), inode, Access::ReadWrite).await.unwrap();
            two.write(other, 0, pattern(1, 5000)).await.unwrap();
            two.fsync(other).await.unwrap();
            assert_eq!(read_all(&one, handle).await.unwrap(), pattern(1, 5000));
            one.write(handle, 5000, pattern(2, 5000)).await.unwrap();
            one.fsync(handle).await.unwrap();
            assert_eq!(read_all(&two, other).await.unwrap()[5000..], pattern(2, 5000));
        });
    }
}

#[test]
fn stat_elsewhere_shows_size_and_time_of_the_holder() {
    run(2, 3, |cluster| async move {
        let (one, two) = (cluster.client("h0").await, cluster.client("h1").await);
        let (handle, inode) = create(&one, InodeId::ROOT, "file").await;
        one.write(handle, 0, pattern(1, 5000)).await.unwrap();
        let own = one.get_attr(&root(), inode).await.unwrap();
        let seen = two.get_attr(&root(), inode).await.unwrap();
        assert_eq!((seen.size, seen.mtime), (5000, own.mtime));
        one.write(handle, 100, pattern(2, 10)).await.unwrap();
        assert!(one.get_attr(&root(), inode).await.unwrap().mtime > own.mtime);
        // It still has the lease: nothing was flushed for a stat.
        assert_eq!(one.metrics().recalls, 0);
    });
}

#[test]
fn two_clients_take_turns_and_each_sees_the_other() {
    run(3, 3, |cluster| async move {
        let (one, two) = (cluster.client("h0").await, cluster.client("h1").await);
        let heard = Arc::new(Heard::default());
        two.set_listener(heard.clone());
        let dir = cluster.small_dataset(&one, 3).await;
        let (first, inode) = create(&one, dir, "file").await;
        let (second, _) = two.open(&root(), inode, Access::ReadWrite).await.unwrap();
        let mut model = Vec::new();
        for turn in 0..12u64 {
            let (client, handle) = if turn % 2 == 0 { (&one, first) } else { (&two, second) };
            assert_eq!(read_all(client, handle).await.unwrap(), model);
            let data = pattern(turn, 30_000);
            let at = client.append(handle, data.clone()).await.unwrap();
            assert_eq!(at, model.len() as u64);
            model.extend_from_slice(&data);
        }
        assert_eq!(read_all(&one, first).await.unwrap(), model);
        assert!(heard.0.lock().iter().filter(|id| **id == inode).count() >= 5);
        assert_eq!((one.metrics().lost_files, two.metrics().lost_files), (0, 0));
    });
}

#[test]
fn truncate_cuts_and_grows_with_zeros() {
    run(4, 3, |cluster| async move {
        let (one, two) = (cluster.client("h0").await, cluster.client("h1").await);
        let dir = cluster.small_dataset(&one, 2).await;
        let (handle, inode) = create(&one, dir, "file").await;
        let mut model = pattern(1, (2 * METABLOCK + 999) as usize).to_vec();
        one.write(handle, 0, model.clone().into()).await.unwrap();
        for size in [METABLOCK + 100, METABLOCK + 5000, METABLOCK, 3 * METABLOCK + 7, 10, 20, 0, 5] {
            let set = SetAttr { size: Some(size), by_handle: true, ..SetAttr::default() };
            let attr = one.set_attr(&root(), inode, set).await.unwrap();
            assert_eq!(attr.size, size);
            model.resize(size as usize, 0);
            assert_eq!(read_all(&one, handle).await.unwrap(), model, "at {size}");
            let at = (size / 2).min(300_000);
            one.write(handle, at, pattern(size, 77)).await.unwrap();
            model.resize(model.len().max(at as usize + 77), 0);
            model[at as usize..at as usize + 77].copy_from_slice(&pattern(size, 77));
        }
        let (other, _) = two.open(&root(), inode, Access::Read).await.unwrap();
        assert_eq!(read_all(&two, other).await.unwrap(), model);
    });
}

#[test]
fn a_member_that_dies_is_replaced_while_a_copy_streams() {
    run(5, 5, |cluster| async move {
        let client = cluster.client("client").await;
        let dir = cluster.small_dataset(&client, 3).await;
        let (handle, inode) = create(&client, dir, "big").await;
        let data = pattern(5, 12 << 20);
        for (number, part) in data.chunks(100_000).enumerate() {
            if number == 40 {
                cluster.kill_node(0);
            }
            if number == 80 {
                cluster.kill_node(1);
            }
            client.write(handle, number as u64 * 100_000, bytes::Bytes::copy_from_slice(part)).await.unwrap();
        }
        client.fsync(handle).await.unwrap();
        assert!(client.metrics().replaced_members > 0);
        for location in client.locations(inode).await.unwrap() {
            assert_eq!(location.metablock.members.len(), 3);
        }
        let other = cluster.client("h2").await;
        let (reader, _) = other.open(&root(), inode, Access::Read).await.unwrap();
        assert!(read_all(&other, reader).await.unwrap() == data[..]);
        client.flush(handle).await.unwrap();
    });
}

#[test]
fn a_member_that_restarts_gets_again_what_it_had_not_synced() {
    run(6, 3, |cluster| async move {
        let client = cluster.client("client").await;
        let dir = cluster.small_dataset(&client, 3).await;
        let (handle, inode) = create(&client, dir, "file").await;
        let data = pattern(6, 4 << 20);
        for (number, part) in data.chunks(64 << 10).enumerate() {
            if number % 16 == 7 {
                cluster.kill_node(number / 16 % 3);
                cluster.restart_node(number / 16 % 3).await;
            }
            let part = bytes::Bytes::copy_from_slice(part);
            client.write(handle, (number * (64 << 10)) as u64, part).await.unwrap();
        }
        client.fsync(handle).await.unwrap();
        // Three nodes, three copies: no node could be a replacement.
        assert_eq!(client.metrics().replaced_members, 0);
        for node in 0..3 {
            cluster.kill_node(node);
        }
        for node in 0..3 {
            cluster.restart_node(node).await;
        }
        let other = cluster.client("other").await;
        let (reader, _) = other.open(&root(), inode, Access::Read).await.unwrap();
        assert!(read_all(&other, reader).await.unwrap() == data[..]);
    });
}

#[test]
fn without_a_replacement_fsync_fails_in_time_and_the_file_goes_on() {
    run(7, 3, |cluster| async move {
        let client = cluster.client("client").await;
        cluster.set_min_copies(&client, 3).await;
        let (handle, inode) = create(&client, InodeId::ROOT, "file").await;
        client.write(handle, 0, pattern(1, 100_000)).await.unwrap();
        client.fsync(handle).await.unwrap();
        cluster.kill_node(2);
        client.write(handle, 100_000, pattern(2, 1000)).await.unwrap();
        let begun = cluster.world.now();
        let error = client.fsync(handle).await.unwrap_err();
        assert_eq!(error.errno(), 5, "{error}");
        assert!(cluster.world.now() - begun < Duration::from_secs(60));
        // Told once. The data is on those that live, and others can read it.
        client.flush(handle).await.unwrap();
        let other = cluster.client("other").await;
        let (reader, attr) = other.open(&root(), inode, Access::Read).await.unwrap();
        assert_eq!(attr.size, 101_000);
        assert_eq!(&read_all(&other, reader).await.unwrap()[100_000..], &pattern(2, 1000)[..]);
        cluster.restart_node(2).await;
        cluster.world.sleep(Duration::from_secs(5)).await;
        client.write(handle, 0, pattern(3, 10)).await.unwrap();
        client.fsync(handle).await.unwrap();
    });
}

#[test]
fn the_master_restarts_and_nothing_is_lost() {
    run(8, 3, |cluster| async move {
        let client = cluster.client("client").await;
        let dir = cluster.small_dataset(&client, 3).await;
        let (handle, inode) = create(&client, dir, "file").await;
        client.write(handle, 0, pattern(1, 300_000)).await.unwrap();
        cluster.restart_master().await;
        client.write(handle, 300_000, pattern(2, 600_000)).await.unwrap();
        client.fsync(handle).await.unwrap();
        let (second, _) = create(&client, dir, "second").await;
        client.write(second, 0, pattern(3, 10)).await.unwrap();
        assert_eq!(client.metrics().lost_files, 0);
        assert_eq!(client.metrics().sessions_expired, 0);
        let other = cluster.client("other").await;
        let (reader, _) = other.open(&root(), inode, Access::Read).await.unwrap();
        let all = read_all(&other, reader).await.unwrap();
        assert!(all[..300_000] == pattern(1, 300_000)[..] && all[300_000..] == pattern(2, 600_000)[..]);
    });
}

#[test]
fn a_client_cut_off_loses_its_lease_and_says_so_once() {
    run(9, 3, |cluster| async move {
        let (one, two) = (cluster.client("cut").await, cluster.client("other").await);
        let (handle, inode) = create(&one, InodeId::ROOT, "file").await;
        one.write(handle, 0, pattern(1, 1000)).await.unwrap();
        one.fsync(handle).await.unwrap();
        cluster.world.sleep(Duration::from_secs(3)).await;
        one.write(handle, 1000, pattern(2, 500)).await.unwrap();
        for peer in ["master", "h0", "h1", "h2"] {
            cluster.world.partition("cut", peer);
        }
        let (reader, attr) = two.open(&root(), inode, Access::Read).await.unwrap();
        assert_eq!(attr.size, 1000);
        assert_eq!(read_all(&two, reader).await.unwrap(), &pattern(1, 1000)[..]);
        cluster.world.heal();
        cluster.world.sleep(Duration::from_secs(20)).await;
        assert_eq!(one.metrics().lost_files, 1);
        assert_eq!(one.flush(handle).await.unwrap_err().errno(), 5);
        one.flush(handle).await.unwrap();
        // And on with the new session.
        one.write(handle, 1000, pattern(3, 100)).await.unwrap();
        one.fsync(handle).await.unwrap();
        assert_eq!(read_all(&two, reader).await.unwrap().len(), 1100);
    });
}

#[test]
fn a_damaged_replica_is_passed_over_and_reported() {
    run_with(Blocks::Fake, 10, 3, |cluster| async move {
        let client = cluster.client("h0").await;
        let (handle, inode) = create(&client, InodeId::ROOT, "file").await;
        client.write(handle, 0, pattern(1, 50_000)).await.unwrap();
        client.fsync(handle).await.unwrap();
        cluster.nodes[0].disk.lock().corrupt = true;
        client.disconnect().await.unwrap();
        let reader = cluster.client("h0").await;
        let (handle, _) = reader.open(&root(), inode, Access::Read).await.unwrap();
        assert_eq!(read_all(&reader, handle).await.unwrap(), &pattern(1, 50_000)[..]);
        assert!(reader.metrics().corrupt_reads >= 1);
    });
}

/// Goal: a read of bytes that no member has fails soon, and a read of bytes on a node that may come back waits.
/// Method: all copies are damaged; then one of them is on a node that is frozen.
#[test]
fn a_file_without_a_good_copy_fails_at_once_and_one_on_a_silent_node_is_waited_for() {
    run_with(Blocks::Fake, 10, 3, |cluster| async move {
        let client = cluster.client("h0").await;
        let (handle, inode) = create(&client, InodeId::ROOT, "file").await;
        client.write(handle, 0, pattern(1, 50_000)).await.unwrap();
        client.fsync(handle).await.unwrap();
        client.disconnect().await.unwrap();
        cluster.nodes.iter().for_each(|node| node.disk.lock().corrupt = true);
        let reader = cluster.client("reader").await;
        let (handle, _) = reader.open(&root(), inode, Access::Read).await.unwrap();
        let begun = cluster.world.now();
        let error = read_all(&reader, handle).await.unwrap_err();
        let took = cluster.world.now() - begun;
        assert_eq!(error.errno(), 5);
        assert!(error.detail().contains("has a good copy of m") && error.detail().contains("ebb fsck"), "{error}");
        assert!(took < Duration::from_secs(3), "{took:?}");

        cluster.nodes[2].disk.lock().corrupt = false;
        cluster.nodes[2].process.freeze();
        let begun = cluster.world.now();
        let thaw = async {
            cluster.world.sleep(Duration::from_secs(15)).await;
            cluster.nodes[2].process.thaw();
        };
        let (read, ()) = tokio::join!(biased; read_all(&reader, handle), thaw);
        assert_eq!(read.unwrap(), &pattern(1, 50_000)[..]);
        assert!(cluster.world.now() - begun >= Duration::from_secs(15));
    });
}

#[test]
fn allocate_punch_and_seek() {
    run(11, 3, |cluster| async move {
        let client = cluster.client("h0").await;
        let dir = cluster.small_dataset(&client, 2).await;
        let (handle, inode) = create(&client, dir, "file").await;
        client.allocate(handle, Allocate::Reserve, 0, 2 * METABLOCK).await.unwrap();
        assert_eq!(client.get_attr(&root(), inode).await.unwrap().size, 2 * METABLOCK);
        assert_eq!(client.locations(inode).await.unwrap().len(), 2);
        assert!(read_all(&client, handle).await.unwrap().iter().all(|byte| *byte == 0));
        client.write(handle, METABLOCK, pattern(1, 2 * BLOCK as usize)).await.unwrap();
        assert_eq!(client.seek(handle, 0, Seek::Data).await.unwrap(), METABLOCK);
        assert_eq!(client.seek(handle, 0, Seek::Hole).await.unwrap(), 0);
        assert_eq!(client.seek(handle, METABLOCK, Seek::Hole).await.unwrap(), METABLOCK + 2 * BLOCK);
        client.allocate(handle, Allocate::PunchHole, METABLOCK, BLOCK).await.unwrap();
        assert_eq!(client.seek(handle, 0, Seek::Data).await.unwrap(), METABLOCK + BLOCK);
        let kind = client.seek(handle, METABLOCK + 2 * BLOCK, Seek::Data).await.unwrap_err().kind();
        assert_eq!(kind, ErrorKind::NoSuchOffset);
        client.allocate(handle, Allocate::Zero, METABLOCK + BLOCK, BLOCK + METABLOCK).await.unwrap();
        let all = read_all(&client, handle).await.unwrap();
        assert_eq!((all.len() as u64, all.iter().any(|byte| *byte != 0)), (2 * METABLOCK + 2 * BLOCK, false));
    });
}

#[test]
fn times_set_by_hand_stay_and_suid_goes() {
    run(12, 3, |cluster| async move {
        let client = cluster.client("h0").await;
        let (handle, inode) = create(&client, InodeId::ROOT, "file").await;
        client.write(handle, 0, pattern(1, 100)).await.unwrap();
        let time = ebb_types::WallTime(1_234_567_890);
        let set = SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() };
        client.set_attr(&root(), inode, set).await.unwrap();
        cluster.world.sleep(Duration::from_secs(3)).await;
        client.disconnect().await.unwrap();
        let client = cluster.client("h1").await;
        let attr = client.get_attr(&root(), inode).await.unwrap();
        assert_eq!((attr.mtime, attr.size), (time, 100));

        let set = SetAttr { mode: Some(0o6777), ..SetAttr::default() };
        client.set_attr(&root(), inode, set).await.unwrap();
        let stranger = ebb_types::Credentials { uid: 77, gid: 77, groups: Vec::new() };
        let (handle, _) = client.open(&stranger, inode, Access::Write).await.unwrap();
        client.write(handle, 0, pattern(2, 10)).await.unwrap();
        assert_eq!(client.get_attr(&root(), inode).await.unwrap().mode, 0o777);
        cluster.world.sleep(Duration::from_secs(3)).await;
        let other = cluster.client("h2").await;
        assert_eq!(other.get_attr(&root(), inode).await.unwrap().mode, 0o777);
    });
}

#[test]
fn locks_are_waited_for_and_given_up() {
    run(13, 3, |cluster| async move {
        let (one, two) = (cluster.client("h0").await, cluster.client("h1").await);
        let (_, inode) = create(&one, InodeId::ROOT, "file").await;
        let lock = |kind| Lock { kind, end: Some(9), ..Lock::release_all(5, LockSort::Fcntl) };
        one.set_lock(inode, lock(LockKind::Exclusive), IfLocked::Fail).await.unwrap();
        assert_eq!(
            two.set_lock(inode, lock(LockKind::Shared), IfLocked::Fail).await.unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        {
            let waiting = two.set_lock(inode, lock(LockKind::Exclusive), IfLocked::Wait);
            tokio::pin!(waiting);
            tokio::select! {
                biased;
                _ = &mut waiting => panic!("the lock is held"),
                () = cluster.world.sleep(Duration::from_secs(2)) => {}
            }
        }
        cluster.world.sleep(Duration::from_secs(1)).await;
        one.set_lock(inode, lock(LockKind::Unlock), IfLocked::Fail).await.unwrap();
        cluster.world.sleep(Duration::from_secs(1)).await;
        assert_eq!(two.test_lock(inode, lock(LockKind::Exclusive)).await.unwrap(), None);
        one.set_lock(inode, lock(LockKind::Exclusive), IfLocked::Fail).await.unwrap();
        let unlock = async {
            cluster.world.sleep(Duration::from_secs(2)).await;
            one.set_lock(inode, lock(LockKind::Unlock), IfLocked::Fail).await.unwrap();
        };
        let (taken, ()) = tokio::join!(two.set_lock(inode, lock(LockKind::Exclusive), IfLocked::Wait), unlock);
        taken.unwrap();
        assert!(one.test_lock(inode, lock(LockKind::Exclusive)).await.unwrap().is_some());
    });
}

#[test]
fn a_file_removed_while_open_lives_until_it_is_closed() {
    run(14, 3, |cluster| async move {
        let client = cluster.client("h0").await;
        let (handle, inode) = create(&client, InodeId::ROOT, "file").await;
        client.write(handle, 0, pattern(1, 1000)).await.unwrap();
        client.unlink(&root(), InodeId::ROOT, b"file").await.unwrap();
        client.write(handle, 1000, pattern(2, 1000)).await.unwrap();
        client.fsync(handle).await.unwrap();
        cluster.world.sleep(Duration::from_secs(5)).await;
        assert_eq!(read_all(&client, handle).await.unwrap().len(), 2000);
        assert_eq!(client.get_attr(&root(), inode).await.unwrap().links, 0);
        client.close(handle).await;
        cluster.world.sleep(Duration::from_secs(5)).await;
        assert!(client.get_attr(&root(), inode).await.is_err());
        client.disconnect().await.unwrap();
    });
}

#[test]
fn small_files_cost_a_create_and_a_share_of_a_commit() {
    run(15, 3, |cluster| async move {
        let client = cluster.client("h0").await;
        let mut inodes = Vec::new();
        for number in 0..200 {
            let (handle, inode) = create(&client, InodeId::ROOT, &format!("f{number}")).await;
            client.write(handle, 0, pattern(number, 4000)).await.unwrap();
            client.close(handle).await;
            inodes.push(inode);
        }
        cluster.world.sleep(Duration::from_secs(3)).await;
        let metrics = client.metrics();
        assert_eq!(metrics.committed_files, 200);
        assert!(metrics.commits <= 4, "{metrics:?}");
        let other = cluster.client("h1").await;
        for (number, inode) in inodes.into_iter().enumerate() {
            let (handle, _) = other.open(&root(), inode, Access::Read).await.unwrap();
            assert_eq!(read_all(&other, handle).await.unwrap(), &pattern(number as u64, 4000)[..]);
            other.close(handle).await;
        }
    });
}

#[test]
fn little_memory_makes_writers_wait_and_not_fail() {
    run(16, 3, |cluster| async move {
        let mut options = cluster.options("h0");
        (options.dirty_bytes_max, options.read_cache_bytes) = (200_000, 100_000);
        let client = cluster.client_with(options).await;
        let dir = cluster.small_dataset(&client, 3).await;
        let (handle, _) = create(&client, dir, "file").await;
        let data = pattern(1, 3_000_000);
        for (number, part) in data.chunks(7000).enumerate() {
            client.write(handle, number as u64 * 7000, bytes::Bytes::copy_from_slice(part)).await.unwrap();
        }
        assert!(read_all(&client, handle).await.unwrap() == data[..]);
    });
}

fn known_map(metablocks: &[pb::Metablock]) -> KnownMap<'_> {
    KnownMap { metablocks, metablock_size: METABLOCK, file_size: 600_000, dataset: None }
}

#[test]
fn a_split_is_read_by_its_map_and_an_old_map_is_reported() {
    run(17, 3, |cluster| async move {
        let client = cluster.client("h0").await;
        let dir = cluster.small_dataset(&client, 2).await;
        let made = client
            .create(&root(), NewFile { hosts: &[HostName::new("h2")], ..NewFile::exclusive(dir, b"f", Access::Write) })
            .await;
        let Created { handle, attr, .. } = made.unwrap();
        let inode = attr.inode;
        let data = pattern(1, 600_000);
        client.write(handle, 0, data.clone()).await.unwrap();
        client.fsync(handle).await.unwrap();
        cluster.world.sleep(Duration::from_secs(2)).await;
        let locations = client.locations(inode).await.unwrap();
        assert!(locations.iter().all(|location| location.hosts[0] == HostName::new("h2")), "{locations:?}");
        let mut map: Vec<_> = locations.into_iter().map(|location| location.metablock).collect();
        let read = client.read_by_map(known_map(&map), 100_001, 800_000).await.unwrap();
        assert!(read == data[100_001..]);
        for record in &mut map {
            record.version = Some(pb::Version { epoch: 1 << 60, seq: 1 });
        }
        let kind = client.read_by_map(known_map(&map), 0, 10).await.unwrap_err().kind();
        assert_eq!(kind, ErrorKind::StaleVersion);
    });
}

#[test]
fn locations_cover_written_bytes_and_no_bare_grant() {
    run(18, 3, |cluster| async move {
        let (client, other) = (cluster.client("h0").await, cluster.client("h1").await);
        let dir = cluster.small_dataset(&client, 2).await;
        let (handle, inode) = create(&client, dir, "file").await;
        assert!(client.locations(inode).await.unwrap().is_empty(), "its first grant is empty");
        // Past the first metablock more are granted ahead.
        client.write(handle, 0, pattern(1, METABLOCK as usize + 10)).await.unwrap();
        client.write(handle, 5 * METABLOCK, pattern(2, 10)).await.unwrap();
        for asks in [&client, &other] {
            let indices: Vec<u64> = asks.locations(inode).await.unwrap().iter().map(|at| at.metablock.index).collect();
            assert_eq!(indices, [0, 1, 5]);
        }
    });
}
