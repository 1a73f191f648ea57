//! Which files go to the proxy: those that several sessions use in turns while one of them writes.
//!
//! A plain state machine; moments come in as arguments. A lease that goes back and forth costs a recall, a sync and two
//! entries of the log for each turn. A *turn* is a wish that finds another session's lease in its way. A file that has
//! had `turns` of them `within` a while is **shared**: who asks for a lease on it is sent to the proxy, which takes the
//! write lease itself, as any client does, and carries operations out for all. One opener after the other (a file that
//! is written here and then read there) makes one turn, and changes nothing.
//!
//! ```text
//!  exclusive ── enough turns ──► wanted ── the proxy takes the lease ──► shared ── it gives it back ──► exclusive
//!                                  └── it does not, for `patience` ──────────────────────────────────────▲
//! ```
//! Nothing of this is logged: that the proxy holds a file shows by its write lease, and a proxy that a new master
//! process has not heard of yet is a holder like others, whose lease is recalled.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{InodeId, SessionId};
use ebb_wire::pb;

/// Files whose turns are remembered, before those that are too old to count are looked for.
const FILES_SOFT_MAX: usize = 1024;

/// When a file becomes shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharingRule {
    /// So many turns; 0: never.
    pub turns: usize,
    /// Within this.
    pub within: Duration,
    /// How long the proxy may take to get the lease before others compete for it again.
    pub patience: Duration,
}

impl Default for SharingRule {
    /// Four turns in two seconds: more than any hand-over of a finished file makes, and over in a fraction of a second
    /// where two programs really take turns. Five seconds of patience: half a session, so that a holder that lives has
    /// given the file back.
    fn default() -> Self {
        Self { turns: 4, within: Duration::from_secs(2), patience: Duration::from_secs(5) }
    }
}

/// A proxy that said where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proxy {
    /// Its session: it is a client to the master.
    pub session: SessionId,
    /// Where it listens.
    pub address: String,
    /// Its process.
    pub boot: u64,
}

impl Proxy {
    /// As clients are told of it.
    #[must_use]
    pub fn to_message(&self) -> pb::ProxyAddress {
        pb::ProxyAddress { address: self.address.clone(), boot: self.boot }
    }
}

/// The proxy, and who takes turns.
#[derive(Debug)]
pub struct Sharing {
    rule: SharingRule,
    proxy: Option<Proxy>,
    files: BTreeMap<InodeId, Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    taken: VecDeque<Moment>,
    wanted: Option<Moment>,
}

impl Sharing {
    /// No proxy yet, and nobody has taken turns.
    #[must_use]
    pub fn new(rule: SharingRule) -> Self {
        Self { rule, proxy: None, files: BTreeMap::new() }
    }

    /// A proxy says where it is. The first one stays for as long as its session lives, unless another takes its address.
    /// True: clients do not know of it yet.
    pub fn on_proxy(&mut self, proxy: Proxy) -> bool {
        let is_free = self.proxy.as_ref().is_none_or(|known| known.address == proxy.address);
        let is_news = is_free && self.proxy.as_ref().is_none_or(|known| known.boot != proxy.boot);
        if is_free {
            self.proxy = Some(proxy);
        }
        is_news
    }

    /// The proxy, if there is one.
    #[must_use]
    pub fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// A session is over.
    pub fn drop_session(&mut self, session: SessionId) {
        if self.proxy.as_ref().is_some_and(|proxy| proxy.session == session) {
            self.proxy = None;
            self.files.clear();
        }
    }

    /// A wish of `session` finds leases of others in its way. True: the file is wanted by the proxy from now on.
    pub fn on_turn(&mut self, session: SessionId, inode: InodeId, now: Moment) -> bool {
        if self.rule.turns == 0 || self.proxy.as_ref().is_none_or(|proxy| proxy.session == session) {
            return false;
        }
        self.forget_old(now);
        let within = self.rule.within;
        let turns = self.files.entry(inode).or_default();
        turns.taken.push_back(now);
        turns.taken.retain(|taken| now.since(*taken) < within);
        if turns.taken.len() < self.rule.turns {
            return false;
        }
        turns.taken.clear();
        turns.wanted = Some(now);
        true
    }

