//! Datasets on expansion chains: which chain a new one gets, what lies on each, and how it is shown.
//!
//! What lies on a chain is counted, not logged: from the map when a master begins, then from every change of a set.
//! Placements that are on their way into the log count too, so that several writers do not fill the same gap.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_layout::restore::check_off;
use ebb_layout::{ChainView, LayoutKind};
use ebb_meta::Machine;
use ebb_power::chain::{ChainShape, DatasetChain, choose_chain, sum_scores};
use ebb_types::{DatasetId, NodeId, Result, bail};
use ebb_wire::pb;
use pb::meta_op::Op;

use crate::reserve::OnItsWay;
use crate::shared::{Shared, State};
use crate::soft::Soft;
use crate::view::nodes;

/// What belongs on each dataset's nodes, and who has guests.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    datasets: BTreeMap<DatasetId, Arc<ChainView>>,
    /// Copies of all datasets that are guests on a node.
    guests: BTreeMap<NodeId, u64>,
    /// Copies that belong to a node and lie elsewhere.
    away: BTreeMap<NodeId, u64>,
    /// Placements that are on their way into the log, by number: a chain that is counted anew counts them, too.
    promised: BTreeMap<u64, (DatasetId, Vec<pb::Member>)>,
    next_promise: u64,
}

impl Chains {
    /// As the map has it.
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

    /// A dataset was made, or set anew.
    pub(crate) fn on_dataset(&mut self, dataset: &pb::Dataset) {
        let id = DatasetId::new(dataset.id);
        if !self.datasets.contains_key(&id)
            && let Ok(chain) = view(dataset)
        {
            self.datasets.insert(id, Arc::new(chain));
        }
    }

    /// What lies on a dataset's chain; none for a dataset that is not known.
    pub(crate) fn chain(&self, dataset: DatasetId) -> Option<Arc<ChainView>> {
        self.datasets.get(&dataset).cloned()
    }

    /// Whether some node of a chain has not its share, near as online placement comes.
    pub(crate) fn is_uneven(&self) -> bool {
        self.datasets.values().any(|chain| check_off(chain) > 0)
    }

    /// A node has another's place: which copy is a primary goes by the chain, so it is counted anew.
    pub(crate) fn on_replaced(&mut self, machine: &Machine, replace: &pb::ReplaceInChain) {
        let (id, gone, by) = (DatasetId::new(replace.dataset), NodeId::new(replace.gone), NodeId::new(replace.by));
        let replaced = self.datasets.get(&id).map(|chain| chain.replaced(gone, by));
        let Some(Ok(mut chain)) = replaced else { return };
        let recorded = machine.placed().filter(|(dataset, _, _)| *dataset == id).map(|(_, _, members)| members);
        let promised = self.promised.values().filter(|(dataset, _)| *dataset == id).map(|(_, members)| &members[..]);
        recorded.chain(promised).for_each(|members| chain.add(&homes(members)));
        self.datasets.insert(id, Arc::new(chain));
    }

    /// The set of a metablock changed.
    pub(crate) fn on_set_changed(&mut self, dataset: DatasetId, old: &[pb::Member], new: &[pb::Member]) {
        self.remove(dataset, old);
        self.add(dataset, new);
    }

    /// How many guests each node has.
    pub(crate) fn guests(&self) -> &BTreeMap<NodeId, u64> {
        &self.guests
    }

    /// How many copies of each node are guests elsewhere.
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
    if let Some(count) = counts.get_mut(&node) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&node);
        }
    }
}

/// Where copies belong: the targets are those of full power.
fn homes(members: &[pb::Member]) -> Vec<NodeId> {
    members.iter().map(pb::Member::home_id).collect()
}

/// A dataset's chain with nothing on it; of one without, an empty one that counts all the same.
fn view(dataset: &pb::Dataset) -> Result<ChainView> {
    let layout = dataset.layout.parse::<LayoutKind>()?;
    if !layout.has_chain() {
        return Ok(ChainView::uncharted(layout, dataset.replicas));
    }
    let order = dataset.chain.iter().copied().map(NodeId::new).collect();
    ChainView::new(layout, order, dataset.primaries, dataset.gear_size, dataset.replicas)
}

/// A dataset's chain and what lies on it.
pub(crate) fn of(soft: &Soft, dataset: &pb::Dataset) -> Result<Arc<ChainView>> {
    match soft.chains.datasets.get(&DatasetId::new(dataset.id)) {
        Some(chain) => Ok(Arc::clone(chain)),
        None => bail!(Internal, "nothing is known of the expansion chain of dataset {}", dataset.path),
    }
}

/// A placement that is not recorded yet: it counts until this is dropped.
pub(crate) struct Promise {
    state: Arc<State>,
    /// Where what belongs to whom is counted, by number.
    counted: Option<u64>,
    on_its_way: OnItsWay,
}

/// Counts a placement that is on its way into the log, of a metablock for which so many bytes are to be written.
pub(crate) fn promise(shared: &Shared, dataset: &pb::Dataset, members: &[pb::Member], bytes: u64) -> Promise {
    let id = DatasetId::new(dataset.id);
    let mut soft = shared.soft();
    let on_its_way = soft.room.expect(members, bytes);
    let chains = &mut soft.chains;
    let has_chain = chains.datasets.get(&id).is_some_and(|chain| chain.layout().has_chain());
    let mut counted = None;
    if has_chain || members.iter().any(pb::Member::is_guest) {
        chains.add(id, members);
        let number = chains.next_promise;
        chains.next_promise += 1;
        chains.promised.insert(number, (id, members.to_vec()));
        counted = Some(number);
    }
    drop(soft);
    Promise { state: Arc::clone(&shared.state), counted, on_its_way }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let mut soft = self.state.soft();
        soft.room.forget_expected(&self.on_its_way);
        let Some(number) = self.counted.take() else { return };
        let chains = &mut soft.chains;
        if let Some((dataset, members)) = chains.promised.remove(&number) {
            chains.remove(dataset, &members);
        }
    }
}

