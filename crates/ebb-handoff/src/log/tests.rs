use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::virt::{DiskWork, PlannedFault, Process, World, WorldOptions};
use ebb_types::Version;

use super::*;

const FILE: InodeId = InodeId::new(7);
const ROOM: usize = 1 << 20;

fn writes(epoch: u64, seqs: std::ops::RangeInclusive<u64>, bytes: usize) -> (pb::LogWrites, Bytes) {
    let version = |seq| Some(Version::new(Epoch::new(epoch), seq).into());
    let write = |seq| pb::WriteReplica {
        metablock: 1,
        version: version(seq),
        predecessor: version(seq - 1),
        length: bytes as u64,
        ..Default::default()
    };
    let payload: Vec<u8> = seqs.clone().flat_map(|seq| vec![seq as u8; bytes]).collect();
    (
        pb::LogWrites { inode: FILE.raw(), epoch, writes: seqs.map(write).collect(), ..Default::default() },
        payload.into(),
    )
}

async fn open(process: &Process) -> HandoffLog {
    HandoffLog::open(&process.runtime(), Path::new("/log"), ROOM, false).await.unwrap()
}

fn seqs(log: &HandoffLog) -> Vec<u64> {
    let writes: Vec<Logged> = log.state.lock().book.writes(FILE).cloned().collect();
    assert!(writes.iter().all(|write| write.data.iter().all(|byte| u64::from(*byte) == write.version().seq)));
    writes.iter().map(|write| write.version().seq).collect()
}

/// Queues a write, as an append does before it waits.
fn queue(log: &HandoffLog, seq: u64, bytes: usize) -> Sequence {
    let (message, payload) = writes(2, seq..=seq, bytes);
    let mut state = log.state.lock();
    let logged = record::split(message.writes.clone(), &payload).unwrap();
    apply_append(&mut state.book, FILE, Epoch::new(2), &[], logged);
    log.queue(&mut state, Record::Append(message), payload)
}

fn world<F: Future<Output = ()>>(test: impl FnOnce(Process) -> F) {
    World::run(5, WorldOptions::default(), |world| {
        let process = world.process("h1");
        async move { test(process).await }
    });
}

#[test]
fn a_write_that_only_names_its_bytes_is_refused() {
    world(|process| async move {
        let log = open(&process).await;
        let (mut message, payload) = writes(2, 1..=1, 100);
        message.writes[0].staged = Some(pb::Ticket { session: 1, request: 1 });
        assert_eq!(log.append(message, payload).await.unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(seqs(&log), [] as [u64; 0]);
    });
}

/// Of two calls that overtake each other, the later one waits for the earlier one. A write whose predecessor never
/// comes is refused, and leaves nothing behind.
#[test]
fn a_call_waits_for_the_one_before_it() {
    world(|process| async move {
        let log = Arc::new(open(&process).await);
        let with_base = |seqs, base| {
            let (message, payload) = writes(2, seqs, 100);
            let bases = vec![pb::LogCut { metablock: 1, version: Some(Version::new(Epoch::new(2), base).into()) }];
            (pb::LogWrites { bases, ..message }, payload)
        };
        let (later, bytes) = with_base(4..=5, 1);
        let own = log.clone();
        let later = process.runtime().spawn("later", async move { own.append(later, bytes).await });
        process.runtime().sleep(GAP_WAIT / 2).await;
        assert_eq!(seqs(&log), [] as [u64; 0]);
        let (first, bytes) = with_base(2..=3, 1);
        log.append(first, bytes).await.unwrap();
        later.join().await.unwrap().unwrap();
        assert_eq!(seqs(&log), [2, 3, 4, 5]);
        let (lone, bytes) = with_base(7..=8, 1);
        assert_eq!(log.append(lone, bytes).await.unwrap_err().kind(), ErrorKind::Gap);
        assert_eq!(seqs(&log), [2, 3, 4, 5]);
    });
}

#[test]
fn confirmed_writes_are_there_after_a_crash() {
    world(|process| async move {
        let log = open(&process).await;
        let (message, payload) = writes(2, 1..=3, 5000);
        log.append(message, payload).await.unwrap();
        process.kill();
        process.restart();
        let log = open(&process).await;
        assert_eq!(seqs(&log), [1, 2, 3]);
        log.promise(FILE, Epoch::new(3)).await.unwrap();
        process.kill();
        process.restart();
        let log = open(&process).await;
        assert_eq!(log.doubt(), None);
        let (message, payload) = writes(2, 4..=4, 10);
        let refused = log.append(message, payload).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StaleEpoch, "the promise outlives a crash");
        assert_eq!(seqs(&log), [1, 2, 3], "and the writes for recovery are there");
        let over = log.marks().remove(0);
        let upto = |seq| vec![pb::LogCut { metablock: 1, version: Some(Version::new(Epoch::new(2), seq).into()) }];
        assert_eq!((over.inode, over.epoch, &over.last), (7, 2, &upto(3)));
        log.cut(pb::LoggedFile { last: upto(1), ..over.clone() }).await.unwrap();
        assert_eq!(seqs(&log), [2, 3], "later writes stay");
        log.cut(over).await.unwrap();
        process.kill();
        process.restart();
        assert_eq!(seqs(&open(&process).await), []);
    });
}

