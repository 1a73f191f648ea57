//! A mixed load on files of one mount, and a model of what each file may hold after a crash.
//!
//! The model is the promise of `docs/semantics.md`: what fsync acknowledged is there; of what was written since, a
//! prefix is (within one metablock later writes do not survive earlier ones), cut at a page at the finest. Without a
//! crash every reader sees all of it.

use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{Dice, pattern};

/// Files of one worker.
const FILES: u64 = 6;
/// Size that files stay below: one metablock, whose writes survive in order.
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

    /// The same as steps that may survive one without the next.
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

/// What is known of one file.
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

    /// After a crash: whether `found` is what was synced and a prefix of what came then.
    fn allows(&self, found: &[u8]) -> bool {
        let mut bytes = self.synced.clone().unwrap_or_default();
        if bytes == found {
            return true;
        }
        self.since.iter().flat_map(Change::steps).any(|step| {
            step.apply(&mut bytes);
            bytes == found
        })
    }
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

    /// Works until told to stop, or until an operation fails.
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
        self.change(index, Change::Cut { size })
    }

    fn sync(&mut self, index: usize) -> Result<()> {
        self.open(index)?.sync_all()?;
        let model = &mut self.files[index];
        model.synced = Some(model.now());
        model.since.clear();
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
            assert!(found == model.now(), "{}: not what was written: {}", model.name, differ(&found, &model.now()));
        }
    }

    /// The same after this worker's mount has died; what is found now must stay.
    pub fn check_after_crash(&mut self, other: &Path) {
        for model in &mut self.files {
            let found =
                std::fs::read(other.join(&model.name)).unwrap_or_else(|error| panic!("{}: {error}", model.name));
            let synced = model.synced.clone().unwrap_or_default();
            assert!(
                model.allows(&found),
                "{}: neither what was synced nor a prefix of the {} changes since: {}",
                model.name,
                model.since.len(),
                differ(&found, &synced)
            );
            model.synced = Some(found);
            model.since.clear();
        }
    }
}

/// Where two files differ, for an error message.
fn differ(found: &[u8], wanted: &[u8]) -> String {
    let first = found.iter().zip(wanted).position(|(a, b)| a != b);
    format!("{} bytes found, {} wanted, first difference at {first:?}", found.len(), wanted.len())
}
