//! Nodes that are slow beyond their peers: gray.
//!
//! A node that answers, and takes a hundred times as long as others, is worse than one that is gone: each set with a copy there is
//! as slow as it. Two kinds of evidence come in. Nodes tell with their heartbeats what small commits take on their disks. Clients
//! tell with their polls whose answers take them far longer than those of their peers in the same sets, and whose do not.
//!
//! Both are relative: where everything is slow, nothing is gray. A node has an excuse while it works for itself (copies, a
//! checkpoint, a scrub) and when it has just started. Who sleeps by plan, is silent or dead is not judged at all. Fewer than
//! half of the nodes are gray at a time.
//!
//! A gray node is so for ten seconds after the last evidence at least, twice as long each time that it comes back to it. A
//! plain state machine; moments come in as arguments.

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

/// Less is not slow, whatever others take.
pub const FLOOR: Duration = Duration::from_millis(50);
/// Slow is who takes so many times as long as its peers.
pub const RATIO: u32 = 5;
/// Commits are slow for so long before that counts. (Clients wait as long before they say anything.)
const SLOW_FOR: Duration = Duration::from_secs(3);
/// With fewer commits in the last seconds a disk's pace is not known.
const COMMITS_MIN: u32 = 3;
/// What a node or a client says is believed for so long.
const BELIEVED: Duration = Duration::from_secs(10);
/// After a start, and after work that excuses.
const EXCUSED_AT_START: Duration = Duration::from_secs(10);
const EXCUSED_AFTER_WORK: Duration = Duration::from_secs(5);
/// A gray node shows for so long that it is well; doubled each time that it is gray again soon.
const HOLD: Duration = Duration::from_secs(10);
const DOUBLINGS_MAX: u32 = 6;
/// Gray again within this is soon.
const SOON: Duration = Duration::from_secs(600);
/// Of what one client says, nodes that are looked at.
const TOLD_MAX: usize = 1024;

/// What something takes at a node, and at its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure {
    /// At the node.
    pub took: Duration,
    /// At its peers.
    pub peers: Duration,
}

impl Figure {
    /// Whether that is far beyond the peers.
    #[must_use]
    pub fn is_slow(self) -> bool {
        self.took >= FLOOR && self.took >= self.peers * RATIO
    }
}

/// Why a node is gray.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Since when, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// What its own commits take, if that is why.
    pub disk: Option<Figure>,
    /// What clients wait for its answers, and how many do, if that is why.
    pub answers: Option<(Figure, u32)>,
}

impl Verdict {
    /// The worse of the two.
    #[must_use]
    pub fn figure(&self) -> Figure {
        let worst =
            self.disk.into_iter().chain(self.answers.map(|(figure, _)| figure)).max_by_key(|figure| figure.took);
        worst.expect("a verdict has a reason")
    }

    /// As clients and people see it.
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

/// Whether a node can be judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is there, and no plan lets it sleep.
    There,
    /// It is silent, and not dead yet: what is known of it stays as it is.
    Silent,
    /// It is dead, or sleeps by plan: it is not gray, whatever it takes.
    Away,
}

/// What has changed with a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is gray from now on.
    Began(NodeId, Verdict),
    /// It is not any more, after so long.
    Ended(NodeId, Duration),
}

/// A mistake that is planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Habit {
    /// None.
    #[default]
    Good,
    /// No node ever becomes gray.
    NeverBegins,
    /// A gray node stays so.
    NeverEnds,
}

/// What is known of the pace of all nodes.
#[derive(Debug, Default)]
pub struct Gray {
    habit: Habit,
    nodes: BTreeMap<NodeId, Node>,
    reports: BTreeMap<SessionId, Report>,
    rate: Rate,
}

#[derive(Debug, Default)]
struct Node {
    /// What its small commits take, and when it said so.
    disk: Option<(Duration, Moment)>,
    excused_until: Moment,
    /// Since when its commits are slow.
    slow_since: Option<Moment>,
    /// Since when it shows that it is well.
    well_since: Option<Moment>,
    gray: Option<(Moment, Verdict)>,
    /// When it was gray last, and how often soon after another time.
    ended: Option<Moment>,
    again: u32,
    /// As of the last look.
    is_there: bool,
}

impl Node {
    fn is_judged(&self, now: Moment) -> bool {
        self.is_there && now >= self.excused_until
    }
}

/// What a client said last.
#[derive(Debug)]
struct Report {
    at: Moment,
    slow: BTreeMap<NodeId, Figure>,
    well: BTreeSet<NodeId>,
}

/// What all evidence of one node comes to.
#[derive(Clone, Copy, Default)]
struct Evidence {
    disk: Option<Figure>,
    answers: Option<(Figure, u32)>,
    is_disk_well: bool,
}

