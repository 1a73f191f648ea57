//! Leases, recalls, `stat` of held files, reclaiming and freeing, over real calls.

use std::time::Duration;

use ebb_types::ErrorKind;
use ebb_wire::pb;
use pb::LeaseMode::{LeaseNone, LeaseRead, LeaseWrite};
use pb::meta_op::Op;

use super::harness::{DEADLINE, answer, create, held, unlink, with_cluster};

#[test]
fn a_write_lease_goes_from_hand_to_hand_by_recall() {
    with_cluster(11, 3, |cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let attr = one.create("a").await.unwrap().attr.unwrap();
        let waiting = two.acquire(attr.inode, LeaseRead, true);
        let giving = async {
            let recall = one.next_recall().await;
            assert_eq!((recall.inode, recall.keep), (attr.inode, LeaseRead as i32));
            assert!(one.commit(&attr, vec![], 0, true).await.unwrap().refusals.is_empty());
            one.poll(vec![held(attr.inode, LeaseRead, attr.epoch, 0)]).await.unwrap();
        };
        let (got, ()) = tokio::join!(waiting, giving);
        assert_eq!(got.unwrap().mode, LeaseRead as i32);

        // Now both read, and the first wants to write again: the second must give its read lease up.
        let waiting = one.acquire(attr.inode, LeaseWrite, true);
        let giving = async {
            assert_eq!(two.next_recall().await.keep, LeaseNone as i32);
            two.poll(vec![held(attr.inode, LeaseNone, 0, 0)]).await.unwrap();
        };
        let (got, ()) = tokio::join!(waiting, giving);
        let got = got.unwrap();
        assert_eq!(got.mode, LeaseWrite as i32);
        assert!(got.attr.unwrap().epoch > attr.epoch, "each write lease has its own epoch");
        // A request for a lease that the session has brings no new epoch.
        let again = one.acquire(attr.inode, LeaseWrite, true).await.unwrap();
        assert_eq!(again.attr.unwrap().epoch, attr.epoch + 1);
    });
}

/// An open may ask again for the read lease that the session has. The client answers the recall only after this, so the
/// request must not queue behind the writer for which the lease is recalled.
#[test]
fn a_reader_with_a_lease_does_not_queue_behind_a_writer_that_waits_for_it() {
    with_cluster(19, 3, |cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let attr = one.create("a").await.unwrap().attr.unwrap();
        one.commit(&attr, vec![], 0, true).await.unwrap();
        one.acquire(attr.inode, LeaseRead, true).await.unwrap();
        let waiting = two.acquire(attr.inode, LeaseWrite, true);
        let opening = async {
            assert_eq!(one.next_recall().await.keep, LeaseNone as i32);
            assert_eq!(one.acquire(attr.inode, LeaseRead, true).await.unwrap().mode, LeaseRead as i32);
            one.poll(vec![held(attr.inode, LeaseNone, 0, 0)]).await.unwrap();
        };
        let started = two.runtime.now();
        let (got, ()) = tokio::join!(waiting, opening);
        assert_eq!(got.unwrap().mode, LeaseWrite as i32);
        assert!(two.runtime.now().since(started) < Duration::from_secs(5), "the writer waited for a deadline");
    });
}

/// A lease of an ended session would never be given back, and the file could never be written again.
#[test]
fn whose_session_ends_while_it_waits_is_granted_nothing() {
    with_cluster(20, 3, |cluster| async move {
        let (one, two, three) = (cluster.client().await, cluster.client().await, cluster.client().await);
        let attr = one.create("a").await.unwrap().attr.unwrap();
        let waiting = two.acquire(attr.inode, LeaseRead, true);
        let ending = async {
            one.next_recall().await;
            two.channel.call(&pb::CloseSession { session: two.session }, Duration::from_secs(5)).await.unwrap();
            one.commit(&attr, vec![], 0, true).await.unwrap();
            one.poll(vec![held(attr.inode, LeaseNone, 0, 0)]).await.unwrap();
        };
        let (got, ()) = tokio::join!(waiting, ending);
        assert_eq!(got.unwrap_err().kind(), ErrorKind::SessionExpired);
        assert_eq!(three.acquire(attr.inode, LeaseWrite, true).await.unwrap().mode, LeaseWrite as i32);
    });
}

