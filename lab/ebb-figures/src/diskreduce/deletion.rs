//! D4: half of the files are removed. What stays on the disks for its neighbours' sake, and what it costs to get rid of it.
//!
//! I/O follows from the records: a RAID set that is made anew reads each of its slots and writes its rows.

use std::collections::BTreeSet;
use std::time::Duration;

use ebb_plan::{Cell, Comparison, Section, Table};
use ebb_runtime::virt::Dice;
use ebb_types::{RaidCode, Result};
use ebb_wire::pb;

use super::losses::trailer_bytes;
use super::store::{Shape, Store, Written, on};
use crate::part::Lab;

pub const SOURCES: &[&str] = &["D4"];

const NODES: [u32; 2] = [40, 14];
const CODE: RaidCode = RaidCode::RAID6;
const METABLOCK: u64 = 64 << 10;
/// Files of a metablock each in a directory: a RAID set.
const PER_DIRECTORY: usize = 8;
/// Between two files that are removed one after the other: a RAID set is made in less.
const STEP: Duration = Duration::from_secs(8);
/// Time for some files to become old together.
const DELAY: Duration = Duration::from_secs(64);
/// Nothing changes any more after so long.
const QUIET: Duration = Duration::from_secs(200);

/// Which files go, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Removal {
    /// Whole directories.
    Directories,
    /// Any files, all at once.
    AtOnce,
    /// The same, while one disk is nearly full: then a quarter of dead slots is enough.
    AtOnceTight,
    /// Any files, one after the other.
    OneByOne,
    /// The same, with a new file for each.
    Replaced,
}

impl Removal {
    const ALL: [Self; 5] = [Self::Directories, Self::AtOnce, Self::AtOnceTight, Self::OneByOne, Self::Replaced];

    const fn name(self) -> &'static str {
        match self {
            Self::Directories => "half of the directories",
            Self::AtOnce => "half of the files, by lot, at once",
            Self::AtOnceTight => "the same, with a disk nearly full",
            Self::OneByOne => "half of the files, by lot, one after the other",
            Self::Replaced => "as many files, by lot, one after the other, each replaced by a new one",
        }
    }

    /// Dead slots of eight with which a RAID set is repacked.
    const fn threshold(self) -> usize {
        if matches!(self, Self::AtOnceTight) { 2 } else { 4 }
    }
}

/// What was done, by the records. Trailers are left out.
#[derive(Clone, PartialEq, Debug, Default)]
struct Seen {
    /// Removed, in metablocks.
    removed: u64,
    /// Dead slots of each of the first RAID sets, when all had been removed.
    dead_slots: Vec<usize>,
    /// Ballast at rest, as a share of what lives.
    dead: f64,
    /// Metablocks read and written by repacking.
    io: f64,
    /// Metablocks of ballast and rows that are gone.
    reclaimed: f64,
    /// Living slots of a RAID set that was made anew, on average.
    slots_of_new: f64,
    /// Stored beside what lives, as a share of it: on average while files were removed, and at rest.
    beside: [f64; 2],
}

/// RAID sets as they come, each counted once.
#[derive(Default)]
struct Log {
    known: BTreeSet<u64>,
    /// Slots of any of them so far.
    metablocks: BTreeSet<u64>,
    /// Bytes read and written for slots that were in another RAID set before. Rows count by the part of such slots.
    io_bytes: f64,
    /// Number of such RAID sets, and their slots.
    repacked: (usize, usize),
}

impl Log {
    /// Counts those that are new.
    fn add(&mut self, sets: &[pb::RaidSet]) {
        for set in sets.iter().filter(|set| self.known.insert(set.id)) {
            let again: Vec<u64> = set
                .slots
                .iter()
                .filter(|slot| self.metablocks.contains(&slot.metablock))
                .map(|slot| slot.length)
                .collect();
            let bytes = |lengths: &mut dyn Iterator<Item = u64>| lengths.sum::<u64>() as f64;
            let (read, all) = (bytes(&mut again.iter().copied()), bytes(&mut set.slots.iter().map(|slot| slot.length)));
            self.io_bytes += read + rows_of(set) as f64 * read / all;
            if !again.is_empty() {
                self.repacked = (self.repacked.0 + 1, self.repacked.1 + set.slots.len());
            }
            self.metablocks.extend(set.slots.iter().map(|slot| slot.metablock));
        }
    }
}

