//! The log and the checkpoints against torn writes, damage and restarts.

use std::path::Path;

use bytes::Bytes;
use ebb_meta::Machine;
use ebb_runtime::{OpenMode, Runtime};
use ebb_types::{ClusterId, ErrorKind, Result};
use ebb_wire::pb;
use proptest::prelude::*;
use raft::eraftpb::{ConfState, Entry, HardState};

use super::*;
use crate::tests::block_on;

mod cuts;

const CLUSTER: ClusterId = ClusterId::new(7);

fn entry(index: u64, len: usize) -> Entry {
    Entry { index, term: 2, data: vec![u8::try_from(index % 251).unwrap(); len], ..Default::default() }
}

fn batch(entries: Vec<Entry>) -> Batch {
    let commit = entries.first().map_or(0, |entry| entry.index - 1);
    Batch { hard_state: Some(HardState { term: 2, vote: 1, commit }), conf_state: None, entries }
}

fn small() -> WalOptions {
    WalOptions { segment_bytes: 4096 }
}

async fn open(runtime: &Runtime, dir: &Path, after: u64) -> Result<(Wal, Recovered)> {
    Wal::open(runtime, dir, CLUSTER, small(), after).await
}

/// A log with the voters and these batches; each number is the length of an entry's data.
async fn write(runtime: &Runtime, dir: &Path, batches: &[Vec<usize>]) -> Vec<Entry> {
    let (mut wal, _) = open(runtime, dir, 0).await.unwrap();
    let voters = ConfState { voters: vec![1], ..Default::default() };
    wal.append(Batch { conf_state: Some(voters), ..Default::default() }).await.unwrap();
    let mut all = Vec::new();
    for lens in batches {
        let first = all.len() as u64 + 1;
        let entries: Vec<_> = lens.iter().enumerate().map(|(at, len)| entry(first + at as u64, *len)).collect();
        all.extend(entries.clone());
        wal.append(batch(entries)).await.unwrap();
    }
    all
}

async fn names(runtime: &Runtime, dir: &Path) -> Vec<String> {
    let all = runtime.disk().read_dir(dir).await.unwrap();
    all.into_iter().filter(|name| name.ends_with(".segment")).collect()
}

async fn change(runtime: &Runtime, path: &Path, at: u64, bytes: Vec<u8>) {
    let file = runtime.disk().open(path, OpenMode::Existing).await.unwrap();
    file.write_at(at, vec![Bytes::from(bytes)]).await.unwrap();
}

#[test]
fn appended_records_are_found_again_over_several_segments() {
    block_on(|runtime, dir| async move {
        let written = write(&runtime, &dir, &vec![vec![300, 10, 0, 1000]; 9]).await;
        assert!(names(&runtime, &dir).await.len() > 2);
        let (mut wal, found) = open(&runtime, &dir, 0).await.unwrap();
        assert_eq!(Vec::from(found.entries), written);
        assert_eq!(found.conf_state.voters, [1]);
        assert_eq!(found.hard_state.commit, written.len() as u64 - 4);
        // It goes on where it ended, and entries behind a checkpoint alone are kept in memory.
        let next = entry(written.len() as u64 + 1, 5);
        wal.append(batch(vec![next.clone()])).await.unwrap();
        drop(wal);
        let (_, found) = open(&runtime, &dir, 30).await.unwrap();
        assert_eq!(found.entries.front().unwrap().index, 31);
        assert_eq!(found.entries.back().unwrap(), &next);
    });
}

#[test]
fn an_entry_replaces_the_end_of_the_log() {
    block_on(|runtime, dir| async move {
        write(&runtime, &dir, &[vec![1, 2, 3]]).await;
        let (mut wal, _) = open(&runtime, &dir, 0).await.unwrap();
        let other = Entry { term: 3, ..entry(2, 9) };
        wal.append(batch(vec![other.clone()])).await.unwrap();
        drop(wal);
        let (_, found) = open(&runtime, &dir, 0).await.unwrap();
        assert_eq!(found.entries.len(), 2);
        assert_eq!(found.entries[1], other);
    });
}

