//! Replaces failed members of a set under a write lease (docs/protocol.md, Write, 6).
//!
//! Writing to the metablock has stopped, and nothing is in flight. A repair syncs the good members, chooses a
//! replacement, has it pull from a good member, and records the new set. Then writing goes on: writes that some members
//! lack are sent again. If there is no replacement, the master may let the set go on with the good members, if they are
//! as many as a write needs. No error is reported then, and a further member is sought every now and then
//! (docs/protocol.md, Fewer members). If the good members are too few, or the master waits for the failed member, that
//! member is asked again: it may have come back. After the operation's deadline flushes fail (sticky), and the set goes
//! on with the good members, so that the file can be given back. For this they have to be as many as a write needs, or
//! the master counts the others as lost, too. Otherwise the failed members are asked further. A recall in that time
//! ends the lease, and the master recovers the file from all members.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_runtime::{Moment, SeededBug};
use ebb_types::deadlines::{CHOOSE_DEADLINE, LATE_WAIT, PULL_DEADLINE, PULL_DEADLINE_LAST, REPLACE_PAUSE};
use ebb_types::{Epoch, Error, ErrorKind, Result, Version, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{ChangeSet, GetMap, Op};

use crate::session::masters::is_transient;
use crate::write::channel::{Asked, Channel, Peer, Repaired, WentOn};
use crate::write::drive::Target;
use crate::write::members;

/// State of one metablock for its repair.
struct Scene {
    id: ebb_types::MetablockId,
    epoch: u64,
    generation: u64,
    settled: Version,
    /// Number of members that a write needs.
    min: usize,
    /// When the trouble began.
    since: Moment,
    /// All members, and whether each failed.
    members: Vec<(pb::Member, bool)>,
    /// The good member to copy from, and its version: one whose node serves now, or soonest, and of these the one with
    /// the highest version. All good members have what has settled.
    source: Option<(pb::Member, Version)>,
    /// The error of each failed member, by node.
    failures: Vec<(u64, Error)>,
    /// The node of a member that is replaced only because it is gray.
    slow: Option<u64>,
}

/// Runs until the set is whole again, has been shrunk, or the lease is gone.
pub(crate) async fn run(target: Target) {
    let mut refused = BTreeSet::new();
    let started = target.shared.runtime.now();
    target.with(|channel| *channel.trouble_since.get_or_insert(started));
    loop {
        match attempt(&target, &mut refused).await {
            Ok(true) => break,
            Ok(false) => return,
            Err(error) if is_lease_lost(&error) => {
                // The error says nothing of a lease that has been given back meanwhile, and perhaps taken anew.
                target.land(|_| Err(error));
                return;
            }
            Err(error) => {
                tracing::debug!(inode = %target.inode.id, index = target.index, %error, "replacing a member");
                if give_up_if_late(&target, error).await {
                    break;
                }
            }
        }
        if target.with(|_| ()).is_none() {
            return;
        }
        target.shared.runtime.sleep(REPLACE_PAUSE).await;
    }
    target.land(|_| Ok(()));
}

/// One round. True: the set is whole; false: there is nothing to repair any more.
async fn attempt(target: &Target, refused: &mut BTreeSet<u64>) -> Result<bool> {
    if !sync_rest(target).await? {
        return Ok(false);
    }
    let Some(scene) = survey(target) else { return Ok(false) };
    // Ordering: a change that may have been recorded is completed first. Otherwise this set could differ from the
    // recorded one.
    if let Some(asked) = target.with(|channel| channel.asked.clone()).flatten() {
        return record(target, &scene, asked).await.map(|()| true);
    }
    if scene.members.iter().all(|(_, failed)| !failed) && !target.with(|channel| channel.shrunk).unwrap_or(false) {
        target.with(|channel| channel.on_revived());
        return Ok(true);
    }
    // Without a good member the data can only come from this client's memory. That memory has only the writes after the
    // settled version.
    if scene.source.is_none() && scene.settled != Version::ZERO {
        let failures = revive(target, &scene).await;
        return Err(no_member_well(&scene, &failures));
    }
    match replace(target, &scene, refused).await {
        Ok(()) => Ok(true),
        Err(error) if stays_slow(target, &scene) => {
            tracing::debug!(inode = %target.inode.id, index = target.index, %error, "a gray member keeps its place");
            Ok(true)
        }
        // No member has failed, so the set goes on without a further member.
        Err(error) if scene.failures.is_empty() && scene.members.len() >= scene.min && !is_lease_lost(&error) => {
            tracing::debug!(inode = %target.inode.id, index = target.index, %error, "goes on without a further member");
            target.with(|channel| channel.on_went_on(went_on(target)));
            Ok(true)
        }
        Err(error) => {
            let failures = revive(target, &scene).await;
            // The error names the cause that the writer can remedy, and not the lack of another member.
            Err(match is_lease_lost(&error) {
                true => error,
                false if scene.failures.iter().any(is_full) => no_member_well(&scene, &failures),
                false => Error::new(error.kind(), format!("{error}; {}", sentence(&failures))),
            })
        }
    }
}

/// A member that is only slow keeps its place if it could not be replaced. This does not hold if the change may have
/// been recorded.
fn stays_slow(target: &Target, scene: &Scene) -> bool {
    let keep = |channel: &mut Channel| {
        let stays = scene.slow.is_some() && channel.asked.is_none() && channel.keep_displaced();
        if stays {
            channel.on_revived();
        }
        stays
    };
    target.with(keep).unwrap_or(false)
}

/// Whether a member failed for lack of space.
fn is_full((_, error): &(u64, Error)) -> bool {
    error.kind() == ErrorKind::NoSpace
}

fn is_lease_lost(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StaleEpoch | ErrorKind::SessionExpired)
}

