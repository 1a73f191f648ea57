//! The cluster that follows its power.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile};
use ebb_power::{Duty, PolicyKind};
use ebb_runtime::virt::{Process, World, WorldOptions};
use ebb_types::{Credentials, InodeId, NodeId, PlanVersion};
use ebb_wire::pb;
use pb::meta_op::{Op, SetDataset};

use crate::power::work::{make, make_chain};
use crate::power::{DEAD_TIME, LOG_DIR, PowerCluster, newest_plan};

const INTERVAL: Duration = Duration::from_secs(2);
const BLOCK: usize = 64 << 10;
const FILES: usize = 12;

async fn write_files(client: &Client) -> Vec<Handle> {
    let mut handles = Vec::new();
    for number in 0..FILES {
        let (name, access) = (format!("f{number}"), Access::ReadWrite);
        let made =
            client.create(&Credentials::root(), NewFile::exclusive(InodeId::ROOT, name.as_bytes(), access)).await;
        let handle = made.unwrap().handle;
        client.write(handle, 0, Bytes::from(vec![number as u8; BLOCK])).await.unwrap();
        client.fsync(handle).await.unwrap();
        handles.push(handle);
    }
    handles
}

/// Reads a block of each file; the longest that one took.
async fn read_all(world: &World, client: &Client, files: &[Handle]) -> Duration {
    let mut longest = Duration::ZERO;
    for (number, file) in files.iter().enumerate() {
        let began = world.now();
        let data = client.read(*file, 0, BLOCK as u32).await.unwrap();
        assert_eq!((data.len(), data[BLOCK - 1]), (BLOCK, number as u8));
        longest = longest.max(world.now() - began);
    }
    longest
}

async fn read_file(client: &Client, number: usize) -> Vec<u8> {
    let path = format!("/f{number}");
    let inode = client.resolve(&Credentials::root(), path.as_bytes()).await.unwrap().inode;
    let file = client.open(&Credentials::root(), inode, Access::Read).await.unwrap().0;
    let data = client.read(file, 0, BLOCK as u32).await.unwrap();
    client.close(file).await;
    data.to_vec()
}

/// A cluster whose nodes blink on this share of their power.
async fn blinking(world: &World, nodes: usize, share: f64) -> PowerCluster {
    let cluster = PowerCluster::start(world, nodes, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
    cluster.set_fraction(share).await.unwrap();
    wait_for_plan(world).await;
    cluster
}

/// Waits until the plan that follows an operator's override is in force.
async fn wait_for_plan(world: &World) {
    world.sleep(INTERVAL * 2 + Duration::from_secs(1)).await;
}

/// Highest draw of the nodes over some intervals, looked at every five milliseconds.
async fn peak_watts(world: &World, cluster: &PowerCluster, intervals: u32) -> f64 {
    let until = world.now() + INTERVAL * intervals;
    let mut peak: f64 = 0.0;
    while world.now() < until {
        peak = peak.max(cluster.nodes_watts());
        world.sleep(Duration::from_millis(5)).await;
    }
    peak
}

fn live(status: &pb::ClusterStatusReply) -> usize {
    status.nodes.iter().filter(|node| node.state() == pb::NodeState::NodeLive).count()
}

#[test]
fn circular_blinking_keeps_the_budget_and_every_read_returns_within_an_interval() {
    World::run(3, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, 9, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
        let writer = cluster.connect("writer").await.unwrap();
        write_files(&writer).await;
        writer.disconnect().await.unwrap();
        let reader = cluster.connect("reader").await.unwrap();
        let mut files = Vec::new();
        for number in 0..FILES {
            let path = format!("/f{number}");
            let inode = reader.resolve(&Credentials::root(), path.as_bytes()).await.unwrap().inode;
            files.push(reader.open(&Credentials::root(), inode, Access::Read).await.unwrap().0);
        }
        for share in [0.8, 0.5, 0.2] {
            cluster.set_fraction(share).await.unwrap();
            wait_for_plan(&world).await;
            let peak = peak_watts(&world, &cluster, 3).await;
            assert!(peak <= share * 225.0, "{peak} W at {share}");
            assert!(peak > share * 225.0 - 25.0, "{peak} W at {share}: power is left unused");
            for _ in 0..3 {
                let longest = read_all(&world, &reader, &files).await;
                assert!(longest <= INTERVAL + Duration::from_millis(300), "{longest:?} at {share}");
            }
        }
        // Plans are in the log and with the power client: the manager is not needed.
        cluster.kill_manager();
        world.sleep(Duration::from_secs(30)).await;
        assert!(peak_watts(&world, &cluster, 2).await <= 45.0);
        assert!(read_all(&world, &reader, &files).await <= INTERVAL + Duration::from_millis(300));
        assert_eq!(live(&cluster.cluster_status().await.unwrap()), 9, "a sleeping node is not dead");
        cluster.restart_manager();
        while cluster.status().await.is_err() {
            world.sleep(Duration::from_millis(100)).await;
        }
        let status = cluster.status().await.unwrap();
        assert_eq!((status.policy.as_str(), status.budget_watts), ("blink-circular", 85.0));
        cluster.set_fraction(1.0).await.unwrap();
        wait_for_plan(&world).await;
        assert!((cluster.nodes_watts() - 225.0).abs() < 1e-9);
    });
}

