//! Names that come and go: they cost few messages, and lose no bytes.

use std::time::Duration;

use ebb_types::{ErrorKind, InodeId};

use super::harness::{create, pattern, read_all, root, run};
use crate::{Access, Client, NewName, Rename, RenameMode, SetAttr};

const FILES: u64 = 40;

fn calls(client: &Client) -> u64 {
    client.counters().read().calls
}

#[test]
fn the_master_is_not_asked_for_names_of_a_directory_just_made() {
    run(71, 3, |cluster| async move {
        let client = cluster.client("client").await;
        let made = client
            .make_dir(&root(), NewName { parent: InodeId::ROOT, name: b"new", mode: 0o755, umask: 0 })
            .await
            .unwrap();
        let directory = made.inode;
        let before = calls(&client);
        for number in 0..FILES {
            let name = format!("f{number}");
            let missing = client.lookup(&root(), directory, name.as_bytes()).await;
            assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
            let (handle, inode) = create(&client, directory, &name).await;
            client.close(handle).await;
            let found = client.lookup(&root(), directory, name.as_bytes()).await.unwrap();
            assert_eq!(found.inode, inode);
        }
        // One for each file, and a poll now and then.
        assert!(calls(&client) - before < FILES + FILES / 4, "{} calls", calls(&client) - before);
    });
}

#[test]
fn removing_many_files_takes_little_more_than_a_call_for_each() {
    run(72, 3, |cluster| async move {
        let client = cluster.client("client").await;
        let mut inodes = Vec::new();
        for number in 0..FILES {
            let (handle, inode) = create(&client, InodeId::ROOT, &format!("f{number}")).await;
            client.write(handle, 0, pattern(number, 5000)).await.unwrap();
            client.close(handle).await;
            inodes.push(inode);
        }
        cluster.world.sleep(Duration::from_secs(5)).await;
        let before = calls(&client);
        for number in 0..FILES {
            client.unlink(&root(), InodeId::ROOT, format!("f{number}").as_bytes()).await.unwrap();
        }
        // Longer than files stay for clients that have looked them up.
        cluster.world.sleep(Duration::from_secs(4)).await;
        assert!(calls(&client) - before < FILES + FILES / 4, "{} calls", calls(&client) - before);
        for inode in inodes {
            let gone = client.get_attr(&root(), inode).await;
            assert_eq!(gone.unwrap_err().kind(), ErrorKind::Stale, "{inode} is freed");
        }
        assert_eq!(client.metrics().recalls, 0, "the master had nothing to ask for");
    });
}

#[test]
fn a_file_removed_while_open_still_has_its_bytes() {
    run(73, 3, |cluster| async move {
        let writer = cluster.client("h0").await;
        let reader = cluster.client("h1").await;
        let (handle, inode) = create(&writer, InodeId::ROOT, "file").await;
        writer.write(handle, 0, pattern(1, 5000)).await.unwrap();
        writer.fsync(handle).await.unwrap();
        let (open, _) = reader.open(&root(), inode, Access::Read).await.unwrap();
        assert_eq!(read_all(&reader, open).await.unwrap(), &pattern(1, 5000)[..]);
        writer.write(handle, 0, pattern(2, 7000)).await.unwrap();
        writer.close(handle).await;
        writer.unlink(&root(), InodeId::ROOT, b"file").await.unwrap();
        assert_eq!(read_all(&reader, open).await.unwrap(), &pattern(2, 7000)[..]);
        reader.close(open).await;
        cluster.world.sleep(Duration::from_secs(10)).await;
        assert!(writer.get_attr(&root(), inode).await.is_err(), "nobody keeps it");
    });
}

