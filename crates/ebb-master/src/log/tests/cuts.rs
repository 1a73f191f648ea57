//! Power that fails in the middle of a write: every outcome that the sectors allow, and syncs that fail before it.

use std::time::Duration;

use ebb_runtime::SeededBug;
use ebb_runtime::virt::{DiskWork, PlannedFault, PowerCut, Process, World, WorldOptions};

use super::*;

const DIR: &str = "/log";

/// Runs a test with a process on a disk of its own and a log's directory, with a seeded bug or none.
fn on_a_disk<F: Future>(seed: u64, bug: Option<SeededBug>, test: impl FnOnce(World, Process) -> F) -> F::Output {
    World::run(seed, WorldOptions { bug, ..WorldOptions::default() }, |world| async move {
        let process = world.process("m");
        process.runtime().disk().create_dir_all(DIR.as_ref()).await.unwrap();
        test(world, process).await
    })
}

/// What is wrong with the log after a power failure that left these entries due.
async fn wrong_after_a_crash(process: &Process, due: &[Entry]) -> Option<String> {
    process.crash();
    match open(&process.restart(), DIR.as_ref(), 0).await {
        Ok((_, found)) if found.entries.clone() == due => None,
        Ok((_, found)) => Some(format!("{} entries of {}", found.entries.len(), due.len())),
        Err(error) => Some(error.to_string()),
    }
}

/// The disk at each moment of a task at which something else was unsynced than at the one before; the process is killed
/// at the end.
async fn cuts_while(world: &World, process: &Process, task: ebb_runtime::Task<()>) -> Vec<PowerCut> {
    let mut cuts: Vec<PowerCut> = Vec::new();
    let mut done = std::pin::pin!(task.join());
    while !is_done(world, done.as_mut()).await {
        let cut = process.power_cut();
        if cut.part_count() > 0 && cuts.last().is_none_or(|last| last.part_count() != cut.part_count()) {
            cuts.push(cut);
        }
    }
    process.kill();
    cuts
}

/// Entries whose records fill a sector each.
fn sector_entries(first: u64, count: u64) -> Vec<Entry> {
    (first..first + count).map(|index| entry(index, 512 - 24 - 32)).collect()
}

fn entries_alone(entries: Vec<Entry>) -> Batch {
    Batch { entries, ..Batch::default() }
}

/// Goal: whatever sectors of the last batch are on the disk, the log has the synced batches before it, with or
/// without the whole batch, and goes on. Method: the power fails while a batch is written, in the middle of a segment
/// and as the first of the next one; each subset of its sectors is tried.
#[test]
fn every_subset_of_a_batchs_sectors_leaves_the_batch_or_nothing_of_it() {
    for before in [1, 6] {
        on_a_disk(before, None, |world, process| async move {
            let runtime = process.runtime();
            let mut written = write(&runtime, DIR.as_ref(), &vec![vec![400]; before as usize]).await;
            let (mut wal, _) = open(&runtime, DIR.as_ref(), 0).await.unwrap();
            // Longer and shorter than a sector.
            let lens = [700, 30, 456, 1100, 5];
            let fresh: Vec<Entry> =
                (written.len() as u64 + 1..).zip(lens).map(|(index, len)| entry(index, len)).collect();
            let appended = batch(fresh.clone());
            let task = runtime.spawn("append", async move { wal.append(appended).await.unwrap() });
            let cuts = cuts_while(&world, &process, task).await;
            let synced = written.len();
            written.extend(fresh);
            let (mut whole, mut outcomes) = (0, 0);
            for cut in cuts.iter().filter(|cut| cut.part_count() <= 12) {
                for kept in 0..1_u32 << cut.part_count() {
                    process.restore_disk(cut, |part| kept >> part & 1 == 1);
                    let runtime = process.restart();
                    let opened = open(&runtime, DIR.as_ref(), 0).await;
                    let (mut wal, found) = opened.unwrap_or_else(|error| panic!("sectors {kept:b}: {error}"));
                    let count = found.entries.len();
                    assert!(count == synced || count == written.len(), "sectors {kept:b}: {count} entries");
                    assert_eq!(Vec::from(found.entries), written[..count], "sectors {kept:b}");
                    let next = entry(count as u64 + 1, 20);
                    wal.append(batch(vec![next.clone()])).await.unwrap();
                    drop(wal);
                    process.crash();
                    let (_, found) = open(&process.restart(), DIR.as_ref(), 0).await.unwrap();
                    assert_eq!(found.entries.back(), Some(&next), "sectors {kept:b}: it goes on");
                    process.kill();
                    whole += usize::from(count == written.len());
                    outcomes += 1;
                }
            }
            assert!(outcomes >= 64 && whole > 0 && whole < outcomes, "{whole} of {outcomes}");
        });
    }
}

