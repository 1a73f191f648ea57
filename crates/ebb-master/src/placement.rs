//! Placement of new replicas: the cluster's state and a dataset's settings as a question to the layout.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_layout::{Ask, Lodging, Plan, Queue, View, choose_lodged, choose_shelter};
use ebb_power::Timetable;
use ebb_types::{Error, ErrorKind, HostName, InodeId, NodeId, Result, min_copies};
use ebb_wire::pb;

use crate::chains::{self, PlacementReservation};
use crate::copies::Task;
use crate::copies::repair::Condition;
use crate::fewer::attempts;
use crate::registry::{Patience, Sleep};
use crate::shared::Shared;
use crate::soft::Soft;
use crate::view::ClusterView;

/// A request for places of copies.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    /// The file; of a new file its directory, or a number in place of it.
    pub inode: InodeId,
    /// Dataset with its settings.
    pub dataset: pb::Dataset,
    /// Index of the metablock in the file.
    pub index: u64,
    /// Host of the writer.
    pub writer: HostName,
    /// Hosts that the writer prefers.
    pub preferred: Vec<HostName>,
    /// Members that stay.
    pub present: Vec<pb::Member>,
    /// Home of the missing copy, if it is fixed. The copy goes there, or becomes a guest.
    pub home: Option<NodeId>,
    /// Number of copies, with those that are present.
    pub replicas: usize,
    /// Nodes that must not be chosen.
    pub exclude: Vec<NodeId>,
    /// Room for each copy, in bytes.
    pub bytes: u64,
}

impl Need {
    /// A request for the first copies of a metablock.
    pub(crate) fn fresh(inode: InodeId, dataset: pb::Dataset, index: u64, writer: HostName, bytes: u64) -> Self {
        let replicas = dataset.replicas as usize;
        Self {
            inode,
            dataset,
            index,
            writer,
            preferred: Vec::new(),
            present: Vec::new(),
            home: None,
            replicas,
            exclude: Vec::new(),
            bytes,
        }
    }

    /// A request for one more copy of a set, beside members that stay.
    pub(crate) fn beside(task: &Task, present: Vec<pb::Member>) -> Self {
        let replicas = present.len() + 1;
        let (dataset, index, bytes) = (task.dataset.clone(), task.record.index, task.record.length);
        Self { present, replicas, ..Self::fresh(task.inode, dataset, index, HostName::default(), bytes) }
    }
}

/// Places copies, and returns the new members.
///
/// Homes are chosen among all usable nodes, whether a plan switches them off or not. A copy whose home is off becomes a
/// guest on a node that is on. So does a copy of a new metablock whose home has too much to write.
///
/// Gray nodes are used only if there are too few others. Late nodes are not used, because nothing could be copied
/// there. If there is no room for a whole metablock, room for one block suffices, so that the last space of a cluster
/// is not wasted.
///
/// Errors: `Unavailable` if too few nodes are live, `NoSpace` if they are full.
pub(crate) fn place(shared: &Shared, need: &Need) -> Result<Vec<pb::Member>> {
    let block = need.dataset.block_size.min(need.bytes);
    let sizes = if block < need.bytes { vec![need.bytes, block] } else { vec![block] };
    let gray = gray_beside(shared, need);
    // The first try leaves out all gray nodes, the next one admits the least slow, and so on.
    let among = (0..=gray.len()).rev().map(|without| &gray[..without]);
    let mut last = None;
    for (bytes, without) in among.flat_map(|without| sizes.iter().map(move |bytes| (*bytes, without))) {
        match ask(shared, need, Patience::Prompt, bytes, without) {
            Ok(plan) => return Ok(members(&plan)),
            Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Unavailable) => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.expect("there was at least one try"))
}

/// Places copies on any node that is not dead. It serves where late nodes are needed.
///
/// Errors: as [`place`].
pub(crate) fn place_late(shared: &Shared, need: &Need) -> Result<Vec<pb::Member>> {
    let block = need.dataset.block_size.min(need.bytes);
    ask(shared, need, Patience::UntilDead, block, &[]).map(|plan| members(&plan))
}

