//! Programs that use a few names of one directory as editors, databases and package managers do: they replace by
//! rename, make exclusively by O_EXCL and by link, move, exchange, remove, look, list and read whole files. Each
//! records the answers for [`ebb_virtual::names::check`].

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use ebb_virtual::names::check::{Verdict, check};
use ebb_virtual::names::{Answer, Directory, File as Content, NAMES_MAX, Name, Operation, Record};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::harness::Dice;

/// Names that programs meet at.
const NAMES: usize = 5;
/// A file's contents are its number, so often at most.
const LINES_MAX: u32 = 40;
/// Bytes of a line.
const LINE: usize = 9;
/// A call that failed so long ago is not carried out any more: its session has ended, and no call has such a deadline.
const GIVEN_UP_NS: u64 = 120_000_000_000;

/// The state that all programs of a run share.
pub struct Run {
    epoch: Instant,
    /// By program, where it works: the programs of one mount have the same directory.
    mounts: Mutex<Vec<PathBuf>>,
    next: AtomicU32,
    left: AtomicU64,
    /// Programs end when it is set.
    pub stop: AtomicBool,
    records: Mutex<Vec<Record>>,
    complaints: Mutex<Vec<String>>,
    /// Files that were found empty, with the stat of their handles. Printed for a file that should have been full.
    empty: Mutex<Vec<String>>,
}

/// One program: a thread that works in a directory by one mount.
struct Program<'a> {
    run: &'a Run,
    number: usize,
    shared: PathBuf,
    /// Where it makes files before it names them: beside the names, or in a directory of its own.
    makes_in: PathBuf,
    /// All programs use one mount.
    exchanges: bool,
    /// The file that it has just read as empty.
    empty: Option<File>,
    dice: Dice,
}

impl Run {
    /// Programs that do so many operations together.
    pub fn of(operations: u64) -> Self {
        Self {
            epoch: Instant::now(),
            mounts: Mutex::default(),
            next: AtomicU32::new(1),
            left: AtomicU64::new(operations),
            stop: AtomicBool::new(false),
            records: Mutex::default(),
            complaints: Mutex::default(),
            empty: Mutex::default(),
        }
    }

    /// Has a program for each of these paths of the one directory work until all operations are done.
    pub fn work(&self, paths: &[PathBuf], seed: u64) {
        *self.mounts.lock().unwrap() = paths.to_vec();
        let exchanges = paths.iter().all(|path| *path == paths[0]);
        std::thread::scope(|scope| {
            for (number, path) in paths.iter().enumerate() {
                let own = path.join(format!(".own{number}"));
                fs::create_dir_all(&own).unwrap();
                let makes_in = if number % 2 == 0 { path.clone() } else { own };
                let dice = Dice::new(seed * 100 + number as u64);
                let mut program =
                    Program { run: self, number, shared: path.clone(), makes_in, exchanges, empty: None, dice };
                scope.spawn(move || program.work());
            }
        });
    }

    /// Fails unless all answers to programs can be explained. Returns the number of operations, and the number of those
    /// without an answer.
    pub fn check_answers(self) -> (usize, usize) {
        let records = self.records.into_inner().unwrap();
        let complaints = self.complaints.into_inner().unwrap();
        let empty = self.empty.into_inner().unwrap();
        let first: Directory = [None; NAMES_MAX];
        let mounts = self.mounts.into_inner().unwrap();
        let verdict = check(first, &promised(records.clone(), &mounts));
        let shown = &complaints[..complaints.len().min(5)];
        assert!(
            complaints.is_empty() && verdict == Verdict::Linear,
            "{} operations, {} complaints: {shown:#?}\n{}",
            records.len(),
            complaints.len(),
            match &verdict {
                Verdict::Linear => "the rest is as it should be".to_owned(),
                Verdict::Illegal(why) | Verdict::Undecided(why) => {
                    // The first line names the operation.
                    let wrong = why.lines().next().unwrap_or_default();
                    let about =
                        empty.iter().find(|complaint| wrong.contains(complaint.split_once(':').expect("a time").0));
                    format!("{why}\n{}", about.map_or("", String::as_str))
                }
            }
        );
        let unknown = records.iter().filter(|record| record.answer == Answer::Unknown).count();
        (records.len(), unknown)
    }

    /// Whether all operations have been begun.
    pub fn is_over(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap()
    }
}

