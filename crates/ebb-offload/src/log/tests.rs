use ebb_runtime::virt::{Process, World, WorldOptions};
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
    (pb::LogWrites { inode: FILE.raw(), epoch, writes: seqs.map(write).collect(), cuts: Vec::new() }, payload.into())
}

async fn open(process: &Process) -> OffloadLog {
    OffloadLog::open(process.runtime().disk(), Path::new("/log"), ROOM).await.unwrap()
}

async fn seqs(log: &OffloadLog) -> Vec<u64> {
    let writes = log.writes(FILE).await;
    assert!(writes.iter().all(|write| write.data.iter().all(|byte| u64::from(*byte) == write.version().seq)));
    writes.iter().map(|write| write.version().seq).collect()
}

fn world<F: Future<Output = ()>>(test: impl FnOnce(Process) -> F) {
    World::run(5, WorldOptions::default(), |world| {
        let process = world.process("h1");
        async move { test(process).await }
    });
}

#[test]
fn what_was_confirmed_is_there_after_a_crash() {
    world(|process| async move {
        let log = open(&process).await;
        let (message, payload) = writes(2, 1..=3, 5000);
        log.append(message, payload).await.unwrap();
        process.kill();
        process.restart();
        let log = open(&process).await;
        assert_eq!(seqs(&log).await, [1, 2, 3]);
        log.promise(FILE, Epoch::new(3)).await.unwrap();
        process.kill();
        process.restart();
        let log = open(&process).await;
        assert!(log.is_whole().await);
        let (message, payload) = writes(2, 4..=4, 10);
        let refused = log.append(message, payload).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StaleEpoch, "the promise outlives a crash");
        assert_eq!(seqs(&log).await, [1, 2, 3], "and what recovery needs is there");
        let over = log.marks().await.remove(0);
        let upto = |seq| vec![pb::LogCut { metablock: 1, version: Some(Version::new(Epoch::new(2), seq).into()) }];
        assert_eq!((over.inode, over.epoch, &over.last), (7, 2, &upto(3)));
        log.cut(pb::LoggedFile { last: upto(1), ..over.clone() }).await.unwrap();
        assert_eq!(seqs(&log).await, [2, 3], "what came after it was asked about stays");
        log.cut(over).await.unwrap();
        process.kill();
        process.restart();
        assert_eq!(seqs(&open(&process).await).await, []);
    });
}

#[test]
fn a_full_log_refuses_and_what_is_cut_makes_room() {
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
        assert_eq!(seqs(&log).await, [3, 4]);
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
        assert_eq!(seqs(&log).await, [40]);
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

#[test]
fn damage_is_told_from_a_torn_end_and_is_not_forgotten() {
    world(|process| async move {
        let log = open(&process).await;
        for seq in 1..=2 {
            let (message, payload) = writes(2, seq..=seq, 3000);
            log.append(message, payload).await.unwrap();
        }
        let disk = process.runtime().disk();
        let file = disk.open(Path::new("/log/offload-1"), OpenMode::Existing).await.unwrap();
        let length = file.len().await.unwrap();
        file.write_at(length, vec![Bytes::from_static(b"EBORtorn")]).await.unwrap();
        let torn = open(&process).await;
        assert_eq!((seqs(&torn).await, torn.is_whole().await), (vec![1, 2], true));
        file.write_at(record::HEAD_BYTES as u64 + 40, vec![Bytes::from_static(b"x")]).await.unwrap();
        let damaged = open(&process).await;
        assert_eq!((seqs(&damaged).await, damaged.is_whole().await), (vec![], false));
        damaged.promise(FILE, Epoch::new(9)).await.unwrap();
        assert!(!open(&process).await.is_whole().await, "nor by a new segment");
    });
}
