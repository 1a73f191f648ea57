//! A member that was asleep gets what it missed from the always-on node's log. This host then sends no byte again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::deadlines::WRITE_DEADLINE;
use ebb_types::{Result, Version, bail, err};
use ebb_wire::{convert, pb};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::write::drive::{Target, gone};
use crate::write::members;
use crate::write::outgoing::Outgoing;

/// Members that get writes from the log for one client at a time. One port feeds them, so more would not be quicker.
const FEEDS_AT_ONCE: usize = 2;
/// A node that was not fed is sent everything for so long.
const PAUSE: Duration = Duration::from_secs(5);

/// Members that get from the log what they missed.
pub(crate) struct Feeds {
    places: Semaphore,
    /// Nodes that were not fed, and when the next attempt may be made.
    paused: Mutex<BTreeMap<u64, Moment>>,
}

impl Feeds {
    /// No member is fed.
    pub fn new() -> Self {
        Self { places: Semaphore::new(FEEDS_AT_ONCE), paused: Mutex::default() }
    }

    fn may_feed(&self, node: u64, now: Moment) -> bool {
        self.paused.lock().get(&node).is_none_or(|until| *until <= now)
    }

    fn on_fed(&self, node: u64, is_fed: bool, now: Moment) {
        let mut paused = self.paused.lock();
        match is_fed {
            true => paused.remove(&node),
            false => paused.insert(node, now.after(PAUSE)),
        };
    }
}

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
            // Writes have no gap between them: the member has everything before the first one.
            let answer = self.ask_to_feed(member, (writes[0].predecessor, upto)).await;
            self.shared.feeds.on_fed(member.node, answer.is_ok(), self.shared.runtime.now());
            let answer = match answer {
                Ok(answer) => answer,
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
        if self.shared.is_out_of_step(member.node)
            || !self.shared.feeds.may_feed(member.node, self.shared.runtime.now())
        {
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

    /// Has a member get the writes after one version and up to another. Fails if it has not got all of them.
    async fn ask_to_feed(&self, member: &pb::Member, (after, upto): (Version, Version)) -> Result<pb::MemberResult> {
        let id = self.with(|channel| channel.id).ok_or_else(gone)?;
        let message = pb::FeedReplica {
            inode: self.inode.id.raw(),
            metablock: id.raw(),
            volume: member.volume,
            incarnation: member.incarnation,
            after: Some(after.into()),
            upto: Some(upto.into()),
            page_bytes: self.shared.options.sizes.log_call_max as u64,
        };
        let _place = self.place_to_feed(member.node).await?;
        let hop = self.shared.nodes.hop(member)?;
        let answer = members::ask(&self.shared, &hop, &message, Vec::new(), WRITE_DEADLINE).await?;
        let result = answer.message.results.into_iter().find(|result| result.node == member.node);
        let result = result.ok_or_else(|| err!(Protocol, "n{} does not say how it was fed", member.node))?;
        convert::failure(result.failure.clone())?;
        Ok(result)
    }

    /// A place to feed a member that is awake. No place is held while a member sleeps.
    async fn place_to_feed(&self, node: u64) -> Result<SemaphorePermit<'_>> {
        loop {
            self.shared.awake(node).await?;
            let place = self.shared.feeds.places.acquire().await.expect("it is never closed");
            // Others may have waited for this place, and failed.
            if !self.shared.feeds.may_feed(node, self.shared.runtime.now()) {
                bail!(Unavailable, "n{node} was not fed a moment ago");
            }
            if self.shared.wakes_in(node) == Some(Duration::ZERO) {
                return Ok(place);
            }
        }
    }
}
