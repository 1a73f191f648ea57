//! Sharing: files that several sessions use in turns, while one of them writes, go to a proxy.
//!
//! A plain state machine; moments come in as arguments. A lease that goes back and forth costs a recall, a sync and two
//! log entries for each turn. A *turn* is a wish that conflicts with another session's lease. A file with `turns` of
//! them `within` a time is **shared**: a session that asks for a lease on it is sent to the proxy. The proxy takes the
//! write lease itself, as any client does, and carries out operations for all. A file that is written by one session
//! and then read by another makes one turn, and stays exclusive. While nodes blink, a lease goes back when the members
//! that sleep have everything. So a turn may last a blink interval longer, and each time here gets as much longer.
//!
//! ```text
//!  exclusive ── enough turns ──► wanted ── the proxy takes the lease ──► shared ── it gives it back ──► exclusive
//!                                  └── it does not, for `patience` ──────────────────────────────────────▲
//! ```
//! Nothing of this is logged. A shared file is recognized by the proxy's write lease. A proxy that a new master process
//! does not know yet is a holder like any other, and its lease is recalled.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ebb_layout::rendezvous;
use ebb_runtime::Moment;
use ebb_types::{InodeId, SessionId};
use ebb_wire::pb;

/// Number of files with turns above which old turns are dropped.
const FILES_SOFT_MAX: usize = 1024;

/// Maximum number of proxies. Further ones are ignored.
const PROXIES_MAX: usize = 256;

/// Conditions under which a file becomes shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharingRule {
    /// Number of turns; 0 means never.
    pub turns: usize,
    /// Time within which the turns must fall.
    pub within: Duration,
    /// Time for the proxy to get the lease. After it, sessions compete for the lease again.
    pub patience: Duration,
}

impl Default for SharingRule {
    /// Four turns in two seconds. A hand-over of a finished file makes fewer, and two programs that really take turns
    /// reach it in a fraction of a second. The patience of five seconds is half a session, in which a live holder gives
    /// the file back.
    fn default() -> Self {
        Self { turns: 4, within: Duration::from_secs(2), patience: Duration::from_secs(5) }
    }
}

/// A registered proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proxy {
    /// Name in the cluster. It outlives the process, and files are assigned by it.
    pub name: String,
    /// Its session: a proxy is a client of the master.
    pub session: SessionId,
    /// Address at which it listens.
    pub address: String,
    /// Boot id of its process.
    pub boot: u64,
    /// Whether it is about to end. It keeps files until it has given them back, and gets no new ones.
    pub is_leaving: bool,
}

impl Proxy {
    /// The proxy's address as a message for clients.
    #[must_use]
    pub fn to_message(&self) -> pb::ProxyAddress {
        pb::ProxyAddress { address: self.address.clone(), boot: self.boot, name: self.name.clone() }
    }
}

/// Whether a file has a name, by which a proxy could open it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// It has one.
    Present,
    /// All its names were removed.
    Gone,
}

/// The proxies, and the turns on files. A hash of the file's id chooses among the proxies. A file stays with its proxy
/// until that gives it back, even if other proxies come or go.
#[derive(Debug)]
pub struct Sharing {
    rule: SharingRule,
    /// Proxies by name.
    proxies: BTreeMap<String, Proxy>,
    files: BTreeMap<InodeId, Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    taken: VecDeque<Moment>,
    wanted: Option<Moment>,
}

impl Sharing {
    /// No proxies and no turns.
    #[must_use]
    pub fn new(rule: SharingRule) -> Self {
        Self { rule, proxies: BTreeMap::new(), files: BTreeMap::new() }
    }

