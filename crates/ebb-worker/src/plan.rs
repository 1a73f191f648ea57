//! Which worker counts which split: pure, one split after the other, so that a tree of any size streams through.

use std::collections::{BTreeMap, BTreeSet};

use ebb_layout::{Distance, SubRacks};
use ebb_types::{BLOCK_SIZE_DEFAULT, HostName, METABLOCK_SIZE_DEFAULT};
use ebb_wire::{Message, convert, pb};

/// Whether work goes to its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locality {
    /// To a host that holds a replica, the least loaded of them (metablocks paper, G1). If none runs a worker: to the sub-rack of
    /// a localized storage node that holds one, else to the rack of one.
    Located,
    /// To the least loaded host that holds none, if there is one: as a scheduler that knows no locations does at its
    /// unluckiest; for comparison.
    Blind,
}

/// Bounds of one call to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchLimits {
    /// Splits.
    pub splits_max: usize,
    /// Bytes to read. A larger split goes alone.
    pub bytes_max: u64,
    /// Bytes of the request message.
    pub message_bytes_max: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { splits_max: 512, bytes_max: 16 << 20, message_bytes_max: 1 << 20 }
    }
}

/// A split and the attempts at it.
#[derive(Clone, PartialEq, Debug)]
pub struct Work {
    /// The split, as the worker gets it.
    pub split: pb::Split,
    /// Where it is to be done, as indexes of workers: near the replicas of its first metablock. If nodes of some of them serve
    /// the file's dataset alone, it is near these ([`Planner::set_serving`]).
    pub holders: Vec<usize>,
    /// How near they are: on the same host, or in the sub-rack.
    pub nearness: Distance,
    /// Workers in racks of the replicas, if there are no holders.
    pub in_racks: Vec<usize>,
    /// Workers that failed with it.
    pub tried: BTreeSet<usize>,
}

/// Splits for one call to one worker.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Batch {
    /// Index of the worker.
    pub worker: usize,
    /// In the order in which they were placed.
    pub work: Vec<Work>,
    /// Bytes to read.
    pub bytes: u64,
    message_bytes: usize,
}

/// A file as the walk found it.
#[derive(Clone, PartialEq, Debug)]
pub struct FoundFile {
    /// Its inode number.
    pub inode: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Unit of reading.
    pub block_size: u64,
    /// Unit of placement.
    pub metablock_size: u64,
    /// Its dataset.
    pub dataset: u64,
    /// Its map, by index; holes are left out.
    pub metablocks: Vec<pb::Metablock>,
}

/// Places splits on workers and gathers them into batches.
#[derive(Clone, Debug)]
pub struct Planner {
    locality: Locality,
    limits: BatchLimits,
    workers: Vec<Slot>,
    /// Workers' indexes by the node whose replicas are near them. A host may run several workers.
    by_node: BTreeMap<u64, Near>,
    /// The dataset that a node serves alone.
    serving: BTreeMap<u64, u64>,
}

/// Workers by their distance from a node.
#[derive(Clone, Debug, Default)]
struct Near {
    host: Vec<usize>,
    sub_rack: Vec<usize>,
    rack: Vec<usize>,
}

impl Near {
    fn of(sub_racks: &SubRacks, workers: &[HostName], node: &pb::Node) -> Self {
        let mut near = Self::default();
        for (index, host) in workers.iter().enumerate() {
            match sub_racks.distance(host.as_str(), &node.host) {
                Distance::Host => near.host.push(index),
                Distance::SubRack => near.sub_rack.push(index),
                Distance::Rack => near.rack.push(index),
                Distance::Far => {}
            }
        }
        near
    }

    fn at(&self, distance: Distance) -> &[usize] {
        match distance {
            Distance::Host => &self.host,
            Distance::SubRack => &self.sub_rack,
            Distance::Rack => &self.rack,
            Distance::Far => &[],
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Slot {
    /// Bytes placed so far.
    load: u64,
    is_dead: bool,
    power: HostPower,
    open: Batch,
}

/// Power of a worker's host. The one that is better for new work is less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum HostPower {
    /// It serves.
    #[default]
    Awake,
    /// It sleeps, and wakes by itself.
    Asleep,
    /// It is switched off, until further notice.
    Off,
}

/// Least load that a split counts for: opening a file costs, too.
const SPLIT_COST: u64 = 16 << 10;

impl Work {
    /// A split that nobody has tried, near no worker.
    #[must_use]
    pub fn new(split: pb::Split) -> Self {
        Self { split, holders: Vec::new(), nearness: Distance::Far, in_racks: Vec::new(), tried: BTreeSet::new() }
    }

    /// How near a worker is to its replicas; far if it is none of the holders.
    #[must_use]
    pub fn nearness_of(&self, worker: usize) -> Distance {
        if self.holders.contains(&worker) { self.nearness } else { Distance::Far }
    }

    /// Bytes that it counts for.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.split.length.max(SPLIT_COST)
    }

    /// Bytes of it in a call.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        self.split.encoded_len() + 4
    }
}

