//! Reading and writing: append, holes, direct I/O, mappings, caches.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::pin::pin;
use std::ptr::null_mut;
use std::task::{Context, Waker};
use std::thread;

use ebb_types::InodeId;
use rustix::fs::{Advice, FallocateFlags, SeekFrom as Seek, copy_file_range, fadvise, fallocate, seek};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};

use super::fixture::{Mounted, eventually};
use crate::vfs::Vfs;

fn open(mounted: &Mounted, name: &str) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(mounted.path(name)).unwrap()
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ at >> 9 ^ seed) as u8).collect()
}

#[test]
fn large_files_survive_any_request_size() {
    let mounted = Mounted::new();
    let data = pattern(9 << 20, 1);
    fs::write(mounted.path("big"), &data).unwrap();
    assert!(fs::read(mounted.path("big")).unwrap() == data);
    // Not from the page cache.
    mounted.drop_pages(mounted.inode("big"));
    assert!(fs::read(mounted.path("big")).unwrap() == data);
    let file = open(&mounted, "big");
    file.write_all_at(b"here", (5 << 20) - 2).unwrap();
    let mut part = [0; 8];
    file.read_exact_at(&mut part, (5 << 20) - 4).unwrap();
    assert_eq!(part[2..6], *b"here");
    file.set_len(10).unwrap();
    assert_eq!(fs::read(mounted.path("big")).unwrap(), data[..10]);
    file.sync_all().unwrap();
    file.sync_data().unwrap();
}

#[test]
fn appends_go_to_the_end_that_others_have_moved() {
    let mounted = Mounted::new();
    let mut log = OpenOptions::new().append(true).create(true).read(true).open(mounted.path("log")).unwrap();
    log.write_all(b"one ").unwrap();
    mounted.vfs.write_elsewhere(mounted.inode("log"), 4, b"elsewhere ");
    log.write_all(b"two").unwrap();
    assert_eq!(fs::read(mounted.path("log")).unwrap(), b"one elsewhere two");
    let mut whole = String::new();
    log.seek(SeekFrom::Start(0)).unwrap();
    log.read_to_string(&mut whole).unwrap();
    assert_eq!(whole, "one elsewhere two");
}

#[test]
fn appends_of_many_threads_do_not_overlap() {
    let mounted = Mounted::new();
    thread::scope(|scope| {
        for thread in 0..8_u8 {
            let path = mounted.path("log");
            scope.spawn(move || {
                let mut log = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for _ in 0..200 {
                    log.write_all(&[b'a' + thread; 64]).unwrap();
                }
            });
        }
    });
    let log = fs::read(mounted.path("log")).unwrap();
    assert_eq!(log.len(), 8 * 200 * 64);
    for record in log.chunks(64) {
        assert!(record.iter().all(|byte| *byte == record[0]), "a record was torn");
    }
    for thread in 0..8_u8 {
        assert_eq!(log.iter().filter(|byte| **byte == b'a' + thread).count(), 200 * 64);
    }
}

#[test]
fn opening_with_truncate_cuts() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), pattern(10_000, 3)).unwrap();
    assert_eq!(fs::read(mounted.path("f")).unwrap().len(), 10_000);
    fs::write(mounted.path("f"), b"short").unwrap();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"short");
    let error = OpenOptions::new().write(true).create_new(true).open(mounted.path("f")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
}

#[test]
fn an_open_file_outlives_its_name() {
    let mounted = Mounted::new();
    let file = open(&mounted, "gone");
    file.write_all_at(b"still here", 0).unwrap();
    fs::remove_file(mounted.path("gone")).unwrap();
    let mut bytes = [0; 10];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"still here");
    assert_eq!(file.metadata().unwrap().len(), 10);
}

