//! Whether this master may serve: what others have seen of the cluster's master is not newer than its own log.
//!
//! A data directory that was put back from a copy knows nothing of what came after. Nodes and clients do: they say which
//! position they have seen (docs/protocol.md, Going back in time). So a master that starts serves nothing before it has
//! heard from its nodes, and one that hears of a position that it has never been at serves nothing any more, until an
//! operator has put the newest directory in place, or accepted the loss.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Told;
use ebb_power::NodeState;
use ebb_runtime::{Moment, Plant};
use ebb_types::{Error, NodeId, Result, bail, err};
use ebb_wire::{Method, pb};
use parking_lot::Mutex;
use pb::command::Command as Op;
use tokio::sync::Notify;

use crate::accept;
use crate::shared::Shared;

/// How often it is looked whether enough nodes have spoken.
const PAUSE: Duration = Duration::from_millis(50);

/// What a master may do.
#[derive(Debug)]
pub(crate) struct Standings {
    state: Mutex<State>,
    changed: Notify,
    /// An operator accepts that what came after this log is lost, but for these nodes all have to report first.
    accepting: Mutex<Option<Accepting>>,
}

#[derive(Clone, Debug)]
enum State {
    Hearing(Wait),
    Serving,
    Refused(Error),
}

/// Why a master waits, and what it takes meanwhile.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wait {
    why: String,
    /// Power plans. The nodes that it waits for may be those that the plan in force keeps off, or the plan may count on one
    /// that is broken: then nobody would ever be woken that could say something.
    takes_plans: bool,
}

/// What is gathered before a loss is recorded as accepted.
#[derive(Clone, Debug, Default)]
struct Accepting {
    without: BTreeSet<NodeId>,
    lineages: BTreeSet<u64>,
    /// The highest that a replica has or has promised.
    epoch: u64,
}

impl Standings {
    /// Nobody heard of yet. `accepting`: nodes that need not report before the loss is accepted, if it is to be.
    pub(crate) fn new(accepting: Option<BTreeSet<NodeId>>) -> Self {
        let hearing = State::Hearing(Wait { why: "the master has just started".to_owned(), takes_plans: false });
        let accepting = accepting.map(|without| Accepting { without, ..Accepting::default() });
        Self { state: Mutex::new(hearing), changed: Notify::new(), accepting: Mutex::new(accepting) }
    }

    /// Fails with the reason once the master has met what is newer than its log.
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

    /// Why the master does not serve; nothing if it does.
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

