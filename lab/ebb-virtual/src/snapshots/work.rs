//! One client's work on snapshots.

use ebb_client::{Access, Client, EntryDetail};
use ebb_runtime::Runtime;
use ebb_runtime::virt::Dice;
use ebb_types::{Credentials, ErrorKind, InodeId, Result};
use ebb_wire::pb::meta_op::{Op, RemoveSnapshot, TakeSnapshot};

use super::{Look, ROOT, Snapshot, Standing, list, live_inode};
use crate::cell::{CELL, Value, inspect_run};
use crate::files::directory_of;
use crate::workload::{Board, CELLS, LOGS, PLACED, RUN_MAX, name};

/// Snapshots of a client at a time.
const OWN_MAX: usize = 3;
/// Entries of one call for a listing.
const PAGE: u32 = 100;

/// One client's work.
pub struct Taker {
    board: Board,
    number: usize,
    client: Client,
    runtime: Runtime,
}

impl Taker {
    /// Works on the snapshots of the run's dataset through this session.
    #[must_use]
    pub fn new(board: Board, number: usize, client: Client, runtime: Runtime) -> Self {
        Self { board, number, client, runtime }
    }

    /// Works until the run ends, resting between operations.
    pub async fn run(self, mut dice: Dice, pause_max: std::time::Duration) {
        while !self.board.is_done() {
            if let Err(error) = self.step(&mut dice).await {
                tracing::debug!(client = self.number, %error, "nothing of a snapshot");
            }
            self.runtime.sleep(dice.span(pause_max)).await;
        }
    }

    async fn step(&self, dice: &mut Dice) -> Result<()> {
        let own = self.own();
        match dice.below(10) {
            0..3 if own.len() < OWN_MAX => self.take_snapshot(dice).await,
            3 if !own.is_empty() => self.remove(&dice.pick(&own).clone()).await,
            _ if !own.is_empty() => self.read_some_cells(&dice.pick(&own).clone(), dice).await,
            _ => Ok(()),
        }
    }

    /// Snapshots that this client took, in this life or an earlier one, and that are there.
    fn own(&self) -> Vec<String> {
        let history = self.board.history.lock();
        let prefix = format!("s{}-", self.number);
        let there = history.snapshots().iter().filter(|(_, one)| one.standing == Standing::There);
        there.map(|(name, _)| name.clone()).filter(|name| name.starts_with(&prefix)).collect()
    }

    async fn take_snapshot(&self, dice: &mut Dice) -> Result<()> {
        let name = format!("s{}-{:x}", self.number, dice.bits());
        let dataset = list(&self.client).await?.0.id;
        let asked = Snapshot::asked(self.board.now());
        self.board.history.lock().snapshots_mut().insert(name.clone(), asked);
        let op = Op::TakeSnapshot(TakeSnapshot { dataset, name: name.clone().into() });
        self.client.meta(&Credentials::root(), op).await?;
        let now = self.board.now();
        self.with(&name, |taken| taken.is_seen(now));
        self.board.world.add_event("snapshot", &[]);
        Ok(())
    }

    async fn remove(&self, name: &str) -> Result<()> {
        let (dataset, snapshots) = list(&self.client).await?;
        let Some(snapshot) = snapshots.get(name) else {
            self.complain(format!("{name} was taken, nobody removed it, and no list has it"));
            return Ok(());
        };
        self.with(name, |taken| taken.standing = Standing::Leaving);
        let op = Op::RemoveSnapshot(RemoveSnapshot { dataset: dataset.id, snapshot: *snapshot });
        self.client.meta(&Credentials::root(), op).await?;
        self.with(name, |taken| taken.standing = Standing::Gone);
        Ok(())
    }

