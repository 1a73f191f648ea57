//! The raft group: one task that owns the node, the log and the right to change the state machine.
//!
//! A proposal goes through propose, ready, append to the log, fdatasync, advance, apply, in a group of one as in any
//! other: nothing skips the log. What waits while a batch is being synced goes into the next one (group commit).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebb_meta::{Applied, EPOCH_STEP_MAX, Machine, Reply};
use ebb_runtime::{Moment, Runtime, Task};
use ebb_types::{ClusterId, Error, Result, bail, err};
use ebb_wire::{Message, pb};
use parking_lot::RwLock;
use pb::command::Command as Op;
use raft::eraftpb::{Entry, EntryType};
use raft::{RawNode, StateRole};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::log::wal::Urgency;
use crate::log::{Batch, CheckpointWriter, DataDir, LogMemory, Wal, WalOptions};

mod look;
pub mod recover;
mod urgency;

use look::Look;
use recover::{At, Commands, Start, recover};
use urgency::urgency;

/// This master's number in its group.
const SELF_ID: u64 = 1;
/// Proposals that wait; more are answered `Overloaded`.
const QUEUE_LEN: usize = 4096;
/// Bytes of proposals that go into one synced write.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Commands that are applied under one hold of the state's lock, so that readers get their turn.
const APPLY_LEN_MAX: usize = 256;
/// Entries kept in memory behind the applied ones.
const RECENT_LEN: usize = 4096;
const TICK: Duration = Duration::from_millis(200);

/// How a group keeps its log.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// The log's segments.
    pub wal: WalOptions,
    /// A checkpoint is written after this many entries (or an eighth of the inodes, if that is more)...
    pub checkpoint_entries: u64,
    /// ...or this many bytes of them, whichever comes first.
    pub checkpoint_bytes: u64,
    /// How long a proposal may take before its caller is told `Timeout`.
    pub propose_timeout: Duration,
    /// Epochs rise by a number up to this one, drawn for each command, so that two histories that part do not give the same
    /// ones. One: they count.
    pub epoch_step_max: u64,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            wal: WalOptions::default(),
            // Replaying so many takes a fraction of a second, writing a checkpoint of a million files some seconds.
            checkpoint_entries: 25_000,
            checkpoint_bytes: 64 << 20,
            propose_timeout: Duration::from_secs(20),
            epoch_step_max: EPOCH_STEP_MAX,
        }
    }
}

/// Sees every command as it is applied, while the state's lock is held: what it keeps is in step with the state for
/// whoever holds that lock.
pub trait Observer: Send + Sync + 'static {
    /// `machine` is the state right after `command`.
    fn on_applied(&self, machine: &Machine, command: &pb::Command, applied: &Applied);
}

/// The group, as services use it. Cheap to clone.
#[derive(Clone)]
pub struct Group {
    runtime: Runtime,
    proposals: mpsc::Sender<Proposal>,
    machine: Arc<RwLock<Machine>>,
    applied: Arc<AtomicU64>,
    syncs: Arc<AtomicU64>,
    stop: Arc<Notify>,
    checkpoint_wanted: Arc<Notify>,
    propose_timeout: Duration,
    epoch_step_max: u64,
}

/// A group that has read its disk and not yet begun to serve.
pub struct Opened {
    driver: Driver,
    group: Group,
}

struct Proposal {
    command: pb::Command,
    reply: oneshot::Sender<Result<Applied>>,
}

struct Pending {
    index: u64,
    term: u64,
    proposal: Proposal,
}