#[test]
fn a_full_log_refuses_and_a_cut_makes_room() {
    world(|process| async move {
        let log = open(&process).await;
        for seq in 1..=3 {
            let (message, payload) = writes(2, seq..=seq, 300_000);
            log.append(message, payload).await.unwrap();
        }
        let (message, payload) = writes(2, 4..=4, 300_000);
        let refused = log.append(message.clone(), payload.clone()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Overloaded);
        let upto = Some(Version::new(Epoch::new(2), 2).into());
        let cuts = vec![pb::LogCut { metablock: 1, version: upto }];
        let cut = pb::LogWrites { inode: FILE.raw(), epoch: 2, cuts, ..Default::default() };
        log.append(cut, Bytes::new()).await.unwrap();
        log.append(message, payload).await.unwrap();
        assert_eq!(seqs(&log), [3, 4]);
    });
}

#[test]
fn files_do_not_grow_with_time_and_a_reader_gets_pages() {
    world(|process| async move {
        let log = open(&process).await;
        for seq in 1..=40u64 {
            let (mut message, payload) = writes(2, seq..=seq, 400_000);
            let before = Some(Version::new(Epoch::new(2), seq - 1).into());
            message.cuts = vec![pb::LogCut { metablock: 1, version: before }];
            log.append(message, payload).await.unwrap();
        }
        assert_eq!(seqs(&log), [40]);
        let disk = process.runtime().disk();
        let names = disk.read_dir(Path::new("/log")).await.unwrap();
        assert_eq!(names.len(), 1, "{names:?}");
        let bytes = disk.read(&Path::new("/log").join(&names[0])).await.unwrap().len();
        assert!((bytes as u64) < 2 * SEGMENT_LEAST_BYTES, "{bytes}");
        let (reply, payload) = log.read(&pb::ReadLog { inode: 7, epoch: 3, ..Default::default() }).await.unwrap();
        assert_eq!((reply.writes.len(), payload.len(), reply.end), (1, 1, true));
        let after = pb::ReadLog { inode: 7, epoch: 3, after_metablock: 1, after_version: reply.writes[0].version };
        assert!(log.read(&after).await.unwrap().0.writes.is_empty());
    });
}

/// A log with two records in segment 1. Returns the offset of each, and the end of the last one.
async fn two_records(process: &Process) -> (ebb_runtime::File, [u64; 3]) {
    let log = open(process).await;
    let file = process.runtime().disk().open(Path::new("/log/offload-1"), OpenMode::Existing).await.unwrap();
    let mut places = [file.len().await.unwrap(); 3];
    for seq in 1..=2 {
        let (message, payload) = writes(2, seq..=seq, 3000);
        log.append(message, payload).await.unwrap();
        places[seq as usize] = file.len().await.unwrap();
    }
    (file, places)
}

