//! Localized storage nodes (LSNs): data lie where their writers are, over all disks; reads stay in the sub-rack; a disk, an LSN
//! and a whole sub-rack may go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use ebb_block::{BlockOptions, BlockServer};
use ebb_client::{Access, Client, Handle, NewFile};
use ebb_power::PolicyKind;
use ebb_rpc::Counters;
use ebb_runtime::virt::{DiskOptions, World, WorldOptions};
use ebb_types::{Credentials, ErrorKind, HostName, InodeId, NodeId, RackName, Role};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, GetMap, Op};

use crate::cluster::identity;
use crate::power::sites::{Site, SubRackSizes};
use crate::power::{PowerCluster, PowerOptions};

const INTERVAL: Duration = Duration::from_secs(2);
const METABLOCK: u64 = 256 << 10;
const SIZES: SubRackSizes = SubRackSizes { sub_racks: 4, hosts: 2, lsn_volumes: 4, host_volumes: 0, racks: 2 };

/// Each LSN has four disks of 8 MB/s.
fn slow_disks() -> WorldOptions {
    let disk = DiskOptions { bandwidth_bytes_per_sec: 8 << 20, ..DiskOptions::default() };
    WorldOptions { disk, ..WorldOptions::default() }
}

async fn start(world: &World, sizes: SubRackSizes) -> PowerCluster {
    let usual = PowerOptions::new(1, PolicyKind::AlwaysOn, INTERVAL);
    PowerCluster::start_with(world, PowerOptions { sites: Site::sub_racks(sizes), ..usual }).await.unwrap()
}

async fn make(client: &Client, path: &str, settings: pb::Dataset) -> Result<InodeId, ebb_types::Error> {
    let (path, block_size) = (path.to_owned(), 64 << 10);
    let metablock_size = if settings.metablock_size == 0 { METABLOCK } else { settings.metablock_size };
    let dataset = pb::Dataset { path, replicas: 2, block_size, metablock_size, ..settings };
    let create = CreateDataset { dataset: Some(dataset), ..Default::default() };
    let made = client.meta(&Credentials::root(), Op::CreateDataset(create)).await?;
    Ok(InodeId::new(made.dataset.unwrap_or_default().root_inode))
}

async fn make_lsn(client: &Client) -> InodeId {
    make(client, "/data", pb::Dataset { layout: "lsn".into(), ..Default::default() }).await.unwrap()
}

/// Bytes that tell a file and a place in it.
fn bytes_at(file: u8, metablock: u64) -> Vec<u8> {
    vec![file ^ metablock as u8; METABLOCK as usize]
}

/// Returns when the map tells of all metablocks.
async fn write(world: &World, client: &Client, directory: InodeId, file: u8, metablocks: u64) -> InodeId {
    let name = format!("f{file}");
    let new = NewFile::exclusive(directory, name.as_bytes(), Access::ReadWrite);
    let made = client.create(&Credentials::root(), new).await.unwrap();
    for metablock in 0..metablocks {
        client.write(made.handle, metablock * METABLOCK, Bytes::from(bytes_at(file, metablock))).await.unwrap();
    }
    client.fsync(made.handle).await.unwrap();
    client.close(made.handle).await;
    let began = world.now();
    while placed(client, made.attr.inode).await.len() < metablocks as usize {
        world.sleep(Duration::from_millis(100)).await;
        assert!(world.now() - began < Duration::from_secs(10), "f{file} is not committed");
    }
    made.attr.inode
}

async fn open(client: &Client, file: InodeId) -> Handle {
    client.open(&Credentials::root(), file, Access::Read).await.unwrap().0
}

async fn check(client: &Client, inode: InodeId, file: u8, metablocks: u64) {
    let handle = open(client, inode).await;
    for metablock in 0..metablocks {
        let read = client.read(handle, metablock * METABLOCK, METABLOCK as u32).await.unwrap();
        assert!(read == bytes_at(file, metablock), "f{file} at metablock {metablock}");
    }
    client.close(handle).await;
}

/// Members of each written metablock as (node, volume).
async fn placed(client: &Client, file: InodeId) -> Vec<Vec<(u64, u64)>> {
    let map = GetMap { inode: file.raw(), first_index: 0, limit: 1_000 };
    let records = client.meta(&Credentials::root(), Op::GetMap(map)).await.unwrap().metablocks;
    let members = |record: &pb::Metablock| record.members.iter().map(|one| (one.node, one.volume)).collect();
    records.iter().filter(|record| record.is_written()).map(members).collect()
}

