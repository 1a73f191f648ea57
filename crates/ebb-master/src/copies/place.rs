//! Source and target of a step's copy.

use std::collections::BTreeSet;

use ebb_runtime::SeededBug;
use ebb_types::{HostName, NodeId, VolumeId};
use ebb_wire::pb;

use super::repair::Condition;
use super::route::Route;
use super::{Obstacle, Reason, Step, Target, Task};
use crate::placement::{Need, place, place_roomy};
use crate::shared::Shared;
use crate::view::{ClusterView, nodes};

/// Maximum number of requests in progress on an idle node.
const IDLE_LOAD_MAX: u32 = 4;

/// Possible places of a copy.
enum Field {
    /// That of an extra copy, which becomes a member.
    TakeOver(pb::Member),
    /// Those that the layout chooses.
    Layout {
        /// Home of the copy, if it is fixed.
        home: Option<NodeId>,
        exclude: Vec<NodeId>,
        /// Further nodes, with strays, that are used only if there is no other.
        strays: Vec<NodeId>,
    },
}

/// Chooses the volume for a copy that joins the set, beside members that stay.
pub(super) fn target(
    shared: &Shared,
    step: &Step,
    target: Target,
    present: Vec<pb::Member>,
) -> Result<pb::Member, Obstacle> {
    match target {
        Target::Home(home) => at_home(shared, step, home, present),
        Target::Layout { replaced } => by_layout(shared, step, replaced, present),
    }
}

fn by_layout(
    shared: &Shared,
    step: &Step,
    replaced: Option<pb::Member>,
    present: Vec<pb::Member>,
) -> Result<pb::Member, Obstacle> {
    let (home, exclude, strays) = match shared.with_view(|view| field(view, step, replaced, &present))? {
        Field::TakeOver(extra) => return Ok(extra),
        Field::Layout { home, exclude, strays } => (home, exclude, strays),
    };
    let clear = exclude.iter().chain(&strays).copied().collect();
    let need = Need { home, exclude: clear, ..Need::beside(&step.task, present) };
    // If there is no other node, the copy replaces a stray and gets another life. Waiting for the stray's deletion
    // would not help: nothing is deleted for a set that lacks copies.
    let beside = |error| {
        if strays.is_empty() || shared.runtime.has_bug(SeededBug::MapAlone) {
            Err(error)
        } else {
            place(shared, &Need { exclude, ..need.clone() })
        }
    };
    let placed = place(shared, &need).or_else(beside);
    let placed = placed.map_err(|error| {
        tracing::debug!(metablock = %step.task.metablock, %error, "no place for a copy now");
        Obstacle::NoPlace(error.to_string())
    })?;
    placed.first().copied().ok_or_else(|| Obstacle::NoPlace("the layout names no volume".to_owned()))
}

fn field(
    view: &ClusterView<'_>,
    step: &Step,
    replaced: Option<pb::Member>,
    staying: &[pb::Member],
) -> Result<Field, Obstacle> {
    let task = &step.task;
    let busy = view.busy_nodes(task.record.length);
    let sources = view.sources(task.metablock, &task.record);
    if sources.iter().all(|source| busy.contains(&source.node_id())) {
        return Err(Obstacle::NodesBusy);
    }
    // A node that has lost the member's volume may take the copy on another volume.
    let comes_back = replaced.filter(|_| step.reason == Reason::VolumeLost);
    let members = task.record.members.iter().filter(|member| Some(**member) != comes_back);
    let mut exclude = busy;
    exclude.extend(members.map(pb::Member::node_id));
    let strays = view.nodes_with_strays(task.metablock);
    // A copy that was away from home, or whose home is off, keeps its home.
    let home = replaced.and_then(|member| view.home_to_keep(&[member], staying));
    if home.is_none()
        && let Some(extra) = extra_to_take_over(view, task)
    {
        return Ok(Field::TakeOver(extra));
    }
    exclude.extend(task.record.extra.iter().map(pb::Member::node_id));
    let work = &view.soft.work;
    exclude.extend(work.extra_copies.get(&task.metablock).map(|copy| copy.target));
    exclude.extend(work.parted.held_back(task.inode, view.now).map(|(node, _)| node));
    Ok(Field::Layout { home, exclude, strays })
}