/// A holder that has committed and released, but not yet answered the recall, may still read from its caches. A writer
/// must wait for its answer.
#[test]
fn a_released_holder_counts_as_a_reader_until_it_says_otherwise() {
    with_cluster(12, 3, |cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let attr = one.create("a").await.unwrap().attr.unwrap();
        one.commit(&attr, vec![], 0, true).await.unwrap();
        let started = two.runtime.now();
        let waiting = two.acquire(attr.inode, LeaseWrite, false);
        let giving = async {
            one.next_recall().await;
            one.runtime.sleep(Duration::from_secs(3)).await;
            one.poll(vec![held(attr.inode, LeaseNone, 0, 0)]).await.unwrap();
        };
        let (got, ()) = tokio::join!(waiting, giving);
        got.unwrap();
        assert!(two.runtime.now().since(started) >= Duration::from_secs(3));
    });
}

#[test]
fn stat_of_a_file_that_another_writes_asks_the_writer() {
    with_cluster(13, 3, |cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let attr = one.create("a").await.unwrap().attr.unwrap();
        assert_eq!(one.attr(attr.inode).await.unwrap().size, 0, "the writer itself is not asked");
        let answering = async {
            for size in [4096, 8192, 12288] {
                let recall = one.next_recall().await;
                assert_eq!(recall.keep, LeaseWrite as i32);
                one.poll(vec![answer(&recall, attr.epoch, size)]).await.unwrap();
            }
        };
        let asking = async {
            let by_name = two.lookup("a").await.unwrap();
            assert_eq!((by_name.size, by_name.mtime_ns), (4096, 99));
            assert_eq!(two.attr(attr.inode).await.unwrap().size, 8192);
            let read = pb::meta_op::ReadDir { inode: 1, limit: 10, plus: true, ..Default::default() };
            let listed = two.send(0, Op::ReadDir(read)).await.unwrap();
            assert_eq!(listed.entries[0].attr.as_ref().unwrap().size, 12288);
        };
        tokio::join!(answering, asking);
        // Without an answer the committed size is shown in the end, as long as the writer lives.
        let silent = async {
            for _ in 0..12 {
                one.poll(vec![]).await.unwrap();
                one.runtime.sleep(Duration::from_secs(1)).await;
            }
        };
        let (shown, ()) = tokio::join!(two.attr(attr.inode), silent);
        assert_eq!(shown.unwrap().size, 0);
    });
}

#[test]
fn a_stat_does_not_take_an_earlier_answer_for_its_own() {
    with_cluster(14, 3, |cluster| async move {
        let (one, two, three) = (cluster.client().await, cluster.client().await, cluster.client().await);
        let inode = one.create("a").await.unwrap().attr.unwrap().inode;
        let first = two.attr(inode);
        let second = async {
            // The question of the first is with the writer already.
            three.runtime.sleep(Duration::from_millis(500)).await;
            three.attr(inode).await
        };
        let answering = async {
            let recall = one.next_recall().await;
            one.runtime.sleep(Duration::from_millis(900)).await;
            let reply = one.poll(vec![answer(&recall, 1, 10)]).await.unwrap();
            // The answer comes twice: the second question is not the one that it is about.
            let next = reply.recalls.into_iter().find(|next| next.question > recall.question);
            let next = match next {
                Some(next) => next,
                None => one.next_recall().await,
            };
            one.poll(vec![answer(&recall, 1, 10)]).await.unwrap();
            one.poll(vec![answer(&next, 1, 20)]).await.unwrap();
        };
        let (first, second, ()) = tokio::join!(first, second, answering);
        assert_eq!((first.unwrap().size, second.unwrap().size), (10, 20));
    });
}

#[test]
fn an_unlinked_file_lives_as_long_as_it_is_open() {
    with_cluster(15, 3, |cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let (attr, block) = one.written_file(&cluster, "a", 100).await;
        two.acquire(attr.inode, LeaseRead, true).await.unwrap();
        one.forget(attr.inode).await;
        one.mutate(unlink("a")).await.unwrap();
        cluster.world.sleep(Duration::from_secs(10)).await;
        assert_eq!(two.attr(attr.inode).await.unwrap().nlink, 0);
        let late = one.acquire(attr.inode, LeaseRead, true).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Stale, "nobody opens it any more");
        two.poll(vec![]).await.unwrap();
        two.forget(attr.inode).await;
        cluster
            .until_seen("all replicas deleted", || cluster.fakes.iter().all(|fake| fake.replica(block.id).is_none()))
            .await;
        let gone = two.attr(attr.inode).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Stale, "{gone}");
    });
}