fn went_on(target: &Target) -> WentOn {
    WentOn { at: target.shared.runtime.now(), map: target.shared.nodes.version() }
}

/// The error of a set whose members take no writes any more. `failures` has the members' errors, by node.
fn no_member_well(scene: &Scene, failures: &[(u64, Error)]) -> Error {
    let kind = if scene.failures.iter().any(is_full) { ErrorKind::NoSpace } else { ErrorKind::Unavailable };
    Error::new(kind, format!("members of {} take no writes ({})", scene.id, sentence(failures)))
}

fn sentence(failures: &[(u64, Error)]) -> String {
    failures.iter().map(|(node, error)| format!("n{node}: {error}")).collect::<Vec<_>>().join("; ")
}

/// Has every good member that serves sync the writes that it received. This includes a member that has synced everything: it
/// may have lost them since, and a set without the failed member counts on it. False: the channel is gone.
async fn sync_rest(target: &Target) -> Result<bool> {
    let epoch = target.inode.core.lock().hold.epoch();
    let known = target.with(|channel| (channel.id, channel.settled, channel.peers.clone()));
    let Some((id, settled, peers)) = known else { return Ok(false) };
    for (place, peer) in peers.iter().enumerate() {
        // A member that never received anything has no replica yet.
        if peer.failed.is_some() || peer.received.max(peer.synced) == Version::ZERO {
            continue;
        }
        // A member that sleeps by plan has on its disk what it had synced, and the writes after that are kept. The writer
        // does not wait for it.
        let result = tokio::select! {
            biased;
            _ = target.shared.fallen_asleep(peer.member.node) => continue,
            result = members::sync(&target.shared, id, &peer.member, askable(peer.received, epoch)) => result,
        };
        let lost = result
            .as_ref()
            .ok()
            .filter(|reply| !has_settled(reply, settled))
            .map(|_| err!(NoReplica, "n{} has lost what it had of {id} at {settled}", peer.member.node));
        let noted = target.with(|channel| {
            let verdict = channel.note_synced(place, &result);
            if let Some(error) = lost {
                channel.fail(place, error);
            }
            verdict
        });
        if let Some(verdict) = noted {
            verdict?;
        }
    }
    Ok(true)
}

/// The version that a member can be asked to sync. Writes settled under an earlier lease are on its disk. Once the
/// member has promised this lease's epoch, it refuses a sync of an earlier epoch. Zero then asks which version it has.
fn askable(version: Version, epoch: Epoch) -> Version {
    if version.epoch < epoch { Version::ZERO } else { version }
}

/// Whether a member's answer to a sync shows that it has the settled version.
fn has_settled(reply: &pb::SyncReplicasReply, settled: Version) -> bool {
    reply.replicas.iter().all(|replica| {
        let failed = replica.failure.as_ref().is_some_and(|failure| failure.kind != 0);
        !failed && ebb_wire::convert::version(replica.synced) >= settled
    })
}