/// Goal: a client that has looked a name up opens that file, with all its bytes, even if the name goes to another
/// file or away meanwhile; but not for ever. Method: a writer that has synced and not committed, so that only it
/// knows the size, takes the names of its own files, or others do.
#[test]
fn a_file_is_opened_by_its_number_after_its_name_is_gone() {
    for other_replaces in [false, true] {
        run(76, 3, move |cluster| async move {
            let (writer, reader) = (cluster.client("h0").await, cluster.client("h1").await);
            let mut made = Vec::new();
            for (number, name) in ["replaced", "removed", "source"].into_iter().enumerate() {
                let (handle, inode) = create(&writer, InodeId::ROOT, name).await;
                writer.write(handle, 0, pattern(number as u64, 5000)).await.unwrap();
                writer.fsync(handle).await.unwrap();
                writer.close(handle).await;
                made.push(inode);
            }
            let changer = if other_replaces { &reader } else { &writer };
            let rename = Rename {
                source_parent: InodeId::ROOT,
                source_name: b"source",
                target_parent: InodeId::ROOT,
                target_name: b"replaced",
                mode: RenameMode::Replace,
            };
            changer.rename(&root(), rename).await.unwrap();
            changer.unlink(&root(), InodeId::ROOT, b"removed").await.unwrap();
            for client in [&writer, &reader] {
                for (number, inode) in made[..2].iter().enumerate() {
                    let (late, attr) = client.open(&root(), *inode, Access::Read).await.unwrap();
                    assert_eq!(attr.links, 0);
                    assert_eq!(read_all(client, late).await.unwrap(), &pattern(number as u64, 5000)[..]);
                    client.close(late).await;
                }
            }
            cluster.world.sleep(Duration::from_secs(8)).await;
            for client in [&writer, &reader] {
                for inode in &made[..2] {
                    let too_late = client.open(&root(), *inode, Access::Read).await;
                    assert_eq!(too_late.unwrap_err().kind(), ErrorKind::Stale, "{inode} is gone");
                }
            }
        });
    }
}

/// Goal: what a name led to is there for a moment, also if the client that has all of it ends in that moment; one that has nothing of
/// the kind ends at once.
#[test]
fn a_client_that_ends_lets_latecomers_open_what_it_has_just_removed() {
    run(79, 3, |cluster| async move {
        let (writer, reader) = (cluster.client("h0").await, cluster.client("h1").await);
        let (handle, inode) = create(&writer, InodeId::ROOT, "f").await;
        writer.write(handle, 0, pattern(1, 5000)).await.unwrap();
        writer.fsync(handle).await.unwrap();
        writer.close(handle).await;
        assert_eq!(reader.lookup(&root(), InodeId::ROOT, b"f").await.unwrap().inode, inode);
        writer.unlink(&root(), InodeId::ROOT, b"f").await.unwrap();
        let runtime = cluster.world.process("h0").runtime();
        let ending = runtime.spawn("end", async move { writer.disconnect().await });
        cluster.world.sleep(Duration::from_millis(400)).await;
        let (late, _) = reader.open(&root(), inode, Access::Read).await.unwrap();
        assert_eq!(read_all(&reader, late).await.unwrap(), &pattern(1, 5000)[..]);
        ending.join().await.unwrap().unwrap();
        reader.close(late).await;
        let begun = cluster.world.now();
        reader.disconnect().await.unwrap();
        assert!(cluster.world.now() - begun < Duration::from_millis(200));
    });
}

/// A file that was written, synced, closed and removed.
async fn removed_file(writer: &Client, seed: u64) -> InodeId {
    let name = format!("f{seed}");
    let (handle, inode) = create(writer, InodeId::ROOT, &name).await;
    writer.write(handle, 0, pattern(seed, 5000)).await.unwrap();
    writer.fsync(handle).await.unwrap();
    writer.close(handle).await;
    writer.unlink(&root(), InodeId::ROOT, name.as_bytes()).await.unwrap();
    inode
}

