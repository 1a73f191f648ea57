//! The knob: the cheapest localized storage node that keeps a workload within a given slowdown.
//!
//! More disks and a faster link never slow a job by more than scheduling noise, so for each link the answer is where a
//! bisection over disks ends; the cheapest of these is the answer. The result is run again beside its cheaper
//! neighbours, so that the answer proves itself.

use ebb_types::{Result, bail};
use serde::Serialize;

use crate::app::App;
use crate::cluster::{Cluster, Placement};
use crate::measure::{Runner, Timing, compare};

/// The question.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Allowed slowdown of a job against the baseline: 0.05 is 5 %.
    pub within: f64,
    /// Whether each application must keep within it, or only the mean of all.
    pub of: Strictness,
    /// Data disks of an LSN at most.
    pub most_disks: usize,
    /// Links to choose from, in Gbps.
    pub links: Vec<f64>,
    /// Prices of its parts.
    pub prices: Prices,
}

/// The time that must keep within the slowdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strictness {
    /// Every application.
    Each,
    /// The mean of the applications' normalized times.
    Mean,
}

/// Prices in any currency; only their ratio matters.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Prices {
    /// Of a disk.
    pub disk: f64,
    /// Of a gigabit a second of the LSN's link.
    pub gbps: f64,
}

impl Prices {
    /// Cost of the LSNs of a cluster.
    #[must_use]
    pub fn of(&self, cluster: &Cluster) -> f64 {
        cluster.sub_racks as f64 * (cluster.lsn_disks as f64 * self.disk + cluster.lsn_gbps * self.gbps)
    }
}

/// An LSN that was simulated.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Candidate {
    /// Data disks of each LSN.
    pub lsn_disks: usize,
    /// Its link.
    pub lsn_gbps: f64,
    /// Cost of all LSNs.
    pub cost: f64,
    /// Of all applications, the largest normalized time.
    pub worst: f64,
    /// The application that has it.
    pub worst_app: String,
    /// Mean normalized time.
    pub mean: f64,
    /// Whether it keeps within the wish.
    pub fits: bool,
}

/// The answer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// The cheapest that fits.
    pub best: Candidate,
    /// The cheapest that fits for each link, slowest link first; links with which nothing fits are left out.
    pub frontier: Vec<Candidate>,
    /// With one disk less, if there is such an LSN: it does not fit.
    pub fewer_disks: Option<Candidate>,
    /// With the next slower link, if there is one: it does not fit or costs no less.
    pub slower_link: Option<Candidate>,
}

/// Finds the cheapest LSN.
///
/// # Errors
/// Invalid: the wish is inconsistent, or no LSN satisfies it; then the error gives the result of the nearest one.
pub fn advise(runner: &dyn Runner, cluster: &Cluster, apps: &[App], seeds: &[u64], wish: &Wish) -> Result<Advice> {
    check(cluster, wish)?;
    let mut links = wish.links.clone();
    links.sort_by(f64::total_cmp);
    links.dedup();
    let measure = |pairs: &[(usize, f64)]| measure_candidates(runner, cluster, apps, seeds, wish, pairs);
    // The largest first: if it does not fit, none does.
    let largest = measure(&links.iter().map(|gbps| (wish.most_disks, *gbps)).collect::<Vec<_>>())?;
    let mut open: Vec<Bracket> = largest
        .iter()
        .filter(|candidate| candidate.fits)
        .map(|candidate| Bracket { gbps: candidate.lsn_gbps, low: 0, best: candidate.clone() })
        .collect();
    if open.is_empty() {
        let nearest = largest.iter().min_by(|a, b| wish.value(a).total_cmp(&wish.value(b)));
        let nearest = nearest.expect("there is at least one link");
        bail!(
            Invalid,
            "no LSN of up to {} disks and {} Gbps keeps the workload within {:.1} %: the nearest is {} disks and {} \
             Gbps with {:+.1} % ({} {:+.1} %); the nearest possible value of --within is {:.1}",
            wish.most_disks,
            links.last().expect("there is at least one link"),
            wish.within * 100.0,
            nearest.lsn_disks,
            nearest.lsn_gbps,
            (wish.value(nearest) - 1.0) * 100.0,
            nearest.worst_app,
            (nearest.worst - 1.0) * 100.0,
            // Rounded up, so that the named percentage does fit.
            ((wish.value(nearest) - 1.0) * 1000.0).ceil() / 10.0
        );
    }
    loop {
        let pairs: Vec<(usize, f64)> = open.iter().filter_map(Bracket::next).collect();
        if pairs.is_empty() {
            break;
        }
        let mut seen = measure(&pairs)?.into_iter();
        for bracket in open.iter_mut().filter(|bracket| bracket.next().is_some()) {
            bracket.learn(seen.next().expect("one for each pair"));
        }
    }
    let frontier: Vec<Candidate> = open.into_iter().map(|bracket| bracket.best).collect();
    let order = |a: &&Candidate, b: &&Candidate| a.cost.total_cmp(&b.cost).then(a.lsn_disks.cmp(&b.lsn_disks));
    let best = frontier.iter().min_by(order).expect("at least one fits").clone();
    let mut neighbours = Vec::new();
    if best.lsn_disks > 1 + cluster.lsn_parity_disks {
        neighbours.push((best.lsn_disks - 1, best.lsn_gbps));
    }
    let slower = links.iter().rev().find(|gbps| **gbps < best.lsn_gbps);
    neighbours.extend(slower.map(|gbps| (best.lsn_disks, *gbps)));
    let mut seen = measure(&neighbours)?.into_iter();
    let fewer_disks = (best.lsn_disks > 1 + cluster.lsn_parity_disks).then(|| seen.next()).flatten();
    Ok(Advice { best, frontier, fewer_disks, slower_link: seen.next() })
}

