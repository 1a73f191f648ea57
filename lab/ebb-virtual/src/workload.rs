//! The work of clients: write, overwrite, append, truncate, punch holes, read, rename and fsync on a few shared files;
//! make, fill, rename, link, replace and remove files of their own ([`crate::own`]); lock ([`crate::locks`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Allocate, Metrics};
use ebb_runtime::Runtime;
use ebb_runtime::virt::{Dice, World};
use ebb_types::CHUNK_SIZE;
use parking_lot::Mutex;

use crate::cell::{CELL, WriteId, fill, inspect_run};
use crate::datasets::METABLOCK;
use crate::faults::kind::Kind;
use crate::files::Files;
use crate::history::{Change, History, Read, Time};
use crate::own::OwnFiles;

/// Files that are overwritten in place.
pub const PLACED: usize = 3;

/// Files that are appended to, after the placed ones.
pub const LOGS: usize = 1;

/// Files that are only renamed.
pub const TOKENS: usize = 2;

/// Cells of a placed file: several metablocks, so that edges are met, few enough that clients meet each other.
pub(crate) const CELLS: u64 = 1000;

/// Cells of one write or read.
pub(crate) const RUN_MAX: u64 = 80;

/// Cells of a chunk, the unit of checksums.
const CHUNK_CELLS: u64 = CHUNK_SIZE / CELL;

/// The share of operations that go to the files which are used in turns.
const IN_TURNS: f64 = 0.8;

/// The share of writes to these, and of reads, that lie in two metablocks.
const AT_EDGE: f64 = 0.4;

/// Numbers of clients' own files start here.
pub const OWN_FIRST: usize = 100;

/// The name of a shared file.
#[must_use]
pub fn name(file: usize) -> String {
    format!("f{file}")
}

/// The state that all clients of a run share.
#[derive(Clone)]
pub struct Board {
    /// The world.
    pub world: World,
    /// The history.
    pub history: Arc<Mutex<History>>,
    /// The last time that was given to an event of the history.
    pub last: Arc<AtomicU64>,
    /// How often each kind of fault was begun.
    pub injected: Arc<Mutex<BTreeMap<Kind, u64>>>,
    /// The counters of each life of a client, by client and start.
    pub counts: Arc<Mutex<BTreeMap<(usize, Time), Metrics>>>,
    /// Nodes that were called gray.
    pub gray: Arc<Mutex<BTreeSet<u64>>>,
    /// Most operations go to one file of each kind.
    pub in_turns: bool,
    /// Workers end their loop when it is set.
    pub done: Arc<AtomicBool>,
}

impl Board {
    /// The time of an event of the history. No two have the same, for much is done in no virtual time: a write that
    /// returned after an fsync had begun must not pass for one that the fsync promised to keep.
    pub(crate) fn now(&self) -> Time {
        let world = u64::try_from(self.world.now().as_nanos()).unwrap_or(u64::MAX);
        let time = world.max(self.last.load(Ordering::Relaxed) + 1);
        self.last.store(time, Ordering::Relaxed);
        time
    }

    /// Whether workers end their loop.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }
}

/// One client as the workload and the oracle see it.
#[derive(Clone)]
pub struct Worker {
    /// The state that all share.
    pub board: Board,
    /// Which client.
    pub client: usize,
    /// Its files.
    pub files: Arc<dyn Files>,
}

impl Worker {
    /// Works until the run ends, resting a little between operations.
    pub async fn run(self, runtime: Runtime, mut dice: Dice, pause_max: Duration) {
        let mut own = OwnFiles::default();
        while !self.board.done.load(Ordering::Relaxed) {
            if dice.chance(0.15) {
                own.step(&self, &mut dice).await;
            } else {
                self.step(&mut dice).await;
            }
            runtime.sleep(dice.span(pause_max)).await;
        }
    }

    /// The time of an event of the history.
    pub(crate) fn now(&self) -> Time {
        self.board.now()
    }

    /// The name that a file has now, as far as is known.
    fn name(&self, file: usize) -> String {
        if file < OWN_FIRST {
            return name(file);
        }
        self.board.history.lock().own_name(file).unwrap_or_default()
    }

