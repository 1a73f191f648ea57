//! Power failures in the middle of a commit: every outcome that the sectors allow.

use std::time::Duration;

use ebb_runtime::virt::{PowerCut, World, WorldOptions};
use ebb_types::Version;

use super::rig::{Rig, Writer, act, bytes, data, id, version};
use crate::{Change, Volume};

/// Parts of an outcome that are tried in all combinations: the sectors of a batch of one page.
const PARTS_MAX: usize = 10;

/// The disk at each moment of a synced write at which the set of unsynced sectors has changed.
async fn cuts_of(world: &World, rig: &Rig, volume: &Volume, at: Version, change: &Change) -> Vec<PowerCut> {
    let (volume, change) = (volume.clone(), change.clone());
    let task = rig.runtime.spawn("write", async move {
        let mut writer = Writer { volume: &volume, metablock: id(1), at };
        writer.send(change, true).await.unwrap();
    });
    let mut cuts: Vec<PowerCut> = Vec::new();
    let mut done = std::pin::pin!(task.join());
    while !is_done(world, done.as_mut()).await {
        let cut = rig.virt_process().power_cut();
        if cut.part_count() > 0 && cuts.last().is_none_or(|last| last.part_count() != cut.part_count()) {
            cuts.push(cut);
        }
    }
    cuts
}

/// Goal: with any subset of a commit's sectors on the disk, the replica has the old synced bytes or the whole write,
/// and the volume opens without finding damage. Method: the power fails during the commit of a short overwrite, which
/// has its bytes in the journal's batch, and of an append, which writes its bytes to the file first. Each subset of the
/// unsynced sectors at each moment is tried.
#[test]
fn every_subset_of_a_commits_sectors_leaves_the_write_or_nothing_of_it() {
    for offset in [3000, 20_000] {
        World::run(offset, WorldOptions::default(), |world| async move {
            let mut rig = Rig::virt(&world);
            let volume = rig.open().await.unwrap();
            let mut states = vec![Vec::new(); 3];
            let first = data(0, &bytes(20_000, 1));
            act(&mut states[1], &first);
            Writer::new(&volume, 1).send(first, true).await.unwrap();
            // Nothing else is unsynced.
            crate::checkpoint::checkpoint(&volume.shared).await.unwrap();
            let second = data(offset, &bytes(2500, 9));
            states[2] = states[1].clone();
            act(&mut states[2], &second);
            let cuts = cuts_of(&world, &rig, &volume, version(1, 1), &second).await;
            drop(volume);
            rig.virt_process().kill();
            let (mut whole, mut outcomes) = (0, 0);
            for cut in cuts.iter().filter(|cut| cut.part_count() <= PARTS_MAX) {
                for kept in 0..1_u32 << cut.part_count() {
                    rig.virt_process().restore_disk(cut, |part| kept >> part & 1 == 1);
                    rig.runtime = rig.virt_process().restart();
                    let opened = rig.open().await;
                    let volume = opened.unwrap_or_else(|error| panic!("{offset}, sectors {kept:b}: {error}"));
                    let (found, content) = volume.read_all(id(1), version(1, 1)).await.unwrap();
                    assert!(found == version(1, 1) || found == version(1, 2), "sectors {kept:b}: {found}");
                    assert!(content == states[found.seq as usize], "{offset}, sectors {kept:b}: not version {found}");
                    whole += usize::from(found == version(1, 2));
                    outcomes += 1;
                    drop(volume);
                    rig.virt_process().kill();
                }
            }
            let counts: Vec<usize> = cuts.iter().map(PowerCut::part_count).collect();
            assert!(outcomes >= 256 && whole > 0 && whole < outcomes, "{offset}: {whole} of {outcomes}, {counts:?}");
        });
    }
}

/// A descriptor that is opened after a failure to write data back may not report it. The file system's descriptor does.
#[test]
fn a_checkpoint_asks_the_file_system_about_files_that_were_closed() {
    for (open_files_max, asks) in [(1, 1), (100, 0)] {
        let options = WorldOptions { kept_events_max: 1 << 20, ..WorldOptions::default() };
        World::run(1, options, |world| async move {
            let mut rig = Rig::virt(&world);
            rig.options.open_files_max = open_files_max;
            let volume = rig.open().await.unwrap();
            for number in 1..=3 {
                Writer::new(&volume, number).send(data(0, &bytes(20_000, 1)), true).await.unwrap();
            }
            crate::checkpoint::checkpoint(&volume.shared).await.unwrap();
            let asked = world.events().iter().filter(|event| event.kind == "sync_all").count();
            assert_eq!(asked, asks, "{open_files_max} files stay open");
        });
    }
}

/// Whether it is done within the next few microseconds.
async fn is_done<T>(world: &World, done: std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
    tokio::select! {
        biased;
        _ = done => true,
        () = world.sleep(Duration::from_micros(5)) => false,
    }
}
