//! Expansion chains of datasets: the choice of a chain for a new dataset, the copies on each chain, and their
//! description.
//!
//! The counts of copies are not logged. They are taken from the map when a master starts, and follow every change of a
//! set. Placements that are being logged count too, so that several writers do not fill the same gap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_layout::restore::check_off;
use ebb_layout::{ChainView, LayoutKind};
use ebb_meta::Machine;
use ebb_power::chain::{ChainShape, DatasetChain, choose_chain, set_strays, sum_scores};
use ebb_power::reach::Holding;
use ebb_types::{DatasetId, NodeClass, NodeId, Result, bail};
use ebb_wire::pb;
use pb::meta_op::Op;

use crate::holdings::RaidHolding;
use crate::reserve::OnItsWay;
use crate::shared::{Shared, State};
use crate::soft::Soft;
use crate::view::nodes;

/// Counts of the copies that belong to each dataset's nodes, and of guests.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    datasets: BTreeMap<DatasetId, Arc<ChainView>>,
    /// Number of guests on each node, over all datasets.
    guests: BTreeMap<NodeId, u64>,
    /// Number of each node's copies that are guests elsewhere.
    away: BTreeMap<NodeId, u64>,
    /// Placements that are being logged, by number. A chain that is counted anew includes them.
    reserved: BTreeMap<u64, Placement>,
    next_reservation: u64,
}

/// A placement that is being logged.
#[derive(Debug)]
struct Placement {
    dataset: DatasetId,
    members: Vec<pb::Member>,
}

impl Chains {
    /// Counts over the whole map.
    pub(crate) fn of(machine: &Machine) -> Self {
        let mut all = Self::default();
        for dataset in machine.datasets() {
            all.on_dataset(dataset);
        }
        for (dataset, _, members) in machine.placed() {
            all.add(dataset, members);
        }
        all
    }

    /// Follows a dataset that was created or changed. With another layout, chain or number of copies, copies belong
    /// elsewhere, and all are counted anew. True: that is so.
    pub(crate) fn on_settings(&mut self, machine: &Machine, dataset: &pb::Dataset) -> bool {
        let id = DatasetId::new(dataset.id);
        let Some(known) = self.datasets.get(&id) else {
            self.on_dataset(dataset);
            return false;
        };
        if view(dataset).is_ok_and(|wanted| wanted.is_shaped_like(known)) {
            return false;
        }
        self.on_chain_changed(machine, id);
        true
    }

    /// Asserts that these counts, which follow the changes, are those of the whole map.
    #[cfg(debug_assertions)]
    pub(crate) fn check(&self, machine: &Machine) {
        let mut counted = Self::of(machine);
        for Placement { dataset, members } in self.reserved.values() {
            counted.add(*dataset, members);
        }
        assert_eq!(self.datasets, counted.datasets, "each dataset's chain and the copies on it");
        assert_eq!((&self.guests, &self.away), (&counted.guests, &counted.away), "guests");
    }

    /// Counts a dataset's copies on a chain that is new.
    fn recount(&mut self, machine: &Machine, id: DatasetId, mut chain: ChainView) {
        let recorded = machine.placed().filter(|(dataset, _, _)| *dataset == id).map(|(_, _, members)| members);
        let reserved = self.reserved.values().filter(|one| one.dataset == id).map(|one| &one.members[..]);
        recorded.chain(reserved).for_each(|members| chain.add(&homes(members)));
        self.datasets.insert(id, Arc::new(chain));
    }

    /// Adds a dataset. A known dataset keeps its counts.
    fn on_dataset(&mut self, dataset: &pb::Dataset) {
        let id = DatasetId::new(dataset.id);
        if !self.datasets.contains_key(&id)
            && let Ok(chain) = view(dataset)
        {
            self.datasets.insert(id, Arc::new(chain));
        }
    }

    /// The chain of a dataset with its counts; `None` for an unknown dataset.
    pub(crate) fn chain(&self, dataset: DatasetId) -> Option<Arc<ChainView>> {
        self.datasets.get(&dataset).cloned()
    }

    /// Whether a node of some chain is further from its share than online placement leaves it.
    pub(crate) fn is_uneven(&self) -> bool {
        self.datasets.values().any(|chain| check_off(chain) > 0)
    }