/// One link: `low` disks do not fit, `best` do.
struct Bracket {
    gbps: f64,
    low: usize,
    best: Candidate,
}

impl Bracket {
    fn next(&self) -> Option<(usize, f64)> {
        (self.best.lsn_disks > self.low + 1).then(|| (usize::midpoint(self.low, self.best.lsn_disks), self.gbps))
    }

    fn learn(&mut self, candidate: Candidate) {
        if candidate.fits {
            self.best = candidate;
        } else {
            self.low = candidate.lsn_disks;
        }
    }
}

impl Wish {
    fn value(&self, candidate: &Candidate) -> f64 {
        match self.of {
            Strictness::Each => candidate.worst,
            Strictness::Mean => candidate.mean,
        }
    }
}

fn check(cluster: &Cluster, wish: &Wish) -> Result<()> {
    cluster.check()?;
    if !cluster.is_shared() {
        bail!(Invalid, "the baseline has no LSN to size; the nearest possible --placement is hybrid");
    }
    if !(0.0..=100.0).contains(&wish.within) {
        let nearest = if wish.within > 100.0 { 10_000.0 } else { 0.0 };
        bail!(
            Invalid,
            "--within {}: a slowdown is from 0 to 10000 %; the nearest possible value is {nearest}",
            wish.within * 100.0
        );
    }
    if wish.most_disks <= cluster.lsn_parity_disks {
        bail!(
            Invalid,
            "--max-disks {}: one disk must hold data besides {} of parity; the nearest possible value is {}",
            wish.most_disks,
            cluster.lsn_parity_disks,
            cluster.lsn_parity_disks + 1
        );
    }
    for (name, price) in [("disk-price", wish.prices.disk), ("gbps-price", wish.prices.gbps)] {
        if !(0.0..=1e12).contains(&price) {
            bail!(
                Invalid,
                "--{name} {price}: a price is from 0 to 1e12; the nearest possible value is {}",
                if price > 1e12 { 1e12 } else { 0.0 }
            );
        }
    }
    if wish.links.is_empty() {
        bail!(Invalid, "no link to choose from: name at least one");
    }
    for gbps in &wish.links {
        Cluster { lsn_gbps: *gbps, lsn_disks: wish.most_disks, ..cluster.clone() }.check()?;
    }
    Ok(())
}

fn measure_candidates(
    runner: &dyn Runner,
    cluster: &Cluster,
    apps: &[App],
    seeds: &[u64],
    wish: &Wish,
    pairs: &[(usize, f64)],
) -> Result<Vec<Candidate>> {
    // Parity must leave a disk for data.
    let least = cluster.lsn_parity_disks + 1;
    let clusters: Vec<Cluster> = pairs
        .iter()
        .map(|(disks, gbps)| Cluster { lsn_disks: (*disks).max(least), lsn_gbps: *gbps, ..cluster.clone() })
        .collect();
    let base = cluster.with_placement(Placement::Baseline);
    let rows = compare(runner, Some(&base), &clusters, apps, seeds)?;
    Ok(clusters
        .iter()
        .zip(rows)
        .zip(pairs)
        .map(|((cluster, row), pair)| assess_candidate(cluster, &row, pair.0, wish))
        .collect())
}

fn assess_candidate(cluster: &Cluster, row: &[Timing], disks: usize, wish: &Wish) -> Candidate {
    let worst = row.iter().max_by(|a, b| a.normalized_time.total_cmp(&b.normalized_time));
    let worst = worst.expect("there is at least one application");
    let mut candidate = Candidate {
        lsn_disks: disks,
        lsn_gbps: cluster.lsn_gbps,
        cost: wish.prices.of(cluster),
        worst: worst.normalized_time,
        worst_app: worst.app.clone(),
        mean: row.iter().map(|timing| timing.normalized_time).sum::<f64>() / row.len() as f64,
        fits: false,
    };
    candidate.fits = wish.value(&candidate) <= 1.0 + wish.within && disks == cluster.lsn_disks;
    candidate
}

#[cfg(test)]
mod tests;