#[test]
fn writes_under_blinking_are_on_every_member_within_two_intervals() {
    World::run(4, WorldOptions::default(), |world| async move {
        let cluster = blinking(&world, 5, 0.3).await;
        let client = cluster.connect("client").await.unwrap();
        let began = world.now();
        let files = write_files(&client).await;
        let each = (world.now() - began) / FILES as u32;
        assert!(each <= INTERVAL * 2, "{each:?} for each write with fsync");
        read_all(&world, &client, &files).await;
        client.disconnect().await.unwrap();
        assert_eq!(cluster.cluster_status().await.unwrap().under_replicated, 0);
    });
}

/// Goal: the bytes of the energy account are those that programs read and wrote, each once, also after restarts.
/// Method: known reads and writes, some of them answered by caches; then each of client, block server, master and
/// manager is restarted in a quiet moment, with more reads between.
#[test]
fn bytes_served_to_programs_are_counted_once_across_restarts() {
    World::run(12, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, 4, PolicyKind::AlwaysOn, INTERVAL).await.unwrap();
        while cluster.status().await.is_err() {
            world.sleep(Duration::from_millis(100)).await;
        }
        // Every process has sent its reports by then, and the manager has written its account.
        let quiet = Duration::from_secs(9);
        let all = (FILES * BLOCK) as u64;
        let client = cluster.connect("client").await.unwrap();
        let files = write_files(&client).await;
        read_all(&world, &client, &files).await;
        world.sleep(quiet).await;
        let status = cluster.status().await.unwrap();
        assert_eq!(status.served_bytes, 2 * all);
        assert!(status.joules > 0.0);
        cluster.restart_master().await;
        world.sleep(quiet).await;
        assert_eq!(cluster.status().await.unwrap().served_bytes, 2 * all);
        read_all(&world, &client, &files).await;
        world.sleep(quiet).await;
        assert_eq!(cluster.status().await.unwrap().served_bytes, 3 * all);
        cluster.kill_manager();
        world.sleep(quiet).await;
        cluster.restart_manager();
        while cluster.status().await.is_err() {
            world.sleep(Duration::from_millis(100)).await;
        }
        world.sleep(quiet).await;
        let after = cluster.status().await.unwrap();
        assert_eq!(after.served_bytes, 3 * all);
        assert!(after.joules > status.joules, "the account goes on: {} J after {} J", after.joules, status.joules);
        client.disconnect().await.unwrap();
        let reader = cluster.connect("reader").await.unwrap();
        for number in 0..FILES {
            read_file(&reader, number).await;
        }
        world.sleep(quiet).await;
        assert_eq!(cluster.status().await.unwrap().served_bytes, 4 * all);
    });
}

#[test]
fn a_plan_that_takes_data_out_of_reach_is_refused() {
    World::run(5, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, 5, PolicyKind::AlwaysOn, INTERVAL).await.unwrap();
        let client = cluster.connect("client").await.unwrap();
        write_files(&client).await;
        cluster.set_fraction(0.05).await.unwrap();
        let refused = cluster.set_policy(PolicyKind::Migration).await.unwrap_err();
        assert_eq!(refused.kind(), ebb_types::ErrorKind::NotPermitted, "{refused}");
        assert!(refused.to_string().contains("/f"), "it names a file: {refused}");
        assert_eq!(cluster.status().await.unwrap().policy, "always-on");
    });
}