#[test]
fn space_is_reserved_punched_and_searched() {
    const KIB: u64 = 1024;
    let mounted = Mounted::new();
    let file = open(&mounted, "f");
    fallocate(&file, FallocateFlags::empty(), 0, 64 * KIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 64 * KIB);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 64 * KIB, KIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 64 * KIB);

    file.write_all_at(&pattern(64 << 10, 5), 0).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 16 * KIB, 16 * KIB).unwrap();
    let mut bytes = vec![1; 64 << 10];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let (hole, expected) = (16 << 10..32 << 10, pattern(64 << 10, 5));
    assert!(bytes[hole.clone()].iter().all(|byte| *byte == 0));
    assert!(bytes[..hole.start] == expected[..hole.start] && bytes[hole.end..] == expected[hole.end..]);

    assert_eq!(seek(&file, Seek::Hole(0)), Ok(16 * KIB));
    assert_eq!(seek(&file, Seek::Data(16 * KIB)), Ok(32 * KIB));
    assert_eq!(seek(&file, Seek::Hole(32 * KIB)), Ok(64 * KIB));
    assert_eq!(seek(&file, Seek::Data(64 * KIB)), Err(Errno::NXIO));
    assert_eq!(seek(&file, Seek::End(0)), Ok(64 * KIB));

    fallocate(&file, FallocateFlags::ZERO_RANGE, 60 * KIB, 8 * KIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 68 * KIB);
    assert_eq!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
}

#[test]
fn ranges_are_copied_without_passing_through_the_program() {
    let mounted = Mounted::new();
    let data = pattern(300_000, 9);
    fs::write(mounted.path("source"), &data).unwrap();
    let (source, target) = (open(&mounted, "source"), open(&mounted, "target"));
    let (mut from, mut to) = (1000, 5);
    let copied = copy_file_range(&source, Some(&mut from), &target, Some(&mut to), 250_000).unwrap();
    assert_eq!((copied, from, to), (250_000, 251_000, 250_005));
    let found = fs::read(mounted.path("target")).unwrap();
    assert!(found[..5] == [0; 5] && found[5..] == data[1000..251_000]);
}

#[test]
fn direct_io_goes_around_the_page_cache() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), [1; 8192]).unwrap();
    let direct =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(mounted.path("f")).unwrap();
    let cached = open(&mounted, "f");
    let mut bytes = vec![0; 8192];
    cached.read_exact_at(&mut bytes, 0).unwrap();
    direct.write_all_at(&[2; 4096], 4096).unwrap();
    cached.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..4096] == [1; 4096] && bytes[4096..] == [2; 4096]);
    mounted.vfs.write_elsewhere(mounted.inode("f"), 0, &[3; 10]);
    direct.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes[..11], [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1]);
}

#[test]
fn a_read_sees_what_others_have_written() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"before").unwrap();
    let file = open(&mounted, "f");
    let read = || {
        let mut bytes = [0; 6];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert_eq!(&read(), b"before");
    mounted.vfs.write_elsewhere(mounted.inode("f"), 0, b"after!");
    assert_eq!(&read(), b"after!");
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"after!");
}

/// Reads while the kernel's request for attributes is under way and `meanwhile` happens.
fn read_during(mounted: &Mounted, file: &File, at: u64, meanwhile: impl FnOnce()) -> Vec<u8> {
    thread::scope(|scope| {
        let stall = mounted.block_on(mounted.vfs.stall.write());
        let reader = scope.spawn(|| {
            let mut bytes = vec![0; 6];
            let len = file.read_at(&mut bytes, at).unwrap();
            bytes[..len].to_vec()
        });
        eventually("the kernel asks for attributes", || mounted.waiting() == 1);
        meanwhile();
        drop(stall);
        reader.join().unwrap()
    })
}

#[test]
fn a_notification_that_overtakes_attributes_hides_nothing_from_a_read() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"before").unwrap();
    let (inode, file) = (mounted.inode("f"), File::open(mounted.path("f")).unwrap());
    let mut bytes = [0; 6];
    file.read_exact_at(&mut bytes, 0).unwrap();

    mounted.vfs.write_elsewhere(inode, 6, b"+ more");
    let notify = || mounted.caches.attributes_changed(InodeId::new(inode));
    assert_eq!(read_during(&mounted, &file, 6, notify), b"+ more", "the kernel has the size of before");

    mounted.vfs.write_elsewhere(inode, 0, b"after!");
    assert_eq!(read_during(&mounted, &file, 0, notify), b"after!", "the kernel has pages of before");
    let drop_pages = || mounted.drop_pages(inode);
    mounted.vfs.write_elsewhere(inode, 12, &[b'x'; 4096 - 11]);
    assert_eq!(read_during(&mounted, &file, 4096, drop_pages), b"x", "the last byte is the first of its page");
    mounted.vfs.cut_elsewhere(inode, 3);
    assert_eq!(read_during(&mounted, &file, 3, drop_pages), b"", "the file is shorter");
    assert_eq!(read_during(&mounted, &file, 0, drop_pages), b"aft");
}

