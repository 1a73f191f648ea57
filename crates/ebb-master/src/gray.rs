//! Gray nodes: nodes that answer, but are slow beyond their peers.
//!
//! A node that answers a hundred times slower than others does more harm than a node that is gone, because every set
//! with a copy there becomes as slow. There are two kinds of evidence. Nodes report with their heartbeats the time of
//! small commits on their disks. Clients report with their polls which nodes are far slower than the other members of
//! the same sets, and which are not.
//!
//! Both are relative: where everything is slow, nothing is gray. A node is excused while it works for itself (copies, a
//! checkpoint, a scrub) and for a while after its start. A node that sleeps by plan, is silent or is dead is not
//! assessed. Fewer than half of the nodes are gray at a time.
//!
//! A node stays gray until it has been well for ten seconds. The time doubles each time that the node becomes gray
//! again soon. The module is a plain state machine; moments come in as arguments.

mod rate;
pub(crate) mod run;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{NodeId, Result, SessionId, bail};
use ebb_wire::pb;

use self::rate::Rate;

/// A shorter time is never slow, whatever the peers take.
pub const FLOOR: Duration = Duration::from_millis(50);
/// A node is slow if it takes this many times as long as its peers.
pub const RATIO: u32 = 5;
/// Time for which commits must be slow before that counts. (Clients wait as long before they report a slow node.)
const SLOW_FOR: Duration = Duration::from_secs(3);
/// Minimum number of commits of which a disk's time is known.
const COMMITS_MIN: u32 = 3;
/// Time for which a report of a node or client counts.
const BELIEVED: Duration = Duration::from_secs(10);
/// Time for which a node is excused after its start.
const EXCUSED_AT_START: Duration = Duration::from_secs(10);
/// Time for which a node is excused after its last work for itself.
const EXCUSED_AFTER_WORK: Duration = Duration::from_secs(5);
/// Time for which a gray node must be well. It doubles each time that the node becomes gray again soon.
const HOLD: Duration = Duration::from_secs(10);
const DOUBLINGS_MAX: u32 = 6;
/// A node that becomes gray within this time of the last episode does so "soon".
const SOON: Duration = Duration::from_secs(600);
/// Maximum number of nodes taken from one client's report.
const REPORTED_MAX: usize = 1024;

/// Time of an operation at a node and at its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure {
    /// At the node.
    pub took: Duration,
    /// At its peers.
    pub peers: Duration,
}

impl Figure {
    /// Whether the node is far slower than its peers.
    #[must_use]
    pub fn is_slow(self) -> bool {
        self.took >= FLOOR && self.took >= self.peers * RATIO
    }
}

/// Why a node is gray.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Start of the episode, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Time of its own commits, if its disk is a reason.
    pub disk: Option<Figure>,
    /// The worst time that clients wait for its answers, and the number of such clients, if answers are a reason.
    pub answers: Option<(Figure, u32)>,
}

impl Verdict {
    /// The worse of the two figures.
    #[must_use]
    pub fn figure(&self) -> Figure {
        let worst =
            self.disk.into_iter().chain(self.answers.map(|(figure, _)| figure)).max_by_key(|figure| figure.took);
        worst.expect("a verdict has a reason")
    }

    /// The verdict as a message for clients and operators.
    #[must_use]
    pub fn to_message(&self) -> pb::Gray {
        let cause = match (self.disk, self.answers) {
            (Some(_), Some(_)) => pb::GrayCause::GrayBoth,
            (Some(_), None) => pb::GrayCause::GrayDisk,
            _ => pb::GrayCause::GrayAnswers,
        };
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let Figure { took, peers } = self.figure();
        pb::Gray {
            cause: cause.into(),
            since_ms: self.since_ms,
            took_us: micros(took),
            peers_us: micros(peers),
            clients: self.answers.map_or(0, |(_, clients)| clients),
        }
    }
}

/// Whether a node can be assessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is heard, and no plan lets it sleep.
    There,
    /// It is silent but not dead. Its verdict stays as it is.
    Silent,
    /// It is dead, or sleeps by plan. It is not gray, whatever its times.
    Away,
}

/// A change of a node's verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The node is gray from now on.
    Began(NodeId, Verdict),
    /// The node is no longer gray; the episode lasted this long.
    Ended(NodeId, Duration),
}

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Habit {
    /// None.
    #[default]
    Good,
    /// No node ever becomes gray.
    NeverBegins,
    /// A gray node stays gray.
    NeverEnds,
}

/// The evidence and verdicts of all nodes.
#[derive(Debug, Default)]
pub struct Gray {
    habit: Habit,
    nodes: BTreeMap<NodeId, Node>,
    reports: BTreeMap<SessionId, Report>,
    rate: Rate,
}

#[derive(Debug, Default)]
struct Node {
    /// Time of its small commits, and the moment of the report.
    disk: Option<(Duration, Moment)>,
    excused_until: Moment,
    /// Since when its commits have been slow.
    slow_since: Option<Moment>,
    /// Since when it has been well, while it is gray.
    well_since: Option<Moment>,
    gray: Option<(Moment, Verdict)>,
    /// End of the last episode, and number of episodes in a row that followed another one soon.
    ended: Option<Moment>,
    again: u32,
    /// As of the last tick.
    is_there: bool,
}