/// The records, weakened to the promises of docs/semantics.md (rename) for kernels that keep names. `mounts`: by
/// program, where it works.
fn promised(mut records: Vec<Record>, mounts: &[PathBuf]) -> Vec<Record> {
    if mounts.iter().all(|mount| *mount == mounts[0]) {
        // One kernel answers all.
        return records;
    }
    records.sort_unstable_by_key(|record| record.start);
    let is_one_mount = |one: &Record, other: &Record| mounts[one.client] == mounts[other.client];
    let shares_name =
        |one: &Record, other: &Record| one.operation.names().any(|name| other.operation.names().any(|own| own == name));
    // The last operation that each program began.
    let mut latest: Vec<Option<Record>> = vec![None; mounts.len()];
    let mut promised = records.clone();
    for (index, record) in records.iter().enumerate() {
        let under_way = latest.iter().flatten().filter(|other| other.end > record.start);
        let later = records[index + 1..].iter().take_while(|other| other.start < record.end);
        let elsewhere = under_way.clone().chain(later).filter(|other| !is_one_mount(other, record));
        let moves = elsewhere.filter_map(|other| match other.operation {
            Operation::Move(from, to) | Operation::MoveNew(from, to) => Some((from, to)),
            _ => None,
        });
        if let Operation::Move(from, to) = record.operation
            && leads(&moves.collect::<Vec<_>>(), from, to)
        {
            // Its kernel may have found one file under both names, and done nothing.
            promised[index].answer = Answer::Unknown;
        } else if !(record.operation.changes() && record.answer == Answer::Done) {
            // An answer that a kernel gives from its names is as old as the oldest change that it has under way there.
            let own = under_way.filter(|other| is_one_mount(other, record) && shares_name(other, record));
            let changes = own.filter(|other| other.operation.changes());
            promised[index].start = changes.map(|other| other.start).fold(record.start, u64::min);
        }
        latest[record.client] = Some(*record);
    }
    promised
}

/// Whether moves may take a file from one name to another, by way of others or not.
fn leads(moves: &[(Name, Name)], from: Name, to: Name) -> bool {
    let mut reached = BTreeSet::from([from]);
    while let Some((_, next)) = moves.iter().find(|(from, to)| reached.contains(from) && !reached.contains(to)) {
        reached.insert(*next);
    }
    reached.contains(&to)
}

/// The content of a file of this number.
fn contents(number: u32) -> Vec<u8> {
    format!("{number:08}\n").repeat((1 + number % LINES_MAX) as usize).into_bytes()
}

/// The file that these bytes are, whole.
fn inspect(bytes: &[u8]) -> Option<Answer> {
    if bytes.is_empty() {
        return Some(Answer::Empty);
    }
    let number = std::str::from_utf8(bytes.get(..LINE - 1)?).ok()?.parse().ok()?;
    (bytes == contents(number)).then_some(Answer::File(Content(number)))
}

fn path_of(directory: &Path, Name(name): Name) -> PathBuf {
    directory.join(format!("n{name}"))
}

