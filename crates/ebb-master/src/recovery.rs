//! Recovery of a file whose lease holder is gone: the decision by the members' answers.
//!
//! Pure functions over plain values, after `docs/protocol.md`, "Recovery"; the executor is in [`run`]. All members are
//! made equal to the highest version found, which is never below the committed one. An acknowledged write was synced by
//! the whole set, so any single member that answers has it.

pub mod run;
pub mod wait;

use ebb_types::{Epoch, MetablockId, Version};
use ebb_wire::pb;

/// The answer of one member to the promise of the new epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The recorded member.
    pub member: pb::Member,
    /// State of its replica. `None` means that it was not reached, or lacks the recorded volume.
    pub held: Option<ReplicaState>,
}

/// State of a member's replica when it promised the new epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaState {
    /// Version; 0 if the member has no replica.
    pub version: Version,
    /// Bytes.
    pub length: u64,
}

/// One metablock of a file in recovery.
#[derive(Clone, Debug)]
pub struct Case {
    /// The metablock as recorded.
    pub record: pb::Metablock,
    /// The answers, one for each member.
    pub answers: Vec<Answer>,
    /// A pending truncation of the file that the members may not have (only in the metablock that it cuts).
    pub trim: Option<pb::meta_op::Trim>,
}

/// The decision about one metablock. Nearly all are of the largest variant, so boxing it would cost more than it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The grant was never written to, and is freed.
    Free {
        /// The metablock.
        metablock: MetablockId,
    },
    /// Too little is known: wait for a member that has at least the committed version.
    Wait {
        /// Reason, as a sentence for operators.
        reason: String,
    },
    /// Make the lagging members equal to the others, then stamp all.
    Settle(Settle),
}

/// A plan to make the members of a metablock equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Settle {
    /// The metablock as recorded.
    pub record: pb::Metablock,
    /// The version that all members should have.
    pub base: Version,
    /// Length after the stamp, in bytes.
    pub length: u64,
    /// Members that have `base`. Never empty.
    pub sources: Vec<pb::Member>,
    /// Members below `base`. They pull from a source.
    pub lagging: Vec<pb::Member>,
}

impl Settle {
    /// Whether the members have writes that were never committed.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        self.base > self.record.min_version()
    }
}

/// Decides about one metablock.
#[must_use]
pub fn plan(case: &Case) -> Step {
    let committed = case.record.min_version();
    let reached = case.answers.iter().filter_map(|answer| Some((answer.member, answer.held?)));
    let Some(base) = reached.clone().map(|(_, held)| held.version).max() else {
        return Step::Wait { reason: format!("no member of m{} was reached", case.record.id) };
    };
    // I-15: a version below the committed one lacks acknowledged writes, and must not become the state of the set.
    if base < committed {
        return Step::Wait {
            reason: format!("m{}: the members that were reached have {base}, committed is {committed}", case.record.id),
        };
    }
    if base == Version::ZERO {
        return Step::Free { metablock: case.record.metablock_id() };
    }
    let length = reached.clone().find(|(_, held)| held.version == base).map_or(0, |(_, held)| held.length);
    let (sources, lagging): (Vec<_>, Vec<_>) = reached.partition(|(_, held)| held.version == base);
    let members = |answers: Vec<(pb::Member, ReplicaState)>| answers.into_iter().map(|(member, _)| member).collect();
    assert!(!sources.is_empty(), "some member of m{} has the highest version", case.record.id);
    Step::Settle(Settle {
        record: case.record.clone(),
        base,
        length: trimmed(base, length, case),
        sources: members(sources),
        lagging: members(lagging),
    })
}

/// Length after a pending truncation that the sources have not applied.
fn trimmed(base: Version, length: u64, case: &Case) -> u64 {
    match &case.trim {
        Some(trim) if trim.metablock == case.record.id && base < ebb_wire::convert::version(trim.version) => {
            length.min(trim.length)
        }
        _ => length,
    }
}

/// The new record of a metablock whose members were stamped under `epoch`.
#[must_use]
pub fn settled(settle: &Settle, epoch: Epoch, stamped: Vec<pb::Member>) -> pb::Metablock {
    let left_out = left_out(settle, epoch, &stamped);
    pb::Metablock {
        version: Some(Version::new(epoch, 0).into()),
        length: settle.length,
        members: stamped,
        left_out,
        ..settle.record.clone()
    }
}

/// Members that the recovery leaves out: those that were not stamped, and those of an earlier recovery if nothing was
/// written since.
fn left_out(settle: &Settle, epoch: Epoch, stamped: &[pb::Member]) -> Vec<pb::LeftOut> {
    let is_stamped = |member: &pb::Member| stamped.iter().any(|other| other.node == member.node);
    let now = settle.record.members.iter().filter(|member| !is_stamped(member)).map(|member| pb::LeftOut {
        member: Some(*member),
        base: Some(settle.base.into()),
        length: settle.length,
        epoch: epoch.raw(),
    });
    let is_unchanged = |one: &&pb::LeftOut| settle.base == Version::new(Epoch::new(one.epoch), 0);
    let earlier = settle.record.left_out.iter().filter(is_unchanged);
    let earlier = earlier.map(|one| pb::LeftOut { length: settle.length, epoch: epoch.raw(), ..*one });
    now.chain(earlier.filter(|one| one.member.is_some_and(|member| !is_stamped(&member)))).collect()
}

/// The file's size, in bytes: the committed size, or the end of the last written metablock if that is larger.
#[must_use]
pub fn size(committed: u64, metablock_size: u64, metablocks: &[pb::Metablock]) -> u64 {
    let ends = metablocks.iter().filter(|metablock| metablock.length > 0);
    ends.map(|metablock| metablock.index * metablock_size + metablock.length).fold(committed, u64::max)
}

#[cfg(test)]
mod tests;