#[test]
fn an_empty_file_stays_empty_and_its_end_is_where_it_is() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"").unwrap();
    let (inode, file) = (mounted.inode("f"), File::open(mounted.path("f")).unwrap());
    let notify = || mounted.caches.attributes_changed(InodeId::new(inode));
    assert_eq!(read_during(&mounted, &file, 0, notify), b"");
    assert_eq!(seek(&file, Seek::End(0)), Ok(0));
    mounted.vfs.write_elsewhere(inode, 0, b"x");
    assert_eq!(read_during(&mounted, &file, 0, notify), b"x");
    mounted.vfs.cut_elsewhere(inode, 0);
    mounted.drop_pages(inode);
    assert_eq!((file.metadata().unwrap().len(), seek(&file, Seek::End(0))), (0, Ok(0)));
    assert_eq!(read_during(&mounted, &file, 0, notify), b"");
}

#[test]
fn a_faster_answer_to_another_program_hides_nothing_from_a_read() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"before").unwrap();
    let (inode, file) = (mounted.inode("f"), File::open(mounted.path("f")).unwrap());
    let mut bytes = [0; 6];
    file.read_exact_at(&mut bytes, 0).unwrap();
    fs::hard_link(mounted.path("f"), mounted.path("g")).unwrap();
    mounted.vfs.write_elsewhere(inode, 6, b"+ more");
    let read = read_during(&mounted, &file, 12, || {
        // A lookup, whose answer has the attributes of before the change that comes now.
        OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(mounted.path("g")).unwrap();
        mounted.vfs.write_elsewhere(inode, 12, b"at end");
    });
    assert_eq!(read, b"at end");
}

#[test]
fn a_change_goes_on_while_a_read_has_pages_locked_and_no_new_read_sees_them() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"before").unwrap();
    let (inode, file) = (mounted.inode("f"), File::open(mounted.path("f")).unwrap());
    let read = || {
        let mut bytes = [0; 6];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    thread::scope(|scope| {
        let slow = mounted.block_on(mounted.vfs.slow_reads.write());
        let early = scope.spawn(read);
        eventually("a read has its bytes, and does not answer", || mounted.waiting() == 1);
        mounted.drop_pages(inode);
        mounted.vfs.write_elsewhere(inode, 0, b"after!");
        let late = scope.spawn(read);
        drop(slow);
        assert_eq!((&early.join().unwrap(), &late.join().unwrap()), (b"before", b"after!"));
    });
}

#[test]
fn an_answer_waits_for_pages_that_a_change_is_dropping() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), [b'a'; 8192]).unwrap();
    let (inode, file) = (mounted.inode("f"), File::open(mounted.path("f")).unwrap());
    fadvise(&file, 0, None, Advice::Random).unwrap();
    let read = |at| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        byte[0]
    };
    assert_eq!(read(4096), b'a');
    thread::scope(|scope| {
        let slow = mounted.block_on(mounted.vfs.slow_reads.write());
        let locks = scope.spawn(move || read(0));
        eventually("a read has the first page locked", || mounted.waiting() == 1);
        let stall = mounted.block_on(mounted.vfs.stall.write());
        let late = scope.spawn(move || read(4096));
        eventually("another read asks for attributes", || mounted.waiting() == 2);
        // The kernel waits for the first page, and has the second one still.
        mounted.drop_pages(inode);
        mounted.vfs.write_elsewhere(inode, 4096, b"b");
        drop(stall);
        let attr = mounted.block_on(mounted.vfs.get_attr(InodeId::new(inode))).unwrap();
        let mut answer = pin!(mounted.caches.adapt(&attr));
        assert!(answer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(slow);
        mounted.block_on(answer);
        assert_eq!((locks.join().unwrap(), late.join().unwrap()), (b'a', b'b'));
    });
}

/// A mapping of the file's first page.
struct Mapped(*mut u8);