/// A start writes zeros over a torn batch and cannot sync them. The next one finds zeros in the cache and appends one record,
/// behind which the torn batch's others stand on the platter.
async fn after_unsynced_zeros(world: World, process: Process) -> Option<String> {
    let runtime = process.runtime();
    let mut due = write(&runtime, DIR.as_ref(), &[vec![20]]).await;
    let (mut wal, _) = open(&runtime, DIR.as_ref(), 0).await.unwrap();
    let torn = entries_alone(sector_entries(2, 3));
    let task = runtime.spawn("append", async move { wal.append(torn).await.unwrap() });
    let cut = cuts_while(&world, &process, task).await.pop().unwrap();
    process.restore_disk(&cut, |part| part > 0);
    process.plan_disk_fault(PlannedFault::next(DiskWork::Sync, ".segment"));
    assert!(open(&process.restart(), DIR.as_ref(), 0).await.is_err(), "a start whose sync fails is none");
    let (mut wal, found) = open(&process.restart(), DIR.as_ref(), 0).await.unwrap();
    assert_eq!(Vec::from(found.entries), due);
    due.extend(sector_entries(2, 1));
    wal.append(entries_alone(due[1..].to_vec())).await.unwrap();
    drop(wal);
    wrong_after_a_crash(&process, &due).await
}

/// The sync of a batch fails and its process is killed; the next one reads it from the cache, and appends another.
async fn after_a_failed_sync(_: World, process: Process) -> Option<String> {
    let runtime = process.runtime();
    write(&runtime, DIR.as_ref(), &[vec![20], vec![30, 40]]).await;
    let (mut wal, _) = open(&runtime, DIR.as_ref(), 0).await.unwrap();
    wal.note_synced().await.unwrap();
    process.plan_disk_fault(PlannedFault::next(DiskWork::Sync, ".segment"));
    wal.append(batch(vec![entry(4, 900)])).await.unwrap_err();
    drop(wal);
    let (mut wal, shown) = open(&process.restart(), DIR.as_ref(), 0).await.unwrap();
    let mut due = Vec::from(shown.entries);
    due.push(entry(due.len() as u64 + 1, 60));
    wal.append(batch(due[due.len() - 1..].to_vec())).await.unwrap();
    drop(wal);
    wrong_after_a_crash(&process, &due).await
}

/// The sync of the directory fails when a segment was renamed; the next process finds the name, and goes on in it.
async fn after_an_unsynced_name(_: World, process: Process) -> Option<String> {
    let runtime = process.runtime();
    let mut due = write(&runtime, DIR.as_ref(), &vec![vec![400]; 6]).await;
    let (mut wal, _) = open(&runtime, DIR.as_ref(), 0).await.unwrap();
    let before = wal.segment_count();
    // A hint that was never written is made anew, which syncs the directory.
    wal.note_synced().await.unwrap();
    process.plan_disk_fault(PlannedFault::next(DiskWork::SyncDir, DIR));
    let failed = wal.append(batch(vec![entry(7, 3000)])).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io, "{failed}");
    drop(wal);
    let (mut wal, found) = open(&process.restart(), DIR.as_ref(), 0).await.unwrap();
    assert_eq!(Vec::from(found.entries), due);
    assert_eq!(wal.segment_count(), before + 1, "its name is in the cache");
    due.push(entry(7, 100));
    wal.append(batch(due[6..].to_vec())).await.unwrap();
    drop(wal);
    wrong_after_a_crash(&process, &due).await
}

/// Goal: a start believes nothing that may be in the cache alone. Method: syncs fail at three places, the process is killed,
/// the next one reads the cache and appends, the power fails; the log that believes its cache loses something in each case.
#[test]
fn bytes_that_may_be_in_the_page_cache_alone_are_not_believed() {
    for seed in 0..16 {
        let wrong = on_a_disk(seed, None, after_a_failed_sync);
        assert_eq!(wrong, None, "seed {seed}: a batch");
        let wrong = on_a_disk(seed, None, after_unsynced_zeros);
        assert_eq!(wrong, None, "seed {seed}: zeros");
        let wrong = on_a_disk(seed, None, after_an_unsynced_name);
        assert_eq!(wrong, None, "seed {seed}: a name");
    }
    let bug = Some(SeededBug::CacheTrusted);
    assert!((0..16).any(|seed| on_a_disk(seed, bug, after_a_failed_sync).is_some()), "a batch");
    assert!((0..16).any(|seed| on_a_disk(seed, bug, after_unsynced_zeros).is_some()), "zeros");
    assert!((0..16).any(|seed| on_a_disk(seed, bug, after_an_unsynced_name).is_some()), "a name");
}

/// Whether it is done within the next few microseconds.
async fn is_done<T>(world: &World, done: std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
    tokio::select! {
        biased;
        _ = done => true,
        () = world.sleep(Duration::from_micros(5)) => false,
    }
}
