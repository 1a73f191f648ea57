//! A member that was asleep gets what it missed from the always-on node's log, at its holder's word. So the holder sends
//! no byte a second time.
//!
//! Each write is applied as if the holder had sent it: with its version, behind its predecessor, and compared with the
//! writer's checksums.

use std::sync::Arc;
use std::time::Duration;

use ebb_handoff::Logged;
use ebb_store::Progress;
use ebb_types::{Incarnation, MetablockId, Result, Version, bail};
use ebb_wire::{convert, pb};

use crate::handoff::ask_master;
use crate::node::Node;
use crate::pipeline::{result, to_write};

/// Answers `FeedReplica`. A failure is a result, and says how far it came.
pub(crate) async fn feed(
    node: &Arc<Node>,
    message: pb::FeedReplica,
    deadline: Duration,
) -> Result<pb::WriteReplicaReply> {
    let fed = follow(node, &message, deadline).await;
    let metablock = MetablockId::new(message.metablock);
    let (after, upto) = (&message.after, &message.upto);
    tracing::trace!(%metablock, ?after, ?upto, ?fed, "feed");
    Ok(pb::WriteReplicaReply { results: vec![result(node, message.volume, metablock, fed)] })
}

/// Applies one page while the next one comes, then syncs.
async fn follow(node: &Arc<Node>, message: &pb::FeedReplica, deadline: Duration) -> Result<Progress> {
    let (metablock, upto) = (MetablockId::new(message.metablock), convert::version(message.upto));
    let mut reached = convert::version(message.after);
    let mut page = next_page(node, message, reached, deadline).await?;
    loop {
        let Some(last) = page.writes.last().map(Logged::version) else {
            bail!(NotFound, "the log has {metablock} up to {reached}, and {upto} is wanted");
        };
        if last >= upto {
            apply(node, message, page.writes).await?;
            let volume = node.volume(message.volume)?;
            volume.sync(metablock, Incarnation::new(message.incarnation), upto).await?;
            return Ok(volume.progress(metablock));
        }
        if page.is_last {
            bail!(NotFound, "the log has {metablock} up to {last}, and {upto} is wanted");
        }
        let (next, applied) =
            tokio::join!(biased; next_page(node, message, last, deadline), apply(node, message, page.writes));
        applied?;
        (reached, page) = (last, next?);
    }
}

/// Some of the wanted writes, in order.
struct Page {
    writes: Vec<Logged>,
    /// The log has no more of them.
    is_last: bool,
}

async fn next_page(node: &Node, message: &pb::FeedReplica, after: Version, deadline: Duration) -> Result<Page> {
    let call = pb::ReadLogged {
        inode: message.inode,
        metablock: message.metablock,
        after: Some(after.into()),
        upto: message.upto,
        page_bytes: message.page_bytes,
    };
    // Of several pages none may take the time of all.
    let reply = ask_master(node, &call, Vec::new(), deadline / 2).await?;
    let writes = ebb_handoff::split(reply.message.writes, &reply.payload)?;
    if let Some(stray) = writes.iter().find(|write| write.metablock().raw() != message.metablock) {
        bail!(Protocol, "a write of {} for m{}", stray.metablock(), message.metablock);
    }
    Ok(Page { writes, is_last: reply.message.end })
}

async fn apply(node: &Arc<Node>, message: &pb::FeedReplica, writes: Vec<Logged>) -> Result<()> {
    for logged in writes {
        let write = pb::WriteReplica { incarnation: message.incarnation, authority: 0, ..logged.write };
        let _writing = node.begin_writing(logged.data.len() as u64);
        let write = to_write(&write, logged.data)?;
        node.volume(message.volume)?.write(&write, false).await?;
    }
    Ok(())
}
