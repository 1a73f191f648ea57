//! The size that programs see of a file whose lease is on its way from client to client.

use std::sync::Arc;
use std::time::Duration;

use ebb_types::{InodeId, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Commit, Op};
use parking_lot::Mutex;

use super::harness::{create, pattern, read_all, root, run};
use crate::{Access, Client, EntryDetail, SetAttr};

const LEN: usize = 5000;
/// In which ways a program hears of a size.
const WAYS: [&str; 6] = ["stat", "lookup", "list", "open", "chmod", "link"];

/// In which round which way of asking brought which size.
type Answer = (u32, &'static str, u64);

/// The size of the file `name`, for the `step`th time.
async fn size(client: &Client, inode: InodeId, name: &str, way: &str, step: u32) -> u64 {
    match way {
        "stat" => client.get_attr(&root(), inode).await.unwrap().size,
        "lookup" => client.lookup(&root(), InodeId::ROOT, name.as_bytes()).await.unwrap().size,
        "list" => {
            let page = client.read_dir(&root(), InodeId::ROOT, None, 1000, EntryDetail::Attributes).await.unwrap();
            let own = page.entries.iter().find(|entry| entry.name == name.as_bytes()).unwrap();
            own.attr.unwrap().size
        }
        "open" => {
            let (open, attr) = client.open(&root(), inode, Access::Read).await.unwrap();
            client.close(open).await;
            attr.size
        }
        "chmod" => {
            let set = SetAttr { mode: Some(0o600 + step % 2), ..SetAttr::default() };
            client.set_attr(&root(), inode, set).await.unwrap().size
        }
        _ => {
            let link = format!("{name}.{step}");
            client.link(&root(), inode, InodeId::ROOT, link.as_bytes()).await.unwrap().size
        }
    }
}

/// Goal: every query for the size of a file that does not change gets the same, wherever its lease is meanwhile: a
/// kernel that gets less reads less. Method: the writer has synced and not committed, so that the master knows no
/// byte. It asks all the time, in every way, while another client reads the file and so has the lease sent back.
#[test]
fn a_size_that_is_asked_for_while_the_write_lease_goes_back_is_that_of_the_file() {
    for keep_names in [true, false] {
        run(81, 3, move |cluster| async move {
            let options = |host| {
                let mut options = cluster.options(host);
                options.keep_names = keep_names;
                options
            };
            let writer = Arc::new(cluster.client_with(options("h0")).await);
            let reader = cluster.client_with(options("h1")).await;
            let seen: Arc<Mutex<Vec<Answer>>> = Arc::default();
            for round in 0..40 {
                let name = format!("f{round}");
                let (handle, inode) = create(&writer, InodeId::ROOT, &name).await;
                writer.write(handle, 0, pattern(1, LEN)).await.unwrap();
                writer.fsync(handle).await.unwrap();
                let runtime = cluster.world.process("h0").runtime();
                let mut asking = Vec::new();
                for way in WAYS {
                    let (writer, name, seen) = (Arc::clone(&writer), name.clone(), Arc::clone(&seen));
                    let own = runtime.clone();
                    asking.push(runtime.spawn("ask for the size", async move {
                        for step in 0..20 {
                            let size = size(&writer, inode, &name, way, step).await;
                            seen.lock().push((round, way, size));
                            own.sleep(Duration::from_micros(50)).await;
                        }
                    }));
                }
                cluster.world.sleep(Duration::from_micros(u64::from(round) * 37)).await;
                let (open, attr) = reader.open(&root(), inode, Access::Read).await.unwrap();
                assert_eq!(attr.size, LEN as u64);
                assert_eq!(read_all(&reader, open).await.unwrap(), &pattern(1, LEN)[..]);
                reader.close(open).await;
                for task in asking {
                    task.join().await.unwrap();
                }
                writer.close(handle).await;
                assert_eq!(writer.get_attr(&root(), inode).await.unwrap().size, LEN as u64);
            }
            let seen = seen.lock();
            let wrong: Vec<_> = seen.iter().filter(|(.., size)| *size != LEN as u64).collect();
            assert!(wrong.is_empty(), "{} of {} answers: {wrong:?}", wrong.len(), seen.len());
        });
    }
}

/// Goal: a synced size does not shrink once the write lease is lost, while the master does not know that yet and has
/// to find the size out. Method: the writer has synced and not committed; it or another client asks in every way.
#[test]
fn a_synced_size_does_not_shrink_when_the_write_lease_is_lost() {
    for (seed, way) in (82..).zip(WAYS) {
        for by_other in [false, true] {
            run(seed, 3, move |cluster| async move {
                let (writer, other) = (cluster.client("h0").await, cluster.client("h1").await);
                let (handle, inode) = create(&writer, InodeId::ROOT, "f").await;
                writer.write(handle, 0, pattern(1, LEN)).await.unwrap();
                writer.fsync(handle).await.unwrap();
                let shared = writer.shared();
                shared.lose_lease(&shared.inode(inode), &err!(Timeout, "it could not be written back"));
                let asker = if by_other { &other } else { &writer };
                assert_eq!(size(asker, inode, "f", way, 0).await, LEN as u64, "{way}, by another: {by_other}");
                assert_eq!(size(asker, inode, "f", "stat", 1).await, LEN as u64, "{way}, and then stat");
                assert_eq!(read_all(&writer, handle).await.unwrap(), &pattern(1, LEN)[..]);
            });
        }
    }
}

/// Goal: a client that has lost a lease that had gone back before (the answer was lost) goes on with the file at
/// once: there is nothing to recover, and its epoch stays.
#[test]
fn a_lease_that_had_gone_back_before_it_was_lost_is_not_waited_for() {
    for (seed, way) in (90..).zip(WAYS) {
        run(seed, 3, move |cluster| async move {
            let client = cluster.client("h0").await;
            let (handle, inode) = create(&client, InodeId::ROOT, "f").await;
            client.write(handle, 0, pattern(1, LEN)).await.unwrap();
            client.fsync(handle).await.unwrap();
            let shared = client.shared();
            let file = shared.inode(inode);
            shared.commit_one(&file, false).await.unwrap();
            let epoch = file.core.lock().hold.epoch().raw();
            let release =
                pb::CommitFile { inode: inode.raw(), epoch, size: LEN as u64, release: true, ..Default::default() };
            shared.own_meta(Op::Commit(Commit { files: vec![release] })).await.unwrap();
            shared.lose_lease(&file, &err!(Disconnected, "no answer came"));
            let begun = cluster.world.now();
            assert_eq!(size(&client, inode, "f", way, 0).await, LEN as u64, "{way}");
            assert_eq!(read_all(&client, handle).await.unwrap(), &pattern(1, LEN)[..]);
            assert!(cluster.world.now() - begun < Duration::from_secs(1), "{way}");
        });
    }
}