/// The master logged a plan, and its answer was lost. The supply has not changed, so the manager wants no other plan.
#[test]
fn a_plan_whose_answer_was_lost_is_learnt() {
    World::run(23, WorldOptions::default(), |world| async move {
        let cluster = blinking(&world, 5, 0.5).await;
        let status = cluster.describe().await.unwrap();
        let mut plan = newest_plan(&status).unwrap().unwrap();
        plan.version = PlanVersion::new(plan.version.raw() + 1);
        cluster.publish(&plan).await.unwrap();
        world.sleep(Duration::from_secs(7)).await;
        assert_eq!(cluster.status().await.unwrap().plan_version, plan.version.raw());
    });
}

#[test]
fn fsync_does_not_wait_for_members_that_sleep() {
    World::run(6, WorldOptions::default(), |world| async move {
        let cluster = blinking(&world, 9, 0.5).await;
        let client = cluster.connect("client").await.unwrap();
        let files = write_files(&client).await;
        world.sleep(INTERVAL * 2).await;
        // All members have everything now; overwrites are logged where some sleep.
        let mut spans = Vec::new();
        for round in 1..=3u8 {
            for file in &files {
                client.write(*file, 0, Bytes::from(vec![round; BLOCK])).await.unwrap();
                let began = world.now();
                client.fsync(*file).await.unwrap();
                spans.push(world.now() - began);
            }
        }
        spans.sort_unstable();
        let (median, longest) = (spans[spans.len() / 2], spans[spans.len() - 1]);
        // No pause is in it: whether members sleep is known.
        assert!(median < Duration::from_millis(25) && longest < INTERVAL / 4, "{median:?}, {longest:?} for an fsync");
        let metrics = client.metrics();
        assert!(metrics.logged_writes > 0);
        assert_eq!(metrics.log_copies, 2 * metrics.logged_writes, "two logs, though there are three copies");
        assert!(cluster.log().await.unwrap().bytes() > 0);
        // The leases are kept, nothing more is written: committed writes leave the log all the same.
        world.sleep(Duration::from_secs(30)).await;
        assert_eq!(cluster.log().await.unwrap().bytes(), 0);
        client.disconnect().await.unwrap();
        let reader = cluster.connect("reader").await.unwrap();
        for number in 0..FILES {
            assert!(read_file(&reader, number).await == [3; BLOCK], "file {number} is not as it was synced");
        }
    });
}

#[test]
fn a_dataset_says_how_many_logs_stand_in_for_sleepers() {
    World::run(7, WorldOptions::default(), |world| async move {
        let cluster = blinking(&world, 9, 0.6).await;
        let client = cluster.connect("client").await.unwrap();
        let set = SetDataset { dataset: 0, log_copies: Some(4), ..Default::default() };
        client.meta(&Credentials::root(), Op::SetDataset(set)).await.unwrap();
        let files = write_files(&client).await;
        world.sleep(INTERVAL * 2).await;
        let before = client.metrics();
        for file in &files {
            client.write(*file, 0, Bytes::from(vec![7; BLOCK])).await.unwrap();
            client.fsync(*file).await.unwrap();
        }
        let (writes, logs) = {
            let after = client.metrics();
            (after.logged_writes - before.logged_writes, after.log_copies - before.log_copies)
        };
        assert!(writes > 0 && logs == 4 * writes, "{writes} writes in {logs} logs");
    });
}

/// Files whose last contents are in handoff logs alone for at least one member, and whose writer is dead.
async fn write_and_die(world: &World, cluster: &PowerCluster) {
    cluster.set_fraction(0.3).await.unwrap();
    wait_for_plan(world).await;
    let client = cluster.connect("client").await.unwrap();
    let files = write_files(&client).await;
    world.sleep(INTERVAL * 2).await;
    for file in &files {
        client.write(*file, 0, Bytes::from(vec![99; BLOCK])).await.unwrap();
    }
    let logged = client.metrics().logged_writes;
    // Side by side, so that the first is not with all members long before the last.
    let syncs: Vec<_> = files
        .iter()
        .map(|file| {
            let (client, file) = (client.clone(), *file);
            world.process("client").runtime().spawn("fsync", async move { client.fsync(file).await })
        })
        .collect();
    for sync in syncs {
        sync.join().await.unwrap().unwrap();
    }
    assert!(client.metrics().logged_writes > logged, "nothing was logged: the test shows nothing");
    world.process("client").kill();
}

async fn assert_everything_is_there(cluster: &PowerCluster) {
    let reader = cluster.connect("reader").await.unwrap();
    for number in 0..FILES {
        assert!(read_file(&reader, number).await == [99; BLOCK], "file {number} is not as it was synced");
    }
}

