//! A node that is slow beyond its peers delays writers for a while and no longer; sets do without it, and lose nothing by that;
//! when it is well it is used again.
//!
//! Source: "Gray members" in `docs/protocol.md`. The cluster's observed reactions are compared with the run's faults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Violation;

/// A node may count as gray for so long before a set that is being changed knows it.
const KNOWN_AFTER: Duration = Duration::from_secs(2);

/// A write and its fsync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Synced {
    /// Which file.
    pub file: usize,
    /// When it began, since the start of the run.
    pub at: Duration,
    /// How long it took.
    pub took: Duration,
}

/// The observations of a moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// Since the start of the run.
    pub at: Duration,
    /// Nodes that the master calls gray.
    pub gray: BTreeSet<u64>,
    /// All nodes that live.
    pub live: BTreeSet<u64>,
    /// Of each file, the members of its set.
    pub sets: BTreeMap<usize, BTreeSet<u64>>,
}

/// The faults of the run, with their times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// When a node became slow.
    pub from: Duration,
    /// When it was well again.
    pub until: Duration,
    /// So long after that nothing waits for it any more.
    pub settle: Duration,
    /// And so long after that it is used again.
    pub back: Duration,
    /// Which one; none: none was slow.
    pub slow: Option<u64>,
    /// A write may take so many times as long as the longest without a slow node.
    pub times: u32,
}

/// Once a slow node has been there for some time, no write waits for it.
#[must_use]
pub fn check_delays(plan: &Plan, synced: &[Synced]) -> Vec<Violation> {
    let before = synced.iter().filter(|one| one.at < plan.from).map(|one| one.took).max().unwrap_or_default();
    let concerned = plan.from + plan.settle..plan.until;
    let is_late = |one: &&Synced| concerned.contains(&one.at) && one.took > before * plan.times;
    let late: Vec<&Synced> = synced.iter().filter(is_late).collect();
    let (Some(first), Some(last)) = (late.first(), late.last()) else { return Vec::new() };
    let detail = format!(
        "{} writes took long, that to file {} {:?} at {:?}, the last at {:?}; before the fault {before:?} at most",
        late.len(),
        first.file,
        first.took,
        first.at,
        last.at
    );
    vec![Violation::new("gray", detail)]
}

/// Fewer than half of the nodes are gray; no set is smaller than `copies`; none gets a gray member while a node that is well is free.
#[must_use]
pub fn check_sets(looks: &[Look], copies: usize) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut since = BTreeMap::<u64, Duration>::new();
    for pair in looks.windows(2) {
        let (before, now) = (&pair[0], &pair[1]);
        since.retain(|node, _| now.gray.contains(node));
        now.gray.iter().for_each(|node| {
            since.entry(*node).or_insert(now.at);
        });
        if now.gray.len() * 2 >= now.live.len().max(1) {
            found.push(format!("{:?} of {:?} are gray at {:?}", now.gray, now.live, now.at));
        }
        for (file, members) in &now.sets {
            if members.len() < copies {
                found.push(format!("file {file} has {members:?} at {:?}", now.at));
            }
            let Some(old) = before.sets.get(file) else { continue };
            let is_known = |node: &u64| since.get(node).is_some_and(|since| now.at - *since > KNOWN_AFTER);
            let joined: Vec<u64> = members.difference(old).copied().filter(is_known).collect();
            let is_free = |node: &&u64| !members.contains(node) && !old.contains(node) && !now.gray.contains(node);
            if let (Some(gray), Some(free)) = (joined.first(), now.live.iter().find(is_free)) {
                found.push(format!("file {file} got n{gray}, which is gray, at {:?}, and n{free} is free", now.at));
            }
        }
    }
    found.into_iter().map(|detail| Violation::new("gray", detail)).collect()
}

/// Only the slow node is ever called gray, it is called so, and not any more when it has been well for a while.
#[must_use]
pub fn check_verdicts(plan: &Plan, looks: &[Look]) -> Vec<Violation> {
    let mut found = Vec::new();
    for look in looks {
        let may_be = |node: &u64| Some(*node) == plan.slow && look.at >= plan.from && look.at < plan.until + plan.back;
        if let Some(node) = look.gray.iter().find(|node| !may_be(node)) {
            found.push(format!("n{node} is called gray at {:?}; slow is {:?}", look.at, plan.slow));
            break;
        }
    }
    let concerned = plan.from + plan.settle..plan.until;
    let is_missed =
        |look: &&Look| concerned.contains(&look.at) && plan.slow.is_some_and(|slow| !look.gray.contains(&slow));
    if let Some(look) = looks.iter().find(is_missed) {
        found.push(format!("{:?} is slow since {:?}, and not called gray at {:?}", plan.slow, plan.from, look.at));
    }
    found.into_iter().map(|detail| Violation::new("gray", detail)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PLAN: Plan = Plan {
        from: Duration::from_secs(10),
        until: Duration::from_secs(100),
        settle: Duration::from_secs(20),
        back: Duration::from_secs(40),
        slow: Some(2),
        times: 5,
    };

    fn make_look(at: u32, gray: &[u64], set: &[u64]) -> Look {
        Look {
            at: at * SECOND,
            gray: gray.iter().copied().collect(),
            live: (1..=6).collect(),
            sets: BTreeMap::from([(0, set.iter().copied().collect())]),
        }
    }

    #[test]
    fn a_write_that_waits_for_long_is_found() {
        let write = |at: u32, took: u64| Synced { file: 0, at: at * SECOND, took: Duration::from_millis(took) };
        assert_eq!(check_delays(&PLAN, &[write(1, 4), write(12, 900), write(40, 20), write(101, 90)]), []);
        assert_eq!(check_delays(&PLAN, &[write(1, 4), write(40, 21)]).len(), 1);
    }

    #[test]
    fn a_set_that_gets_a_gray_member_or_shrinks_is_found() {
        let well = [make_look(20, &[2], &[1, 2, 3]), make_look(25, &[2], &[1, 4, 3])];
        assert_eq!(check_sets(&well, 3), []);
        let back = [make_look(20, &[2], &[1, 2, 3]), make_look(25, &[2], &[1, 4, 3]), make_look(30, &[2], &[1, 2, 3])];
        assert_eq!(check_sets(&back, 3).len(), 1, "it came back while it was gray");
        assert_eq!(check_sets(&[make_look(20, &[2], &[1, 2, 3]), make_look(25, &[2], &[1, 3])], 3).len(), 1);
        assert_eq!(check_sets(&[make_look(20, &[], &[1, 2, 3]), make_look(25, &[1, 2, 3], &[1, 2, 3])], 3).len(), 1);
    }

    #[test]
    fn a_verdict_that_is_wrong_missing_or_kept_is_found() {
        assert_eq!(
            check_verdicts(&PLAN, &[make_look(5, &[], &[]), make_look(35, &[2], &[]), make_look(150, &[], &[])]),
            []
        );
        for wrong in
            [make_look(35, &[2, 3], &[]), make_look(35, &[], &[]), make_look(150, &[2], &[]), make_look(5, &[2], &[])]
        {
            assert_eq!(check_verdicts(&PLAN, std::slice::from_ref(&wrong)).len(), 1, "{wrong:?}");
        }
    }
}