/// Bytes of the rows without their trailers.
fn rows_of(set: &pb::RaidSet) -> u64 {
    set.rows.iter().map(|row| row.length).sum::<u64>() - trailer_bytes(std::slice::from_ref(set))
}

/// Stored beside what lives, as a share of it.
async fn beside(store: &Store, sets: &[pb::RaidSet]) -> Result<f64> {
    let stored = store.totals().await?.stored_bytes - trailer_bytes(sets);
    Ok(stored as f64 / store.user_bytes() as f64 - 1.0)
}

fn run(seed: u64, nodes: u32, directories: usize, removal: Removal) -> Result<Seen> {
    let shape = Shape { delay: DELAY, ..Shape::of(nodes, CODE, METABLOCK) };
    on(seed, shape, |mut store| async move {
        let root = store.make_dataset("old", Some(CODE)).await?;
        for number in 0..directories {
            let directory = store.make_dir(root, &format!("d{number}")).await?;
            for _ in 0..PER_DIRECTORY {
                store.write(directory, METABLOCK).await?;
            }
        }
        store.wait_until_encoded().await?;
        let before = store.raid_sets().await?;
        let mut log = Log::default();
        log.add(&before);
        if removal == Removal::AtOnceTight {
            let node = store.nodes().await?[0];
            store.cluster.fill_disk(node, Some(1 << 30))?;
            store.world.sleep(Duration::from_secs(5)).await;
        }
        let doomed = choose(&store, seed, removal);
        let gone: BTreeSet<u64> = doomed.iter().map(|file| file.inode.raw()).collect();
        let dead = |set: &pb::RaidSet| set.slots.iter().filter(|slot| gone.contains(&slot.inode)).count();
        let dead_slots = before.iter().map(dead).collect();
        let seen = Seen { removed: doomed.len() as u64, dead_slots, ..Seen::default() };
        let is_slow = matches!(removal, Removal::OneByOne | Removal::Replaced);
        let mut samples = Vec::new();
        for file in doomed {
            store.remove(file).await?;
            if removal == Removal::Replaced {
                store.write(file.directory, METABLOCK).await?;
            }
            if is_slow {
                store.world.sleep(STEP).await;
                let sets = store.raid_sets().await?;
                log.add(&sets);
                samples.push(beside(&store, &sets).await?);
            }
        }
        let mut quiet = store.world.now();
        while store.world.now() - quiet < QUIET {
            let known = log.known.len();
            store.world.sleep(Duration::from_secs(1)).await;
            log.add(&store.raid_sets().await?);
            if log.known.len() != known {
                quiet = store.world.now();
            }
        }
        account(&store, seen, (&before, &log), &samples).await
    })
}

/// Which files go, in their order.
fn choose(store: &Store, seed: u64, removal: Removal) -> Vec<Written> {
    let mut files = store.files.clone();
    let mut dice = Dice::new(seed, "files to remove");
    let half = files.len() / 2;
    if removal == Removal::Directories {
        let mut directories: Vec<Vec<Written>> = files.chunks(PER_DIRECTORY).map(<[_]>::to_vec).collect();
        dice.shuffle(&mut directories);
        return directories.into_iter().flatten().take(half).collect();
    }
    dice.shuffle(&mut files);
    files.truncate(half);
    files
}