/// Places a copy that can wait: only on prompt nodes that are not gray, with room for all of it.
///
/// Errors: as [`place`].
pub(crate) fn place_roomy(shared: &Shared, need: &Need) -> Result<Vec<pb::Member>> {
    ask(shared, need, Patience::Prompt, need.bytes, &gray_beside(shared, need)).map(|plan| members(&plan))
}

/// Gray nodes without a copy, the slowest first.
fn gray_beside(shared: &Shared, need: &Need) -> Vec<NodeId> {
    let gray = shared.soft().gray.slowest_first();
    let has_copy = |node: &NodeId| need.present.iter().any(|member| member.node_id() == *node);
    gray.into_iter().filter(|node| !has_copy(node)).collect()
}

/// Places the copies of a new metablock, fewer than wanted if too few nodes work at present.
///
/// The reservation makes later placements aware of this one. Keep it until the command that records the placement has been
/// applied.
///
/// Errors: as [`place`].
pub(crate) fn place_new(shared: &Shared, need: &Need) -> Result<(pb::Placement, PlacementReservation)> {
    let members = place(shared, need).or_else(|error| match error.kind() {
        ErrorKind::NoSpace | ErrorKind::Unavailable => place_fewer(shared, need, error),
        _ => Err(error),
    })?;
    let reservation = chains::reserve(shared, &need.dataset, &members, need.bytes);
    Ok((pb::Placement { members }, reservation))
}

/// Places an heir on the volumes of what it takes the place of, so that each copies within itself. None: not all of these can take
/// it. Then it is placed as any new metablock.
pub(crate) fn place_heir(
    shared: &Shared,
    need: &Need,
    frozen: &pb::Metablock,
) -> Option<(pb::Placement, PlacementReservation)> {
    if frozen.members.len() != need.replicas {
        return None;
    }
    let metablock = frozen.metablock_id();
    let all_take_it = shared.with_view(|view| {
        let volumes = volumes(view, Patience::Prompt);
        let gray = view.soft.gray.slowest_first();
        let takes_it = |member: &pb::Member| {
            let node = member.node_id();
            let found = volumes.volumes.iter().find(|volume| volume.volume == member.volume_id());
            found.is_some_and(|volume| volume.usable && !volume.off && volume.has_room(need.bytes))
                && view.condition(metablock, member) == Condition::Good
                && !member.is_guest()
                && !gray.contains(&node)
                && !need.exclude.contains(&node)
        };
        frozen.members.iter().all(takes_it)
    });
    let placed = || {
        let reservation = chains::reserve(shared, &need.dataset, &frozen.members, need.bytes);
        (pb::Placement { members: frozen.members.clone() }, reservation)
    };
    all_take_it.then(placed)
}

/// Places fewer copies of a new metablock than wanted. `error` says why the whole set cannot be placed.
fn place_fewer(shared: &Shared, need: &Need, error: Error) -> Result<Vec<pb::Member>> {
    let min = min_copies(need.dataset.min_copies, need.dataset.replicas) as usize;
    let (mut last, wanted) = (error, need.replicas);
    for attempt in attempts(need.replicas, min, sound_nodes(shared, need)) {
        let need = Need { replicas: attempt.copies, ..need.clone() };
        let placed = if attempt.takes_late { place_late(shared, &need) } else { place(shared, &need) };
        match placed {
            Ok(members) => {
                tracing::debug!(inode = %need.inode, index = need.index, copies = members.len(), "placed with fewer copies or on late nodes");
                return Ok(members);
            }
            Err(error) if !matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Unavailable) => return Err(error),
            Err(error) if attempt.copies == wanted => last = error,
            Err(_) => {}
        }
    }
    Err(last)
}

pub(crate) fn volumes(view: &ClusterView<'_>, patience: Patience) -> View {
    let soft = view.soft;
    let volumes = soft.registry.view(view.machine.nodes(), patience, &soft.room, view.now, |node| view.sleep_of(node));
    View { sub_racks: Arc::clone(view.machine.sub_racks()), ..volumes }
}