/// Goal: damage anywhere in a log is noticed, reported by file and place, and remembered until the lost writes are not
/// needed any more. Method: each byte of a log of two records is changed in turn. If a write is then missing, the log
/// must be in doubt.
#[test]
fn a_changed_byte_anywhere_is_noticed() {
    world(|process| async move {
        let (file, places) = two_records(&process).await;
        let disk = process.runtime().disk();
        let good = disk.read(Path::new("/log/offload-1")).await.unwrap();
        for at in (0..places[2]).step_by(7).chain(0..places[0]) {
            let byte = Bytes::from(vec![good[at as usize] ^ 0x40]);
            file.write_at(at, vec![byte]).await.unwrap();
            let log = open(&process).await;
            let doubt = log.doubt().unwrap_or_else(|| panic!("byte {at} was changed, and the log has no doubt"));
            let (left, offset) = match at {
                at if at < places[0] => (vec![], 0),
                at if at < places[1] => (vec![2], places[0]),
                _ => (vec![1], places[1]),
            };
            assert_eq!((doubt.path.as_path(), doubt.offset), (Path::new("/log/offload-1"), offset), "byte {at}");
            assert_eq!(doubt.is_certain, at < places[1], "the last one may have been torn");
            assert!(doubt.to_string().contains("/log/offload-1, byte"), "{doubt}");
            assert_eq!(seqs(&log), left, "byte {at}: the other records are there");
            file.write_at(at, vec![good.slice(at as usize..=at as usize)]).await.unwrap();
        }
        assert_eq!(open(&process).await.doubt(), None);
    });
}

#[test]
fn a_doubt_is_remembered_until_it_is_laid_to_rest() {
    world(|process| async move {
        let (file, places) = two_records(&process).await;
        file.write_at(places[2], vec![Bytes::from_static(b"EBORtorn")]).await.unwrap();
        let torn = open(&process).await;
        assert_eq!((seqs(&torn), torn.doubt().unwrap().is_certain), (vec![1, 2], false));
        torn.promise(FILE, Epoch::new(9)).await.unwrap();
        let again = open(&process).await;
        assert_eq!(again.doubt().map(|doubt| doubt.is_certain), Some(false), "a new segment has begun since");
        again.trust().await.unwrap();
        assert_eq!(again.doubt(), None);
        assert_eq!(open(&process).await.doubt(), None);

        let disk = process.runtime().disk();
        for name in disk.read_dir(Path::new("/log")).await.unwrap() {
            disk.remove_file(&Path::new("/log").join(&name)).await.unwrap();
        }
        let runtime = process.runtime();
        let open = |is_expected| HandoffLog::open(&runtime, Path::new("/log"), ROOM, is_expected);
        let lost = open(true).await.unwrap();
        assert!(lost.doubt().unwrap().is_certain, "there was one");
        assert!(open(true).await.unwrap().doubt().unwrap().is_certain, "nor is that forgotten");
        lost.trust().await.unwrap();
        assert_eq!(open(true).await.unwrap().doubt(), None);
    });
}

/// Goal: with any subset of a batch's sectors on the disk, the log has all records confirmed before it, and that batch
/// whole or not at all. Method: the power fails while a batch of two records is written. Each subset of its sectors,
/// with and without the file's new length, is tried.
#[test]
fn every_subset_of_a_batchs_sectors_leaves_the_batch_or_nothing_of_it() {
    World::run(5, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        let log = open(&process).await;
        let (message, payload) = writes(2, 1..=2, 700);
        log.append(message, payload).await.unwrap();
        let log = Arc::new(log);
        let place = [3, 4].map(|seq| queue(&log, seq, 1900))[1];
        let task = process.runtime().spawn("append", async move { log.group.commit(place, &*log).await.unwrap() });
        let cut = loop {
            world.sleep(std::time::Duration::from_micros(5)).await;
            let cut = process.power_cut();
            if cut.part_count() > 0 {
                break cut;
            }
        };
        process.kill();
        assert!(task.join().await.is_err(), "it had not been synced");
        assert!((8..=12).contains(&cut.part_count()), "{}", cut.part_count());
        let (mut whole, outcomes) = (0, 1_u32 << cut.part_count());
        for kept in 0..outcomes {
            process.restore_disk(&cut, |part| kept >> part & 1 == 1);
            process.restart();
            let log = open(&process).await;
            let found = seqs(&log);
            assert!(found == [1, 2] || found == [1, 2, 3, 4], "sectors {kept:b}: {found:?}");
            let doubt = log.doubt();
            assert!(doubt.as_ref().is_none_or(|doubt| !doubt.is_certain), "sectors {kept:b}: {doubt:?}");
            whole += u32::from(found.len() == 4);
            log.promise(FILE, Epoch::new(9)).await.unwrap();
            process.crash();
            process.restart();
            assert_eq!(seqs(&open(&process).await), found, "sectors {kept:b}: records that were read stay");
            process.kill();
        }
        assert!(whole > 0 && whole < outcomes, "{whole} of {outcomes}");
    });
}

