//! How much waits to be read at each node, as far as one reader knows.
//!
//! A server tells with each answer how much was waiting when the read came. That news is old when it gets here: by the
//! wait, by the reading, and by the time since. So three things are added up, and the last is asked for:
//!
//! - **Own reads** that are not answered yet count in full.
//! - **Reads of others**, as told, less the own ones that were among them. The news fades, and counts nothing after
//!   [`NEWS_MAX`].
//! - **A limit.** Where answers take long, a read says how much may wait before it. A node with more refuses it at
//!   once, with its queue, and the second of the two nodes is asked (threshold policies: Eager, Lazowska, Zahorjan,
//!   "Adaptive load sharing in homogeneous distributed systems", 1986). It costs a busy cluster a round trip for a
//!   read, and an idle one nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_types::READ_COST_MIN;

#[cfg(test)]
mod tests;

/// Older news counts nothing. Queues of some reads of a few ten milliseconds have been worked off by then.
pub const NEWS_MAX: Duration = Duration::from_millis(500);
/// News older than this says nothing of how many others read from a node.
pub const OTHERS_MAX: Duration = Duration::from_secs(5);
/// A node whose answers take less is asked without a limit: a refusal would cost as much as it could save.
pub const SLOW_MIN: Duration = Duration::from_millis(5);

/// What a reader knows of all nodes. Times are spans since any moment that stays the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Queues<K>(BTreeMap<K, NodeQueue>);

/// Of one node.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct NodeQueue {
    own_reads: u64,
    own_bytes: u64,
    others: Option<News>,
    /// Other readers by the last answers, the latest first: see [`Queues::others`].
    readers: [f64; 4],
    /// From the last request that was answered with bytes to its answer.
    took: Duration,
    /// Bytes that waited there when that request came, and its own: by the answer, or the own reads if they are more.
    taken: u64,
}

/// Reads of others that waited, and when.
#[derive(Clone, Copy, PartialEq, Debug)]
struct News {
    bytes: u64,
    at: Duration,
}

/// An own read on its way to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    cost: u64,
    /// Own bytes that were there before it.
    before: u64,
    at: Duration,
}

/// What to do with a read that a node has refused for its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterRefusal {
    /// Ask the second node, with this limit.
    Second(Option<u64>),
    /// Ask the first node again, without a limit: more waits at the second.
    First,
}

/// Bytes that a read of `len` bytes counts for.
#[must_use]
pub fn cost(len: u64) -> u64 {
    len.max(READ_COST_MIN)
}

impl<K> Default for Queues<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> Queues<K> {
    /// A read of `len` bytes is sent.
    pub fn on_sent(&mut self, node: K, len: u64, now: Duration) -> Sent {
        let queue = self.0.entry(node).or_default();
        let sent = Sent { cost: cost(len), before: queue.own_bytes, at: now };
        queue.own_bytes = queue.own_bytes.saturating_add(sent.cost);
        queue.own_reads += 1;
        sent
    }

    /// It has ended, in whatever way.
    pub fn on_end(&mut self, node: K, sent: Sent) {
        if let Some(queue) = self.0.get_mut(&node) {
            queue.own_bytes = queue.own_bytes.saturating_sub(sent.cost);
            queue.own_reads = queue.own_reads.saturating_sub(1);
        }
    }

    /// Its answer came with bytes, and told of this queue, if of any. Returns the time that it took.
    pub fn on_answer(&mut self, node: K, sent: Sent, told: Option<u64>, now: Duration) -> Duration {
        let took = now.saturating_sub(sent.at);
        let queue = self.0.entry(node).or_default();
        queue.took = took;
        queue.taken = told.unwrap_or(0).max(sent.before).saturating_add(sent.cost);
        self.on_told(node, sent, told);
        took
    }