impl Program<'_> {
    fn work(&mut self) {
        let take = |left: u64| left.checked_sub(1);
        while !self.run.stop.load(Ordering::Relaxed)
            && self.run.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
        {
            self.step();
        }
    }

    fn step(&mut self) {
        let (one, other) = self.two_names();
        match self.dice.below(100) {
            0..30 => self.do_and_record(Operation::Read(one), |own| own.read(one)),
            30..38 => self.do_and_record(Operation::Look(one), |own| own.stat(one)),
            38..43 => self.list(),
            // The first name is there always, once it is: it is only replaced.
            43..50 => self.put(Name(0)),
            50..65 => self.put(one),
            65..72 => self.link(other),
            72..76 => self.put_new(other),
            76..82 => self.make(other),
            82..90 => self
                .do_and_record(Operation::Unlink(other), |own| fs::remove_file(path_of(&own.shared, other)).map(done)),
            90..94 if one != Name(0) => self.rename(Operation::Move(one, other), one, other, RenameFlags::empty()),
            94..97 if one != Name(0) => {
                self.rename(Operation::MoveNew(one, other), one, other, RenameFlags::NOREPLACE);
            }
            // Two names that another mount exchanges may look like one file's to a kernel, which then does nothing
            // (docs/semantics.md, Names).
            _ if !self.exchanges => self.do_and_record(Operation::Read(other), |own| own.read(other)),
            _ => self.rename(Operation::Exchange(one, other), one, other, RenameFlags::EXCHANGE),
        }
    }

    /// Any name, and another one that is not the first.
    fn two_names(&mut self) -> (Name, Name) {
        let one = self.dice.below(NAMES as u64) as usize;
        let other = 1 + self.dice.below(NAMES as u64 - 1) as usize;
        if one == other { (Name(one), Name(1 + other % (NAMES - 1))) } else { (Name(one), Name(other)) }
    }

    /// Does it, and records it with times around it.
    fn do_and_record(&mut self, operation: Operation, work: impl FnOnce(&mut Self) -> Result<Answer>) {
        let start = self.run.now();
        let result = work(self);
        let mut end = self.run.now();
        let answer = match &result {
            Ok(answer) => *answer,
            Err(error) => match error.kind() {
                ErrorKind::NotFound => Answer::Missing,
                ErrorKind::AlreadyExists => Answer::Exists,
                ErrorKind::StaleNetworkFileHandle | ErrorKind::InvalidData => {
                    self.complain(format!("program {}: {operation:?}: {error}, at {} us", self.number, end / 1000));
                    Answer::Unknown
                }
                _ => Answer::Unknown,
            },
        };
        if answer == Answer::Unknown {
            end += GIVEN_UP_NS;
        }
        self.run.records.lock().unwrap().push(Record { client: self.number, operation, answer, start, end });
        if let Some(file) = self.empty.take() {
            self.look_again(end, file);
        }
    }

    fn complain(&self, complaint: String) {
        self.run.complaints.lock().unwrap().push(complaint);
    }

    fn read(&mut self, name: Name) -> Result<Answer> {
        let mut bytes = Vec::new();
        let mut file = File::open(path_of(&self.shared, name))?;
        file.read_to_end(&mut bytes)?;
        self.empty = Some(file).filter(|_| bytes.is_empty());
        inspect(&bytes).ok_or_else(|| {
            let (len, start) = (bytes.len(), String::from_utf8_lossy(&bytes[..bytes.len().min(40)]));
            Error::new(ErrorKind::InvalidData, format!("{len} bytes that are no file: {start:?}"))
        })
    }

    /// Records the stat of a file's handle that was found empty, and whether the file stays empty.
    fn look_again(&self, end: u64, mut file: File) {
        let stat = file.metadata().map(|stat| (stat.ino(), stat.len(), stat.nlink()));
        let again = file.read_to_end(&mut Vec::new());
        let program = self.number;
        let complaint = format!(
            "to {} us: program {program}: inode, length and names of the empty file: {stat:?}; bytes at a second read: {again:?}",
            end / 1000
        );
        self.run.empty.lock().unwrap().push(complaint);
    }

    fn stat(&self, name: Name) -> Result<Answer> {
        fs::metadata(path_of(&self.shared, name)).map(|_| Answer::Done)
    }

    /// For each name a listing shows whether it was there at some time meanwhile; not all at one moment.
    fn list(&mut self) {
        let start = self.run.now();
        let Ok(names) = self.names() else { return };
        let end = self.run.now();
        let records = (0..NAMES).map(|name| Record {
            client: self.number,
            operation: Operation::Look(Name(name)),
            answer: if names.contains(&name) { Answer::Done } else { Answer::Missing },
            start,
            end,
        });
        self.run.records.lock().unwrap().extend(records);
    }

    fn names(&self) -> Result<BTreeSet<usize>> {
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(&self.shared)? {
            let entry = entry?.file_name();
            names.extend(entry.to_str().and_then(|name| name.strip_prefix('n')?.parse::<usize>().ok()));
        }
        Ok(names)
    }

    /// A synced file that no other program knows.
    fn temporary(&self) -> Option<(PathBuf, Content)> {
        let number = self.run.next.fetch_add(1, Ordering::Relaxed);
        let path = self.makes_in.join(format!(".t{number}"));
        let made = File::create(&path).and_then(|mut file| {
            file.write_all(&contents(number))?;
            file.sync_all()
        });
        // Under faults it may not come about; then there is nothing to name.
        made.ok().map(|()| (path, Content(number)))
    }

    fn put(&mut self, name: Name) {
        let Some((path, file)) = self.temporary() else { return };
        self.do_and_record(Operation::Put(name, file), |own| fs::rename(path, path_of(&own.shared, name)).map(done));
    }

    fn put_new(&mut self, name: Name) {
        let Some((path, file)) = self.temporary() else { return };
        self.do_and_record(Operation::PutNew(name, file), |own| {
            renameat_with(CWD, path, CWD, path_of(&own.shared, name), RenameFlags::NOREPLACE)?;
            Ok(Answer::Done)
        });
    }

    fn link(&mut self, name: Name) {
        let Some((path, file)) = self.temporary() else { return };
        self.do_and_record(Operation::PutNew(name, file), |own| {
            fs::hard_link(&path, path_of(&own.shared, name)).map(done)
        });
        // One that stays disturbs no other.
        let _ = fs::remove_file(path);
    }

    fn make(&mut self, name: Name) {
        let number = self.run.next.fetch_add(1, Ordering::Relaxed);
        let mut made = None;
        self.do_and_record(Operation::Make(name, Content(number)), |own| {
            made = Some(OpenOptions::new().write(true).create_new(true).open(path_of(&own.shared, name))?);
            Ok(Answer::Done)
        });
        if let Some(mut file) = made {
            // A program that finds it empty may do so for ever.
            let _ = file.write_all(&contents(number));
        }
    }

    fn rename(&mut self, operation: Operation, from: Name, to: Name, flags: RenameFlags) {
        self.do_and_record(operation, |own| {
            renameat_with(CWD, path_of(&own.shared, from), CWD, path_of(&own.shared, to), flags)?;
            Ok(Answer::Done)
        });
    }
}

fn done<T>(_: T) -> Answer {
    Answer::Done
}