/// A fault of the master's disk.
type Harm<'a> = &'a dyn Fn(&Process);

fn log_files(master: &Process) -> Vec<(PathBuf, u64)> {
    master.disk_files().into_iter().filter(|(path, _)| path.starts_with(LOG_DIR)).collect()
}

/// Goal: the always-on node's handoff log may be damaged or lost without loss of an acknowledged write, for another
/// node has it; and the damage is reported by file and place, and is over when the log is not needed any more. Method:
/// a writer syncs while members sleep, and is killed; so is the master, whose log meets with an accident.
#[test]
fn a_damaged_log_of_the_always_on_node_loses_nothing() {
    let head = |master: &Process| {
        for (path, _) in log_files(master) {
            master.flip_bits(&path, 6, 1).unwrap();
        }
    };
    let everywhere = |master: &Process| {
        for (path, length) in log_files(master) {
            for at in (40..length).step_by(1024) {
                master.flip_bits(&path, at, 1).unwrap();
            }
        }
    };
    let last = |master: &Process| {
        for (path, length) in log_files(master) {
            master.flip_bits(&path, length - 3, 1).unwrap();
        }
    };
    let lost = |master: &Process| master.wipe_disk(Path::new(LOG_DIR));
    let harms: [(&str, Harm<'_>); 4] =
        [("head", &head), ("everywhere", &everywhere), ("last record", &last), ("lost", &lost)];
    for (seed, (name, harm)) in (9..).zip(harms) {
        World::run(seed, WorldOptions::default(), |world| async move {
            let cluster = PowerCluster::start(&world, 9, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
            write_and_die(&world, &cluster).await;
            cluster.restart_master_after(harm).await;
            let doubt = cluster.log().await.unwrap().doubt();
            let doubt = doubt.unwrap_or_else(|| panic!("{name}: no doubt is reported"));
            assert!(doubt.to_string().contains(LOG_DIR), "{name}: {doubt}");
            assert_everything_is_there(&cluster).await;
            // A reader has made recoveries end; the next look lays the doubt to rest.
            world.sleep(Duration::from_secs(15)).await;
            assert_eq!(cluster.log().await.unwrap().doubt(), None, "{name}");
        });
    }
}

/// Goal: writes that fsync acknowledged while members slept are there although the writer dies before they wake.
/// Method: a writer overwrites and syncs at two awake nodes of nine, and is killed at once; in the second half the
/// master is killed too, and comes back with its log. Another client then reads everything.
#[test]
fn bytes_logged_for_sleepers_outlive_the_writer_and_the_master() {
    for (seed, kills_master) in [(7, false), (8, true)] {
        World::run(seed, WorldOptions::default(), |world| async move {
            let cluster = PowerCluster::start(&world, 9, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
            write_and_die(&world, &cluster).await;
            if kills_master {
                cluster.restart_master().await;
            }
            assert_everything_is_there(&cluster).await;
        });
    }
}

/// A manager that begins anew does not assume a full battery when it is empty: plans would count on energy that is not
/// there.
#[test]
fn the_batterys_charge_is_known_after_a_restart() {
    World::run(13, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, 6, PolicyKind::AlwaysOn, INTERVAL).await.unwrap();
        let full = cluster.status().await.unwrap().battery_joules;
        // 120 W more are drawn than there are.
        cluster.set_fraction(0.2).await.unwrap();
        world.sleep(Duration::from_secs(60)).await;
        let before = cluster.status().await.unwrap().battery_joules;
        cluster.kill_manager();
        cluster.restart_manager();
        while cluster.status().await.is_err() {
            world.sleep(Duration::from_millis(100)).await;
        }
        let after = cluster.status().await.unwrap().battery_joules;
        assert!(before < full - 5_000.0 && (after - before).abs() < 1_500.0, "{full} J, {before} J, then {after} J");
    });
}

/// Goal: a node that was not woken is not dead, and its only copies are not given up. Method: as above, the log is lost
/// with the master; the power client is gone for longer than the dead time, from before the master is back until after
/// it.
#[test]
fn nodes_without_a_waker_are_waited_for() {
    for (seed, gone) in [(20, 4), (21, 8), (22, 30)] {
        World::run(seed, WorldOptions::default(), |world| async move {
            let cluster = PowerCluster::start(&world, 9, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
            write_and_die(&world, &cluster).await;
            cluster.kill_keeper();
            cluster.restart_master_after(|master| master.wipe_disk(Path::new(LOG_DIR))).await;
            world.sleep(Duration::from_secs(gone)).await;
            let status = cluster.cluster_status().await.unwrap();
            let is_missed = |node: &&pb::Node| node.late || node.state() == pb::NodeState::NodeDead;
            assert_eq!((status.under_replicated, status.nodes.iter().find(is_missed)), (0, None));
            cluster.restart_keeper();
            assert_everything_is_there(&cluster).await;
        });
    }
}

/// Goal: a master that starts while the only node that its plan has on is broken is not left alone with it. The power
/// manager wakes another node, which reports, and the master serves. Method: supply for one node; it fails, and the
/// master starts again. In some runs there is a dataset whose nodes are too many for the supply then.
#[test]
fn a_master_that_hears_no_node_takes_a_plan_that_wakes_others() {
    for seed in 70..76 {
        World::run(seed, WorldOptions::default(), |world| async move {
            let cluster = PowerCluster::start(&world, 5, PolicyKind::Activation, INTERVAL).await.unwrap();
            if seed % 2 == 0 {
                let client = cluster.connect("client").await.unwrap();
                let directory = make_chain(&client, 5).await.unwrap();
                for file in 0..FILES {
                    make(&client, directory, file).await.unwrap();
                }
                client.disconnect().await.unwrap();
            }
            cluster.set_fraction(0.3).await.unwrap();
            wait_for_plan(&world).await;
            let powered = cluster.powered().await;
            assert_eq!(powered.len(), 1, "seed {seed}: the budget is not that of one node");
            let only = NodeId::new(*powered.first().unwrap());
            cluster.fail(only).unwrap();
            cluster.restart_master().await;
            let since = world.now();
            while !cluster.cluster_status().await.is_ok_and(|status| status.serving) {
                world.sleep(Duration::from_millis(200)).await;
                let waits = cluster.cluster_status().await.map(|status| status.standing);
                assert!(world.now() - since < DEAD_TIME * 2, "seed {seed}: {waits:?}");
            }
            let newest = newest_plan(&cluster.describe().await.unwrap()).unwrap().unwrap();
            assert!(newest.nodes[&only].duty == Duty::Off && newest.version.raw() > 20_000, "seed {seed}: {newest}");
        });
    }
}

/// Goal: at low power, too, nodes that a network cut off for a moment are heard again when it is whole, and are not given up
/// for a silence that they were put to. Method: the master hears nothing of four of nine until it misses them, and a plan that
/// goes by that would be in force.
#[test]
fn nodes_that_are_cut_off_for_a_moment_are_heard_again_at_low_power() {
    for (seed, policy) in [(60, PolicyKind::BlinkCircular), (61, PolicyKind::BlinkStaggered), (62, PolicyKind::Tide)] {
        World::run(seed, WorldOptions::default(), |world| async move {
            let cluster = PowerCluster::start(&world, 9, policy, INTERVAL).await.unwrap();
            let client = cluster.connect("client").await.unwrap();
            let files = write_files(&client).await;
            cluster.set_fraction(0.3).await.unwrap();
            wait_for_plan(&world).await;
            let hosts = ["h3", "h4", "h5", "h6"];
            hosts.iter().for_each(|host| world.partition(host, "master"));
            let since = world.now();
            let nodes = async || cluster.cluster_status().await.unwrap().nodes;
            while nodes().await.iter().filter(|node| node.late).count() < hosts.len() {
                world.sleep(Duration::from_millis(100)).await;
                assert!(world.now() - since < DEAD_TIME, "{policy}: not missed");
            }
            // A plan that goes by it would be in force.
            world.sleep(INTERVAL + Duration::from_millis(500)).await;
            hosts.iter().for_each(|host| world.mend(host, "master"));
            let whole = world.now();
            while world.now() - whole < DEAD_TIME * 2 {
                world.sleep(Duration::from_millis(500)).await;
                let dead = |node: &&pb::Node| node.state() == pb::NodeState::NodeDead;
                assert_eq!(nodes().await.iter().find(dead), None, "{policy}: {:?} on", world.now() - whole);
            }
            assert_eq!(nodes().await.iter().find(|node| node.late), None, "{policy}");
            read_all(&world, &client, &files).await;
            client.disconnect().await.unwrap();
        });
    }
}
