//! A spindle that fails, and what is there once it is restored.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebb_types::{Error, ErrorKind};
use parking_lot::Mutex;

use super::{file, filled, split, volume};
use crate::virt::tests::with_seeds;
use crate::virt::{Restored, World, WorldOptions};
use crate::{File, OpenMode, Runtime};

/// Whether something went well.
type Outcome = std::result::Result<(), ErrorKind>;

/// Everything that a process can do with a file and the directory around it, and whether it went well.
async fn try_everything(runtime: &Runtime, file: &File) -> Vec<Outcome> {
    let (disk, path) = (runtime.disk(), file.path());
    let directory = path.parent().unwrap();
    let new = directory.join("new");
    let kind = |error: Error| error.kind();
    file.will_read(0, 4096).await;
    vec![
        file.read_at(0, 10).await.map(drop).map_err(kind),
        file.write_at(0, filled(1, 4096)).await.map_err(kind),
        file.sync_data().await.map_err(kind),
        file.allocate(0, 4096).await.map_err(kind),
        file.len().await.map(drop).map_err(kind),
        file.allocated_bytes().await.map(drop).map_err(kind),
        disk.open(path, OpenMode::ReadOnly).await.map(drop).map_err(kind),
        disk.open(&new, OpenMode::Create).await.map(drop).map_err(kind),
        disk.rename(&new, &new).await.map_err(kind),
        disk.remove_file(&new).await.map_err(kind),
        disk.exists(path).await.map(drop).map_err(kind),
        disk.read_dir(directory).await.map(drop).map_err(kind),
        disk.create_dir_all(&directory.join("deep")).await.map_err(kind),
        disk.sync_dir(directory).await.map_err(kind),
        disk.space(directory).await.map(drop).map_err(kind),
        disk.lock_dir(directory).await.map(drop).map_err(kind),
        async { disk.file_system(directory).await?.sync_all().await }.await.map_err(kind),
    ]
}