/// The answer that brings a lease may get lost. At a recall the holder then does not know the lease, and asks for it.
/// It must get an answer for a removed file too, or that file's room would stay taken for the whole life of the
/// session.
#[test]
fn the_holder_of_a_removed_file_learns_what_it_holds_and_gives_it_back() {
    with_cluster(26, 3, |cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let (made, block) = one.written_file(&cluster, "a", 100).await;
        one.acquire(made.inode, LeaseWrite, false).await.unwrap();
        one.forget(made.inode).await;
        two.mutate(unlink("a")).await.unwrap();
        cluster.world.sleep(Duration::from_secs(8)).await;
        assert_eq!(one.next_recall().await.inode, made.inode);
        let other = two.acquire(made.inode, LeaseNone, false).await.unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Stale, "it holds nothing: {other}");
        let current = one.acquire(made.inode, LeaseNone, false).await.unwrap().attr.unwrap();
        assert!(current.nlink == 0 && current.epoch > made.epoch, "{current:?}");
        assert_eq!(one.commit(&current, vec![], current.size, true).await.unwrap().refusals, []);
        cluster
            .until_seen("all replicas deleted", || cluster.fakes.iter().all(|fake| fake.replica(block.id).is_none()))
            .await;
    });
}

#[test]
fn read_leases_and_open_handles_are_reclaimed_from_a_new_master() {
    with_cluster(16, 3, |mut cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let (attr, _) = one.written_file(&cluster, "a", 100).await;
        two.acquire(attr.inode, LeaseRead, true).await.unwrap();
        one.forget(attr.inode).await;
        one.mutate(unlink("a")).await.unwrap();
        let boot = two.poll(vec![]).await.unwrap().master_boot;
        let (channel, _process) = cluster.channel();
        let opened =
            channel.call(&pb::OpenSession { host: "client".into(), ..Default::default() }, DEADLINE).await.unwrap();
        assert_eq!(opened.master_boot, boot);
        cluster.crash_master().await;
        assert_ne!(two.poll(vec![]).await.unwrap().master_boot, boot);
        cluster.world.sleep(Duration::from_secs(5)).await;
        let reclaim = pb::Reclaim {
            session: two.session,
            leases: vec![held(attr.inode, LeaseRead, 0, 0)],
            open: vec![attr.inode],
            opening: 1,
            ..Default::default()
        };
        two.channel.call(&reclaim, Duration::from_secs(5)).await.unwrap();
        one.poll(vec![]).await.unwrap();
        let none = pb::Reclaim { session: one.session, ..Default::default() };
        one.channel.call(&none, Duration::from_secs(5)).await.unwrap();
        two.poll(vec![]).await.unwrap();
        cluster.world.sleep(Duration::from_secs(7)).await;
        assert_eq!(two.attr(attr.inode).await.unwrap().nlink, 0, "open, so not reaped");
        two.poll(vec![]).await.unwrap();
        two.forget(attr.inode).await;
        cluster.world.sleep(Duration::from_secs(3)).await;
        assert!(two.attr(attr.inode).await.is_err());
    });
}

#[test]
fn a_new_master_gives_no_conflicting_lease_before_all_have_reclaimed() {
    with_cluster(17, 3, |mut cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let (attr, _) = one.written_file(&cluster, "a", 100).await;
        two.acquire(attr.inode, LeaseRead, true).await.unwrap();
        cluster.crash_master().await;
        let started = one.runtime.now();
        let writing = one.acquire(attr.inode, LeaseWrite, false);
        // The reader reacts slowly. Until its session ends no other session may write the data that it may cache.
        let reading = async {
            two.runtime.sleep(Duration::from_secs(4)).await;
            let reclaim = pb::Reclaim {
                session: two.session,
                leases: vec![held(attr.inode, LeaseRead, 0, 0)],
                open: vec![],
                opening: 0,
                ..Default::default()
            };
            two.channel.call(&reclaim, Duration::from_secs(5)).await.unwrap();
            assert_eq!(two.next_recall().await.keep, LeaseNone as i32);
            two.poll(vec![held(attr.inode, LeaseNone, 0, 0)]).await.unwrap();
        };
        let polling = async {
            for _ in 0..3 {
                one.poll(vec![]).await.unwrap();
            }
        };
        let (got, (), ()) = tokio::join!(writing, reading, polling);
        got.unwrap();
        assert!(one.runtime.now().since(started) >= Duration::from_secs(4));
    });
}