impl Group {
    /// Reads checkpoint and log, elects itself and applies everything that was committed.
    pub async fn open(runtime: &Runtime, dir: &DataDir, cluster: ClusterId, options: GroupOptions) -> Result<Opened> {
        let Start { wal, machine, at, recovered, commands } = recover(runtime, dir.path(), cluster, &options).await?;
        let config = config(runtime, at.index);
        let memory = LogMemory::new(recovered, at.index, at.term);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node =
            RawNode::new(&config, memory, &logger).map_err(|error| err!(Internal, "raft does not start: {error}"))?;
        let machine = Arc::new(RwLock::new(machine));
        let (proposals, queue) = mpsc::channel(QUEUE_LEN);
        let (checkpoint_done, checkpoints) = mpsc::channel(1);
        let applied = Arc::new(AtomicU64::new(at.index));
        let (syncs, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let checkpoint_wanted = Arc::new(Notify::new());
        let mut driver = Driver {
            runtime: runtime.clone(),
            node,
            wal,
            machine: Arc::clone(&machine),
            applied: Arc::clone(&applied),
            syncs: Arc::clone(&syncs),
            stop: Arc::clone(&stop),
            checkpoint_wanted: Arc::clone(&checkpoint_wanted),
            at,
            queue,
            pending: VecDeque::new(),
            commands,
            observer: None,
            options: options.clone(),
            writer: CheckpointWriter::new(runtime.clone(), dir.path().to_owned()),
            checkpoint: CheckpointState { running: false, wanted: false, index: at.index, bytes: 0 },
            checkpoint_done,
            checkpoints,
            next_tick: runtime.now().after(TICK),
            is_full: false,
        };
        driver.take_lead().await?;
        let (propose_timeout, epoch_step_max) = (options.propose_timeout, options.epoch_step_max);
        let runtime = runtime.clone();
        let group = Self {
            runtime,
            proposals,
            machine,
            applied,
            syncs,
            stop,
            checkpoint_wanted,
            propose_timeout,
            epoch_step_max,
        };
        Ok(Opened { driver, group })
    }

    /// Logs a command and returns what the state machine answered. `Overloaded` if too many wait already; `Timeout`
    /// means that it may still be done.
    pub async fn propose(&self, op: Op) -> Result<Reply> {
        self.propose_observed(op).await?.reply
    }

    async fn propose_observed(&self, op: Op) -> Result<Applied> {
        let step = self.draw_step(&op);
        let command = pb::Command { now_ns: self.runtime.wall().0, command: Some(op), step };
        let (reply, answer) = oneshot::channel();
        self.proposals.try_send(Proposal { command, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                err!(Overloaded, "the master has {QUEUE_LEN} changes waiting for its log; try again shortly")
            }
            mpsc::error::TrySendError::Closed(_) => {
                err!(ShuttingDown, "the master's log has stopped; see its messages")
            }
        })?;
        let answer = async {
            answer.await.map_err(|_| err!(ShuttingDown, "the master's log stopped while a change was on its way"))?
        };
        self.runtime.timeout(self.propose_timeout, "logging a change", answer).await
    }

    /// By how much the command raises an epoch, if it raises one. Drawn here, so that all who apply it do the same.
    fn draw_step(&self, op: &Op) -> u64 {
        match op {
            Op::Client(_) | Op::AcquireWrite(_) | Op::BeginRecovery(_) if self.epoch_step_max > 1 => {
                1 + self.runtime.random_u64() % self.epoch_step_max
            }
            _ => 0,
        }
    }

    /// Returns when reads see everything that was answered before the call. A group of one leads as long as it runs,
    /// and applies before it answers: nothing to wait for. With more members this asks raft's read index.
    pub async fn read_barrier(&self) -> Result<()> {
        if self.proposals.is_closed() {
            bail!(ShuttingDown, "the master's log has stopped; see its messages");
        }
        Ok(())
    }

    /// The applied state, for a short look, one at a time in each thread. Lock order: this before any lock of soft state; never
    /// across an await.
    #[track_caller]
    pub fn machine(&self) -> Look<'_> {
        Look::at(&self.machine)
    }

    /// A copy of the applied state, for a long look. Cheap: it shares everything until something changes.
    #[must_use]
    #[track_caller]
    pub fn snapshot(&self) -> Machine {
        self.machine().clone()
    }

    /// Synced writes to the log since start.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Has a checkpoint written soon, however little has happened since the last one.
    pub fn checkpoint(&self) {
        self.checkpoint_wanted.notify_one();
    }

    /// Ends the task after the batch that is on its way.
    pub fn stop(&self) {
        self.stop.notify_one();
    }

    /// Index of the last applied entry.
    #[must_use]
    pub fn applied_index(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group(applied {})", self.applied_index())
    }
}