/// Goal: records that a failed sync has left in the cache are synced before a recovery reads them. Method: its process
/// is killed; the next one answers a read, then the power fails.
#[test]
fn records_of_a_failed_sync_are_synced_before_they_are_read() {
    for seed in 0..16 {
        World::run(seed, WorldOptions::default(), |world| async move {
            let process = world.process("h1");
            let log = open(&process).await;
            let (message, payload) = writes(2, 1..=1, 700);
            log.append(message, payload).await.unwrap();
            process.plan_disk_fault(PlannedFault::next(DiskWork::Sync, "/log/offload-"));
            let (message, payload) = writes(2, 2..=2, 900);
            log.append(message, payload).await.unwrap_err();
            drop(log);
            process.kill();
            process.restart();
            let log = open(&process).await;
            let shown =
                log.read(&pb::ReadLog { inode: 7, epoch: 3, ..Default::default() }).await.unwrap().0.writes.len();
            drop(log);
            process.crash();
            process.restart();
            let log = open(&process).await;
            assert_eq!(seqs(&log).len(), shown, "seed {seed}");
        });
    }
}

/// The records of each batch in the newest segment.
async fn batches(process: &Process) -> Vec<usize> {
    let disk = process.runtime().disk();
    let newest = *NAMES.numbers(&disk, Path::new("/log")).await.unwrap().last().unwrap();
    let bytes = disk.read(&NAMES.path(Path::new("/log"), newest)).await.unwrap();
    let (mut at, mut batches) = (record::HEAD_BYTES, Vec::new());
    while let Some((entries, len)) = record::decode(&bytes.slice(at..)) {
        batches.push(entries.len());
        at += len;
    }
    assert_eq!(at, bytes.len());
    batches
}

#[test]
fn writes_that_come_together_are_synced_together() {
    world(|process| async move {
        let log = Arc::new(open(&process).await);
        let append = |seq: u64| {
            let (log, (message, payload)) = (log.clone(), writes(2, seq..=seq, 500));
            process.runtime().spawn("append", async move { log.append(message, payload).await })
        };
        for task in (1..=20).map(append).collect::<Vec<_>>() {
            task.join().await.unwrap().unwrap();
        }
        let batches = batches(&process).await;
        assert!(batches.len() <= 2, "the first one alone, the others together: {batches:?}");
        assert_eq!((batches.iter().sum::<usize>(), seqs(&log)), (20, (1..=20).collect::<Vec<_>>()));
        assert_eq!(seqs(&open(&process).await), (1..=20).collect::<Vec<_>>());
    });
}

#[test]
fn a_batch_has_a_bound() {
    world(|process| async move {
        let runtime = process.runtime();
        let log = HandoffLog::open(&runtime, Path::new("/log"), 64 << 20, false).await.unwrap();
        let places: Vec<_> = (1..=5).map(|seq| queue(&log, seq, 3 << 20)).collect();
        log.group.commit(places[4], &log).await.unwrap();
        assert_eq!(batches(&process).await, [3, 2]);
    });
}

