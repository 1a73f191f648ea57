//! The coordinator at work: it walks, hands out calls, and adds up the answers.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_power::work::Turn;
use ebb_rpc::Connector;
use ebb_runtime::{Moment, Owned, Runtime};
use ebb_types::{Error, ErrorKind, InodeId, Result, err};
use ebb_wire::pb;
use tokio::sync::mpsc;

use crate::crew::Crew;
use crate::job::JobOptions;
use crate::meter::Carried;
use crate::plan::{Batch, FoundFile, HostPower, Locality, Planner, Work};
use crate::report::{Progress, Report, SLOW_AFTER, Slow};
use crate::task::How;
use crate::walk::Walk;

/// Sentences about failed splits that a report keeps.
const ERRORS_MAX: usize = 10;
/// Failed calls after which a worker is given up.
const STRIKES_MAX: u32 = 2;
/// A call's deadline: this, and the time for its bytes at [`SLOWEST`].
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// Bytes per second below which a worker counts as failed.
const SLOWEST: u64 = 1 << 20;
/// How often the turns of workers' hosts are looked up.
const LOOK: Duration = Duration::from_millis(50);
/// How long it is waited for an answer or a wake before all is looked at anew.
const PAUSE: Duration = Duration::from_millis(500);
/// Batches that wait for each worker while the walk goes on: of those that are awake, and of all. The second bounds the
/// memory for work whose nodes sleep.
const BACKLOG_AWAKE: usize = 2;
const BACKLOG_MAX: usize = 16;

pub(crate) struct Done {
    call: u64,
    reply: Result<pb::CountWordsReply>,
}

/// A call in progress; dropped, it is stopped.
struct Running {
    call: u64,
    batch: Batch,
    since: Moment,
    /// What its worker's host did when it began.
    turn: Turn,
    _task: Owned<()>,
}

impl Running {
    /// Whether its worker has been awake since it began.
    fn was_awake(&self, now: Moment) -> bool {
        match self.turn {
            Turn::Always => true,
            Turn::Awake { left_ms, .. } => now.since(self.since) < Duration::from_millis(left_ms),
            Turn::Asleep { .. } | Turn::Off => false,
        }
    }
}

/// The parts of a job that its caller makes.
pub(crate) struct Parts<'a> {
    pub runtime: &'a Runtime,
    pub connector: &'a Connector,
    /// Of the workers.
    pub addresses: Vec<&'a str>,
    pub options: &'a JobOptions,
    pub planner: Planner,
    /// What a worker's host does, by the power plans.
    pub turn: &'a (dyn Fn(usize) -> Turn + Sync),
    /// The nodes, with the datasets that they serve.
    pub nodes: &'a (dyn Fn() -> Vec<pb::Node> + Sync),
    pub progress: &'a mut (dyn FnMut(Progress) + Send),
}

/// A job under way.
pub(crate) struct Job<'a> {
    parts: Parts<'a>,
    crew: Crew,
    looked: Option<Moment>,
    /// Calls in progress; they are stopped with the job.
    calls: BTreeMap<u64, Running>,
    calls_made: u64,
    done: mpsc::Sender<Done>,
    state: Progress,
    report: Report,
}

impl<'a> Job<'a> {
    /// Counts all files that the walk finds.
    pub async fn run(parts: Parts<'a>, walk: Walk) -> Result<Report> {
        let (workers, options) = (parts.addresses.len(), parts.options);
        let (done, results) = mpsc::channel(workers * options.calls_per_worker.max(1));
        let crew = Crew::new(workers, options.locality, options.limits, options.calls_per_worker);
        let (state, report) = (Progress::default(), Report::default());
        let mut job = Job { parts, crew, looked: None, calls: BTreeMap::new(), calls_made: 0, done, state, report };
        job.until_done(walk, results).await?;
        Ok(job.report)
    }

    async fn until_done(&mut self, mut walk: Walk, mut results: mpsc::Receiver<Done>) -> Result<()> {
        loop {
            self.look_at_turns();
            if self.state.walked {
                // Nothing more comes to fill them.
                let rest = self.parts.planner.finish();
                self.crew.add(rest);
            }
            self.start_calls();
            self.state.slowest = self.slowest();
            (self.parts.progress)(self.state);
            let (awake, all) = self.crew.backlog();
            // Work that is left without a call in progress waits for a host to wake, or to be switched on.
            if self.state.walked && self.calls.is_empty() && all == 0 {
                return Ok(());
            }
            let workers = self.parts.addresses.len();
            let may_walk = !self.state.walked && awake <= BACKLOG_AWAKE * workers && all <= BACKLOG_MAX * workers;
            let wake = self.crew.wakes_in_ms().map_or(PAUSE, Duration::from_millis);
            tokio::select! {
                biased;
                Some(done) = results.recv(), if !self.calls.is_empty() => self.on_done(done),
                found = walk.next(), if may_walk => match found {
                    Some(files) => self.on_found(&files?),
                    None => self.state.walked = true,
                },
                () = self.parts.runtime.sleep(wake.clamp(LOOK, PAUSE)) => {}
            }
        }
    }

