//! At rest, map and disks agree: every metablock that was ever written has a replica on each member of its set, as many
//! as its dataset asks for, on distinct hosts, and on each node with an extra copy; and no disk has a replica that the map does not name.
//!
//! Source: "Repair" in `docs/protocol.md`, I-16 and I-18 in `docs/invariants.md`. Space that is never given back is a
//! slow loss of the whole disk.

use std::collections::BTreeSet;

use super::Violation;
use crate::survey::{Stored, Survey, Surveyed};

/// Compares the map with the disks.
#[must_use]
pub fn check(survey: &Survey) -> Vec<Violation> {
    let mut violations = Vec::new();
    for metablock in survey.metablocks.iter().filter(|metablock| metablock.is_written()) {
        let hosts: BTreeSet<&str> = metablock.replicas.iter().map(|(stored, _)| stored.host.as_str()).collect();
        let (found, recorded) = (hosts.len(), metablock.record.members.len());
        if found != metablock.wanted + metablock.record.extra.len() || recorded != metablock.wanted {
            let detail = format!(
                "m{} of inode {}: {} members and {} extra copies are recorded, replicas are on {hosts:?}, {} are wanted",
                metablock.record.id,
                metablock.inode,
                recorded,
                metablock.record.extra.len(),
                metablock.wanted
            );
            violations.push(Violation::new("disks", detail));
        }
    }
    let replicas = survey.metablocks.iter().flat_map(|metablock| &metablock.replicas);
    let named: BTreeSet<&Stored> = replicas.map(|(stored, _)| stored).collect();
    let mut unnamed: Vec<&Stored> = survey.stored.iter().filter(|stored| !named.contains(stored)).collect();
    // I-69: rows and ballast are there while a RAID set names them, and go when none does.
    for part in &survey.beside {
        let name = format!("{:016x}", part.metablock);
        let is_its = |stored: &&Stored| stored.path.file_name().is_some_and(|file| file.to_string_lossy() == name);
        let found: BTreeSet<String> =
            unnamed.iter().copied().filter(is_its).map(|stored| stored.host.clone()).collect();
        unnamed.retain(|stored| !is_its(stored));
        if found != part.hosts {
            let detail =
                format!("m{} of rs{} is on {found:?}, recorded on {:?}", part.metablock, part.raid_set, part.hosts);
            violations.push(Violation::new("disks", detail));
        }
    }
    for stored in unnamed {
        let (host, path) = (&stored.host, stored.path.display());
        violations.push(Violation::new("disks", format!("{path} on {host} is of no set: its space is leaked")));
    }
    violations
}

/// A file that is being written is not on a host that was drained long ago.
#[must_use]
pub fn check_drained(survey: &Survey, drained: Option<&str>) -> Vec<Violation> {
    let written = survey.metablocks.iter().filter(|metablock| metablock.is_written());
    let left =
        written.filter(|metablock| metablock.replicas.iter().any(|(stored, _)| drained == Some(stored.host.as_str())));
    let complain = |metablock: &Surveyed| {
        let detail = format!("m{} of inode {} is still on a host that drains", metablock.record.id, metablock.inode);
        Violation::new("disks", detail)
    };
    left.map(complain).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ebb_types::{Epoch, Version};
    use ebb_wire::pb;

    use super::*;
    use crate::survey::Beside;

    fn stored(host: &str) -> Stored {
        Stored { host: host.to_owned(), path: "/block/volume-1/replicas/07/0000000000000007".into() }
    }

    #[test]
    fn missing_and_leaked_replicas_are_found() {
        let record = pb::Metablock {
            id: 7,
            version: Some(Version::new(Epoch::new(1), 1).into()),
            members: vec![pb::Member::default(); 2],
            ..Default::default()
        };
        let replicas: Vec<_> = ["h1", "h2"].map(|host| (stored(host), Bytes::new())).into();
        let metablock = Surveyed { inode: 2, record, wanted: 2, replicas };
        let mut survey =
            Survey { metablocks: vec![metablock], beside: Vec::new(), stored: vec![stored("h1"), stored("h2")] };
        assert_eq!(check(&survey), []);
        assert_eq!(check_drained(&survey, Some("h3")), []);
        assert_eq!(check_drained(&survey, None), []);
        assert_eq!(check_drained(&survey, Some("h2")).len(), 1);
        survey.stored.push(stored("h3"));
        assert!(check(&survey)[0].detail.contains("leaked"));
        survey.stored.pop();
        survey.metablocks[0].record.extra.push(pb::Member::default());
        assert_eq!(check(&survey).len(), 1, "an extra copy is recorded and is not there");
        survey.metablocks[0].record.extra.pop();
        survey.metablocks[0].replicas.pop();
        let found = check(&survey);
        assert_eq!(found.len(), 2, "one is missing, and its file is of no set: {found:?}");
    }

    #[test]
    fn rows_and_ballast_are_where_their_raid_set_says() {
        let row = Beside { raid_set: 4, metablock: 7, hosts: BTreeSet::from(["h1".to_owned()]) };
        let survey = |stored: Vec<Stored>| Survey { beside: vec![row.clone()], stored, ..Survey::default() };
        assert_eq!(check(&survey(vec![stored("h1")])), []);
        assert_eq!(check(&survey(vec![])).len(), 1);
        assert_eq!(check(&survey(vec![stored("h1"), stored("h2")])).len(), 1, "on one host too many");
    }
}