    /// Follows the replacement of a node in a chain. The chain decides which copies are primaries, so it is counted
    /// anew.
    pub(crate) fn on_replaced(&mut self, machine: &Machine, replace: &pb::ReplaceInChain) {
        let (id, gone, by) = (DatasetId::new(replace.dataset), NodeId::new(replace.gone), NodeId::new(replace.by));
        let replaced = self.datasets.get(&id).map(|chain| chain.replaced(gone, by));
        let Some(Ok(chain)) = replaced else { return };
        self.recount(machine, id, chain);
    }

    /// Follows another chain of a dataset, or another number of copies on it.
    pub(crate) fn on_chain_changed(&mut self, machine: &Machine, id: DatasetId) {
        match machine.dataset(id).map(view) {
            Some(Ok(chain)) => self.recount(machine, id, chain),
            // The leader has checked it, so this is another release's.
            Some(Err(error)) => tracing::error!(dataset = %id, %error, "the copies of a dataset cannot be placed"),
            None => {}
        }
    }

    /// Follows a change of a metablock's set.
    pub(crate) fn on_set_changed(&mut self, dataset: DatasetId, old: &[pb::Member], new: &[pb::Member]) {
        self.remove(dataset, old);
        self.add(dataset, new);
    }

    /// Number of guests on each node.
    pub(crate) fn guests(&self) -> &BTreeMap<NodeId, u64> {
        &self.guests
    }

    /// Number of each node's copies that are guests elsewhere.
    pub(crate) fn away(&self) -> &BTreeMap<NodeId, u64> {
        &self.away
    }

    fn add(&mut self, dataset: DatasetId, members: &[pb::Member]) {
        if let Some(chain) = self.datasets.get_mut(&dataset) {
            Arc::make_mut(chain).add(&homes(members));
        }
        for guest in members.iter().filter(|member| member.is_guest()) {
            *self.guests.entry(guest.node_id()).or_default() += 1;
            *self.away.entry(guest.home_id()).or_default() += 1;
        }
    }

    fn remove(&mut self, dataset: DatasetId, members: &[pb::Member]) {
        if let Some(chain) = self.datasets.get_mut(&dataset) {
            Arc::make_mut(chain).remove(&homes(members));
        }
        for guest in members.iter().filter(|member| member.is_guest()) {
            lower(&mut self.guests, guest.node_id());
            lower(&mut self.away, guest.home_id());
        }
    }
}

fn lower(counts: &mut BTreeMap<NodeId, u64>, node: NodeId) {
    // A count of zero has no entry, and every guest was counted when it was added.
    if let Some(count) = counts.get_mut(&node) {
        assert!(*count > 0, "node {node} has a count of no guests");
        *count -= 1;
        if *count == 0 {
            counts.remove(&node);
        }
    }
}

/// Homes of the copies. Shares are those at full power, when every copy is at home.
fn homes(members: &[pb::Member]) -> Vec<NodeId> {
    members.iter().map(pb::Member::home_id).collect()
}

/// A dataset's chain with no copies on it. A dataset without a chain gets an empty chain that counts all the same.
pub(crate) fn view(dataset: &pb::Dataset) -> Result<ChainView> {
    let layout = dataset.layout.parse::<LayoutKind>()?;
    if !layout.has_chain() {
        return Ok(ChainView::uncharted(layout, dataset.replicas));
    }
    let order = dataset.chain.iter().copied().map(NodeId::new).collect();
    ChainView::new(layout, order, dataset.primaries, dataset.gear_size, dataset.replicas)
}

/// A dataset's chain with its counts.
///
/// Errors: `Internal` if the dataset is unknown.
pub(crate) fn of(soft: &Soft, dataset: &pb::Dataset) -> Result<Arc<ChainView>> {
    match soft.chains.datasets.get(&DatasetId::new(dataset.id)) {
        Some(chain) => Ok(Arc::clone(chain)),
        None => bail!(Internal, "nothing is known of the expansion chain of dataset {}", dataset.path),
    }
}

/// Reservation of the places of a placement that is not recorded yet. It counts until this is dropped.
pub(crate) struct PlacementReservation {
    state: Arc<State>,
    /// Number of its entry in [`Chains`], if it has one.
    counted: Option<u64>,
    on_its_way: OnItsWay,
}