/// Goal: no read of a removed file finds less than was in it. Once its writer has thrown away its uncommitted bytes,
/// the file is gone for later opens, however soon they come.
#[test]
fn a_removed_file_whose_bytes_are_thrown_away_cannot_be_opened() {
    run(78, 3, |cluster| async move {
        let (writer, reader) = (cluster.client("h0").await, cluster.client("h1").await);
        for step in 0..30 {
            let inode = removed_file(&writer, step).await;
            cluster.world.sleep(Duration::from_millis(100 * step)).await;
            match reader.open(&root(), inode, Access::Read).await {
                Ok((late, _)) => {
                    assert_eq!(read_all(&reader, late).await.unwrap(), &pattern(step, 5000)[..], "after {step} steps");
                    reader.close(late).await;
                }
                Err(error) => assert_eq!((error.kind(), step > 8), (ErrorKind::Stale, true), "after {step} steps"),
            }
        }
    });
}

/// The same while the master is away: the writer throws away its bytes and cannot report that, and the reader's open
/// is on its way. The new process then counts the file as open, because the old one may have answered.
#[test]
fn a_removed_file_whose_bytes_were_thrown_away_cannot_be_opened_after_the_master_was_down() {
    run(79, 3, |cluster| async move {
        let (writer, reader) = (cluster.client("h0").await, cluster.client("h1").await);
        let mut opened = 0;
        for step in 0..20 {
            let inode = removed_file(&writer, step).await;
            let user = root();
            let (late, ()) = tokio::join!(
                reader.open(&user, inode, Access::Read),
                cluster.restart_master_after(Duration::from_millis(150 * step)),
            );
            match late {
                Ok((late, _)) => {
                    opened += 1;
                    let seen = read_all(&reader, late).await.unwrap();
                    assert!(seen == pattern(step, 5000), "after {step} steps it has {} bytes", seen.len());
                    reader.close(late).await;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Stale, "after {step} steps"),
            }
        }
        assert!((1..20).contains(&opened), "both cases are met: {opened}");
    });
}

/// Goal: an open of a removed file that comes in time gets all of it, even if its writer takes longer to write it
/// back than it keeps it for such opens. Method: no member moves meanwhile.
#[test]
fn a_removed_file_with_a_waiting_client_is_not_thrown_away() {
    run(80, 3, |cluster| async move {
        let (writer, reader) = (cluster.client("h3").await, cluster.client("h4").await);
        let (handle, inode) = create(&writer, InodeId::ROOT, "f").await;
        writer.write(handle, 0, pattern(1, 5000)).await.unwrap();
        writer.fsync(handle).await.unwrap();
        writer.write(handle, 0, pattern(2, 7000)).await.unwrap();
        writer.close(handle).await;
        writer.unlink(&root(), InodeId::ROOT, b"f").await.unwrap();
        cluster.nodes.iter().for_each(|node| node.process.freeze());
        let thaw = async {
            cluster.world.sleep(Duration::from_millis(1500)).await;
            cluster.nodes.iter().for_each(|node| node.process.thaw());
        };
        let user = root();
        let (late, ()) = tokio::join!(reader.open(&user, inode, Access::Read), thaw);
        let (late, _) = late.unwrap();
        assert_eq!(read_all(&reader, late).await.unwrap(), &pattern(2, 7000)[..]);
        reader.close(late).await;
        cluster.world.sleep(Duration::from_secs(10)).await;
        assert!(writer.get_attr(&root(), inode).await.is_err(), "nobody keeps it");
    });
}

/// Goal: a removed file that is opened again in its last moment is as any that is open: closed again it is not thrown away under
/// others that have it open. Method: both come late, one after the other.
#[test]
fn a_removed_file_that_was_opened_again_is_not_thrown_away_under_others() {
    run(83, 3, |cluster| async move {
        let (writer, reader) = (cluster.client("h0").await, cluster.client("h1").await);
        let inode = removed_file(&writer, 1).await;
        cluster.world.sleep(Duration::from_millis(300)).await;
        let (read, _) = reader.open(&root(), inode, Access::Read).await.unwrap();
        assert_eq!(read_all(&reader, read).await.unwrap(), &pattern(1, 5000)[..]);
        let (late, _) = writer.open(&root(), inode, Access::ReadWrite).await.unwrap();
        writer.write(late, 0, pattern(2, 7000)).await.unwrap();
        writer.fsync(late).await.unwrap();
        writer.close(late).await;
        // Until then no client asks for it: the writer keeps its bytes.
        for wait in [1500, 4000] {
            cluster.world.sleep(Duration::from_millis(wait)).await;
            assert_eq!(read_all(&reader, read).await.unwrap(), &pattern(2, 7000)[..], "after {wait} ms");
        }
        reader.close(read).await;
        cluster.world.sleep(Duration::from_secs(15)).await;
        assert!(writer.get_attr(&root(), inode).await.is_err(), "nobody keeps it");
    });
}