    fn slowest(&self) -> Option<Slow> {
        let oldest = self.calls.values().min_by_key(|running| running.since)?;
        if self.parts.runtime.now().since(oldest.since) < SLOW_AFTER {
            return None;
        }
        let split = &oldest.batch.work.first()?.split;
        Some(Slow { inode: InodeId::new(split.inode), offset: split.offset })
    }

    /// Work of hosts that are switched off goes to others, as does that of frozen workers if it is done sooner so. It
    /// does not count as an attempt: nothing failed.
    fn look_at_turns(&mut self) {
        let now = self.parts.runtime.now();
        if self.looked.is_some_and(|looked| now.since(looked) < LOOK) {
            return;
        }
        self.looked = Some(now);
        let mut orphans = Vec::new();
        for worker in 0..self.parts.addresses.len() {
            let turn = (self.parts.turn)(worker);
            self.crew.set_turn(worker, turn);
            let (before, power) = (self.parts.planner.power(worker), host_power(turn));
            if power == before {
                continue;
            }
            tracing::debug!(worker = self.parts.addresses[worker], ?turn, "power of a worker's host");
            let gathered = self.parts.planner.set_power(worker, power);
            if power == HostPower::Off {
                orphans.extend(gathered);
                orphans.extend(self.crew.drain(worker));
                orphans.extend(self.stop_calls(|running| running.batch.worker == worker));
            } else {
                self.crew.add(gathered);
            }
            let others = (0..self.parts.addresses.len()).filter(|other| *other != worker);
            if before == HostPower::Off && others.clone().all(|other| self.parts.planner.power(other) == HostPower::Off)
            {
                // All were off: work that waits with the others can be counted again.
                orphans.extend(self.crew.drain_all());
            }
        }
        for work in orphans.into_iter().flat_map(|batch| batch.work) {
            self.place(work, None);
        }
        self.follow_allotment();
        let stranded: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, running)| self.crew.is_stranded(&running.batch))
            .map(|(call, _)| *call)
            .collect();
        // Those that were begun last are begun anew: with each the free workers have more to do.
        if let Some(call) = stranded.last().copied() {
            let stopped = self.stop_calls(|running| running.call == call);
            self.crew.add(stopped);
        }
    }

    /// Splits that wait go to the nodes that serve their dataset, if these are other ones than before. Calls go on where
    /// they are: their workers read from these nodes anyhow.
    fn follow_allotment(&mut self) {
        if !self.parts.planner.set_serving(&(self.parts.nodes)()) {
            return;
        }
        let mut homeless = Vec::new();
        for mut batch in self.crew.drain_all() {
            let mut stays = Batch::of(batch.worker);
            let count = batch.work.len();
            for mut work in batch.take_front(count).work {
                match self.parts.planner.renew_holders(&mut work, stays.worker) {
                    true => stays.add(work),
                    false => homeless.push(work),
                }
            }
            self.crew.add((!stays.work.is_empty()).then_some(stays));
        }
        tracing::debug!(splits = homeless.len(), "other nodes serve the datasets: splits that wait are placed anew");
        for work in homeless {
            self.place(work, None);
        }
    }

    /// Stops calls. What comes of them is not heard any more, so that nothing is counted twice.
    fn stop_calls(&mut self, is_meant: impl Fn(&Running) -> bool) -> Vec<Batch> {
        let stopped: Vec<Batch> =
            self.calls.extract_if(.., |_, running| is_meant(running)).map(|(_, running)| running.batch).collect();
        for batch in &stopped {
            self.crew.on_over(batch.worker);
        }
        stopped
    }

    fn on_found(&mut self, files: &[FoundFile]) {
        for file in files {
            self.state.files += 1;
            self.state.bytes_found += file.size;
            self.report.files += 1;
            self.report.input_bytes += file.size;
            for work in self.parts.planner.splits(file) {
                self.state.splits_found += 1;
                self.place(work, None);
            }
        }
    }

    /// Finds a worker for a split; `cause` is the last failure.
    fn place(&mut self, work: Work, cause: Option<&Error>) {
        let refused = if work.tried.len() >= self.parts.options.attempts_max {
            work
        } else {
            match self.parts.planner.place(work) {
                Ok(full) => return self.crew.add(full),
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

    fn start_calls(&mut self) {
        for worker in 0..self.parts.addresses.len() {
            while let Some(batch) = self.crew.next_call(worker) {
                self.start_call(batch);
            }
        }
    }

    /// Deadline of a call. It has the time that its worker may be frozen for on the way: a new plan may strand a call
    /// that could have ended.
    fn deadline(&self, batch: &Batch, turn: Turn) -> Duration {
        let awake = CALL_DEADLINE + Duration::from_millis(batch.bytes * 1000 / SLOWEST);
        let Turn::Awake { whole_ms, next_ms: Some(next_ms), .. } = turn else { return awake };
        assert!(whole_ms > 0, "a call to {} in a turn without room", self.parts.addresses[batch.worker]);
        let turns = self.crew.need_ms(batch.worker, batch.bytes) / whole_ms + 2;
        awake + Duration::from_millis(next_ms.saturating_mul(turns))
    }

    fn how(&self) -> How {
        let use_locations = self.parts.options.locality == Locality::Located;
        How { task: self.parts.options.task.clone(), use_locations, buffer_bytes: self.parts.options.buffer_bytes }
    }

    fn start_call(&mut self, batch: Batch) {
        self.calls_made += 1;
        let (call, turn) = (self.calls_made, self.crew.turn(batch.worker));
        assert!(turn.is_awake(), "a call to {}, which sleeps", self.parts.addresses[batch.worker]);
        self.crew.on_begun(batch.worker);
        let channel = self.parts.connector.channel(self.parts.addresses[batch.worker]);
        let deadline = self.deadline(&batch, turn);
        let done = self.done.clone();
        let splits = batch.work.iter().map(|work| work.split.clone()).collect();
        let message = self.how().to_message(splits);
        let task = self.parts.runtime.spawn("count-words", async move {
            let reply = channel.call(&message, deadline).await;
            // A job that is gone needs no result.
            let _ = done.send(Done { call, reply }).await;
        });
        let (since, task) = (self.parts.runtime.now(), Owned::new(task));
        self.calls.insert(call, Running { call, batch, since, turn, _task: task });
    }

    fn on_done(&mut self, done: Done) {
        // One that was stopped counts elsewhere.
        let Some(running) = self.calls.remove(&done.call) else { return };
        let now = self.parts.runtime.now();
        let (was_awake, took, batch) = (running.was_awake(now), now.since(running.since), running.batch);
        let (worker, expected) = (batch.worker, batch.work.len());
        self.crew.on_over(worker);
        let reply = done.reply.and_then(|reply| match reply.words.len() {
            len if len == expected => Ok(reply),
            len => Err(err!(Protocol, "{}: {len} counts for {expected} splits", self.parts.addresses[worker])),
        });
        match reply {
            Ok(reply) => {
                if was_awake {
                    self.crew.learn(worker, batch.bytes, took);
                }
                self.on_reply(batch, &reply);
            }
            Err(error) => self.on_failed_call(batch, &error),
        }
    }

    fn on_reply(&mut self, batch: Batch, reply: &pb::CountWordsReply) {
        self.crew.forgive(batch.worker);
        self.report.add_carried(Carried { network_bytes: reply.network_bytes, sub_rack_bytes: reply.sub_rack_bytes });
        for (index, mut work) in batch.work.into_iter().enumerate() {
            match ebb_wire::convert::failure(reply.failures.get(index).cloned()) {
                Ok(()) => {
                    self.report.words += reply.words[index];
                    self.report.count_split(work.nearness_of(batch.worker));
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
        tracing::warn!(%error, worker = self.parts.addresses[worker], splits = batch.work.len(), "try splits elsewhere");
        let strikes = self.crew.strike(worker);
        // A worker that refuses the handshake will not change its mind.
        let is_hopeless = error.kind() == ErrorKind::Unauthorized || strikes >= STRIKES_MAX;
        let mut orphans = Vec::new();
        if is_hopeless {
            orphans.extend(self.parts.planner.bury(worker));
            orphans.extend(self.crew.bury(worker));
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

/// Power of a host, for the choice of a worker.
const fn host_power(turn: Turn) -> HostPower {
    match turn {
        Turn::Always | Turn::Awake { .. } => HostPower::Awake,
        Turn::Asleep { .. } => HostPower::Asleep,
        Turn::Off => HostPower::Off,
    }
}
