//! While no host fails, no metablock with fewer copies than wanted loses one: the master deletes only copies that are
//! not needed (I-85).
//!
//! Source: "Deletion" in `docs/protocol.md`. Files are counted on the disks themselves, independent of the map. The
//! caller keeps hosts and files as they are meanwhile: then only the master can be the cause.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use crate::cluster::{Cluster, Role};
use crate::faults::kind::is_replica;

/// Hosts that are on and have a replica, by the name of its file.
pub type Copies = BTreeMap<String, BTreeSet<String>>;

/// The replicas on the disks of running block servers.
#[must_use]
pub fn scan_disks(cluster: &Cluster) -> Copies {
    let mut copies = Copies::new();
    let blocks = cluster.members().iter().filter(|member| member.role == Role::Block && member.process.is_alive());
    for member in blocks {
        for (path, _) in member.process.disk_files() {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            // A copy that is being made has another name.
            if is_replica(&path) && name.len() == 16 {
                copies.entry(name).or_default().insert(member.process.name().to_owned());
            }
        }
    }
    copies
}

/// Compares two moments.
#[must_use]
pub fn check(before: &Copies, now: &Copies, wanted: usize) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (name, had) in before {
        let has = now.get(name).map_or(0, BTreeSet::len);
        if has < had.len() && has < wanted {
            let detail = format!("{name} was on {had:?}, {wanted} are wanted, and {has} are left");
            violations.push(Violation::new("copies", detail));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_than_there_were_and_than_wanted_is_too_few() {
        let copies =
            |hosts: &[&str]| Copies::from([("m".to_owned(), hosts.iter().map(|host| (*host).to_owned()).collect())]);
        assert_eq!(check(&copies(&["a", "b"]), &copies(&["a"]), 3).len(), 1);
        assert_eq!(check(&copies(&["a", "b", "c", "d"]), &copies(&["a", "b", "c"]), 3).len(), 0);
        assert_eq!(check(&copies(&["a"]), &copies(&["a", "b"]), 3).len(), 0);
        assert_eq!(check(&copies(&["a"]), &Copies::new(), 1).len(), 1);
    }
}
