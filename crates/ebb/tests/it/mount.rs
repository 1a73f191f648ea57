//! The mount as programs use it.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use crate::harness::{Cluster, pattern, shell};

#[test]
fn two_mounts_see_one_truth() {
    let cluster = Cluster::up(3);
    let (one, two) = (cluster.mount("one"), cluster.mount_as("two", "h1"));
    let path = one.join("shared");
    let mut writer = std::fs::File::create(&path).unwrap();
    let mut reader = std::fs::File::open(two.join("shared")).unwrap();
    for round in 0..50_u64 {
        // A read that starts after a write returned sees it, with no fsync and no close between them.
        writer.write_all(&round.to_le_bytes()).unwrap();
        assert_eq!(std::fs::metadata(two.join("shared")).unwrap().len(), (round + 1) * 8);
        let mut bytes = [0; 8];
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), round);
    }
    let back = std::fs::OpenOptions::new().write(true).open(two.join("shared")).unwrap();
    for round in 0..20_u64 {
        back.write_all_at(&(round + 1000).to_le_bytes(), 0).unwrap();
        let mut bytes = [0; 8];
        std::fs::File::open(&path).unwrap().read_exact(&mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), round + 1000);
    }
    std::fs::rename(one.join("shared"), one.join("moved")).unwrap();
    assert!(!two.join("shared").exists());
    assert!(two.join("moved").exists());
}