    /// Its answer told of this queue. The server counted when the read got there, which is about when it was sent.
    pub fn on_told(&mut self, node: K, sent: Sent, told: Option<u64>) {
        let queue = self.0.entry(node).or_default();
        let is_newer = queue.others.is_none_or(|others| others.at <= sent.at);
        if let Some(told) = told
            && is_newer
        {
            let bytes = told.saturating_sub(sent.before);
            queue.others = Some(News { bytes, at: sent.at });
            queue.readers.rotate_right(1);
            queue.readers[0] = bytes as f64 / sent.before.max(sent.cost) as f64;
        }
    }

    /// Bytes that wait at a node.
    #[must_use]
    pub fn bytes(&self, node: K, now: Duration) -> u64 {
        let queue = self.0.get(&node).copied().unwrap_or_default();
        queue.own_bytes.saturating_add(queue.others.map_or(0, |others| others.left(now)))
    }

    /// How many other readers like this one waited at a node, by each of the last answers: bytes of others for each of the own
    /// that waited there, or for each of the read itself. Zero if the last answer is older than [`OTHERS_MAX`]. What waited then
    /// has been worked off, but those who read go on reading.
    ///
    /// A single answer says little. Of own reads that are sent at once a later one may arrive first, and wait for an other's: the
    /// more, the longer the own queue.
    #[must_use]
    pub fn others(&self, node: K, now: Duration) -> f64 {
        let Some(queue) = self.0.get(&node) else { return 0.0 };
        let is_fresh = queue.others.is_some_and(|news| now.saturating_sub(news.at) < OTHERS_MAX);
        if is_fresh { queue.readers.into_iter().fold(f64::INFINITY, f64::min) } else { 0.0 }
    }

    /// Own reads in progress at a node.
    #[must_use]
    pub fn own_reads(&self, node: K) -> u64 {
        self.0.get(&node).map_or(0, |queue| queue.own_reads)
    }

    /// Expected time from a request for `len` bytes to its answer: at the pace of the last answer, behind what waits now or
    /// what waited then, whichever is more. News of others fades sooner than their queue. Zero where nothing is known.
    #[must_use]
    pub fn expected(&self, node: K, len: u64, now: Duration) -> Duration {
        let Some(queue) = self.0.get(&node).filter(|queue| queue.taken > 0) else { return Duration::ZERO };
        let ahead = self.bytes(node, now).saturating_add(cost(len)).max(queue.taken);
        queue.took.mul_f64(ahead as f64 / queue.taken as f64)
    }

    /// How much may wait at the first node before a read of `len` bytes: another one like it. None: anything, because
    /// the node is quick, or has own reads. The latter say enough of it, and a refusal would wait behind their answers.
    #[must_use]
    pub fn limit(&self, first: K, len: u64) -> Option<u64> {
        let queue = self.0.get(&first).copied().unwrap_or_default();
        (queue.own_reads == 0 && queue.took >= SLOW_MIN).then(|| cost(len))
    }

    /// What to do when the first node has refused a read of `len` bytes, because `queued` bytes wait there. `edge` is
    /// that of the second ([`super::Order`]).
    #[must_use]
    pub fn after_refusal(&self, queued: u64, second: K, edge: f64, len: u64, now: Duration) -> AfterRefusal {
        let limit = queued as f64 + edge * cost(len) as f64;
        match self.own_reads(second) {
            _ if limit < 0.0 => AfterRefusal::First,
            0 => AfterRefusal::Second(Some(limit as u64)),
            _ if (self.bytes(second, now) as f64) < limit => AfterRefusal::Second(None),
            _ => AfterRefusal::First,
        }
    }
}

impl News {
    /// What counts of it: all at first, nothing from [`NEWS_MAX`] on.
    fn left(self, now: Duration) -> u64 {
        let left = NEWS_MAX.saturating_sub(now.saturating_sub(self.at));
        (self.bytes as f64 * (left.as_secs_f64() / NEWS_MAX.as_secs_f64())) as u64
    }
}
