//! With how few copies a set goes on while nodes are missing (docs/protocol.md, Fewer members). Plain values in, a decision out.
//!
//! A dataset wants so many copies, and says with how few a write may be acknowledged. Between the two a set goes on without a
//! member that has failed, if no other node can take its place. It does not where the member will be there again by itself
//! (its node sleeps by plan), or where a writer has to be told (its volume is full).

use std::fmt;
use std::time::Duration;

use ebb_types::NodeId;

/// Why a member takes no writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absence {
    /// The master misses its node's heartbeats, holds it for dead, or knows that the volume is poisoned or gone.
    Missed,
    /// The master hears its node, and the holder has had no answer from it at all for a write's deadline.
    Silent,
    /// It answers that its copy is gone, damaged or too old to go on from.
    Lost,
    /// It answers, or its process is not there, and it has taken no writes for so long.
    Failing(Duration),
    /// It has no room: the writer is told.
    Full,
    /// A power plan lets its node sleep: it will be there.
    Asleep,
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missed => "is missed",
            Self::Silent => "does not answer this client",
            Self::Lost => "has no good copy any more",
            Self::Failing(_) => "takes no writes at present",
            Self::Full => "has no room",
            Self::Asleep => "sleeps by the power plan",
        })
    }
}

/// A set of which no member can be replaced now.
#[derive(Clone, Debug)]
pub struct Case {
    /// Members that have to take a write before it is acknowledged.
    pub min: usize,
    /// Members that are well and have everything.
    pub well: usize,
    /// Members that are not.
    pub absent: Vec<(NodeId, Absence)>,
}

/// Whether such a set goes on with those that are well. If not, a sentence says why. A member that fails, and is not silent,
/// may be back in a moment: it is waited for as long as `patience`.
pub fn check_go_on(case: &Case, patience: Duration) -> Result<(), String> {
    if case.well < case.min {
        return Err(format!("{} members are well, and a write needs {}", case.well, case.min));
    }
    let is_waited_for = |absence: &Absence| match absence {
        Absence::Missed | Absence::Silent | Absence::Lost => false,
        Absence::Failing(span) => *span < patience,
        Absence::Full | Absence::Asleep => true,
    };
    match case.absent.iter().find(|(_, absence)| is_waited_for(absence)) {
        Some((node, absence)) => Err(format!("{node} {absence}, and is waited for")),
        None => Ok(()),
    }
}

/// What a holder makes of its set.
#[derive(Clone, Debug)]
pub struct Shrink {
    /// Members that have to take a write before it is acknowledged.
    pub min: usize,
    /// Members until now.
    pub old: usize,
    /// Members from now on.
    pub new: usize,
    /// Nodes of those that are left out, as far as the master does not hold them for lost.
    pub left_out: Vec<NodeId>,
}

/// Whether a holder may do that. Below what a write needs it may leave out only who is lost: of the others it knows no more than that it
/// cannot write to them, and it may be the one that is cut off.
pub fn check_shrink(shrink: &Shrink) -> Result<(), String> {
    let Shrink { min, old, new, left_out } = shrink;
    match left_out.first().filter(|_| new < min.min(old)) {
        Some(node) => Err(format!("a set of {old} members may not be left with {new} without {node}, which is there")),
        None => Ok(()),
    }
}

/// Where a metablock is tried to be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// How many copies.
    pub copies: usize,
    /// Also on nodes that are late.
    pub takes_late: bool,
}

