//! Requests to the namespace: queries from the applied state, mutations through the log.

use std::sync::Arc;
use std::time::Duration;

use ebb_meta::{Machine, Reply};
use ebb_types::{
    Credentials, Error, ErrorKind, FileKind, InodeId, MetablockId, Result, SessionId, bail, err, min_copies,
};
use ebb_wire::{convert, pb};
use pb::command::Command;
use pb::meta_op::Op;

use crate::chains;
use crate::copies::repair::Condition;
use crate::fence::{Fence, parents, touched};
use crate::fewer::{Shrink, check_shrink};
use crate::freshen::freshen;
use crate::keep::keep;
use crate::raid;
use crate::room::{self, Placed, for_create, for_grant};
use crate::shared::Shared;
use crate::snapshots::{make_still, wait_until_open};
use crate::view::condition;

/// Answers `MetaRequest`.
///
/// Errors: those of the operation; `LeaseHeld` if other sessions do not forget in time, `SessionExpired`, `NoSpace`,
/// `QuotaExceeded`, `Unavailable`.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    request: pb::MetaRequest,
    deadline: Duration,
) -> Result<pb::MetaReply> {
    let session = SessionId::new(request.session);
    let Some(op) = request.op.as_ref().and_then(|op| op.op.as_ref()) else {
        bail!(Invalid, "a namespace request without an operation, or with one that this release does not know");
    };
    // Tools of operators may read without a session.
    if session != SessionId::default() || !op.is_query() {
        shared.check_session(session)?;
    }
    let mut reply = if op.is_query() {
        query(shared, session, &request, op).await?
    } else {
        change(shared, session, &request, op, deadline).await?
    };
    freshen(shared, session, op, &mut reply, deadline).await?;
    Ok(reply)
}

/// Applies a mutation. Other sessions must first forget the changed names and attributes (I-27).
async fn change(
    shared: &Arc<Shared>,
    session: SessionId,
    request: &pb::MetaRequest,
    op: &Op,
    deadline: Duration,
) -> Result<pb::MetaReply> {
    let until = shared.runtime.now().after(deadline);
    let touched = touched(&shared.group.machine(), op);
    let mut fence = Fence::raise(shared, session, touched);
    fence.wait_until_forgotten(deadline).await?;
    let left = until.since(shared.runtime.now());
    let closing = match op {
        // Half of the time is for the answer: whoever is in the way by then is named in it.
        Op::TakeSnapshot(take) => {
            let credentials = convert::required(request.credentials.clone(), "the credentials of a mutation")?.into();
            Some(make_still(shared, take, &credentials, left / 2).await?)
        }
        _ => None,
    };
    wait_until_open(shared, op, left).await?;
    let mut reply = mutate(shared, session, request, op).await?;
    drop(closing);
    // Names may have led elsewhere when the command was applied. So the caller gets its reply only when all other
    // sessions have forgotten everything that was changed. A caller that runs out of time repeats the request, and
    // waits here again.
    let done = parents(op).into_iter().filter(|_| reply.created || !matches!(op, Op::Create(_)));
    let about = [reply.attr.as_ref().map_or(0, |attr| attr.inode), reply.displaced_inode];
    fence.extend(done.chain(about.into_iter().filter(|id| *id != 0 && changes_attributes(op)).map(InodeId::new)));
    fence.wait_until_forgotten(until.since(shared.runtime.now())).await?;
    if reply.displaced_gone {
        let displaced = InodeId::new(reply.displaced_inode);
        reply.displaced_open = shared.soft().leases.is_open_elsewhere(session, displaced);
    }
    if request.lease {
        let machine = shared.group.machine();
        keep(&machine, &mut shared.soft(), session, op, &mut reply);
    }
    Ok(reply)
}

/// Whether the operation changes its inode, and does not merely create or find it.
fn changes_attributes(op: &Op) -> bool {
    matches!(
        op,
        Op::Link(_)
            | Op::Unlink(_)
            | Op::RemoveDir(_)
            | Op::Rename(_)
            | Op::SetAttr(_)
            | Op::SetXattr(_)
            | Op::RemoveXattr(_)
    )
}