/// Goal: a crash may leave any part of the last write. Bytes synced before survive whole, and the torn write is cut.
/// Method: the last batch is cut off at every byte, then the log is opened, appended to, and opened again.
#[test]
fn a_tail_torn_at_any_byte_is_cut() {
    block_on(|runtime, dir| async move {
        let written = write(&runtime, &dir, &[vec![20, 30], vec![40], vec![7, 0, 50]]).await;
        let path = dir.join(&names(&runtime, &dir).await[0]);
        let whole = runtime.disk().read(&path).await.unwrap();
        let end = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let mut batch_starts = Vec::new();
        for at in (64..whole.len()).step_by(8) {
            if let Ok(record::Found::Record(placed, _)) = record::parse_record(&whole[at..])
                && placed.batch == 4
            {
                batch_starts.push(at);
            }
        }
        let start = batch_starts[0];
        assert_eq!(batch_starts.len(), 4, "hard state and three entries");
        for cut in start..end {
            let mut torn = whole.to_vec();
            torn[cut..].fill(0);
            change(&runtime, &path, 0, torn).await;
            let (mut wal, found) = open(&runtime, &dir, 0).await.unwrap();
            // The padding of the last record carries nothing.
            let kept = if found.entries.len() == written.len() { written.len() } else { 3 };
            assert_eq!(Vec::from(found.entries), written[..kept], "cut at {cut} of {end}");
            let next = entry(kept as u64 + 1, 3);
            wal.append(batch(vec![next.clone()])).await.unwrap();
            drop(wal);
            let (_, found) = open(&runtime, &dir, 0).await.unwrap();
            assert_eq!(found.entries.back(), Some(&next), "cut at {cut}");
        }
    });
}

/// Sectors of one write reach the disk in any order: a hole in the torn write, with its end in place, is torn too.
#[test]
fn a_tail_with_a_hole_is_cut_and_its_remains_are_zeroed() {
    block_on(|runtime, dir| async move {
        let written = write(&runtime, &dir, &[vec![20], vec![600, 600, 600]]).await;
        let path = dir.join(&names(&runtime, &dir).await[0]);
        let whole = runtime.disk().read(&path).await.unwrap();
        for hole in [512, 1024, 1536] {
            let mut torn = whole.to_vec();
            torn[hole..hole + 512].fill(0);
            change(&runtime, &path, 0, torn).await;
            let (wal, found) = open(&runtime, &dir, 0).await.unwrap();
            assert_eq!(Vec::from(found.entries), written[..1], "hole at {hole}");
            drop(wal);
            let after = runtime.disk().read(&path).await.unwrap();
            let end = after.iter().rposition(|byte| *byte != 0).unwrap();
            assert!(end < 400, "remains of the torn write up to {end}");
        }
    });
}

#[test]
fn damage_in_the_middle_is_refused_with_file_and_offset() {
    block_on(|runtime, dir| async move {
        write(&runtime, &dir, &[vec![20, 30], vec![40], vec![50], vec![60]]).await;
        let path = dir.join(&names(&runtime, &dir).await[0]);
        let whole = runtime.disk().read(&path).await.unwrap();
        let last_batch = (64..whole.len())
            .step_by(8)
            .find(|at| matches!(record::parse_record(&whole[*at..]), Ok(record::Found::Record(placed, _)) if placed.batch == 5))
            .unwrap();
        for at in 0..last_batch {
            let mut bad = whole.to_vec();
            bad[at] ^= 0x10;
            change(&runtime, &path, 0, bad.clone()).await;
            let opened = open(&runtime, &dir, 0).await;
            // Only padding may change unseen.
            let Err(error) = opened else {
                let (found, _) = (opened.unwrap().1, ());
                assert_eq!(found.entries.len(), 5, "a flipped bit at {at} lost entries");
                continue;
            };
            assert!(matches!(error.kind(), ErrorKind::Corrupt), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(".segment") && text.contains("offset"), "{text}");
            assert!(text.contains("copy"), "it says what to do: {text}");
        }
    });
}