/// The attempts for a new metablock that finds no room as a whole on nodes that work, best first: with room for a block. `sound`: nodes that work, those that sleep by plan included. While there are
/// fewer than copies are wanted, fewer copies are made, down to `min`: a copy on a node that is late would keep the first
/// write waiting.
#[must_use]
pub fn attempts(wanted: usize, min: usize, sound: usize) -> Vec<Attempt> {
    let prompt = |copies| Attempt { copies, takes_late: false };
    let late = |copies| Attempt { copies, takes_late: true };
    let fewer = || (min.max(1)..wanted).rev().filter(|_| sound < wanted);
    let mut all = vec![prompt(wanted)];
    all.extend(fewer().map(prompt));
    all.push(late(wanted));
    all.extend(fewer().map(late));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(3);

    fn goes_on(min: usize, well: usize, absent: &[Absence]) -> bool {
        let absent = absent.iter().zip(1..).map(|(absence, node)| (NodeId::new(node), *absence)).collect();
        check_go_on(&Case { min, well, absent }, PATIENCE).is_ok()
    }

    #[test]
    fn a_set_goes_on_without_who_is_missed_or_silent() {
        assert!(goes_on(2, 2, &[Absence::Missed]) && goes_on(2, 2, &[Absence::Silent]));
        assert!(goes_on(2, 2, &[Absence::Lost]), "it will not have a good copy by itself");
        assert!(goes_on(2, 2, &[]), "it was short before");
        assert!(goes_on(2, 3, &[Absence::Missed, Absence::Silent, Absence::Missed]), "whatever was wanted");
    }

    #[test]
    fn never_with_fewer_than_a_write_needs() {
        assert!(!goes_on(2, 1, &[Absence::Missed]) && !goes_on(2, 1, &[]) && !goes_on(1, 0, &[Absence::Missed]));
        assert!(goes_on(1, 1, &[Absence::Missed]), "an operator wants it so");
        assert!(!goes_on(3, 2, &[Absence::Missed]), "likewise");
    }

    #[test]
    fn a_holder_leaves_no_set_below_what_a_write_needs() {
        let check = |min, old, new, nodes: &[u64]| {
            let left_out = nodes.iter().copied().map(NodeId::new).collect();
            check_shrink(&Shrink { min, old, new, left_out }).is_ok()
        };
        assert!(!check(2, 3, 1, &[1, 2]) && !check(2, 2, 1, &[1]) && !check(2, 3, 1, &[2]));
        assert!(check(2, 3, 1, &[]), "those are lost");
        assert!(check(2, 3, 2, &[1]) && check(1, 3, 1, &[1, 2]), "a write needs no more");
        assert!(check(3, 1, 2, &[]) && check(2, 1, 1, &[1]), "it was smaller before");
    }

    #[test]
    fn who_comes_back_by_itself_is_waited_for() {
        assert!(!goes_on(2, 2, &[Absence::Asleep]), "its wake comes");
        assert!(!goes_on(2, 2, &[Absence::Full]), "the writer is told");
        assert!(!goes_on(2, 3, &[Absence::Missed, Absence::Asleep]), "one of both is");
        assert!(!goes_on(2, 2, &[Absence::Failing(Duration::from_secs(2))]), "a process that is started again");
        assert!(goes_on(2, 2, &[Absence::Failing(PATIENCE)]));
    }

    #[test]
    fn every_set_that_goes_on_has_as_many_members_as_a_write_needs() {
        let absences = [Absence::Missed, Absence::Silent, Absence::Failing(PATIENCE), Absence::Full, Absence::Asleep];
        for (min, well) in (1..4).flat_map(|min| (0..5).map(move |well| (min, well))) {
            for one in absences {
                for other in absences {
                    let is_there = [one, other].iter().any(|is| matches!(is, Absence::Full | Absence::Asleep));
                    assert_eq!(goes_on(min, well, &[one, other]), well >= min && !is_there);
                }
            }
        }
    }

    #[test]
    fn a_new_set_is_whole_on_prompt_nodes_or_smaller_rather_than_on_late_ones() {
        let text = |attempt: &Attempt| format!("{}{}", attempt.copies, if attempt.takes_late { "l" } else { "" });
        let tried = |wanted, min, sound| attempts(wanted, min, sound).iter().map(text).collect::<Vec<_>>().join(" ");
        assert_eq!(tried(3, 2, 2), "3 2 3l 2l");
        assert_eq!(tried(3, 1, 2), "3 2 1 3l 2l 1l");
        assert_eq!(tried(3, 2, 3), "3 3l", "nodes are there: what is wrong is that they are full, or sleep");
        assert_eq!(tried(2, 2, 1), "2 2l", "none to spare");
        assert_eq!(tried(1, 1, 0), "1 1l");
    }
}