async fn account(
    store: &Store,
    mut seen: Seen,
    (before, log): (&[pb::RaidSet], &Log),
    samples: &[f64],
) -> Result<Seen> {
    let sets = store.raid_sets().await?;
    let in_metablocks = |bytes: u64| bytes as f64 / METABLOCK as f64;
    let rows = |sets: &[pb::RaidSet]| sets.iter().map(rows_of).sum::<u64>();
    let totals = store.totals().await?;
    seen.io = log.io_bytes / METABLOCK as f64;
    seen.slots_of_new = log.repacked.1 as f64 / log.repacked.0 as f64;
    seen.dead = totals.dead_bytes as f64 / store.user_bytes() as f64;
    let ballast_gone = seen.removed as f64 - in_metablocks(totals.dead_bytes);
    seen.reclaimed = ballast_gone + in_metablocks(rows(before)) - in_metablocks(rows(&sets));
    let at_rest = beside(store, &sets).await?;
    let mean = samples.iter().sum::<f64>() / samples.len().max(1) as f64;
    seen.beside = [if samples.is_empty() { at_rest } else { mean }, at_rest];
    Ok(seen)
}

/// Closed forms for full RAID sets of eight and two of which so many slots each are dead: ballast at rest as a share of
/// what lives, and I/O for each metablock reclaimed. A RAID set with `d` dead slots reads `8 - d` and writes as many
/// eighths of two rows; it gives back `d` and as many eighths of two rows.
fn closed(dead_slots: &[usize], threshold: usize) -> (f64, f64) {
    let (mut kept, mut live, mut io, mut reclaimed) = (0, 0, 0.0, 0.0);
    for dead in dead_slots {
        live += PER_DIRECTORY - dead;
        if *dead < threshold {
            kept += dead;
            continue;
        }
        io += (PER_DIRECTORY - dead) as f64;
        reclaimed += *dead as f64;
    }
    (kept as f64 / live as f64, if reclaimed > 0.0 { io / reclaimed } else { 0.0 })
}

/// The same for a store in which files die all the time: stored beside what lives in the mean, and I/O for each death. A
/// slot dies as often as any other, so a RAID set with `n` living ones stays so for a time as `1 / n`.
fn steady(threshold: usize) -> (f64, f64) {
    let (slots, rows) = (f64::from(CODE.slots), f64::from(CODE.rows));
    let threshold = threshold as f64;
    let mut spans = 0.0;
    let mut live = slots;
    while live > slots - threshold {
        spans += 1.0 / live;
        live -= 1.0;
    }
    let mean_live = threshold / spans;
    ((slots + rows) / mean_live - 1.0, (slots - threshold) * (1.0 + rows / slots) / threshold)
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let directories = lab.effort.of(24, 8);
    // Few nodes are an experiment, for a reason: what lives of two RAID sets goes together if it lies on different nodes.
    let cases: Vec<(u32, Removal)> =
        NODES.iter().flat_map(|nodes| Removal::ALL.map(|removal| (*nodes, removal))).collect();
    let all = lab.map(&cases, |(nodes, removal)| run(lab.seed, *nodes, directories, *removal))?;
    let mut section = Section::new("", &[]);
    let (many, few) = all.split_at(Removal::ALL.len());
    for ((removal, seen), few) in Removal::ALL.into_iter().zip(many).zip(few) {
        match removal {
            Removal::Directories | Removal::AtOnce | Removal::AtOnceTight => at_once(&mut section, removal, seen, few),
            Removal::OneByOne | Removal::Replaced => one_by_one(&mut section, removal, seen),
        }
    }
    section.tables.push(table(&cases, &all));
    Ok(section)
}

