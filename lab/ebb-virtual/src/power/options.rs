//! The options of a run under power.

use std::fmt::Write as _;
use std::time::Duration;

use ebb_layout::LayoutKind;
use ebb_power::PolicyKind;
use ebb_runtime::SeededBug;
use ebb_runtime::virt::Dice;

/// How the supply goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SignalKind {
    /// The same all the time.
    Constant,
    /// High and low in turns.
    Oscillating,
    /// Down to nothing, and back.
    FallingToZero,
    /// As wind and sun: up and down without any order, seldom nothing.
    Renewable,
}

impl SignalKind {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::Constant, Self::Oscillating, Self::FallingToZero, Self::Renewable];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Oscillating => "oscillating",
            Self::FallingToZero => "falling-to-zero",
            Self::Renewable => "renewable",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// A trace of it: a line for every `step` seconds.
    #[must_use]
    pub fn trace(self, steps: u32, step: u32, dice: &mut Dice) -> String {
        let mut csv = String::from("seconds,fraction\n");
        let level = dice.between(15, 100) as f64 / 100.0;
        let mut drift = level;
        for number in 0..steps {
            let fraction = match self {
                Self::Constant => level,
                // BlinkFS, Sec. 5.
                Self::Oscillating if number % 2 == 0 => 0.45 + 0.45 * level,
                Self::Oscillating => 0.45 - 0.45 * level,
                Self::FallingToZero => (1.0 - 1.5 * f64::from(number) / f64::from(steps)).max(0.0),
                Self::Renewable => {
                    drift = (drift + dice.between(0, 60) as f64 / 100.0 - 0.3).clamp(0.0, 1.0);
                    drift
                }
            };
            writeln!(csv, "{},{fraction:.3}", number * step).expect("a string takes everything");
        }
        csv
    }
}

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A node loses its power, and has it back in a moment, with its disk.
    Node,
    /// The master dies with its machine: its unsynced data are gone.
    Master,
    /// The power manager dies.
    Manager,
    /// The power client dies, and nodes stay as they are.
    Keeper,
    /// A writer dies.
    Writer,
    /// The master's machine and all writers lose their power at once.
    AlwaysOnAndWriters,
    /// A clock goes wrong: a little, or of a client by up to an hour.
    Skew,
    /// The one disk that is lost in a run: a node's, for good, or the always-on node's handoff log.
    Disk,
}

impl Fault {
    /// Every one.
    pub const ALL: &'static [Self] = &[
        Self::Node,
        Self::Master,
        Self::Manager,
        Self::Keeper,
        Self::Writer,
        Self::AlwaysOnAndWriters,
        Self::Skew,
        Self::Disk,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Master => "master",
            Self::Manager => "manager",
            Self::Keeper => "power-client",
            Self::Writer => "writer",
            Self::AlwaysOnAndWriters => "always-on-and-writers",
            Self::Skew => "skew",
            Self::Disk => "disk",
        }
    }
}

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct PowerOptions {
    /// The policy that makes plans.
    pub policy: PolicyKind,
    /// The signal that it makes them from.
    pub signal: SignalKind,
    /// Block servers.
    pub nodes: usize,
    /// The blink interval.
    pub interval: Duration,
    /// Seconds for which each line of the trace holds.
    pub step: u32,
    /// How long faults go on.
    pub chaos: Duration,
    /// Mean pause between two; zero: none.
    pub fault_pause: Duration,
    /// The kinds of them.
    pub faults: Vec<Fault>,
    /// The share of power at which reads and writes are timed when all is quiet.
    pub level: f64,
    /// Percent of the unused capacity that extra copies of often read data may take; 0: there are none.
    pub extra_share_percent: u32,
    /// Whether files lie on an expansion chain, and one more program writes in bursts that are too much for its primaries.
    pub bursts: bool,
    /// The layout, on a chain or on the circle, of a file that is made longer all the time, and must lie as that wants it in the
    /// end; none: there is no such file.
    pub kept: Option<LayoutKind>,
    /// Programs use a few names of one directory, too.
    pub names: bool,
    /// A mistake that the code is to make, to see whether it is found.
    pub bug: Option<SeededBug>,
}

impl PowerOptions {
    /// Drawn from the seed.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "power options");
        // Swarm: few kinds go deeper than all.
        let mut faults: Vec<Fault> = Fault::ALL.iter().copied().filter(|_| dice.chance(0.5)).collect();
        if faults.is_empty() {
            faults.push(*dice.pick(Fault::ALL));
        }
        Self {
            policy: *dice.pick(PolicyKind::ALL),
            signal: *dice.pick(SignalKind::ALL),
            nodes: dice.between(5, 9) as usize,
            interval: Duration::from_millis(*dice.pick(&[1000, 2000, 4000])),
            step: dice.between(3, 9) as u32,
            chaos: dice.span_between(Duration::from_secs(15), Duration::from_secs(40)),
            fault_pause: Duration::from_millis(*dice.pick(&[1000, 2500, 5000])),
            faults,
            level: *dice.pick(&[0.2, 0.35, 0.5, 0.8]),
            extra_share_percent: if Dice::new(seed, "extra copies").coin() { 50 } else { 0 },
            bursts: Dice::new(seed, "bursts").chance(0.4),
            kept: None,
            names: Dice::new(seed, "names").chance(0.5),
            bug: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ebb_power::signal::Trace;

    use super::*;

    #[test]
    fn every_signal_is_a_trace_and_one_falls_to_zero() {
        for kind in SignalKind::ALL {
            let csv = kind.trace(10, 4, &mut Dice::new(3, "signal"));
            let trace = Trace::parse("t", &csv).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            assert!((0.0..=1.0).contains(&trace.mean()), "{kind:?}");
            assert_eq!(SignalKind::from_name(kind.name()), Some(*kind));
        }
        assert!(SignalKind::FallingToZero.trace(10, 4, &mut Dice::new(3, "signal")).contains(",0.000"));
    }
}
