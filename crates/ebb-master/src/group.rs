//! The raft group: one task owns the node, the log and the right to change the state machine.
//!
//! A proposal goes through propose, ready, append to the log, fdatasync, advance and apply. A group of one does the
//! same as any other: nothing skips the log. Proposals that arrive during a sync go into the next batch (group commit).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebb_meta::{Applied, Machine, Reply, version};
use ebb_runtime::{Moment, Runtime, Task};
use ebb_types::{ClusterId, Error, Result, bail, err};
use ebb_wire::{Message, pb};
use parking_lot::RwLock;
use pb::command::Command as Op;
use raft::eraftpb::{Entry, EntryType};
use raft::{RawNode, StateRole};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::log::wal::Urgency;
use crate::log::{Batch, CheckpointWriter, DataDir, LogMemory, Wal};

mod look;
mod options;
pub mod recover;
mod urgency;

use look::Look;
pub use options::GroupOptions;
use recover::{At, Commands, Start, recover};
use urgency::urgency;

/// This master's number in its group.
const SELF_ID: u64 = 1;
/// Maximum number of waiting proposals. Further ones fail with `Overloaded`.
const QUEUE_LEN: usize = 4096;
/// Maximum bytes of proposals in one synced write.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Maximum number of commands applied while the state's lock is held once, so that readers get their turn.
const APPLY_LEN_MAX: usize = 256;
/// Applied entries that stay in memory.
const RECENT_LEN: usize = 4096;
/// Interval of raft's clock.
const TICK: Duration = Duration::from_millis(200);

/// Observes every command as it is applied, while the state's lock is held. Its own state is thus consistent with the
/// state machine for anyone that holds that lock.
pub trait Observer: Send + Sync + 'static {
    /// Called after `command` was applied; `machine` is the new state.
    fn on_applied(&self, machine: &Machine, command: &pb::Command, applied: &Applied);
}

/// Handle of the group for services. Cheap to clone.
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

/// A group that has read its disk and does not serve yet.
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
    /// Reads the checkpoint and the log, elects itself and applies all committed entries.
    ///
    /// Errors: those of the disk; `Corrupt` for damage; `Internal` if raft refuses to start.
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

    /// Logs a command, and returns the state machine's answer.
    ///
    /// Errors: `Overloaded` if too many proposals wait, `ShuttingDown` if the log has stopped, and the command's own
    /// errors. After `Timeout` the command may still be applied.
    pub async fn propose(&self, op: Op) -> Result<Reply> {
        self.propose_observed(op).await?.reply
    }

    async fn propose_observed(&self, op: Op) -> Result<Applied> {
        self.machine().check_version(&op)?;
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

    /// Random step for a command that raises an epoch. It is drawn before the command is logged, so that every replay
    /// raises the epoch alike.
    fn draw_step(&self, op: &Op) -> u64 {
        match op {
            Op::Client(_) | Op::AcquireWrite(_) | Op::BeginRecovery(_) if self.epoch_step_max > 1 => {
                1 + self.runtime.random_u64() % self.epoch_step_max
            }
            _ => 0,
        }
    }

    /// Returns when reads see everything that was answered before the call.
    ///
    /// A group of one leads as long as it runs, and applies before it answers, so there is no wait. A larger group
    /// would ask raft's read index.
    pub async fn read_barrier(&self) -> Result<()> {
        if self.proposals.is_closed() {
            bail!(ShuttingDown, "the master's log has stopped; see its messages");
        }
        Ok(())
    }

    /// The applied state, for a short access. A thread may hold only one at a time.
    ///
    /// Lock order: this comes before any lock of soft state. It is never held across an await.
    #[track_caller]
    pub fn machine(&self) -> Look<'_> {
        Look::at(&self.machine)
    }

    /// A copy of the applied state, for a long access. It is cheap, because it shares everything until something
    /// changes.
    #[must_use]
    #[track_caller]
    pub fn snapshot(&self) -> Machine {
        self.machine().clone()
    }

    /// Number of synced writes to the log since the start.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Requests a checkpoint, however few entries there were since the last one.
    pub fn checkpoint(&self) {
        self.checkpoint_wanted.notify_one();
    }

    /// Ends the task after the current batch.
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
    /// The handle. Its proposals wait until [`Opened::serve`].
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Starts the task. It ends when all handles are gone, or with an error of the disk.
    pub fn serve(mut self, observer: Arc<dyn Observer>) -> Task<Result<()>> {
        self.driver.observer = Some(observer);
        let runtime = self.driver.runtime.clone();
        let driver = self.driver;
        runtime.spawn("raft", driver.run())
    }
}

fn config(runtime: &Runtime, applied: u64) -> raft::Config {
    // The library draws election timeouts from the thread's generator at every reset. A range of one value takes that
    // away. Members' timeouts differ by this draw from the runtime's (seeded) generator instead.
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
    /// Whether a checkpoint was requested.
    wanted: bool,
    /// Last entry of the newest checkpoint, or of the last try. On a full disk the next try waits for as many entries
    /// as after a success.
    index: u64,
    /// Bytes of entries applied since then.
    bytes: u64,
}