fn survey(target: &Target) -> Option<Scene> {
    let epoch = target.inode.core.lock().hold.epoch().raw();
    let now = target.shared.runtime.now();
    target.with(|channel| {
        // A set loses at most one good member at a time: a member that is only slow stays if another has failed.
        if channel.asked.is_none() && channel.only_displaced().is_none() {
            channel.keep_displaced();
        }
        let slow = channel.only_displaced();
        let well = channel.peers.iter().filter(|peer| peer.failed.is_none());
        let sleeps_for = |peer: &Peer| target.shared.wakes_in(peer.member.node).unwrap_or(Duration::MAX);
        let source = well.min_by_key(|peer| (sleeps_for(peer), Reverse(peer.synced)));
        let source = source.map(|peer| (peer.member, peer.synced));
        assert!(source.is_none_or(|(_, version)| version >= channel.settled), "a good member lacks what has settled");
        Scene {
            id: channel.id,
            epoch,
            generation: channel.generation,
            settled: channel.settled,
            min: channel.min(),
            since: channel.trouble_since.unwrap_or(now),
            members: channel.peers.iter().map(|peer| (peer.member, peer.failed.is_some())).collect(),
            source,
            failures: channel
                .peers
                .iter()
                .filter_map(|peer| peer.failed.clone().map(|error| (peer.member.node, error)))
                .collect(),
            slow,
        }
    })
}

/// Asks failed members whether they are back. A member that is back keeps its place. Returns the errors of the others,
/// by node: their last request may have failed for another reason.
async fn revive(target: &Target, scene: &Scene) -> Vec<(u64, Error)> {
    let mut failures: BTreeMap<u64, Error> = scene.failures.iter().cloned().collect();
    for (place, (member, failed)) in scene.members.iter().enumerate() {
        if !failed || target.shared.nodes.is_dead(member.node) {
            continue;
        }
        // A replica that was never written does not exist yet, so its member is not asked about it.
        let asked = askable(scene.settled, Epoch::new(scene.epoch));
        // One that sleeps by plan is asked in a later round.
        let result = tokio::select! {
            biased;
            asleep = target.shared.fallen_asleep(member.node) => Err(asleep),
            result = members::sync(&target.shared, scene.id, member, asked) => result,
        };
        let well = matches!(&result, Ok(reply) if has_settled(reply, scene.settled));
        if well {
            failures.remove(&member.node);
            target.with(|channel| {
                channel.revive(place);
                channel.note_synced(place, &result)
            });
        } else if let Err(error) = result {
            failures.insert(member.node, error);
        }
    }
    failures.into_iter().collect()
}

async fn replace(target: &Target, scene: &Scene, refused: &mut BTreeSet<u64>) -> Result<()> {
    let mut members: Vec<pb::Member> =
        scene.members.iter().filter(|(_, failed)| !failed).map(|(member, _)| *member).collect();
    let wanted = wanted(target, scene);
    let at = scene.source.as_ref().map_or(Version::ZERO, |(_, version)| *version);
    let mut fresh = 0;
    while members.len() < wanted {
        let member = match choose(target, scene, &members, refused).await {
            Ok(Some(member)) => member,
            Ok(None) => break,
            Err(error) => {
                // Nodes that refused may have room, or be back, the next time.
                refused.clear();
                return Err(error);
            }
        };
        if let Some((source, version)) = &scene.source
            && *version != Version::ZERO
            && let Err(error) = pull(target, scene, source, &member, *version, members.len()).await
        {
            refused.insert(member.node);
            return Err(error);
        }
        members.push(member);
        fresh += 1;
    }
    // The version to commit with the new set: all its members have it.
    let least = target
        .with(|channel| channel.peers.iter().filter(|peer| peer.failed.is_none()).map(|peer| peer.synced).min())
        .flatten()
        .unwrap_or(Version::ZERO);
    let is_short = members.len() < wanted;
    let repaired = if is_short { Repaired::Fewer(went_on(target)) } else { Repaired::Whole };
    if is_short && fresh == 0 && scene.failures.is_empty() {
        target.with(|channel| channel.on_went_on(went_on(target)));
        return Ok(());
    }
    record(target, scene, Asked { members, version: least.min(at), at, repaired }).await?;
    target.shared.metrics.replaced_members.add(fresh);
    target.shared.metrics.shrunk_sets.add(u64::from(is_short));
    Ok(())
}