    async fn step(&self, dice: &mut Dice) {
        let in_turns = self.board.in_turns && dice.chance(IN_TURNS);
        let file = if in_turns { *dice.pick(&[0, PLACED]) } else { dice.index(PLACED + LOGS) };
        let is_log = file >= PLACED;
        match dice.below(100) {
            0..40 if is_log => self.append(file, dice).await,
            0..40 => self.write(file, dice).await,
            40..42 => self.truncate(file, dice).await,
            42..46 if !is_log => self.allocate(file, dice).await,
            42..80 => self.read(file, dice).await,
            80..90 => self.fsync(file).await,
            90..95 => self.push(file).await,
            _ => self.rename(dice).await,
        }
    }

    async fn write(&self, file: usize, dice: &mut Dice) {
        let (first, count) = if self.is_at_edge(dice) { cells_over_edge(dice) } else { some_cells(dice) };
        self.write_cells(file, first, count).await;
        if dice.chance(0.3) {
            self.fsync(file).await;
        }
    }

    /// Where clients take turns they meet at the edge of two metablocks.
    fn is_at_edge(&self, dice: &mut Dice) -> bool {
        self.board.in_turns && dice.chance(AT_EDGE)
    }

    /// Writes cells and notes how it went.
    pub(crate) async fn write_cells(&self, file: usize, first: u64, count: u64) {
        let change = Change::Data { first: Some(first), count };
        let id = self.board.history.lock().begin_write(self.client, file, change, self.now());
        let written = self.files.write(&self.name(file), first * CELL, contents(id, count)).await;
        self.ended(id, file, written.map(|()| None));
    }

    async fn append(&self, file: usize, dice: &mut Dice) {
        let count = dice.between(1, 8);
        let id =
            self.board.history.lock().begin_write(self.client, file, Change::Data { first: None, count }, self.now());
        let written = self.files.append(&self.name(file), contents(id, count)).await;
        self.ended(id, file, written.map(|offset| Some(offset / CELL)));
        if dice.chance(0.5) {
            self.fsync(file).await;
        }
    }

    async fn truncate(&self, file: usize, dice: &mut Dice) {
        let from = if file >= PLACED { 0 } else { dice.below(CELLS) };
        let id = self.board.history.lock().begin_write(self.client, file, Change::Truncate { from }, self.now());
        let done = self.files.truncate(&self.name(file), from * CELL).await;
        self.ended(id, file, done.map(|()| None));
    }

    /// Punches a hole, writes zeroes, or only reserves room.
    async fn allocate(&self, file: usize, dice: &mut Dice) {
        let (first, count) =
            if dice.chance(0.3) { (dice.below(CELLS), dice.between(1, CELLS)) } else { some_cells(dice) };
        let mode = *dice.pick(&[Allocate::PunchHole, Allocate::ZeroKeepSize, Allocate::ReserveKeepSize]);
        let name = self.name(file);
        let done = self.files.allocate(&name, mode, first * CELL, count * CELL);
        if mode == Allocate::ReserveKeepSize {
            if done.await.is_err() {
                self.board.history.lock().failed(self.client, file);
            }
            return;
        }
        let id = self.board.history.lock().begin_write(self.client, file, Change::Clear { first, count }, self.now());
        let done = done.await;
        self.ended(id, file, done.map(|()| None));
    }

    fn ended(&self, id: WriteId, file: usize, result: ebb_types::Result<Option<u64>>) {
        let mut history = self.board.history.lock();
        tracing::trace!(write = ?history.writes().get(&id), ?result, "ended");
        match result {
            Ok(appended_at) => history.end(id, self.now(), appended_at),
            Err(error) => {
                tracing::debug!(client = self.client, file, ?id, %error, "a write failed");
                history.failed(self.client, file);
            }
        }
    }

    pub(crate) async fn fsync(&self, file: usize) {
        let start = self.now();
        let synced = self.files.fsync(&self.name(file)).await;
        tracing::trace!(client = self.client, file, start, ?synced, "fsync");
        let mut history = self.board.history.lock();
        match synced {
            Ok(()) => history.synced(self.client, file, start),
            Err(error) => {
                tracing::debug!(client = self.client, file, %error, "an fsync failed");
                history.failed(self.client, file);
            }
        }
    }