/// Nodes by their hosts.
async fn nodes(cluster: &PowerCluster) -> BTreeMap<String, u64> {
    let status = cluster.cluster_status().await.unwrap();
    status.nodes.into_iter().map(|node| (node.host, node.id)).collect()
}

/// Goal: a served host's data lie on its LSN, over all disks, with second copies in the other half; what it reads stays in the
/// sub-rack; and tasks elsewhere pay for the way. Method: a file by a host of lsn2 is read there and on a host of lsn1, whose bytes
/// by peer are compared.
#[test]
fn data_lie_in_the_writer_s_sub_rack_and_reads_stay_there() {
    World::run(61, WorldOptions::default(), |world| async move {
        let cluster = start(&world, SIZES).await;
        let of = nodes(&cluster).await;
        let writer = cluster.connect("h3").await.unwrap();
        let directory = make_lsn(&writer).await;
        let file = write(&world, &writer, directory, 1, 16).await;
        let sets = placed(&writer, file).await;
        assert!(sets.iter().all(|set| set[0].0 == of["lsn2"]), "{sets:?}, {of:?}");
        let volumes = |copy: usize| {
            sets.iter().fold(BTreeMap::new(), |mut counts, set| {
                *counts.entry(set[copy]).or_insert(0) += 1;
                counts
            })
        };
        // The first metablock of a new file is placed before the file has its inode.
        assert!(
            volumes(0).len() == 4 && volumes(0).values().all(|count: &i32| count.abs_diff(4) <= 1),
            "{:?}",
            volumes(0)
        );
        // lsn1 and lsn3 are in rack r1, lsn2 and lsn4 in r2: halves follow racks.
        let seconds: BTreeSet<u64> = sets.iter().map(|set| set[1].0).collect();
        assert_eq!(seconds, BTreeSet::from([of["lsn1"], of["lsn3"]]));
        let mut small = BTreeSet::new();
        for file in 20..44 {
            let inode = write(&world, &writer, directory, file, 1).await;
            small.insert(placed(&writer, inode).await[0][0]);
        }
        assert_eq!(small.len(), 4, "small files of a directory lie on all disks: {small:?}");
        writer.disconnect().await.unwrap();

        let read_on = async |host: &str| {
            let counters = Counters::default();
            let process = world.process_on(host, &format!("reader-{host}"));
            let client = cluster.session_with(&process, counters.clone(), |_| {}).await.unwrap();
            check(&client, file, 1, 16).await;
            let read = counters.read();
            client.disconnect().await.unwrap();
            (read.sub_rack_received_bytes, read.network_received_bytes)
        };
        let bytes = 16 * METABLOCK;
        let (near, all) = read_on("h4").await;
        assert!(near >= bytes && all < bytes + bytes / 10, "{near} of {all}");
        let (near, all) = read_on("h8").await;
        assert!(near < bytes / 20 && all >= bytes, "lsn4 has no copy: {near} of {all}");
        let (near, _) = read_on("h1").await;
        assert!(near.abs_diff(bytes / 2) < bytes / 8, "lsn1 has every other second copy: {near}");
    });
}

/// Goal: a stream has the rate of all disks of the LSN. Method: the same file on LSNs with one and with four disks, read
/// with more metablocks ahead than there are disks.
#[test]
fn a_stream_has_the_rate_of_all_disks() {
    let seconds = |volumes: usize| {
        World::run(62, slow_disks(), move |world| async move {
            let sizes = SubRackSizes { sub_racks: 2, lsn_volumes: volumes, ..SIZES };
            let cluster = start(&world, sizes).await;
            let client = cluster.connect("h1").await.unwrap();
            // What is read ahead is of more metablocks than there are disks.
            let settings = pb::Dataset { layout: "lsn".into(), metablock_size: 64 << 10, ..Default::default() };
            let directory = make(&client, "/data", settings).await.unwrap();
            let file = write(&world, &client, directory, 2, 64).await;
            client.disconnect().await.unwrap();
            let process = world.process_on("h2", "reader");
            let reader =
                cluster.session_with(&process, Counters::default(), |options| options.read_cache_bytes = 16 << 20);
            let reader = reader.await.unwrap();
            let began = world.now();
            check(&reader, file, 2, 64).await;
            (world.now() - began).as_secs_f64()
        })
    };
    let (one, four) = (seconds(1), seconds(4));
    assert!(one > 1.9 && one / four > 2.5, "{one} s on one disk, {four} s on four");
}