#[test]
fn a_spindle_fails_alone_and_everything_on_it_fails() {
    with_seeds(0..4, |world| async move {
        let process = world.process("h1");
        split(&process, 3);
        let runtime = process.runtime();
        let mut files = vec![file(&runtime, Path::new("/block/identity"), 5000).await];
        for number in 1..=3 {
            files.push(file(&runtime, &volume(number).join("f"), 5000).await);
        }
        let all = runtime.disk().file_system(&volume(2)).await.unwrap();
        process.spindle(&volume(2)).fail();
        process.spindle(&volume(2)).fail();
        assert_eq!(world.faults()["spindle_failed"], 1);
        for (number, file) in files.iter().enumerate() {
            let outcomes = try_everything(&runtime, file).await;
            let expected = if number == 2 { Err(ErrorKind::Io) } else { Ok(()) };
            assert!(outcomes.iter().all(|outcome| *outcome == expected), "{number}: {outcomes:?}");
        }
        assert_eq!(all.sync_all().await.unwrap_err().kind(), ErrorKind::Io);
        // A start of the process mends no device, and neither does power that comes back.
        process.kill();
        assert!(process.restart().disk().read(&volume(2).join("f")).await.is_err());
        process.crash();
        let runtime = process.restart();
        assert_eq!(runtime.disk().read(&volume(2).join("f")).await.unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(runtime.disk().read(&volume(3).join("f")).await.unwrap().len(), 5000);
    });
}

/// What waits in memory for another spindle is there after the failure, and can be synced.
#[test]
fn a_spindle_that_fails_takes_no_memory_of_another_one() {
    with_seeds(0..20, |world| async move {
        let process = world.process("h1");
        split(&process, 2);
        let runtime = process.runtime();
        let (disk, path) = (runtime.disk(), volume(1).join("f"));
        let written = disk.open(&path, OpenMode::Create).await.unwrap();
        written.write_at(0, filled(2, 8192)).await.unwrap();
        disk.open(&volume(2).join("f"), OpenMode::Create).await.unwrap();
        let lock = disk.lock_dir(&volume(1)).await.unwrap();
        process.spindle(&volume(2)).fail();
        assert_eq!(disk.lock_dir(&volume(1)).await.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(disk.read(&path).await.unwrap(), vec![2; 8192]);
        written.sync_data().await.unwrap();
        disk.sync_dir(&volume(1)).await.unwrap();
        drop(lock);
        process.crash();
        assert_eq!(process.restart().disk().read(&path).await.unwrap(), vec![2; 8192]);
    });
}

/// The first spindle fails, and with it the first volume and what is in none.
#[test]
fn the_first_spindle_takes_the_files_outside_of_all_volumes_with_it() {
    World::run(8, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        split(&process, 2);
        let runtime = process.runtime();
        let paths = ["/block/identity", "/block/volume-1/f", "/block/volume-2/f"].map(Path::new);
        for path in paths {
            file(&runtime, path, 100).await;
        }
        let first = process.spindle(Path::new("/block"));
        first.fail();
        for (path, reads) in paths.into_iter().zip([false, false, true]) {
            assert_eq!(runtime.disk().read(path).await.is_ok(), reads, "{path:?}");
        }
        first.restore(Restored::Empty);
        let disk = runtime.disk();
        assert_eq!(disk.read_dir(Path::new("/block")).await.unwrap(), ["volume-1", "volume-2"]);
        assert!(disk.read_dir(&volume(1)).await.unwrap().is_empty());
        assert_eq!(disk.read(paths[2]).await.unwrap().len(), 100);
    });
}

/// A spindle that is there again has what was synced, for whoever opens it anew. The old handle stays dead: the bytes that
/// it was given and that were lost would otherwise count as written.
#[test]
fn a_restored_spindle_is_as_it_was_and_old_handles_stay_dead() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    with_seeds(0..40, |world| {
        let seen = seen.clone();
        async move {
            let process = world.process("h1");
            split(&process, 2);
            let (runtime, path) = (process.runtime(), volume(2).join("f"));
            let disk = runtime.disk();
            let synced = file(&runtime, &path, 8192).await;
            let lock = disk.lock_dir(&volume(2)).await.unwrap();
            let unnamed = disk.open(&volume(2).join("g"), OpenMode::Create).await.unwrap();
            unnamed.write_at(0, filled(3, 1 << 20)).await.unwrap();
            disk.remove_file(unnamed.path()).await.unwrap();
            disk.sync_dir(&volume(2)).await.unwrap();
            synced.write_at(4096, filled(2, 8192)).await.unwrap();
            process.spindle(&volume(2)).fail();
            world.sleep(Duration::from_secs(1)).await;
            process.spindle(&volume(2)).restore(Restored::AsItWas);
            let dead = [
                synced.sync_data().await.map_err(|error| error.kind()),
                synced.write_at(0, filled(4, 10)).await.map_err(|error| error.kind()),
                unnamed.read_at(0, 10).await.map(drop).map_err(|error| error.kind()),
                unnamed.len().await.map(drop).map_err(|error| error.kind()),
            ];
            assert_eq!(dead, [Err(ErrorKind::Io); 4]);
            let data = disk.read(&path).await.unwrap();
            assert!(data[..4096].iter().all(|byte| *byte == 1));
            assert!(data[4096..8192].iter().all(|byte| *byte == 1 || *byte == 2));
            seen.lock().insert((data[4096], data.len()));
            // What only dead handles keep takes no space of the spindle, and the lock went with the mount.
            let space = disk.space(&volume(2)).await.unwrap();
            assert!(space.capacity_bytes - space.free_bytes < 1 << 20, "{space:?}");
            let _again = disk.lock_dir(&volume(2)).await.unwrap();
            drop(lock);
            assert_eq!(disk.lock_dir(&volume(2)).await.unwrap_err().kind(), ErrorKind::Busy);
            let file = disk.open(&path, OpenMode::Existing).await.unwrap();
            file.write_at(0, filled(5, 100)).await.unwrap();
            file.sync_data().await.unwrap();
            drop((synced, unnamed));
            process.crash();
            assert_eq!(process.restart().disk().read(&path).await.unwrap()[..100], [5; 100]);
        }
    });
    assert!(seen.lock().len() > 3, "lost, kept and torn: {:?}", seen.lock());
}