/// The dataset as the power manager sees it: one without a chain lies anywhere.
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

/// The dataset with the nodes that its copies may lie on, in the order in which they are switched on.
pub(crate) fn charted(dataset: &pb::Dataset, all: &[u64]) -> pb::Dataset {
    let mut charted = dataset.clone();
    if charted.chain.is_empty() {
        charted.chain = all.to_vec();
        charted.replicas = charted.replicas.min(u32::try_from(all.len()).unwrap_or(u32::MAX)).max(1);
    }
    charted
}

/// Copies that there can be: a cluster may have fewer nodes than its default dataset wants copies.
fn least(replicas: u32, all: &[NodeId]) -> u32 {
    replicas.min(u32::try_from(all.len()).unwrap_or(u32::MAX)).max(1)
}

fn all_nodes(machine: &Machine) -> Vec<NodeId> {
    nodes(machine).map(|node| NodeId::new(node.id)).collect()
}

/// Chooses what a command about datasets leaves to the leader, and refuses settings that cannot be.
pub(crate) fn complete(shared: &Shared, mut request: pb::MetaRequest) -> Result<pb::MetaRequest> {
    match request.op.as_mut().and_then(|op| op.op.as_mut()) {
        Some(Op::CreateDataset(create)) => {
            if let Some(dataset) = &mut create.dataset {
                complete_dataset(&shared.group.machine(), dataset)?;
            }
        }
        Some(Op::SetDataset(set)) => check_set(&shared.group.machine(), set)?,
        _ => {}
    }
    Ok(request)
}

/// Nodes that are to have data.
pub(crate) fn nodes_in_use(machine: &Machine) -> impl Iterator<Item = NodeId> + '_ {
    let usable = machine.nodes().filter(|record| !record.draining).filter_map(|record| record.node.as_ref());
    usable.map(|node| NodeId::new(node.id))
}

/// Nodes by ascending score: what is early in one chain is late in others (Rabbit, Sec. 3.4).
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
    let nodes: Vec<NodeId> = nodes_in_use(machine).collect();
    let others: Vec<DatasetChain> = machine
        .datasets()
        .filter(|dataset| !dataset.chain.is_empty() && !dataset.path.is_empty())
        .filter_map(|dataset| power_chain(dataset, &nodes).ok())
        .collect();
    let mut order = choose_chain(nodes, &sum_scores(&others));
    if layout == LayoutKind::PowerBalanced {
        // A circle goes by the order in which nodes wake.
        order.sort_unstable();
    }
    asked.chain = order.iter().map(|node| node.raw()).collect();
    if asked.replicas == 0 {
        asked.replicas = default.replicas;
    }
    view(asked).map_err(|error| error.context(format_args!("dataset {}", asked.path)))?;
    let mut chain = power_chain(asked, &order)?;
    chain.set_wanted(Some(asked.active).filter(|active| *active > 0))?;
    Ok(())
}

fn check_set(machine: &Machine, set: &pb::meta_op::SetDataset) -> Result<()> {
    let Some(active) = set.active.filter(|active| *active > 0) else { return Ok(()) };
    let Some(dataset) = machine.dataset(DatasetId::new(set.dataset)) else { return Ok(()) };
    power_chain(dataset, &all_nodes(machine))?
        .set_wanted(Some(active))
        .map(drop)
        .map_err(|error| error.context(format_args!("dataset {}", dataset.path)))
}

/// How many extra copies the metablocks of a dataset have, and their bytes.
fn extras(machine: &Machine, dataset: DatasetId) -> (u64, u64) {
    let of_dataset = machine
        .all_extras()
        .filter(|(inode, _, _)| machine.attr(*inode).is_ok_and(|attr| attr.dataset == dataset.raw()));
    of_dataset.fold((0, 0), |(copies, bytes), (_, metablock, extras)| {
        let length = machine.find_metablock(metablock).map_or(0, |(_, record)| record.length);
        (copies + extras.len() as u64, bytes + length * extras.len() as u64)
    })
}

/// Answers `DescribeDataset`.
pub(crate) fn describe(shared: &Shared, call: &pb::DescribeDataset) -> Result<pb::DescribeDatasetReply> {
    let id = DatasetId::new(call.dataset);
    let (dataset, chain) = {
        let machine = shared.group.machine();
        let Some(dataset) = machine.dataset(id).cloned() else { bail!(NotFound, "there is no dataset {id}") };
        let chain = power_chain(&dataset, &all_nodes(&machine))?;
        (dataset, chain)
    };
    let tally = of(&shared.soft(), &dataset)?.tally.clone();
    let blocks = tally.blocks();
    let target = if blocks == 0 { vec![0; chain.nodes().len()] } else { chain.target(blocks)? };
    let actual: Vec<u64> = chain.nodes().iter().map(|node| tally.on(*node)).collect();
    let (extra_copies, extra_bytes) = extras(&shared.group.machine(), id);
    let elsewhere = tally.copies() - actual.iter().sum::<u64>();
    let (away, on) = crate::copies::guests::tell(&shared.group.snapshot(), Some(id));
    let guests = chain.nodes().iter().map(|node| on.get(node).copied().unwrap_or(0)).collect();
    Ok(pb::DescribeDatasetReply {
        chain: chain.nodes().iter().map(|node| node.raw()).collect(),
        spread: chain.spread(),
        min_active: chain.min_active(),
        blocks,
        target,
        actual,
        elsewhere,
        away,
        guests,
        extra_copies,
        extra_bytes,
        dataset: Some(dataset),
    })
}
