//! The devices of a disk, and which files lie on which.

use std::ops::{Index, IndexMut, Range};
use std::path::{Path, PathBuf};

use super::VirtualDisk;
use super::medium::Medium;
use crate::virt::DiskOptions;

/// Devices by their index. There is at least one.
pub(super) struct Spindles {
    /// What each one is mounted on. None: there is one for everything.
    directories: Vec<PathBuf>,
    media: Vec<Medium>,
}

impl Spindles {
    /// One for everything.
    pub(super) fn one(options: DiskOptions) -> Self {
        Self { directories: Vec::new(), media: vec![Medium::new(options)] }
    }

    /// As many like the first one as there are directories, or one if there are none.
    pub(super) fn split(&mut self, directories: Vec<PathBuf>) {
        let is_apart = |one: &PathBuf| directories.iter().filter(|other| other.starts_with(one)).count() == 1;
        assert!(directories.iter().all(is_apart), "a directory of {directories:?} lies in another one");
        self.media = vec![Medium::new(self.media[0].options); directories.len().max(1)];
        self.directories = directories;
    }

    /// The one that a path leads to. A path outside of all directories leads to the first.
    pub(super) fn index_of(&self, path: &Path) -> usize {
        self.directories.iter().position(|directory| path.starts_with(directory)).unwrap_or(0)
    }

    /// Whether it is a directory that a spindle is mounted on, or one that leads there.
    pub(super) fn leads_to_mount(&self, path: &Path) -> bool {
        self.directories.iter().any(|directory| directory.starts_with(path))
    }

    pub(super) fn count(&self) -> usize {
        self.media.len()
    }

    /// The number of the file system on one, as [`crate::Space::device`] tells it, in the process of this name.
    pub(super) fn device(name: &str, index: usize) -> u64 {
        let mixed = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        // Each process has a disk of its own.
        let first = name.bytes().fold(0xcbf2_9ce4_8422_2325, mixed);
        // A separator that no name has: spindle 1 of "h" is not the disk of "h1".
        let suffix = if index == 0 { String::new() } else { format!("\n{index}") };
        suffix.bytes().fold(first, mixed).max(1)
    }
}

impl Index<usize> for Spindles {
    type Output = Medium;

    fn index(&self, index: usize) -> &Medium {
        &self.media[index]
    }
}

impl IndexMut<usize> for Spindles {
    fn index_mut(&mut self, index: usize) -> &mut Medium {
        &mut self.media[index]
    }
}

impl VirtualDisk {
    /// Gives each of these directories a spindle of its own, like the one that there is.
    pub(in crate::virt) fn split(&self, directories: Vec<PathBuf>) {
        let mut state = self.state.lock();
        assert!(state.inodes.is_empty(), "the files on a disk stay where they are: it is split before there are any");
        for directory in &directories {
            state.names.create_dir_all(directory).expect("without files every name is that of a directory");
        }
        state.spindles.split(directories);
    }

    /// The indexes of all spindles.
    pub(in crate::virt) fn spindles(&self) -> Range<usize> {
        0..self.state.lock().spindles.count()
    }

    /// The spindle that a path leads to.
    pub(in crate::virt) fn spindle_of(&self, path: &Path) -> usize {
        self.state.lock().spindles.index_of(path)
    }

    pub(in crate::virt) fn options(&self, spindle: usize) -> DiskOptions {
        self.state.lock().spindles[spindle].options
    }

    pub(in crate::virt) fn set_options(&self, spindle: usize, options: DiskOptions) {
        self.state.lock().spindles[spindle].options = options;
    }

    pub(in crate::virt) fn set_slowness(&self, spindle: usize, factor: f64) {
        self.state.lock().spindles[spindle].slowness = factor;
    }

    /// Something else takes space until so many bytes are free; none: it takes nothing.
    pub(in crate::virt) fn fill(&self, spindle: usize, free_bytes: Option<u64>) {
        let mut state = self.state.lock();
        let files_bytes = state.files_bytes(spindle);
        state.spindles[spindle].fill(files_bytes, free_bytes);
    }
}
