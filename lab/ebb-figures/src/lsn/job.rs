//! One job on a bed, from its first heartbeat to its last byte.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_layout::Distance;
use ebb_runtime::virt::World;
use ebb_sim::program;
use ebb_sim::random::Random;
use ebb_sim::{App, Cluster};
use ebb_types::{Credentials, Error, InodeId, Result};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::bed::{Bed, Host, SCALE};
use super::shuffle::{Fetching, Part, Share, deal};
use super::stream::{ROUNDING, Writer};
use super::task::{Task, Written};
use super::tracker::{Choice, Tracker};

/// How a job went.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct JobTimes {
    /// From the first heartbeat to the end of the last task.
    pub seconds: f64,
    /// The same to the end of the last map.
    pub map_seconds: f64,
    /// Maps with their data in their sub-rack, or nearer.
    pub near_maps: usize,
    /// Bytes that tasks sent and received between hosts, as they are stored.
    pub network_bytes: u64,
    /// Of these, the bytes within sub-racks.
    pub sub_rack_bytes: u64,
    /// Members that took too long for a write, so that others were written in their place.
    pub replaced: u64,
}

/// Input of jobs: one file for each map.
#[derive(Clone, Debug)]
pub struct Input {
    /// In the order of the maps.
    pub files: Vec<Written>,
}

impl Input {
    /// Its bytes, as they are stored.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

struct State {
    tracker: Tracker,
    maps_done: usize,
    reducers_done: usize,
    maps_ended: Duration,
    ended: Duration,
    failed: Option<Error>,
}

struct Job {
    world: World,
    spec: Cluster,
    app: App,
    seed: u64,
    hosts: Vec<Host>,
    /// Of shuffle data and of output.
    directories: (InodeId, InodeId),
    input: Vec<Written>,
    shares: Vec<Vec<Share>>,
    fetching: Vec<Arc<Fetching>>,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

/// Writes the input of a job, a file for each map. Hosts take turns, each writes its files, and all write at once.
pub async fn write_input(bed: &Bed, app: &App) -> Result<Option<Input>> {
    if app.map_input_bytes <= 0.0 {
        return Ok(None);
    }
    let name = format!("input-{}-{}", app.mappers, app.map_input_bytes as u64);
    let directory = make_dir(bed, bed.data, &name).await?;
    let bytes = app.map_input_bytes / app.mappers as f64;
    let mut writers = Vec::new();
    for (first, host) in bed.hosts.iter().enumerate() {
        let (host, step, mappers) = (host.clone(), bed.hosts.len(), app.mappers);
        writers.push(host.runtime.clone().spawn("write input", async move {
            let mut files = Vec::new();
            for map in (first..mappers).step_by(step) {
                let mut file = Writer::create(&host.client, directory, &format!("f{map}")).await?;
                let inode = file.inode;
                file.append(bytes).await?;
                files.push((map, Written { inode, size: file.close_synced().await? }));
            }
            Ok::<_, Error>(files)
        }));
    }
    let mut files = BTreeMap::new();
    for writer in writers {
        files.extend(writer.join().await??);
    }
    Ok(Some(Input { files: files.into_values().collect() }))
}

async fn make_dir(bed: &Bed, parent: InodeId, name: &str) -> Result<InodeId> {
    let new = ebb_client::NewName { parent, name: name.as_bytes(), mode: 0o755, umask: 0 };
    Ok(bed.hosts[0].client.make_dir(&Credentials::root(), new).await?.inode)
}

/// Distance of each map's nearest copy from each host.
async fn distances(bed: &Bed, input: &Input) -> Result<Vec<Vec<Distance>>> {
    let scheduler = &bed.hosts[0].client;
    let sub_racks = scheduler.sub_racks();
    let mut all = Vec::new();
    for file in &input.files {
        let located = scheduler.locations(file.inode).await?;
        let holders = located.first().map(|place| place.hosts.clone()).unwrap_or_default();
        let nearest = |host: &Host| {
            holders.iter().map(|holder| sub_racks.distance(&host.name, holder.as_str())).min().unwrap_or(Distance::Far)
        };
        all.push(bed.hosts.iter().map(nearest).collect());
    }
    Ok(all)
}

/// Runs a job, and removes what it has written.
pub async fn run(bed: &Bed, app: &App, input: Option<&Input>, choice: Choice, seed: u64) -> Result<JobTimes> {
    let directories = (make_dir(bed, bed.scratch, "job").await?, make_dir(bed, bed.data, "job").await?);
    let distances = match input {
        Some(input) => distances(bed, input).await?,
        None => Vec::new(),
    };
    let stored = app.map_output_bytes / app.mappers as f64 / SCALE as f64;
    let began = bed.world.now();
    let (carried, replaced) = (bed.carried(), bed.replaced());
    let job = Arc::new(Job {
        world: bed.world.clone(),
        spec: bed.spec.clone(),
        app: app.clone(),
        seed,
        hosts: bed.hosts.clone(),
        directories,
        input: input.map(|input| input.files.clone()).unwrap_or_default(),
        shares: deal(app.mappers, app.reducers, (stored - ROUNDING).ceil() as u64),
        fetching: (0..app.reducers).map(|_| Arc::new(Fetching::new(app.mappers, &bed.spec.hardware))).collect(),
        state: Mutex::new(State {
            tracker: Tracker::new(&bed.spec, app, choice, distances),
            maps_done: 0,
            reducers_done: 0,
            maps_ended: began,
            ended: began,
            failed: None,
        }),
        changes: watch::Sender::new(0),
    });
    for host in 0..bed.hosts.len() {
        bed.hosts[host].runtime.spawn("heartbeats", Arc::clone(&job).give_tasks(host));
    }
    job.wait().await?;
    let after = bed.carried();
    let times = {
        let state = job.state.lock();
        JobTimes {
            seconds: (state.ended - began).as_secs_f64(),
            map_seconds: (state.maps_ended - began).as_secs_f64(),
            near_maps: state.tracker.near_maps,
            network_bytes: after.0 - carried.0,
            sub_rack_bytes: after.1 - carried.1,
            replaced: bed.replaced() - replaced,
        }
    };
    bed.remove(bed.scratch, "job").await?;
    bed.remove(bed.data, "job").await?;
    bed.world.sleep(super::bed::REST).await;
    Ok(times)
}

impl Job {
    /// Waits until every task has ended.
    async fn wait(&self) -> Result<()> {
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            {
                let mut state = self.state.lock();
                if let Some(error) = state.failed.take() {
                    return Err(error);
                }
                if state.maps_done == self.app.mappers && state.reducers_done == self.app.reducers {
                    return Ok(());
                }
            }
            changes.changed().await.ok();
        }
    }

