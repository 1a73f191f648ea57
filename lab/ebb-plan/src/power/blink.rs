//! Blinking: number of copies that keep a block in reach, and waiting times of reads (BlinkFS, Sec. 4.2).

use ebb_layout::targets::ring;

use super::Machines;
use crate::rng::Rng;

/// Copies for which a block is available throughout an interval, by the paper's formula
/// `ceil(N / floor((N-1) p / (N p_node - p)))`. `None` at full power, where it divides by zero, and if the floor is 0.
/// It breaks at the wrap of the interval: above about 53 % of the power it says 1, though a lone copy sleeps.
#[must_use]
pub fn replicas_paper(machines: &Machines, watts: f64) -> Option<u64> {
    let nodes = f64::from(machines.nodes);
    let rest = machines.full_watts() - watts;
    let overlap = ((nodes - 1.0) * watts / rest + 1e-9).floor();
    (rest > 0.0 && overlap >= 1.0).then(|| (nodes / overlap).ceil() as u64)
}

/// The exact number for the circular stagger: `ceil(N / floor(N t_active / t))`. `None` if at times no node is awake.
#[must_use]
pub fn replicas_exact(machines: &Machines, watts: f64) -> Option<u64> {
    let nodes = f64::from(machines.nodes);
    let awake = (nodes * machines.awake_share(watts) + 1e-9).floor();
    (awake >= 1.0).then(|| (nodes / awake).ceil() as u64)
}

/// Share of the time in which a block with a copy on every node is out of reach: `1 - p / p_node` (Sec. 4.2).
#[must_use]
pub fn least_unavailable(machines: &Machines, watts: f64) -> f64 {
    (1.0 - watts / machines.active_watts).max(0.0)
}

/// Times at which nodes wake within an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stagger {
    /// The paper's: node `i` of `N` starts at `(t - t_active) i / (N - 1)`. No node wraps around the interval's end.
    Literal,
    /// Node `i` starts at `t i / N` and wraps around: as many nodes are awake at any instant.
    Circular,
}

/// The times at which each node is awake, in an interval of length 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Schedule {
    /// Nodes.
    pub nodes: u32,
    /// Part of the interval that each is awake.
    pub awake: f64,
    /// Starts.
    pub stagger: Stagger,
}

impl Schedule {
    fn start(&self, node: u32) -> f64 {
        match self.stagger {
            Stagger::Literal => (1.0 - self.awake) * f64::from(node) / f64::from((self.nodes - 1).max(1)),
            Stagger::Circular => f64::from(node) / f64::from(self.nodes),
        }
    }

    /// Fewest and most nodes that are awake at one instant.
    #[must_use]
    pub fn awake_at_once(&self) -> (u32, u32) {
        let awake = |time: f64| (0..self.nodes).filter(|node| self.wait(*node, time) == 0.0).count() as u32;
        // The number changes only where a node starts or ends.
        let edges = (0..self.nodes).flat_map(|node| [self.start(node), self.start(node) + self.awake]);
        let counts: Vec<u32> = edges.flat_map(|edge| [edge - 1e-9, edge + 1e-9]).map(awake).collect();
        (counts.iter().copied().min().unwrap_or(0), counts.iter().copied().max().unwrap_or(0))
    }

    /// From `time` to the next moment at which the node is awake; 0 if it is.
    fn wait(&self, node: u32, time: f64) -> f64 {
        let since = (time - self.start(node)).rem_euclid(1.0);
        if since < self.awake { 0.0 } else { 1.0 - since }
    }

    /// Stretches of an interval in which no holder is awake.
    fn gaps(&self, holders: &[u32]) -> Vec<f64> {
        if self.awake >= 1.0 {
            return Vec::new();
        }
        let mut starts: Vec<f64> = holders.iter().map(|node| self.start(*node)).collect();
        starts.sort_unstable_by(f64::total_cmp);
        let next = starts.iter().skip(1).copied().chain(starts.first().map(|first| first + 1.0));
        let gap = |(start, next): (&f64, f64)| next - start - self.awake;
        starts.iter().zip(next).map(gap).filter(|gap| *gap > 1e-12).collect()
    }
}

/// Waiting time of a read at a random moment of the interval, for a random block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wait {
    /// Share of the time at which no holder is awake.
    pub unavailable_fraction: f64,
    /// Mean wait in intervals.
    pub mean: f64,
    /// Wait that nine of ten reads do not exceed, in intervals.
    pub p90: f64,
}

/// Over all places of the first copy and all moments, with copies at equal distances. Nothing is sampled: within a gap of length `g` the wait is
/// uniform over `0..g`.
#[must_use]
pub fn wait(schedule: &Schedule, replicas: u32) -> Wait {
    let placed = |first| ring::evenly(schedule.nodes, replicas, first);
    let gaps: Vec<f64> = (0..schedule.nodes).flat_map(|first| schedule.gaps(&placed(first))).collect();
    let blocks = f64::from(schedule.nodes);
    let longer = |wait: f64| gaps.iter().map(|gap| (gap - wait).max(0.0)).fold(0.0, |sum, gap| sum + gap) / blocks;
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if longer(middle) > 0.1 {
            low = middle;
        } else {
            high = middle;
        }
    }
    Wait {
        unavailable_fraction: longer(0.0),
        mean: gaps.iter().fold(0.0, |sum, gap| sum + gap * gap / 2.0) / blocks,
        p90: if longer(0.0) <= 0.1 { 0.0 } else { high },
    }
}

