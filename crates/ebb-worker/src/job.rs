//! The coordinator: walks a tree, ships each split to a worker near its data, adds up.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ebb_client::{Client, HostPower};
use ebb_rpc::{Connector, Counters};
use ebb_runtime::{Moment, Runtime};
use ebb_types::{Credentials, Error, ErrorKind, HostName, InodeId, Result, bail, err};
use ebb_wire::pb;
use tokio::sync::mpsc;

use crate::owned::Owned;
use crate::plan::{Batch, BatchLimits, FoundFile, Locality, Planner, Work};
use crate::task::{How, Task};
use crate::walk::{ClientTree, Tree, Walk};

/// Time after which a call to a worker is slow.
pub const SLOW_AFTER: Duration = Duration::from_millis(300);

/// Sentences about failed splits that a report keeps.
const ERRORS_MAX: usize = 10;
/// Failed calls after which a worker is given up.
const STRIKES_MAX: u32 = 2;
/// A call's deadline: this, and the time for its bytes at [`SLOWEST`].
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// How often it is looked whether workers' hosts are switched off or on.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes per second below which a worker counts as failed.
const SLOWEST: u64 = 1 << 20;

/// How a job runs.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// The task: words or lines.
    pub task: Task,
    /// Whether work goes to its data.
    pub locality: Locality,
    /// Without locations: bytes of one read, as of a program's buffer; none: a block.
    pub buffer_bytes: Option<u64>,
    /// Calls in progress for each worker.
    pub calls_per_worker: usize,
    /// Workers that a split is tried on.
    pub attempts_max: usize,
    /// Bounds of a call.
    pub limits: BatchLimits,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self {
            task: Task::Words,
            locality: Locality::Located,
            buffer_bytes: None,
            calls_per_worker: 2,
            attempts_max: 3,
            limits: BatchLimits::default(),
        }
    }
}

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Files found so far.
    pub files: u64,
    /// Splits found so far.
    pub splits_found: u64,
    /// Splits counted or given up.
    pub splits_done: u64,
    /// Bytes in the files found so far.
    pub bytes_found: u64,
    /// Bytes in the splits that are done.
    pub bytes_done: u64,
    /// All files were found: the totals above are final.
    pub walked: bool,
    /// The split that a worker has had for longest, if that is longer than [`SLOW_AFTER`].
    pub slowest: Option<Slow>,
}

/// Work that takes long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slow {
    /// The file.
    pub inode: InodeId,
    /// Begin of the split in it, in bytes.
    pub offset: u64,
}

/// The result of a job.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct Report {
    /// Words in all files, as `wc -w` counts them; of a search, lines as `grep -F -c` does.
    pub words: u64,
    /// Time from start to end.
    pub seconds: f64,
    /// Splits that were counted.
    pub splits: u64,
    /// Of these, counted on a host that holds a replica.
    pub local_splits: u64,
    /// Bytes between hosts, both ways, headers included: on the coordinator's connections and on the workers' own.
    pub network_bytes: u64,
    /// Splits that no worker could count; their words are missing above.
    pub failed: u64,
    /// Files found.
    #[serde(skip)]
    pub files: u64,
    /// Their length in all.
    #[serde(skip)]
    pub input_bytes: u64,
    /// The first errors of failed splits.
    #[serde(skip)]
    pub errors: Vec<String>,
}

