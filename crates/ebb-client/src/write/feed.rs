//! A member that was asleep gets what it missed from the always-on node's log. This host then sends no byte again.

use std::sync::Arc;

use ebb_types::deadlines::WRITE_DEADLINE;
use ebb_types::{Result, Version, err};
use ebb_wire::pb;

use crate::write::drive::Target;
use crate::write::members;
use crate::write::outgoing::Outgoing;

/// What a member got: the last version, and the answer about it.
pub(crate) type Fed = (Version, pb::MemberResult);

impl Target {
    /// Has a member get the first of these writes from the log, as far as they are there. Returns the others, which are
    /// to be sent, and the last answer.
    ///
    /// A refusal costs nothing: the bytes are here until every member has synced them.
    pub(crate) async fn feed(
        &self,
        peer: usize,
        member: &pb::Member,
        mut writes: Vec<Arc<Outgoing>>,
    ) -> (Vec<Arc<Outgoing>>, Option<Fed>) {
        let mut fed: Option<Fed> = None;
        while let Some(count) = self.feedable(member, &writes) {
            let upto = writes[count - 1].version;
            let answer = match self.ask_to_feed(peer, member, upto).await {
                Ok(answer) if !answer.has_failed() => answer,
                Ok(answer) => {
                    tracing::debug!(node = member.node, failure = ?answer.failure, "a member is not fed by the log");
                    break;
                }
                Err(error) => {
                    tracing::debug!(node = member.node, %error, "a member is not fed by the log");
                    break;
                }
            };
            let shared = &self.shared;
            shared.metrics.fed_writes.add(count as u64);
            writes.drain(..count);
            // The last answer of all is applied by the caller, as that of a write.
            if let Some((version, before)) = fed.replace((upto, answer)) {
                self.land(|channel| channel.on_taken(peer, version, &Ok(Some(before))));
            }
        }
        if !writes.is_empty()
            && let Some((version, answer)) = fed.take()
        {
            self.land(|channel| channel.on_taken(peer, version, &Ok(Some(answer))));
        }
        (writes, fed)
    }

    /// How many of these writes the member is to get from the log with one call. None: they are sent.
    fn feedable(&self, member: &pb::Member, writes: &[Arc<Outgoing>]) -> Option<usize> {
        let sizes = &self.shared.options.sizes;
        // A proxy that holds the call for the member would have to hold the bytes, too.
        if self.shared.is_out_of_step(member.node) {
            return None;
        }
        let logged = self.with(|channel| channel.logged)?;
        let is_logged = |write: &&Arc<Outgoing>| write.version <= logged;
        let mut bytes = 0;
        let mut count = 0;
        for write in writes.iter().take_while(is_logged) {
            if count > 0 && bytes + write.load() > sizes.feed_max {
                break;
            }
            bytes += write.load();
            count += 1;
        }
        (bytes >= sizes.feed_min).then_some(count)
    }

    async fn ask_to_feed(&self, peer: usize, member: &pb::Member, upto: Version) -> Result<pb::MemberResult> {
        let known = self.with(|channel| (channel.id, channel.peers[peer].received));
        let (id, received) = known.ok_or_else(|| err!(Stale, "the metablock is not written any more"))?;
        let message = pb::FeedReplica {
            inode: self.inode.id.raw(),
            metablock: id.raw(),
            volume: member.volume,
            incarnation: member.incarnation,
            after: Some(received.into()),
            upto: Some(upto.into()),
            page_bytes: self.shared.options.sizes.log_call_max as u64,
        };
        let hop = self.shared.nodes.hop(member)?;
        let answer = members::ask(&self.shared, &hop, &message, Vec::new(), WRITE_DEADLINE).await?;
        let result = answer.message.results.into_iter().find(|result| result.node == member.node);
        result.ok_or_else(|| err!(Protocol, "n{} does not say how it was fed", member.node))
    }
}