/// Goal: a disk of an LSN that fails takes nothing along, and its copies are made again. Method: the second spindle of lsn1
/// fails while the data are read; later nothing lies on its volume.
#[test]
fn a_failed_disk_of_an_lsn_is_borne_by_the_others() {
    World::run(63, WorldOptions::default(), |world| async move {
        let cluster = start(&world, SIZES).await;
        let client = cluster.connect("h1").await.unwrap();
        let directory = make_lsn(&client).await;
        let file = write(&world, &client, directory, 3, 16).await;
        world.process("lsn1").spindle(&Site::volume(2)).fail();
        check(&client, file, 3, 16).await;
        // A write meets the failure if no read did.
        let more = write(&world, &client, directory, 4, 8).await;
        let poisoned = async || {
            let status = cluster.cluster_status().await.unwrap();
            let volumes: Vec<pb::Volume> = status.nodes.into_iter().flat_map(|node| node.volumes).collect();
            volumes.into_iter().find(|volume| volume.state() == pb::VolumeState::VolumePoisoned).map(|volume| volume.id)
        };
        let began = world.now();
        let lost = loop {
            match poisoned().await {
                Some(volume) => break volume,
                None => world.sleep(Duration::from_millis(200)).await,
            }
            assert!(world.now() - began < Duration::from_secs(60), "the failure is not found");
        };
        let uses = async || {
            let sets = [placed(&client, file).await, placed(&client, more).await].concat();
            sets.iter().filter(|set| set.len() < 2 || set.iter().any(|(_, volume)| *volume == lost)).count()
        };
        while uses().await > 0 {
            world.sleep(Duration::from_millis(500)).await;
            assert!(world.now() - began < Duration::from_secs(120), "{} sets still use v{lost}", uses().await);
        }
        check(&client, file, 3, 16).await;
        check(&client, more, 4, 8).await;
        client.disconnect().await.unwrap();
    });
}

/// Goal: an LSN that is lost, or cut off with its sub-rack, takes nothing along: the other half serves, and copies are made so that
/// both halves have one again. Method: lsn2 fails under a reader, comes back much later, and then its sub-rack is cut off.
#[test]
fn a_lost_lsn_is_borne_by_the_other_half() {
    World::run(64, WorldOptions::default(), |world| async move {
        let cluster = start(&world, SIZES).await;
        let of = nodes(&cluster).await;
        let client = cluster.connect("h3").await.unwrap();
        let directory = make_lsn(&client).await;
        let file = write(&world, &client, directory, 5, 16).await;
        cluster.fail(NodeId::new(of["lsn2"])).unwrap();
        check(&client, file, 5, 16).await;
        let while_away = write(&world, &client, directory, 6, 8).await;
        let halves = [[of["lsn1"], of["lsn3"]], [of["lsn2"], of["lsn4"]]];
        let is_whole = |sets: &[Vec<(u64, u64)>], gone: Option<u64>| {
            sets.iter().all(|set| {
                let has = |half: &[u64; 2]| set.iter().any(|(node, _)| half.contains(node) && Some(*node) != gone);
                set.len() == 2 && halves.iter().all(has)
            })
        };
        let wait = async |gone: Option<u64>| {
            let began = world.now();
            loop {
                let sets = [placed(&client, file).await, placed(&client, while_away).await].concat();
                if is_whole(&sets, gone) {
                    return;
                }
                world.sleep(Duration::from_millis(500)).await;
                assert!(world.now() - began < Duration::from_secs(180), "{sets:?} with {gone:?} away");
            }
        };
        wait(Some(of["lsn2"])).await;
        cluster.repair(NodeId::new(of["lsn2"])).unwrap();
        world.sleep(Duration::from_secs(30)).await;
        wait(None).await;
        check(&client, file, 5, 16).await;
        client.disconnect().await.unwrap();

        // The sub-rack of lsn4 is cut off: its own host and those that it serves reach each other alone.
        let inside = ["lsn4", "h7", "h8"];
        let outside: Vec<String> = of.keys().filter(|host| !inside.contains(&host.as_str())).cloned().collect();
        let outside: Vec<&str> = outside.iter().map(String::as_str).chain(["master", "reader"]).collect();
        let links: Vec<(&str, &str)> =
            inside.iter().flat_map(|one| outside.iter().map(|other| (*one, *other))).collect();
        let reader = cluster.connect("reader").await.unwrap();
        links.iter().for_each(|(one, other)| world.partition(one, other));
        check(&reader, file, 5, 16).await;
        check(&reader, while_away, 6, 8).await;
        links.iter().for_each(|(one, other)| world.mend(one, other));
        reader.disconnect().await.unwrap();
    });
}