impl Gray {
    /// Nobody is.
    #[must_use]
    pub fn new(habit: Habit) -> Self {
        Self { habit, ..Self::default() }
    }

    /// A node tells what small commits take on its disks, and whether it works for itself.
    pub fn on_heartbeat(&mut self, node: NodeId, volumes: &[pb::Volume], working: bool, now: Moment) {
        let known = self.nodes.entry(node).or_default();
        // Of a very slow disk that nobody writes to only a timing now and then is told.
        let enough = if known.gray.is_some() { 1 } else { COMMITS_MIN };
        let told = volumes.iter().filter(|volume| volume.commits >= enough);
        let worst = told.map(|volume| Duration::from_micros(volume.commit_us)).max();
        known.disk = worst.map(|took| (took, now));
        if working {
            known.excused_until = known.excused_until.max(now.after(EXCUSED_AFTER_WORK));
        }
    }

    /// A node's process has started.
    pub fn on_start(&mut self, node: NodeId, now: Moment) {
        self.nodes.entry(node).or_default().excused_until = now.after(EXCUSED_AT_START);
    }

    /// A client tells whom it finds slow, and whom not. One that finds half of all slow is slow itself.
    pub fn on_poll(&mut self, session: SessionId, slow: &[pb::SlowNode], well: &[u64], now: Moment) {
        if slow.is_empty() && well.is_empty() {
            self.reports.remove(&session);
            return;
        }
        let figure = |told: &pb::SlowNode| {
            let (took, peers) = (Duration::from_micros(told.took_us), Duration::from_micros(told.peers_us));
            (NodeId::new(told.node), Figure { took, peers })
        };
        let well = well.iter().take(TOLD_MAX).map(|node| NodeId::new(*node)).collect();
        let mut report = Report { at: now, slow: slow.iter().take(TOLD_MAX).map(figure).collect(), well };
        if report.slow.len() * 2 > report.slow.len() + report.well.len() {
            report.slow.clear();
        }
        self.reports.insert(session, report);
    }

    /// Time passes: who is gray from now on, and who is not any more.
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
        let judged: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| node.is_judged(now)).map(|(node, _)| *node).collect();
        let mut slow = Vec::new();
        for node in judged {
            let evidence = self.evidence(node, now);
            let known = self.nodes.get_mut(&node).expect("it is judged");
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
        // The slowest first: there is not room for all.
        slow.sort_by_key(|(_, verdict)| std::cmp::Reverse(verdict.figure().took));
        let there = self.nodes.values().filter(|node| node.is_there).count();
        for (node, verdict) in slow {
            let gray = self.nodes.values().filter(|node| node.gray.is_some()).count();
            if (gray + 1) * 2 < there && self.habit != Habit::NeverBegins {
                self.nodes.get_mut(&node).expect("it is judged").turn_gray(verdict, now);
                changes.push(Change::Began(node, verdict));
            }
        }
        changes
    }

    fn evidence(&self, node: NodeId, now: Moment) -> Evidence {
        let told = |node: &Node| node.disk.filter(|(_, at)| now.since(*at) < BELIEVED).map(|(took, _)| took);
        let others =
            self.nodes.iter().filter(|(id, other)| **id != node && other.gray.is_none() && other.is_judged(now));
        let peers = median(others.filter_map(|(_, other)| told(other)).collect());
        let own = self.nodes.get(&node).and_then(told);
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
            // Where it was slow it has to be told that it is not.
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

    /// Why a node is gray, if it is.
    #[must_use]
    pub fn verdict(&self, node: NodeId) -> Option<Verdict> {
        Some(self.nodes.get(&node)?.gray?.1)
    }

    /// Nodes that a client finds slow and that count as gray for it alone: its own link may be what is slow.
    #[must_use]
    pub fn slow_for(&self, session: SessionId, now: Moment) -> Vec<NodeId> {
        let Some(report) = self.reports.get(&session).filter(|_| self.habit != Habit::NeverBegins) else {
            return Vec::new();
        };
        let is_judged = |node: &NodeId| self.nodes.get(node).is_some_and(|node| node.is_judged(now));
        report.slow.keys().copied().filter(is_judged).collect()
    }

    /// A holder wants another member in the place of one on this node, only because it is gray. Refused if it is not, or if there
    /// were too many lately: a node that turns gray does not start a storm of copies.
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
    /// The newest figures; those that it began with where there are none.
    fn refresh(&mut self, evidence: Evidence) {
        if evidence.disk.is_some() || evidence.answers.is_some() {
            (self.disk, self.answers) = (evidence.disk, evidence.answers);
        }
    }
}

/// The upper median of what at least two told.
fn median(mut told: Vec<Duration>) -> Option<Duration> {
    told.sort_unstable();
    (told.len() >= 2).then(|| told[told.len() / 2])
}