/// Has `member` pull the replica of `source`. The deadline is shorter if the set may go on without this member.
async fn pull(
    target: &Target,
    scene: &Scene,
    source: &pb::Member,
    member: &pb::Member,
    at: Version,
    well: usize,
) -> Result<()> {
    let deadline = if well >= scene.min { PULL_DEADLINE } else { PULL_DEADLINE_LAST };
    // The set is only shorter than wanted: writes go on, and do not wait for a node that an announced plan wakes.
    let sleeps_long = target.shared.wakes_in(member.node).is_none_or(|wait| wait > LATE_WAIT);
    if well >= scene.min && scene.failures.is_empty() && sleeps_long {
        return Err(err!(Unavailable, "n{} sleeps, and is no member before it wakes", member.node));
    }
    let wakes_in = target.shared.wakes_in(source.node);
    tracing::debug!(
        metablock = %scene.id, source = source.node, member = member.node, ?wakes_in, "a new member copies, writes wait"
    );
    // Cancel-safety: as if the deadline had passed. A replica that comes to be is of no set, and is removed.
    tokio::select! {
        biased;
        parted = target.shared.parted(source.node, member.node) => Err(parted),
        pulled = members::pull(&target.shared, scene.id, scene.epoch, source, member, at, deadline) => pulled,
    }
}

fn wanted(target: &Target, scene: &Scene) -> usize {
    let shrunk = target.with(|channel| channel.shrunk).unwrap_or(false);
    let replicas = target.inode.core.lock().attr.as_ref().map_or(0, |attr| attr.storage.replicas as usize);
    if shrunk { scene.members.len().max(replicas) } else { scene.members.len() }
}

/// A volume for one more member beside `members`. Its node is new to the set, or now has other volumes than the failed
/// one. `None`: there is no such volume, and the set goes on with `members`.
async fn choose(
    target: &Target,
    scene: &Scene,
    members: &[pb::Member],
    refused: &BTreeSet<u64>,
) -> Result<Option<pb::Member>> {
    let nodes = &target.shared.nodes;
    let failed = scene.members.iter().filter(|(member, failed)| *failed && !nodes.does_without(member));
    let set = members.iter().chain(failed.map(|(member, _)| member)).map(|member| member.node);
    let message = pb::ChooseReplacement {
        session: target.shared.session.name().id.raw(),
        inode: target.inode.id.raw(),
        metablock: scene.id.raw(),
        exclude_nodes: set.chain(refused.iter().copied()).chain(nodes.silent()).collect(),
        staying: members.to_vec(),
        slow: scene.slow.unwrap_or(0),
        failed: failed_members(target, scene),
        pulls: scene.source.as_ref().is_some_and(|(_, version)| *version != Version::ZERO),
        may_go_on: true,
    };
    let masters = &target.shared.session.masters;
    // The master is asked once. The next attempt brings newer knowledge.
    let reply = masters.call_once(&message, CHOOSE_DEADLINE).await.inspect_err(|error| {
        if is_transient(error.kind()) && error.kind() != ErrorKind::Unavailable {
            masters.turn_from(error);
        }
    })?;
    if reply.go_on && waits_to_go_on(target, scene) {
        return Err(err!(Unavailable, "no member replaces one of {}", scene.id));
    }
    match reply.member {
        None if !reply.go_on => Err(err!(Protocol, "the master chose no replacement for {}", scene.id)),
        member => Ok(member),
    }
}

/// The seeded bug: a writer that waits for a member gives up before the set changes.
fn waits_to_go_on(target: &Target, scene: &Scene) -> bool {
    let shared = &target.shared;
    let span = shared.runtime.now().since(scene.since);
    shared.runtime.has_bug(SeededBug::WaitsToGoOn) && !scene.failures.is_empty() && span < shared.session.deadline()
}

/// The failed members, as this client knows them.
fn failed_members(target: &Target, scene: &Scene) -> Vec<pb::FailedMember> {
    let (nodes, now) = (&target.shared.nodes, target.shared.runtime.now());
    let for_ms = u64::try_from(now.since(scene.since).as_millis()).unwrap_or(u64::MAX);
    let failed = scene.failures.iter().map(|(node, error)| pb::FailedMember {
        node: *node,
        failure: Some(error.into()),
        silent: nodes.is_silent(*node),
        for_ms,
    });
    failed.collect()
}