impl Mapped {
    fn new(file: &File) -> Self {
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of ours.
        let at = unsafe { mmap(null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0) };
        let at = at.unwrap();
        // SAFETY: the range is the mapping. It brings no pages beyond its own into the cache.
        unsafe { madvise(at, 4096, mm::Advice::Random) }.unwrap();
        Self(at.cast())
    }

    fn read(&self, at: usize) -> u8 {
        assert!(at < 4096);
        // SAFETY: within the mapping; volatile, as the file changes behind it.
        unsafe { self.0.add(at).read_volatile() }
    }

    fn write(&self, at: usize, byte: u8) {
        assert!(at < 4096);
        // SAFETY: as above.
        unsafe { self.0.add(at).write_volatile(byte) }
    }

    fn sync(&self) {
        // SAFETY: the range is the mapping.
        unsafe { msync(self.0.cast(), 4096, MsyncFlags::SYNC) }.unwrap();
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        unsafe { munmap(self.0.cast(), 4096) }.unwrap();
    }
}

#[test]
fn mappings_read_write_and_hear_of_changes() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), [b'a'; 4096]).unwrap();
    let file = open(&mounted, "f");
    let mapped = Mapped::new(&file);
    assert_eq!(mapped.read(100), b'a');
    mapped.write(100, b'b');
    mapped.sync();
    let inode = mounted.inode("f");
    assert_eq!(mounted.vfs.state().node(inode).data.read(99, 3), b"aba");

    mounted.vfs.write_elsewhere(inode, 200, b"c");
    mounted.drop_pages(inode);
    assert_eq!((mapped.read(200), mapped.read(100)), (b'c', b'b'));
}

/// A mapping of a descriptor that goes around the cache puts pages into it, where other descriptors find them.
#[test]
fn a_read_sees_no_old_page_that_a_mapping_brought() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), pattern(2 << 20, 1)).unwrap();
    let (inode, cached) = (mounted.inode("f"), File::open(mounted.path("f")).unwrap());
    let around = open(&mounted, "f");
    // One page is read, and no more.
    fadvise(&cached, 0, None, Advice::Random).unwrap();
    let mapped = Mapped::new(&around);
    assert_eq!(mapped.read(0), pattern(1, 1)[0]);
    // Pages that the next answer makes the kernel drop, which then does not compare the others.
    let mut byte = [0];
    cached.read_exact_at(&mut byte, 1 << 20).unwrap();

    mounted.vfs.write_elsewhere(inode, 0, b"after!");
    let mut bytes = [0; 6];
    cached.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"after!");
    assert_eq!(mapped.read(0), b'a');
}

#[test]
fn an_invalidation_of_nothing_does_no_harm() {
    let mounted = Mounted::new();
    mounted.drop_pages(u64::MAX);
    mounted.drop_pages(1);
    assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), 0);
}

#[test]
fn a_file_without_a_name_gets_one_by_its_descriptor_or_vanishes() {
    let mounted = Mounted::new();
    let unnamed = |flags: i32| {
        let flags = libc::O_TMPFILE | flags;
        OpenOptions::new().read(true).write(true).mode(0o640).custom_flags(flags).open(mounted.root()).unwrap()
    };
    let link = |file: &File, name: &str| {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
        let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, path, rustix::fs::CWD, mounted.path(name), follow)
    };
    let nodes = mounted.vfs.state().nodes.len();
    let file = unnamed(0);
    file.write_all_at(&pattern(100_000, 3), 0).unwrap();
    let status = file.metadata().unwrap();
    assert_eq!((std::os::unix::fs::MetadataExt::nlink(&status), status.len()), (0, 100_000));
    assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), 0, "nobody sees it");
    link(&file, "named").unwrap();
    drop(file);
    assert_eq!(fs::read(mounted.path("named")).unwrap(), pattern(100_000, 3));
    assert_eq!(mounted.shell("stat -c '%a %h' named").trim(), "640 1");

    let private = unnamed(libc::O_EXCL);
    private.write_all_at(b"private", 0).unwrap();
    assert_eq!(link(&private, "private"), Err(Errno::NOENT));
    drop(private);
    eventually("only the one with a name is left", || mounted.vfs.state().nodes.len() == nodes + 1);
}
