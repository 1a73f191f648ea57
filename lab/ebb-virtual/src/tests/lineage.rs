//! Disks that are put back as they were: a master's, a block server's, and one that two processes have.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, NewFile};
use ebb_runtime::SeededBug;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, ErrorKind, InodeId, Result};
use ebb_wire::pb;

use crate::VirtualOptions;
use crate::cluster::{Cluster, Member, Role};

/// No wait of a test is longer: a client of a master that serves nothing never ends by itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(40);
/// Longer than a session, and than nodes need to register.
pub(super) const PAUSE: Duration = Duration::from_secs(15);

fn start(world: &World) -> Cluster {
    let options = VirtualOptions { clients: 0, block_servers: 3, ..VirtualOptions::default() };
    Cluster::start(crate::board(world), options)
}

/// The work of a program on a host of its own, and its result; the host's process ends with it.
async fn on_host<F: Future<Output = Result<T>> + Send + 'static, T: Send + 'static>(
    world: &World,
    cluster: &Cluster,
    host: &str,
    work: impl FnOnce(Client) -> F + Send + 'static,
) -> Result<T> {
    let process = world.process(host);
    let (runtime, cluster, host) = (process.runtime(), cluster.clone(), host.to_owned());
    let inner = runtime.clone();
    let task = runtime.spawn("program", async move {
        let work = async {
            let client = cluster.connect(&inner, &host).await?;
            work(client).await
        };
        inner.timeout(PATIENCE, "a program's work", work).await
    });
    let done = task.join().await?;
    process.kill();
    done
}

pub(super) async fn write(client: &Client, name: &str, letter: u8) -> Result<()> {
    let (root, access) = (Credentials::root(), Access::ReadWrite);
    let handle = client.create(&root, NewFile::or_existing(InodeId::ROOT, name.as_bytes(), access)).await?.handle;
    client.write(handle, 0, Bytes::from(vec![letter; 100_000])).await?;
    client.fsync(handle).await
}

/// Changes that the copies of a directory do not have.
async fn overwrite_and_add(client: Client) -> Result<()> {
    write(&client, "f", b'b').await?;
    write(&client, "g", b'c').await
}

/// The letter that a file is full of.
pub(super) async fn read(client: &Client, name: &str) -> Result<u8> {
    let found = client.resolve(&Credentials::root(), format!("/{name}").as_bytes()).await?;
    let handle = client.open(&Credentials::root(), found.inode, Access::Read).await?.0;
    let bytes = client.read(handle, 0, 100_000).await?;
    assert!(bytes.len() == 100_000 && bytes.iter().all(|byte| *byte == bytes[0]), "{} bytes", bytes.len());
    Ok(bytes[0])
}

async fn status_of(cluster: &Cluster) -> pb::ClusterStatusReply {
    cluster.operator().call(&pb::ClusterStatus {}, PATIENCE).await.unwrap()
}

fn block_servers(cluster: &Cluster) -> Vec<Member> {
    cluster.members().iter().filter(|member| member.role == Role::Block).cloned().collect()
}

/// A master's disk is put back as it was before the last writes: in the middle of a run of the master, or before its
/// last start. Returns the results of later reads, and the master's status.
fn put_master_back(seed: u64, restarted: bool, bug: Option<SeededBug>) -> (Result<(u8, u8)>, pb::ClusterStatusReply) {
    World::run(seed, WorldOptions { bug, ..WorldOptions::default() }, |world| async move {
        let cluster = start(&world);
        let master = cluster.members()[0].clone();
        on_host(&world, &cluster, "one", |client| async move { write(&client, "f", b'a').await }).await.unwrap();
        world.sleep(PAUSE).await;
        let saved = master.process.power_cut();
        if restarted {
            master.process.kill();
            cluster.restart(&master);
        }
        on_host(&world, &cluster, "two", overwrite_and_add).await.unwrap();
        world.sleep(PAUSE).await;
        master.process.kill();
        master.process.restore_disk(&saved, |_| true);
        cluster.restart(&master);
        let seen = on_host(&world, &cluster, "three", |client| async move {
            Ok((read(&client, "f").await?, read(&client, "g").await?))
        });
        let seen = seen.await;
        world.sleep(Duration::from_secs(1)).await;
        (seen, status_of(&cluster).await)
    })
}

/// Whether acknowledged writes are there, or the master refuses to serve.
fn keeps_its_word(seen: &Result<(u8, u8)>, status: &pb::ClusterStatusReply) -> bool {
    *seen == Ok((b'b', b'c')) || status.refused
}

#[test]
fn an_old_master_serves_nothing() {
    for seed in 0..6 {
        let restarted = seed % 2 == 0;
        let (seen, status) = put_master_back(seed, restarted, None);
        assert!(keeps_its_word(&seen, &status), "seed {seed}: {seen:?}, {}", status.standing);
        assert!(status.refused && status.standing.contains("went back in time"), "seed {seed}: {}", status.standing);
        assert_eq!(seen.unwrap_err().kind(), ErrorKind::WentBack, "seed {seed}");
    }
}

#[test]
fn an_old_master_that_serves_is_found() {
    for seed in 0..2 {
        let (seen, status) = put_master_back(seed, seed % 2 == 0, Some(SeededBug::OldMasterServes));
        assert!(!keeps_its_word(&seen, &status), "seed {seed}: {seen:?}");
    }
}

