//! Many small files in a few directories, by one or many threads.

use std::fs::{File, OpenOptions};
use std::io::{Read, Result, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Directories that files are dealt to.
const DIRECTORIES: u64 = 16;

/// Files of one size below a directory of their own.
pub struct Files {
    root: PathBuf,
    count: u64,
    threads: u64,
    content: Vec<u8>,
}

/// The operation on each file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Make, write, close.
    Create,
    /// Make, write, fsync, close.
    CreateSync,
    /// Attributes.
    Stat,
    /// Open, read, close.
    Read,
    /// Remove.
    Unlink,
}

impl Files {
    /// `count` files of `bytes` bytes; their directories are made.
    pub fn new(root: &Path, count: u64, threads: u64, bytes: usize) -> Result<Self> {
        let root = root.join(format!("files-{threads}-{bytes}"));
        for directory in 0..DIRECTORIES {
            std::fs::create_dir_all(root.join(format!("d{directory}")))?;
        }
        Ok(Self { root, count, threads, content: (0..bytes).map(|at| ((at * 13) >> 2) as u8).collect() })
    }

    /// Files a second.
    pub fn run(&self, act: Act) -> Result<f64> {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let worker = |first| {
                let mut own = (first..self.count).step_by(self.threads as usize);
                scope.spawn(move || own.try_for_each(|number| self.act(act, number)))
            };
            let workers: Vec<_> = (0..self.threads).map(worker).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a thread that only measures"))
        })?;
        Ok(self.count as f64 / begun.elapsed().as_secs_f64())
    }

    /// Entries a second, of all directories once.
    pub fn list(&self) -> Result<f64> {
        let begun = Instant::now();
        let mut entries = 0;
        for directory in std::fs::read_dir(&self.root)? {
            entries += std::fs::read_dir(directory?.path())?.count();
        }
        Ok(entries as f64 / begun.elapsed().as_secs_f64())
    }

    /// Removes the remaining files.
    pub fn remove(self) -> Result<()> {
        std::fs::remove_dir_all(&self.root)
    }

    fn act(&self, act: Act, number: u64) -> Result<()> {
        let path = self.root.join(format!("d{}/f{number}", number % DIRECTORIES));
        match act {
            Act::Create | Act::CreateSync => {
                let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
                file.write_all(&self.content)?;
                if act == Act::CreateSync { file.sync_all() } else { Ok(()) }
            }
            Act::Stat => std::fs::symlink_metadata(path).map(drop),
            Act::Read => {
                let mut content = vec![0; self.content.len()];
                File::open(path)?.read_exact(&mut content)
            }
            Act::Unlink => std::fs::remove_file(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Scratch;

    #[test]
    fn every_file_has_its_turn() {
        let scratch = Scratch::new("files").unwrap();
        let files = Files::new(&scratch.0, 50, 8, 100).unwrap();
        for act in [Act::CreateSync, Act::Stat, Act::Read] {
            assert!(files.run(act).unwrap() > 0.0);
        }
        assert!(files.list().unwrap() > 0.0);
        let there = |number: u64| files.root.join(format!("d{}/f{number}", number % DIRECTORIES));
        assert!((0..50).all(|number| std::fs::metadata(there(number)).unwrap().len() == 100));
        files.run(Act::Unlink).unwrap();
        assert!(files.run(Act::Stat).is_err(), "they are gone");
        files.remove().unwrap();
        std::fs::remove_dir(&scratch.0).unwrap();
    }
}
