//! Processes die at bad moments.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::harness::{Cluster, Signal, pattern, signal, wait_for, write_synced};

#[test]
fn a_block_server_killed_while_writing_is_not_noticed_by_the_writer() {
    let cluster = Cluster::up(5);
    let mount = cluster.mount("mnt");
    let mut file = std::fs::File::create(mount.join("f")).unwrap();
    let data = pattern(96 << 20, 1);
    for (index, part) in data.chunks(1 << 20).enumerate() {
        file.write_all(part).unwrap();
        if index == 40 {
            let victim = cluster.json(&["fs", "locations", "/f"])["metablocks"][0]["replicas"][0]["host"].clone();
            cluster.kill(cluster.pid("block", victim.as_str().unwrap()));
        }
    }
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(std::fs::read(mount.join("f")).unwrap(), data);
    cluster.healthy();
    let locations = cluster.json(&["fs", "locations", "/f"]);
    for metablock in locations["metablocks"].as_array().unwrap() {
        assert_eq!(metablock["replicas"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn bytes_acknowledged_by_fsync_survive_the_death_of_the_mount() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mnt");
    let mut file = std::fs::File::create(mount.join("f")).unwrap();
    file.write_all(&pattern(3 << 20, 1)).unwrap();
    file.sync_all().unwrap();
    file.write_all(b"synced too").unwrap();
    file.sync_all().unwrap();
    cluster.kill(cluster.pid("mount", ""));
    drop(file);
    // A dead mount is cleared away by the next one at the same place.
    cluster.ok(&["mount", mount.to_str().unwrap()]);
    let bytes = std::fs::read(mount.join("f")).unwrap();
    assert_eq!(bytes.len(), (3 << 20) + 10);
    assert_eq!(bytes[..3 << 20], pattern(3 << 20, 1));
    assert_eq!(&bytes[3 << 20..], b"synced too");
    cluster.healthy();
}

#[test]
fn a_restarted_master_goes_on_where_it_was() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mnt");
    let before = mount.join("before");
    std::fs::write(&before, b"before").unwrap();
    let mut open = std::fs::File::create(mount.join("open")).unwrap();
    open.write_all(b"first ").unwrap();
    cluster.kill(cluster.pid("master", ""));
    let restart = std::thread::spawn({
        let (dir, ebb) = (cluster.dir(), env!("CARGO_BIN_EXE_ebb"));
        move || {
            let log = std::fs::File::create(dir.join("log/master-2.log")).unwrap();
            std::process::Command::new(ebb)
                .args(["master", "--dir", dir.to_str().unwrap()])
                .stderr(log)
                .spawn()
                .unwrap()
        }
    });
    // Operations begun while the master is away wait for it.
    std::fs::write(mount.join("after"), b"after").unwrap();
    open.write_all(b"second").unwrap();
    open.sync_all().unwrap();
    assert_eq!(std::fs::read(&before).unwrap(), b"before");
    assert_eq!(std::fs::read(mount.join("after")).unwrap(), b"after");
    assert_eq!(std::fs::read(mount.join("open")).unwrap(), b"first second");
    cluster.healthy();
    let mut child = restart.join().unwrap();
    cluster.ok(&["cluster", "down"]);
    child.wait().unwrap();
}

#[test]
fn a_frozen_block_server_holds_no_client_up_for_long() {
    let cluster = Cluster::up(4);
    let mount = cluster.mount("mnt");
    std::fs::write(mount.join("f"), pattern(4 << 20, 1)).unwrap();
    let frozen = cluster.pid("block", "h2");
    signal(frozen, Signal::STOP);
    let write = std::fs::write(mount.join("g"), pattern(8 << 20, 2));
    let synced = std::fs::File::open(mount.join("g")).and_then(|file| file.sync_all());
    let read = std::fs::read(mount.join("f"));
    signal(frozen, Signal::CONT);
    write.unwrap();
    synced.unwrap();
    assert_eq!(read.unwrap(), pattern(4 << 20, 1));
    assert_eq!(std::fs::read(mount.join("g")).unwrap(), pattern(8 << 20, 2));
    cluster.healthy();
}

#[test]
fn a_lost_node_is_replaced_and_a_returning_one_gives_up_its_excess() {
    let cluster = Cluster::up(4);
    let mount = cluster.mount("mnt");
    for index in 0..20 {
        write_synced(&mount.join(format!("f{index}")), &pattern(100_000, index)).unwrap();
    }
    cluster.kill(cluster.pid("block", "h3"));
    wait_for("notice of the death", Duration::from_secs(20), || cluster.json(&["node", "list"])[2]["state"] == "dead");
    for index in 0..20 {
        let path = format!("/f{index}");
        wait_for("a set without the dead node", Duration::from_secs(60), || {
            let locations = cluster.json(&["fs", "locations", &path]);
            let replicas = locations["metablocks"][0]["replicas"].as_array().cloned().unwrap_or_default();
            replicas.len() == 3 && replicas.iter().all(|replica| replica["host"] != "h3")
        });
    }
    cluster.healthy();
    cluster.ok(&["node", "start", "h3"]);
    let fsck = cluster.healthy();
    assert_eq!(fsck["over_replicated"], 0);
    for index in 0..20 {
        assert_eq!(std::fs::read(mount.join(format!("f{index}"))).unwrap(), pattern(100_000, index));
    }
}

#[test]
fn a_drained_node_holds_nothing() {
    let cluster = Cluster::up(4);
    let mount = cluster.mount("mnt");
    for index in 0..10 {
        std::fs::write(mount.join(format!("f{index}")), pattern(300_000, index)).unwrap();
    }
    let printed = cluster.ok(&["node", "drain", "n2"]);
    assert!(printed.contains("n2 holds no data any more"), "{printed}");
    // The list has what the node's last heartbeat said.
    wait_for("a heartbeat without replicas", Duration::from_secs(20), || {
        let nodes = cluster.json(&["node", "list"]);
        nodes[1]["state"] == "draining" && nodes[1]["volumes"][0]["replicas"] == 0
    });
    for index in 0..10 {
        let locations = cluster.json(&["fs", "locations", &format!("/f{index}")]);
        let replicas = locations["metablocks"][0]["replicas"].as_array().unwrap();
        assert_eq!(replicas.len(), 3);
        assert!(replicas.iter().all(|replica| replica["node"] != "n2"));
    }
    // A node that drains is there, too.
    cluster.kill(cluster.pid("block", "h3"));
    cluster.ok(&["cluster", "up", "--nodes", "4"]);
    cluster.healthy();
    // An empty node stops in order, and comes back into use.
    cluster.ok(&["node", "stop", "n2"]);
    assert_eq!(cluster.ebb(&["node", "stop", "n2"]).code, 1, "it does not run any more");
    cluster.healthy();
    cluster.ok(&["node", "start", "n2"]);
    cluster.ok(&["node", "undrain", "n2"]);
    assert_eq!(cluster.json(&["node", "list"])[1]["state"], "live");
}

#[test]
fn the_reason_why_a_node_is_not_empty_yet_is_given() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mnt");
    write_synced(&mount.join("f"), &pattern(300_000, 1)).unwrap();
    cluster.ok(&["umount", mount.to_str().unwrap()]);
    let printed = cluster.ok(&["fs", "locations", "--why", "/f"]);
    assert!(printed.contains(" settled: as it should be"), "{printed}");
    // There is no fourth node for its copies.
    cluster.ok(&["node", "drain", "n2", "--no-wait"]);
    wait_for("the reason", Duration::from_secs(20), || {
        let located = cluster.json(&["fs", "locations", "--why", "/f"]);
        let copies = &located["metablocks"][0]["copies"];
        let why = copies["why"].as_str().unwrap();
        copies["state"] == "waiting" && why.contains("being drained") && why.contains("no place for a copy")
    });
    // A drain that waits says so on time.
    let waits = cluster.ebb(&["node", "drain", "n2", "--timeout", "4s"]);
    let sentence = "waiting for the copies of n2: 1 metablock: a member's node is being drained; ";
    assert!(waits.code == 1 && waits.err.contains(sentence), "{}", waits.err);
    let printed = cluster.ok(&["node", "list", "--why"]);
    assert!(printed.contains("n2: 1 set waiting: a member's node is being drained; "), "{printed}");
    let nodes = cluster.json(&["node", "list", "--why"]);
    assert_eq!(nodes[1]["copies"][0]["sets"], 1, "{nodes}");
    assert!(cluster.json(&["node", "list"])[1].get("copies").is_none());
}

#[test]
fn a_flipped_byte_is_never_read_and_gets_repaired() {
    // As few nodes as copies: damaged copies are made good where they are.
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mnt");
    // A small file and one of whole chunks; damaged at once, before the master knows that anything was written.
    for (name, len) in [("small", 10_000), ("large", 3_000_000)] {
        let data = pattern(len, 7);
        write_synced(&mount.join(name), &data).unwrap();
        let replica = cluster.json(&["fs", "locations", &format!("/{name}")])["metablocks"][0]["replicas"][0].clone();
        let at = replica["file_offset"].as_u64().unwrap() + len as u64 / 2;
        let stored =
            std::fs::OpenOptions::new().read(true).write(true).open(replica["file"].as_str().unwrap()).unwrap();
        let mut byte = [0];
        stored.read_exact_at(&mut byte, at).unwrap();
        assert_eq!(byte[0], data[len / 2], "{name}: locations say where the bytes are");
        stored.write_all_at(&[!byte[0]], at).unwrap();
        assert_eq!(cluster.json(&["fsck", "--scrub"])["corrupt"], 1, "{name}");
        for host in ["h1", "h2", "h3", "h4"] {
            let other = cluster.mount_as(&format!("{name}-{host}"), host);
            assert_eq!(std::fs::read(other.join(name)).unwrap(), data, "{name} read from {host}");
        }
        cluster.healthy();
        assert_eq!(cluster.json(&["fsck", "--scrub"])["corrupt"], 0, "{name}");
    }
}
