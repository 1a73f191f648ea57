//! Rights of programs: each acts for the user of its certificate, and nobody has checked what it asks for.

use ebb_meta::{READ, WRITE};
use ebb_rpc::PeerInfo;
use ebb_types::{Credentials, InodeId, Result, Role, SessionId};
use ebb_wire::{convert, pb};

use crate::leases::Mode;
use crate::shared::Shared;

/// Refuses a request of a program that its user may not make.
///
/// # Errors
/// `AccessDenied`.
pub(crate) fn check_request(shared: &Shared, peer: &PeerInfo, request: &pb::MetaRequest) -> Result<()> {
    let Some(op) = request.op.as_ref().and_then(|op| op.op.as_ref()) else { return Ok(()) };
    if peer.role != Role::Program {
        return Ok(());
    }
    let credentials = credentials(&request.credentials)?;
    let (machine, soft) = (shared.group.machine(), shared.soft());
    let session = SessionId::new(request.session);
    machine.check_request(&credentials, op, |inode| soft.leases.is_open_by(session, inode))
}

/// Refuses a program a lease on a file that its user may not use in this way. An open is checked as every open.
///
/// # Errors
/// `AccessDenied`.
pub(crate) fn check_acquire(shared: &Shared, peer: &PeerInfo, call: &pb::Acquire) -> Result<()> {
    if peer.role != Role::Program || call.open {
        return Ok(());
    }
    let access = match Mode::from_raw(call.mode) {
        Mode::Write => WRITE,
        Mode::Read | Mode::None => READ,
    };
    let credentials = credentials(&call.credentials)?;
    let (machine, soft) = (shared.group.machine(), shared.soft());
    let session = SessionId::new(call.session);
    // A session that holds the lease already is about to use it, or to give it back.
    if machine.holder(InodeId::new(call.inode)) == Some(session) {
        return Ok(());
    }
    machine.check_contents(&credentials, call.inode, access, |inode| soft.leases.is_open_by(session, inode))
}

fn credentials(message: &Option<pb::Credentials>) -> Result<Credentials> {
    Ok(convert::required(message.clone(), "the user of a program")?.into())
}
