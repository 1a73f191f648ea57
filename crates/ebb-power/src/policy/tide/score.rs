//! The worth of a periodic plan: waits of single reads, times of jobs, and the rate of full reads.

use super::full_read::Bound;
use super::reads::{Decoding, ReadSet, Reads};
use crate::plan::Duty;
use crate::policy::Ask;

/// Work of the reference job: a node that holds everything needs so many seconds for it.
pub const JOB_NODE_SECONDS: f64 = 60.0;
/// Single reads that the reference job makes one after the other.
pub const JOB_READS: f64 = 4.0;
/// A long job in reference jobs.
const LONG_JOB: f64 = 3.0;
/// Time of a task of the reference job. No task begins that cannot end before its node sleeps, so half of it is lost at
/// the end of each turn.
const TASK_S: f64 = 0.33;
/// Wait for data that no node ever serves.
const NEVER_S: f64 = 1e4;
/// Time of a job that never ends.
const NEVER_JOB_S: f64 = 1e5;
/// Share of reads that wait longer than the 90th percentile.
const TAIL: f64 = 0.1;
/// Step of the time for which jobs are computed.
const STEP_S: f64 = 0.5;
/// Moments of a period at which jobs begin; the mean counts.
const BEGINS: usize = 12;

/// Worth of a plan. Times are in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Score {
    /// Mean wait of a single read at a random moment, until a node with its data serves.
    pub wait_s: f64,
    /// The wait that nine of ten such reads do not exceed.
    pub wait_p90_s: f64,
    /// Mean time from a random moment until the work of the reference job is done.
    pub work_s: f64,
    /// The same for a job that is [`LONG_JOB`] times as long.
    pub long_work_s: f64,
    /// Rate of a full read in the long run, in nodes.
    pub rate: f64,
}

impl Score {
    /// Time of the reference job with its single reads: the objective.
    pub fn job_s(&self) -> f64 {
        JOB_READS * self.wait_s + self.work_s
    }
}

/// The part of each period in which a node serves, in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Serving {
    Never,
    Always,
    /// Beginning in the period, and length.
    Part(f64, f64),
}

impl Serving {
    fn share(self, period_s: f64) -> f64 {
        match self {
            Self::Never => 0.0,
            Self::Always => 1.0,
            Self::Part(_, length) => length / period_s,
        }
    }

    /// Useful seconds between two moments of the period.
    fn useful_s(self, from: f64, until: f64, period_s: f64) -> f64 {
        match self {
            Self::Never => 0.0,
            Self::Always => until - from,
            Self::Part(start, length) => {
                let end = start + (length - TASK_S / 2.0).max(0.0);
                let overlap = |shift: f64| (end.min(until + shift) - start.max(from + shift)).max(0.0);
                overlap(0.0) + overlap(period_s)
            }
        }
    }
}

/// Rate of a full read in the long run, in nodes. The groups of nodes that bound it are remembered in `reads`.
pub fn rate(ask: &Ask<'_>, reads: &mut Reads, duties: &[Duty], period_ms: u64) -> f64 {
    reads.rate(&shares(all_serving(ask, duties, period_ms), seconds(period_ms)))
}

/// Each node's share of the time.
fn shares(serving: impl IntoIterator<Item = Serving>, period_s: f64) -> Vec<f64> {
    serving.into_iter().map(|node| node.share(period_s)).collect()
}

/// Scores duties of the nodes, in the order of the circle, with this period and [`rate`]. Times of jobs are bounded by the
/// groups that `reads` knows. So the rates of all plans come before their scores.
pub fn score(ask: &Ask<'_>, reads: &Reads, duties: &[Duty], period_ms: u64, rate: f64) -> Score {
    let period_s = seconds(period_ms);
    let serving: Vec<Serving> = all_serving(ask, duties, period_ms).collect();
    let waits = Waits::of(reads, &serving, period_s);
    let is_steady = serving.iter().all(|node| !matches!(node, Serving::Part(..)));
    let work = |node_seconds: f64| match (rate > 1e-6, is_steady) {
        (false, _) => NEVER_JOB_S,
        (true, true) => node_seconds / rate,
        (true, false) => {
            let bounds = reads.bounds(&shares(serving.iter().copied(), period_s));
            work_s(bounds, &serving, period_s, node_seconds)
        }
    };
    let (work_s, long_work_s) = (work(JOB_NODE_SECONDS), work(LONG_JOB * JOB_NODE_SECONDS));
    Score { wait_s: waits.mean_s(), wait_p90_s: waits.exceeded_by(TAIL), work_s, long_work_s, rate }
}