/// An extra copy that may become a member, because it has the bytes already. Not in a dataset with a chain, which fixes
/// the places of copies.
fn extra_to_take_over(view: &ClusterView<'_>, task: &Task) -> Option<pb::Member> {
    if !task.dataset.chain.is_empty() {
        return None;
    }
    let is_good = |extra: &&pb::Member| {
        view.condition(task.metablock, extra) == Condition::Good
            && !view.soft.popular.is_condemned(&(task.metablock, extra.volume_id()))
    };
    // An extra copy on the home of another member must not become a member, or that member could not go home.
    let is_home = |extra: &&pb::Member| task.record.members.iter().any(|member| member.home_id() == extra.node_id());
    task.record.extra.iter().filter(is_good).find(|extra| !is_home(extra)).copied()
}

/// A volume of the home, if the node has time and room for the copy.
fn at_home(shared: &Shared, step: &Step, home: NodeId, present: Vec<pb::Member>) -> Result<pb::Member, Obstacle> {
    let task = &step.task;
    shared.with_view(|view| check_home(view, step, home))?;
    let leaves = task.record.members.iter().find(|member| !present.contains(member));
    let exclude = leaves.map(pb::Member::node_id).into_iter().collect();
    let need = Need { home: Some(home), exclude, ..Need::beside(task, present) };
    let placed = place(shared, &need).map_err(|error| Obstacle::NoPlace(error.to_string()))?;
    let at_home = placed.first().copied().filter(|member| member.node_id() == home);
    at_home.ok_or_else(|| Obstacle::NoPlace(format!("{home} has no room")))
}

fn check_home(view: &ClusterView<'_>, step: &Step, home: NodeId) -> Result<(), Obstacle> {
    let task = &step.task;
    // A stray on the home is about to be deleted, so a guest waits for that. If the set lacks copies, nothing of it is
    // deleted. Then a wait would keep guests from their homes, and the missing copy from the guest's place.
    let is_guests = matches!(step.reason, Reason::GoesHome | Reason::HostLeaves);
    let is_whole = || view.sources(task.metablock, &task.record).len() >= task.dataset.replicas as usize;
    if is_guests && view.nodes_with_strays(task.metablock).contains(&home) && is_whole() {
        return Err(Obstacle::Stray(home));
    }
    if step.priority.waits_for_idle() && !is_idle(view, home) {
        return Err(Obstacle::NodeNotIdle(home));
    }
    let weight_max = step.priority.weight_max(view.options.copies_per_node_max);
    let takes = view.soft.work.takes(home, task.record.length, weight_max);
    takes.then_some(()).ok_or(Obstacle::NodesBusy)
}

/// Whether a node has little work for programs and little to write, so that a returning copy does not overload it.
fn is_idle(view: &ClusterView<'_>, node: NodeId) -> bool {
    let volumes = view.machine.registered(node).into_iter().flat_map(|node| &node.volumes);
    let waiting = volumes.map(|volume| view.soft.room.waiting(VolumeId::new(volume.id))).sum();
    view.soft.registry.load(node) <= IDLE_LOAD_MAX && view.options.overload_rule.lets_home(waiting)
}

/// Chooses the source of a copy to a node. A copy that can wait starts only when the two nodes are awake together.
pub(super) fn source(view: &ClusterView<'_>, step: &Step, target: NodeId) -> Result<pb::Member, Obstacle> {
    let (task, bytes) = (&step.task, step.task.record.length);
    let sources = view.sources(task.metablock, &task.record);
    if sources.is_empty() {
        return Err(Obstacle::NoSource);
    }
    let source = view.choose_source(&sources, target, bytes).ok_or(Obstacle::NodesBusy)?;
    if step.priority.waits_for_meeting() && !view.is_time(source.node_id(), target, bytes) {
        return Err(Obstacle::NodesApart);
    }
    Ok(source)
}

/// Chooses the source of a copy to an existing member, unless that is busy itself.
pub(super) fn source_for(view: &ClusterView<'_>, step: &Step, member: &pb::Member) -> Result<pb::Member, Obstacle> {
    if view.busy_nodes(step.task.record.length).contains(&member.node_id()) {
        return Err(Obstacle::NodesBusy);
    }
    source(view, step, member.node_id())
}