fn at_once(section: &mut Section, removal: Removal, seen: &Seen, few: &Seen) {
    let (dead, io) = closed(&seen.dead_slots, removal.threshold());
    let what = format!("{} removed, threshold {} of 8", removal.name(), removal.threshold());
    let why = format!(
        "Beside it the closed form for full RAID sets with these deaths. RAID sets made anew have {:.1} of 8 slots, on {} nodes {:.1}.",
        seen.slots_of_new, NODES[1], few.slots_of_new
    );
    let why = if seen.io == 0.0 {
        "RAID sets of one directory die as a whole: nothing is read or written.".to_owned()
    } else {
        why
    };
    section.rows.push(
        Comparison::new(
            "D4",
            format!("{what}: dead bytes at rest, of those that live"),
            Cell::Share(dead, 1),
            Cell::Share(seen.dead, 1),
            why.clone(),
        )
        .bound(seen.dead <= dead + 0.02),
    );
    let ours = if seen.reclaimed > 0.0 { seen.io / seen.reclaimed } else { 0.0 };
    section.rows.push(
        Comparison::new(
            "D4",
            format!("{what}: bytes read and written for each one reclaimed"),
            Cell::Number(io, 2),
            Cell::Number(ours, 2),
            why,
        )
        .bound(ours <= io + 0.1),
    );
}

fn one_by_one(section: &mut Section, removal: Removal, seen: &Seen) {
    let (beside, io) = steady(removal.threshold());
    let what = removal.name();
    let why = format!(
        "The closed form has each RAID set full when it is made. Here those made after the first have {:.1} of 8 slots: what is due is \
         repacked with whatever else is due at that moment.",
        seen.slots_of_new
    );
    section.rows.push(
        Comparison::new(
            "D4",
            format!("{what}: stored beside what lives, mean"),
            Cell::Share(beside, 0),
            Cell::Share(seen.beside[0], 0),
            why.clone(),
        )
        .bound(seen.beside[0] <= beside + 0.05),
    );
    let ours = seen.io / seen.removed as f64;
    section.rows.push(
        Comparison::new(
            "D4",
            format!("{what}: metablocks read and written for each file"),
            Cell::Number(io, 2),
            Cell::Number(ours, 2),
            why,
        )
        .bound(ours <= io + 0.25),
    );
}

fn table(cases: &[(u32, Removal)], all: &[Seen]) -> Table {
    let columns = [
        ("nodes", "nodes"),
        ("removed", "removed"),
        ("dead", "dead, of what lives"),
        ("io", "metablocks read and written"),
        ("reclaimed", "metablocks reclaimed"),
        ("slots", "slots of a new RAID set"),
        ("mean", "stored beside what lives, mean"),
        ("rest", "at rest"),
    ];
    let mut table = Table::new("D4: half of the files removed", &columns);
    for ((nodes, removal), seen) in cases.iter().zip(all) {
        table.row(vec![
            Cell::Count(u64::from(*nodes)),
            Cell::text(removal.name()),
            Cell::Share(seen.dead, 1),
            Cell::Number(seen.io, 1),
            Cell::Number(seen.reclaimed, 1),
            Cell::number(seen.slots_of_new.is_finite().then_some(seen.slots_of_new), 1),
            Cell::Share(seen.beside[0], 1),
            Cell::Share(seen.beside[1], 1),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_forms_are_those_of_the_design() {
        let io = |dead: usize| closed(&[dead], 1).1;
        let rounded = [1, 2, 3, 4, 6].map(|dead| (io(dead) * 10.0).round() / 10.0);
        assert_eq!(rounded, [7.0, 3.0, 1.7, 1.0, 0.3]);
        let (half, quarter) = (steady(4), steady(2));
        assert_eq!([half.0, quarter.0].map(|share| (share * 100.0).round()), [59.0, 34.0]);
        assert_eq!((half.1, quarter.1), (1.25, 3.75));
    }

    #[test]
    fn directories_cost_nothing_and_scattered_files_are_repacked() {
        let seen = run(4, 40, 4, Removal::Directories).unwrap();
        assert_eq!((seen.dead, seen.io, seen.reclaimed), (0.0, 0.0, 20.0), "{seen:?}");
        let seen = run(4, 40, 4, Removal::AtOnce).unwrap();
        assert!(seen.io > 0.0 && seen.dead <= closed(&seen.dead_slots, 4).0 + 1e-9, "{seen:?}");
    }
}