/// Goal: its own writer finds a removed file gone as soon as it has thrown it away, before the master knows.
#[test]
fn a_removed_file_that_was_thrown_away_is_gone_for_its_writer_at_once() {
    run(84, 3, |cluster| async move {
        let (writer, other) = (cluster.client("h0").await, cluster.client("h1").await);
        let inode = removed_file(&writer, 1).await;
        let shared = writer.shared();
        let file = shared.inode(inode);
        shared.throw_away(&file, file.core.lock());
        let (opened, asked) = (writer.open(&root(), inode, Access::Read).await, writer.get_attr(&root(), inode).await);
        assert_eq!((opened.unwrap_err().kind(), asked.unwrap_err().kind()), (ErrorKind::Stale, ErrorKind::Stale));
        let late = other.open(&root(), inode, Access::Read).await;
        assert_eq!(late.unwrap_err().kind(), ErrorKind::Stale);
        cluster.world.sleep(Duration::from_secs(5)).await;
        assert_eq!(other.get_attr(&root(), inode).await.unwrap_err().kind(), ErrorKind::Stale, "it is freed");
    });
}

/// Goal: a removed file of which nothing was thrown away can be opened by a client that looked it up, although its
/// writer has let it go.
#[test]
fn a_removed_file_whose_bytes_are_committed_is_let_go_as_it_is() {
    run(86, 3, |cluster| async move {
        let (writer, other) = (cluster.client("h0").await, cluster.client("h1").await);
        let third = cluster.client("h2").await;
        let (handle, inode) = create(&writer, InodeId::ROOT, "f").await;
        writer.write(handle, 0, pattern(1, 5000)).await.unwrap();
        writer.fsync(handle).await.unwrap();
        writer.close(handle).await;
        cluster.world.sleep(Duration::from_secs(2)).await;
        writer.unlink(&root(), InodeId::ROOT, b"f").await.unwrap();
        writer.shared().let_all_go(vec![inode]).await;
        let (late, _) = other.open(&root(), inode, Access::Read).await.unwrap();
        assert_eq!(read_all(&other, late).await.unwrap(), &pattern(1, 5000)[..]);
        other.close(late).await;
        cluster.world.sleep(Duration::from_secs(5)).await;
        // The client that had it open may keep its attributes.
        assert_eq!(third.get_attr(&root(), inode).await.unwrap_err().kind(), ErrorKind::Stale, "it is freed");
    });
}

/// Goal: a removed file that is opened again on the mount that is just giving its lease back can be written, and
/// loses nothing of that.
#[test]
fn a_removed_file_that_was_let_go_can_be_opened_again_and_written() {
    run(87, 3, |cluster| async move {
        let (writer, other) = (cluster.client("h0").await, cluster.client("h1").await);
        let (handle, inode) = create(&writer, InodeId::ROOT, "f").await;
        writer.write(handle, 0, pattern(1, 5000)).await.unwrap();
        writer.fsync(handle).await.unwrap();
        writer.close(handle).await;
        cluster.world.sleep(Duration::from_secs(2)).await;
        writer.unlink(&root(), InodeId::ROOT, b"f").await.unwrap();
        let user = root();
        let opening = writer.open(&user, inode, Access::ReadWrite);
        let ((), opened) = tokio::join!(writer.shared().let_all_go(vec![inode]), opening);
        let (again, _) = opened.unwrap();
        writer.write(again, 0, pattern(2, 7000)).await.unwrap();
        // The lease that went back must not be the one that was taken since.
        cluster.world.sleep(Duration::from_millis(500)).await;
        writer.fsync(again).await.unwrap();
        let (late, _) = other.open(&root(), inode, Access::Read).await.unwrap();
        assert_eq!(read_all(&other, late).await.unwrap(), &pattern(2, 7000)[..]);
        cluster.world.sleep(Duration::from_secs(3)).await;
        writer.fsync(again).await.unwrap();
        assert_eq!(writer.metrics().lost_files, 0);
    });
}