    /// Registers a proxy. Returns whether clients have to be informed.
    ///
    /// The first proxy of a name keeps it while its session lives. Another process with that name is refused, unless it
    /// has the same address: then the first process is gone.
    pub fn on_proxy(&mut self, mut proxy: Proxy) -> bool {
        if self.proxies.len() >= PROXIES_MAX && !self.proxies.contains_key(&proxy.name) {
            return false;
        }
        let known = self.proxies.get(&proxy.name);
        let is_free = known.is_none_or(|known| known.address == proxy.address || known.session == proxy.session);
        let is_news = is_free && known.is_none_or(|known| known.boot != proxy.boot || known.address != proxy.address);
        // An older message may arrive after the one that announced the end.
        proxy.is_leaving |= known.is_some_and(|known| known.boot == proxy.boot && known.is_leaving);
        if is_free {
            self.proxies.insert(proxy.name.clone(), proxy);
        }
        is_news
    }

    /// All proxies, by name.
    pub fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        self.proxies.values()
    }

    fn by_session(&self, session: SessionId) -> Option<&Proxy> {
        self.proxies.values().find(|proxy| proxy.session == session)
    }

    /// Proxies that get new files.
    fn staying(&self) -> impl Iterator<Item = &Proxy> {
        self.proxies.values().filter(|proxy| !proxy.is_leaving)
    }

    /// The proxy for a file that no proxy has yet.
    fn chosen(&self, inode: InodeId) -> Option<&Proxy> {
        rendezvous::choose(inode.raw(), self.staying(), |proxy| &proxy.name)
    }

    /// Drops an ended session. Returns whether it was a proxy's, so that clients have to be informed.
    pub fn drop_session(&mut self, session: SessionId) -> bool {
        let before = self.proxies.len();
        self.proxies.retain(|_, proxy| proxy.session != session);
        before != self.proxies.len()
    }

    /// Counts a turn: a wish of `session` conflicts with leases of others. Returns whether the proxy wants the file
    /// from now on. A recall may have to wait `sleep` for members.
    pub fn on_turn(&mut self, session: SessionId, inode: InodeId, now: Moment, sleep: Duration) -> bool {
        if self.rule.turns == 0 || self.staying().next().is_none() || self.by_session(session).is_some() {
            return false;
        }
        let within = self.rule.within + sleep * u32::try_from(self.rule.turns).unwrap_or(u32::MAX);
        self.forget_old(now, within);
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

    fn forget_old(&mut self, now: Moment, within: Duration) {
        if self.files.len() < FILES_SOFT_MAX {
            return;
        }
        let patience = self.rule.patience.max(within);
        self.files.retain(|_, turns| {
            turns.taken.back().is_some_and(|taken| now.since(*taken) < within)
                || turns.wanted.is_some_and(|wanted| now.since(wanted) < patience)
        });
    }

    /// The proxy to which `session` is sent for a lease on a file with this holder. `None` means that it competes for
    /// the lease itself. The proxy may have to wait `sleep` for members until it gets the lease.
    #[must_use]
    pub fn leads(
        &self,
        session: SessionId,
        inode: InodeId,
        holder: Option<SessionId>,
        name: Name,
        now: Moment,
        sleep: Duration,
    ) -> Option<&Proxy> {
        // A proxy takes the lease itself when a client is sent to it, even from another proxy that had the file before.
        if self.by_session(session).is_some() {
            return None;
        }
        if let Some(proxy) = holder.and_then(|holder| self.by_session(holder)) {
            return Some(proxy);
        }
        let wanted = self.files.get(&inode).and_then(|turns| turns.wanted);
        // A proxy cannot open a file that has no name.
        let patience = self.rule.patience + sleep;
        let is_wanted = name == Name::Present && wanted.is_some_and(|wanted| now.since(wanted) < patience);
        if is_wanted { self.chosen(inode) } else { None }
    }

    /// Records a new write lease. Once a proxy has it, the turns are forgotten.
    pub fn on_lease(&mut self, session: SessionId, inode: InodeId) {
        if self.by_session(session).is_some() {
            self.files.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId::new(5);
    const OTHER: InodeId = InodeId::new(6);
    const AWAKE: Duration = Duration::ZERO;
    const PROXY: SessionId = SessionId::new(9);
    const ONE: SessionId = SessionId::new(1);

    fn at(ms: u64) -> Moment {
        Moment::default().after(Duration::from_millis(ms))
    }

    fn sharing() -> Sharing {
        let mut sharing = Sharing::new(SharingRule::default());
        sharing.on_proxy(proxy("proxy", PROXY, "p:1", 3));
        sharing
    }

    fn proxy(name: &str, session: SessionId, address: &str, boot: u64) -> Proxy {
        Proxy { name: name.into(), session, address: address.into(), boot, is_leaving: false }
    }

    #[test]
    fn a_file_is_shared_after_enough_turns_and_no_sooner() {
        let mut sharing = sharing();
        assert!((0..3).all(|turn| !sharing.on_turn(ONE, FILE, at(turn * 100), AWAKE)));
        assert_eq!(sharing.leads(ONE, FILE, None, Name::Present, at(300), AWAKE), None);
        assert!(sharing.on_turn(ONE, FILE, at(400), AWAKE));
        assert_eq!(sharing.leads(ONE, FILE, None, Name::Present, at(400), AWAKE).map(|proxy| proxy.boot), Some(3));
        assert_eq!(
            sharing.leads(PROXY, FILE, None, Name::Present, at(400), AWAKE),
            None,
            "the proxy itself takes the lease"
        );
        assert_eq!(
            sharing.leads(ONE, FILE, None, Name::Gone, at(400), AWAKE),
            None,
            "what has no name cannot be opened anew"
        );
        assert_eq!(
            sharing.leads(ONE, FILE, None, Name::Present, at(6000), AWAKE),
            None,
            "a proxy that does not come is not waited for"
        );
    }

    #[test]
    fn slow_turns_do_not_count_unless_members_sleep() {
        let mut sharing = sharing();
        assert!((0..20).all(|turn| !sharing.on_turn(ONE, FILE, at(turn * 700), AWAKE)));
        let interval = Duration::from_secs(60);
        let turn = |sharing: &mut Sharing, number: u64| sharing.on_turn(ONE, OTHER, at(number * 50_000), interval);
        assert!((0..3).all(|number| !turn(&mut sharing, number)));
        assert!(turn(&mut sharing, 3), "each of them has waited for a member");
        let led = |ms: u64| sharing.leads(ONE, OTHER, None, Name::Present, at(150_000 + ms), interval).is_some();
        assert!(led(60_000) && !led(65_000), "so may the proxy");
    }

    #[test]
    fn a_file_of_the_proxy_stays_its_own_until_the_proxy_returns_it() {
        let mut sharing = sharing();
        assert_eq!((0..4).filter(|turn| sharing.on_turn(ONE, FILE, at(*turn), AWAKE)).count(), 1);
        sharing.on_lease(ONE, FILE);
        assert!(
            sharing.leads(ONE, FILE, None, Name::Present, at(10), AWAKE).is_some(),
            "one that was before it in the queue"
        );
        sharing.on_lease(PROXY, FILE);
        assert!(sharing.leads(ONE, FILE, Some(PROXY), Name::Present, at(100_000), AWAKE).is_some());
        assert!(sharing.leads(ONE, FILE, None, Name::Present, at(10), AWAKE).is_none());
        sharing.drop_session(PROXY);
        assert!(
            sharing.leads(ONE, FILE, Some(PROXY), Name::Present, at(10), AWAKE).is_none(),
            "its lease is recalled, or recovered"
        );
    }

    #[test]
    fn without_a_proxy_nothing_is_shared_and_the_first_one_stays() {
        let mut alone = Sharing::new(SharingRule::default());
        assert!((0..9).all(|turn| !alone.on_turn(ONE, FILE, at(turn), AWAKE)));
        let mut sharing = sharing();
        assert!(!sharing.on_proxy(proxy("proxy", ONE, "p:2", 4)));
        assert!(sharing.leads(ONE, FILE, Some(PROXY), Name::Present, at(0), AWAKE).is_some());
        assert!(sharing.on_proxy(proxy("proxy", ONE, "p:1", 4)));
        assert!(
            sharing.leads(PROXY, FILE, Some(ONE), Name::Present, at(0), AWAKE).is_some(),
            "at the same address is the next process"
        );
        assert!(!sharing.on_proxy(proxy("proxy", ONE, "p:1", 4)), "it is known");
    }

    const SECOND: SessionId = SessionId::new(10);

    fn wanted_by(sharing: &mut Sharing, inode: InodeId) -> String {
        for turn in 0..4 {
            sharing.on_turn(ONE, inode, at(turn), AWAKE);
        }
        sharing.leads(ONE, inode, None, Name::Present, at(10), AWAKE).unwrap().name.clone()
    }

    #[test]
    fn files_are_dealt_to_the_proxies_and_stay_where_they_are_held() {
        let mut sharing = sharing();
        assert!(sharing.on_proxy(proxy("second", SECOND, "p:2", 7)));
        let files: Vec<InodeId> = (0..64).map(InodeId::new).collect();
        let before: Vec<String> = files.iter().map(|file| wanted_by(&mut sharing, *file)).collect();
        let own = before.iter().filter(|name| *name == "second").count();
        assert!((16..48).contains(&own), "{own} of 64");
        // A proxy that has the file keeps it, though the hash names another.
        for file in &files {
            let held = sharing.leads(ONE, *file, Some(SECOND), Name::Present, at(10), AWAKE).unwrap();
            assert_eq!(held.name, "second");
        }
        assert_eq!(
            sharing.leads(PROXY, files[0], Some(SECOND), Name::Present, at(10), AWAKE),
            None,
            "a proxy competes"
        );
        assert!(!sharing.on_turn(PROXY, files[0], at(11), AWAKE), "and its wish is no turn");
        // With one gone its files go to the other, and the others stay.
        assert!(sharing.drop_session(SECOND) && !sharing.drop_session(ONE));
        assert!(
            files
                .iter()
                .all(|file| sharing.leads(ONE, *file, None, Name::Present, at(20), AWAKE).unwrap().name == "proxy")
        );
        assert!(sharing.on_proxy(proxy("second", ONE, "p:9", 8)), "another process of the name, elsewhere");
        let after: Vec<String> = files
            .iter()
            .map(|file| sharing.leads(CLIENT, *file, None, Name::Present, at(20), AWAKE).unwrap().name.clone())
            .collect();
        assert_eq!(before, after, "files go by the name");
    }

    #[test]
    fn a_proxy_that_is_about_to_end_keeps_its_files_and_gets_no_more() {
        let mut sharing = sharing();
        let second = proxy("second", SECOND, "p:2", 7);
        sharing.on_proxy(second.clone());
        sharing.on_proxy(Proxy { is_leaving: true, ..second.clone() });
        sharing.on_proxy(second.clone());
        assert!(
            (0..64).all(|file| wanted_by(&mut sharing, InodeId::new(file)) == "proxy"),
            "it said so, late words or not"
        );
        assert_eq!(sharing.leads(ONE, FILE, Some(SECOND), Name::Present, at(10), AWAKE).unwrap().name, "second");
        sharing.on_proxy(Proxy { is_leaving: true, ..proxy("proxy", PROXY, "p:1", 3) });
        assert!((0..9).all(|turn| !sharing.on_turn(ONE, FILE, at(turn), AWAKE)), "no proxy stays");
        assert_eq!(sharing.leads(ONE, InodeId::new(3), None, Name::Present, at(10), AWAKE), None);
        sharing.on_proxy(Proxy { boot: 8, session: CLIENT, ..second });
        assert_eq!(wanted_by(&mut sharing, FILE), "second", "the next process of that name");
    }

    /// A client.
    const CLIENT: SessionId = SessionId::new(77);
}