#[test]
fn a_spindle_is_replaced_by_an_empty_one() {
    with_seeds(0..4, |world| async move {
        let process = world.process("h1");
        split(&process, 2);
        let runtime = process.runtime();
        let disk = runtime.disk();
        let empty = disk.space(&volume(2)).await.unwrap();
        disk.create_dir_all(&volume(2).join("replicas/01")).await.unwrap();
        let path = volume(2).join("replicas/01/f");
        let old = file(&runtime, &path, 1 << 20).await;
        file(&runtime, &volume(1).join("f"), 100).await;
        process.spindle(&volume(2)).restore(Restored::Empty);
        assert!(disk.exists(&path).await.unwrap(), "a spindle that has not failed is not taken out");
        process.spindle(&volume(2)).fail();
        process.spindle(&volume(2)).restore(Restored::Empty);
        assert!(disk.read_dir(&volume(2)).await.unwrap().is_empty());
        assert_eq!(disk.space(&volume(2)).await.unwrap(), empty);
        assert_eq!(disk.read(&volume(1).join("f")).await.unwrap().len(), 100);
        let new = file(&runtime, &volume(2).join("f"), 10).await;
        assert_eq!(old.read_at(0, 10).await.unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(new.read_at(0, 100).await.unwrap().len(), 10);
        drop(old);
        process.crash();
        assert_eq!(process.restart().disk().read(new.path()).await.unwrap().len(), 10);
    });
}

/// Work that waits when its spindle fails ends with an error, also if the spindle is there again by then. On the other one
/// it goes on.
#[test]
fn work_under_way_fails_with_its_spindle() {
    with_seeds(0..10, |world| async move {
        let process = world.process("h1");
        split(&process, 2);
        let runtime = process.runtime();
        let mut tasks = Vec::new();
        for number in [1, 2] {
            let file = file(&runtime, &volume(number).join("f"), 4096).await;
            file.write_at(0, filled(2, 50 << 20)).await.unwrap();
            let disk = runtime.disk();
            disk.open(&volume(number).join("g"), OpenMode::Create).await.unwrap();
            let syncs_file = {
                let file = file.clone();
                runtime.spawn("sync", async move { file.sync_data().await })
            };
            world.sleep(Duration::from_millis(1)).await;
            let directory = volume(number);
            let syncs_names = runtime.spawn("sync names", async move { disk.sync_dir(&directory).await });
            let writes = runtime.spawn("write", async move { file.write_at(0, filled(3, 10)).await });
            tasks.push([syncs_file, syncs_names, writes]);
        }
        // Writes are about to reach the page cache; syncs wait for the device.
        world.sleep(Duration::from_micros(1)).await;
        let second = process.spindle(&volume(2));
        second.fail();
        second.restore(Restored::AsItWas);
        for (number, tasks) in [1, 2].into_iter().zip(tasks) {
            for task in tasks {
                let outcome = task.join().await.unwrap().map_err(|error| error.kind());
                assert_eq!(outcome, if number == 1 { Ok(()) } else { Err(ErrorKind::Io) });
            }
        }
    });
}

/// A disk that was not split is one spindle, and can fail as a whole.
#[test]
fn a_whole_disk_fails_as_its_only_spindle() {
    World::run(9, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        let runtime = process.runtime();
        runtime.disk().create_dir_all(&volume(1)).await.unwrap();
        let file = file(&runtime, &volume(1).join("f"), 100).await;
        process.spindle(Path::new("/")).fail();
        assert!(try_everything(&runtime, &file).await.iter().all(|outcome| *outcome == Err(ErrorKind::Io)));
        process.spindle(Path::new("/")).restore(Restored::Empty);
        assert!(!runtime.disk().exists(Path::new("/block")).await.unwrap());
    });
}
