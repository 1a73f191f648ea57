//! Urgency of changes: some continue when the master's disk is full.

use ebb_wire::pb;
use pb::command::Command as Op;
use pb::meta_op::Op as MetaOp;

use crate::log::wal::Urgency;

/// Urgency of a command. Commands that enlarge the state have to wait. Those that shrink it, or end an action in
/// progress, use the log's reserve.
pub(super) fn urgency(command: &pb::Command) -> Urgency {
    match &command.command {
        Some(Op::Client(client)) => {
            let op = client.request.as_ref().and_then(|request| request.op.as_ref()?.op.as_ref());
            op.map_or(Urgency::Growth, of_client)
        }
        // The service continues without a new node or volume.
        Some(Op::RegisterNode(_)) | None => Urgency::Growth,
        // This includes sessions, because a client needs one to remove anything.
        Some(_) => Urgency::Relief,
    }
}

fn of_client(op: &MetaOp) -> Urgency {
    match op {
        MetaOp::Create(_)
        | MetaOp::MakeDir(_)
        | MetaOp::MakeNode(_)
        | MetaOp::Symlink(_)
        | MetaOp::Link(_)
        | MetaOp::SetXattr(_)
        | MetaOp::Grant(_)
        | MetaOp::CreateDataset(_)
        | MetaOp::SetDataset(_) => Urgency::Growth,
        _ => Urgency::Relief,
    }
}