    /// Starts tasks on a host at its heartbeats.
    async fn give_tasks(self: Arc<Self>, host: usize) {
        let (beat, hosts) = (self.spec.hardware.heartbeat_secs, self.hosts.len());
        let runtime = self.hosts[host].runtime.clone();
        runtime.sleep(Duration::from_secs_f64(beat * host as f64 / hosts as f64)).await;
        loop {
            let (maps, reducers) = {
                let mut state = self.state.lock();
                if state.tracker.all_given() {
                    return;
                }
                let most = self.spec.hardware.reducers_per_heartbeat;
                (state.tracker.maps_for(host), state.tracker.reducers_for(host, most))
            };
            for map in maps {
                let job = Arc::clone(&self);
                runtime.spawn("map", async move {
                    let ended = job.map(host, map).await;
                    job.end_map(host, map, ended);
                });
            }
            for reducer in reducers {
                let job = Arc::clone(&self);
                runtime.spawn("reducer", async move {
                    let ended = job.reduce(host, reducer).await;
                    job.end_reducer(host, ended);
                });
            }
            runtime.sleep(Duration::from_secs_f64(beat)).await;
        }
    }

    async fn map(&self, host: usize, map: usize) -> Result<Option<Written>> {
        let steps = program::map(&self.app, &self.spec.hardware, self.spread(map as u64));
        let (name, input) = (format!("m{map}"), self.input.get(map).copied());
        let mut task = Task::start(self.hosts[host].clone(), name, self.directories, input).await?;
        task.run(steps).await?;
        let output = task.close_spill().await?;
        task.end().await?;
        Ok(output)
    }

    fn end_map(&self, host: usize, map: usize, ended: Result<Option<Written>>) {
        match ended {
            Ok(output) => {
                for (reducer, fetching) in self.fetching.iter().enumerate() {
                    let own = self.shares[map].iter().filter(|share| share.reducer == reducer);
                    let pieces = own.map(|share| (share.offset, share.len)).collect();
                    // Without output there are no shares.
                    let file = output.unwrap_or(Written { inode: InodeId::ROOT, size: 0 });
                    fetching.map_ended(host, Part { file, pieces });
                }
                let mut state = self.state.lock();
                state.tracker.map_ended(host);
                state.maps_done += 1;
                state.maps_ended = self.world.now();
                state.ended = self.world.now();
            }
            Err(error) => self.state.lock().failed = Some(error.context(format!("map {map} on h{}", host + 1))),
        }
        self.changes.send_modify(|version| *version += 1);
    }

    async fn reduce(&self, host: usize, reducer: usize) -> Result<()> {
        let (hardware, spread) = (&self.spec.hardware, self.spread((1 << 40) | reducer as u64));
        let name = format!("r{reducer}");
        let mut task = Task::start(self.hosts[host].clone(), name, self.directories, None).await?;
        task.run(program::reduce_start(hardware, spread)).await?;
        let fetching = &self.fetching[reducer];
        fetching.begin_with(host);
        let copiers: Vec<_> = (0..hardware.copiers)
            .map(|_| task.host.runtime.spawn("copier", Arc::clone(fetching).copy(task.host.clone())))
            .collect();
        while let Some(bytes) = fetching.next_merge().await {
            task.run(program::merge(hardware, bytes, spread)).await?;
            fetching.merged();
        }
        for copier in copiers {
            copier.join().await??;
        }
        task.run(program::reduce_end(&self.app, hardware, spread)).await?;
        task.end().await
    }

    fn end_reducer(&self, host: usize, ended: Result<()>) {
        {
            let mut state = self.state.lock();
            state.tracker.reducer_ended(host);
            state.reducers_done += 1;
            state.ended = self.world.now();
            if let Err(error) = ended {
                state.failed = Some(error.context(format!("a reducer on h{}", host + 1)));
            }
        }
        self.changes.send_modify(|version| *version += 1);
    }

    /// Factor on the cycles of a task: the simulator's for the same task.
    fn spread(&self, key: u64) -> f64 {
        Random::new(self.seed ^ 0x5eed, key).spread(self.spec.hardware.work_spread)
    }
}
