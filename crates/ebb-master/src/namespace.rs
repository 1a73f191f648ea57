//! Requests to the namespace: queries from the applied state, mutations through the log.

use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Reply;
use ebb_types::{Credentials, Result, SessionId, bail};
use ebb_wire::pb;
use pb::command::Command;
use pb::meta_op::Op;

use crate::freshen::freshen;
use crate::room::{self, for_create, for_grant};
use crate::shared::Shared;

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
        *stat = room::space(shared, op, *stat);
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
        Reply::Meta(reply) => Ok(room::promise(shared, op, reply)),
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
