//! One job on one cluster, from its first heartbeat to its last byte.
//!
//! Nodes report once a second and get as many maps as they have free slots, nearest data first, and up to two reducers.
//! A map runs its program (`program`). A reducer fetches its part of the output of finished maps, from up to five nodes
//! at a time. It merges to disk when its memory is full. When it has everything, it sorts, reduces and writes.

use ebb_types::{Result, bail};
use serde::Serialize;

use crate::app::App;
use crate::cluster::Cluster;
use crate::engine::{Engine, Event, Use};
use crate::layout::{self, Copy, InputLayout};
use crate::program::{self, Step, Work};
use crate::random::Random;
use crate::reducer::{Phase, Reducer};
use crate::site::{Busy, Host, Site, Way};
use crate::tracker::Tracker;

/// Results of a run of a job.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct JobReport {
    /// Seconds from the start to the end of the last task.
    pub seconds: f64,
    /// Seconds to the end of the last map.
    pub map_seconds: f64,
    /// Maps that read from a disk of their own node.
    pub local_maps: usize,
    /// Bytes that were carried, by purpose.
    pub bytes: Bytes,
    /// Utilization of the resources.
    pub busy: Busy,
    /// Events that the simulation went through.
    pub events: u64,
}

/// Bytes carried.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Bytes {
    /// Input of maps.
    pub input: f64,
    /// Shuffle data written, by maps and reducers.
    pub spilled: f64,
    /// Shuffle data read again by the task that wrote it.
    pub reread: f64,
    /// Shuffle data from maps to reducers.
    pub fetched: f64,
    /// Files written; copies count once.
    pub output: f64,
}

/// Options of a run beside the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobOptions {
    /// Seed of all random choices.
    pub seed: u64,
    /// Placement of the input.
    pub input: InputLayout,
}

/// Limit of a job's steps ([`effort`]): a million take about half a second.
pub const MOST_EFFORT: f64 = 1e9;

/// Simulates `app` on `cluster`.
///
/// # Errors
/// Invalid: a parameter is impossible; names the nearest possible value.
pub fn run(cluster: &Cluster, app: &App, options: JobOptions) -> Result<JobReport> {
    cluster.check()?;
    app.check()?;
    let steps = effort(cluster, app);
    if steps > MOST_EFFORT {
        bail!(
            Invalid,
            "{}: {} maps and {} reducers are {steps:.1e} steps to simulate, which takes too long; the nearest possible \
             number of steps is {MOST_EFFORT:.0e}",
            app.name,
            app.mappers,
            app.reducers
        );
    }
    let mut job = Job::new(cluster, app, options);
    while let Some(event) = job.engine.next_event() {
        job.events += 1;
        job.on_event(event);
        if job.is_over() {
            break;
        }
    }
    assert!(job.is_over(), "nothing is under way and the job has not ended");
    Ok(job.report())
}

/// Approximate number of steps and fetches in the simulation of a job.
#[must_use]
pub fn effort(cluster: &Cluster, app: &App) -> f64 {
    let (mappers, reducers) = (app.mappers as f64, app.reducers as f64);
    // Steps are estimated for one task and not listed, because their number may be huge.
    let per_map = (app.map_input_bytes / mappers / cluster.hardware.read_piece_bytes).ceil() * 2.0
        + (app.map_output_bytes / mappers / cluster.hardware.sort_buffer_bytes).ceil() * 3.0
        + 4.0;
    let per_reducer =
        ((app.map_output_bytes + app.reduce_output_bytes) / reducers.max(1.0) / cluster.hardware.block_bytes).ceil()
            * 6.0
            + 4.0;
    // A reducer fetches once from each node for each wave of maps, and from no more nodes than there are maps.
    let waves = (mappers / (cluster.nodes * cluster.map_slots) as f64).ceil();
    let fetches = mappers.min(waves * cluster.nodes as f64);
    mappers * per_map + reducers * (per_reducer + fetches)
}

/// The owner of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Heartbeat(usize),
    Map(usize),
    Reducer(usize),
    Merge(usize),
    Fetch { reducer: usize, node: usize },
}

impl Owner {
    const BITS: u32 = 30;

    const fn token(self) -> u64 {
        let (kind, high, low) = match self {
            Self::Heartbeat(node) => (0, 0, node),
            Self::Map(map) => (1, 0, map),
            Self::Reducer(reducer) => (2, 0, reducer),
            Self::Merge(reducer) => (3, 0, reducer),
            Self::Fetch { reducer, node } => (4, reducer, node),
        };
        (kind << (2 * Self::BITS)) | ((high as u64) << Self::BITS) | low as u64
    }