/// Goal: what contradicts the declarations is refused by name, and the registered nodes go on. Method: a block server that claims a
/// host of lsn1's sub-rack, one on a served host in another rack, and datasets on nodes that there are none of.
#[test]
fn contradictory_declarations_are_refused() {
    World::run(65, WorldOptions::default(), |world| async move {
        let cluster = start(&world, SubRackSizes { sub_racks: 2, ..SIZES }).await;
        let declare = async |host: &str, rack: &str, serves: &[&str]| {
            let process = world.process_on(host, &format!("second-{host}"));
            let mut options =
                BlockOptions::new("/second".into(), identity(host, Role::Block), vec![cluster.master_address()]);
            options.listen = format!("{}:7900", process.ip());
            options.rack = RackName::new(rack);
            options.serves_hosts = serves.iter().map(|host| HostName::new(*host)).collect();
            let server = BlockServer::start(process.runtime(), options).await.unwrap();
            let began = world.now();
            while server.declined().is_none() && server.node().is_none() {
                world.sleep(Duration::from_millis(50)).await;
                assert!(world.now() - began < Duration::from_secs(20), "neither registered nor refused");
            }
            (server.declined().map(|error| (error.kind(), error.to_string())), server)
        };
        let refused = async |host: &str, rack: &str, serves: &[&str], parts: &[&str]| {
            let (declined, server) = declare(host, rack, serves).await;
            let (kind, text) = declined.expect("it is refused");
            assert!(kind == ErrorKind::Invalid && parts.iter().all(|part| text.contains(part)), "{text}");
            server.stop().await.unwrap();
        };
        refused("lsn9", "r1", &["h2"], &["h2 is served by n", "on lsn1"]).await;
        refused("h4", "r9", &[], &["one rack", "on lsn2"]).await;
        refused("lsn8", "r1", &["lsn1"], &["on lsn1 serves hosts"]).await;
        let client = cluster.connect("h1").await.unwrap();
        let on_compute = pb::Dataset { node_class: ebb_types::NodeClass::Compute.to_raw(), ..Default::default() };
        let scratch = make(&client, "/scratch", on_compute).await.unwrap();
        let new = NewFile::exclusive(scratch, b"f", Access::Write);
        let error = client.create(&Credentials::root(), new).await.unwrap_err();
        assert!(error.to_string().contains("compute nodes with volumes"), "{error}");
        client.disconnect().await.unwrap();
    });
}

/// Goal: with disks in compute hosts too, a dataset on these keeps off the LSNs, and another one off the compute hosts. Method: a
/// hybrid cluster, and one file in each dataset.
#[test]
fn hybrid_datasets_keep_to_their_nodes() {
    World::run(66, WorldOptions::default(), |world| async move {
        let cluster = start(&world, SubRackSizes { sub_racks: 2, host_volumes: 1, ..SIZES }).await;
        let of = nodes(&cluster).await;
        let lsns = BTreeSet::from([of["lsn1"], of["lsn2"]]);
        let client = cluster.connect("h3").await.unwrap();
        let kept = make_lsn(&client).await;
        let on_compute = pb::Dataset { node_class: ebb_types::NodeClass::Compute.to_raw(), ..Default::default() };
        let scratch = make(&client, "/scratch", on_compute).await.unwrap();
        let nodes_of = async |directory: InodeId, file: u8| {
            let file = write(&world, &client, directory, file, 8).await;
            placed(&client, file).await
        };
        let sets = nodes_of(kept, 7).await;
        assert!(sets.iter().flatten().all(|(node, _)| lsns.contains(node)), "{sets:?}");
        let sets = nodes_of(scratch, 8).await;
        assert!(sets.iter().all(|set| set[0].0 == of["h3"]), "its writer's own host: {sets:?}");
        assert!(sets.iter().flatten().all(|(node, _)| !lsns.contains(node)), "{sets:?}");
        client.disconnect().await.unwrap();
    });
}