impl Opened {
    /// The handle; its proposals wait until [`Opened::serve`].
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Starts the task. It ends when all handles are gone, or with an error when the disk fails.
    pub fn serve(mut self, observer: Arc<dyn Observer>) -> Task<Result<()>> {
        self.driver.observer = Some(observer);
        let runtime = self.driver.runtime.clone();
        let driver = self.driver;
        runtime.spawn("raft", driver.run())
    }
}

fn config(runtime: &Runtime, applied: u64) -> raft::Config {
    // The library draws election timeouts from the thread's generator at every reset. A range of one value takes that
    // away; the members' timeouts differ by this draw from the runtime's (seeded) generator instead.
    let election_tick = 10 + usize::try_from(runtime.random_u64() % 10).expect("below ten");
    raft::Config {
        id: SELF_ID,
        applied,
        election_tick,
        min_election_tick: election_tick,
        max_election_tick: election_tick + 1,
        heartbeat_tick: 2,
        max_size_per_msg: 1 << 20,
        check_quorum: true,
        pre_vote: true,
        ..Default::default()
    }
}

struct CheckpointState {
    running: bool,
    /// Somebody has asked for one.
    wanted: bool,
    /// Last entry in the newest one, or in the one that was tried last: where a disk is full, the next try has to wait
    /// for as many entries as after a good one.
    index: u64,
    /// Bytes of entries applied since.
    bytes: u64,
}

fn refuse(proposal: Proposal, error: ebb_types::Error) {
    // A caller whose deadline has passed does not wait any more.
    let _ = proposal.reply.send(Err(error));
}

struct Driver {
    runtime: Runtime,
    node: RawNode<LogMemory>,
    wal: Wal,
    machine: Arc<RwLock<Machine>>,
    applied: Arc<AtomicU64>,
    syncs: Arc<AtomicU64>,
    stop: Arc<Notify>,
    checkpoint_wanted: Arc<Notify>,
    at: At,
    queue: mpsc::Receiver<Proposal>,
    pending: VecDeque<Pending>,
    /// Of the entries that were found on the disk, decoded.
    commands: Commands,
    observer: Option<Arc<dyn Observer>>,
    options: GroupOptions,
    writer: CheckpointWriter,
    checkpoint: CheckpointState,
    checkpoint_done: mpsc::Sender<(u64, Result<u64>)>,
    checkpoints: mpsc::Receiver<(u64, Result<u64>)>,
    next_tick: Moment,
    /// The log has said that the disk is full.
    is_full: bool,
}

impl Driver {
    /// A group of one has nobody to wait for: it asks for votes at once. Returns when the first entry of its own
    /// term, and so everything before it, has been applied.
    async fn take_lead(&mut self) -> Result<()> {
        self.node.campaign().map_err(|error| err!(Internal, "raft refuses to campaign: {error}"))?;
        while self.node.has_ready() {
            self.work().await?;
        }
        if self.node.raft.state != StateRole::Leader || self.at.term != self.node.raft.term {
            bail!(
                Unavailable,
                "this master was not elected: its group has other voters, which this release does not reach"
            );
        }
        Ok(())
    }

    async fn run(mut self) -> Result<()> {
        let done = self.serve().await;
        if let Err(error) = &done {
            tracing::error!(%error, "the master's log failed; the master stops serving");
            // What did not get to the disk may be there all the same, and is applied when the master is started again: so nothing
            // is refused. Who asks again under the same request id is told what became of it.
            for pending in self.pending.drain(..) {
                let unknown = err!(ShuttingDown, "whether this change was logged is not known: {error}");
                let _ = pending.proposal.reply.send(Err(unknown));
            }
        }
        done
    }

    async fn serve(&mut self) -> Result<()> {
        loop {
            let until_tick = self.next_tick.since(self.runtime.now());
            tokio::select! {
                biased;
                () = self.stop.notified() => break,
                () = self.checkpoint_wanted.notified() => self.checkpoint.wanted = true,
                Some((index, done)) = self.checkpoints.recv() => self.on_checkpoint(index, done).await?,
                proposal = self.queue.recv() => match proposal {
                    Some(proposal) => self.propose_batch(proposal).await,
                    None => break,
                },
                () = self.runtime.sleep(until_tick) => {}
            }
            if self.runtime.now() >= self.next_tick {
                self.node.tick();
                self.next_tick = self.runtime.now().after(TICK);
                self.note_synced().await;
            }
            while self.node.has_ready() {
                self.work().await?;
            }
            self.start_checkpoint_if_due();
        }
        self.note_synced().await;
        Ok(())
    }