/// Counts the words of all files below `path` with workers at these addresses. `progress` is called now and then.
///
/// Fails if the walk does, or if there is no worker. Splits that fail on several workers are listed in the report.
pub async fn count_words(
    runtime: &Runtime,
    client: &Client,
    credentials: &Credentials,
    path: &[u8],
    workers: &[(HostName, String)],
    options: &JobOptions,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Report> {
    let tree = ClientTree { client: client.clone(), credentials: credentials.clone() };
    // A counter of its own: the client's also carry the process's other work.
    let connector = Connector::new(runtime.clone(), client.connector().identity().clone(), Counters::default());
    count_words_in(runtime, &tree, &connector, path, workers, options, progress).await
}

/// Counts as [`count_words`] does, in any namespace. `connector` leads to the workers, and no other traffic is in its
/// counters.
pub async fn count_words_in(
    runtime: &Runtime,
    tree: &impl Tree,
    connector: &Connector,
    path: &[u8],
    workers: &[(HostName, String)],
    options: &JobOptions,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Report> {
    if workers.is_empty() {
        bail!(Unavailable, "there is no worker: start one on each host, as `ebb cluster up` does");
    }
    let started = runtime.now();
    let before = tree.network_bytes();
    let hosts: Vec<HostName> = workers.iter().map(|(host, _)| host.clone()).collect();
    let (done, results) = mpsc::channel(workers.len() * options.calls_per_worker.max(1));
    let power = |worker: usize| tree.power(&hosts[worker]);
    let mut job = Job {
        runtime,
        connector,
        power: &power,
        looked: None,
        addresses: workers.iter().map(|(_, address)| address.as_str()).collect(),
        options,
        planner: Planner::new(options.locality, options.limits, &hosts, &tree.nodes()),
        crew: workers.iter().map(|_| Member::default()).collect(),
        calls: BTreeMap::new(),
        calls_made: 0,
        done,
        state: Progress::default(),
        report: Report::default(),
        progress,
    };
    job.run(Walk::start(runtime, tree, path), results).await?;
    let mut report = job.report;
    report.seconds = runtime.now().since(started).as_secs_f64();
    report.network_bytes += connector.counters().read().network_bytes() + (tree.network_bytes() - before);
    Ok(report)
}

/// A worker, as the coordinator sees it.
#[derive(Debug, Default)]
struct Member {
    ready: VecDeque<Batch>,
    running: usize,
    /// Calls that failed as a whole.
    strikes: u32,
}

struct Done {
    call: u64,
    reply: Result<pb::CountWordsReply>,
}

/// A call in progress; dropped, it is stopped.
struct Running {
    batch: Batch,
    since: Moment,
    _task: Owned<()>,
}

struct Job<'a> {
    runtime: &'a Runtime,
    connector: &'a Connector,
    addresses: Vec<&'a str>,
    options: &'a JobOptions,
    planner: Planner,
    crew: Vec<Member>,
    /// The power of a worker's host by the power plans.
    power: &'a (dyn Fn(usize) -> HostPower + Sync),
    looked: Option<Moment>,
    /// Calls in progress; they are stopped with the job.
    calls: BTreeMap<u64, Running>,
    calls_made: u64,
    done: mpsc::Sender<Done>,
    state: Progress,
    report: Report,
    progress: &'a mut (dyn FnMut(Progress) + Send),
}

impl Job<'_> {
    async fn run(&mut self, mut walk: Walk, mut results: mpsc::Receiver<Done>) -> Result<()> {
        loop {
            self.look_at_power();
            if self.state.walked {
                // Nothing more comes to fill them.
                let rest = self.planner.finish();
                self.enqueue(rest);
            }
            self.start_calls();
            self.state.slowest = self.slowest();
            (self.progress)(self.state);
            let backlog: usize = self.crew.iter().map(|member| member.ready.len()).sum();
            // Work that is left without a call in progress waits for a host to be switched on.
            if self.state.walked && self.calls.is_empty() && backlog == 0 {
                return Ok(());
            }
            let may_walk = !self.state.walked && backlog <= 2 * self.crew.len();
            tokio::select! {
                biased;
                Some(done) = results.recv(), if !self.calls.is_empty() => self.on_done(done),
                found = walk.next(), if may_walk => match found {
                    Some(files) => self.on_found(&files?),
                    None => self.state.walked = true,
                },
                () = self.runtime.sleep(LOOK) => {}
            }
        }
    }

    fn slowest(&self) -> Option<Slow> {
        let oldest = self.calls.values().min_by_key(|running| running.since)?;
        if self.runtime.now().since(oldest.since) < SLOW_AFTER {
            return None;
        }
        let split = &oldest.batch.work.first()?.split;
        Some(Slow { inode: InodeId::new(split.inode), offset: split.offset })
    }

    /// Work of hosts that are switched off goes to others, and does not count as an attempt: nothing failed.
    fn look_at_power(&mut self) {
        let now = self.runtime.now();
        if self.looked.is_some_and(|looked| now.since(looked) < LOOK) {
            return;
        }
        self.looked = Some(now);
        let mut orphans = Vec::new();
        for worker in 0..self.crew.len() {
            let is_off = (self.power)(worker) == HostPower::Off;
            if is_off == self.planner.is_off(worker) {
                continue;
            }
            tracing::info!(worker = self.addresses[worker], is_off, "power of a worker's host");
            orphans.extend(self.planner.set_off(worker, is_off));
            if is_off {
                orphans.extend(self.crew[worker].ready.drain(..));
                let stopped = self.calls.extract_if(.., |_, running| running.batch.worker == worker);
                orphans.extend(stopped.map(|(_, running)| running.batch));
                self.crew[worker].running = 0;
            } else if self.crew.iter().enumerate().all(|(other, _)| other == worker || self.planner.is_off(other)) {
                // All were off: work that waits with the others can be counted again.
                orphans.extend(self.crew.iter_mut().flat_map(|member| member.ready.drain(..)));
            }
        }
        for work in orphans.into_iter().flat_map(|batch| batch.work) {
            self.place(work, None);
        }
    }

    fn on_found(&mut self, files: &[FoundFile]) {
        for file in files {
            self.state.files += 1;
            self.state.bytes_found += file.size;
            self.report.files += 1;
            self.report.input_bytes += file.size;
            for work in self.planner.splits(file) {
                self.state.splits_found += 1;
                self.place(work, None);
            }
        }
    }

    /// Finds a worker for a split; `cause` is the last failure.
    fn place(&mut self, work: Work, cause: Option<&Error>) {
        let refused = if work.tried.len() >= self.options.attempts_max {
            work
        } else {
            match self.planner.place(work) {
                Ok(full) => return self.enqueue(full),
                Err(work) => *work,
            }
        };
        self.state.splits_done += 1;
        self.state.bytes_done += refused.split.length;
        self.report.failed += 1;
        if self.report.errors.len() < ERRORS_MAX {
            let why = cause.map_or_else(|| "no worker is left".to_owned(), Error::to_string);
            let pb::Split { inode, offset, .. } = refused.split;
            self.report.errors.push(format!("i{inode} from byte {offset}: {why}"));
        }
    }

    fn enqueue(&mut self, batches: Vec<Batch>) {
        for batch in batches {
            self.crew[batch.worker].ready.push_back(batch);
        }
    }

    fn start_calls(&mut self) {
        for worker in 0..self.crew.len() {
            while !self.planner.is_off(worker)
                && self.crew[worker].running < self.options.calls_per_worker.max(1)
                && let Some(batch) = self.crew[worker].ready.pop_front()
            {
                self.crew[worker].running += 1;
                self.start_call(batch);
            }
        }
    }

    fn how(&self) -> How {
        let use_locations = self.options.locality == Locality::Located;
        How { task: self.options.task.clone(), use_locations, buffer_bytes: self.options.buffer_bytes }
    }

    fn start_call(&mut self, batch: Batch) {
        self.calls_made += 1;
        let call = self.calls_made;
        let channel = self.connector.channel(self.addresses[batch.worker]);
        let awake = CALL_DEADLINE + Duration::from_millis(batch.bytes * 1000 / SLOWEST);
        // One that blinks is frozen for some of the time, as are those that it reads from.
        let deadline = match (self.power)(batch.worker) {
            HostPower::Blinks(interval) => awake + interval * 2,
            HostPower::On | HostPower::Off => awake,
        };
        let done = self.done.clone();
        let splits = batch.work.iter().map(|work| work.split.clone()).collect();
        let message = self.how().to_message(splits);
        let task = self.runtime.spawn("count-words", async move {
            let reply = channel.call(&message, deadline).await;
            // A job that is gone needs no result.
            let _ = done.send(Done { call, reply }).await;
        });
        self.calls.insert(call, Running { batch, since: self.runtime.now(), _task: Owned::new(task) });
    }

    fn on_done(&mut self, done: Done) {
        // One that was stopped counts elsewhere.
        let Some(Running { batch, .. }) = self.calls.remove(&done.call) else { return };
        let worker = batch.worker;
        self.crew[worker].running -= 1;
        let expected = batch.work.len();
        let reply = done.reply.and_then(|reply| match reply.words.len() {
            len if len == expected => Ok(reply),
            len => Err(err!(Protocol, "{}: {len} counts for {expected} splits", self.addresses[worker])),
        });
        match reply {
            Ok(reply) => self.on_reply(batch, &reply),
            Err(error) => self.on_failed_call(batch, &error),
        }
    }

    fn on_reply(&mut self, batch: Batch, reply: &pb::CountWordsReply) {
        self.crew[batch.worker].strikes = 0;
        self.report.network_bytes += reply.network_bytes;
        for (index, mut work) in batch.work.into_iter().enumerate() {
            match ebb_wire::convert::failure(reply.failures.get(index).cloned()) {
                Ok(()) => {
                    self.report.words += reply.words[index];
                    self.report.splits += 1;
                    self.report.local_splits += u64::from(work.holders.contains(&batch.worker));
                    self.state.splits_done += 1;
                    self.state.bytes_done += work.split.length;
                }
                Err(error) => {
                    work.tried.insert(batch.worker);
                    self.place(work, Some(&error));
                }
            }
        }
    }

    fn on_failed_call(&mut self, batch: Batch, error: &Error) {
        let worker = batch.worker;
        tracing::warn!(%error, worker = self.addresses[worker], splits = batch.work.len(), "try splits elsewhere");
        self.crew[worker].strikes += 1;
        // A worker that refuses the handshake will not change its mind.
        let is_hopeless = error.kind() == ErrorKind::Unauthorized || self.crew[worker].strikes >= STRIKES_MAX;
        let mut orphans = Vec::new();
        if is_hopeless {
            orphans.extend(self.planner.bury(worker));
            orphans.extend(self.crew[worker].ready.drain(..));
        }
        for mut work in batch.work {
            work.tried.insert(worker);
            self.place(work, Some(error));
        }
        for work in orphans.into_iter().flat_map(|batch| batch.work) {
            self.place(work, Some(error));
        }
    }
}

#[cfg(test)]
mod tests;