    const fn of(token: u64) -> Self {
        let mask = (1 << Self::BITS) - 1;
        let (high, low) = ((token >> Self::BITS & mask) as usize, (token & mask) as usize);
        match token >> (2 * Self::BITS) {
            0 => Self::Heartbeat(low),
            1 => Self::Map(low),
            2 => Self::Reducer(low),
            3 => Self::Merge(low),
            _ => Self::Fetch { reducer: high, node: low },
        }
    }
}

/// A list of steps under way.
#[derive(Clone, Debug, Default)]
struct Script {
    steps: std::vec::IntoIter<Step>,
    /// Flows of the step that have not ended.
    waiting: u32,
}

/// The task that starts a work.
#[derive(Debug)]
struct Task {
    node: usize,
    index: usize,
    source: Option<Copy>,
    /// Number of steps after this one, which identifies the step within its task.
    step: usize,
    owner: Owner,
}

#[derive(Debug)]
struct Map {
    node: usize,
    source: Copy,
    script: Script,
}

struct Job<'a> {
    cluster: &'a Cluster,
    app: &'a App,
    options: JobOptions,
    engine: Engine,
    site: Site,
    tracker: Tracker,
    maps: Vec<Option<Map>>,
    reducers: Vec<Option<Reducer>>,
    reducer_scripts: Vec<Script>,
    merge_scripts: Vec<Script>,
    /// Blocks written to each node. New ones go to nodes with fewer, and on a node to its disks in turn.
    blocks_on: Vec<usize>,
    /// Finished maps of each node.
    finished: Vec<usize>,
    maps_done: usize,
    reducers_done: usize,
    map_seconds: f64,
    local_maps: usize,
    bytes: Bytes,
    events: u64,
    route: Vec<Use>,
}

impl<'a> Job<'a> {
    fn new(cluster: &'a Cluster, app: &'a App, options: JobOptions) -> Self {
        let mut engine = Engine::new(cluster.quantum());
        let site = Site::new(cluster, &mut engine);
        for node in 0..cluster.nodes {
            let offset = cluster.hardware.heartbeat_secs * node as f64 / cluster.nodes as f64;
            engine.alarm(offset, Owner::Heartbeat(node).token());
        }
        let blocks = layout::place_input(cluster, &site, options.input, app.mappers, options.seed);
        Self {
            cluster,
            app,
            options,
            engine,
            tracker: Tracker::new(cluster, app, blocks),
            site,
            maps: (0..app.mappers).map(|_| None).collect(),
            reducers: (0..app.reducers).map(|_| None).collect(),
            reducer_scripts: vec![Script::default(); app.reducers],
            merge_scripts: vec![Script::default(); app.reducers],
            blocks_on: vec![0; cluster.nodes],
            finished: vec![0; cluster.nodes],
            maps_done: 0,
            reducers_done: 0,
            map_seconds: 0.0,
            local_maps: 0,
            bytes: Bytes::default(),
            events: 0,
            route: Vec::new(),
        }
    }

    const fn is_over(&self) -> bool {
        self.maps_done == self.app.mappers && self.reducers_done == self.app.reducers
    }

    fn report(self) -> JobReport {
        JobReport {
            seconds: self.engine.now(),
            map_seconds: self.map_seconds,
            local_maps: self.local_maps,
            bytes: self.bytes,
            busy: self.site.busy(&self.engine),
            events: self.events,
        }
    }

    fn on_event(&mut self, event: Event) {
        let (Event::Alarm(token) | Event::Done(token)) = event;
        match Owner::of(token) {
            Owner::Heartbeat(node) => self.on_heartbeat(node),
            Owner::Map(map) => self.on_map(map),
            Owner::Reducer(reducer) => self.on_reducer(reducer),
            Owner::Merge(reducer) => self.on_merge(reducer),
            Owner::Fetch { reducer, node } => self.on_fetched(reducer, node),
        }
    }

    fn on_heartbeat(&mut self, node: usize) {
        for (map, source) in self.tracker.maps_for(node, &self.site) {
            self.local_maps += usize::from(source.host == Host::Node(node));
            let steps = program::map(self.app, &self.cluster.hardware, self.spread(map as u64));
            self.maps[map] = Some(Map { node, source, script: Script::of(steps) });
            self.on_map(map);
        }
        for reducer in self.tracker.reducers_for(node, self.cluster.hardware.reducers_per_heartbeat) {
            self.reducers[reducer] = Some(Reducer::new(node, &self.finished));
            let steps = program::reduce_start(&self.cluster.hardware, self.reducer_spread(reducer));
            self.reducer_scripts[reducer] = Script::of(steps);
            self.on_reducer(reducer);
        }
        if !self.tracker.all_given() {
            let next = self.engine.now() + self.cluster.hardware.heartbeat_secs;
            self.engine.alarm(next, Owner::Heartbeat(node).token());
        }
    }

