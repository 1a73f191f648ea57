//! Files and directories.

use bytes::Bytes;
use ebb_types::ErrorKind;

use super::{Setup, on_both_worlds, pattern};
use crate::{Compression, File, OpenMode, transfer_buffer};

on_both_worlds!(
    written_bytes_are_read_back,
    many_buffers_are_one_write,
    large_writes_and_small_ones_mix,
    reads_end_at_the_end,
    a_range_that_will_be_read_is_read_as_any,
    open_modes_are_kept,
    lengths_cut_and_grow,
    holes_read_as_zero_and_take_no_space,
    reserved_space_changes_nothing_else,
    compression_changes_no_contents,
    names_are_listed_in_order,
    a_rename_replaces,
    a_removed_file_stays_readable,
    a_file_is_replaced_as_one,
    missing_things_are_not_found,
    a_directory_has_one_owner,
    a_whole_file_system_is_synced,
    space_is_reported,
    absurd_offsets_are_errors,
    files_are_read_and_written_side_by_side,
);

async fn file(setup: &Setup, name: &str) -> File {
    setup.server.disk().open(&setup.directory.join(name), OpenMode::CreateNew).await.unwrap()
}

async fn written_bytes_are_read_back(setup: Setup) {
    let file = file(&setup, "f").await;
    let data = pattern(3_000_000);
    file.write_at(0, vec![data.clone()]).await.unwrap();
    assert!(file.read_at(0, 3_000_000).await.unwrap() == data);
    file.write_at(1_000_001, vec![Bytes::from_static(b"small")]).await.unwrap();
    file.sync_data().await.unwrap();
    assert_eq!(
        file.read_at(1_000_000, 7).await.unwrap(),
        [&data[1_000_000..][..1], b"small", &data[1_000_006..][..1]].concat()
    );
    assert!(file.read_at(2_000_000, 999_999).await.unwrap() == data[2_000_000..2_999_999]);
    assert_eq!(file.path(), setup.directory.join("f"));
}

async fn many_buffers_are_one_write(setup: Setup) {
    let file = file(&setup, "f").await;
    let data = pattern(1_500_000);
    // More than one pwritev takes, of odd sizes, some empty.
    let mut buffers = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let next = (at + buffers.len() % 1999).min(data.len());
        buffers.push(data.slice(at..next));
        at = next;
    }
    assert!(buffers.len() > 1024);
    file.write_at(10, buffers).await.unwrap();
    file.write_at(5_000_000, vec![]).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 1_500_010);
    assert!(file.read_at(10, 1_500_000).await.unwrap() == data);
}

/// Large, aligned writes may go around the page cache. No caller may notice that.
async fn large_writes_and_small_ones_mix(setup: Setup) {
    let file = file(&setup, "f").await;
    let mut expected = vec![0; 4 << 20];
    for (turn, (offset, len)) in
        [(0, 1 << 20), (5000, 300), (1 << 20, 2 << 20), ((1 << 20) - 7, 20), (1 << 19, 1 << 20)].into_iter().enumerate()
    {
        let mut data = transfer_buffer(len);
        data.resize(len, turn as u8 + 1);
        file.write_at(offset as u64, vec![data.freeze()]).await.unwrap();
        expected[offset..offset + len].fill(turn as u8 + 1);
        assert!(file.read_at(0, offset + len).await.unwrap() == expected[..offset + len]);
        if turn % 2 == 0 {
            file.sync_data().await.unwrap();
        }
    }
    assert_eq!(file.len().await.unwrap(), 3 << 20);
}

async fn reads_end_at_the_end(setup: Setup) {
    let file = file(&setup, "f").await;
    assert!(file.read_at(0, 100).await.unwrap().is_empty());
    file.write_at(0, vec![pattern(100)]).await.unwrap();
    assert_eq!(file.read_at(60, 1000).await.unwrap(), pattern(100)[60..]);
    assert!(file.read_at(100, 1).await.unwrap().is_empty());
    assert!(file.read_at(1 << 40, 1).await.unwrap().is_empty());
    assert!(file.read_at(5, 0).await.unwrap().is_empty());
}

