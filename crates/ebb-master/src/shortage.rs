//! Reasons why sets have fewer copies than wanted, in sentences for operators. Pure; the shells are `admin` and `fsck`.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::NodeId;
use ebb_wire::pb;

use crate::copies::repair::{Condition, SetView};
use crate::fsck::{Examined, Found};

/// Maximum number of reasons in a reply.
const REASONS_MAX: usize = 20;

/// Obstacles to a further member of a set.
#[derive(Clone, Debug, Default)]
pub struct Obstacles {
    /// Nodes that are late or dead.
    pub missed: BTreeSet<NodeId>,
    /// Nodes that the file's writer cannot reach.
    pub held_back: BTreeSet<NodeId>,
}

/// Number of short metablocks for each reason.
#[derive(Clone, Debug, Default)]
pub struct Tally(BTreeMap<String, u64>);

impl Tally {
    /// Counts one metablock.
    pub fn add(&mut self, why: String) {
        *self.0.entry(why).or_default() += 1;
    }

    /// The reasons as messages, the most frequent ones first.
    #[must_use]
    pub fn to_messages(&self) -> Vec<pb::Shortage> {
        let mut all: Vec<_> =
            self.0.iter().map(|(why, count)| pb::Shortage { metablocks: *count, why: why.clone() }).collect();
        all.sort_by_key(|shortage| std::cmp::Reverse(shortage.metablocks));
        all.truncate(REASONS_MAX);
        all
    }
}

/// Reason why a set is short. `None` means that it is not known to be short.
#[must_use]
pub fn explain(view: &SetView, obstacles: &Obstacles) -> Option<String> {
    let good = view.members.iter().filter(|(_, is)| matches!(is, Condition::Good | Condition::Unknown));
    if good.count() >= view.wanted {
        return None;
    }
    let bad = view.members.iter().find_map(|(member, condition)| sentence(member.node_id(), *condition));
    Some(bad.unwrap_or_else(|| too_few(view, obstacles)))
}

/// Reason why a set is short that was examined on the disks.
#[must_use]
pub fn explain_found(set: &Examined, obstacles: &Obstacles) -> String {
    let bad = set.found.iter().find_map(|(member, found)| {
        let node = member.node_id();
        match found {
            Found::Good | Found::Asleep => None,
            Found::Unreachable => Some(format!("{node} does not answer")),
            Found::Corrupt | Found::Behind => sentence(node, Condition::Damaged),
        }
    });
    let members = set.record.members.iter().map(|member| (*member, Condition::Good)).collect();
    bad.unwrap_or_else(|| too_few(&SetView { wanted: set.wanted, members, spare: None }, obstacles))
}

fn sentence(node: NodeId, condition: Condition) -> Option<String> {
    match condition {
        Condition::Good | Condition::Unknown => None,
        Condition::Draining => Some(format!("{node} is being drained")),
        Condition::NodeLost => Some(format!("{node} is dead")),
        Condition::VolumeLost => Some(format!("a volume of {node} is poisoned or gone")),
        Condition::Damaged | Condition::Cramped => Some(format!("a replica on {node} is damaged or missing")),
    }
}

/// Reason why a set whose members are all good has too few.
fn too_few(view: &SetView, obstacles: &Obstacles) -> String {
    let members: BTreeSet<NodeId> = view.members.iter().map(|(member, _)| member.node_id()).collect();
    let others = |nodes: &BTreeSet<NodeId>| {
        let others: Vec<String> = nodes.difference(&members).map(ToString::to_string).collect();
        Some(others.join(", ")).filter(|others| !others.is_empty())
    };
    let counts = format!("sets go on with {} of {} copies", members.len(), view.wanted);
    match (others(&obstacles.held_back), others(&obstacles.missed)) {
        (Some(nodes), _) => format!("{counts}: writers cannot reach {nodes}, so nothing is copied there for a while"),
        (None, Some(nodes)) => format!("{counts}: {nodes} is not there; the others are made when it is"),
        (None, None) => {
            format!("{counts}: the others are being made, or wait for their turn, for room or for a writer")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(conditions: &[Condition]) -> SetView {
        let member = |node| pb::Member { node, volume: node, incarnation: 1, home: 0 };
        let members = conditions.iter().zip(1..).map(|(condition, node)| (member(node), *condition)).collect();
        SetView { wanted: 3, members, spare: None }
    }

    #[test]
    fn a_set_that_is_short_says_why() {
        use Condition::{Damaged, Good, NodeLost, Unknown};
        let none = Obstacles::default();
        assert_eq!(explain(&view(&[Good, Unknown, Good]), &none), None);
        assert_eq!(explain(&view(&[Good, NodeLost, Good]), &none).unwrap(), "n2 is dead");
        assert_eq!(explain(&view(&[Good, Good, Damaged]), &none).unwrap(), "a replica on n3 is damaged or missing");
        let set = |ids: &[u64]| ids.iter().copied().map(NodeId::new).collect::<BTreeSet<_>>();
        let missed = Obstacles { missed: set(&[1, 3]), ..Obstacles::default() };
        let why = explain(&view(&[Good, Good]), &missed).unwrap();
        assert_eq!(why, "sets go on with 2 of 3 copies: n3 is not there; the others are made when it is");
        let parted = Obstacles { held_back: set(&[3]), ..missed };
        assert!(explain(&view(&[Good, Good]), &parted).unwrap().contains("writers cannot reach n3"));
        assert!(explain(&view(&[Good, Good]), &none).unwrap().contains("wait for their turn"));
    }

    #[test]
    fn reasons_are_counted_and_the_most_frequent_stands_first() {
        let mut tally = Tally::default();
        ["a", "b", "b"].iter().for_each(|why| tally.add((*why).to_owned()));
        let shown: Vec<_> =
            tally.to_messages().into_iter().map(|shortage| (shortage.metablocks, shortage.why)).collect();
        assert_eq!(shown, [(2, "b".to_owned()), (1, "a".to_owned())]);
    }
}