#[test]
fn changes_by_others_and_granted_locks_come_with_the_poll() {
    with_cluster(18, 3, |cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let (attr, _) = one.written_file(&cluster, "a", 100).await;
        two.acquire(attr.inode, LeaseRead, true).await.unwrap();
        two.poll(vec![]).await.unwrap();
        one.mutate(Op::SetAttr(pb::meta_op::SetAttr { inode: attr.inode, mode: Some(0o600), ..Default::default() }))
            .await
            .unwrap();
        assert_eq!(two.poll(vec![]).await.unwrap().changed, [attr.inode]);

        let lock = |kind| pb::FileLock { kind, flock: true, owner: 1, end: u64::MAX, ..Default::default() };
        let set = |kind, wait| {
            Op::SetLock(pb::meta_op::SetLock { inode: attr.inode, lock: Some(lock(kind)), wait, cancel: false })
        };
        one.mutate(set(2, false)).await.unwrap();
        assert!(two.mutate(set(2, true)).await.unwrap().queued);
        one.mutate(set(0, false)).await.unwrap();
        let granted = two.poll(vec![]).await.unwrap().locks;
        assert_eq!((granted[0].inode, granted[0].owner, granted[0].flock), (attr.inode, 1, true));
    });
}

#[test]
fn a_session_that_does_not_poll_is_over() {
    with_cluster(19, 3, |cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let (attr, _) = one.written_file(&cluster, "a", 100).await;
        one.acquire(attr.inode, LeaseRead, true).await.unwrap();
        let polling = async {
            for _ in 0..8 {
                two.poll(vec![]).await.unwrap();
                two.runtime.sleep(Duration::from_millis(1500)).await;
            }
        };
        let (got, ()) = tokio::join!(two.acquire(attr.inode, LeaseWrite, false), polling);
        got.unwrap();
        assert_eq!(one.poll(vec![]).await.unwrap_err().kind(), ErrorKind::SessionExpired);
        assert_eq!(one.create("b").await.unwrap_err().kind(), ErrorKind::SessionExpired);
    });
}

/// Goal: a file whose creation a session may not have learned outlives the master's process, although the session
/// cannot reclaim it. It is freed when the session, on a question, says that it does not have it open.
#[test]
fn a_client_that_may_not_know_of_its_create_is_asked_whether_the_file_is_open() {
    with_cluster(19, 3, |mut cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let made = one.mutate(create("a", false)).await.unwrap().attr.unwrap();
        cluster.crash_master().await;
        for client in [&one, &two] {
            client.poll(vec![]).await.unwrap();
            let none = pb::Reclaim { session: client.session, opening: 1, ..Default::default() };
            client.channel.call(&none, Duration::from_secs(5)).await.unwrap();
        }
        let release = pb::CommitFile { inode: made.inode, epoch: made.epoch, release: true, ..Default::default() };
        let begun = one.runtime.now();
        two.mutate(unlink("a")).await.unwrap();
        let mut asked = Vec::new();
        while asked.is_empty() {
            assert!(one.runtime.now().since(begun) < Duration::from_secs(15), "nobody asks");
            two.poll(vec![]).await.unwrap();
            let reply = one.poll(vec![]).await.unwrap();
            assert!(one.attr(made.inode).await.is_ok(), "the answer to who made it may be on its way");
            asked = reply.nameless;
        }
        assert_eq!(asked, [made.inode]);
        one.forget(made.inode).await;
        one.mutate(Op::Commit(pb::meta_op::Commit { files: vec![release] })).await.unwrap();
        cluster.world.sleep(Duration::from_secs(3)).await;
        assert!(one.attr(made.inode).await.is_err(), "it is freed");
    });
}

