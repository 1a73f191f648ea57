//! When faults have been healed the system comes to rest: every replica is there, serves, and matches its checksums,
//! and no process has panicked or refused to start.
//!
//! Source: "Repair" in `docs/protocol.md`; an operator, too, would look for a file-system check without findings.

use ebb_wire::pb;

use super::Violation;

/// Reads a file-system check's report made at rest.
#[must_use]
pub fn check_fsck(reply: &pb::FsckReply) -> Vec<Violation> {
    let counts = [
        ("missing", reply.missing),
        ("damaged", reply.damaged),
        ("out of reach by failure", reply.unreachable),
        ("degraded", reply.degraded),
        ("lost parts of RAID sets", reply.lost_parts),
        ("wrong rows", reply.wrong_rows),
        ("under-replicated", reply.under_replicated),
        ("over-replicated", reply.over_replicated),
        ("corrupt", reply.corrupt),
        ("orphaned", reply.orphaned),
        ("nodes not scrubbed", reply.unscrubbed.len() as u64),
        ("replicas not looked at", reply.unseen),
    ];
    let findings = reply.findings.join("; ");
    let bad = counts.iter().filter(|(_, count)| *count > 0);
    bad.map(|(state, count)| Violation::new("healthy", format!("{count} {state} at rest: {findings}"))).collect()
}

/// Reads the list of panics.
#[must_use]
pub fn check_panics(panics: &[String]) -> Vec<Violation> {
    panics.iter().map(|panic| Violation::new("healthy", panic.as_str())).collect()
}
