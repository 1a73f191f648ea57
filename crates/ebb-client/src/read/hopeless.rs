//! Decides when to stop asking for bytes that no member has. A pure core: rounds and moments go in.
//!
//! A member that is silent, asleep or overloaded may have the bytes, so the reader waits for it.
//! A member whose copy is damaged, gone or too old repeats its answer, with two exceptions: a copy
//! is being made there, or the map is out of date. So the reader asks the set again for a short
//! time only, and fetches the map anew in between.

use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{Error, ErrorKind};
use ebb_wire::pb;

/// Time for which all members of one set must have refused. It allows for a few rounds, and for a
/// copy or a change of the set that was under way.
const SETTLED: Duration = Duration::from_secs(1);
/// The same if a member has an older version: it may be about to get the newer one.
const SETTLED_STALE: Duration = Duration::from_secs(5);

/// Why a round over the members brought nothing.
#[derive(Debug)]
pub(crate) struct Barren {
    /// The last member's error.
    pub error: Error,
    /// The error of each member with a final answer.
    pub refusals: Vec<ErrorKind>,
}

/// Rounds in which every member of one set has refused.
#[derive(Debug, Default)]
pub(crate) struct Hopeless {
    since: Option<(Moment, Vec<pb::Member>)>,
}

impl Hopeless {
    /// Records a round over `members` without result. Returns whether the reader should give up.
    pub fn on_round(&mut self, members: &[pb::Member], barren: &Barren, now: Moment) -> bool {
        if members.is_empty() || barren.refusals.len() < members.len() {
            self.since = None;
            return false;
        }
        match &self.since {
            Some((since, same)) if same == members => {
                let is_stale = barren.refusals.contains(&ErrorKind::StaleVersion);
                now.since(*since) >= if is_stale { SETTLED_STALE } else { SETTLED }
            }
            _ => {
                self.since = Some((now, members.to_vec()));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(nodes: &[u64]) -> Vec<pb::Member> {
        nodes.iter().map(|node| pb::Member { node: *node, ..Default::default() }).collect()
    }

    fn barren(refusals: &[ErrorKind]) -> Barren {
        Barren { error: Error::new(ErrorKind::Corrupt, ""), refusals: refusals.to_vec() }
    }

    fn at(ms: u64) -> Moment {
        Moment::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn it_is_over_when_every_member_has_refused_for_a_moment() {
        let (set, mut hopeless) = (members(&[1, 2]), Hopeless::default());
        let both = barren(&[ErrorKind::Corrupt, ErrorKind::NoReplica]);
        assert!(!hopeless.on_round(&set, &both, at(0)));
        assert!(!hopeless.on_round(&set, &both, at(999)));
        assert!(hopeless.on_round(&set, &both, at(1000)));
    }

    #[test]
    fn a_member_that_says_nothing_and_a_new_set_begin_the_wait_anew() {
        let (set, mut hopeless) = (members(&[1, 2]), Hopeless::default());
        let both = barren(&[ErrorKind::Corrupt, ErrorKind::Corrupt]);
        assert!(!hopeless.on_round(&set, &both, at(0)));
        assert!(!hopeless.on_round(&set, &barren(&[ErrorKind::Corrupt]), at(5000)), "the other one is silent");
        assert!(!hopeless.on_round(&set, &both, at(6000)));
        assert!(!hopeless.on_round(&members(&[1, 3]), &both, at(7500)), "another node has a copy now");
        assert!(hopeless.on_round(&members(&[1, 3]), &both, at(8500)));
        assert!(!Hopeless::default().on_round(&[], &barren(&[]), at(0)));
    }

    #[test]
    fn one_that_is_behind_may_catch_up() {
        let (set, mut hopeless) = (members(&[1]), Hopeless::default());
        let behind = barren(&[ErrorKind::StaleVersion]);
        assert!(!hopeless.on_round(&set, &behind, at(0)));
        assert!(!hopeless.on_round(&set, &behind, at(4999)));
        assert!(hopeless.on_round(&set, &behind, at(5000)));
    }
}
