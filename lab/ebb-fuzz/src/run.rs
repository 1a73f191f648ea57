//! Runs cases, and judges each: it ended without a panic, in time, within its memory.

use std::fmt;
use std::io::Write;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::memory::{note_case, peak_of};
use crate::mutate::{INPUT_MAX, input};
use crate::target::Target;

/// Processor time that a decode of any input may take: a hundred times what the slowest sample takes.
pub const TIME_MAX: Duration = Duration::from_secs(2);
/// Processor time of the process after which a case is taken for endless, and the process is ended.
const ENDLESS: Duration = Duration::from_secs(60);
/// How often the watch looks.
const LOOK: Duration = Duration::from_millis(500);

/// What is wrong with a decoder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It panicked, saying this.
    Panic(String),
    /// It had so many bytes at a time, of so many that it may have.
    Memory(usize, usize),
    /// It took so long.
    Time(Duration),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic(words) => write!(f, "panicked: {words}"),
            Self::Memory(had, may) => write!(f, "took {had} bytes of memory, and may take {may}"),
            Self::Time(took) => write!(f, "took {} ms, and may take {}", took.as_millis(), TIME_MAX.as_millis()),
        }
    }
}

/// What cases came to.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// How many were run.
    pub cases: u64,
    /// How many of them were taken, and not refused: what lies behind checksums and lengths was reached.
    pub taken: u64,
    /// Most memory that one took, with the length of its input.
    pub peak: (usize, usize),
    /// Greatest share of its cap that one took, in thousandths.
    pub share: usize,
    /// Longest time that one took.
    pub slowest: Duration,
    /// The first cases that were faults; at most a few.
    pub faults: Vec<Found>,
}

/// A fault, and what brings it back.
#[derive(Clone, Debug)]
pub struct Found {
    /// Name of the target.
    pub target: &'static str,
    /// Seed of the run.
    pub seed: u64,
    /// Number of the case.
    pub case: u64,
    /// What was wrong.
    pub fault: Fault,
    /// The input.
    pub bytes: Vec<u8>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, seed, case, fault, bytes } = self;
        writeln!(f, "{target}, seed {seed}, case {case}, {} bytes: {fault}", bytes.len())?;
        writeln!(f, "again: cargo run -p ebb-fuzz -- replay {target} {seed} {case}")?;
        dump(f, bytes)
    }
}

/// Lines of sixteen bytes; the middle of a long input is left out, the command above makes it again.
fn dump(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    const HEAD: usize = 1024;
    for (line, part) in bytes[..bytes.len().min(HEAD)].chunks(16).enumerate() {
        let hex: Vec<String> = part.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String =
            part.iter().map(|byte| if (32..127).contains(byte) { char::from(*byte) } else { '.' }).collect();
        writeln!(f, "{:06x}  {:47}  {text}", line * 16, hex.join(" "))?;
    }
    match bytes.len().checked_sub(HEAD) {
        Some(more) if more > 0 => writeln!(f, "... and {more} bytes more"),
        _ => Ok(()),
    }
}

/// What a decode took.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Whether it was taken, or refused.
    pub is_good: bool,
    /// Bytes at a time.
    pub peak: usize,
    /// Processor time of its thread.
    pub time: Duration,
}

/// Runs one input.
pub fn run_input(target: &Target, bytes: &[u8]) -> Result<Taken, Fault> {
    let began = thread_time();
    let (ended, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(|| (target.decode)(bytes))));
    let time = thread_time().saturating_sub(began);
    let is_good = ended.map_err(|panic| Fault::Panic(words_of(&*panic)))?;
    let may = target.cap.bytes(bytes.len());
    if peak > may {
        return Err(Fault::Memory(peak, may));
    }
    if time > TIME_MAX {
        return Err(Fault::Time(time));
    }
    Ok(Taken { is_good, peak, time })
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words").to_owned()
}

/// Runs these cases of a target, or those that fit into a time of the clock on the wall.
pub fn run(target: &Target, seed: u64, cases: Range<u64>, until: Option<Duration>) -> Report {
    const FAULTS_MAX: usize = 3;
    let samples = (target.samples)();
    assert!(!samples.is_empty(), "{} has a sample at least", target.name);
    assert!(samples.iter().all(|sample| sample.len() <= INPUT_MAX), "samples of {} are inputs", target.name);
    let watch = Watch::start_thread(target.name, seed);
    let began = wall_time();
    let mut report = Report::default();
    for case in cases {
        if until.is_some_and(|until| wall_time().saturating_sub(began) >= until) || report.faults.len() >= FAULTS_MAX {
            break;
        }
        let bytes = input(target, &samples, seed, case);
        watch.on_case(case);
        note_case(target.name, seed, case);
        report.cases += 1;
        match run_input(target, &bytes) {
            Ok(Taken { is_good, peak, time }) => {
                report.taken += u64::from(is_good);
                report.peak = report.peak.max((peak, bytes.len()));
                report.share = report.share.max(peak * 1000 / target.cap.bytes(bytes.len()).max(1));
                report.slowest = report.slowest.max(time);
            }
            Err(fault) => report.faults.push(Found { target: target.name, seed, case, fault, bytes }),
        }
    }
    report
}

/// Runs as many cases of a target as its tests do, from one seed; panics with the faults, if there are any.
pub fn hold(target: &Target) {
    let report = run(target, 1, 0..target.cases, None);
    println!("{}", crate::command::summary(target, &report).trim_end());
    let faults: String = report.faults.iter().map(Found::to_string).collect();
    assert!(faults.is_empty(), "{faults}");
    // What is refused at its first byte tests nothing behind it.
    assert!(report.taken * 100 >= report.cases, "{}: {} of {} are taken", target.name, report.taken, report.cases);
}

/// Ends the process when a case does not end by itself: nothing else can end a loop.
struct Watch {
    case: std::sync::Arc<AtomicU64>,
    thread: std::thread::Thread,
}

/// Stands for "over".
const OVER: u64 = u64::MAX;

impl Watch {
    #[allow(clippy::disallowed_methods, reason = "what it watches holds up its own thread")]
    fn start_thread(target: &'static str, seed: u64) -> Self {
        let case = std::sync::Arc::new(AtomicU64::new(0));
        let seen = case.clone();
        let watching = std::thread::spawn(move || {
            let mut last = (0, process_time());
            loop {
                std::thread::park_timeout(LOOK);
                let now = (seen.load(Ordering::Relaxed), process_time());
                if now.0 == OVER {
                    return;
                }
                if now.0 != last.0 {
                    last = now;
                } else if now.1.saturating_sub(last.1) > ENDLESS {
                    let case = now.0;
                    // Not by a macro: output captured for a test is lost with the process.
                    let again = format!("cargo run -p ebb-fuzz -- replay {target} {seed} {case}");
                    let _ = writeln!(std::io::stderr(), "{target} does not end: {again}");
                    std::process::abort();
                }
            }
        });
        Self { case, thread: watching.thread().clone() }
    }

    fn on_case(&self, case: u64) {
        self.case.store(case, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.case.store(OVER, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    time(ClockId::ThreadCPUTime)
}

fn process_time() -> Duration {
    time(ClockId::ProcessCPUTime)
}

fn wall_time() -> Duration {
    time(ClockId::Monotonic)
}

fn time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
