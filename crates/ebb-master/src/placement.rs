//! Where new replicas go: the cluster's state and a dataset's settings, put as a question to the layout.

use std::collections::{BTreeMap, BTreeSet};

use ebb_layout::{Ask, LayoutKind, Lodging, Plan, Queue, View, choose_lodged, choose_shelter};
use ebb_power::Timetable;
use ebb_types::{Error, ErrorKind, HostName, InodeId, NodeId, Result, min_copies};
use ebb_wire::pb;

use crate::chains::{self, Promise};
use crate::copies::Task;
use crate::fewer::attempts;
use crate::registry::{Patience, Rest};
use crate::shared::Shared;
use crate::soft::Soft;
use crate::view::ClusterView;

/// What has to be placed.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    /// The file; of a new one, its directory.
    pub inode: InodeId,
    /// Its settings.
    pub dataset: pb::Dataset,
    /// Which metablock of the file.
    pub index: u64,
    /// Host of the writer.
    pub writer: HostName,
    /// Hosts that the writer named, in turn.
    pub preferred: Vec<HostName>,
    /// Members that stay.
    pub present: Vec<pb::Member>,
    /// Where the copy belongs that is missing, if that is known: it lies there, or is a guest.
    pub home: Option<NodeId>,
    /// Copies in all.
    pub replicas: usize,
    /// Nodes that must not be chosen.
    pub exclude: Vec<NodeId>,
    /// Room that each copy should find, in bytes.
    pub bytes: u64,
}

impl Need {
    /// The first copies of a metablock of a dataset.
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

    /// One more copy of a set, beside members that stay.
    pub(crate) fn beside(task: &Task, present: Vec<pb::Member>) -> Self {
        let replicas = present.len() + 1;
        let (dataset, index, bytes) = (task.dataset.clone(), task.record.index, task.record.length);
        Self { present, replicas, ..Self::fresh(task.inode, dataset, index, HostName::default(), bytes) }
    }
}

/// Places a need; the members that are to be added. `Unavailable` if too few nodes live, `NoSpace` if they are full.
///
/// Homes are chosen among all nodes that are well, switched off by the plan or not; a copy whose home is off becomes a guest
/// with one that is on, and so does one of a new metablock whose home has too much to write.
///
/// Gray nodes are taken only where it does not go without them, and nodes that have been silent for some seconds are not:
/// nothing could be copied there. Where a whole metablock finds no room any more, one block must do: the last space of a cluster is
/// not to be wasted.
pub(crate) fn place(shared: &Shared, need: &Need) -> Result<Vec<pb::Member>> {
    let block = need.dataset.block_size.min(need.bytes);
    let sizes = if block < need.bytes { vec![need.bytes, block] } else { vec![block] };
    let gray = gray_beside(shared, need);
    // Without any of them, then with the least slow, and so on.
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

/// Places on any node that is not dead: where it does not go without those that are late.
pub(crate) fn place_late(shared: &Shared, need: &Need) -> Result<Vec<pb::Member>> {
    let block = need.dataset.block_size.min(need.bytes);
    ask(shared, need, Patience::UntilDead, block, &[]).map(|plan| members(&plan))
}

/// Places what can wait: on nodes that were heard of lately and are not gray, where all of it finds room.
pub(crate) fn place_roomy(shared: &Shared, need: &Need) -> Result<Vec<pb::Member>> {
    ask(shared, need, Patience::Prompt, need.bytes, &gray_beside(shared, need)).map(|plan| members(&plan))
}

/// Gray nodes that have no copy yet, the slowest first.
fn gray_beside(shared: &Shared, need: &Need) -> Vec<NodeId> {
    let gray = shared.soft().gray.slowest_first();
    let has_copy = |node: &NodeId| need.present.iter().any(|member| member.node_id() == *node);
    gray.into_iter().filter(|node| !has_copy(node)).collect()
}

/// Places the copies of a new metablock; fewer than wanted, if too few nodes work at present. Others that are placed from now
/// on know of it, for as long as the promise is kept: until the command that records it has been applied.
pub(crate) fn place_new(shared: &Shared, need: &Need) -> Result<(pb::Placement, Promise)> {
    let members = place(shared, need).or_else(|error| match error.kind() {
        ErrorKind::NoSpace | ErrorKind::Unavailable => place_fewer(shared, need, error),
        _ => Err(error),
    })?;
    let promise = chains::promise(shared, &need.dataset, &members, need.bytes);
    Ok((pb::Placement { members }, promise))
}

/// Places a new metablock for which there are not enough nodes with room. `error` is what the whole set lacks.
fn place_fewer(shared: &Shared, need: &Need, error: Error) -> Result<Vec<pb::Member>> {
    let min = min_copies(need.dataset.min_copies, need.dataset.replicas) as usize;
    let (mut last, wanted) = (error, need.replicas);
    for attempt in attempts(need.replicas, min, sound_nodes(shared, need)) {
        let need = Need { replicas: attempt.copies, ..need.clone() };
        let placed = if attempt.takes_late { place_late(shared, &need) } else { place(shared, &need) };
        match placed {
            Ok(members) => {
                tracing::debug!(inode = %need.inode, index = need.index, copies = members.len(), "placed with what there is");
                return Ok(members);
            }
            Err(error) if !matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Unavailable) => return Err(error),
            Err(error) if attempt.copies == wanted => last = error,
            Err(_) => {}
        }
    }
    Err(last)
}

