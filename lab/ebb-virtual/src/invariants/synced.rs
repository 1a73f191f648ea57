//! Every member of a recorded set has the recorded version, at every moment, through all crashes: a commit comes after
//! the sync of the whole set, and no replica is deleted that the record names (I-5, I-6).
//!
//! Source: "Write" and "Repair" in `docs/protocol.md`. Block servers on which the world itself has destroyed data are
//! left out.

use ebb_wire::pb;

use super::Violation;

/// Findings of a file-system check about a member that answers and lacks a version that it must have.
const LACKS: [&str; 2] = [" is absent or older than committed", " is damaged"];

/// Reads a file-system check's report made while faults go on. `is_marred`: by node id.
#[must_use]
pub fn check(report: &pb::FsckReply, is_marred: impl Fn(u64) -> bool) -> Vec<Violation> {
    let lacking = report.findings.iter().filter(|finding| LACKS.iter().any(|words| finding.contains(words)));
    let sound = lacking.filter(|finding| !node_of(finding).is_some_and(&is_marred));
    sound.map(|finding| Violation::new("synced", finding.as_str())).collect()
}

/// The node in "/f, bytes 0 to 9: replica on n3 v30 is damaged: ...".
fn node_of(finding: &str) -> Option<u64> {
    let (_, rest) = finding.split_once("replica on n")?;
    rest.split_once(' ')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use ebb_master::fsck::{Examined, Found, examine};
    use ebb_types::{Epoch, Version};

    use super::*;

    #[test]
    fn only_destroyed_replicas_may_be_gone() {
        let found = [(3, Found::Corrupt), (12, Found::Behind), (4, Found::Unreachable), (5, Found::Good)];
        let found = found.map(|(node, found)| (pb::Member { node, volume: node * 10, incarnation: 1, home: 0 }, found));
        let version = Some(Version::new(Epoch::new(1), 1).into());
        let record = pb::Metablock { id: 7, version, ..Default::default() };
        let set = Examined { record, wanted: 4, at_most: 4, unsettled: false, found: found.to_vec(), decodable: false };
        // In the words of the check itself.
        let findings = examine(&set, &mut pb::FsckReply::default());
        let report = pb::FsckReply { findings, ..Default::default() };
        assert_eq!(check(&report, |_| false).len(), 2, "{:?}", report.findings);
        let found = check(&report, |node| node == 3);
        assert_eq!(found.len(), 1);
        assert!(found[0].detail.contains("n12"));
    }
}
