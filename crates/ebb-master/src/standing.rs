//! Permission to serve: a master serves only while no node or client has seen a newer state of the cluster than its log
//! has.
//!
//! A data directory that was restored from a copy lacks all later changes. Nodes and clients remember them: they report
//! the highest position of a master that they have seen (docs/protocol.md, Going back in time). A master that starts
//! therefore serves nothing before its nodes have reported. A master that hears of a position that its log never had
//! stops serving. An operator then restores the newest directory, or accepts the loss.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::PositionVerdict;
use ebb_power::NodeState;
use ebb_runtime::{Moment, SeededBug};
use ebb_types::{Epoch, Error, NodeId, Result, bail, err};
use ebb_wire::{Method, pb};
use parking_lot::Mutex;
use pb::command::Command as Op;
use tokio::sync::Notify;

use crate::accept;
use crate::shared::Shared;

/// Interval of the check whether enough nodes have reported.
const PAUSE: Duration = Duration::from_millis(50);

/// State of the permission to serve.
#[derive(Debug)]
pub(crate) struct Standings {
    state: Mutex<State>,
    changed: Notify,
    /// Present while an operator's order to accept the loss waits for reports.
    accepting: Mutex<Option<Accepting>>,
}

#[derive(Clone, Debug)]
enum State {
    Hearing(Wait),
    Serving,
    Refused(Error),
}

/// Why a master waits, and the work that it accepts meanwhile.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wait {
    why: String,
    /// Whether a new power plan is accepted. The plan in force may keep off exactly the nodes that the master waits
    /// for, or count on a broken one. Then no node that could report would ever wake.
    takes_plans: bool,
}

/// Facts gathered before the loss is recorded as accepted.
#[derive(Clone, Debug, Default)]
struct Accepting {
    without: BTreeSet<NodeId>,
    lineages: BTreeSet<u64>,
    /// Highest epoch that a replica has or has promised.
    epoch: u64,
}

impl Standings {
    /// The state at the start. `accepting` is present if the loss is to be accepted; it lists the nodes that need not
    /// report first.
    pub(crate) fn new(accepting: Option<BTreeSet<NodeId>>) -> Self {
        let hearing = State::Hearing(Wait { why: "the master has just started".to_owned(), takes_plans: false });
        let accepting = accepting.map(|without| Accepting { without, ..Accepting::default() });
        Self { state: Mutex::new(hearing), changed: Notify::new(), accepting: Mutex::new(accepting) }
    }

    /// Fails with `WentBack` once a node or client has reported a position newer than the log.
    pub(crate) fn check(&self) -> Result<()> {
        match &*self.state.lock() {
            State::Refused(error) => Err(error.clone()),
            State::Hearing(_) | State::Serving => Ok(()),
        }
    }

    pub(crate) fn is_serving(&self) -> bool {
        matches!(*self.state.lock(), State::Serving)
    }

    fn takes_plans(&self) -> bool {
        match &*self.state.lock() {
            State::Hearing(wait) => wait.takes_plans,
            State::Serving | State::Refused(_) => false,
        }
    }

    pub(crate) fn is_accepting(&self) -> bool {
        self.accepting.lock().is_some()
    }

    /// Reason why the master does not serve; empty if it does.
    pub(crate) fn sentence(&self) -> String {
        match &*self.state.lock() {
            State::Hearing(wait) => wait.why.clone(),
            State::Serving => String::new(),
            State::Refused(error) => error.detail().to_owned(),
        }
    }

    fn wait(&self, wait: Wait) {
        if let State::Hearing(now) = &mut *self.state.lock() {
            *now = wait;
        }
    }