impl Batch {
    /// An empty one for a worker.
    #[must_use]
    pub fn of(worker: usize) -> Self {
        Self { worker, ..Self::default() }
    }

    /// Adds a split.
    pub fn add(&mut self, work: Work) {
        self.bytes += work.bytes();
        self.message_bytes += work.message_bytes();
        self.work.push(work);
    }

    /// Removes the split at a place.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn remove(&mut self, place: usize) -> Work {
        let work = self.work.remove(place);
        self.bytes -= work.bytes();
        self.message_bytes -= work.message_bytes();
        work
    }

    /// Moves the first splits, as many as there are of so many, to a batch for the same worker.
    #[must_use]
    pub fn take_front(&mut self, count: usize) -> Self {
        let mut front = Self::of(self.worker);
        for work in self.work.drain(..count.min(self.work.len())) {
            front.add(work);
        }
        self.bytes -= front.bytes;
        self.message_bytes -= front.message_bytes;
        front
    }
}

impl Planner {
    /// A planner for workers on these hosts, and nodes with theirs.
    #[must_use]
    pub fn new(locality: Locality, limits: BatchLimits, workers: &[HostName], nodes: &[pb::Node]) -> Self {
        let sub_racks = SubRacks::new(nodes.iter().map(pb::Node::declared));
        let slot = |worker| Slot { open: Batch::of(worker), ..Slot::default() };
        Self {
            locality,
            limits,
            workers: (0..workers.len()).map(slot).collect(),
            by_node: nodes.iter().map(|node| (node.id, Near::of(&sub_racks, workers, node))).collect(),
            serving: convert::serving(nodes),
        }
    }

    /// Follows the allotment of nodes to datasets. True: it is another one than before, so work that waits may belong
    /// elsewhere.
    pub fn set_serving(&mut self, nodes: &[pb::Node]) -> bool {
        let before = std::mem::replace(&mut self.serving, convert::serving(nodes));
        before != self.serving
    }

    /// Finds the holders of a split that waits, by the allotment of now. True: it may go on to wait for this worker, which
    /// is one of them. So may one without holders, and one that came without its map.
    pub fn renew_holders(&self, work: &mut Work, worker: usize) -> bool {
        let split = &work.split;
        let size = if split.metablock_size == 0 { METABLOCK_SIZE_DEFAULT } else { split.metablock_size };
        let own = split.metablocks.iter().find(|metablock| metablock.index == split.offset / size);
        let Some(members) = own.map(|own| own.members.clone()) else { return true };
        self.set_holders(work, &members);
        work.holders.is_empty() || work.holders.contains(&worker)
    }

    /// The workers that are nearest to these members.
    fn set_holders(&self, work: &mut Work, members: &[pb::Member]) {
        let near = |distance| self.workers_near(work.split.dataset, members, distance);
        let levels = [Distance::Host, Distance::SubRack].map(|distance| (distance, near(distance)));
        let nearest = levels.into_iter().find(|(_, workers)| !workers.is_empty());
        let in_racks = if nearest.is_none() { near(Distance::Rack) } else { Vec::new() };
        (work.nearness, work.holders) = nearest.unwrap_or((Distance::Far, Vec::new()));
        work.in_racks = in_racks;
    }

    /// Workers at this distance from these members. A node that serves another dataset counts only if there is no other.
    fn workers_near(&self, dataset: Option<u64>, members: &[pb::Member], distance: Distance) -> Vec<usize> {
        let workers = |is_meant: &dyn Fn(u64) -> bool| {
            let nodes = members.iter().map(|member| member.node).filter(|node| is_meant(*node));
            let near = nodes.filter_map(|node| self.by_node.get(&node)).flat_map(|near| near.at(distance));
            let workers: BTreeSet<usize> = near.copied().collect();
            workers.into_iter().collect::<Vec<usize>>()
        };
        let has_nodes = self.serving.values().any(|serves| Some(*serves) == dataset);
        let is_own = |node: u64| self.serving.get(&node).is_none_or(|serves| Some(*serves) == dataset);
        let own = if has_nodes { workers(&is_own) } else { Vec::new() };
        if own.is_empty() { workers(&|_| true) } else { own }
    }

    /// The splits of a file: one for each metablock.
    #[must_use]
    pub fn splits(&self, file: &FoundFile) -> Vec<Work> {
        if file.metablock_size == 0 {
            return Vec::new();
        }
        (0..file.size.div_ceil(file.metablock_size)).map(|index| self.split(file, index)).collect()
    }

