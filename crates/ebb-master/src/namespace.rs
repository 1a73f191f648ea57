//! Requests to the namespace: queries from the applied state, mutations through the log.

use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Reply;
use ebb_types::{Credentials, HostName, InodeId, Result, SessionId, bail};
use ebb_wire::pb;
use pb::command::Command;
use pb::meta_op::Op;

use crate::freshen::freshen;
use crate::placement::{Need, place};
use crate::shared::Shared;

/// Metablocks that one Grant may ask for.
const GRANT_LEN_MAX: usize = 256;

/// Answers `MetaRequest`.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    request: pb::MetaRequest,
    deadline: Duration,
) -> Result<pb::MetaReply> {
    let session = SessionId::new(request.session);
    let Some(op) = request.op.as_ref().and_then(|op| op.op.as_ref()) else {
        bail!(Invalid, "a namespace request without an operation, or with one that this release does not know");
    };
    // People's tools may look without a session.
    if session != SessionId::default() || !op.is_query() {
        shared.check_session(session)?;
    }
    let mut reply = if op.is_query() {
        query(shared, session, &request, op).await?
    } else {
        mutate(shared, session, &request, op).await?
    };
    freshen(shared, session, op, &mut reply, deadline).await?;
    Ok(reply)
}

async fn query(shared: &Shared, session: SessionId, request: &pb::MetaRequest, op: &Op) -> Result<pb::MetaReply> {
    shared.group.read_barrier().await?;
    let credentials = request.credentials.clone().map(Credentials::from).unwrap_or_default();
    let mut reply = shared.group.machine().query(session, &credentials, op)?;
    if let (Op::StatFs(_), Some(stat)) = (op, &mut reply.stat_fs) {
        // Space is not logged: it is what live volumes said last.
        (stat.capacity_bytes, stat.free_bytes, stat.used_bytes) = shared.state.registry.lock().space();
    }
    Ok(reply)
}

async fn mutate(shared: &Shared, session: SessionId, request: &pb::MetaRequest, op: &Op) -> Result<pb::MetaReply> {
    if request.request == 0 {
        bail!(Invalid, "a mutation needs a request number above 0");
    }
    let placements = placements(shared, session, op)?;
    let command = pb::ClientCommand { request: Some(request.clone()), placements };
    match shared.group.propose(Command::Client(command)).await? {
        Reply::Meta(reply) => Ok(reply),
        Reply::None => Ok(pb::MetaReply::default()),
        other => bail!(Internal, "a namespace request was answered with {other:?}"),
    }
}

/// Placement is the leader's choice, not the state machine's: it is made before the command is logged.
fn placements(shared: &Shared, session: SessionId, op: &Op) -> Result<Vec<pb::Placement>> {
    let writer = || shared.state.soft.lock().sessions.host(session).unwrap_or_default();
    match op {
        Op::Create(create) if !create.no_grant => for_create(shared, session, create, writer()),
        Op::Grant(grant) => for_grant(shared, grant, &writer()),
        _ => Ok(Vec::new()),
    }
}

fn for_create(
    shared: &Shared,
    session: SessionId,
    create: &pb::meta_op::Create,
    writer: HostName,
) -> Result<Vec<pb::Placement>> {
    let directory = InodeId::new(create.parent);
    let dataset = {
        let machine = shared.group.machine();
        let lookup = Op::Lookup(pb::meta_op::Lookup { parent: create.parent, name: create.name.clone() });
        // What exists is opened, not placed. The superuser's eyes: permissions are checked when the command is applied.
        if machine.query(session, &Credentials::root(), &lookup).is_ok() {
            return Ok(Vec::new());
        }
        machine.dataset_of(directory)?
    };
    // Most files are small: room for a block is enough to begin with.
    let bytes = dataset.block_size;
    let members = place(shared, &Need::fresh(directory, dataset, 0, writer, bytes))?;
    Ok(vec![pb::Placement { members }])
}

fn for_grant(shared: &Shared, grant: &pb::meta_op::Grant, writer: &HostName) -> Result<Vec<pb::Placement>> {
    if grant.indexes.len() > GRANT_LEN_MAX {
        bail!(Invalid, "{} metablocks in one grant, at most {GRANT_LEN_MAX} are given", grant.indexes.len());
    }
    let inode = InodeId::new(grant.inode);
    let (dataset, existing) = {
        let machine = shared.group.machine();
        (machine.dataset_of(inode)?, machine.metablocks(inode)?)
    };
    let mut placements = Vec::with_capacity(grant.indexes.len());
    for (turn, index) in grant.indexes.iter().enumerate() {
        // These are answered as they are recorded.
        if existing.binary_search_by_key(index, |metablock| metablock.index).is_ok() {
            placements.push(pb::Placement::default());
            continue;
        }
        let mut need = Need::fresh(inode, dataset.clone(), *index, writer.clone(), dataset.metablock_size);
        if !grant.hosts.is_empty() {
            need.preferred = vec![HostName::new(grant.hosts[turn % grant.hosts.len()].clone())];
        }
        placements.push(pb::Placement { members: place(shared, &need)? });
    }
    Ok(placements)
}
