//! What kernels keep of a file while the mount that writes it, or the one that reads it, is frozen or killed: nobody is shown
//! bytes that are older than what was synced before, or than what somebody was shown before.
//!
//! A program reads by read(2), which the kernel answers from its pages; another one has the file mapped, and asks nobody
//! at all (docs/semantics.md, mmap).

use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::harness::{Cluster, signal, wait_for};
use crate::watch::StopAtEnd;

/// Pages of the file, each of which has the number of the write at its start.
const PAGES: u64 = 24;
const PAGE: usize = 4096;
const FILE_BYTES: usize = PAGES as usize * PAGE;

/// What is known of one page.
#[derive(Default)]
struct Page {
    /// The last number that a write was begun with.
    begun: AtomicU64,
    /// Nobody may be shown less: fsync acknowledged it, or somebody was shown it.
    least: AtomicU64,
}

struct Scene {
    pages: Vec<Page>,
    stop: AtomicBool,
    wrong: Mutex<Vec<String>>,
    writes: AtomicU64,
    reads: AtomicU64,
    looks: AtomicU64,
}

impl Scene {
    fn new() -> Self {
        Self {
            pages: (0..PAGES).map(|_| Page::default()).collect(),
            stop: AtomicBool::new(false),
            wrong: Mutex::default(),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            looks: AtomicU64::new(0),
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn least(&self) -> Vec<u64> {
        self.pages.iter().map(|page| page.least.load(Ordering::SeqCst)).collect()
    }

    /// Of what was shown by one look that began when `before` could be known.
    fn judge(&self, who: &str, before: &[u64], shown: &[u8]) -> Vec<u64> {
        let numbers: Vec<u64> =
            shown.chunks(PAGE).map(|page| u64::from_le_bytes(*page.first_chunk().unwrap())).collect();
        for (page, (number, least)) in numbers.iter().zip(before).enumerate() {
            let begun = self.pages[page].begun.load(Ordering::SeqCst);
            if number < least || *number > begun {
                let what = format!("{who}: page {page} shows {number}, of {least} to {begun}");
                self.wrong.lock().unwrap().push(what);
            }
        }
        numbers
    }

    /// Writes the next number to each page in turn, on a mount that may vanish; opens the file again after each failure.
    fn write(&self, path: &Path) {
        let mut number = 0;
        while !self.is_over() {
            let written = OpenOptions::new().write(true).open(path).and_then(|file| {
                while !self.is_over() {
                    number += 1;
                    self.write_once(&file, number)?;
                }
                Ok(())
            });
            if written.is_err() {
                // The mount is away, or its session has ended: both are told to programs.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn write_once(&self, file: &File, number: u64) -> Result<()> {
        let mut page_bytes = [0; PAGE];
        page_bytes[..8].copy_from_slice(&number.to_le_bytes());
        for (index, page) in self.pages.iter().enumerate() {
            page.begun.store(number, Ordering::SeqCst);
            file.write_all_at(&page_bytes, (index * PAGE) as u64)?;
        }
        file.sync_data()?;
        for page in &self.pages {
            page.least.fetch_max(number, Ordering::SeqCst);
        }
        self.writes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Reads the file all the time, and looks through a mapping of it: that shows no less than a read through the same
    /// mount did before, and never goes back.
    fn read(&self, who: &str, path: &Path) {
        let file = File::open(path).unwrap();
        let mapping = Mapping::of(&file).unwrap();
        let (mut bytes, mut mapped) = (vec![0; FILE_BYTES], vec![0; PAGES as usize]);
        while !self.is_over() {
            let before = self.least();
            if let Err(error) = file.read_exact_at(&mut bytes, 0) {
                self.wrong.lock().unwrap().push(format!("{who}: a read fails: {error}"));
                return;
            }
            let shown = self.judge(who, &before, &bytes);
            for (page, number) in self.pages.iter().zip(&shown) {
                page.least.fetch_max(*number, Ordering::SeqCst);
            }
            self.reads.fetch_add(1, Ordering::SeqCst);
            raise(&mut mapped, &shown);
            match mapping.copy() {
                Ok(bytes) => {
                    let seen = self.judge(&format!("{who}'s mapping"), &mapped, &bytes);
                    raise(&mut mapped, &seen);
                    self.looks.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => self.wrong.lock().unwrap().push(format!("{who}: a mapped page is not there: {error}")),
            }
        }
    }

    fn wrong(self) -> Vec<String> {
        self.wrong.into_inner().unwrap()
    }
}

fn raise(least: &mut [u64], by: &[u64]) {
    least.iter_mut().zip(by).for_each(|(least, by)| *least = (*least).max(*by));
}

/// The file, mapped for reading.
struct Mapping {
    start: *mut std::ffi::c_void,
    /// Takes what the mapping shows: the kernel copies it, and tells of a page that it cannot get, where a program that
    /// looked itself would be killed.
    copy: File,
}

impl Mapping {
    fn of(file: &File) -> Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            mmap(std::ptr::null_mut(), FILE_BYTES, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0)
                .map_err(Error::from)?
        };
        Ok(Self { start, copy: tempfile::tempfile()? })
    }

    fn copy(&self) -> Result<Vec<u8>> {
        // SAFETY: the mapping lives as long as this value. That it changes is what is tried; only the kernel reads it.
        let mapped = unsafe { std::slice::from_raw_parts(self.start.cast::<u8>(), FILE_BYTES) };
        self.copy.write_all_at(mapped, 0)?;
        let mut bytes = vec![0; FILE_BYTES];
        self.copy.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nobody refers to it any more.
        let _ = unsafe { munmap(self.start, FILE_BYTES) };
    }
}

struct Rig {
    cluster: Cluster,
    writer: PathBuf,
    readers: [PathBuf; 2],
}

impl Rig {
    fn up() -> Self {
        let cluster = Cluster::up(3);
        let writer = cluster.mount_as("writer", "w");
        let readers = [cluster.mount_as("one", "r1"), cluster.mount_as("two", "r2")];
        std::fs::write(writer.join("f"), vec![0; FILE_BYTES]).unwrap();
        Self { cluster, writer, readers }
    }

    fn pid(&self, host: &str) -> u32 {
        self.cluster.pid("mount", host)
    }

    fn freeze(&self, host: &str, span: Duration) {
        let pid = self.pid(host);
        signal(pid, "STOP");
        std::thread::sleep(span);
        signal(pid, "CONT");
    }
}

/// Longer than a session, which ends after four seconds, and than a kernel believes what it was told.
const LONG: Duration = Duration::from_secs(6);
/// Shorter than a session.
const SHORT: Duration = Duration::from_millis(1500);

/// Programs on three mounts, of which one writes and two read and have the file mapped, and what befalls these mounts.
fn under(befalls: impl FnOnce(&Rig, &Scene)) {
    let rig = Rig::up();
    let scene = Scene::new();
    std::thread::scope(|scope| {
        let end = StopAtEnd(&scene.stop);
        let path = rig.writer.join("f");
        scope.spawn({
            let scene = &scene;
            move || scene.write(&path)
        });
        for (who, reader) in ["one", "two"].into_iter().zip(&rig.readers) {
            let (scene, path) = (&scene, reader.join("f"));
            scope.spawn(move || scene.read(who, &path));
        }
        more(&scene);
        befalls(&rig, &scene);
        // Whatever happened, all of them go on.
        more(&scene);
        drop(end);
    });
    let counts = [&scene.writes, &scene.reads, &scene.looks].map(|count| count.load(Ordering::SeqCst));
    eprintln!("{} writes, {} reads, {} looks at mappings", counts[0], counts[1], counts[2]);
    let wrong = scene.wrong();
    assert!(wrong.is_empty(), "{} are wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
    rig.cluster.healthy();
}

/// Waits until some more was written and read.
fn more(scene: &Scene) {
    for count in [&scene.writes, &scene.reads, &scene.looks] {
        let before = count.load(Ordering::SeqCst);
        wait_for("more of it", Duration::from_secs(90), || count.load(Ordering::SeqCst) >= before + 5);
    }
}

#[test]
fn readers_see_nothing_old_while_the_writers_mount_is_frozen() {
    under(|rig, scene| {
        rig.freeze("w", SHORT);
        more(scene);
        rig.freeze("w", LONG);
    });
}

#[test]
fn readers_see_nothing_old_when_the_writers_mount_is_killed() {
    under(|rig, scene| {
        for _ in 0..2 {
            rig.cluster.kill(rig.pid("w"));
            rig.cluster.ok(&["mount", "--host", "w", rig.writer.to_str().unwrap()]);
            more(scene);
        }
    });
}

#[test]
fn a_reader_whose_mount_was_frozen_sees_nothing_old() {
    under(|rig, scene| {
        rig.freeze("r1", SHORT);
        more(scene);
        let before = scene.writes.load(Ordering::SeqCst);
        rig.freeze("r2", LONG + LONG);
        assert!(
            scene.writes.load(Ordering::SeqCst) > before,
            "a frozen reader holds the writer up for a session's time only"
        );
    });
}