/// Counts a placement that is being logged. `bytes` is the expected size of the metablock's writes.
pub(crate) fn reserve(
    shared: &Shared,
    dataset: &pb::Dataset,
    members: &[pb::Member],
    bytes: u64,
) -> PlacementReservation {
    let id = DatasetId::new(dataset.id);
    let mut soft = shared.soft();
    let on_its_way = soft.room.expect(members, bytes);
    let chains = &mut soft.chains;
    let has_chain = chains.datasets.get(&id).is_some_and(|chain| chain.layout().has_chain());
    let mut counted = None;
    if has_chain || members.iter().any(pb::Member::is_guest) {
        chains.add(id, members);
        let number = chains.next_reservation;
        chains.next_reservation += 1;
        chains.reserved.insert(number, Placement { dataset: id, members: members.to_vec() });
        counted = Some(number);
    }
    drop(soft);
    PlacementReservation { state: Arc::clone(&shared.state), counted, on_its_way }
}

impl Drop for PlacementReservation {
    fn drop(&mut self) {
        let mut soft = self.state.soft();
        soft.room.forget_expected(&self.on_its_way);
        let Some(number) = self.counted.take() else { return };
        let chains = &mut soft.chains;
        let placement = chains.reserved.remove(&number);
        let Placement { dataset, members } = placement.expect("a reservation is counted until it is dropped");
        chains.remove(dataset, &members);
    }
}

/// The dataset for the power manager. Copies of a dataset without a chain may lie on any node.
pub(crate) fn power_chain(dataset: &pb::Dataset, all: &[NodeId]) -> Result<DatasetChain> {
    let layout = dataset.layout.parse::<LayoutKind>()?;
    let gear_size = dataset.gear_size;
    let shape = ChainShape::of(layout, gear_size);
    let nodes =
        if layout.has_chain() { dataset.chain.iter().copied().map(NodeId::new).collect() } else { all.to_vec() };
    let replicas = if layout.has_chain() { dataset.replicas } else { least(dataset.replicas, all) };
    let mut chain = DatasetChain::new(DatasetId::new(dataset.id), nodes, shape, dataset.primaries, replicas)?;
    chain.wanted_active = Some(dataset.active).filter(|active| *active > 0);
    Ok(chain)
}

/// The dataset with a chain in any case: without a chain of its own it gets all nodes, in the order in which they are
/// switched on.
pub(crate) fn charted(dataset: &pb::Dataset, all: &[NodeId]) -> pb::Dataset {
    let mut charted = dataset.clone();
    if charted.chain.is_empty() {
        charted.chain = all.iter().map(|node| node.raw()).collect();
        charted.replicas = charted.replicas.min(u32::try_from(all.len()).unwrap_or(u32::MAX)).max(1);
    }
    charted
}

/// Number of possible copies. A cluster may have fewer nodes than its default dataset wants copies.
fn least(replicas: u32, all: &[NodeId]) -> u32 {
    replicas.min(u32::try_from(all.len()).unwrap_or(u32::MAX)).max(1)
}

/// Nodes that a dataset's data may lie on, well or not.
pub(crate) fn nodes_of(machine: &Machine, dataset: &pb::Dataset) -> Vec<NodeId> {
    let class = class_of(dataset);
    nodes(machine).filter(|node| is_of(machine, node, class)).map(|node| NodeId::new(node.id)).collect()
}

/// The nodes that a dataset's data lie on, by its settings.
pub(crate) fn class_of(dataset: &pb::Dataset) -> NodeClass {
    let usual = dataset.layout.parse::<LayoutKind>().map_or(NodeClass::Any, LayoutKind::usual_nodes);
    match dataset.node_class {
        0 => usual,
        raw => NodeClass::from_raw(raw).unwrap_or(usual),
    }
}

/// Whether a node has volumes, and is of this class.
fn is_of(machine: &Machine, node: &pb::Node, class: NodeClass) -> bool {
    !node.volumes.is_empty() && class.has(machine.sub_racks().is_lsn(&node.host))
}