/// Goal: a loss that is accepted gives no number twice, and loses no bytes that a node has. Method: as above, and then the
/// loss is accepted.
#[test]
fn an_accepted_loss_keeps_the_replicas_that_nodes_have() {
    for seed in 0..4 {
        World::run(seed, WorldOptions::default(), |world| async move {
            let cluster = start(&world);
            let master = cluster.members()[0].clone();
            on_host(&world, &cluster, "one", |client| async move { write(&client, "f", b'a').await }).await.unwrap();
            world.sleep(PAUSE).await;
            let saved = master.process.power_cut();
            on_host(&world, &cluster, "two", overwrite_and_add).await.unwrap();
            world.sleep(PAUSE).await;
            master.process.kill();
            master.process.restore_disk(&saved, |_| true);
            let runtime = master.process.restart();
            ebb_master::accept::write(&runtime, "/master".as_ref(), &Default::default()).await.unwrap();
            master.process.kill();
            cluster.restart(&master);
            let work = |client: Client| async move {
                let seen = read(&client, "f").await?;
                // Its name was lost, and its bytes are kept.
                assert_eq!(read(&client, "g").await.unwrap_err().kind(), ErrorKind::NotFound);
                write(&client, "f", b'd').await?;
                write(&client, "h", b'e').await?;
                Ok(seen)
            };
            assert_eq!(on_host(&world, &cluster, "three", work).await, Ok(b'b'), "seed {seed}");
            let status = status_of(&cluster).await;
            assert!(status.serving && status.deletions_held && !status.safe_start, "{}", status.standing);
            let work = |client: Client| async move { Ok((read(&client, "f").await?, read(&client, "h").await?)) };
            assert_eq!(on_host(&world, &cluster, "four", work).await, Ok((b'd', b'e')), "seed {seed}");
            let checked =
                cluster.operator().call(&pb::Fsck { scrub: false, ..Default::default() }, PATIENCE).await.unwrap();
            assert_eq!(checked.missing, 0, "{:?}", checked.findings);
            assert!(checked.orphaned > 0, "replicas of a lost name are kept");
            let status = status_of(&cluster).await;
            assert!(!status.deletions_held, "seed {seed}");
            // The next start is known to all.
            master.process.kill();
            cluster.restart(&master);
            let work = |client: Client| async move { read(&client, "f").await };
            assert_eq!(on_host(&world, &cluster, "five", work).await, Ok(b'd'), "seed {seed}");
        });
    }
}

/// Goal: a block server whose disk is put back is refused, in whatever state its process was when it was copied, and no
/// acknowledged write is lost.
#[test]
fn a_block_server_that_went_back_is_refused() {
    for seed in 0..6 {
        World::run(seed, WorldOptions::default(), |world| async move {
            let cluster = start(&world);
            let node = block_servers(&cluster)[seed as usize % 3].clone();
            on_host(&world, &cluster, "one", |client| async move { write(&client, "f", b'a').await }).await.unwrap();
            world.sleep(PAUSE).await;
            let saved = node.process.power_cut();
            if seed < 3 {
                node.process.kill();
                cluster.restart(&node);
                world.sleep(PAUSE).await;
            }
            on_host(&world, &cluster, "two", |client| async move { write(&client, "f", b'b').await }).await.unwrap();
            world.sleep(PAUSE).await;
            node.process.kill();
            node.process.restore_disk(&saved, |_| true);
            cluster.restart(&node);
            world.sleep(PAUSE).await;
            let status = status_of(&cluster).await;
            let twins: Vec<_> = status.nodes.iter().filter(|node| !node.twin.is_empty()).collect();
            assert_eq!(twins.len(), 1, "seed {seed}");
            assert_eq!(twins[0].host, node.process.host(), "seed {seed}");
            assert!(twins[0].twin.contains("went back in time"), "seed {seed}: {}", twins[0].twin);
            let work = |client: Client| async move { read(&client, "f").await };
            assert_eq!(on_host(&world, &cluster, "three", work).await, Ok(b'b'), "seed {seed}");
        });
    }
}

/// Goal: of two processes with one directory one serves, the whole time. Method: a block server's disk is copied to another
/// machine and started there.
#[test]
fn a_cloned_block_server_is_refused_and_the_first_one_serves() {
    World::run(5, WorldOptions::default(), |world| async move {
        let cluster = start(&world);
        on_host(&world, &cluster, "one", |client| async move { write(&client, "f", b'a').await }).await.unwrap();
        let node = block_servers(&cluster)[1].clone();
        node.process.kill();
        let saved = node.process.power_cut();
        cluster.restart(&node);
        world.sleep(PAUSE).await;
        let before =
            status_of(&cluster).await.nodes.into_iter().find(|known| known.host == node.process.host()).unwrap();
        let clone = Member { process: world.process("clone"), role: Role::Block };
        clone.process.kill();
        clone.process.restore_disk(&saved, |_| true);
        cluster.restart(&clone);
        for _ in 0..20 {
            world.sleep(Duration::from_secs(1)).await;
            let status = status_of(&cluster).await;
            let now = status.nodes.iter().find(|known| known.id == before.id).unwrap();
            assert_eq!((&now.address, now.boot), (&before.address, before.boot));
            assert!(now.state() == pb::NodeState::NodeLive && !now.late);
        }
        let status = status_of(&cluster).await;
        let now = status.nodes.iter().find(|known| known.id == before.id).unwrap();
        assert!(now.twin.contains("two processes say that they are"), "{:?}", now.twin);
        on_host(&world, &cluster, "two", |client| async move { write(&client, "f", b'b').await }).await.unwrap();
        let work = |client: Client| async move { read(&client, "f").await };
        assert_eq!(on_host(&world, &cluster, "three", work).await, Ok(b'b'));
    });
}