impl Node {
    fn is_assessed(&self, now: Moment) -> bool {
        self.is_there && now >= self.excused_until
    }
}

/// The last report of a client.
#[derive(Debug)]
struct Report {
    at: Moment,
    slow: BTreeMap<NodeId, Figure>,
    well: BTreeSet<NodeId>,
}

/// All evidence of one node.
#[derive(Clone, Copy, Default)]
struct Evidence {
    disk: Option<Figure>,
    answers: Option<(Figure, u32)>,
    is_disk_well: bool,
}

impl Gray {
    /// No node is gray.
    #[must_use]
    pub fn new(habit: Habit) -> Self {
        Self { habit, ..Self::default() }
    }

    /// Forgets a node that was removed from the cluster.
    pub fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// Records the commit times that a node reports of its disks, and whether it works for itself.
    pub fn on_heartbeat(&mut self, node: NodeId, volumes: &[pb::Volume], working: bool, now: Moment) {
        let known = self.nodes.entry(node).or_default();
        // Writers avoid a gray node, so only an occasional timing commit shows whether a very slow disk has recovered.
        let enough = if known.gray.is_some() { 1 } else { COMMITS_MIN };
        let timed = volumes.iter().filter(|volume| volume.commits >= enough);
        let worst = timed.map(|volume| Duration::from_micros(volume.commit_us)).max();
        known.disk = worst.map(|took| (took, now));
        if working {
            known.excused_until = known.excused_until.max(now.after(EXCUSED_AFTER_WORK));
        }
    }

    /// Excuses a node whose process has just started.
    pub fn on_start(&mut self, node: NodeId, now: Moment) {
        self.nodes.entry(node).or_default().excused_until = now.after(EXCUSED_AT_START);
    }

    /// Records which nodes a client finds slow, and which well. A client that finds more than half of them slow is
    /// probably slow itself, and its complaints are dropped.
    pub fn on_poll(&mut self, session: SessionId, slow: &[pb::SlowNode], well: &[u64], now: Moment) {
        if slow.is_empty() && well.is_empty() {
            self.reports.remove(&session);
            return;
        }
        let figure = |slow: &pb::SlowNode| {
            let (took, peers) = (Duration::from_micros(slow.took_us), Duration::from_micros(slow.peers_us));
            (NodeId::new(slow.node), Figure { took, peers })
        };
        let well = well.iter().take(REPORTED_MAX).map(|node| NodeId::new(*node)).collect();
        let mut report = Report { at: now, slow: slow.iter().take(REPORTED_MAX).map(figure).collect(), well };
        if report.slow.len() * 2 > report.slow.len() + report.well.len() {
            report.slow.clear();
        }
        self.reports.insert(session, report);
    }

