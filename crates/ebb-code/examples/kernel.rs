//! How fast each kernel of this CPU encodes and decodes, on one core: GB of slots' bytes in a second, medians.
//!
//! ```sh
//! cargo run -p ebb-code --example kernel [-- SECONDS]
//! ```
//! A byte of a slot counts once, also when it is decoded: at 8+2 a range of eight pieces counts eight pieces. `memcpy` counts
//! the bytes that it copies. `cache` has pieces of 64 KiB: a range is in the second or third cache. `memory` has pieces of
//! 8 MiB: ranges come from memory and go there. Columns take turns in each run, so that all meet the same machine. Time is
//! that of the thread on a core, so that other processes take only caches and memory from it.

use std::hint::black_box;
use std::time::Duration;

use ebb_code::matrix::coefficient;
use ebb_code::{Code, Kernel, Part, Present};
use rustix::time::{ClockId, clock_gettime};
use rusty_erasure::{Coder, Matrix, coder};

/// Runs of each figure; the median counts.
const RUNS: usize = 9;

fn main() -> ebb_types::Result<()> {
    let seconds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0.05);
    let span = Duration::from_secs_f64(seconds);
    let kernels = Kernel::all_available();
    println!("GB/s a core; the kernel chosen for this CPU is {}", Kernel::chosen());
    print!("{:<24}", "");
    kernels.iter().for_each(|kernel| print!("{:>12}", kernel.name()));
    println!("{:>16}{:>12}", "rusty_erasure", "memcpy");
    for (place, piece) in [("cache", 64 << 10), ("memory", 8 << 20)] {
        for (slots, rows) in [(8, 2), (4, 2), (10, 4)] {
            let mut job = Job::new(Code::new(slots, rows)?, piece);
            for decode in [false, true] {
                let name = if decode { "decode of two" } else { "encode" };
                let mut calls: Vec<Call> = kernels.iter().map(|kernel| Call::Ours(*kernel)).collect();
                calls.extend([Call::Theirs, Call::Memcpy]);
                let rates = job.rates(decode, &calls, span);
                print!("{:<24}", format!("{name} {slots}+{rows} {place}"));
                let (last, others) = rates.split_last().expect("memcpy");
                let (theirs, ours) = others.split_last().expect("rusty_erasure");
                ours.iter().for_each(|rate| print!("{rate:12.1}"));
                println!("{theirs:16.1}{last:12.1}");
            }
        }
    }
    Ok(())
}

/// Time that this thread has had on a core.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("below a second"))
}

#[derive(Clone, Copy)]
enum Call {
    Ours(Kernel),
    Theirs,
    Memcpy,
}

/// Buffers of one code.
struct Job {
    code: Code,
    theirs: Coder,
    slots: Vec<Vec<u8>>,
    rows: Vec<Vec<u8>>,
    targets: Vec<Vec<u8>>,
}

impl Job {
    fn new(code: Code, piece: usize) -> Self {
        let line = |row: usize| (0..code.slots()).map(move |slot| coefficient(row, slot));
        let unit = |own: usize| (0..code.slots()).map(move |slot| u8::from(slot == own));
        let entries = (0..code.slots()).flat_map(unit).chain((0..code.rows()).flat_map(line)).collect();
        let matrix = Matrix::from_bytes(code.slots() + code.rows(), code.slots(), entries).expect("its size");
        let bytes = |seed: usize| (0..piece).map(|at| (at * 31 + seed * 7 + (at >> 9)) as u8).collect::<Vec<u8>>();
        Self {
            code,
            theirs: coder(matrix).expect("a matrix of a code"),
            slots: (0..code.slots()).map(bytes).collect(),
            rows: vec![vec![0; piece]; code.rows()],
            targets: vec![vec![0; piece]; code.slots()],
        }
    }

    /// Median rate of each call, in turns.
    fn rates(&mut self, decode: bool, calls: &[Call], span: Duration) -> Vec<f64> {
        let mut rates = vec![Vec::new(); calls.len()];
        for _ in 0..RUNS {
            for (call, rates) in calls.iter().zip(&mut rates) {
                let (begin, mut bytes) = (thread_time(), 0);
                while thread_time() - begin < span {
                    bytes += self.run(*call, decode);
                }
                rates.push(bytes as f64 / (thread_time() - begin).as_secs_f64() / 1e9);
            }
        }
        let median = |mut rates: Vec<f64>| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        };
        rates.into_iter().map(median).collect()
    }

    /// One range; the bytes of slots in it. Decoding is that of the first two slots.
    fn run(&mut self, call: Call, decode: bool) -> usize {
        let slots: Vec<&[u8]> = self.slots.iter().map(Vec::as_slice).collect();
        let piece = slots[0].len();
        let mut targets: Vec<&mut [u8]> = self.targets[..2].iter_mut().map(Vec::as_mut_slice).collect();
        match (call, decode) {
            (Call::Ours(kernel), false) => {
                let mut rows: Vec<&mut [u8]> = self.rows.iter_mut().map(Vec::as_mut_slice).collect();
                self.code.encode_with(kernel, &slots, &mut rows).expect("lengths agree");
            }
            (Call::Ours(kernel), true) => {
                let lost = [Part::Slot(0), Part::Slot(1)];
                let present = Present::all(self.code).without(lost[0]).without(lost[1]);
                let plan = self.code.plan_decode(&present, &lost).expect("two rows");
                let sources: Vec<&[u8]> =
                    slots[2..].iter().copied().chain(self.rows[..2].iter().map(Vec::as_slice)).collect();
                plan.decode_with(kernel, &sources, &mut targets).expect("lengths agree");
            }
            (Call::Theirs, false) => {
                let mut rows: Vec<&mut [u8]> = self.rows.iter_mut().map(Vec::as_mut_slice).collect();
                self.theirs.encode(&slots, &mut rows).expect("lengths agree");
            }
            (Call::Theirs, true) => {
                let parts = slots.iter().copied().chain(self.rows.iter().map(Vec::as_slice)).map(Some);
                let mut parts: Vec<Option<&[u8]>> = parts.collect();
                parts[..2].fill(None);
                self.theirs.recover(&parts, &[0, 1], &mut targets).expect("two rows");
            }
            (Call::Memcpy, _) => {
                for (from, to) in self.slots.iter().zip(&mut self.targets) {
                    black_box(&mut *to).copy_from_slice(black_box(from));
                }
            }
        }
        black_box(&mut self.targets);
        black_box(&mut self.rows);
        piece * self.code.slots()
    }
}