/// Completes a command about datasets with the leader's choices.
///
/// Errors: `Invalid` for settings that are impossible.
pub(crate) fn complete(shared: &Shared, mut request: pb::MetaRequest) -> Result<pb::MetaRequest> {
    match request.op.as_mut().and_then(|op| op.op.as_mut()) {
        Some(Op::CreateDataset(create)) => {
            if let Some(dataset) = &mut create.dataset {
                complete_dataset(&shared.group.machine(), dataset)?;
            }
        }
        Some(Op::SetDataset(set)) => {
            let machine = shared.group.machine();
            check_set(&machine, set)?;
            complete_placement(&machine, set)?;
        }
        _ => {}
    }
    Ok(request)
}

/// Nodes of this class that should hold data.
pub(crate) fn nodes_in_use(machine: &Machine, class: NodeClass) -> impl Iterator<Item = NodeId> + '_ {
    let usable = machine.nodes().filter(|record| !record.draining).filter_map(|record| record.node.as_ref());
    usable.filter(move |node| is_of(machine, node, class)).map(|node| NodeId::new(node.id))
}

/// Nodes in the order of their racks, which the halves of a chain of localized storage nodes follow.
fn by_rack(machine: &Machine, mut nodes: Vec<NodeId>) -> Vec<NodeId> {
    let rack = |node: &NodeId| machine.registered(*node).map(|node| node.rack.clone());
    nodes.sort_by_cached_key(|node| (rack(node), *node));
    nodes
}

/// Chooses a new dataset's chain: nodes by ascending score. Nodes that are early in one chain are thus late in others
/// (Rabbit, Sec. 3.4).
fn complete_dataset(machine: &Machine, asked: &mut pb::Dataset) -> Result<()> {
    asked.chain.clear();
    let default = machine.dataset(DatasetId::new(0)).cloned().unwrap_or_default();
    let layout = if asked.layout.is_empty() { &default.layout } else { &asked.layout }.parse::<LayoutKind>()?;
    if !layout.has_primaries() && asked.primaries != 0 {
        bail!(Invalid, "the layout {layout} has no primaries; simple, equal-work and geared have");
    }
    if layout != LayoutKind::Geared && asked.gear_size != 0 {
        bail!(Invalid, "the layout {layout} has no gears; geared has");
    }
    if !layout.has_chain() {
        return Ok(());
    }
    let class = class_of(&pb::Dataset { layout: layout.to_string(), ..asked.clone() });
    let nodes: Vec<NodeId> = nodes_in_use(machine, class).collect();
    if nodes.is_empty() && class == NodeClass::Lsn {
        bail!(
            Invalid,
            "{}: no localized storage node is there; one is a block server that is started with --serves-hosts",
            asked.path
        );
    }
    let others: Vec<DatasetChain> = machine
        .datasets()
        .filter(|dataset| !dataset.chain.is_empty() && !dataset.path.is_empty())
        .filter_map(|dataset| power_chain(dataset, &nodes).ok())
        .collect();
    let mut order = choose_chain(nodes, &sum_scores(&others));
    match layout {
        // The circle of power-balanced is the order in which nodes wake, not one of scores.
        LayoutKind::PowerBalanced => order.sort_unstable(),
        LayoutKind::Lsn => order = by_rack(machine, order),
        _ => {}
    }
    asked.chain = order.iter().map(|node| node.raw()).collect();
    if asked.replicas == 0 {
        asked.replicas = default.replicas;
    }
    view(asked).map_err(|error| error.context(&asked.path))?;
    let mut chain = power_chain(asked, &order)?;
    chain.set_wanted(Some(asked.active).filter(|active| *active > 0))?;
    Ok(())
}

/// Chooses the chain for another layout of a dataset.
fn complete_placement(machine: &Machine, set: &mut pb::meta_op::SetDataset) -> Result<()> {
    let Some(placement) = &mut set.placement else { return Ok(()) };
    let Some(dataset) = machine.dataset(DatasetId::new(set.dataset)) else { return Ok(()) };
    let mut asked = pb::Dataset {
        layout: placement.layout.clone(),
        primaries: placement.primaries,
        gear_size: placement.gear_size,
        replicas: set.replicas.unwrap_or(dataset.replicas),
        active: set.active.unwrap_or(dataset.active),
        node_class: placement.node_class,
        ..dataset.clone()
    };
    complete_dataset(machine, &mut asked)?;
    (placement.layout, placement.chain) = (asked.layout, asked.chain);
    Ok(())
}

