//! The choice among plans: no worse than the best rival in any measure, and then the shortest reference job.

use super::candidates::Candidate;
use super::score::Score;

/// A plan, and its worth.
#[derive(Clone, PartialEq, Debug)]
pub struct Scored {
    /// The plan.
    pub plan: Candidate,
    /// Its worth.
    pub score: Score,
}

/// Times that differ by less are equal: 1 %, and 20 ms.
const EQUAL: f64 = 0.01;
const EQUAL_S: f64 = 0.02;
/// Waits below this are no reason to prefer a plan if no plan is best in every measure.
const SHORT_WAIT_S: f64 = 0.1;

/// The best of the rivals in each measure, each on its own.
#[derive(Clone, Copy, Debug)]
struct Best(Score);

impl Best {
    fn of(rivals: &[Scored]) -> Option<Self> {
        let scores = rivals.iter().map(|rival| rival.score);
        let better = |one: Score, other: Score| Score {
            wait_s: one.wait_s.min(other.wait_s),
            wait_p90_s: one.wait_p90_s.min(other.wait_p90_s),
            work_s: one.work_s.min(other.work_s),
            long_work_s: one.long_work_s.min(other.long_work_s),
            rate: one.rate.max(other.rate),
        };
        scores.reduce(better).map(Self)
    }

    /// Whether this is as good as the best in all measures.
    fn is_reached_by(&self, score: &Score) -> bool {
        let Self(best) = self;
        let is_short = |time: f64, best: f64| time <= best * (1.0 + EQUAL) + EQUAL_S;
        is_short(score.wait_s, best.wait_s)
            && is_short(score.wait_p90_s, best.wait_p90_s)
            && is_short(score.work_s, best.work_s)
            && is_short(score.long_work_s, best.long_work_s)
            && score.rate >= best.rate * (1.0 - EQUAL / 10.0)
    }

    /// The worst ratio to the best, over the measures. 1 is as good as the best in all of them.
    fn worst_ratio(&self, score: &Score) -> f64 {
        let Self(best) = self;
        [
            (score.wait_s + SHORT_WAIT_S) / (best.wait_s + SHORT_WAIT_S),
            (score.wait_p90_s + SHORT_WAIT_S) / (best.wait_p90_s + SHORT_WAIT_S),
            score.work_s / best.work_s,
            score.long_work_s / best.long_work_s,
            best.rate / score.rate.max(1e-9),
        ]
        .into_iter()
        .fold(0.0, f64::max)
    }
}

/// The plan to follow, with words about it. `kept` is the plan that is known already: it stays unless another is better
/// by more than a rounding error.
pub fn choose(rivals: Vec<Scored>, own: Vec<Scored>, kept: Option<Scored>) -> Option<Scored> {
    let best = Best::of(&rivals);
    let mut open: Vec<Scored> = own.into_iter().chain(rivals).chain(kept.clone()).collect();
    let is_reached = best.is_none_or(|best| open.iter().any(|one| best.is_reached_by(&one.score)));
    if let Some(best) = best {
        if is_reached {
            open.retain(|one| best.is_reached_by(&one.score));
        } else {
            let least = open.iter().map(|one| best.worst_ratio(&one.score)).fold(f64::INFINITY, f64::min);
            open.retain(|one| best.worst_ratio(&one.score) <= least * (1.0 + EQUAL));
        }
    }
    let least = open.iter().map(|one| one.score.job_s()).fold(f64::INFINITY, f64::min);
    if let Some(kept) = kept.filter(|kept| open.contains(kept) && kept.score.job_s() <= least * (1.0 + EQUAL)) {
        return Some(kept);
    }
    open.retain(|one| one.score.job_s() <= least * (1.0 + EQUAL));
    let order = |one: &Scored, other: &Scored| {
        let starts = one.plan.starts_per_hour().total_cmp(&other.plan.starts_per_hour());
        starts.then(one.score.job_s().total_cmp(&other.score.job_s()))
    };
    let mut chosen = open.into_iter().min_by(order)?;
    let worst = best.filter(|_| !is_reached).map_or(1.0, |best| best.worst_ratio(&chosen.score));
    if worst > 1.0 + EQUAL {
        chosen
            .plan
            .name
            .push_str(&format!("; up to {:.0} % worse than the best in one measure", (worst - 1.0) * 100.0));
    }
    Some(chosen)
}