async fn a_range_that_will_be_read_is_read_as_any(setup: Setup) {
    let file = file(&setup, "f").await;
    let data = pattern(3_000_000);
    file.write_at(0, vec![data.clone()]).await.unwrap();
    file.sync_data().await.unwrap();
    for (offset, len) in [(0, 3_000_000), (2_999_000, 5_000), (1 << 40, 1), (7, 0), (u64::MAX, 2)] {
        file.will_read(offset, len).await;
    }
    // What is written later is read all the same.
    file.write_at(1_000_000, vec![Bytes::from_static(b"later")]).await.unwrap();
    for at in (0..3_000_000).step_by(500_000) {
        let read = file.read_at(at, 500_000).await.unwrap();
        if at == 1_000_000 {
            assert!(read[..5] == *b"later" && read[5..] == data[1_000_005..1_500_000]);
        } else {
            assert!(read == data[at as usize..][..500_000]);
        }
    }
    assert_eq!(file.read_at(2_999_000, 5_000).await.unwrap().len(), 1_000);
}

async fn open_modes_are_kept(setup: Setup) {
    let disk = setup.server.disk();
    let path = setup.directory.join("f");
    assert_eq!(disk.open(&path, OpenMode::Existing).await.unwrap_err().kind(), ErrorKind::NotFound);
    let first = disk.open(&path, OpenMode::CreateNew).await.unwrap();
    first.write_at(0, vec![Bytes::from_static(b"here")]).await.unwrap();
    assert_eq!(disk.open(&path, OpenMode::CreateNew).await.unwrap_err().kind(), ErrorKind::Exists);
    for mode in [OpenMode::Existing, OpenMode::Create] {
        assert_eq!(disk.open(&path, mode).await.unwrap().read_at(0, 9).await.unwrap(), &b"here"[..]);
    }
    let read_only = disk.open(&path, OpenMode::ReadOnly).await.unwrap();
    assert_eq!(read_only.read_at(0, 9).await.unwrap(), &b"here"[..]);
    assert!(read_only.write_at(0, vec![Bytes::from_static(b"gone")]).await.is_err(), "it is open for reading");
    let missing = disk.open(&setup.directory.join("missing"), OpenMode::ReadOnly).await;
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    let below = path.join("below");
    assert!(disk.open(&below, OpenMode::Create).await.is_err(), "a file is no directory");
}

async fn lengths_cut_and_grow(setup: Setup) {
    let file = file(&setup, "f").await;
    file.write_at(0, vec![pattern(10_000)]).await.unwrap();
    file.set_len(5_000).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 5_000);
    file.set_len(9_000).await.unwrap();
    let data = file.read_at(0, 10_000).await.unwrap();
    assert_eq!(data.len(), 9_000);
    assert!(data[..5_000] == pattern(10_000)[..5_000]);
    assert!(data[5_000..].iter().all(|byte| *byte == 0));
}

async fn holes_read_as_zero_and_take_no_space(setup: Setup) {
    let file = file(&setup, "f").await;
    file.write_at(0, vec![pattern(1 << 20)]).await.unwrap();
    file.sync_data().await.unwrap();
    let full = file.allocated_bytes().await.unwrap();
    assert!(full >= 1 << 20, "{full}");
    file.punch_hole(0, 512 << 10).await.unwrap();
    file.punch_hole((768 << 10) + 10, 100).await.unwrap();
    file.punch_hole(5, 0).await.unwrap();
    let data = file.read_at(0, 1 << 20).await.unwrap();
    assert_eq!(data.len(), 1 << 20);
    assert!(data[..512 << 10].iter().all(|byte| *byte == 0));
    let rest = pattern(1 << 20);
    assert!(data[512 << 10..][..(256 << 10) + 10] == rest[512 << 10..][..(256 << 10) + 10]);
    assert!(data[(768 << 10) + 10..][..100].iter().all(|byte| *byte == 0));
    assert!(data[(768 << 10) + 110..] == rest[(768 << 10) + 110..]);
    let left = file.allocated_bytes().await.unwrap();
    assert!(left + (512 << 10) <= full, "{left} of {full} bytes are left");
    // A hole at the end of the file: a length without space.
    file.set_len(1 << 30).await.unwrap();
    assert!(file.allocated_bytes().await.unwrap() < 2 << 20);
}