    /// The start of a map, or the end of one of its works.
    fn on_map(&mut self, index: usize) {
        let map = self.maps[index].as_mut().expect("it runs");
        let (node, source) = (map.node, map.source);
        if let Some((work, beside)) = map.script.advance() {
            let step = map.script.steps.len();
            let task = Task { node, index, source: Some(source), step, owner: Owner::Map(index) };
            let waiting = self.start_step((work, beside), &task);
            self.maps[index].as_mut().expect("it runs").script.waiting = waiting;
        } else if map.script.waiting == 0 {
            self.maps[index] = None;
            self.on_map_finished(node);
        }
    }

    fn on_map_finished(&mut self, node: usize) {
        self.tracker.map_ended(node);
        self.finished[node] += 1;
        self.maps_done += 1;
        self.map_seconds = self.engine.now();
        for index in 0..self.reducers.len() {
            if let Some(reducer) = self.reducers[index].as_mut() {
                reducer.map_finished(node);
                self.fetch_more(index);
            }
        }
    }

    /// The start of a reducer, or the end of one of its works that are not merges or fetches.
    fn on_reducer(&mut self, index: usize) {
        let script = &mut self.reducer_scripts[index];
        let node = self.reducers[index].as_ref().expect("it runs").node;
        if let Some((work, beside)) = script.advance() {
            let step = script.steps.len();
            let task = Task { node, index, source: None, step, owner: Owner::Reducer(index) };
            let waiting = self.start_step((work, beside), &task);
            self.reducer_scripts[index].waiting = waiting;
        } else if script.waiting == 0 {
            let reducer = self.reducers[index].as_mut().expect("it runs");
            if reducer.phase == Phase::Starting {
                reducer.phase = Phase::Fetching;
                self.fetch_more(index);
            } else {
                self.reducers[index] = None;
                self.reducers_done += 1;
                self.tracker.reducer_ended(node);
            }
        }
    }

    fn fetch_more(&mut self, index: usize) {
        let part = self.app.map_output_bytes / (self.app.mappers * self.app.reducers) as f64;
        let hardware = &self.cluster.hardware;
        let reducer = self.reducers[index].as_mut().expect("it runs");
        let target = reducer.node;
        while let Some((source, maps)) = reducer.next_fetch(hardware.copiers, 2.0 * hardware.merge_buffer_bytes) {
            let bytes = part * maps as f64;
            self.bytes.fetched += bytes;
            self.route.clear();
            self.site.shuffle(source, index, Way::Read, &mut self.route);
            self.site.pass(Host::Node(source), Host::Node(target), &mut self.route);
            let owner = Owner::Fetch { reducer: index, node: source };
            self.engine.start(bytes, f64::INFINITY, &self.route, owner.token());
        }
    }

    fn on_fetched(&mut self, index: usize, source: usize) {
        let part = self.app.map_output_bytes / (self.app.mappers * self.app.reducers) as f64;
        let reducer = self.reducers[index].as_mut().expect("it runs");
        reducer.fetched(source, part);
        if reducer.merging == 0.0 && reducer.held >= self.cluster.hardware.merge_buffer_bytes {
            self.start_merge(index);
        }
        self.fetch_more(index);
        self.end_fetching(index);
    }

    fn start_merge(&mut self, index: usize) {
        let spread = self.reducer_spread(index);
        let reducer = self.reducers[index].as_mut().expect("it runs");
        reducer.merging = std::mem::take(&mut reducer.held);
        self.merge_scripts[index] = Script::of(program::merge(&self.cluster.hardware, reducer.merging, spread));
        self.on_merge(index);
    }

    fn on_merge(&mut self, index: usize) {
        let reducer = self.reducers[index].as_mut().expect("it runs");
        let node = reducer.node;
        let script = &mut self.merge_scripts[index];
        if let Some((work, beside)) = script.advance() {
            let step = script.steps.len();
            let task = Task { node, index, source: None, step, owner: Owner::Merge(index) };
            let waiting = self.start_step((work, beside), &task);
            self.merge_scripts[index].waiting = waiting;
        } else if script.waiting == 0 {
            reducer.merging = 0.0;
            if reducer.held >= self.cluster.hardware.merge_buffer_bytes {
                self.start_merge(index);
            }
            self.fetch_more(index);
            self.end_fetching(index);
        }
    }