    async fn push(&self, file: usize) {
        let start = self.now();
        let pushed = self.files.push(&self.name(file)).await;
        tracing::trace!(client = self.client, file, start, ?pushed, "push");
        let mut history = self.board.history.lock();
        match pushed {
            Ok(()) => history.pushed(self.client, file, start),
            Err(error) => {
                tracing::debug!(client = self.client, file, %error, "a push failed");
                history.failed(self.client, file);
            }
        }
    }

    async fn read(&self, file: usize, dice: &mut Dice) {
        let count = dice.between(1, RUN_MAX);
        let first = if dice.coin() { dice.below(64) } else { dice.below(CELLS) };
        let (first, count) = if self.is_at_edge(dice) { cells_over_edge(dice) } else { (first, count) };
        // A read that fails shows nothing.
        let _ = self.read_cells(file, first, count, false).await;
    }

    /// Reads cells and records the values.
    pub(crate) async fn read_cells(
        &self,
        file: usize,
        first: u64,
        count: u64,
        at_rest: bool,
    ) -> ebb_types::Result<u64> {
        let start = self.now();
        let data = self.files.read(&self.name(file), first * CELL, (count * CELL) as u32).await?;
        let values = inspect_run(first, count, &data);
        let end = self.now();
        tracing::trace!(client = self.client, file, first, count, start, end, bytes = data.len(), "read");
        self.board.history.lock().read(Read { client: self.client, file, values, start, end, at_rest });
        Ok(data.len() as u64)
    }

    async fn rename(&self, dice: &mut Dice) {
        // Under its present name: the listing may be out of date by the time of the rename, which is then refused.
        let Ok(names) = self.files.list().await else { return };
        let tokens: Vec<&String> = names.iter().map(|(name, _)| name).filter(|name| name.starts_with('t')).collect();
        if tokens.is_empty() {
            return;
        }
        let target = format!("t{:x}", dice.bits());
        let source = tokens[dice.index(tokens.len())];
        if let Err(error) = self.files.rename(source, &target).await {
            tracing::debug!(client = self.client, %error, "a rename failed");
        }
    }

    /// Reads every file as a whole, at rest.
    pub async fn read_everything(&self) -> ebb_types::Result<()> {
        let history_end = |file: usize| {
            let history = self.board.history.lock();
            let cells = history.writes().values().filter(|write| write.file == file).map(|write| match write.change {
                Change::Data { first: Some(first), count } => first + count,
                Change::Data { first: None, count } => count,
                Change::Truncate { from } => from,
                Change::Clear { first, .. } => first,
            });
            cells.max().unwrap_or(0)
        };
        let own = self.board.history.lock().own_files_that_stay();
        for file in (0..PLACED + LOGS).chain(own) {
            let end = history_end(file).next_multiple_of(RUN_MAX) + RUN_MAX;
            for first in (0..end).step_by(RUN_MAX as usize) {
                self.read_cells(file, first, RUN_MAX, true).await?;
            }
        }
        Ok(())
    }

    /// Makes everything of this client durable, so that the oracle may expect it.
    pub async fn fsync_everything(&self) {
        for file in 0..PLACED + LOGS {
            self.fsync(file).await;
        }
    }
}

/// First and count of cells to change: mostly few, and crowded at the front; now and then whole chunks, and enough of
/// them that an overwrite goes to another place of the replica's file instead of through the journal.
fn some_cells(dice: &mut Dice) -> (u64, u64) {
    if dice.chance(0.15) {
        let (chunks, count) = (CELLS / CHUNK_CELLS, dice.between(5, 16));
        return (dice.below(chunks - count) * CHUNK_CELLS, count * CHUNK_CELLS);
    }
    let count = if dice.chance(0.7) { dice.between(1, 4) } else { dice.between(1, RUN_MAX) };
    let span = if dice.coin() { 64 } else { CELLS - RUN_MAX };
    (dice.below(span), count)
}

/// First and count of cells on both sides of the first edge.
fn cells_over_edge(dice: &mut Dice) -> (u64, u64) {
    let (edge, before) = (METABLOCK / CELL, dice.between(1, RUN_MAX / 2));
    (edge - before, before + dice.between(1, RUN_MAX / 2))
}

fn contents(id: WriteId, count: u64) -> Bytes {
    (0..count).flat_map(|index| fill(id, index)).collect::<Vec<u8>>().into()
}