/// Latencies of a reader that sends its next read when the last one is answered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seen {
    /// Mean latency in seconds.
    pub mean_s: f64,
    /// Standard deviation.
    pub deviation_s: f64,
    /// Latency that nine of ten reads do not exceed.
    pub p90_s: f64,
}

/// A reader in a closed loop: it reads random blocks one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Length of the interval.
    pub interval_s: f64,
    /// Time of a read from an awake node.
    pub service_s: f64,
    /// Number of reads.
    pub reads: u32,
    /// Source of all chance.
    pub seed: u64,
}

/// Places of a block's copies: of how many nodes, how many copies, from which first one on. [`ring::evenly`] or
/// [`ring::halving`].
pub type Places = fn(u32, u32, u32) -> Vec<u32>;

/// Latencies of a reader: its reads, and the waits for a holder. A node about to sleep is not chosen for a read that it
/// could not finish (Sec. 4.1).
#[must_use]
pub fn closed_loop(schedule: &Schedule, replicas: u32, places: Places, reader: Reader) -> Seen {
    let Reader { interval_s, service_s, reads, seed } = reader;
    let mut rng = Rng::new(seed);
    let usable = Schedule { awake: (schedule.awake - service_s / interval_s).max(1e-9), ..*schedule };
    let starts_as = |node, time| if schedule.awake >= 1.0 { 0.0 } else { until(schedule, &usable, node, time) };
    let mut now = 0.0;
    let mut latencies = Vec::with_capacity(reads as usize);
    for _ in 0..reads {
        let holders = places(schedule.nodes, replicas, rng.below(schedule.nodes.into()) as u32);
        let waits = holders.iter().map(|node| starts_as(*node, now / interval_s));
        let wait = waits.fold(f64::INFINITY, f64::min) * interval_s;
        // Perfectly even service would keep step with the interval.
        let latency = wait + service_s * (0.99 + 0.02 * rng.unit());
        latencies.push(latency);
        now += latency;
    }
    let count = latencies.len().max(1) as f64;
    let mean_s = latencies.iter().sum::<f64>() / count;
    let deviation_s = (latencies.iter().map(|latency| (latency - mean_s).powi(2)).sum::<f64>() / count).sqrt();
    latencies.sort_unstable_by(f64::total_cmp);
    let p90_s = latencies.get(latencies.len() * 9 / 10).copied().unwrap_or(0.0);
    Seen { mean_s, deviation_s, p90_s }
}

/// To the next moment at which the node can still finish a read. Both schedules have the same starts.
fn until(schedule: &Schedule, usable: &Schedule, node: u32, time: f64) -> f64 {
    let since = (time - schedule.start(node)).rem_euclid(1.0);
    if since < usable.awake { 0.0 } else { schedule.wait(node, time).max(1.0 - since) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MACHINES: Machines = Machines::BLINKFS;

    fn watts(percent: f64) -> f64 {
        MACHINES.full_watts() * percent / 100.0
    }

    #[test]
    fn the_exact_number_of_copies() {
        for (percent, wanted) in [(20.0, 9), (30.0, 5), (40.0, 3), (50.0, 3), (60.0, 2), (80.0, 2), (100.0, 1)] {
            assert_eq!(replicas_exact(&MACHINES, watts(percent)), Some(wanted), "{percent} %");
        }
        assert_eq!(replicas_exact(&MACHINES, 20.0), None);
    }

    #[test]
    fn the_paper_s_formula_breaks_where_it_is_said_to() {
        assert_eq!(replicas_paper(&MACHINES, watts(60.0)), Some(1));
        assert_eq!(replicas_paper(&MACHINES, watts(100.0)), None);
        assert!(replicas_paper(&MACHINES, watts(52.0)).unwrap() > 1);
        assert!((least_unavailable(&MACHINES, 10.0) - 0.6).abs() < 1e-12);
    }

    #[test]
    fn a_lone_copy_waits_for_half_the_gap_on_average() {
        let seen = wait(&Schedule { nodes: 9, awake: 0.25, stagger: Stagger::Circular }, 1);
        assert!((seen.unavailable_fraction - 0.75).abs() < 1e-12);
        assert!((seen.mean - 0.75 * 0.75 / 2.0).abs() < 1e-12);
        assert!((seen.p90 - 0.65).abs() < 1e-9);
    }

    #[test]
    fn power_and_copies_never_lengthen_the_wait() {
        for stagger in [Stagger::Literal, Stagger::Circular] {
            let mut last = f64::INFINITY;
            for percent in 1..=100 {
                let now = wait(&Schedule { nodes: 9, awake: f64::from(percent) / 100.0, stagger }, 1).mean;
                assert!(now <= last);
                last = now;
            }
            let by_copies: Vec<f64> =
                (1..=9).map(|copies| wait(&Schedule { nodes: 9, awake: 0.2, stagger }, copies).mean).collect();
            assert!(by_copies.is_sorted_by(|one, next| one + 1e-12 >= *next), "{by_copies:?}");
        }
    }

    proptest! {
        #[test]
        fn exact_copies_at_equal_distances_leave_no_gap(nodes in 2_u32..40, percent in 5.0_f64..100.0) {
            let machines = Machines { nodes, active_watts: 100.0, sleep_watts: 2.0 };
            let watts = machines.full_watts() * percent / 100.0;
            if let Some(copies) = replicas_exact(&machines, watts) {
                let schedule = Schedule { nodes, awake: machines.awake_share(watts) + 1e-9, stagger: Stagger::Circular };
                let holders = ring::evenly(nodes, copies as u32, 3);
                prop_assert!(schedule.gaps(&holders).is_empty(), "{} copies: {:?}", copies, schedule.gaps(&holders));
            }
        }
    }
}
