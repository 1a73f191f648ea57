//! The smallest number of copies with which a set continues while nodes are missing (docs/protocol.md, Fewer members).
//! Plain values in, a decision out.
//!
//! A dataset has a wanted number of copies, and a smaller number that suffices to acknowledge a write. Between the two,
//! a set continues without a failed member if no other node can replace it. It does not if the member returns by itself
//! (its node blinks by plan), or if the writer must get an error (its volume is full). I-104.

use std::fmt;
use std::time::Duration;

use ebb_types::NodeId;

/// Reason why a member takes no writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absence {
    /// The master misses its node or takes it for dead, or its volume is poisoned or gone.
    Missed,
    /// The master hears its node, but the holder has had no answer from it for the deadline of a write.
    Silent,
    /// It reports that its copy is gone, damaged or too old to continue from.
    Lost,
    /// It answers, or its process is not running, and it has taken no writes for this long.
    Failing(Duration),
    /// It has no room, and the writer must get an error.
    Full,
    /// A power plan lets its node sleep at times, so it will return by itself.
    Asleep,
    /// A power plan keeps its node off: it returns only with another plan.
    Off,
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
            Self::Off => "is kept off by the power plan",
        })
    }
}

/// A set whose absent members cannot be replaced now.
#[derive(Clone, Debug)]
pub struct Case {
    /// Number of members that must take a write before it is acknowledged.
    pub min: usize,
    /// Number of members that take writes and have everything.
    pub well: usize,
    /// The other members.
    pub absent: Vec<(NodeId, Absence)>,
}

/// Whether the set continues without its absent members. `patience` is the wait for a member that fails without being
/// silent, because it may be back in a moment.
///
/// Errors: a sentence with the reason.
pub fn check_go_on(case: &Case, patience: Duration) -> Result<(), String> {
    if case.well < case.min {
        return Err(format!("{} members are well, and a write needs {}", case.well, case.min));
    }
    let is_waited_for = |absence: &Absence| match absence {
        Absence::Missed | Absence::Silent | Absence::Lost | Absence::Off => false,
        Absence::Failing(span) => *span < patience,
        Absence::Full | Absence::Asleep => true,
    };
    match case.absent.iter().find(|(_, absence)| is_waited_for(absence)) {
        Some((node, absence)) => Err(format!("{node} {absence}, and is waited for")),
        None => Ok(()),
    }
}

/// A holder's change of its set.
#[derive(Clone, Debug)]
pub struct Shrink {
    /// Number of members that must take a write before it is acknowledged.
    pub min: usize,
    /// Number of members before.
    pub old: usize,
    /// Number of members after.
    pub new: usize,
    /// Nodes of the removed members that the master does not take for lost.
    pub left_out: Vec<NodeId>,
}

/// Whether the holder may make the change.
///
/// Below the number that a write needs, it may remove only lost members. About the others it knows only that it cannot
/// write to them, and it may itself be the one that is cut off (I-117).
///
/// Errors: a sentence with the reason.
pub fn check_shrink(shrink: &Shrink) -> Result<(), String> {
    let Shrink { min, old, new, left_out } = shrink;
    match left_out.first().filter(|_| new < min.min(old)) {
        Some(node) => Err(format!("a set of {old} members may not be left with {new} without {node}, which is there")),
        None => Ok(()),
    }
}

/// One way to place a metablock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// Number of copies.
    pub copies: usize,
    /// Whether late nodes may be used.
    pub takes_late: bool,
}

/// The attempts to place a new metablock that does not fit as a whole on prompt nodes, best first.
///
/// `sound` is the number of usable nodes, with those that blink and without those that a plan keeps off. If it is below `wanted`, fewer copies are
/// tried, down to `min`, before late nodes: a copy on a late node would delay the first write.
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
    fn a_set_goes_on_without_a_missed_or_silent_member() {
        assert!(goes_on(2, 2, &[Absence::Missed]) && goes_on(2, 2, &[Absence::Silent]));
        assert!(goes_on(2, 2, &[Absence::Off]), "no wake of it is planned");
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
    fn a_holder_leaves_no_set_below_the_copies_that_a_write_needs() {
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
    fn a_member_that_comes_back_by_itself_is_waited_for() {
        assert!(!goes_on(2, 2, &[Absence::Asleep]), "its wake comes");
        assert!(!goes_on(2, 2, &[Absence::Full]), "the writer is told");
        assert!(!goes_on(2, 3, &[Absence::Missed, Absence::Asleep]), "one of both is");
        assert!(!goes_on(2, 2, &[Absence::Failing(Duration::from_secs(2))]), "a process that is started again");
        assert!(goes_on(2, 2, &[Absence::Failing(PATIENCE)]));
    }

    #[test]
    fn every_set_that_goes_on_has_as_many_members_as_a_write_needs() {
        use Absence::{Asleep, Failing, Full, Missed, Off, Silent};
        let absences = [Missed, Silent, Failing(PATIENCE), Full, Asleep, Off];
        for (min, well) in (1..4).flat_map(|min| (0..5).map(move |well| (min, well))) {
            for one in absences {
                for other in absences {
                    let is_there = [one, other].iter().any(|is| matches!(is, Full | Asleep));
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
