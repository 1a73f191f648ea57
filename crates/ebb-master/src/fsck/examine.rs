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
    /// Whether the file has a write lease or is in recovery, so that the record may lag behind.
    pub unsettled: bool,
    /// State of each member, in the record's order.
    pub found: Vec<(pb::Member, Found)>,
}

/// Adds one set to the counts of the reply. Returns a sentence for each fault.
pub fn examine(set: &Examined, reply: &mut pb::FsckReply) -> Vec<String> {
    reply.metablocks += 1;
    reply.unsettled += u64::from(set.unsettled);
    // Before the first commit a missing replica is no loss. Damage to a replica that exists counts all the same.
    let committed = set.record.min_version() != ebb_types::Version::ZERO;
    let mut findings = Vec::new();
    let nodes = |wanted: Found| -> BTreeSet<NodeId> {
        set.found.iter().filter(|(_, found)| *found == wanted).map(|(member, _)| member.node_id()).collect()
    };
    let (good, asleep) = (nodes(Found::Good), nodes(Found::Asleep));
    let there = good.union(&asleep).count();
    reply.unseen += asleep.len() as u64;
    let mut say = |text: String| findings.push(format!("m{} (index {}): {text}", set.record.id, set.record.index));
    for (member, found) in &set.found {
        let fault = match found {
            Found::Good | Found::Asleep => continue,
            Found::Behind | Found::Unreachable if !committed => continue,
            Found::Corrupt => {
                reply.corrupt += 1;
                "is corrupt: its bytes do not match their checksums; a good copy takes its place"
            }
            Found::Behind => {
                "is absent or older than committed (a lost write, or a volume that was emptied); it is copied again"
            }
            Found::Unreachable => {
                "is out of reach: its node does not answer; it is made again elsewhere once the node is dead"
            }
        };
        say(format!("replica on n{} v{} {fault}", member.node, member.volume));
    }
    if !committed {
        return findings;
    }
    if there == 0 {
        reply.missing += 1;
        say("no replica serves: its bytes cannot be read until one of these nodes comes back; see --repair".to_owned());
    } else if there < set.wanted {
        reply.under_replicated += 1;
        let next = if set.unsettled { "when its writer is done" } else { "as soon as a node has room and time" };
        say(format!("{there} of {} copies are good; the others are made {next}", set.wanted));
    }
    if good.is_empty() && !asleep.is_empty() {
        reply.asleep += 1;
        say("every good replica is on a node that the power plan keeps off: it can be read when one is on".to_owned());
    }
    if set.record.members.len() > set.wanted {
        reply.over_replicated += 1;
        say(format!("{} members, {} copies wanted; the excess is dropped", set.record.members.len(), set.wanted));
    }
    findings
}

#[cfg(test)]
mod tests;