/// Goal: a removed file goes also if it was cut last, and the cut is not on all members yet.
#[test]
fn a_removed_file_that_was_cut_is_freed_without_a_recovery() {
    run(85, 3, |cluster| async move {
        let (writer, other) = (cluster.client("h0").await, cluster.client("h1").await);
        let (handle, inode) = create(&writer, InodeId::ROOT, "f").await;
        writer.write(handle, 0, pattern(1, 5000)).await.unwrap();
        writer.fsync(handle).await.unwrap();
        cluster.world.sleep(Duration::from_secs(2)).await;
        let cut = SetAttr { size: Some(1000), ..SetAttr::default() };
        writer.set_attr(&root(), inode, cut).await.unwrap();
        writer.close(handle).await;
        writer.unlink(&root(), InodeId::ROOT, b"f").await.unwrap();
        cluster.world.sleep(Duration::from_secs(4)).await;
        assert_eq!(other.get_attr(&root(), inode).await.unwrap_err().kind(), ErrorKind::Stale, "it is freed");
        assert_eq!(writer.metrics().recalls, 0, "the master had nothing to ask for");
    });
}

/// Goal: a file that no client may open any more is freed, although its writer, that does not know that it is
/// removed, has bytes of it that go nowhere.
#[test]
fn a_removed_file_is_not_written_back_before_it_is_freed() {
    run(81, 3, |cluster| async move {
        let (writer, other) = (cluster.client("h3").await, cluster.client("h4").await);
        let (handle, inode) = create(&writer, InodeId::ROOT, "f").await;
        writer.write(handle, 0, pattern(1, 5000)).await.unwrap();
        writer.close(handle).await;
        cluster.nodes.iter().for_each(|node| node.process.freeze());
        other.unlink(&root(), InodeId::ROOT, b"f").await.unwrap();
        cluster.world.sleep(Duration::from_secs(4)).await;
        let gone = other.get_attr(&root(), inode).await;
        assert_eq!(gone.unwrap_err().kind(), ErrorKind::Stale, "it is freed");
        assert_eq!(writer.metrics().lost_files, 0, "nothing is lost with it");
        cluster.nodes.iter().for_each(|node| node.process.thaw());
    });
}

/// Goal: nothing is lost for ever when a client gives up a removal that is carried out after all: the master reports
/// to no client the session's own changes, and the client does not know of it.
#[test]
fn a_removal_that_was_given_up_and_is_carried_out_frees_the_file() {
    run(75, 3, |cluster| async move {
        let (client, other) = (cluster.client("h0").await, cluster.client("h1").await);
        let mut made = Vec::new();
        for name in ["removed", "covered", "source"] {
            let (handle, inode) = create(&client, InodeId::ROOT, name).await;
            client.write(handle, 0, pattern(1, 5000)).await.unwrap();
            client.fsync(handle).await.unwrap();
            client.close(handle).await;
            made.push(inode);
        }
        let user = root();
        let rename = Rename {
            source_parent: InodeId::ROOT,
            source_name: b"source",
            target_parent: InodeId::ROOT,
            target_name: b"covered",
            mode: RenameMode::Replace,
        };
        let given_up =
            async { tokio::join!(client.unlink(&user, InodeId::ROOT, b"removed"), client.rename(&user, rename)) };
        tokio::select! {
            biased;
            done = given_up => panic!("it is given up before it is answered: {done:?}"),
            // Sent, and not answered.
            () = cluster.world.sleep(Duration::from_micros(1)) => {}
        }
        cluster.world.sleep(Duration::from_secs(25)).await;
        let missing = other.lookup(&root(), InodeId::ROOT, b"removed").await;
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound, "it was carried out");
        assert_eq!(other.lookup(&root(), InodeId::ROOT, b"covered").await.unwrap().inode, made[2]);
        for inode in &made[..2] {
            let gone = other.get_attr(&root(), *inode).await;
            assert_eq!(gone.map(|attr| attr.links).unwrap_err().kind(), ErrorKind::Stale, "{inode} is freed");
        }
    });
}