/// Number of usable nodes that may have copies of this need now. Full nodes and nodes that blink count. Nodes that a plan
/// keeps off do not: a copy whose home is off needs another node for the meantime.
fn sound_nodes(shared: &Shared, need: &Need) -> usize {
    let chain = &need.dataset.chain;
    let view = shared.with_view(|view| volumes(view, Patience::Prompt));
    let usable = view.volumes.iter().filter(|volume| volume.usable && !volume.off).map(|volume| volume.node);
    let of_chain = usable.filter(|node| chain.is_empty() || chain.contains(&node.raw()));
    of_chain.collect::<BTreeSet<_>>().len()
}

fn ask(shared: &Shared, need: &Need, patience: Patience, bytes: u64, without: &[NodeId]) -> Result<Plan> {
    let seed = shared.runtime.random_u64();
    let beside = need.present.iter().map(pb::Member::node_id).collect();
    // All facts are of one moment; the layout then computes without the locks.
    let (view, chain, on, lodging) = {
        let machine = shared.group.machine();
        let mut soft = shared.soft();
        let view = volumes(&shared.view(&machine, &soft), patience);
        // The settings in `need` may be older: a dataset gets another layout while it is empty.
        let chain = chains::of(&soft, &need.dataset)?;
        let layout = chain.layout();
        let (queues, overloaded) = if layout.has_primaries() && need.present.is_empty() {
            look_for_overload(shared, &mut soft, &view, need.dataset.metablock_size)
        } else {
            Default::default()
        };
        let on = chains::class_of(&pb::Dataset { layout: layout.to_string(), ..need.dataset.clone() });
        (view, chain, on, Lodging { beside, guests: soft.chains.guests().clone(), queues, overloaded })
    };
    let ask = Ask {
        layout: chain.layout(),
        chain: Some(chain).filter(|chain| chain.layout().has_chain()),
        replicas: need.replicas,
        on,
        writer: need.writer.clone(),
        preferred: need.preferred.clone(),
        index: need.index,
        inode: need.inode,
        present: need.present.iter().map(|member| (member.home_id(), member.volume_id())).collect(),
        exclude: need.exclude.iter().chain(without).copied().collect(),
        bytes,
        seed,
    };
    match need.home {
        Some(home) => choose_shelter(&view, home, &ask, &lodging).map(|chosen| Plan { members: vec![chosen] }),
        None => choose_lodged(&view, &ask, &lodging),
    }
}

/// Queues of the nodes that stay on as far as the plans reach, and the overloaded nodes among them.
fn look_for_overload(
    shared: &Shared,
    soft: &mut Soft,
    view: &View,
    metablock_bytes: u64,
) -> (BTreeMap<NodeId, Queue>, BTreeSet<NodeId>) {
    let now_ms = shared.wall_ms();
    let mut queues = BTreeMap::<NodeId, Queue>::new();
    for volume in view.volumes.iter().filter(|volume| volume.usable && !volume.off) {
        if queues.contains_key(&volume.node) || sleep_of(&soft.plans, volume.node, now_ms) == Sleep::None {
            let queue = queues.entry(volume.node).or_default();
            queue.waiting_bytes += soft.room.waiting(volume.volume);
            queue.away = soft.chains.away().get(&volume.node).copied().unwrap_or(0);
        }
    }
    let overloaded = soft.room.find_overloaded(&shared.options.overload_rule, &queues, metablock_bytes);
    (queues, overloaded)
}

/// Sleep of a node by the known plans.
pub(crate) fn sleep_of(plans: &Timetable, node: NodeId, now_ms: u64) -> Sleep {
    match plans.next_wake_ms(node, now_ms) {
        None => Sleep::Off,
        Some(_) if plans.awake_for(node, now_ms).is_always() => Sleep::None,
        Some(_) => Sleep::Blinks,
    }
}

fn members(plan: &Plan) -> Vec<pb::Member> {
    let member = |chosen: &ebb_layout::Chosen| pb::Member {
        node: chosen.node.raw(),
        volume: chosen.volume.raw(),
        incarnation: chosen.incarnation.raw(),
        home: if chosen.home == chosen.node { 0 } else { chosen.home.raw() },
    };
    plan.members.iter().map(member).collect()
}