async fn query(shared: &Shared, session: SessionId, request: &pb::MetaRequest, op: &Op) -> Result<pb::MetaReply> {
    shared.group.read_barrier().await?;
    let credentials = Credentials::from(convert::required(request.credentials.clone(), "the credentials of a query")?);
    let mut reply = {
        let machine = shared.group.machine();
        let mut reply = match machine.query(session, &credentials, op) {
            Err(error) if request.lease && is_missing(&machine, op, &error) => {
                pb::MetaReply { missing: true, ..Default::default() }
            }
            reply => reply?,
        };
        if request.lease {
            keep(&machine, &mut shared.soft(), session, op, &mut reply);
        }
        reply
    };
    if let (Op::StatFs(_), Some(stat)) = (op, &mut reply.stat_fs) {
        // Space is not logged. It is the sum of the live volumes' last reports.
        *stat = room::space(shared, op, *stat);
    }
    Ok(reply)
}

/// Whether a lookup failed only because the directory has no such name.
fn is_missing(machine: &Machine, op: &Op, error: &Error) -> bool {
    match op {
        Op::Lookup(lookup) => {
            let directory = machine.attr(InodeId::new(lookup.parent));
            error.kind() == ErrorKind::NotFound
                && directory.is_ok_and(|attr| attr.kind == FileKind::Directory.raw() && attr.nlink > 0)
        }
        _ => false,
    }
}

async fn mutate(shared: &Shared, session: SessionId, request: &pb::MetaRequest, op: &Op) -> Result<pb::MetaReply> {
    if request.request == 0 {
        bail!(Invalid, "a mutation needs a request number above 0");
    }
    check_set(shared, op)?;
    let mut placed = room::find(shared, op, || placements(shared, session, op)).await?;
    let request = chains::complete(shared, request.clone())?;
    if let Some(op) = request.op.as_ref().and_then(|op| op.op.as_ref()) {
        raid::wishes::check(shared, op)?;
    }
    let placements = std::mem::take(&mut placed.placements);
    let command = pb::ClientCommand { request: Some(request), placements };
    // `placed` lives until the command has been applied, so that its reservations count until then.
    match shared.group.propose(Command::Client(command)).await? {
        Reply::Meta(reply) => Ok(room::reserve(shared, op, reply)),
        Reply::None => Ok(pb::MetaReply::default()),
        other => bail!(Internal, "a namespace request was answered with {other:?}"),
    }
}

/// Refuses a holder's change that leaves a set with fewer members than a write needs.
///
/// The check is not part of the state machine, because commands that an earlier release has logged must be applied
/// unchanged.
fn check_set(shared: &Shared, op: &Op) -> Result<()> {
    let Op::ChangeSet(change) = op else { return Ok(()) };
    let (machine, id) = (shared.group.machine(), MetablockId::new(change.metablock));
    let Some((inode, record)) = machine.find_metablock(id) else { return Ok(()) };
    let dataset = machine.dataset_of(inode)?;
    let soft = shared.soft();
    let is_lost =
        |member: &pb::Member| !matches!(condition(&machine, &soft, id, member), Condition::Good | Condition::Unknown);
    let left_out = record.members.iter().filter(|member| !change.members.contains(member));
    let shrink = Shrink {
        min: min_copies(dataset.min_copies, dataset.replicas) as usize,
        old: record.members.len(),
        new: change.members.len(),
        left_out: left_out.filter(|member| !is_lost(member)).map(|member| member.node_id()).collect(),
    };
    check_shrink(&shrink).map_err(|why| err!(Invalid, "{id} of {inode}: {why}"))
}

/// Places metablocks before the command is logged. Placement is the leader's choice, because the state machine must be
/// deterministic.
fn placements(shared: &Shared, session: SessionId, op: &Op) -> Result<Placed> {
    let writer = || shared.soft().sessions.host(session).unwrap_or_default();
    match op {
        Op::Create(create) if !create.no_grant => for_create(shared, session, create, writer()),
        Op::Grant(grant) => for_grant(shared, grant, &writer()),
        _ => Ok(Placed::default()),
    }
}
