//! Examples of holdings: an operator can use a path, but not a set of nodes.
//!
//! The search visits every metablock and every name. It runs only for an operator's request, on a snapshot, with
//! pauses, and not beyond the caller's deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_meta::Machine;
use ebb_runtime::Moment;
use ebb_types::{InodeId, Result, bail};
use ebb_wire::pb;

use super::nodes;
use crate::shared::Shared;

/// Maximum number of holdings in one call.
const WANTED_MAX: usize = 16;
/// Candidate files of each holding. One is not enough, because a removed file that is open has no name.
const CANDIDATES: usize = 4;
/// Metablocks, or names, visited without a pause.
const PART: usize = 10_000;
/// Length of a pause, in which other tasks run.
const PAUSE: Duration = Duration::from_millis(1);

/// Adds the path of a file to those of `holdings` that are in `wanted`, if one is found before `until`.
///
/// Errors: `Invalid` for more than [`WANTED_MAX`] wanted holdings.
pub(crate) async fn find(
    shared: &Shared,
    machine: &Machine,
    holdings: &mut [pb::PowerHolding],
    wanted: &[pb::PowerHolding],
    until: Moment,
) -> Result<()> {
    if wanted.len() > WANTED_MAX {
        bail!(Invalid, "examples of {} holdings at a time; at most {WANTED_MAX}", wanted.len());
    }
    if wanted.is_empty() {
        return Ok(());
    }
    // The search for names needs half of the time.
    let half = shared.runtime.now().after(until.since(shared.runtime.now()) / 2);
    let mut pace = Pace { shared, until: half, looked: 0 };
    let apart: BTreeSet<&[u64]> =
        holdings.iter().filter(|held| !held.decoded && !is_merged(held)).map(|held| &held.nodes[..]).collect();
    let mut searches: Vec<Search<'_>> =
        wanted.iter().map(|of| Search { of, apart: &apart, files: Vec::new() }).collect();
    for (_, inode, members) in machine.placed() {
        if searches.iter().all(Search::is_full) || !pace.goes_on().await {
            break;
        }
        searches.iter_mut().for_each(|search| search.offer(inode, members));
    }
    let files: BTreeSet<InodeId> = searches.iter().flat_map(|search| &search.files).copied().collect();
    let mut paths: BTreeMap<InodeId, String> = BTreeMap::new();
    pace.until = until;
    for named in machine.names() {
        if searches.iter().all(|search| search.path(&paths).is_some()) || !pace.goes_on().await {
            break;
        }
        let is_useful = |search: &Search<'_>| search.files.contains(&named.inode) && search.path(&paths).is_none();
        if files.contains(&named.inode) && searches.iter().any(is_useful) {
            paths.insert(named.inode, machine.path(named));
        }
    }
    let found: Vec<Option<String>> = searches.iter().map(|search| search.path(&paths).cloned()).collect();
    for (wanted, path) in wanted.iter().zip(found) {
        let key = |held: &pb::PowerHolding| (held.nodes.clone(), held.copies, held.slots.clone());
        let is_it = |held: &&mut pb::PowerHolding| key(held) == key(wanted);
        if let Some(held) = holdings.iter_mut().find(is_it) {
            held.example = path.unwrap_or_default();
        }
    }
    Ok(())
}

/// Whether the holding stands for several sets, each on some of these nodes.
fn is_merged(held: &pb::PowerHolding) -> bool {
    held.copies != held.nodes.len() as u64
}

struct Search<'a> {
    of: &'a pb::PowerHolding,
    /// Sets with a holding of their own.
    apart: &'a BTreeSet<&'a [u64]>,
    /// Files with a metablock of this holding.
    files: Vec<InodeId>,
}

impl Search<'_> {
    const fn is_full(&self) -> bool {
        self.files.len() >= CANDIDATES
    }

    fn offer(&mut self, inode: InodeId, members: &[pb::Member]) {
        let nodes_of = if self.of.slots.is_empty() { &self.of.nodes } else { &self.of.slots };
        let is_among = |member: &pb::Member| nodes_of.contains(&member.node);
        if self.is_full() || self.files.last() == Some(&inode) || !members.iter().all(is_among) {
            return;
        }
        let nodes = nodes(members);
        // A slot of a RAID set has one copy, on one of its nodes.
        let (copies, is_merged) = if self.of.decoded { (1, false) } else { (self.of.copies, is_merged(self.of)) };
        if nodes.len() as u64 == copies && !(is_merged && self.apart.contains(&nodes[..])) {
            self.files.push(inode);
        }
    }

    fn path<'p>(&self, paths: &'p BTreeMap<InodeId, String>) -> Option<&'p String> {
        self.files.iter().find_map(|file| paths.get(file))
    }
}

/// Pauses in a long search, and its deadline.
struct Pace<'a> {
    shared: &'a Shared,
    until: Moment,
    looked: usize,
}

impl Pace<'_> {
    /// Counts one visit. Returns false when the time is over.
    async fn goes_on(&mut self) -> bool {
        self.looked += 1;
        if !self.looked.is_multiple_of(PART) {
            return true;
        }
        self.shared.runtime.sleep(PAUSE).await;
        self.shared.runtime.now() < self.until && !self.shared.is_stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_an_example_if_all_copies_of_a_metablock_lie_there() {
        let wanted = |nodes: &[u64], copies| pb::PowerHolding { nodes: nodes.to_vec(), copies, ..Default::default() };
        let on = |nodes: &[u64]| -> Vec<pb::Member> {
            nodes.iter().map(|node| pb::Member { node: *node, ..Default::default() }).collect()
        };
        let lone = [9, 1].map(|node| vec![node]);
        let apart: BTreeSet<&[u64]> = lone.iter().map(|nodes| &nodes[..]).collect();
        let found = |wanted: &pb::PowerHolding| {
            let mut search = Search { of: wanted, apart: &apart, files: Vec::new() };
            for (file, nodes) in [(1, &[1, 2][..]), (2, &[1]), (3, &[2, 3]), (3, &[3, 2]), (4, &[]), (5, &[1, 2, 3])] {
                search.offer(InodeId::new(file), &on(nodes));
            }
            search.files.into_iter().map(InodeId::raw).collect::<Vec<_>>()
        };
        assert_eq!(found(&wanted(&[1, 2], 2)), [1]);
        assert_eq!(found(&wanted(&[1, 2, 3], 2)), [1, 3], "two of three nodes, of many sets that are told as one");
        assert_eq!(found(&wanted(&[1], 1)), [2]);
        assert!(found(&wanted(&[1, 4], 1)).is_empty(), "what lies on node 1 is told by itself");
        assert!(found(&wanted(&[4], 1)).is_empty());
    }
}
