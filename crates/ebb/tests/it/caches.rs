//! Kernel caches of a file while the mount that writes it, or the one that reads it, is frozen or killed. No program is
//! shown bytes that are older than bytes that were synced, or shown to any program, before.
//!
//! A program reads by read(2), which the kernel answers from its pages; another one has the file mapped, and asks
//! nothing at all (docs/semantics.md, mmap).

use std::fs::{File, OpenOptions};
use std::io::{Read, Result, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::harness::{Cluster, Signal, signal, wait_for};
use crate::watch::StopAtEnd;

/// Pages of the file, each of which has the number of the write at its start.
const PAGES: u64 = 24;
const PAGE: usize = 4096;
const FILE_BYTES: usize = PAGES as usize * PAGE;

/// The knowledge about one page.
#[derive(Default)]
struct Page {
    /// The last number that a write was begun with.
    begun: AtomicU64,
    /// No program may be shown less: fsync acknowledged it, or a program was shown it.
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

    /// The numbers that were shown by one look, which began when `before` could be known.
    fn check_numbers(&self, reader_name: &str, before: &[u64], numbers: &[u64]) {
        for (page, (number, least)) in numbers.iter().zip(before).enumerate() {
            let begun = self.pages[page].begun.load(Ordering::SeqCst);
            if number < least || *number > begun {
                let complaint = format!("{reader_name}: page {page} shows {number}, of {least} to {begun}");
                self.wrong.lock().unwrap().push(complaint);
            }
        }
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
                // The mount is away, or its session has ended: programs get an error in both cases.
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

    /// Reads the file all the time, asks for its attributes, and looks through a mapping of it: that shows no less than a read through
    /// the same mount did before, and never goes back.
    fn read(&self, reader_name: &str, path: &Path, flag: &str) {
        let file = File::open(path).unwrap();
        let mut mapping = Mapping::of(path, flag);
        let (mut bytes, mut mapped) = (vec![0; FILE_BYTES], vec![0; PAGES as usize]);
        while !self.is_over() {
            let before = self.least();
            if let Err(error) = file.read_exact_at(&mut bytes, 0) {
                self.wrong.lock().unwrap().push(format!("{reader_name}: a read fails: {error}"));
                return;
            }
            let shown = numbers_of(&bytes);
            self.check_numbers(reader_name, &before, &shown);
            for (page, number) in self.pages.iter().zip(&shown) {
                page.least.fetch_max(*number, Ordering::SeqCst);
            }
            self.reads.fetch_add(1, Ordering::SeqCst);
            raise(&mut mapped, &shown);
            // While the file is shared, only this finds that its pages are old.
            if let Err(error) = file.metadata() {
                self.wrong.lock().unwrap().push(format!("{reader_name}: fstat fails: {error}"));
                return;
            }
            match mapping.read_numbers() {
                Ok(seen) => {
                    self.check_numbers(&format!("{reader_name}'s mapping"), &mapped, &seen);
                    raise(&mut mapped, &seen);
                    self.looks.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => {
                    self.wrong.lock().unwrap().push(format!("{reader_name}: a mapped page is not there: {error}"));
                    return;
                }
            }
        }
    }

    fn wrong(self) -> Vec<String> {
        self.wrong.into_inner().unwrap()
    }
}

/// Of the pages of the whole file.
fn numbers_of(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(PAGE).map(|page| u64::from_le_bytes(*page.first_chunk().unwrap())).collect()
}

fn raise(least: &mut [u64], by: &[u64]) {
    least.iter_mut().zip(by).for_each(|(least, by)| *least = (*least).max(*by));
}

/// Maps a file, and writes the first eight bytes of every page to its output whenever it is given a byte; a page that
/// cannot be had ends it. The kernel copies the mapping. It reports such a page as an error, where a program that
/// looked itself would be killed.
const LOOK: &str = "
import mmap, os, sys, tempfile
path, page, flag = sys.argv[1], int(sys.argv[2]), getattr(os, sys.argv[3])
mapped = mmap.mmap(os.open(path, flag), 0, prot=mmap.PROT_READ)
with tempfile.TemporaryFile() as copy:
    while os.read(0, 1):
        assert os.pwrite(copy.fileno(), memoryview(mapped), 0) == len(mapped)
        os.write(1, b''.join(os.pread(copy.fileno(), 8, at) for at in range(0, len(mapped), page)))
";

/// A program that has the file mapped, and is another one than the program that reads it.
struct Mapping {
    process: Child,
    ask: ChildStdin,
    answer: ChildStdout,
}

impl Mapping {
    /// `flag`: of the descriptor that is mapped.
    fn of(path: &Path, flag: &str) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", LOOK]).arg(path).args([&PAGE.to_string(), flag]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (ask, answer) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, ask, answer }
    }

    /// The number that each page shows.
    fn read_numbers(&mut self) -> Result<Vec<u64>> {
        self.ask.write_all(b"?")?;
        let mut numbers = [[0; 8]; PAGES as usize];
        self.answer.read_exact(numbers.as_flattened_mut())?;
        Ok(numbers.map(u64::from_le_bytes).to_vec())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
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
        signal(pid, Signal::STOP);
        std::thread::sleep(span);
        signal(pid, Signal::CONT);
    }
}

/// Longer than a session, which ends after four seconds, and than a kernel trusts its cache.
const LONG: Duration = Duration::from_secs(6);
/// Shorter than a session.
const SHORT: Duration = Duration::from_millis(1500);

/// Programs on three mounts, of which one writes and two read and have the file mapped, and the faults of these mounts.
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
        // A mapping of a descriptor that goes around the cache puts pages into it as well.
        for (reader_name, reader, flag) in [("one", &rig.readers[0], "O_RDONLY"), ("two", &rig.readers[1], "O_DIRECT")]
        {
            let (scene, path) = (&scene, reader.join("f"));
            scope.spawn(move || scene.read(reader_name, &path, flag));
        }
        more(&scene);
        befalls(&rig, &scene);
        // After any fault, all of them go on.
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