/// Goal: damage to synced bytes is never taken for a torn write, not even in the last batch. Method: the log is
/// closed in order (or stood still for a moment), then each of its bytes is changed in turn.
#[test]
fn a_changed_byte_anywhere_in_a_synced_log_is_refused_or_harmless() {
    block_on(|runtime, dir| async move {
        let written = write(&runtime, &dir, &[vec![20, 30], vec![40], vec![7, 0, 50]]).await;
        let (mut wal, _) = open(&runtime, &dir, 0).await.unwrap();
        wal.note_synced().await.unwrap();
        drop(wal);
        let path = dir.join(&names(&runtime, &dir).await[0]);
        let whole = runtime.disk().read(&path).await.unwrap();
        let mut refused = 0;
        for at in 0..whole.len() {
            let mut bad = whole.to_vec();
            bad[at] ^= 0x10;
            change(&runtime, &path, 0, bad).await;
            match open(&runtime, &dir, 0).await {
                Ok((_, found)) => assert_eq!(Vec::from(found.entries), written, "a changed byte at {at} lost entries"),
                Err(error) => {
                    let text = error.to_string();
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{text}");
                    assert!(text.contains(".segment") && text.contains("offset") && text.contains("copy"), "{text}");
                    refused += 1;
                }
            }
        }
        let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
        assert!(refused > end * 3 / 4, "{refused} of {end}: what is harmless is padding");
        // The whole tail is gone: zeros where records were.
        change(&runtime, &path, 0, whole.to_vec()).await;
        for from in [64, 200, end - 8] {
            let mut bad = whole.to_vec();
            bad[from..].fill(0);
            change(&runtime, &path, 0, bad).await;
            let error = open(&runtime, &dir, 0).await.unwrap_err();
            assert!(error.to_string().contains("was synced"), "{error}");
        }
        runtime.disk().remove_file(&path).await.unwrap();
        let error = open(&runtime, &dir, 0).await.unwrap_err();
        assert!(error.to_string().contains("the log is gone"), "{error}");
    });
}

#[test]
fn an_unreadable_hint_says_nothing() {
    block_on(|runtime, dir| async move {
        let written = write(&runtime, &dir, &[vec![20, 30]]).await;
        let (mut wal, _) = open(&runtime, &dir, 0).await.unwrap();
        wal.note_synced().await.unwrap();
        drop(wal);
        change(&runtime, &hint::Hint::path(&dir), 20, vec![0xff; 5]).await;
        let (_, found) = open(&runtime, &dir, 0).await.unwrap();
        assert_eq!(Vec::from(found.entries), written);
    });
}

#[test]
fn damage_or_loss_of_an_earlier_segment_is_refused() {
    block_on(|runtime, dir| async move {
        write(&runtime, &dir, &vec![vec![700]; 20]).await;
        let names = names(&runtime, &dir).await;
        let middle = dir.join(&names[1]);
        let whole = runtime.disk().read(&middle).await.unwrap();
        // The last record of a segment that others follow was synced, even if nothing stands behind it.
        let mut bad = whole.to_vec();
        let end = bad.iter().rposition(|byte| *byte != 0).unwrap();
        bad[end] ^= 1;
        change(&runtime, &middle, 0, bad).await;
        assert_eq!(open(&runtime, &dir, 0).await.unwrap_err().kind(), ErrorKind::Corrupt);
        runtime.disk().remove_file(&middle).await.unwrap();
        let error = open(&runtime, &dir, 0).await.unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
        let error = Wal::open(&runtime, &dir, ClusterId::new(8), small(), 0).await.unwrap_err();
        assert!(error.to_string().contains("belongs to cluster"), "{error}");
    });
}

