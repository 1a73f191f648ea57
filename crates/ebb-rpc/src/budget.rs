//! Limits for the peers of a server: memory, connections, handshakes. Each peer has a share ([`Fair`]).

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::PeerInfo;
use crate::fair::{Fair, Usage};

/// The owner of a share: a peer's address without its port, and the host that it declared. A process whose
/// certificate names no host may claim many, and has as many shares.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PeerKey {
    address: String,
    host: String,
}

impl PeerKey {
    pub fn of(peer: &PeerInfo) -> Self {
        Self { address: host_of(&peer.address).to_owned(), host: peer.host.as_str().to_owned() }
    }
}

/// `10.0.0.1:7001` without its port.
pub(crate) fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

type Waiter<K> = oneshot::Sender<Share<K>>;

/// A bounded resource of which each owner has its share.
#[derive(Debug)]
pub(crate) struct Quota<K: Ord + Clone>(Arc<Mutex<Fair<K, Waiter<K>>>>);

/// A part of a quota, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share<K: Ord + Clone> {
    quota: Quota<K>,
    key: K,
    held: Usage,
}

impl<K: Ord + Clone> Clone for Quota<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Ord + Clone> Quota<K> {
    /// `guaranteed`: the units that each owner gets in its turn, however much others want.
    pub fn new(units: usize, guaranteed: usize) -> Self {
        Self(Arc::new(Mutex::new(Fair::new(units, guaranteed.min(units)))))
    }

    /// Waits for `units`, at most the guaranteed number or half of all.
    ///
    /// Cancel-safety: dropped, it waits no more, and units that it got meanwhile go back.
    pub async fn take_units(&self, key: &K, units: usize) -> Share<K> {
        if let Some(share) = self.try_take(key, units) {
            return share;
        }
        let (waiter, granted) = oneshot::channel();
        self.0.lock().wait(key, units, waiter);
        self.pass_on();
        granted.await.expect("the quota outlives its waiters")
    }

    /// `units`, if no caller waits and the owner may have them now.
    pub fn try_take(&self, key: &K, units: usize) -> Option<Share<K>> {
        let held = self.0.lock().try_take(key, units)?;
        Some(self.share(key.clone(), held))
    }

    /// Charges units that are in use already to their owner. Others lose no more by it than the owner's share.
    pub fn charge(&self, key: &K, units: usize) -> Share<K> {
        let held = self.0.lock().charge(key, units);
        self.share(key.clone(), held)
    }

    /// The units of this owner, and the free ones.
    pub fn held_and_free(&self, key: &K) -> (usize, usize) {
        let fair = self.0.lock();
        (fair.held(key), fair.free())
    }

    fn share(&self, key: K, held: Usage) -> Share<K> {
        Share { quota: self.clone(), key, held }
    }

    /// Hands the free units to the waiters whose turn it is.
    fn pass_on(&self) {
        loop {
            let granted = self.0.lock().next_grants(oneshot::Sender::is_closed);
            if granted.is_empty() {
                return;
            }
            for (key, held, waiter) in granted {
                // A waiter that has gone at this very moment gives them back by dropping the share, outside of the
                // lock.
                let _ = waiter.send(self.share(key, held));
            }
        }
    }
}

impl<K: Ord + Clone> Drop for Share<K> {
    fn drop(&mut self) {
        self.quota.0.lock().give_back(&self.key, self.held);
        self.quota.pass_on();
    }
}

/// Requests of up to so many bytes have memory of their own. So calls about sessions and leases never wait for bulk
/// data.
pub(crate) const SMALL: usize = 64 << 10;
/// Of the memory, the part for them: one in so many.
const SMALL_PART: usize = 8;

/// Bytes that requests and answers may take in memory. Requests wait for their part before they are read. Answers,
/// which are in memory already, are charged to their peer without waiting, and so hold back its later requests. The
/// memory is then bounded by the limit and the answers of the requests in progress. Answers never wait for requests: no
/// deadlock.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    small: Quota<PeerKey>,
    large: Quota<PeerKey>,
}

impl Budget {
    /// `largest`: the largest request. It always fits, also if `bytes` is smaller: a peer that sends one would wait for
    /// ever.
    pub fn new(bytes: usize, largest: usize) -> Self {
        let small = (bytes / SMALL_PART).max(4 * SMALL);
        let large = bytes.saturating_sub(small).max(largest);
        Self { small: Quota::new(small, SMALL.max(small / 64)), large: Quota::new(large, largest) }
    }

    fn of(&self, bytes: usize) -> &Quota<PeerKey> {
        if bytes <= SMALL { &self.small } else { &self.large }
    }

    /// Waits for the memory of a request, which must not be larger than the largest.
    pub async fn take_bytes(&self, peer: &PeerKey, bytes: usize) -> Share<PeerKey> {
        self.of(bytes).take_units(peer, bytes).await
    }

    /// Counts an answer.
    pub fn charge(&self, peer: &PeerKey, bytes: usize) -> Share<PeerKey> {
        self.of(bytes).charge(peer, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_that_gives_up_leaves_its_share_to_others() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let quota = Quota::new(10, 10);
            let all = quota.take_units(&1, 10).await;
            let mut gone = Box::pin(quota.take_units(&2, 10));
            let mut granted = Box::pin(quota.take_units(&3, 10));
            let mut last = Box::pin(quota.take_units(&4, 10));
            for waiting in [&mut gone, &mut granted, &mut last] {
                assert!(futures_poll(waiting).is_none());
            }
            drop(gone);
            drop(all);
            // Granted, and given up before it was heard of.
            drop(granted);
            let share = last.await;
            assert_eq!(quota.held_and_free(&4), (10, 0));
            drop(share);
            assert_eq!(quota.held_and_free(&4), (0, 10));
        });
    }

    fn futures_poll<T>(future: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> Option<T> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn large_requests_and_answers_leave_room_for_small_ones() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let key = |host: &str| PeerKey { address: "10.0.0.1".into(), host: host.into() };
        let budget = Budget::new(256 << 20, 20 << 20);
        let held: Vec<_> = (0..30)
            .map(|host| key(&host.to_string()))
            .filter_map(|peer| budget.large.try_take(&peer, 20 << 20))
            .collect();
        assert_eq!(held.len(), 11);
        let _answer = budget.charge(&key("x"), 100 << 20);
        runtime.block_on(budget.take_bytes(&key("y"), SMALL));
    }
}