async fn reserved_space_changes_nothing_else(setup: Setup) {
    let file = file(&setup, "f").await;
    file.write_at(0, vec![pattern(100)]).await.unwrap();
    file.allocate(0, 1 << 20).await.unwrap();
    file.allocate(7, 0).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 100);
    assert!(file.allocated_bytes().await.unwrap() >= 1 << 20);
    assert_eq!(file.read_at(0, 1000).await.unwrap(), pattern(100));
    file.set_len(200).await.unwrap();
    assert!(file.read_at(100, 100).await.unwrap().iter().all(|byte| *byte == 0));
}

/// Where the file system can, and where it refuses.
async fn compression_changes_no_contents(setup: Setup) {
    let file = file(&setup, "f").await;
    file.allocate(0, 4 << 20).await.unwrap();
    file.write_at(0, vec![pattern(1 << 20)]).await.unwrap();
    file.set_len(8 << 20).await.unwrap();
    let wanted = setup.server.disk().file_system(&setup.directory).await.unwrap().compression().await.unwrap();
    for _ in 0..2 {
        let done = file.compress(wanted.unwrap_or(Compression::Zstd)).await;
        assert_eq!(done.is_ok(), wanted.is_some(), "{done:?}");
        file.write_at(5, vec![Bytes::from_static(b"later")]).await.unwrap();
    }
    assert_eq!(file.len().await.unwrap(), 8 << 20);
    let data = file.read_at(0, 8 << 20).await.unwrap();
    let before = pattern(1 << 20);
    assert!(data[..5] == before[..5] && data[5..10] == *b"later" && data[10..1 << 20] == before[10..]);
    assert!(data[1 << 20..].iter().all(|byte| *byte == 0));
}

async fn names_are_listed_in_order(setup: Setup) {
    let disk = setup.server.disk();
    let deep = setup.directory.join("a/b/c");
    disk.create_dir_all(&deep).await.unwrap();
    disk.create_dir_all(&deep).await.unwrap();
    for name in ["zz", "10", "9", "mm"] {
        disk.open(&deep.join(name), OpenMode::Create).await.unwrap();
    }
    disk.sync_dir(&deep).await.unwrap();
    assert_eq!(disk.read_dir(&deep).await.unwrap(), ["10", "9", "mm", "zz"]);
    assert_eq!(disk.read_dir(&setup.directory).await.unwrap(), ["a"]);
    assert!(disk.exists(&deep).await.unwrap());
    assert!(disk.exists(&deep.join("zz")).await.unwrap());
    assert!(!disk.exists(&deep.join("z")).await.unwrap());
    assert!(!disk.exists(&deep.join("zz/below")).await.unwrap());
    assert!(disk.read_dir(&deep.join("zz")).await.is_err());
    assert!(disk.create_dir_all(&deep.join("zz/below")).await.is_err());
}

async fn a_rename_replaces(setup: Setup) {
    let disk = setup.server.disk();
    let (old, new) = (setup.directory.join("old"), setup.directory.join("new"));
    let replaced = file(&setup, "new").await;
    replaced.write_at(0, vec![Bytes::from_static(b"was")]).await.unwrap();
    file(&setup, "old").await.write_at(0, vec![Bytes::from_static(b"is")]).await.unwrap();
    disk.rename(&old, &new).await.unwrap();
    disk.sync_dir(&setup.directory).await.unwrap();
    assert_eq!(disk.read(&new).await.unwrap(), &b"is"[..]);
    assert!(!disk.exists(&old).await.unwrap());
    assert_eq!(replaced.read_at(0, 9).await.unwrap(), &b"was"[..]);
    assert_eq!(disk.rename(&old, &new).await.unwrap_err().kind(), ErrorKind::NotFound);
    disk.create_dir_all(&setup.directory.join("d")).await.unwrap();
    disk.rename(&new, &setup.directory.join("d/moved")).await.unwrap();
    assert_eq!(disk.read(&setup.directory.join("d/moved")).await.unwrap(), &b"is"[..]);
    assert!(disk.rename(&setup.directory.join("d/moved"), &setup.directory.join("nowhere/x")).await.is_err());
}