    fn split(&self, file: &FoundFile, index: u64) -> Work {
        // A grant without a write is a hole: no node has a byte of it.
        let near = |metablock: &&pb::Metablock| index.abs_diff(metablock.index) <= 1 && metablock.is_written();
        let metablocks = match self.locality {
            Locality::Located => file.metablocks.iter().filter(near).cloned().collect(),
            // The worker looks the file up by itself.
            Locality::Blind => Vec::new(),
        };
        let unless_default = |value, default| if value == default { 0 } else { value };
        let offset = index * file.metablock_size;
        let own = file.metablocks.iter().find(|metablock| metablock.index == index && metablock.is_written());
        let members = own.map_or(&[][..], |metablock| &metablock.members);
        let split = pb::Split {
            inode: file.inode,
            offset,
            length: file.metablock_size.min(file.size - offset),
            file_size: file.size,
            metablock_size: unless_default(file.metablock_size, METABLOCK_SIZE_DEFAULT),
            block_size: unless_default(file.block_size, BLOCK_SIZE_DEFAULT),
            metablocks,
            dataset: Some(file.dataset),
        };
        let mut work = Work::new(split);
        self.set_holders(&mut work, members);
        work
    }

    /// Places a split; returns the batches that are full now. `Err` gives the split back: no worker is left for it.
    pub fn place(&mut self, work: Work) -> Result<Vec<Batch>, Box<Work>> {
        let Some(worker) = self.choose_worker(&work) else { return Err(Box::new(work)) };
        let (limits, slot) = (self.limits, &mut self.workers[worker]);
        slot.load += work.bytes();
        let mut full = Vec::new();
        if slot.open.bytes + work.bytes() > limits.bytes_max
            || slot.open.message_bytes + work.message_bytes() > limits.message_bytes_max
        {
            full.extend(slot.take_batch());
        }
        slot.open.add(work);
        if slot.open.work.len() >= limits.splits_max || slot.open.bytes >= limits.bytes_max {
            full.extend(slot.take_batch());
        }
        Ok(full)
    }

    /// The batches that are not full.
    pub fn finish(&mut self) -> Vec<Batch> {
        self.workers.iter_mut().filter_map(Slot::take_batch).collect()
    }

    /// Gives a worker up; returns the batch that was gathered for it.
    pub fn bury(&mut self, worker: usize) -> Option<Batch> {
        let slot = &mut self.workers[worker];
        slot.is_dead = true;
        slot.take_batch()
    }

    /// The power of a worker's host has changed. Returns the batch that was gathered for one that does not serve now:
    /// others may count it sooner. If none serves, it waits for the first that does.
    pub fn set_power(&mut self, worker: usize, power: HostPower) -> Option<Batch> {
        let slot = &mut self.workers[worker];
        slot.power = power;
        if power == HostPower::Awake { None } else { slot.take_batch() }
    }

    /// Power of a worker's host, as set last.
    #[must_use]
    pub fn power(&self, worker: usize) -> HostPower {
        self.workers[worker].power
    }

    /// Whether a worker was given up.
    #[must_use]
    pub fn is_dead(&self, worker: usize) -> bool {
        self.workers[worker].is_dead
    }

    /// The least loaded of the workers that locality prefers, else of all that have not failed with it. Those that serve
    /// now come first, and those that are switched off come last.
    fn choose_worker(&self, work: &Work) -> Option<usize> {
        let choose = |is_fit: fn(&Slot) -> bool| self.choose_among(work, is_fit);
        choose(|slot| slot.power != HostPower::Off).or_else(|| choose(|_| true))
    }

    fn choose_among(&self, work: &Work, is_fit: impl Fn(&Slot) -> bool) -> Option<usize> {
        let may = |slot: &Slot| !slot.is_dead && is_fit(slot);
        let open =
            || (0..self.workers.len()).filter(|worker| may(&self.workers[*worker]) && !work.tried.contains(worker));
        let rank = |worker: &usize| (self.workers[*worker].power, self.workers[*worker].load);
        let holds = |worker: &usize| work.holders.contains(worker);
        let preferred = match self.locality {
            Locality::Located => {
                let in_racks = || open().filter(|worker| work.in_racks.contains(worker)).min_by_key(rank);
                open().filter(holds).min_by_key(rank).or_else(in_racks)
            }
            Locality::Blind => open().filter(|worker| !holds(worker)).min_by_key(rank),
        };
        preferred.or_else(|| open().min_by_key(rank))
    }
}

impl Slot {
    fn take_batch(&mut self) -> Option<Batch> {
        let empty = Batch::of(self.open.worker);
        let batch = std::mem::replace(&mut self.open, empty);
        (!batch.work.is_empty()).then_some(batch)
    }
}

/// Whether the map of a file may have more than was brought along.
#[must_use]
pub(crate) fn map_may_go_on(file: &FoundFile) -> bool {
    file.metablock_size > 0 && (file.metablocks.len() as u64) < file.size.div_ceil(file.metablock_size)
}

#[cfg(test)]
mod tests;
