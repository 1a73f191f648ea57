//! A proxy that ends in good order: its clients lose nothing, and get no error.

use std::time::Duration;

use ebb_client::Access;
use ebb_types::{Credentials, ErrorKind};

use super::harness::run_apart;
use super::{append_beside, number, read_number, take_turns};

#[test]
fn programs_that_write_while_the_proxy_is_exchanged_get_no_error() {
    for seed in 40..46 {
        run_apart(seed, |cluster| async move {
            let (sharers, _) = cluster.sharers(3).await;
            take_turns(&sharers).await;
            let tasks = append_beside(&cluster, &sharers, 150);
            for _ in 0..2 {
                cluster.world.sleep(Duration::from_millis(400)).await;
                cluster.end_proxy().await.unwrap();
                cluster.world.sleep(Duration::from_millis(300)).await;
                cluster.next_proxy().await;
            }
            let mut places = Vec::new();
            for task in tasks {
                let appended = task.join().await.unwrap().into_iter();
                places
                    .extend(appended.map(|(mark, at)| at.unwrap_or_else(|error| panic!("append of {mark}: {error}"))));
            }
            places.sort_unstable();
            let expected: Vec<u64> = (0..450).map(|record| 8 + record * 50).collect();
            assert_eq!(places, expected, "each append has a place of its own");
        });
    }
}

#[test]
fn a_writer_without_a_sync_learns_that_its_bytes_were_kept() {
    run_apart(50, |cluster| async move {
        let (sharers, _) = cluster.sharers(2).await;
        take_turns(&sharers).await;
        for (place, (client, handle)) in sharers.iter().enumerate() {
            client.write(*handle, place as u64 * 8, number(place as u64 + 5)).await.unwrap();
        }
        let started = cluster.world.now();
        cluster.end_proxy().await.unwrap();
        let took = cluster.world.now() - started;
        assert!(took < Duration::from_millis(1500), "they come within their commit interval: {took:?}");
        for (client, handle) in &sharers {
            client.fsync(*handle).await.unwrap();
            assert_eq!((read_number(&sharers[0], 0).await, read_number(&sharers[1], 8).await), (5, 6));
            assert_eq!(client.metrics().lost_stays, 0);
        }
    });
}

/// It has the lease before it has heard anything.
#[test]
fn a_file_opened_anew_as_soon_as_it_is_given_back_reports_no_loss() {
    run_apart(52, |cluster| async move {
        let (sharers, inode) = cluster.sharers(2).await;
        take_turns(&sharers).await;
        let (client, handle) = &sharers[0];
        client.write(*handle, 0, number(7)).await.unwrap();
        let opening = async {
            for _ in 0..40 {
                let (again, _) = client.open(&Credentials::root(), inode, Access::ReadWrite).await.unwrap();
                client.close_now(again);
                cluster.world.sleep(Duration::from_millis(10)).await;
            }
        };
        let (ended, ()) = tokio::join!(cluster.end_proxy(), opening);
        ended.unwrap();
        client.fsync(*handle).await.unwrap();
        assert_eq!((read_number(&sharers[1], 0).await, client.metrics().lost_files), (7, 0));
    });
}

#[test]
fn a_client_that_does_not_come_is_not_waited_for_long() {
    run_apart(51, |cluster| async move {
        let (sharers, _) = cluster.sharers(2).await;
        take_turns(&sharers).await;
        sharers[0].0.write(sharers[0].1, 0, number(7)).await.unwrap();
        cluster.cut_off("c0");
        let started = cluster.world.now();
        cluster.end_proxy().await.unwrap();
        let took = cluster.world.now() - started;
        assert!((Duration::from_secs(2)..Duration::from_secs(6)).contains(&took), "{took:?}");
        assert_eq!(read_number(&sharers[1], 0).await, 7, "it was synced all the same");
        cluster.let_in("c0");
        let error = sharers[0].0.fsync(sharers[0].1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "it cannot know");
    });
}

/// Goal: a change whose answer was lost keeps its outcome after its file has left the proxy. Method: a client hears
/// nothing more from the proxy, the other sharer closes the file, and the file goes back. The link is whole again when
/// the client asks the master where the file is.
#[test]
fn a_change_whose_answer_was_lost_is_answered_after_the_file_has_gone_back() {
    for seed in 53..57 {
        run_apart(seed, |cluster| async move {
            let (sharers, _) = cluster.sharers(2).await;
            take_turns(&sharers).await;
            let (client, handle) = sharers[0].clone();
            let before = client.metrics();
            cluster.world.partition_one_way("proxy", "c0");
            let writing = cluster.world.process("c0").runtime().spawn("write", {
                let client = client.clone();
                async move { client.write(handle, 0, number(9)).await }
            });
            cluster.world.sleep(Duration::from_millis(50)).await;
            sharers[1].0.close(sharers[1].1).await;
            while client.metrics().repeated_operations == before.repeated_operations {
                cluster.world.sleep(Duration::from_millis(1)).await;
            }
            cluster.world.mend_one_way("proxy", "c0");
            writing.join().await.unwrap().unwrap();
            client.fsync(handle).await.unwrap();
            let after = client.metrics();
            assert!(after.moved_operations > before.moved_operations, "it had gone back when the client asked");
            assert_eq!((after.unknown_operations, after.lost_stays, after.lost_files), (0, 0, 0));
            assert_eq!(read_number(&sharers[0], 0).await, 9);
        });
    }
}
