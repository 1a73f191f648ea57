//! Disks of several spindles: each is a device of its own, and fails, fills and slows down alone.
//!
//! ```text
//!   /block            identity      first spindle, as all that is under no other directory
//!   /block/volume-1   journal ...   first spindle
//!   /block/volume-2   journal ...   second spindle
//! ```

use std::path::{Path, PathBuf};

use super::Process;
use crate::virt::DiskOptions;
use crate::virt::disk::Restored;

impl Process {
    /// Gives each of these directories a spindle of its own, with the numbers of the disk so far. Requests to different
    /// spindles go side by side, and a file has the rate of one. What lies in none of the directories is on the first
    /// spindle. The directories are there from now on. The disk must have no files yet, and no directory may lie in
    /// another.
    pub fn split_disk(&self, directories: &[impl AsRef<Path>]) {
        let directories: Vec<PathBuf> = directories.iter().map(|path| path.as_ref().to_owned()).collect();
        assert!(directories.iter().all(|path| path.is_absolute()), "no process has a working directory here");
        self.0.disk.split(directories);
    }

    /// The spindle that a path leads to: the whole disk, unless it was split.
    #[must_use]
    pub fn spindle(&self, path: &Path) -> Spindle {
        Spindle { process: self.clone(), index: self.0.disk.spindle_of(path) }
    }
}

/// A spindle of a process's disk. What is done to it befalls no other one. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spindle {
    process: Process,
    index: usize,
}

impl Spindle {
    /// Its present numbers.
    #[must_use]
    pub fn options(&self) -> DiskOptions {
        self.process.0.disk.options(self.index)
    }

    /// Changes its numbers, as [`Process::set_disk_options`] does.
    pub fn set_options(&self, options: DiskOptions) {
        self.process.0.disk.set_options(self.index, options);
    }

    /// Makes everything on it take this many times as long; 1 is normal.
    pub fn slow(&self, factor: f64) {
        assert!(factor > 0.0, "time does not go backwards");
        self.process.0.disk.set_slowness(self.index, factor);
        if factor > 1.0 {
            self.process.fault("slow_spindle");
        }
    }

    /// It fails until [`Spindle::restore`]: whatever is done with its files and directories ends with an I/O error, also
    /// what was begun before. Unsynced changes are lost, kept or torn as in a power cut.
    pub fn fail(&self) {
        if self.process.0.disk.fail_spindle(self.index) {
            self.process.fault("spindle_failed");
        }
    }

    /// It is there again; nothing happens if it has not failed. Files that were opened before the failure, directories
    /// that were locked, and work that was begun stay lost, as after a new mount. Others find what is on it.
    pub fn restore(&self, restored: Restored) {
        if self.process.0.disk.restore_spindle(self.index, restored) {
            let (world, index) = (&self.process.0.world, self.index as u64);
            world.trace().event(
                world.executor().now_ns(),
                "spindle_restored",
                &[index],
                self.process.name().as_bytes(),
            );
        }
    }

    /// Something else fills it, as [`Process::fill_disk`] says.
    pub fn fill(&self, free_bytes: Option<u64>) {
        self.process.0.disk.fill(self.index, free_bytes);
        if free_bytes.is_some() {
            self.process.fault("spindle_filled");
        }
    }
}