#[test]
fn compaction_removes_whole_segments_and_keeps_the_rest_readable() {
    block_on(|runtime, dir| async move {
        let written = write(&runtime, &dir, &vec![vec![700]; 40]).await;
        let before = names(&runtime, &dir).await.len();
        let (mut wal, _) = open(&runtime, &dir, 20).await.unwrap();
        wal.compact(20).await.unwrap();
        drop(wal);
        assert!(names(&runtime, &dir).await.len() < before);
        let (_, found) = open(&runtime, &dir, 20).await.unwrap();
        assert_eq!(Vec::from(found.entries), written[20..]);
        assert_eq!(found.conf_state.voters, [1], "each segment begins with the whole state");
        let error = open(&runtime, &dir, 0).await.unwrap_err();
        assert!(error.to_string().contains("missing"), "a log without its beginning needs its checkpoint: {error}");
    });
}

#[test]
fn a_spare_segment_that_a_crash_left_is_removed() {
    block_on(|runtime, dir| async move {
        write(&runtime, &dir, &[vec![1]]).await;
        let spare = dir.join("log-00000000000000000002.unfinished");
        runtime.disk().open(&spare, OpenMode::CreateNew).await.unwrap();
        open(&runtime, &dir, 0).await.unwrap();
        assert!(!runtime.disk().exists(&spare).await.unwrap());
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever is appended in whatever batches, with restarts anywhere, is found again.
    #[test]
    fn appends_and_restarts(lens in prop::collection::vec(prop::collection::vec(0usize..1500, 0..5), 1..20), restarts: u32) {
        block_on(|runtime, dir| async move {
            let mut written = write(&runtime, &dir, &[]).await;
            let (mut wal, _) = open(&runtime, &dir, 0).await.unwrap();
            for (at, lens) in lens.iter().enumerate() {
                let first = written.len() as u64 + 1;
                let entries: Vec<_> = lens.iter().enumerate().map(|(at, len)| entry(first + at as u64, *len)).collect();
                written.extend(entries.clone());
                wal.append(batch(entries)).await.unwrap();
                if restarts >> (at % 32) & 1 == 1 {
                    drop(wal);
                    let (again, found) = open(&runtime, &dir, 0).await.unwrap();
                    assert_eq!(Vec::from(found.entries), written);
                    wal = again;
                }
            }
            drop(wal);
            let (_, found) = open(&runtime, &dir, 0).await.unwrap();
            assert_eq!(Vec::from(found.entries), written);
        });
    }
}

// --- Checkpoints and the data directory ----------------------------------------------------------------------------

fn machine(files: u64) -> Machine {
    let mut machine = Machine::new();
    let mut apply = |command| {
        machine.apply(&pb::Command { now_ns: 1, command: Some(command), ..Default::default() }).reply.unwrap()
    };
    apply(pb::command::Command::InitCluster(pb::InitCluster {
        cluster: CLUSTER.raw(),
        default_replicas: 3,
        extra_share_percent: 10,
        version: ebb_meta::version::NEWEST,
    }));
    apply(pb::command::Command::OpenSession(pb::OpenSessionCommand {
        host: "h1".into(),
        role: "cli".into(),
        ..Default::default()
    }));
    for number in 1..=files {
        apply(pb::command::Command::Client(crate::tests::create_command(1, number, &format!("file {number}"))));
    }
    machine
}

async fn newest(runtime: &Runtime, dir: &Path, cluster: ClusterId) -> Result<Checkpoint> {
    let index = Checkpoint::list(runtime, dir).await?.pop().unwrap();
    Checkpoint::read(runtime, dir, index, cluster).await
}

#[test]
fn a_checkpoint_brings_the_whole_state_back() {
    block_on(|runtime, dir| async move {
        let machine = machine(3000);
        let writer = CheckpointWriter::new(runtime.clone(), dir.clone());
        assert_eq!(writer.write(machine.clone(), 50, 4).await.unwrap(), 0, "one checkpoint: the log from its start");
        let read = newest(&runtime, &dir, CLUSTER).await.unwrap();
        assert_eq!((read.index, read.term), (50, 4));
        assert_eq!(read.machine.digest(), machine.digest());
        assert!(read.machine.check().is_empty());
        assert_eq!(writer.write(machine.clone(), 60, 4).await.unwrap(), 50, "the log behind the older one is kept");
        assert_eq!(writer.write(machine, 70, 4).await.unwrap(), 60);
        let left: Vec<_> = runtime.disk().read_dir(&dir).await.unwrap();
        assert_eq!(left, ["checkpoint-00000000000000000060", "checkpoint-00000000000000000070"]);
        let error = newest(&runtime, &dir, ClusterId::new(9)).await.err().unwrap();
        assert!(error.to_string().contains("belongs to cluster"), "{error}");
    });
}

#[test]
fn a_damaged_checkpoint_is_named_with_its_offset() {
    block_on(|runtime, dir| async move {
        let writer = CheckpointWriter::new(runtime.clone(), dir.clone());
        writer.write(machine(5), 50, 4).await.unwrap();
        writer.write(machine(9), 60, 4).await.unwrap();
        let path = dir.join("checkpoint-00000000000000000060");
        let whole = runtime.disk().read(&path).await.unwrap();
        for at in 0..whole.len() {
            let mut bad = whole.to_vec();
            bad[at] ^= 4;
            change(&runtime, &path, 0, bad).await;
            let error = newest(&runtime, &dir, CLUSTER).await.err().unwrap_or_else(|| panic!("byte {at}"));
            let text = error.to_string();
            assert!(text.contains("checkpoint-00000000000000000060") && text.contains("offset"), "{text}");
        }
        for len in [0, 1, whole.len() / 2, whole.len() - 1] {
            change(&runtime, &path, 0, whole.to_vec()).await;
            runtime.disk().open(&path, OpenMode::Existing).await.unwrap().set_len(len as u64).await.unwrap();
            assert!(newest(&runtime, &dir, CLUSTER).await.is_err(), "cut to {len}");
        }
        runtime.disk().remove_file(&path).await.unwrap();
        let older = newest(&runtime, &dir, CLUSTER).await.unwrap();
        assert_eq!(older.index, 50);
    });
}

#[test]
fn a_changed_identity_file_is_refused_with_its_offset_and_a_way_out() {
    block_on(|runtime, dir| async move {
        drop(DataDir::open(&runtime, &dir, CLUSTER).await.unwrap());
        let path = dir.join("master");
        let whole = runtime.disk().read(&path).await.unwrap();
        for at in 0..whole.len() {
            let mut bad = whole.to_vec();
            bad[at] ^= 0x40;
            change(&runtime, &path, 0, bad).await;
            let error = DataDir::open(&runtime, &dir, CLUSTER).await.unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {text}");
            assert!(text.contains(&format!("offset {at}")) && text.contains("printf"), "byte {at}: {text}");
        }
        let old = Bytes::from_static(b"ebb master\nformat 1\ncluster 0000000000000007\n");
        runtime.disk().replace(&path, old).await.unwrap();
        let error = DataDir::open(&runtime, &dir, CLUSTER).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    });
}

#[test]
fn a_data_directory_has_one_owner() {
    block_on(|runtime, dir| async move {
        let held = DataDir::open(&runtime, &dir, CLUSTER).await.unwrap();
        let error = DataDir::open(&runtime, &dir, CLUSTER).await.unwrap_err();
        assert!(error.to_string().contains("another master"), "{error}");
        drop(held);
        let error = DataDir::open(&runtime, &dir, ClusterId::new(8)).await.unwrap_err();
        assert!(error.to_string().contains("belongs to cluster"), "{error}");
        DataDir::open(&runtime, &dir, CLUSTER).await.unwrap();
        write(&runtime, &dir, &[vec![1]]).await;
        runtime.disk().remove_file(&dir.join("master")).await.unwrap();
        let error = DataDir::open(&runtime, &dir, CLUSTER).await.unwrap_err();
        assert!(error.to_string().contains("no identity"), "{error}");
    });
}
