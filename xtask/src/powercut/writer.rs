//! Programs that write through the mount while the power fails, and record the writes that an fsync has acknowledged.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::Result;
use super::record::{Kind, Ledger, RecordKey, SLOTS, Versions};
use crate::interrupt;

/// Writers side by side.
const WRITERS: u64 = 6;
/// Number of rounds that stay and are read back after each cut.
const ROUNDS_KEPT: u64 = 3;
/// Limit of the versions of overwritten files, so that a run on a fast disk stays small.
const STEPS_MAX: u64 = 4000;

/// Writes below `mount` while `work` runs, and records the acknowledged writes.
pub fn during(mount: &Path, ledger: &mut Ledger, work: impl FnOnce() -> Result<()>) -> Result<()> {
    ledger.round += 1;
    let (seed, round) = (ledger.seed, ledger.round);
    for name in ledger.forget_before(round.saturating_sub(ROUNDS_KEPT)) {
        let _ = fs::remove_file(mount.join(name));
    }
    let stop = AtomicBool::new(false);
    let (done, written) = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let stop = &stop;
                scope.spawn(move || Writer { mount, seed, round, writer, notes: BTreeMap::new(), count: 0 }.run(stop))
            })
            .collect();
        let done = work();
        stop.store(true, Ordering::Relaxed);
        let written: Vec<_> = writers.into_iter().filter_map(|writer| writer.join().ok()).collect();
        (done, written)
    });
    if written.len() as u64 != WRITERS {
        return Err("a writer has panicked".to_owned());
    }
    for (notes, count) in written {
        ledger.add(notes, count);
    }
    done
}

struct Writer<'a> {
    mount: &'a Path,
    seed: u64,
    round: u64,
    writer: u64,
    notes: BTreeMap<RecordKey, Versions>,
    count: u64,
}

impl Writer<'_> {
    fn run(mut self, stop: &AtomicBool) -> (BTreeMap<RecordKey, Versions>, u64) {
        let mut next = [0_u64; 4];
        let mut step = 0;
        while !stop.load(Ordering::Relaxed) && !interrupt::is_interrupted() && step < STEPS_MAX {
            let kind = Kind::ALL[(self.writer + step) as usize % Kind::ALL.len()];
            step += 1;
            let number = &mut next[kind as usize];
            let place = match kind {
                Kind::Log | Kind::Small => *number,
                Kind::Slots => *number % SLOTS,
                Kind::Replaced => *number % 3,
            };
            *number += 1;
            let place = RecordKey { writer: self.writer, round: self.round, kind, place };
            // A failed write was not acknowledged, and is recorded as tried. Without a mount the writer ends.
            if self.write(place).is_err() && fs::metadata(self.mount).is_err() {
                break;
            }
        }
        (self.notes, self.count)
    }

    fn write(&mut self, place: RecordKey) -> io::Result<()> {
        let known = self.notes.entry(place).or_default();
        known.tried += 1;
        let version = known.tried;
        let record = place.record(self.seed, version);
        let path = self.mount.join(place.file());
        match place.kind {
            Kind::Log | Kind::Slots => {
                let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
                file.write_all_at(&record, place.offset(self.seed))?;
                file.sync_all()?;
            }
            Kind::Small => {
                let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
                file.write_all_at(&record, 0)?;
                file.sync_all()?;
            }
            Kind::Replaced => {
                let temporary = path.with_extension("new");
                let file = OpenOptions::new().create(true).truncate(true).write(true).open(&temporary)?;
                file.write_all_at(&record, 0)?;
                file.sync_all()?;
                fs::rename(&temporary, &path)?;
                File::open(self.mount)?.sync_all()?;
            }
        }
        self.notes.entry(place).or_default().acknowledged = version;
        self.count += 1;
        Ok(())
    }
}