    /// Reads some cells of a shared file, or of one of a client's own.
    async fn read_some_cells(&self, snapshot: &str, dice: &mut Dice) -> Result<()> {
        let top = self.must_be_there(snapshot, self.top(snapshot).await)?;
        let (first, count) = if dice.coin() { (0, RUN_MAX) } else { (dice.below(CELLS), RUN_MAX) };
        if dice.chance(0.6) {
            return self.read_shared(snapshot, top, dice.index(PLACED + LOGS), first, count).await;
        }
        let directory = match dice.coin() {
            true => top,
            false => self.client.lookup(&Credentials::root(), top, directory_of(self.number).as_bytes()).await?.inode,
        };
        let own = self.own_files_in(directory).await?;
        if own.is_empty() {
            return Ok(());
        }
        let (file, inode) = *dice.pick(&own);
        self.read(snapshot, file, inode, first % RUN_MAX, count).await
    }

    /// The snapshot's root directory.
    pub(super) async fn top(&self, snapshot: &str) -> Result<InodeId> {
        let path = format!("{ROOT}/.snapshot/{snapshot}");
        Ok(self.client.resolve(&Credentials::root(), path.as_bytes()).await?.inode)
    }

    /// Reads cells of a shared file. One that was not made when the snapshot was taken is empty.
    pub(super) async fn read_shared(
        &self,
        snapshot: &str,
        top: InodeId,
        file: usize,
        first: u64,
        count: u64,
    ) -> Result<()> {
        match self.client.lookup(&Credentials::root(), top, name(file).as_bytes()).await {
            Ok(found) => self.read(snapshot, file, found.inode, first, count).await,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let values = (first..first + count).map(|cell| (cell, Value::Empty)).collect();
                self.with(snapshot, |taken| taken.looks.push(Look { file, values }));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Own files of clients in a directory of a snapshot, with their numbers, as far as their makers were told their inodes.
    pub(super) async fn own_files_in(&self, directory: InodeId) -> Result<Vec<(usize, InodeId)>> {
        let listed = self.names_in(directory).await?;
        let history = self.board.history.lock();
        let own = |inode: InodeId| history.own_file_of(live_inode(inode)).map(|file| (file, inode));
        Ok(listed.into_iter().filter(|(name, _)| name.starts_with('o')).filter_map(|(_, inode)| own(inode)).collect())
    }

    /// Names and inodes of a directory.
    pub(super) async fn names_in(&self, directory: InodeId) -> Result<Vec<(String, InodeId)>> {
        let mut names = Vec::new();
        let mut after = None;
        loop {
            let page = self.client.read_dir(&Credentials::root(), directory, after, PAGE, EntryDetail::Names).await?;
            for entry in page.entries {
                after = Some(entry.cookie);
                names.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.inode));
            }
            if page.is_last {
                return Ok(names);
            }
        }
    }

    /// Reads cells of a file in a snapshot, and records what was met.
    pub(super) async fn read(&self, snapshot: &str, file: usize, inode: InodeId, first: u64, count: u64) -> Result<()> {
        let opened = self.client.open(&Credentials::root(), inode, Access::Read).await;
        let (handle, _) = self.must_be_there(snapshot, opened)?;
        let data = self.client.read(handle, first * CELL, (count * CELL) as u32).await;
        self.client.close(handle).await;
        let values = inspect_run(first, count, &self.must_be_there(snapshot, data)?);
        self.with(snapshot, |taken| taken.looks.push(Look { file, values }));
        Ok(())
    }

    /// Nothing of a snapshot goes before its removal is asked for.
    fn must_be_there<T>(&self, snapshot: &str, found: Result<T>) -> Result<T> {
        if let Err(error) = &found
            && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale)
        {
            self.complain(format!("{snapshot} was taken, nobody removed it, and client {}: {error}", self.number));
        }
        found
    }

    pub(super) fn complain(&self, complaint: String) {
        self.board.history.lock().complain("cut", complaint);
    }

    pub(super) fn with(&self, name: &str, change: impl FnOnce(&mut Snapshot)) {
        if let Some(taken) = self.board.history.lock().snapshots_mut().get_mut(name) {
            change(taken);
        }
    }
}
