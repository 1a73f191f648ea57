//! Carries out the decisions on slow members: times rounds, asks for the verdicts, reports to the master, and has
//! writers go on without a gray member where another node is free.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::err;
use ebb_wire::pb;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Evidence, Figure, SLOT};
use crate::shared::Shared;
use crate::write::channel::{Channel, Rhythm};

/// A look that is late by more was kept from the processor.
const STARVED: Duration = Duration::from_millis(250);
/// Where nothing is timed, looks are so far apart.
const IDLE: Duration = Duration::from_secs(5);
/// Sessions of up to this length poll often enough. With longer ones, verdicts are reported at this interval.
const POLLED_OFTEN: Duration = Duration::from_secs(12);
const REPORTED_EVERY: Duration = Duration::from_secs(3);
/// A small question.
const ASK_DEADLINE: Duration = Duration::from_secs(1);
/// Members that may be replaced in a second because they are gray. A copy of this many MiB counts as one more.
const REPLACED_PER_SECOND: f64 = 4.0;
const WEIGHT_MIB: u64 = 16;

/// This client's timings of members, and its allowance of replacements.
#[derive(Debug, Default)]
pub(crate) struct Gray {
    evidence: Mutex<Evidence>,
    timed: Notify,
    /// Nodes that were said to be gray.
    reported: Mutex<BTreeSet<u64>>,
    /// Allowance of replacements, as of a moment.
    left: Mutex<(f64, Moment)>,
}

impl Gray {
    /// Gray nodes for the next poll.
    pub fn to_message(&self) -> (Vec<pb::SlowNode>, Vec<u64>) {
        let evidence = self.evidence.lock();
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let slow = evidence.slow().map(|(node, Figure { took, peers })| pb::SlowNode {
            node,
            took_us: micros(took),
            peers_us: micros(peers),
        });
        (slow.collect(), evidence.well().collect())
    }

    /// Takes a replacement of `bytes` from the allowance.
    fn spend(&self, bytes: u64, now: Moment) -> bool {
        let mut left = self.left.lock();
        let gained = now.since(left.1).as_secs_f64() * REPLACED_PER_SECOND;
        *left = ((left.0 + gained).min(REPLACED_PER_SECOND), now);
        let may = left.0 >= 1.0;
        if may {
            // Of a long one the rest is owed.
            left.0 -= 1.0 + (bytes >> 20) as f64 / WEIGHT_MIB as f64;
        }
        may
    }
}

/// The answers of a set's members to the same write or sync. It counts when the last of them is there.
pub(crate) struct Round {
    shared: Arc<Shared>,
    answers: Mutex<Vec<(u64, Duration)>>,
}

impl Round {
    /// No member has answered yet.
    pub fn new(shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared: shared.clone(), answers: Mutex::default() })
    }

    /// A node has answered a message that was sent at `sent`.
    pub fn add(&self, node: u64, sent: Moment) {
        let took = self.shared.runtime.now().since(sent);
        self.answers.lock().push((node, took));
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        let gray = &self.shared.gray;
        gray.evidence.lock().on_round(&self.answers.lock(), self.shared.runtime.now());
        gray.timed.notify_one();
    }
}

/// Evaluates the timings, until the client disconnects.
pub(crate) async fn run(shared: Arc<Shared>) {
    let (gray, mut last_report) = (&shared.gray, shared.runtime.now());
    while !shared.closing.load(Ordering::Relaxed) {
        if gray.evidence.lock().is_empty() {
            tokio::select! {
                biased;
                () = gray.timed.notified() => {}
                () = shared.runtime.sleep(IDLE) => continue,
            }
        }
        let begun = shared.runtime.now();
        shared.runtime.sleep(SLOT).await;
        let now = shared.runtime.now();
        let (is_news, slow) = {
            let mut evidence = gray.evidence.lock();
            if now.since(begun) > SLOT + STARVED {
                evidence.on_starved(begun);
            }
            (evidence.find_slow(now), evidence.slow().collect::<Vec<_>>())
        };
        if is_news {
            tracing::debug!(?slow, "members that answer late");
        }
        // Where sessions are long, polls are too rare for the master's view to be current.
        let is_seldom = shared.session.ttl() > POLLED_OFTEN && now.since(last_report) >= REPORTED_EVERY;
        if is_news || is_seldom {
            last_report = now;
            shared.session.poke.notify_one();
        }
        for (node, _) in slow {
            let own = shared.clone();
            shared.runtime.spawn("ask a slow node", async move { ask(&own, node).await });
        }
    }
}

/// Asks a slow node something small, and one that is not slow at the same time.
async fn ask(shared: &Arc<Shared>, node: u64) {
    let other = shared.nodes.a_well_one(node);
    let time = |node: Option<u64>| async move {
        let address = shared.nodes.address(node?)?;
        let sent = shared.runtime.now();
        let asked = shared.connector.channel(&address).call(&pb::Counters {}, ASK_DEADLINE).await;
        asked.ok().map(|_| shared.runtime.now().since(sent))
    };
    let (took, other) = tokio::join!(biased; time(Some(node)), time(other));
    shared.gray.evidence.lock().on_asked(node, took, other, shared.runtime.now());
}

impl Shared {
    /// The master has answered a poll: these of the nodes that this client finds slow count as gray for it.
    pub fn on_slow_nodes(&self, slow: &[u64]) {
        let links = {
            let evidence = self.gray.evidence.lock();
            evidence.slow().filter(|(node, _)| slow.contains(node)).map(|(node, figure)| (node, figure.took)).collect()
        };
        let gray = self.nodes.set_slow_links(links);
        let mut reported = self.gray.reported.lock();
        for (node, took) in gray.iter().filter(|(node, _)| !reported.contains(node)) {
            tracing::warn!(node, ?took, "a node is gray: it is read last, and replaced where files are written");
        }
        for node in reported.iter().filter(|node| !gray.contains_key(node)) {
            tracing::info!(node, "a node is not gray any more");
        }
        *reported = gray.into_keys().collect();
    }

    /// Has a set that is being written do without its gray member, if it has one and another node is there: one at a time,
    /// and not many in a second. The member keeps its place if the master has no volume to offer.
    pub fn displace_gray(&self, channel: &mut Channel, rhythm: Rhythm) {
        let is_short = channel.is_ailing() || channel.shrunk;
        if rhythm == Rhythm::InTurns || channel.peers.len() < 2 || !channel.is_unsettled() || is_short {
            return;
        }
        let members = || channel.peers.iter().map(|peer| peer.member.node);
        let Some(node) = self.nodes.gray_of(members()) else { return };
        let now = self.runtime.now();
        let place = members().position(|member| member == node);
        if let Some(place) = place
            && channel.may_displace(now)
            && self.nodes.has_well_one_beside(members())
            && self.gray.spend(channel.length, now)
        {
            channel.displace(place, err!(Overloaded, "node n{node} is gray: slow beyond its peers"), now);
        }
    }
}