#[test]
fn appends_from_two_mounts_lose_nothing() {
    let cluster = Cluster::up(3);
    let mounts = [cluster.mount("one"), cluster.mount("two")];
    std::fs::File::create(mounts[0].join("log")).unwrap();
    std::thread::scope(|scope| {
        for (index, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                let mut file = std::fs::OpenOptions::new().append(true).open(mount.join("log")).unwrap();
                for round in 0..100 {
                    file.write_all(format!("{index} {round:04}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    let text = std::fs::read_to_string(mounts[0].join("log")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 200);
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 200, "each line once");
}

#[test]
fn locks_hold_across_mounts() {
    let cluster = Cluster::up(3);
    let (one, two) = (cluster.mount("one"), cluster.mount("two"));
    std::fs::File::create(one.join("lock")).unwrap();
    let held = shell(&format!(
        "exec 9<>{0}/lock && flock -x 9 && (flock -n -x {1}/lock true && echo free || echo held)",
        one.display(),
        two.display()
    ));
    assert_eq!(held, "held");
    assert_eq!(shell(&format!("flock -n -x {}/lock echo free", two.display())), "free");
}

#[test]
fn an_unlinked_open_file_lives_until_it_is_closed() {
    let cluster = Cluster::up(3);
    let (one, two) = (cluster.mount("one"), cluster.mount("two"));
    let mut file =
        std::fs::File::options().create(true).read(true).write(true).truncate(true).open(one.join("f")).unwrap();
    file.write_all(&pattern(2 << 20, 3)).unwrap();
    std::fs::remove_file(two.join("f")).unwrap();
    assert!(!one.join("f").exists());
    file.write_all(b"more").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), (2 << 20) + 4);
    assert_eq!(bytes[..2 << 20], pattern(2 << 20, 3));
    drop(file);
    cluster.healthy();
}

#[test]
fn holes_mmap_and_truncate_behave_as_on_a_local_disk() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mnt");
    let script = r#"
import mmap, os, sys
p = sys.argv[1] + "/f"
fd = os.open(p, os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"a" * 100, 3 << 20)
assert os.fstat(fd).st_size == (3 << 20) + 100
data = os.lseek(fd, 0, os.SEEK_DATA)
assert 0 < data <= 3 << 20, data
assert os.lseek(fd, 0, os.SEEK_HOLE) == 0
assert os.lseek(fd, 3 << 20, os.SEEK_HOLE) == (3 << 20) + 100
assert os.pread(fd, 10, 1 << 20) == b"\0" * 10
os.ftruncate(fd, (3 << 20) + 50)
os.ftruncate(fd, (3 << 20) + 200)
assert os.pread(fd, 200, 3 << 20) == b"a" * 50 + b"\0" * 150
m = mmap.mmap(fd, 0)
m[5:10] = b"hello"
m.flush()
assert os.pread(fd, 5, 5) == b"hello"
m.close()
os.posix_fallocate(fd, 8 << 20, 1 << 20)
assert os.fstat(fd).st_size == 9 << 20
assert os.fstat(fd).st_blocks * 512 >= 1 << 20
os.fsync(fd)
os.close(fd)
with open(p, "rb") as f:
    b = f.read()
assert len(b) == 9 << 20 and b[5:10] == b"hello" and b[(3 << 20):(3 << 20) + 50] == b"a" * 50
assert os.statvfs(sys.argv[1]).f_blocks > 0
print("good")
"#;
    let file = cluster.path("script.py");
    std::fs::write(&file, script).unwrap();
    assert_eq!(shell(&format!("python3 {} {}", file.display(), mount.display())), "good");
    shell(&format!(
        "cd {0} && fallocate -p -o 3145728 -l 4096 f && test \"$(dd if=f bs=1 skip=3145728 count=4 2>/dev/null | od -An -tx1 | tr -d ' ')\" = 00000000",
        mount.display()
    ));
}

/// Goal: a mapping stays whole while its file gets another name, mode or time. Method: the bytes are not committed yet,
/// and the mapping is read only afterwards, so that each page is asked for; from another mount, too.
#[test]
fn a_mapping_outlives_a_link_and_a_change_of_mode() {
    let cluster = Cluster::up(3);
    let (one, two) = (cluster.mount("one"), cluster.mount_as("two", "h1"));
    let script = r#"
import mmap, os, sys
one, two = sys.argv[1:]
for index, change in enumerate([
    lambda name: os.link(name(one), name(one) + ".l"),
    lambda name: os.chmod(name(one), 0o600),
    lambda name: os.utime(name(one)),
    lambda name: os.link(name(two), name(two) + ".l"),
    lambda name: os.chmod(name(two), 0o600),
]):
    name = lambda mount: f"{mount}/f{index}"
    writer = os.open(name(one), os.O_RDWR | os.O_CREAT)
    for part in range(40):
        os.pwrite(writer, bytes([65 + part]) * 8192, part * 8192)
    os.close(writer)
    # By this mount, and by the one that did not write.
    for mount in (one, two):
        fd = os.open(name(mount), os.O_RDONLY)
        mapping = mmap.mmap(fd, 40 * 8192, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        os.close(fd)
        if mount == one:
            change(name)
        # Nobody asks for the size in between.
        for part in range(40):
            assert mapping[part * 8192 : (part + 1) * 8192] == bytes([65 + part]) * 8192
        assert os.stat(name(mount)).st_size == 40 * 8192
print("good")
"#;
    let file = cluster.path("script.py");
    std::fs::write(&file, script).unwrap();
    assert_eq!(shell(&format!("python3 {} {} {}", file.display(), one.display(), two.display())), "good");
}

#[test]
fn locations_are_shown_through_the_mount_and_the_command_line() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount_as("mnt", "h2");
    std::fs::write(mount.join("f"), pattern(1 << 20, 4)).unwrap();
    std::fs::File::open(mount.join("f")).unwrap().sync_all().unwrap();
    let hosts = shell(&format!("getfattr --only-values -n user.ebb.locations {}/f", mount.display()));
    assert!(["h1", "h2", "h3"].iter().all(|host| hosts.contains(host)), "{hosts}");
    let locations = cluster.json(&["fs", "locations", "/f"]);
    let replicas = locations["metablocks"][0]["replicas"].as_array().unwrap();
    assert_eq!(replicas[0]["host"], "h2", "the first copy is on the writer's own host");
    for replica in replicas {
        let file = std::fs::read(replica["file"].as_str().unwrap()).unwrap();
        let at = usize::try_from(replica["file_offset"].as_u64().unwrap()).unwrap();
        assert_eq!(file[at..at + (1 << 20)], pattern(1 << 20, 4));
    }
    assert_eq!(
        cluster.ok(&["fs", "checksum", "/f"]).trim(),
        shell(&format!("sha256sum {}/f | cut -d' ' -f1", mount.display()))
    );
}