/// Goal: the question whether a removed file is still open does not close it, and no program loses its open file by
/// it.
#[test]
fn a_removed_file_that_is_open_stays_however_often_its_client_is_asked() {
    run(77, 3, |cluster| async move {
        let (client, other) = (cluster.client("h0").await, cluster.client("h1").await);
        let (handle, inode) = create(&client, InodeId::ROOT, "file").await;
        client.write(handle, 0, pattern(1, 5000)).await.unwrap();
        client.fsync(handle).await.unwrap();
        other.unlink(&root(), InodeId::ROOT, b"file").await.unwrap();
        cluster.world.sleep(Duration::from_secs(35)).await;
        cluster.restart_master().await;
        cluster.world.sleep(Duration::from_secs(35)).await;
        assert_eq!(read_all(&client, handle).await.unwrap(), &pattern(1, 5000)[..]);
        client.close(handle).await;
        cluster.world.sleep(Duration::from_secs(5)).await;
        assert!(other.get_attr(&root(), inode).await.is_err(), "nobody keeps it");
    });
}

/// Goal: a link, or a change of mode, returns the file's true size, here and elsewhere: a kernel takes the size from
/// such an answer, and drops the mapped pages beyond it.
#[test]
fn links_and_modes_include_uncommitted_changes() {
    run(74, 3, |cluster| async move {
        let writer = cluster.client("h0").await;
        let other = cluster.client("h1").await;
        let (handle, inode) = create(&writer, InodeId::ROOT, "file").await;
        writer.write(handle, 0, pattern(1, 5000)).await.unwrap();
        let linked = writer.link(&root(), inode, InodeId::ROOT, b"own").await.unwrap();
        assert_eq!((linked.size, linked.links), (5000, 2));
        writer.write(handle, 5000, pattern(1, 2000)).await.unwrap();
        let linked = other.link(&root(), inode, InodeId::ROOT, b"others").await.unwrap();
        assert_eq!((linked.size, linked.links), (7000, 3));
        writer.write(handle, 7000, pattern(1, 1000)).await.unwrap();
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        assert_eq!(other.set_attr(&root(), inode, set.clone()).await.unwrap().size, 8000);
        assert_eq!(writer.set_attr(&root(), inode, set).await.unwrap().size, 8000);
    });
}

/// Goal: a client keeps nothing of files that it made and removed. Method: each is read elsewhere before, so that it has no write
/// lease any more, as that of a file which was made long ago.
#[test]
fn a_client_keeps_nothing_of_files_that_it_made_and_removed() {
    run(1, 3, |cluster| async move {
        let (client, other) = (cluster.client("h0").await, cluster.client("h1").await);
        for index in 0..20 {
            let name = format!("f{index}");
            let (handle, inode) = create(&client, InodeId::ROOT, &name).await;
            client.close(handle).await;
            let (reader, _) = other.open(&root(), inode, Access::Read).await.unwrap();
            other.close(reader).await;
            client.get_attr(&root(), inode).await.unwrap();
            client.unlink(&root(), InodeId::ROOT, name.as_bytes()).await.unwrap();
        }
        let kept = client.shared().known.attrs_kept();
        assert!(kept <= 1, "attributes of {kept} inodes, of which one is there");
    });
}