/// Chooses both ends of an extra copy among nodes that are not busy, if possible two that are awake together.
pub(super) fn extra_pair(shared: &Shared, step: &Step) -> Result<(pb::Member, pb::Member), Obstacle> {
    let (task, bytes) = (&step.task, step.task.record.length);
    let weight_max = step.priority.weight_max(shared.options.copies_per_node_max);
    let present: Vec<pb::Member> = task.record.members.iter().chain(&task.record.extra).copied().collect();
    let ExtraField { sources, unmet, unreached } =
        shared.with_view(|view| extra_field(view, task, &present, weight_max));
    let need = |exclude: BTreeSet<NodeId>| Need {
        replicas: present.len() + 1,
        present: present.clone(),
        exclude: exclude.into_iter().collect(),
        ..Need::fresh(task.inode, task.dataset.clone(), task.record.index, HostName::default(), bytes)
    };
    // The direct route is preferred to the one by a proxy (BlinkFS, Sec. 4.2).
    let placed = place_roomy(shared, &need(unmet)).or_else(|_| place_roomy(shared, &need(unreached)));
    let placed = placed.map_err(|error| Obstacle::NoPlace(error.to_string()))?;
    // A guest has a home to go to, and an extra copy has none.
    let target = placed.first().copied().filter(|member| !member.is_guest());
    let target = target.ok_or_else(|| Obstacle::NoPlace("only a guest's place".to_owned()))?;
    let source = shared.with_view(|view| {
        let work = &view.soft.work;
        let idle = sources.iter().filter(|source| work.takes(source.node_id(), bytes, weight_max));
        let reaching = idle.filter_map(|one| Some((view.route(one.node_id(), target.node_id(), bytes)?, *one)));
        reaching.min_by_key(|(route, source)| (*route, work.copy_load(source.node_id())))
    });
    source.map(|(_, source)| (source, target)).ok_or(Obstacle::NodesBusy)
}

/// Candidates for the ends of an extra copy.
struct ExtraField {
    sources: Vec<pb::Member>,
    /// Nodes that are excluded for a direct copy.
    unmet: BTreeSet<NodeId>,
    /// Nodes that are excluded for any copy.
    unreached: BTreeSet<NodeId>,
}

fn extra_field(view: &ClusterView<'_>, task: &Task, present: &[pb::Member], weight_max: usize) -> ExtraField {
    let bytes = task.record.length;
    let is_good = |member: &&pb::Member| view.condition(task.metablock, member) == Condition::Good;
    let sources: Vec<pb::Member> = task.record.members.iter().filter(is_good).copied().collect();
    // The home of a member that is away is excluded too, because the member will return there.
    let mut exclude: BTreeSet<NodeId> =
        present.iter().flat_map(|member| [member.node_id(), member.home_id()]).collect();
    exclude.extend(view.nodes_with_strays(task.metablock));
    exclude.extend(nodes_short_of_room(view));
    exclude.extend(view.nodes().filter(|node| !view.soft.work.takes(*node, bytes, weight_max)));
    let routes = |node: NodeId| sources.iter().filter_map(move |source| view.route(source.node_id(), node, bytes));
    let is_met = |node: &NodeId| routes(*node).any(|route| route != Route::ByProxy);
    let is_reached = |node: &NodeId| routes(*node).next().is_some();
    let unmet = exclude.iter().copied().chain(view.nodes().filter(|node| !is_met(node))).collect();
    let unreached = exclude.iter().copied().chain(view.nodes().filter(|node| !is_reached(node))).collect();
    ExtraField { sources, unmet, unreached }
}

fn nodes_short_of_room(view: &ClusterView<'_>) -> Vec<NodeId> {
    let tight = view.soft.registry.tight_volumes(&view.soft.room);
    let is_short = |node: &&pb::Node| node.volumes.iter().any(|volume| tight.contains(&VolumeId::new(volume.id)));
    nodes(view.machine).filter(is_short).map(|node| NodeId::new(node.id)).collect()
}
