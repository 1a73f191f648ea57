//! Direct writes on the writer's side. The writer asks the file's proxy for the members, puts the bytes with all of
//! them, and then calls the proxy.
//!
//! ```text
//!  client ── Direct ──► proxy      the write's place in the queue, and the members
//!         ── PutStaged ──► members that are awake, one after the other      not readable yet
//!         ── Apply ──► proxy ── WriteReplica, without bytes ──► these members
//!                            ── LogWrites, without bytes ──► one of them, for members that sleep
//! ```
//! After any failure before the last step nothing was written, and the bytes go by way of the proxy. The last step is
//! an operation on a shared file like any other: it is carried out once, or its fate is not known.

use std::sync::Arc;

use bytes::Bytes;
use ebb_types::{Result, err};
use ebb_wire::pb;
use ebb_wire::pb::shared_op::{Apply, Direct, Op};

use crate::inode::Inode;
use crate::shared::Shared;
use crate::shared_file::proxied::Outcome;
use crate::shared_file::sharing::Sharing;
use crate::write::members;
use crate::write::outgoing::checksum_runs;

/// A member that is awake for less than this is given no bytes, in milliseconds. The proxy keeps to more.
const LEAST_AWAKE_MS: u64 = 200;

/// Outcome of a direct write.
pub(crate) enum Directly {
    /// It is written.
    Done,
    /// Nothing was written. The bytes have to go by way of the proxy.
    NotThis,
    /// The file is not shared any more, or is shared anew. Nothing was written.
    Gone,
}

impl Shared {
    /// Whether a write of so many bytes is worth three messages more.
    pub fn is_direct(&self, len: usize) -> bool {
        len as u64 >= self.options.direct_bytes_min
    }

    /// Writes at an offset of a shared file, with the bytes going to the members from here.
    pub async fn write_direct(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        sharing: &Sharing,
        offset: u64,
        data: &Bytes,
        take_privileges: bool,
    ) -> Result<Directly> {
        let request = self.requests.once(self.session.name().id);
        let ask = Op::Direct(Direct { offset, length: data.len() as u64 });
        let answer = match self.carry_out(inode, sharing, &request, ask, Vec::new()).await? {
            (Outcome::Done(answer), _) => answer,
            // The request for a place writes nothing, even if its fate is not known.
            (Outcome::Gone, _) => return Ok(Directly::Gone),
        };
        let ticket = pb::Ticket { session: request.session.raw(), request: request.number };
        let parts = answer.reply.parts;
        if parts.is_empty() {
            return Ok(Directly::NotThis);
        }
        if parts.iter().map(|part| part.length).sum::<u64>() != data.len() as u64 {
            return Err(err!(Protocol, "a proxy gave places for another write than this"));
        }
        let put = self.put_all(ticket, sharing.stay.epoch, &parts, data).await;
        if let Err(error) = &put {
            tracing::debug!(inode = %inode.id, %error, "a direct write goes by way of the proxy");
        }
        let apply = Apply { ticket: ticket.request, abandon: put.is_err(), take_privileges };
        if apply.abandon {
            let request = self.requests.once(request.session);
            return match self.carry_out(inode, sharing, &request, Op::Apply(apply), Vec::new()).await? {
                (Outcome::Done(_), _) => Ok(Directly::NotThis),
                (Outcome::Gone, _) => Ok(Directly::Gone),
            };
        }
        match self.change_shared(inode, sharing, Op::Apply(apply), Vec::new()).await? {
            Outcome::Gone => Ok(Directly::Gone),
            Outcome::Done(answer) if answer.reply.expired => Ok(Directly::NotThis),
            Outcome::Done(_) => {
                self.metrics.direct_writes.add(1);
                self.metrics.direct_bytes.add(data.len() as u64);
                Ok(Directly::Done)
            }
        }
    }

    /// Puts every part with every member that the proxy has named. Fails if a member has not got its part.
    async fn put_all(
        self: &Arc<Self>,
        ticket: pb::Ticket,
        epoch: u64,
        parts: &[pb::DirectPart],
        data: &Bytes,
    ) -> Result<()> {
        let mut at = 0;
        for part in parts {
            let bytes = data.slice(at..at + part.length as usize);
            at += part.length as usize;
            self.put(ticket, epoch, part, bytes).await?;
        }
        Ok(())
    }

    async fn put(self: &Arc<Self>, ticket: pb::Ticket, epoch: u64, part: &pb::DirectPart, bytes: Bytes) -> Result<()> {
        let mut hops = Vec::with_capacity(part.members.len());
        for member in &part.members {
            self.nodes.check_answers(member.node)?;
            if !self.awake_for(member.node_id()).serves_for(LEAST_AWAKE_MS) || self.is_out_of_step(member.node) {
                return Err(err!(Unavailable, "n{} may sleep soon", member.node));
            }
            hops.push(self.nodes.hop(member)?);
        }
        hops.sort_by_key(|hop| hop.host != self.options.host.as_str());
        let message = pb::PutStaged {
            ticket: Some(ticket),
            metablock: part.metablock,
            epoch,
            offset: part.offset,
            checksums: checksum_runs(part.offset, std::slice::from_ref(&bytes)),
            ..pb::PutStaged::default()
        };
        for (hop, result) in hops.iter().zip(members::put(self, &hops, message, bytes).await) {
            let Some(result) = result? else { return Err(err!(Unavailable, "{} said nothing", hop.address)) };
            ebb_wire::convert::failure(result.failure)?;
        }
        Ok(())
    }
}