fn volumes(view: &ClusterView<'_>, patience: Patience) -> View {
    let soft = view.soft;
    soft.registry.view(view.machine.nodes(), patience, &soft.room, view.now, |node| view.rest(node))
}

/// Nodes that work and may have copies of this need; those that sleep by plan are among them, full ones, too.
fn sound_nodes(shared: &Shared, need: &Need) -> usize {
    let chain = &need.dataset.chain;
    let view = shared.with_view(|view| volumes(view, Patience::Prompt));
    let usable = view.volumes.iter().filter(|volume| volume.usable).map(|volume| volume.node);
    let of_chain = usable.filter(|node| chain.is_empty() || chain.contains(&node.raw()));
    of_chain.collect::<BTreeSet<_>>().len()
}

fn ask(shared: &Shared, need: &Need, patience: Patience, bytes: u64, without: &[NodeId]) -> Result<Plan> {
    let layout = need.dataset.layout.parse::<LayoutKind>()?;
    let seed = shared.runtime.random_u64();
    let beside = need.present.iter().map(pb::Member::node_id).collect();
    // Everything is looked up in one step; the layout takes its time without the locks.
    let (view, chain, lodging) = {
        let machine = shared.group.machine();
        let mut soft = shared.soft();
        let view = volumes(&shared.view(&machine, &soft), patience);
        let chain = if layout.has_chain() { Some(chains::of(&soft, &need.dataset)?) } else { None };
        let (queues, overloaded) = if layout.has_primaries() && need.present.is_empty() {
            look_for_overload(shared, &mut soft, &view, need.dataset.metablock_size)
        } else {
            Default::default()
        };
        (view, chain, Lodging { beside, guests: soft.chains.guests().clone(), queues, overloaded })
    };
    let ask = Ask {
        layout,
        chain,
        replicas: need.replicas,
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

/// What waits for the nodes that stay on as far as the plans reach, and who has too much of it.
fn look_for_overload(
    shared: &Shared,
    soft: &mut Soft,
    view: &View,
    metablock_bytes: u64,
) -> (BTreeMap<NodeId, Queue>, BTreeSet<NodeId>) {
    let now_ms = shared.wall_ms();
    let mut queues = BTreeMap::<NodeId, Queue>::new();
    for volume in view.volumes.iter().filter(|volume| volume.usable && !volume.off) {
        if queues.contains_key(&volume.node) || rest(&soft.plans, volume.node, now_ms) == Rest::None {
            let queue = queues.entry(volume.node).or_default();
            queue.waiting_bytes += soft.room.waiting(volume.volume);
            queue.away = soft.chains.away().get(&volume.node).copied().unwrap_or(0);
        }
    }
    let overloaded = soft.room.find_overloaded(&shared.options.overload_rule, &queues, metablock_bytes);
    (queues, overloaded)
}

/// What the plans make of a node, as far as they reach.
pub(crate) fn rest(plans: &Timetable, node: NodeId, now_ms: u64) -> Rest {
    match plans.next_wake_ms(node, now_ms) {
        None => Rest::Off,
        Some(_) if plans.awake_for(node, now_ms).is_always() => Rest::None,
        Some(_) => Rest::Blinks,
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
