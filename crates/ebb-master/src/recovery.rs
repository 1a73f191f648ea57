//! Recovery of a file whose holder is gone: what to do with the members' answers.
//!
//! Pure functions over plain values, after `docs/protocol.md`, "Recovery"; the executor is in [`run`]. Members are
//! made equal to the highest version found, never to one below the committed version: what was acknowledged was
//! synced by the whole set, so any one member that answers has it.

pub mod run;
pub mod wait;

use ebb_types::{Epoch, MetablockId, Version};
use ebb_wire::pb;

/// What one member told when it promised the new epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The member, as recorded.
    pub member: pb::Member,
    /// Its version and length; `None`: not reached, or without this replica's volume.
    pub answer: Option<(Version, u64)>,
}

/// A metablock's record with its members' answers.
#[derive(Clone, Debug)]
pub struct Case {
    /// As the master records it.
    pub record: pb::Metablock,
    /// One for each member.
    pub told: Vec<Told>,
    /// A truncate write of the file that may not have reached the members (only in the metablock that it cuts).
    pub trim: Option<pb::meta_op::Trim>,
}

/// What is to be done with one metablock.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nobody wrote to this grant: it is freed.
    Free {
        /// Which.
        metablock: MetablockId,
    },
    /// Not enough is known: wait for a member that has at least the committed version.
    Wait {
        /// A sentence for people.
        reason: String,
    },
    /// Make the lagging members equal, then stamp all.
    Settle(Settle),
}

/// Making the members of a metablock equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Settle {
    /// As the master records it.
    pub record: pb::Metablock,
    /// The version to reach.
    pub base: Version,
    /// Length after stamping.
    pub length: u64,
    /// Members that have `base`; never empty.
    pub sources: Vec<pb::Member>,
    /// Members below it: they pull from a source.
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
    let reached = case.told.iter().filter_map(|told| told.answer.map(|(version, length)| (told, version, length)));
    let Some(base) = reached.clone().map(|(_, version, _)| version).max() else {
        return Step::Wait { reason: format!("no member of m{} was reached", case.record.id) };
    };
    if base < committed {
        return Step::Wait {
            reason: format!("m{}: the members that were reached have {base}, committed is {committed}", case.record.id),
        };
    }
    if base == Version::ZERO {
        return Step::Free { metablock: case.record.metablock_id() };
    }
    let length = reached.clone().find(|(_, version, _)| *version == base).map_or(0, |(_, _, length)| length);
    let with = |has: bool| {
        let members = reached.clone().filter(move |(_, version, _)| (*version == base) == has);
        members.map(|(told, _, _)| told.member).collect::<Vec<_>>()
    };
    Step::Settle(Settle {
        record: case.record.clone(),
        base,
        length: trimmed(base, length, case),
        sources: with(true),
        lagging: with(false),
    })
}

/// The length after a pending trim that the winner has not seen.
fn trimmed(base: Version, length: u64, case: &Case) -> u64 {
    match &case.trim {
        Some(trim) if trim.metablock == case.record.id && base < ebb_wire::convert::version(trim.version) => {
            length.min(trim.length)
        }
        _ => length,
    }
}

/// The record of a metablock after its members were stamped under `epoch`.
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

/// Whom the recovery goes on without: members that were not stamped, and those that an earlier one went on without if nothing
/// was written since.
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

/// The file's size: the larger of the committed one and the end of the last written metablock.
#[must_use]
pub fn size(committed: u64, metablock_size: u64, metablocks: &[pb::Metablock]) -> u64 {
    let ends = metablocks.iter().filter(|metablock| metablock.length > 0);
    ends.map(|metablock| metablock.index * metablock_size + metablock.length).fold(committed, u64::max)
}

#[cfg(test)]
mod tests;