fn check_set(machine: &Machine, set: &pb::meta_op::SetDataset) -> Result<()> {
    let Some(dataset) = machine.dataset(DatasetId::new(set.dataset)) else { return Ok(()) };
    if let Some(replicas) = set.replicas {
        let nodes = nodes_in_use(machine, class_of(dataset)).count();
        if replicas as usize > nodes {
            bail!(Invalid, "{}: {replicas} copies need as many nodes, and there are {nodes}", dataset.path);
        }
        let changed = pb::Dataset { replicas, ..dataset.clone() };
        view(&changed)
            .map(drop)
            .and_then(|()| power_chain(&changed, &nodes_of(machine, &changed)).map(drop))
            .map_err(|error| error.context(&dataset.path))?;
    }
    let Some(active) = set.active.filter(|active| *active > 0) else { return Ok(()) };
    power_chain(dataset, &nodes_of(machine, dataset))?
        .set_wanted(Some(active))
        .map(drop)
        .map_err(|error| error.context(&dataset.path))
}

/// Number and bytes of a dataset's extra copies.
#[derive(Clone, Copy, Default)]
struct Extras {
    copies: u64,
    bytes: u64,
}
/// Counts the extra copies of a dataset's metablocks.
fn extras(machine: &Machine, dataset: DatasetId) -> Extras {
    let of_dataset = machine
        .all_extras()
        .filter(|(inode, _, _)| machine.attr(*inode).is_ok_and(|attr| attr.dataset == dataset.raw()));
    of_dataset.fold(Extras::default(), |sum, (_, metablock, extras)| {
        let length = machine.find_metablock(metablock).map_or(0, |(_, record)| record.length);
        let copies = extras.len() as u64;
        Extras { copies: sum.copies + copies, bytes: sum.bytes + length * copies }
    })
}

/// Answers `DescribeDataset`.
pub(crate) fn describe(shared: &Shared, call: &pb::DescribeDataset) -> Result<pb::DescribeDatasetReply> {
    let id = DatasetId::new(call.dataset);
    let (dataset, chain) = {
        let machine = shared.group.snapshot();
        let Some(dataset) = machine.dataset(id).cloned() else { bail!(NotFound, "there is no dataset {id}") };
        let mut chain = power_chain(&dataset, &nodes_of(&machine, &dataset))?;
        let raid_sets = machine.raid_sets().filter(|set| set.dataset == dataset.id);
        let holdings: Vec<Holding> = raid_sets.filter_map(|set| Some(RaidHolding::of(&set)?.to_core())).collect();
        set_strays(std::slice::from_mut(&mut chain), &holdings, &BTreeSet::new());
        (dataset, chain)
    };
    let tally = of(&shared.soft(), &dataset)?.tally.clone();
    let blocks = tally.blocks();
    let target = match chain.shape() {
        // How much a localized storage node has is its writers' business.
        ChainShape::Halves => Vec::new(),
        _ if blocks == 0 => vec![0; chain.nodes().len()],
        _ => chain.target(blocks)?,
    };
    let actual: Vec<u64> = chain.nodes().iter().map(|node| tally.on(*node)).collect();
    let extras = extras(&shared.group.machine(), id);
    let elsewhere = tally.copies() - actual.iter().sum::<u64>();
    let (away, on) = crate::copies::guests::count(&shared.group.snapshot(), Some(id));
    let guests = chain.nodes().iter().map(|node| on.get(node).copied().unwrap_or(0)).collect();
    let mut reply = pb::DescribeDatasetReply {
        chain: chain.nodes().iter().map(|node| node.raw()).collect(),
        spread: chain.spread(),
        min_active: chain.min_active(),
        blocks,
        target,
        actual,
        elsewhere,
        away,
        guests,
        extra_copies: extras.copies,
        extra_bytes: extras.bytes,
        dataset: Some(dataset),
        ..Default::default()
    };
    crate::allotment::describe(shared, id, &mut reply);
    Ok(reply)
}