/// Goal: a session that reclaims late from a new process loses no open file. Method: the first poll comes just before
/// the end of the time for reclaiming, and the reclaim just after it.
#[test]
fn a_client_that_polls_within_the_reclaim_time_is_waited_for() {
    with_cluster(23, 3, |mut cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let made = one.mutate(create("a", false)).await.unwrap().attr.unwrap();
        let release = pb::CommitFile { inode: made.inode, epoch: made.epoch, release: true, ..Default::default() };
        one.mutate(Op::Commit(pb::meta_op::Commit { files: vec![release] })).await.unwrap();
        two.acquire(made.inode, LeaseRead, true).await.unwrap();
        one.mutate(unlink("a")).await.unwrap();
        cluster.crash_master().await;
        let ttl = super::harness::options().session_ttl;
        cluster.world.sleep(ttl - Duration::from_millis(300)).await;
        two.poll(vec![]).await.unwrap();
        cluster.world.sleep(Duration::from_secs(2)).await;
        let reclaim = pb::Reclaim { session: two.session, open: vec![made.inode], opening: 1, ..Default::default() };
        two.channel.call(&reclaim, Duration::from_secs(5)).await.unwrap();
        for _ in 0..3 {
            cluster.world.sleep(Duration::from_secs(2)).await;
            two.poll(vec![]).await.unwrap();
        }
        assert!(two.attr(made.inode).await.is_ok(), "it is open");
    });
}

/// Goal: an answer to a question takes no lease from the session, because a lease may have been granted since.
#[test]
fn a_reader_that_answers_a_question_stays_a_reader() {
    with_cluster(22, 3, |cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let attr = one.create("a").await.unwrap().attr.unwrap();
        one.commit(&attr, vec![], 0, true).await.unwrap();
        one.poll(vec![held(attr.inode, LeaseNone, 0, 0)]).await.unwrap();
        two.acquire(attr.inode, LeaseRead, true).await.unwrap();
        two.poll(vec![pb::Held { inode: attr.inode, question: 77, ..Default::default() }]).await.unwrap();
        let begun = one.runtime.now();
        let writing = one.acquire(attr.inode, LeaseWrite, true);
        let giving = async {
            assert_eq!(two.next_recall().await.keep, LeaseNone as i32);
            one.runtime.sleep(Duration::from_secs(1)).await;
            two.poll(vec![held(attr.inode, LeaseNone, 0, 0)]).await.unwrap();
        };
        let (got, ()) = tokio::join!(writing, giving);
        assert_eq!(got.unwrap().mode, LeaseWrite as i32);
        assert!(one.runtime.now().since(begun) >= Duration::from_secs(1), "it waited for the reader");
    });
}

/// Goal: an open that arrives in time stays in time, however long the writer of a removed file needs to flush.
#[test]
fn an_open_of_a_removed_file_waits_for_its_writer() {
    with_cluster(24, 3, |cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let made = one.create("a").await.unwrap().attr.unwrap();
        one.mutate(unlink("a")).await.unwrap();
        let writing = async {
            while one.poll(vec![]).await.unwrap().recalls.is_empty() {}
            for _ in 0..4 {
                one.runtime.sleep(Duration::from_secs(1)).await;
                one.poll(vec![]).await.unwrap();
                two.poll(vec![]).await.unwrap();
            }
            one.commit(&made, vec![], 0, true).await.unwrap();
            one.poll(vec![held(made.inode, LeaseNone, 0, 0)]).await.unwrap();
        };
        let (opened, ()) = tokio::join!(two.acquire(made.inode, LeaseRead, true), writing);
        assert_eq!(opened.unwrap().mode, LeaseRead as i32);
    });
}

/// Goal: no later process lets a removed file be opened whose bytes were dropped. Method: its holder has dropped
/// uncommitted bytes and reported that. The process that heard it is gone, and the next one gets an open that has
/// waited since before.
#[test]
fn a_removed_file_whose_bytes_were_thrown_away_is_opened_from_no_later_process() {
    with_cluster(21, 3, |mut cluster| async move {
        let (one, two) = (cluster.client().await, cluster.client().await);
        let made = one.create("a").await.unwrap().attr.unwrap();
        one.mutate(unlink("a")).await.unwrap();
        let gone =
            pb::CommitFile { inode: made.inode, epoch: made.epoch, release: true, gone: true, ..Default::default() };
        one.mutate(Op::Commit(pb::meta_op::Commit { files: vec![gone] })).await.unwrap();
        cluster.crash_master().await;
        for (client, open) in [(&one, vec![]), (&two, vec![made.inode])] {
            client.poll(vec![]).await.unwrap();
            let reclaim = pb::Reclaim { session: client.session, open, opening: 1, ..Default::default() };
            client.channel.call(&reclaim, Duration::from_secs(5)).await.unwrap();
        }
        let late = two.acquire(made.inode, LeaseRead, true).await;
        assert_eq!(late.unwrap_err().kind(), ErrorKind::Stale);
    });
}