    fn serve(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Hearing(_)) {
            *state = State::Serving;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn refuse(&self, error: &Error) {
        let mut state = self.state.lock();
        if !matches!(*state, State::Refused(_)) {
            tracing::error!(%error, "the master serves nothing any more");
            *state = State::Refused(error.clone());
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Returns when the master serves. It never returns if the master refuses to.
    pub(crate) async fn until_serving(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_serving() {
                return;
            }
            changed.await;
        }
    }
}

/// Whether a call may precede service. These calls keep sessions and nodes in touch, and change nothing that a newer
/// history may have changed.
fn may_come_first(method: Method) -> bool {
    matches!(
        method,
        Method::RegisterNode
            | Method::ReplicaReport
            | Method::Heartbeat
            | Method::Poll
            | Method::Reclaim
            | Method::WatchPower
            | Method::DescribePower
            | Method::VouchSessions
            | Method::RegisterProxy
    )
}

impl Shared {
    /// Admits a call, or delays it until the master serves.
    ///
    /// Errors: `Unavailable` if the master does not serve within `deadline`, `WentBack` if it refuses to serve.
    pub(crate) async fn admit(&self, method: Method, deadline: Duration) -> Result<()> {
        if matches!(method, Method::ClusterStatus | Method::Counters | Method::Announce | Method::CallBack) {
            return Ok(());
        }
        self.standing.check()?;
        let is_first = may_come_first(method) || method == Method::PublishPlan && self.standing.takes_plans();
        if self.standing.is_serving() || is_first {
            return Ok(());
        }
        let waiting = async {
            self.standing.until_serving().await;
            Ok(())
        };
        if self.runtime.timeout(deadline, "waiting for the master to serve", waiting).await.is_err() {
            self.standing.check()?;
            bail!(Unavailable, "{}", self.standing.sentence());
        }
        Ok(())
    }

    /// Present position of this master's history.
    pub(crate) fn position(&self) -> pb::Position {
        let machine = self.group.machine();
        machine.position(self.group.applied_index())
    }

    /// Compares a position that `sender` has seen with this master's history. A position that the history never had ends
    /// the service.
    ///
    /// Errors: `WentBack`.
    pub(crate) fn hear(&self, sender: impl FnOnce() -> String, seen: Option<&pb::Position>) -> Result<()> {
        self.standing.check()?;
        let Some(seen) = seen else { return Ok(()) };
        let (verdict, own) = {
            let machine = self.group.machine();
            let applied = self.group.applied_index();
            (machine.judge_position(applied, seen), machine.position(applied))
        };
        // I-86: an unknown position means that this log lacks acknowledged changes.
        if matches!(verdict, PositionVerdict::Known | PositionVerdict::Superseded)
            || self.runtime.has_bug(SeededBug::OldMasterServes)
        {
            return Ok(());
        }
        if let Some(accepting) = &mut *self.standing.accepting.lock() {
            if seen.lineage != own.lineage {
                accepting.lineages.insert(seen.lineage);
            }
            return Ok(());
        }
        let error = self.went_back(&describe_lead(verdict, &sender(), seen, &own));
        self.standing.refuse(&error);
        self.state.soft().sessions.wake_all();
        Err(error)
    }

    /// Whether a node with this position may have ids that the log never gave. The node keeps them, because the loss
    /// was accepted.
    pub(crate) fn is_of_lost_history(&self, seen: Option<&pb::Position>) -> bool {
        let machine = self.group.machine();
        let verdict = seen.map(|seen| machine.judge_position(self.group.applied_index(), seen));
        verdict == Some(PositionVerdict::Superseded)
            || verdict.is_some_and(|verdict| verdict != PositionVerdict::Known) && self.standing.is_accepting()
    }

    /// Compares an epoch of a replica with the highest epoch that this log gave to its file.
    ///
    /// Returns whether the file must be recovered above `seen`, because the loss was accepted. Otherwise a higher epoch
    /// ends the service.
    pub(crate) fn hear_epoch(&self, sender: impl FnOnce() -> String, seen: Epoch, given: Epoch) -> bool {
        if seen <= given || self.group.machine().has_accepted_loss() || self.runtime.has_bug(SeededBug::OldMasterServes)
        {
            return seen > given;
        }
        if let Some(accepting) = &mut *self.standing.accepting.lock() {
            accepting.epoch = accepting.epoch.max(seen.raw());
            return true;
        }
        let found = format!("{} has epoch {seen}, and this log has given {given} at most", sender());
        let error = self.went_back(&found);
        self.standing.refuse(&error);
        false
    }

    fn went_back(&self, found: &str) -> Error {
        let dir = self.options.data_dir.display();
        err!(
            WentBack,
            "{dir} went back in time: {found}. A saved copy of the directory was put in place, or another master goes on from a \
             copy. To serve would lose in silence what was done since, and give the same numbers twice, so this master serves \
             nothing. Put the newest directory in place and start it again; if there is none, end the cluster, then `ebb \
             master accept-loss --dir DIR`, and start it"
        )
    }
}

fn describe_lead(verdict: PositionVerdict, sender: &str, seen: &pb::Position, own: &pb::Position) -> String {
    let place = |at: &pb::Position| format!("entry {} of run {}", at.index, at.run);
    match verdict {
        PositionVerdict::Parted => {
            format!("{sender} has seen {} of another master, which went on from the same log", place(seen))
        }
        PositionVerdict::Stranger => format!(
            "{sender} has seen {} of lineage {:016x}, and this log is of lineage {:016x} and knows nothing of that one",
            place(seen),
            seen.lineage,
            own.lineage
        ),
        _ => format!("{sender} has seen {}, and this log has come to {} only", place(seen), place(own)),
    }
}

/// State of the wait for the nodes.
#[derive(Clone, Copy, Debug)]
struct Hearing {
    /// Nodes that are on by the power plan.
    expected: usize,
    /// Nodes that have reported their position.
    reported: usize,
    /// Time since the start.
    waited: Duration,
    /// Time after which the nodes that have reported are enough.
    patience: Duration,
}

/// Whether enough nodes have reported.
///
/// A single node that took part in the last run suffices to detect a newer one. The others get some heartbeats of time.
/// If the plan has no node on, there is no node to ask, and the time alone decides.
fn is_enough(hearing: Hearing) -> bool {
    let is_late = hearing.waited >= hearing.patience;
    match hearing {
        Hearing { expected: 0, reported: 0, .. } => is_late,
        Hearing { expected, reported, .. } => reported >= expected.max(1) || (reported > 0 && is_late),
    }
}

/// Whether all nodes that are on by the plan have been silent beyond their time. Then only a plan that wakes others
/// helps.
///
/// To accept a plan is safe even if this log is an old copy. A node that the plan wakes first reports its position, and
/// a power client that watches this master has followed its plans in any case.
fn is_unheard(hearing: Hearing) -> bool {
    hearing.reported == 0 && hearing.waited >= hearing.patience
}

/// Waits for the nodes, and then lets the master serve.
pub(crate) async fn run(shared: Arc<Shared>) {
    let begun = shared.runtime.now();
    while !shared.is_stopped() {
        let ready = match shared.standing.is_accepting() {
            true => gathered(&shared),
            false => heard(&shared, begun),
        };
        match ready {
            Ok(()) if shared.standing.is_accepting() => {
                if let Err(error) = accept_loss(&shared).await {
                    tracing::error!(%error, "the loss is not accepted yet");
                    shared.runtime.sleep(shared.options.heartbeat).await;
                }
            }
            Ok(()) => return shared.standing.serve(),
            Err(wait) => shared.standing.wait(wait),
        }
        shared.runtime.sleep(PAUSE).await;
    }
}

fn heard(shared: &Shared, begun: Moment) -> std::result::Result<(), Wait> {
    let nodes = recorded(shared);
    if nodes.is_empty() || shared.options.hear_time.is_zero() {
        return Ok(());
    }
    let (expected, reported) = shared.with_view(|view| {
        let soft = view.soft;
        let is_awake = |node: &NodeId| soft.plans.state(*node, view.now_ms) == NodeState::Awake;
        let expected = view.nodes().filter(is_awake).count();
        (expected, view.nodes().filter(|node| soft.registry.is_live(*node)).count())
    });
    let waited = shared.runtime.now().since(begun);
    let hearing = Hearing { expected, reported, waited, patience: shared.options.hear_time };
    if is_enough(hearing) {
        tracing::info!(reported, expected, ?waited, "nodes have reported the last position of a master that they saw");
        return Ok(());
    }
    let why = format!(
        "the master has started and waits for its block servers, to hear whether they have seen a newer one: {reported} of {expected} \
         have said; start the others"
    );
    Err(Wait { why, takes_plans: is_unheard(hearing) })
}

fn recorded(shared: &Shared) -> Vec<pb::Node> {
    shared.group.machine().nodes().filter_map(|record| record.node.clone()).collect()
}

/// Whether all nodes have reported that must do so before a loss is accepted.
fn gathered(shared: &Shared) -> std::result::Result<(), Wait> {
    let without =
        shared.standing.accepting.lock().as_ref().map(|accepting| accepting.without.clone()).unwrap_or_default();
    let nodes = recorded(shared);
    let soft = shared.soft();
    let missing: Vec<String> = nodes
        .iter()
        .filter(|node| !without.contains(&NodeId::new(node.id)) && !soft.registry.has_reported(node))
        .map(|node| format!("n{} ({})", node.id, node.host))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "before the loss is accepted all nodes have to report, and {} have not: start them, or give them up with `ebb master \
         accept-loss --without NODE`",
        missing.join(", ")
    );
    // Nodes that have not reported may sleep by the plan in force.
    Err(Wait { why, takes_plans: true })
}

/// Records the loss as accepted, with a new random lineage and with floors above every number that was reported.
async fn accept_loss(shared: &Shared) -> Result<()> {
    let Some(gathered) = shared.standing.accepting.lock().clone() else { return Ok(()) };
    let lineage = (shared.runtime.random_u64() >> 1) | 1;
    let superseded = gathered.lineages.iter().copied().collect();
    shared.group.propose(Op::RaiseFloors(pb::RaiseFloors { lineage, superseded, epoch: gathered.epoch })).await?;
    // Ordering: the operator's order is cleared only after the log has it. A crash between the two would lose it.
    accept::clear(&shared.runtime, &shared.options.data_dir).await?;
    *shared.standing.accepting.lock() = None;
    tracing::warn!(
        lineage,
        epoch = gathered.epoch,
        "a loss was accepted: no replica is deleted until `ebb fsck` has come to its end"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_taken_when_no_node_reports_in_time() {
        let takes = |expected, reported, waited| {
            let span = Duration::from_secs;
            is_unheard(Hearing { expected, reported, waited: span(waited), patience: span(3) })
        };
        assert!(!takes(1, 0, 2), "it may still report");
        assert!(takes(1, 0, 3), "others have to be woken");
        assert!(!takes(3, 1, 3), "the master is about to serve");
    }

    #[test]
    fn a_master_waits_for_nodes_that_are_on_and_not_for_ever() {
        let hearing = |expected, reported, waited| {
            let span = Duration::from_secs;
            is_enough(Hearing { expected, reported, waited: span(waited), patience: span(3) })
        };
        assert!(hearing(3, 3, 0), "all have reported");
        assert!(!hearing(3, 1, 2), "others may come");
        assert!(hearing(3, 1, 3), "one knows the last run");
        assert!(!hearing(3, 0, 1000), "no node has reported");
        assert!(hearing(0, 1, 0) && hearing(0, 0, 3) && !hearing(0, 0, 2), "all sleep by plan");
    }
}