/// A holder that was queued before a promise is in; the same holder behind it is not, although nothing is durable yet.
#[test]
fn the_order_of_the_queue_is_that_of_the_fence() {
    world(|process| async move {
        let log = Arc::new(open(&process).await);
        let before = queue(&log, 1, 100);
        let own = log.clone();
        let promise =
            process.runtime().spawn("promise", async move { own.promise(FILE, Epoch::new(3)).await.unwrap() });
        process.runtime().sleep(Duration::from_nanos(1)).await;
        let (message, payload) = writes(2, 2..=2, 100);
        assert_eq!(log.append(message, payload).await.unwrap_err().kind(), ErrorKind::StaleEpoch);
        log.group.commit(before, &*log).await.unwrap();
        assert_eq!(promise.join().await.unwrap().len(), 1, "a write queued before is returned");
    });
}

/// Goal: nothing confirmed is lost, and nothing refused comes back, under any failure of callers and disk. Method:
/// writers, a reader and one that cuts work side by side. Callers are dropped, a sync fails, the power fails at a drawn
/// instant.
#[test]
fn confirmed_writes_survive_dropped_callers_failed_syncs_and_power_failures() {
    let mut confirmed_in_all = 0;
    for seed in 0..60 {
        confirmed_in_all += World::run(seed, WorldOptions::default(), |world| async move {
            let process = world.process("h1");
            let runtime = process.runtime();
            let log = Arc::new(open(&process).await);
            let confirmed = Arc::new(Mutex::new(Vec::new()));
            let promised = Arc::new(Mutex::new(false));
            let tasks: Vec<_> = (1..=40_u64)
                .map(|seq| {
                    let (log, confirmed, own) = (log.clone(), confirmed.clone(), runtime.clone());
                    runtime.spawn("append", async move {
                        own.sleep(Duration::from_micros(own.random_u64() % 4000)).await;
                        let (message, payload) = writes(2, seq..=seq, 300);
                        if log.append(message, payload).await.is_ok() {
                            confirmed.lock().push(seq);
                        }
                    })
                })
                .collect();
            let (own, done, pause) = (log.clone(), promised.clone(), runtime.random_u64() % 6000);
            let reader = {
                let runtime = runtime.clone();
                runtime.clone().spawn("promise", async move {
                    runtime.sleep(Duration::from_micros(pause)).await;
                    *done.lock() = own.promise(FILE, Epoch::new(3)).await.is_ok();
                })
            };
            runtime.sleep(Duration::from_micros(runtime.random_u64() % 3000)).await;
            process.plan_disk_fault(PlannedFault::next(DiskWork::Sync, "/log/offload-"));
            tasks.iter().step_by(5).for_each(ebb_runtime::Task::abort);
            runtime.sleep(Duration::from_micros(runtime.random_u64() % 6000)).await;
            let (mut due, promised) = (confirmed.lock().clone(), *promised.lock());
            drop((tasks, reader, log));
            process.crash();
            process.restart();
            let log = open(&process).await;
            assert!(log.doubt().is_none_or(|doubt| !doubt.is_certain), "seed {seed}: {:?}", log.doubt());
            due.sort_unstable();
            let found = seqs(&log);
            assert!(due.iter().all(|seq| found.contains(seq)), "seed {seed}: {due:?} confirmed, {found:?} found");
            if promised {
                let (message, payload) = writes(2, 99..=99, 10);
                let refused = log.append(message, payload).await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::StaleEpoch, "seed {seed}");
            }
            due.len()
        });
    }
    assert!(confirmed_in_all > 60, "{confirmed_in_all} writes were confirmed: too few to show anything");
}

/// If a write of an earlier epoch were written again behind the beginning of a segment, it would come after the later
/// epoch that replaced it.
#[test]
fn the_beginning_of_a_segment_is_not_written_again() {
    world(|process| async move {
        let log = open(&process).await;
        let place = queue(&log, 1, 100);
        log.trust().await.unwrap();
        log.group.commit(place, &log).await.unwrap();
        assert_eq!(batches(&process).await, [1]);
        let (message, payload) = writes(2, 2..=2, 100);
        log.append(message, payload).await.unwrap();
        assert_eq!((batches(&process).await, seqs(&open(&process).await)), (vec![1, 1], vec![1, 2]));
    });
}
