//! Promises of members, and the records that rest on them: copies that leave, and ballast that is retired.

use std::sync::Arc;

use ebb_runtime::SeededBug;
use ebb_types::{Epoch, MetablockId, Result, Version, bail};
use ebb_wire::{convert, pb};
use futures_util::future::join_all;
use pb::command::Command as Op;

use super::ROW_EPOCH;
use crate::shared::Shared;

/// S-7: every member that stays has promised, and told exactly what is recorded.
pub(super) async fn thin(shared: &Arc<Shared>, set: &pb::RaidSet, stay: &[Vec<pb::Member>]) -> Result<()> {
    let stays = set.slots.iter().zip(stay).map(|(slot, members)| (slot, &members[..]));
    freeze_parts(shared, set, stays).await?;
    let stay = stay.iter().map(|members| pb::Placement { members: members.clone() }).collect();
    let thin = pb::ThinSet { raid_set: set.id, generation: set.generation, stay };
    shared.group.propose(Op::ThinSet(thin)).await.map(drop)
}

/// S-8a: a fresh look at every part, and what leaves is needed no more.
pub(super) async fn drop_copies(shared: &Arc<Shared>, set: &pb::RaidSet) -> Result<()> {
    freeze_parts(shared, set, set.slots.iter().map(|slot| (slot, &slot.members[..]))).await?;
    let gone = pb::DropCopies { raid_set: set.id, generation: set.generation };
    shared.group.propose(Op::DropCopies(gone)).await.map(drop)
}

/// S-12: what a file has lost serves decoding alone.
pub(super) async fn retire(shared: &Arc<Shared>, members: &[(MetablockId, pb::Member)]) -> Result<()> {
    let retired = members.iter().map(|(metablock, member)| async move {
        if !shared.runtime.has_bug(SeededBug::NotRetired) {
            freeze(shared, *metablock, member, Epoch::RETIRED).await?;
        }
        shared.soft().encoding.on_retired(*metablock, member.volume_id());
        Ok(())
    });
    join_all(retired).await.into_iter().collect()
}

/// Freezes these members of slots, and all rows. Each answer says that the replica is sound.
async fn freeze_parts<'a>(
    shared: &Arc<Shared>,
    set: &'a pb::RaidSet,
    slots: impl Iterator<Item = (&'a pb::RaidSlot, &'a [pb::Member])>,
) -> Result<()> {
    let mut parts = Vec::new();
    for (slot, members) in slots {
        let promise = promise_of(slot.inode == 0);
        parts.extend(members.iter().map(|member| (slot.metablock, *member, promise, Some(slot.version), slot.length)));
    }
    for row in &set.rows {
        parts.extend(row.member.map(|member| (row.metablock, member, Epoch::FROZEN, None, row.length)));
    }
    let frozen = parts.into_iter().map(|(metablock, member, promise, version, length)| async move {
        let found = freeze(shared, MetablockId::new(metablock), &member, promise).await?;
        let is_right = match version {
            Some(version) => found == (convert::version(version), length),
            None => found.0.epoch == ROW_EPOCH && found.1 == length,
        };
        if !is_right {
            // Another version than what was encoded: this copy is not what the others stand for.
            shared.soft().work.on_damage(MetablockId::new(metablock), member.volume_id());
            bail!(Corrupt, "m{metablock} on n{} is at {} with {} bytes", member.node, found.0, found.1);
        }
        Ok(())
    });
    join_all(frozen).await.into_iter().collect()
}

/// What a part promises.
pub(super) const fn promise_of(is_ballast: bool) -> Epoch {
    if is_ballast { Epoch::RETIRED } else { Epoch::FROZEN }
}

/// Has one replica promise, and returns its version and length.
pub(crate) async fn freeze(
    shared: &Shared,
    metablock: MetablockId,
    member: &pb::Member,
    promise: Epoch,
) -> Result<(Version, u64)> {
    let name = pb::ReplicaName { metablock: metablock.raw(), volume: member.volume, incarnation: member.incarnation };
    let call = pb::PromiseEpoch { epoch: promise.raw(), replicas: vec![name] };
    let reply = shared.ask(member.node_id(), &call, shared.options.call_timeout).await?;
    let Some(promised) = reply.replicas.into_iter().next() else {
        bail!(Protocol, "{} does not say whether it froze {metablock}", member.node_id());
    };
    convert::failure(promised.failure)?;
    Ok((convert::version(promised.version), promised.length))
}
