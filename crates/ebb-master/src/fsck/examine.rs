//! The verdict on one set: its counts, and a sentence for each fault. Pure.

use std::collections::BTreeSet;

use ebb_types::NodeId;
use ebb_wire::pb;

/// State in which a member's replica was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It has the committed version or a higher one.
    Good,
    /// Its bytes do not match their checksums, or its volume reports damage.
    Corrupt,
    /// It is absent, or below the committed version.
    Behind,
    /// Its node does not answer.
    Unreachable,
    /// A power plan keeps its node off, so it was not examined.
    Asleep,
}

/// One set as recorded and as found.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The recorded set.
    pub record: pb::Metablock,
    /// Number of copies that the dataset wants.
    pub wanted: usize,
    /// Number of copies that are no excess. Those of a RAID set's slot may be on their way out, or have come back.
    pub at_most: usize,
    /// Whether the file has a write lease or is in recovery, so that the record may lag behind.
    pub unsettled: bool,
    /// State of each member, in the record's order.
    pub found: Vec<(pb::Member, Found)>,
    /// Whether its RAID set gives the bytes without it.
    pub decodable: bool,
}

/// Adds one set to the counts of the reply. Returns a sentence for each fault.
pub fn examine(set: &Examined, reply: &mut pb::FsckReply) -> Vec<String> {
    reply.metablocks += 1;
    reply.unsettled += u64::from(set.unsettled);
    // Before the first commit a missing replica is no loss. Damage to a replica that exists counts all the same.
    let committed = set.record.min_version() != ebb_types::Version::ZERO;
    let state = State::of(set);
    reply.unseen += state.asleep.len() as u64;
    let mut findings = Vec::new();
    for (member, found) in &set.found {
        let fault = match found {
            Found::Good | Found::Asleep => continue,
            Found::Behind | Found::Unreachable if !committed => continue,
            Found::Corrupt => {
                reply.corrupt += 1;
                "is damaged: its bytes do not match their checksums, or its file is gone"
            }
            Found::Behind => "is absent or older than committed (a lost write, or a volume that was emptied)",
            Found::Unreachable => "is out of reach: its node does not answer",
        };
        findings.push(format!("replica on n{} v{} {fault}; {}", member.node, member.volume, state.next_step(*found)));
    }
    if !committed {
        return findings;
    }
    let there = state.good.union(&state.asleep).count();
    if there == 0 && set.decodable {
        reply.degraded += 1;
        findings.push("no replica serves; its RAID set gives the bytes, and it is made again".to_owned());
    } else if there == 0 {
        findings.push(state.count_unreadable(reply));
    } else if there < set.wanted {
        reply.under_replicated += 1;
        let next = if set.unsettled { "when its writer is done" } else { "as soon as a node has room and time" };
        findings.push(format!("{there} of {} copies are good; the others are made {next}", set.wanted));
    }
    if state.good.is_empty() && !state.asleep.is_empty() {
        reply.asleep += 1;
        let nodes = list(&state.asleep);
        findings.push(format!("out of reach by plan: the power plan keeps {nodes} off; it can be read when one is on"));
    }
    if set.record.members.len() > set.at_most {
        reply.over_replicated += 1;
        let members = set.record.members.len();
        findings.push(format!("{members} members, {} copies wanted; the excess is dropped", set.wanted));
    }
    findings
}

/// The nodes of a set by the state of their replicas.
struct State {
    good: BTreeSet<NodeId>,
    asleep: BTreeSet<NodeId>,
    unreachable: BTreeSet<NodeId>,
    corrupt: BTreeSet<NodeId>,
}

impl State {
    fn of(set: &Examined) -> Self {
        let nodes = |wanted: Found| {
            set.found.iter().filter(|(_, found)| *found == wanted).map(|(member, _)| member.node_id()).collect()
        };
        Self {
            good: nodes(Found::Good),
            asleep: nodes(Found::Asleep),
            unreachable: nodes(Found::Unreachable),
            corrupt: nodes(Found::Corrupt),
        }
    }

    /// The way on for a replica that was found so.
    fn next_step(&self, found: Found) -> String {
        if !self.good.is_empty() {
            let when = if found == Found::Unreachable { " once its node is dead" } else { "" };
            return format!("a good copy takes its place{when}");
        }
        if !self.asleep.is_empty() {
            return format!("it is copied when {} is on, which may have a good copy", list(&self.asleep));
        }
        match self.unreachable.is_empty() {
            true => "no good copy is left".to_owned(),
            false => format!("it is copied if {} comes back with a good copy", list(&self.unreachable)),
        }
    }

    /// Counts a metablock that cannot be read, and says why.
    fn count_unreadable(&self, reply: &mut pb::FsckReply) -> String {
        if !self.unreachable.is_empty() {
            reply.unreachable += 1;
            let nodes = list(&self.unreachable);
            return format!(
                "out of reach by failure: {nodes} does not answer; it can be read when one with a good copy is back"
            );
        }
        if !self.corrupt.is_empty() {
            reply.damaged += 1;
            return "damaged: every replica that is left is damaged; see --repair".to_owned();
        }
        reply.missing += 1;
        "missing: no replica is left on any node; see --repair".to_owned()
    }
}

/// "n1 or n2".
fn list(nodes: &BTreeSet<NodeId>) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests;