    fn forget_old(&mut self, now: Moment) {
        if self.files.len() < FILES_SOFT_MAX {
            return;
        }
        let (within, patience) = (self.rule.within, self.rule.patience);
        self.files.retain(|_, turns| {
            turns.taken.back().is_some_and(|taken| now.since(*taken) < within)
                || turns.wanted.is_some_and(|wanted| now.since(wanted) < patience)
        });
    }

    /// Where `session` is sent that wants a lease on a file with this holder; none: it competes for the lease itself.
    #[must_use]
    pub fn leads(
        &self,
        session: SessionId,
        inode: InodeId,
        holder: Option<SessionId>,
        has_name: bool,
        now: Moment,
    ) -> Option<&Proxy> {
        let proxy = self.proxy.as_ref().filter(|proxy| proxy.session != session)?;
        if holder == Some(proxy.session) {
            return Some(proxy);
        }
        let wanted = self.files.get(&inode).and_then(|turns| turns.wanted);
        // The proxy could not open what has no name any more.
        (has_name && wanted.is_some_and(|wanted| now.since(wanted) < self.rule.patience)).then_some(proxy)
    }

    /// A session got the write lease. Once the proxy has it, nobody's turns count any more.
    pub fn on_lease(&mut self, session: SessionId, inode: InodeId) {
        if self.proxy.as_ref().is_some_and(|proxy| proxy.session == session) {
            self.files.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId::new(5);
    const PROXY: SessionId = SessionId::new(9);
    const ONE: SessionId = SessionId::new(1);

    fn at(ms: u64) -> Moment {
        Moment::default().after(Duration::from_millis(ms))
    }

    fn sharing() -> Sharing {
        let mut sharing = Sharing::new(SharingRule::default());
        sharing.on_proxy(Proxy { session: PROXY, address: "p:1".into(), boot: 3 });
        sharing
    }

    #[test]
    fn a_file_is_shared_after_enough_turns_and_no_sooner() {
        let mut sharing = sharing();
        assert!((0..3).all(|turn| !sharing.on_turn(ONE, FILE, at(turn * 100))));
        assert_eq!(sharing.leads(ONE, FILE, None, true, at(300)), None);
        assert!(sharing.on_turn(ONE, FILE, at(400)));
        assert_eq!(sharing.leads(ONE, FILE, None, true, at(400)).map(|proxy| proxy.boot), Some(3));
        assert_eq!(sharing.leads(PROXY, FILE, None, true, at(400)), None, "the proxy itself takes the lease");
        assert_eq!(sharing.leads(ONE, FILE, None, false, at(400)), None, "what has no name cannot be opened anew");
        assert_eq!(
            sharing.leads(ONE, FILE, None, true, at(6000)),
            None,
            "a proxy that does not come is not waited for"
        );
    }

    #[test]
    fn slow_turns_do_not_count() {
        let mut sharing = sharing();
        assert!((0..20).all(|turn| !sharing.on_turn(ONE, FILE, at(turn * 700))));
    }

    #[test]
    fn what_the_proxy_holds_is_its_own_until_it_gives_it_back() {
        let mut sharing = sharing();
        assert_eq!((0..4).filter(|turn| sharing.on_turn(ONE, FILE, at(*turn))).count(), 1);
        sharing.on_lease(ONE, FILE);
        assert!(sharing.leads(ONE, FILE, None, true, at(10)).is_some(), "one that was before it in the queue");
        sharing.on_lease(PROXY, FILE);
        assert!(sharing.leads(ONE, FILE, Some(PROXY), true, at(100_000)).is_some());
        assert!(sharing.leads(ONE, FILE, None, true, at(10)).is_none());
        sharing.drop_session(PROXY);
        assert!(sharing.leads(ONE, FILE, Some(PROXY), true, at(10)).is_none(), "its lease is recalled, or recovered");
    }

    #[test]
    fn without_a_proxy_nothing_is_shared_and_the_first_one_stays() {
        let mut alone = Sharing::new(SharingRule::default());
        assert!((0..9).all(|turn| !alone.on_turn(ONE, FILE, at(turn))));
        let mut sharing = sharing();
        sharing.on_proxy(Proxy { session: ONE, address: "p:2".into(), boot: 4 });
        assert!(sharing.leads(ONE, FILE, Some(PROXY), true, at(0)).is_some());
        sharing.on_proxy(Proxy { session: ONE, address: "p:1".into(), boot: 4 });
        assert!(
            sharing.leads(PROXY, FILE, Some(ONE), true, at(0)).is_some(),
            "at the same address is the next process"
        );
    }
}