    /// Goes on when everything has been fetched: the bytes in memory go to disk, then the last part begins.
    fn end_fetching(&mut self, index: usize) {
        let reducer = self.reducers[index].as_mut().expect("it runs");
        if reducer.phase != Phase::Fetching || reducer.fetched_maps < self.app.mappers || reducer.merging > 0.0 {
            return;
        }
        if reducer.held > 0.0 {
            self.start_merge(index);
            return;
        }
        reducer.phase = Phase::Reducing;
        let spread = self.reducer_spread(index);
        self.reducer_scripts[index] = Script::of(program::reduce_end(self.app, &self.cluster.hardware, spread));
        self.on_reducer(index);
    }

    /// Starts the works of a step. Returns the number of their flows.
    fn start_step(&mut self, step: Step, task: &Task) -> u32 {
        self.start(step.0, task) + step.1.map_or(0, |beside| self.start(beside, task))
    }

    fn start(&mut self, work: Work, task: &Task) -> u32 {
        let (node, owner) = (task.node, task.owner);
        let mut route = std::mem::take(&mut self.route);
        route.clear();
        let mut limit = f64::INFINITY;
        let amount = match work {
            Work::Cycles(cycles) => {
                limit = self.cluster.hardware.core_hertz;
                route.push(self.site.cores(node));
                cycles
            }
            Work::ReadInput(bytes) => {
                self.bytes.input += bytes;
                let source = task.source.expect("a map that reads has an input");
                self.read_from(source, node, &mut route);
                bytes
            }
            Work::Spill(bytes) => {
                self.bytes.spilled += bytes;
                self.site.shuffle(node, task.index, Way::Write, &mut route);
                bytes
            }
            Work::ReadSpill(bytes) => {
                self.bytes.reread += bytes;
                self.site.shuffle(node, task.index, Way::Read, &mut route);
                bytes
            }
            Work::Output(bytes) => {
                self.bytes.output += bytes;
                self.route = route;
                return self.write(bytes, task);
            }
        };
        self.engine.start(amount, limit, &route, owner.token());
        self.route = route;
        1
    }

    fn read_from(&self, source: Copy, node: usize, route: &mut Vec<Use>) {
        match source.host {
            Host::Node(holder) => self.site.file_disk(holder, source.disk, Way::Read, route),
            Host::Store(store) => self.site.array(store, Way::Read, route),
        }
        self.site.pass(source.host, Host::Node(node), route);
    }

    /// A pipeline over the network, and beside it each copy's disk: block servers have memory for a block.
    fn write(&mut self, bytes: f64, task: &Task) -> u32 {
        let copies = self.place_output(task);
        let mut from = Host::Node(task.node);
        let mut flows = 0;
        let mut start = |engine: &mut Engine, route: &[Use]| {
            if !route.is_empty() {
                engine.start(bytes, f64::INFINITY, route, task.owner.token());
                flows += 1;
            }
        };
        let mut route = std::mem::take(&mut self.route);
        route.clear();
        for copy in &copies {
            self.site.pass(from, copy.host, &mut route);
            from = copy.host;
        }
        start(&mut self.engine, &route);
        for copy in &copies {
            route.clear();
            match copy.host {
                Host::Node(holder) => self.site.file_disk(holder, copy.disk, Way::Write, &mut route),
                Host::Store(store) => self.site.array(store, Way::Write, &mut route),
            }
            start(&mut self.engine, &route);
        }
        self.route = route;
        flows
    }

    fn place_output(&mut self, task: &Task) -> Vec<Copy> {
        if self.site.store_count() > 0 {
            let home = self.site.store_of(task.node);
            return layout::place_on_stores(home, self.cluster.lsn_replicas, self.site.store_count());
        }
        // The key is the block's number within its task, so that no other task's timing changes it.
        let mut random = Random::new(self.options.seed ^ task.owner.token(), task.step as u64);
        let nodes = layout::replica_nodes(self.cluster, task.node, &self.blocks_on, &mut random);
        nodes
            .into_iter()
            .map(|node| {
                self.blocks_on[node] += 1;
                Copy { host: Host::Node(node), disk: node + self.blocks_on[node] }
            })
            .collect()
    }

    /// Factor on the duration of a task's works. It depends only on the seed and the task.
    fn spread(&self, key: u64) -> f64 {
        Random::new(self.options.seed ^ 0x5eed, key).spread(self.cluster.hardware.work_spread)
    }

    fn reducer_spread(&self, reducer: usize) -> f64 {
        self.spread((1 << 40) | reducer as u64)
    }
}

impl Script {
    fn of(steps: Vec<Step>) -> Self {
        Self { steps: steps.into_iter(), waiting: 0 }
    }

    /// A work has ended, or none has begun. Returns the next step if the present one is over.
    fn advance(&mut self) -> Option<Step> {
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting > 0 {
            return None;
        }
        let step = self.steps.next()?;
        Some(step)
    }
}

#[cfg(test)]
mod tests;
