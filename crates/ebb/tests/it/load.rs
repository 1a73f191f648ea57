//! A mixed load on files of one mount, and a model of what each file may hold after a crash.
//!
//! The model is the promise of `docs/semantics.md`: data that fsync or a truncate acknowledged are there; of each write
//! since then, each page is there or not, and nothing else is. Without a crash every reader sees all of it.

use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{Dice, pattern};

/// Files of one worker.
const FILES: u64 = 6;
/// Size that files stay below: a few blocks of one metablock.
const SIZE_MAX: u64 = 3 << 20;
/// Where the kernel may cut a write.
const PAGE: u64 = 4096;

/// One change of a file.
#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, data: Vec<u8> },
    Cut { size: u64 },
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { offset, data } => {
                let (start, end) = (*offset as usize, *offset as usize + data.len());
                bytes.resize(bytes.len().max(end), 0);
                bytes[start..end].copy_from_slice(data);
            }
            Self::Cut { size } => bytes.resize(*size as usize, 0),
        }
    }

    /// Bytes that it writes.
    fn range(&self) -> Option<(u64, u64)> {
        match self {
            Self::Write { offset, data } => Some((*offset, offset + data.len() as u64)),
            Self::Cut { .. } => None,
        }
    }

    /// The change as steps that may survive one without the other.
    fn steps(&self) -> Vec<Self> {
        let Self::Write { offset, data } = self else { return vec![self.clone()] };
        let mut steps = Vec::new();
        let mut at = 0;
        while at < data.len() {
            let here = offset + at as u64;
            let end = data.len().min(at + (PAGE - here % PAGE) as usize);
            steps.push(Self::Write { offset: here, data: data[at..end].to_vec() });
            at = end;
        }
        steps
    }
}

/// The knowledge about one file.
#[derive(Debug)]
struct Model {
    name: String,
    /// Held at the last fsync; none: never synced.
    synced: Option<Vec<u8>>,
    /// Since then, in order.
    since: Vec<Change>,
}

impl Model {
    fn now(&self) -> Vec<u8> {
        let mut bytes = self.synced.clone().unwrap_or_default();
        self.since.iter().for_each(|change| change.apply(&mut bytes));
        bytes
    }

    fn is_synced(&mut self) {
        self.synced = Some(self.now());
        self.since.clear();
    }

    /// After a crash: whether `found` is the synced content and any pages of the writes since then. A truncate syncs
    /// earlier writes; one that was not acknowledged is the last change.
    fn allows(&self, found: &[u8]) -> bool {
        if found == self.now() {
            return true;
        }
        let synced = self.synced.clone().unwrap_or_default();
        let steps: Vec<_> = self.since.iter().flat_map(Change::steps).collect();
        let len = found.len() as u64;
        let is_an_end = |step: &Change| step.range().is_some_and(|(_, end)| end == len);
        if len != synced.len() as u64 && !steps.iter().any(is_an_end) {
            return false;
        }
        (0..len.div_ceil(PAGE)).all(|page| {
            let (start, end) = (page * PAGE, len.min((page + 1) * PAGE));
            // One that reaches beyond the end cannot have survived.
            let here: Vec<_> = steps
                .iter()
                .filter(|step| step.range().is_some_and(|(from, to)| from < end && to > start && to <= len))
                .collect();
            allows_page(&synced, &here, found, start as usize, end as usize)
        })
    }

    /// Where `found` differs from the synced content and from the content after each change since then.
    fn explain(&self, found: &[u8]) -> String {
        let mut bytes = self.synced.clone().unwrap_or_default();
        let mut differences = format!("synced: {}\n", differ(found, &bytes));
        for change in &self.since {
            change.apply(&mut bytes);
            let change = match change {
                Change::Write { offset, data } => format!("write of {} bytes at {offset}", data.len()),
                Change::Cut { size } => format!("cut to {size}"),
            };
            differences += &format!("{change}: {}\n", differ(found, &bytes));
        }
        differences
    }
}

/// Whether `start..end` of `found`, a page, comes of `synced` by some of these steps, all within it, in their order.
fn allows_page(synced: &[u8], steps: &[&Change], found: &[u8], start: usize, end: usize) -> bool {
    assert!(steps.len() < 20, "{} writes of one page since the last fsync are too many to try", steps.len());
    let mut before: Vec<u8> = synced.iter().skip(start).take(end - start).copied().collect();
    before.resize(end - start, 0);
    (0..1_u32 << steps.len()).any(|chosen| {
        let mut page = before.clone();
        for (_, step) in steps.iter().enumerate().filter(|(number, _)| chosen >> number & 1 == 1) {
            let Change::Write { offset, data } = step else { continue };
            let at = *offset as usize - start;
            page[at..at + data.len()].copy_from_slice(data);
        }
        page == found[start..end]
    })
}

/// Works on its own files, one operation at a time.
pub struct Worker {
    mount: PathBuf,
    name: String,
    files: Vec<Model>,
    dice: Dice,
    made: u64,
    /// Operations that were acknowledged.
    pub done: u64,
}

impl Worker {
    /// A worker on files that begin with `name`.
    pub fn new(mount: &Path, name: &str, seed: u64) -> Self {
        let dice = Dice::new(seed);
        Self { mount: mount.to_owned(), name: name.to_owned(), files: Vec::new(), dice, made: 0, done: 0 }
    }