    /// Advances the time, and returns the nodes whose verdict changed. `now_ms` is in milliseconds since the Unix
    /// epoch.
    pub fn on_tick(&mut self, standings: &BTreeMap<NodeId, Standing>, now: Moment, now_ms: u64) -> Vec<Change> {
        self.reports.retain(|_, report| now.since(report.at) < BELIEVED);
        self.nodes.retain(|node, _| standings.contains_key(node));
        let mut changes = Vec::new();
        for (node, standing) in standings {
            let known = self.nodes.entry(*node).or_default();
            known.is_there = *standing == Standing::There;
            if *standing == Standing::Away {
                known.slow_since = None;
                changes.extend(known.turn_well(*node, now));
            }
        }
        let assessed: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| node.is_assessed(now)).map(|(node, _)| *node).collect();
        let mut slow = Vec::new();
        for node in assessed {
            let evidence = self.evidence(node, now);
            let known = self.nodes.get_mut(&node).expect("the list came from this map");
            match &mut known.gray {
                Some((_, verdict)) => {
                    verdict.refresh(evidence);
                    let is_well = evidence.answers.is_none() && evidence.is_disk_well;
                    known.well_since = is_well.then(|| known.well_since.unwrap_or(now));
                    let hold = HOLD * (1 << known.again.min(DOUBLINGS_MAX));
                    let is_over = known.well_since.is_some_and(|since| now.since(since) >= hold);
                    if is_over && self.habit != Habit::NeverEnds {
                        changes.extend(known.turn_well(node, now));
                    }
                }
                None => {
                    known.slow_since = evidence.disk.map(|_| known.slow_since.unwrap_or(now));
                    let is_long = known.slow_since.is_some_and(|since| now.since(since) >= SLOW_FOR);
                    let disk = evidence.disk.filter(|_| is_long || evidence.answers.is_some());
                    if disk.is_some() || evidence.answers.is_some() {
                        slow.push((node, Verdict { since_ms: now_ms, disk, answers: evidence.answers }));
                    }
                }
            }
        }
        // The limit may not admit all of them, so the slowest come first.
        slow.sort_by_key(|(_, verdict)| std::cmp::Reverse(verdict.figure().took));
        let there = self.nodes.values().filter(|node| node.is_there).count();
        for (node, verdict) in slow {
            let gray = self.nodes.values().filter(|node| node.gray.is_some()).count();
            // I-108: fewer than half of the nodes are gray, or writers would have too few nodes left.
            if (gray + 1) * 2 < there && self.habit != Habit::NeverBegins {
                self.nodes.get_mut(&node).expect("the list came from this map").turn_gray(verdict, now);
                changes.push(Change::Began(node, verdict));
            }
        }
        changes
    }

    fn evidence(&self, node: NodeId, now: Moment) -> Evidence {
        let reported = |node: &Node| node.disk.filter(|(_, at)| now.since(*at) < BELIEVED).map(|(took, _)| took);
        let others =
            self.nodes.iter().filter(|(id, other)| **id != node && other.gray.is_none() && other.is_assessed(now));
        let peers = median(others.filter_map(|(_, other)| reported(other)).collect());
        let own = self.nodes.get(&node).and_then(reported);
        let had_slow_disk = self.verdict(node).is_some_and(|verdict| verdict.disk.is_some());
        let is_quick = |took| took < FLOOR / 2 || peers.is_some_and(|peers| took < peers * 2);
        let figure = own.zip(peers).map(|(took, peers)| Figure { took, peers });
        let found: Vec<Figure> = self.reports.values().filter_map(|report| report.slow.get(&node).copied()).collect();
        let well = self.reports.values().filter(|report| report.well.contains(&node)).count();
        let clients = u32::try_from(found.len()).unwrap_or(u32::MAX);
        let worst = found.iter().copied().max_by_key(|figure| figure.took);
        Evidence {
            disk: figure.filter(|figure| figure.is_slow()),
            answers: worst.filter(|_| found.len() > well).map(|figure| (figure, clients)),
            // No news is good news only for a disk that was never slow. A slow disk must be reported well.
            is_disk_well: own.map_or(!had_slow_disk, is_quick),
        }
    }

    /// Gray nodes, the slowest first.
    #[must_use]
    pub fn slowest_first(&self) -> Vec<NodeId> {
        let gray = self.nodes.iter().filter_map(|(node, known)| Some((known.gray?.1.figure().took, *node)));
        let mut gray: Vec<_> = gray.collect();
        gray.sort_by(|one, other| other.cmp(one));
        gray.into_iter().map(|(_, node)| node).collect()
    }

    /// Verdict on a gray node.
    #[must_use]
    pub fn verdict(&self, node: NodeId) -> Option<Verdict> {
        Some(self.nodes.get(&node)?.gray?.1)
    }

    /// Nodes that count as gray for one client only, because it finds them slow. Its own link may be the cause.
    #[must_use]
    pub fn slow_for(&self, session: SessionId, now: Moment) -> Vec<NodeId> {
        let Some(report) = self.reports.get(&session).filter(|_| self.habit != Habit::NeverBegins) else {
            return Vec::new();
        };
        let is_assessed = |node: &NodeId| self.nodes.get(node).is_some_and(|node| node.is_assessed(now));
        report.slow.keys().copied().filter(is_assessed).collect()
    }

    /// Permits a holder to replace a member only because its node is gray.
    ///
    /// Errors: `Unavailable` if the node is not gray, or if there were too many replacements lately. The limit keeps a
    /// node that turns gray from starting a storm of copies.
    pub fn on_replacement(&mut self, session: SessionId, node: NodeId, now: Moment) -> Result<()> {
        if self.verdict(node).is_none() && !self.slow_for(session, now).contains(&node) {
            bail!(Unavailable, "n{node} is not gray, so its copy stays")
        }
        if !self.rate.spend_one(now) {
            bail!(
                Unavailable,
                "copies on gray nodes are being replaced as fast as they may: that on n{node} stays for now"
            )
        }
        Ok(())
    }
}

impl Node {
    fn turn_gray(&mut self, verdict: Verdict, now: Moment) {
        let is_soon = self.ended.is_some_and(|ended| now.since(ended) < SOON);
        self.again = if is_soon { self.again + 1 } else { 0 };
        (self.gray, self.well_since) = (Some((now, verdict)), None);
    }

    fn turn_well(&mut self, node: NodeId, now: Moment) -> Option<Change> {
        let (begun, _) = self.gray.take()?;
        (self.ended, self.well_since, self.slow_since) = (Some(now), None, None);
        Some(Change::Ended(node, now.since(begun)))
    }
}

impl Verdict {
    /// Takes the newest figures. Without new evidence the old ones stay.
    fn refresh(&mut self, evidence: Evidence) {
        if evidence.disk.is_some() || evidence.answers.is_some() {
            (self.disk, self.answers) = (evidence.disk, evidence.answers);
        }
    }
}

/// The upper median of at least two times.
fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    (times.len() >= 2).then(|| times[times.len() / 2])
}