fn all_serving(ask: &Ask<'_>, duties: &[Duty], period_ms: u64) -> impl Iterator<Item = Serving> {
    duties.iter().enumerate().map(move |(place, duty)| serving(ask, place, *duty, period_ms))
}

fn serving(ask: &Ask<'_>, place: usize, duty: Duty, period_ms: u64) -> Serving {
    let node = ask.circle[place];
    if ask.dead.contains(&node) {
        return Serving::Never;
    }
    match duty {
        Duty::Off => Serving::Never,
        Duty::On => Serving::Always,
        Duty::Blink { start_ms, active_ms } => {
            let power = ask.power(node);
            let lost_ms = power.transition_ms() + 2 * ask.timing.guard_ms;
            let first_ms = start_ms + crate::hardware::millis(power.wake) + ask.timing.guard_ms;
            if active_ms <= lost_ms {
                return Serving::Never;
            }
            Serving::Part(seconds(first_ms % period_ms), seconds(active_ms - lost_ms))
        }
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Gaps of the period in which no node of a set serves: (length in seconds, the set's share of the reads). A gap is met
/// with the chance `length / period`, and the wait in it is half of it on average.
struct Waits {
    /// The longest first.
    gaps: Vec<(f64, f64)>,
    /// Share of reads that no node ever answers.
    never: f64,
    period_s: f64,
}

impl Waits {
    fn of(reads: &Reads, serving: &[Serving], period_s: f64) -> Self {
        let (mut gaps, mut never) = (Vec::new(), 0.0);
        for set in reads.sets() {
            match gaps_of(set, serving, period_s) {
                Some(found) => gaps.extend(found.into_iter().map(|gap| (gap, set.share))),
                None => never += set.share,
            }
        }
        gaps.sort_by(|one, other| other.0.total_cmp(&one.0));
        Self { gaps, never, period_s }
    }

    fn mean_s(&self) -> f64 {
        let waits: f64 = self.gaps.iter().map(|(gap, share)| share * gap * gap / 2.0 / self.period_s).sum();
        waits + self.never * NEVER_S
    }

    /// The wait that this share of the reads exceeds.
    fn exceeded_by(&self, share: f64) -> f64 {
        if self.never > share {
            return NEVER_S;
        }
        // Of gaps longer than `t` seconds, `sum share (gap - t) / period` reads wait longer than that.
        let wanted = (share - self.never) * self.period_s;
        let (mut shares, mut lengths) = (0.0, 0.0);
        for (at, (gap, share)) in self.gaps.iter().enumerate() {
            (shares, lengths) = (shares + share, lengths + share * gap);
            let next = self.gaps.get(at + 1).map_or(0.0, |next| next.0);
            let wait = (lengths - wanted) / shares;
            if wait >= next {
                return wait.max(0.0);
            }
        }
        0.0
    }
}

/// The gaps of these duties; see [`gaps_of`].
#[cfg(test)]
pub fn gaps(ask: &Ask<'_>, set: &ReadSet, duties: &[Duty], period_ms: u64) -> Option<Vec<f64>> {
    let serving: Vec<Serving> = all_serving(ask, duties, period_ms).collect();
    gaps_of(set, &serving, seconds(period_ms))
}

/// Lengths of the gaps in which no node answers the set. `None` if none ever does.
fn gaps_of(set: &ReadSet, serving: &[Serving], period_s: f64) -> Option<Vec<f64>> {
    let mut parts: Vec<(f64, f64)> = Vec::new();
    for place in &set.holders {
        match serving[*place] {
            Serving::Always => return Some(Vec::new()),
            Serving::Never => {}
            Serving::Part(start, length) => parts.push((start, length)),
        }
    }
    match set.decoding.as_ref().map(|decoding| decoded(decoding, serving, period_s)) {
        Some(Together::Always) => return Some(Vec::new()),
        Some(Together::Parts(found)) => parts.extend(found),
        None => {}
    }
    parts.sort_by(|one, other| one.0.total_cmp(&other.0));
    let first = parts.first().copied()?;
    let (mut end, mut gaps) = (first.0 + first.1, Vec::new());
    for (start, length) in parts.into_iter().skip(1).chain([(first.0 + period_s, 0.0)]) {
        if start > end {
            gaps.push(start - end);
        }
        end = end.max(start + length);
    }
    Some(gaps)
}

/// When enough parts of a RAID set serve at the same time.
enum Together {
    Always,
    /// Beginning in the period, and length.
    Parts(Vec<(f64, f64)>),
}

fn decoded(decoding: &Decoding, serving: &[Serving], period_s: f64) -> Together {
    let of_parts = decoding.parts.iter().map(|place| serving[*place]);
    let steady = of_parts.clone().filter(|serving| *serving == Serving::Always).count();
    let Some(needed) = decoding.needed.checked_sub(steady).filter(|needed| *needed > 0) else {
        return Together::Always;
    };
    // What reaches over the end of the period goes on at its beginning.
    let turns = of_parts.filter_map(|serving| match serving {
        Serving::Part(start, length) => Some((start, start + length)),
        _ => None,
    });
    let turns: Vec<(f64, f64)> =
        turns.flat_map(|(start, end)| [(start - period_s, end - period_s), (start, end)]).collect();
    let inside = |moment: &f64| (0.0..=period_s).contains(moment);
    let mut moments: Vec<f64> = turns.iter().flat_map(|(start, end)| [*start, *end]).filter(inside).collect();
    moments.extend([0.0, period_s]);
    moments.sort_by(f64::total_cmp);
    let at_once = |moment: f64| turns.iter().filter(|(start, end)| (*start..*end).contains(&moment)).count();
    let pairs = moments.windows(2).filter(|pair| pair[1] > pair[0]);
    let enough = pairs.filter(|pair| at_once(f64::midpoint(pair[0], pair[1])) >= needed);
    Together::Parts(enough.map(|pair| (pair[0], pair[1] - pair[0])).collect())
}

/// Mean time from a moment of the period until so many node-seconds, spread as the data are, are read.
fn work_s(bounds: &[Bound], serving: &[Serving], period_s: f64, node_seconds: f64) -> f64 {
    let steps = ((period_s / STEP_S).round() as usize).max(BEGINS);
    let step_s = period_s / steps as f64;
    // Seconds that a group of nodes serves from the beginning of the period to each step.
    let sums: Vec<Vec<f64>> = bounds.iter().map(|bound| served(bound, serving, steps, step_s)).collect();
    let begins = (0..BEGINS).map(|begin| begin * steps / BEGINS);
    let until = |begin: usize| {
        let of = |(sums, bound): (&Vec<f64>, &Bound)| {
            let wanted = sums[begin] + bound.demand * node_seconds;
            let whole = (wanted / sums[steps]).floor();
            let rest = wanted - whole * sums[steps];
            let step = sums.partition_point(|sum| *sum < rest).clamp(1, steps);
            let (low, high) = (sums[step - 1], sums[step]);
            let part = if high > low { (rest - low) / (high - low) } else { 1.0 };
            whole * period_s + (step as f64 - 1.0 + part.clamp(0.0, 1.0)) * step_s - begin as f64 * step_s
        };
        sums.iter().zip(bounds).map(of).fold(0.0, f64::max)
    };
    begins.map(until).sum::<f64>() / BEGINS as f64
}

fn served(bound: &Bound, serving: &[Serving], steps: usize, step_s: f64) -> Vec<f64> {
    let period_s = steps as f64 * step_s;
    let mut sums = vec![0.0];
    for step in 0..steps {
        let (from, until) = (step as f64 * step_s, (step + 1) as f64 * step_s);
        let served: f64 = bound.nodes.iter().map(|place| serving[*place].useful_s(from, until, period_s)).sum();
        sums.push(sums[step] + served);
    }
    sums
}