    /// Returns when the master serves. Never, if it refuses to.
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

/// What keeps sessions and nodes in touch, and changes nothing of what a newer history may have.
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
    /// Lets a call in, or has it wait until the master serves. `Unavailable` if it does not in time, `WentBack` if it never
    /// will.
    pub(crate) async fn admit(&self, method: Method, deadline: Duration) -> Result<()> {
        if matches!(method, Method::ClusterStatus | Method::Counters) {
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

    /// Where this master's history stands.
    pub(crate) fn position(&self) -> pb::Position {
        let machine = self.group.machine();
        machine.position(self.group.applied_index())
    }

    /// Somebody says which position of a master it has seen. One that this master has never been at ends its service.
    pub(crate) fn hear(&self, who: impl FnOnce() -> String, told: Option<&pb::Position>) -> Result<()> {
        self.standing.check()?;
        let Some(told) = told else { return Ok(()) };
        let (judged, own) = {
            let machine = self.group.machine();
            let applied = self.group.applied_index();
            (machine.judge_position(applied, told), machine.position(applied))
        };
        if matches!(judged, Told::Known | Told::Superseded) || self.runtime.has_plant(Plant::OldMasterServes) {
            return Ok(());
        }
        if let Some(accepting) = &mut *self.standing.accepting.lock() {
            if told.lineage != own.lineage {
                accepting.lineages.insert(told.lineage);
            }
            return Ok(());
        }
        let error = self.went_back(&found(judged, &who(), told, &own));
        self.standing.refuse(&error);
        self.state.soft().sessions.wake_all();
        Err(error)
    }

    /// Whether a node that tells this may have ids that this log never gave: it keeps them, for the loss was accepted.
    pub(crate) fn is_of_lost_history(&self, told: Option<&pb::Position>) -> bool {
        let machine = self.group.machine();
        let judged = told.map(|told| machine.judge_position(self.group.applied_index(), told));
        judged == Some(Told::Superseded)
            || judged.is_some_and(|judged| judged != Told::Known) && self.standing.is_accepting()
    }

    /// A replica has, or has promised, an epoch that this master never gave to its file. True: it is to be recovered, for
    /// the loss was accepted.
    pub(crate) fn hear_epoch(&self, who: impl FnOnce() -> String, told: u64, given: u64) -> bool {
        if told <= given || self.group.machine().has_accepted_loss() || self.runtime.has_plant(Plant::OldMasterServes) {
            return told > given;
        }
        if let Some(accepting) = &mut *self.standing.accepting.lock() {
            accepting.epoch = accepting.epoch.max(told);
            return true;
        }
        let found = format!("{} has epoch e{told}, and this log has given e{given} at most", who());
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

fn found(judged: Told, who: &str, told: &pb::Position, own: &pb::Position) -> String {
    let place = |at: &pb::Position| format!("entry {} of run {}", at.index, at.run);
    match judged {
        Told::Parted => format!("{who} has seen {} of another master, which went on from the same log", place(told)),
        Told::Stranger => format!(
            "{who} has seen {} of lineage {:016x}, and this log is of lineage {:016x} and knows nothing of that one",
            place(told),
            told.lineage,
            own.lineage
        ),
        _ => format!("{who} has seen {}, and this log has come to {} only", place(told), place(own)),
    }
}

/// What is known while a master waits for its nodes.
#[derive(Clone, Copy, Debug)]
struct Hearing {
    /// Nodes that should be heard by now, by the power plan.
    expected: usize,
    /// Nodes that have said what they saw.
    told: usize,
    /// Since the start.
    waited: Duration,
    /// After which those that have spoken are enough.
    patience: Duration,
}

/// Whether enough nodes have spoken. One that was there in the last run is enough to know that run; others are waited for
/// some heartbeats. Where no node is on by the plan nobody can be asked.
fn is_enough(hearing: Hearing) -> bool {
    let is_late = hearing.waited >= hearing.patience;
    match hearing {
        Hearing { expected: 0, told: 0, .. } => is_late,
        Hearing { expected, told, .. } => told >= expected.max(1) || (told > 0 && is_late),
    }
}

/// Whether all that are on by the plan are silent beyond the time that nodes are given. Only a plan that wakes others helps then.
///
/// This log may be an old copy all the same. Whoever the plan wakes says first what it has seen; and a power client that watches
/// this master has gone by its plans in any case.
fn is_unheard(hearing: Hearing) -> bool {
    hearing.told == 0 && hearing.waited >= hearing.patience
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
    let (expected, told) = shared.with_view(|view| {
        let soft = view.soft;
        let is_awake = |node: &NodeId| soft.plans.state(*node, view.now_ms) == NodeState::Awake;
        let expected = view.nodes().filter(is_awake).count();
        (expected, view.nodes().filter(|node| soft.registry.is_live(*node)).count())
    });
    let waited = shared.runtime.now().since(begun);
    let hearing = Hearing { expected, told, waited, patience: shared.options.hear_time };
    if is_enough(hearing) {
        tracing::info!(told, expected, ?waited, "nodes have said which master they saw last");
        return Ok(());
    }
    let why = format!(
        "the master has started and waits for its block servers, to hear whether they have seen a newer one: {told} of {expected} \
         have said; start the others"
    );
    Err(Wait { why, takes_plans: is_unheard(hearing) })
}

fn recorded(shared: &Shared) -> Vec<pb::Node> {
    shared.group.machine().nodes().filter_map(|record| record.node.clone()).collect()
}

/// Whether every node has reported that has to before a loss is accepted.
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
    // Some of them may sleep by the plan.
    Err(Wait { why, takes_plans: true })
}

/// Draws a new lineage, above all that was told.
async fn accept_loss(shared: &Shared) -> Result<()> {
    let Some(gathered) = shared.standing.accepting.lock().clone() else { return Ok(()) };
    let lineage = (shared.runtime.random_u64() >> 1) | 1;
    let superseded = gathered.lineages.iter().copied().collect();
    shared.group.propose(Op::RaiseFloors(pb::RaiseFloors { lineage, superseded, epoch: gathered.epoch })).await?;
    // Ordering: the word is taken back only when it is recorded that it was followed.
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
    fn plans_are_taken_when_nobody_speaks_in_time() {
        let takes = |expected, told, waited| {
            let span = Duration::from_secs;
            is_unheard(Hearing { expected, told, waited: span(waited), patience: span(3) })
        };
        assert!(!takes(1, 0, 2), "it may speak yet");
        assert!(takes(1, 0, 3), "others have to be woken");
        assert!(!takes(3, 1, 3), "the master is about to serve");
    }

    #[test]
    fn a_master_waits_for_who_is_on_and_not_for_ever() {
        let hearing = |expected, told, waited| {
            let span = Duration::from_secs;
            is_enough(Hearing { expected, told, waited: span(waited), patience: span(3) })
        };
        assert!(hearing(3, 3, 0), "all have said");
        assert!(!hearing(3, 1, 2), "others may come");
        assert!(hearing(3, 1, 3), "one knows the last run");
        assert!(!hearing(3, 0, 1000), "nobody knows anything");
        assert!(hearing(0, 1, 0) && hearing(0, 0, 3) && !hearing(0, 0, 2), "all sleep by plan");
    }
}
