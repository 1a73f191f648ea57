//! Sums over whole trees.

use std::sync::Arc;

use ebb_types::{Credentials, ErrorKind, InodeId, Result, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Op, Summarize};

use crate::shared::Shared;
use crate::types::Summary;

impl Shared {
    /// Sums over an inode and everything below it. Files that are being written count with the size that their writer says.
    pub async fn summarize(self: &Arc<Self>, credentials: &Credentials, inode: InodeId) -> Result<Summary> {
        let mut total = Summary::default();
        let mut from = Vec::new();
        loop {
            let reply = self.ask(credentials, Op::Summarize(Summarize { inode: inode.raw(), from })).await?;
            let part = reply.rest.summary.ok_or_else(|| err!(Protocol, "Summarize was answered without sums"))?;
            total.bytes += part.bytes;
            total.stored_bytes += part.stored_bytes;
            total.files += part.files;
            total.directories += part.directories;
            for pb::Unsettled { inode, size } in part.unsettled {
                match self.get_attr(credentials, InodeId::new(inode)).await {
                    Ok(attr) => total.bytes = (total.bytes + attr.size).saturating_sub(size),
                    // It has been removed since it was counted.
                    Err(error) if error.kind() == ErrorKind::Stale => {}
                    Err(error) => return Err(error),
                }
            }
            if part.next.is_empty() {
                return Ok(total);
            }
            from = part.next;
        }
    }
}