async fn a_removed_file_stays_readable(setup: Setup) {
    let disk = setup.server.disk();
    let path = setup.directory.join("f");
    let file = file(&setup, "f").await;
    file.write_at(0, vec![pattern(5000)]).await.unwrap();
    disk.remove_file(&path).await.unwrap();
    assert!(!disk.exists(&path).await.unwrap());
    assert_eq!(file.read_at(0, 5000).await.unwrap(), pattern(5000));
    let other = disk.open(&path, OpenMode::CreateNew).await.unwrap();
    assert_eq!(other.len().await.unwrap(), 0);
    disk.remove_file(&path).await.unwrap();
    assert_eq!(disk.remove_file(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
}

async fn a_file_is_replaced_as_one(setup: Setup) {
    let disk = setup.server.disk();
    let path = setup.directory.join("identity");
    for text in ["a longer first version", "second", ""] {
        disk.replace(&path, Bytes::from_static(text.as_bytes())).await.unwrap();
        assert_eq!(disk.read(&path).await.unwrap(), text.as_bytes());
    }
    assert_eq!(disk.read_dir(&setup.directory).await.unwrap(), ["identity"]);
}

async fn missing_things_are_not_found(setup: Setup) {
    let disk = setup.server.disk();
    let missing = setup.directory.join("missing");
    assert_eq!(disk.read(&missing).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.read_dir(&missing).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.sync_dir(&missing).await.unwrap_err().kind(), ErrorKind::NotFound);
    let error = disk.open(&missing.join("f"), OpenMode::Create).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.detail().contains("missing"), "{error}");
}

async fn a_directory_has_one_owner(setup: Setup) {
    let disk = setup.server.disk();
    let lock = disk.lock_dir(&setup.directory).await.unwrap();
    let error = disk.lock_dir(&setup.directory).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.detail().contains(&setup.directory.display().to_string()), "{error}");
    drop(lock);
    let _lock = disk.lock_dir(&setup.directory).await.unwrap();
    assert!(disk.lock_dir(&setup.directory.join("missing")).await.is_err());
}

async fn space_is_reported(setup: Setup) {
    let space = setup.server.disk().space(&setup.directory).await.unwrap();
    assert!(space.capacity_bytes > 1 << 20 && space.free_bytes <= space.capacity_bytes, "{space:?}");
    let beside = setup.directory.join("beside");
    setup.server.disk().create_dir_all(&beside).await.unwrap();
    let other = setup.server.disk().space(&beside).await.unwrap();
    assert!(space.device != 0 && other.device == space.device, "two directories of one file system: {other:?}");
}

async fn absurd_offsets_are_errors(setup: Setup) {
    let file = file(&setup, "f").await;
    assert!(file.write_at(u64::MAX - 1, vec![Bytes::from_static(b"xyz")]).await.is_err());
    assert!(file.write_at(i64::MAX as u64, vec![Bytes::from_static(b"xyz")]).await.is_err());
    assert!(file.read_at(u64::MAX - 1, 3).await.is_err());
    assert!(file.set_len(u64::MAX).await.is_err());
    assert!(file.punch_hole(u64::MAX - 1, 3).await.is_err());
    assert!(file.allocate(u64::MAX - 1, 3).await.is_err());
    assert_eq!(file.len().await.unwrap(), 0);
}

async fn files_are_read_and_written_side_by_side(setup: Setup) {
    let file = file(&setup, "f").await;
    let mut tasks = Vec::new();
    for number in 0..16_u64 {
        let file = file.clone();
        tasks.push(setup.server.spawn("write", async move {
            let data = Bytes::from(vec![number as u8; 100_000]);
            file.write_at(number * 100_000, vec![data.clone()]).await.unwrap();
            assert!(file.read_at(number * 100_000, 100_000).await.unwrap() == data);
            file.sync_data().await.unwrap();
        }));
    }
    for task in tasks {
        task.join().await.unwrap();
    }
    assert_eq!(file.len().await.unwrap(), 1_600_000);
}

async fn a_whole_file_system_is_synced(setup: Setup) {
    let disk = setup.server.disk();
    let all = disk.file_system(&setup.directory).await.unwrap();
    let [one, two] = [file(&setup, "one").await, file(&setup, "two").await];
    one.write_at(0, vec![pattern(5)]).await.unwrap();
    two.write_at(0, vec![pattern(7)]).await.unwrap();
    all.sync_all().await.unwrap();
    assert_eq!((one.read_at(0, 9).await.unwrap(), two.read_at(0, 9).await.unwrap()), (pattern(5), pattern(7)));
    let missing = disk.file_system(&setup.directory.join("missing")).await;
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
}