/// Records the new set. A change that was recorded before its answer got lost is found in the map.
async fn record(target: &Target, scene: &Scene, asked: Asked) -> Result<()> {
    target.with(|channel| channel.asked = Some(asked.clone()));
    let recorded = record_once(target, scene, asked).await;
    if recorded.as_ref().is_err_and(|error| !is_transient(error.kind())) {
        target.with(|channel| channel.asked = None);
    }
    recorded
}

async fn record_once(target: &Target, scene: &Scene, asked: Asked) -> Result<()> {
    let Asked { members, version, at, repaired } = asked;
    let change = ChangeSet {
        inode: target.inode.id.raw(),
        epoch: scene.epoch,
        metablock: scene.id.raw(),
        generation: scene.generation,
        members: members.clone(),
        version: Some(version.into()),
    };
    let reply = target.shared.own_meta(Op::ChangeSet(change)).await;
    let record = match reply {
        Ok(reply) => reply.metablocks.into_iter().find(|record| record.id == scene.id.raw()),
        Err(error) if error.kind() == ErrorKind::SetChanged => {
            let recorded = fetch_record(target, scene).await?;
            if recorded.members != members {
                target.with(|channel| channel.generation = recorded.generation);
                return Err(error);
            }
            Some(recorded)
        }
        Err(error) => return Err(error),
    };
    let generation = record.map_or(scene.generation + 1, |record| record.generation);
    tracing::info!(inode = %target.inode.id, metablock = %scene.id, members = members.len(), "changed a set");
    target.with(|channel| channel.on_repaired(&members, generation, at, repaired));
    Ok(())
}

async fn fetch_record(target: &Target, scene: &Scene) -> Result<pb::Metablock> {
    let map = GetMap { inode: target.inode.id.raw(), first_index: target.index, limit: 1 };
    let reply = target.shared.own_meta(Op::GetMap(map)).await?;
    let found = reply.metablocks.into_iter().find(|record| record.id == scene.id.raw());
    found.ok_or_else(|| err!(StaleEpoch, "{} is not in the map of {} any more", scene.id, target.inode.id))
}

/// After the deadline: sets the sticky error, and goes on with the good members. True: the set was shrunk.
async fn give_up_if_late(target: &Target, error: Error) -> bool {
    let shared = &target.shared;
    let now = shared.runtime.now();
    let since = target.with(|channel| {
        // What is logged is as safe as in a set without trouble, and no caller waits.
        if channel.is_logged() {
            channel.logged_until = Some(now);
        }
        channel.trouble_since.max(channel.logged_until)
    });
    let Some(since) = since.flatten() else { return false };
    if now.since(since) < shared.session.deadline() {
        return false;
    }
    let first = target.with(|channel| channel.gave_up.is_none()).unwrap_or(false);
    if first {
        let kind = if error.kind() == ErrorKind::NoSpace { ErrorKind::NoSpace } else { ErrorKind::Io };
        let failures = Error::new(kind, format!("{}: a member could not be replaced: {error}", target.inode.id));
        tracing::warn!(inode = %target.inode.id, index = target.index, %error, "could not replace a member in time");
        target.with(|channel| channel.gave_up = Some(failures.clone()));
        target.inode.core.lock().sticky.set(failures);
        target.inode.progress.notify_waiters();
    }
    let Some(scene) = survey(target) else { return false };
    let Some((_, at)) = scene.source else { return false };
    let members: Vec<pb::Member> =
        scene.members.iter().filter(|(_, failed)| !failed).map(|(member, _)| *member).collect();
    let version = scene.settled;
    // The error has been reported, so later writes may be acknowledged by as many members as a write needs. With fewer
    // members the set goes on only if the master counts the others as lost, too: this lease holder may be the one that
    // is cut off.
    let repaired = if members.len() < scene.min { Repaired::GaveUp } else { Repaired::Fewer(went_on(target)) };
    match record(target, &scene, Asked { members, version, at, repaired }).await {
        Ok(()) => {
            shared.metrics.shrunk_sets.add(1);
            true
        }
        Err(error) => {
            tracing::debug!(%error, "shrinking a set");
            false
        }
    }
}