    /// A hint, and no more: without it, damage to the last write looks like a torn one.
    async fn note_synced(&mut self) {
        if let Err(error) = self.wal.note_synced().await {
            tracing::warn!(%error, "up to where the log is synced could not be noted");
        }
    }

    /// Proposes what waits, as far as the log has room: what raft has taken cannot be given back.
    async fn propose_batch(&mut self, first: Proposal) {
        let bytes_max = BATCH_BYTES_MAX.min(self.options.wal.segment_bytes / 4);
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(proposal) = next {
            let data = proposal.command.encode_to_vec();
            if data.len() > ebb_wire::frame::MESSAGE_LEN_MAX * 3 / 2 {
                refuse(proposal, err!(Invalid, "a change of {} bytes is too large for the log", data.len()));
            } else {
                bytes += data.len();
                batch.push((proposal, data));
            }
            next = if bytes < bytes_max { self.queue.try_recv().ok() } else { None };
        }
        for (proposal, data) in self.with_room(batch).await {
            self.propose(proposal, data);
        }
    }

    /// Those that there is room for. On a full disk growth is refused first, so that removing can go on.
    async fn with_room(&mut self, batch: Vec<(Proposal, Vec<u8>)>) -> Vec<(Proposal, Vec<u8>)> {
        let bytes = |batch: &[(Proposal, Vec<u8>)]| batch.iter().map(|(_, data)| data.len()).sum();
        let room = self.wal.make_room(batch.len(), bytes(&batch), Urgency::Growth).await;
        self.note_full(room.as_ref().err());
        let Err(full) = room else { return batch };
        let (growth, relief): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|(proposal, _)| urgency(&proposal.command) == Urgency::Growth);
        for (proposal, _) in growth {
            refuse(proposal, full.clone());
        }
        match self.wal.make_room(relief.len(), bytes(&relief), Urgency::Relief).await {
            Ok(()) => relief,
            Err(full) => {
                for (proposal, _) in relief {
                    refuse(proposal, full.clone());
                }
                Vec::new()
            }
        }
    }

    /// Says once in the log that the disk is full, and once that there is room again.
    fn note_full(&mut self, full: Option<&Error>) {
        match full {
            Some(error) if !self.is_full => tracing::error!(%error, "refuse what makes or grows something"),
            None if self.is_full && !self.wal.lacks_segment() => {
                tracing::info!("the master's disk has room again: all changes are taken");
                self.is_full = false;
            }
            _ => {}
        }
        self.is_full |= full.is_some();
    }

    fn propose(&mut self, proposal: Proposal, data: Vec<u8>) {
        match self.node.propose(Vec::new(), data) {
            Ok(()) => {
                let (index, term) = (self.node.raft.raft_log.last_index(), self.node.raft.term);
                self.pending.push_back(Pending { index, term, proposal });
            }
            Err(error) => refuse(proposal, err!(NotLeader, "this master does not lead its group: {error}")),
        }
    }

    /// One round of raft: make durable, then advance, then apply.
    async fn work(&mut self) -> Result<()> {
        let mut ready = self.node.ready();
        self.apply(ready.take_committed_entries())?;
        let batch = Batch { hard_state: ready.hs().cloned(), conf_state: None, entries: ready.take_entries() };
        // Ordering: the log is on stable storage before raft may count it, so before anything of it is committed.
        self.persist(batch).await?;
        let mut light = self.node.advance_append(ready);
        if let Some(commit) = light.commit_index() {
            self.node.mut_store().set_commit(commit);
        }
        self.apply(light.take_committed_entries())?;
        self.node.advance_apply();
        self.node.mut_store().truncate(self.at.index, RECENT_LEN);
        Ok(())
    }

    async fn persist(&mut self, batch: Batch) -> Result<()> {
        let (hard_state, entries) = (batch.hard_state.clone(), batch.entries.clone());
        // A new commit index alone can be found out again: it goes along with the next entries.
        let needs_sync = !entries.is_empty() || hard_state.as_ref().is_some_and(|new| self.changes_vote(new));
        if needs_sync {
            self.wal.append(batch).await.map_err(|error| error.context("writing the master's log"))?;
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        let store = self.node.mut_store();
        if let Some(hard_state) = hard_state {
            store.set_hard_state(hard_state);
        }
        store.append(entries);
        Ok(())
    }

    fn changes_vote(&self, new: &raft::eraftpb::HardState) -> bool {
        let old = raft::Storage::initial_state(self.node.store()).expect("memory does not fail").hard_state;
        (old.term, old.vote) != (new.term, new.vote)
    }

    fn apply(&mut self, entries: Vec<Entry>) -> Result<()> {
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            let mut answers = Vec::new();
            {
                let machine = Arc::clone(&self.machine);
                let mut machine = machine.write();
                for entry in entries.by_ref().take(APPLY_LEN_MAX) {
                    answers.extend(self.apply_one(&mut machine, &entry)?);
                }
                self.applied.store(self.at.index, Ordering::Release);
            }
            for (reply, applied) in answers {
                // A caller whose deadline has passed does not wait any more.
                let _ = reply.send(Ok(applied));
            }
        }
        Ok(())
    }

    fn apply_one(
        &mut self,
        machine: &mut Machine,
        entry: &Entry,
    ) -> Result<Option<(oneshot::Sender<Result<Applied>>, Applied)>> {
        self.at = At { index: entry.index, term: entry.term };
        self.checkpoint.bytes += entry.data.len() as u64;
        if entry.entry_type != EntryType::EntryNormal as i32 {
            bail!(Unsupported, "entry {} changes the group's members, which this release does not do", entry.index);
        }
        let proposal = self.take_pending(entry);
        if entry.data.is_empty() {
            // The entry with which a leader begins its term.
            return Ok(None);
        }
        let (command, reply) = match proposal {
            Some(Proposal { command, reply }) => (command, Some(reply)),
            None => (self.commands.command_of(entry)?, None),
        };
        let applied = machine.apply(&command);
        if let Some(observer) = &self.observer {
            observer.on_applied(machine, &command, &applied);
        }
        Ok(reply.map(|reply| (reply, applied)))
    }

    /// The proposal that became this entry; those that lost their place are told.
    fn take_pending(&mut self, entry: &Entry) -> Option<Proposal> {
        while let Some(front) = self.pending.front() {
            if front.index > entry.index {
                return None;
            }
            let pending = self.pending.pop_front().expect("it was looked at");
            if (pending.index, pending.term) == (entry.index, entry.term) {
                return Some(pending.proposal);
            }
            let _ = pending.proposal.reply.send(Err(err!(NotLeader, "another master took the lead; ask again")));
        }
        None
    }

    /// Entries between checkpoints: loading a state takes as long as replaying an eighth of it, about, and a large one
    /// should not be written again and again.
    fn interval(&self, entries: u64) -> u64 {
        let least = self.options.checkpoint_entries;
        if entries < least { least } else { least.max(Look::at(&self.machine).counts().inodes / 8) }
    }

    fn start_checkpoint_if_due(&mut self) {
        let entries = self.at.index - self.checkpoint.index;
        let due = entries >= self.interval(entries)
            || self.checkpoint.bytes >= self.options.checkpoint_bytes
            || self.checkpoint.wanted;
        if self.checkpoint.running || !due || entries == 0 {
            return;
        }
        let (machine, At { index, term }) = (Look::at(&self.machine).clone(), self.at);
        self.checkpoint = CheckpointState { running: true, wanted: false, index, bytes: 0 };
        let (writer, done) = (self.writer.clone(), self.checkpoint_done.clone());
        self.runtime.spawn("checkpoint", async move {
            let written = writer.write(machine, index, term).await;
            let _ = done.send((index, written)).await;
        });
    }

    async fn on_checkpoint(&mut self, index: u64, done: Result<u64>) -> Result<()> {
        self.checkpoint.running = false;
        match done {
            Ok(unneeded) => self.wal.compact(unneeded).await,
            Err(error) => {
                // The log still has everything; the next interval tries again.
                tracing::error!(%error, index, "writing a checkpoint failed");
                Ok(())
            }
        }
    }
}