/// End of a task that wrote a checkpoint.
struct WrittenCheckpoint {
    /// Its last entry.
    index: u64,
    /// Last entry that the log no longer needs.
    unneeded: Result<u64>,
}

fn refuse(proposal: Proposal, error: ebb_types::Error) {
    // If the caller's deadline has passed, it no longer waits for the reply.
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
    /// Decoded commands of the entries that were found on the disk.
    commands: Commands,
    observer: Option<Arc<dyn Observer>>,
    options: GroupOptions,
    writer: CheckpointWriter,
    checkpoint: CheckpointState,
    checkpoint_done: mpsc::Sender<WrittenCheckpoint>,
    checkpoints: mpsc::Receiver<WrittenCheckpoint>,
    next_tick: Moment,
    /// Whether the log has reported a full disk.
    is_full: bool,
}

impl Driver {
    /// Elects itself. A group of one needs no other votes. Returns when the first entry of its own term is applied, and
    /// with it everything before.
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
            // The failed write may have reached the disk, and would then be applied at the next start. So no change is
            // refused: a client that repeats its request id learns the outcome.
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
                Some(written) = self.checkpoints.recv() => self.on_checkpoint(written).await?,
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

    /// Records up to where the log is synced. It is only a hint: without it, damage to the last write looks like a torn
    /// write.
    async fn note_synced(&mut self) {
        if let Err(error) = self.wal.note_synced().await {
            tracing::warn!(%error, "the synced length of the log could not be recorded");
        }
    }

    /// Proposes waiting changes, as far as the log has room. The check comes first, because raft cannot give back a
    /// proposal.
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

    /// Refuses changes for which the log has no room. On a full disk changes that grow something are refused first, so
    /// that removals still work.
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

    /// Logs once that the disk is full, and once that it has room again.
    fn note_full(&mut self, full: Option<&Error>) {
        match full {
            Some(error) if !self.is_full => {
                tracing::error!(%error, "the disk is full: changes that grow something are refused")
            }
            None if self.is_full && !self.wal.lacks_segment() => {
                tracing::info!("the master's disk has room again: all changes are accepted");
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

    /// One round of raft: persist, then advance, then apply.
    async fn work(&mut self) -> Result<()> {
        let mut ready = self.node.ready();
        self.apply(ready.take_committed_entries())?;
        let batch = Batch { hard_state: ready.hs().cloned(), conf_state: None, entries: ready.take_entries() };
        // Ordering: the log is on stable storage before raft counts it, and so before any of it is committed.
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
        // A commit index by itself can be recomputed, so it waits for the next entries.
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
                // If the caller's deadline has passed, it no longer waits for the reply.
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
        // Invariant: entries are applied in the order of the log, without a gap, or replicas of the machine would
        // differ.
        assert!(entry.index == self.at.index + 1, "entry {} is applied after entry {}", entry.index, self.at.index);
        self.at = At { index: entry.index, term: entry.term };
        self.checkpoint.bytes += entry.data.len() as u64;
        if entry.entry_type != EntryType::EntryNormal as i32 {
            bail!(Unsupported, "entry {} changes the group's members, which this release does not do", entry.index);
        }
        let proposal = self.take_pending(entry);
        if entry.data.is_empty() {
            // A leader begins its term with an empty entry.
            return Ok(None);
        }
        let (command, reply) = match proposal {
            Some(Proposal { command, reply }) => (command, Some(reply)),
            None => (self.commands.command_of(entry)?, None),
        };
        version::check_known(&command).map_err(|error| error.context(format_args!("entry {}", entry.index)))?;
        let applied = machine.apply(&command);
        if let Some(observer) = &self.observer {
            observer.on_applied(machine, &command, &applied);
        }
        Ok(reply.map(|reply| (reply, applied)))
    }

    /// The proposal that became this entry. Earlier proposals that lost their place fail with `NotLeader`.
    fn take_pending(&mut self, entry: &Entry) -> Option<Proposal> {
        while let Some(front) = self.pending.front() {
            if front.index > entry.index {
                return None;
            }
            let pending = self.pending.pop_front().expect("the queue has a front");
            if (pending.index, pending.term) == (entry.index, entry.term) {
                return Some(pending.proposal);
            }
            let _ = pending.proposal.reply.send(Err(err!(NotLeader, "another master took the lead; ask again")));
        }
        None
    }

    /// Minimum number of entries between checkpoints. To load a state takes about as long as to replay an eighth of it,
    /// and a large one should not be rewritten too often.
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
            let unneeded = writer.write(machine, index, term).await;
            let _ = done.send(WrittenCheckpoint { index, unneeded }).await;
        });
    }

    async fn on_checkpoint(&mut self, written: WrittenCheckpoint) -> Result<()> {
        self.checkpoint.running = false;
        match written.unneeded {
            Ok(unneeded) => self.wal.compact(unneeded).await,
            Err(error) => {
                // The log still has every entry, so the next interval tries again.
                tracing::error!(%error, index = written.index, "writing a checkpoint failed");
                Ok(())
            }
        }
    }
}