    /// Works until it is asked to stop, or until an operation fails.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            self.step().map_err(|error| Error::new(error.kind(), format!("{}: {error}", self.name)))?;
            self.done += 1;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        if (self.files.len() as u64) < FILES {
            return self.make();
        }
        let index = self.dice.below(FILES) as usize;
        match self.dice.below(10) {
            0 => return self.remove(index),
            1 => self.cut(index),
            2..=4 => self.append(index),
            _ => self.overwrite(index),
        }?;
        if self.dice.below(2) == 0 { self.sync(index) } else { Ok(()) }
    }

    fn make(&mut self) -> Result<()> {
        self.made += 1;
        let name = format!("{}-{}", self.name, self.made);
        File::create_new(self.mount.join(&name))?;
        self.files.push(Model { name, synced: Some(Vec::new()), since: Vec::new() });
        let last = self.files.len() - 1;
        self.append(last)?;
        self.sync(last)
    }

    fn open(&self, index: usize) -> Result<File> {
        OpenOptions::new().write(true).open(self.mount.join(&self.files[index].name))
    }

    fn change(&mut self, index: usize, change: Change) -> Result<()> {
        let file = self.open(index)?;
        // A change that failed may have been made all the same.
        self.files[index].since.push(change.clone());
        match change {
            Change::Write { offset, data } => file.write_all_at(&data, offset),
            Change::Cut { size } => file.set_len(size),
        }
    }

    fn append(&mut self, index: usize) -> Result<()> {
        let size = self.files[index].now().len() as u64;
        if size >= SIZE_MAX / 2 {
            return self.cut(index);
        }
        let len = 1 + self.dice.below(200_000);
        let data = pattern(len as usize, self.dice.below(u64::MAX));
        self.change(index, Change::Write { offset: size, data })
    }

    fn overwrite(&mut self, index: usize) -> Result<()> {
        let size = self.files[index].now().len() as u64;
        let offset = self.dice.below(size + 1);
        let len = if self.dice.below(3) == 0 { 1 + self.dice.below(200_000) } else { 1 + self.dice.below(6000) };
        let data = pattern(len as usize, self.dice.below(u64::MAX));
        self.change(index, Change::Write { offset, data })
    }

    fn cut(&mut self, index: usize) -> Result<()> {
        let size = self.dice.below(self.files[index].now().len() as u64 + 1);
        self.change(index, Change::Cut { size })?;
        self.files[index].is_synced();
        Ok(())
    }

    fn sync(&mut self, index: usize) -> Result<()> {
        self.open(index)?.sync_all()?;
        self.files[index].is_synced();
        Ok(())
    }

    fn remove(&mut self, index: usize) -> Result<()> {
        let removed = std::fs::remove_file(self.mount.join(&self.files[index].name));
        // It may be gone although the answer did not come: it is not looked at any more.
        self.files.swap_remove(index);
        removed
    }

    /// Reads all files from `other`: nothing has crashed, so each holds everything that was written.
    pub fn check_all(&self, other: &Path) {
        for model in &self.files {
            let found =
                std::fs::read(other.join(&model.name)).unwrap_or_else(|error| panic!("{}: {error}", model.name));
            assert!(found == model.now(), "{}: not the written content: {}", model.name, differ(&found, &model.now()));
        }
    }

    /// The same after this worker's mount has died; content that is found now must stay.
    pub fn check_after_crash(&mut self, other: &Path) {
        for model in &mut self.files {
            let found =
                std::fs::read(other.join(&model.name)).unwrap_or_else(|error| panic!("{}: {error}", model.name));
            assert!(
                model.allows(&found),
                "{}: not the synced content and pages of the {} changes since:\n{}",
                model.name,
                model.since.len(),
                model.explain(&found)
            );
            model.synced = Some(found);
            model.since.clear();
        }
    }
}

/// Where two files differ, for an error message.
fn differ(found: &[u8], wanted: &[u8]) -> String {
    let differs = |place: &usize| found[*place] != wanted[*place];
    let common = found.len().min(wanted.len());
    let (first, last) = ((0..common).find(differs), (0..common).rev().find(differs));
    let zeros = first.zip(last).is_some_and(|(first, last)| found[first..=last].iter().all(|byte| *byte == 0));
    let zeros = if zeros { ", all zeros" } else { "" };
    format!("{} bytes found, {} wanted, they differ from {first:?} to {last:?}{zeros}", found.len(), wanted.len())
}

#[test]
fn the_model_tells_what_a_crash_may_leave() {
    let mut model = Model { name: "f".into(), synced: Some(vec![b's'; 6000]), since: Vec::new() };
    let write = |offset, byte, len| Change::Write { offset, data: vec![byte; len] };
    model.since = vec![write(0, b'a', 100), write(5000, b'b', 2000), write(50, b'c', 100)];
    let with = |changes: &[Change]| {
        let mut bytes = vec![b's'; 6000];
        changes.iter().for_each(|change| change.apply(&mut bytes));
        bytes
    };
    assert!(model.allows(&with(&[])));
    assert!(model.allows(&model.now()));
    assert!(model.allows(&with(&[write(50, b'c', 100)])), "a later one without an earlier one");
    assert!(model.allows(&with(&[write(5000, b'b', 2000)])));
    assert!(!model.allows(&with(&[write(0, b'a', 50)])), "half of a page of a write");
    assert!(!model.allows(&with(&[write(200, b'x', 1)])), "bytes that were never written");
    assert!(!model.allows(&with(&[write(50, b'c', 100), write(0, b'a', 100)])), "another order");
    assert!(!model.allows(&[b's'; 5999]), "synced bytes are gone");
    assert!(!model.allows(&[b's'; 6001]), "a size that was never set");
    model.since = vec![write(0, b'a', 100), Change::Cut { size: 10 }];
    assert!(model.allows(&[b'a'; 10]));
    assert!(!model.allows(&[b's'; 10]), "a truncate syncs earlier writes");
}
