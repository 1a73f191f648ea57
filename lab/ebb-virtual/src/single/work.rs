//! A client's work meanwhile: makes files, writes to one that it holds, appends to one that all share, and reads.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Created, Handle, NewFile, SetAttr};
use ebb_runtime::virt::Dice;
use ebb_types::{Credentials, InodeId, Result, err};

use super::Desk;
use crate::invariants::available::{Operation, OperationKind};

/// The file that all append to.
pub(super) const SHARED: &str = "shared";
/// Bytes of a held file at most: three metablocks.
const HELD_MAX: u64 = 768 << 10;
/// Bytes of one write at most: some go to each member from the client, some from member to member.
const WRITE_MAX: u64 = 150 << 10;
/// Files that stay.
const KEPT_MAX: usize = 8;
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// One client.
pub(super) struct Worker {
    desk: Desk,
    number: usize,
    client: Client,
    directory: InodeId,
    made: u64,
    /// Files that were made and are there, with their contents.
    kept: Vec<(String, Vec<u8>)>,
    /// The content of the held file.
    held: Vec<u8>,
    /// Which one it is.
    held_inode: InodeId,
}

impl Worker {
    pub(super) fn new(desk: Desk, number: usize, client: Client, directory: InodeId) -> Self {
        Self { desk, number, client, directory, made: 0, kept: Vec::new(), held: Vec::new(), held_inode: InodeId::ROOT }
    }

    /// Works until the run ends; returns files and their contents, as acknowledged.
    pub(super) async fn run(mut self, mut dice: Dice) -> Vec<(String, Vec<u8>)> {
        let held = self.held_name(self.number);
        let made =
            self.record_operation(OperationKind::Create, make(&self.client, self.directory, &held, Bytes::new())).await;
        let shared = self.record_operation(OperationKind::ReadOther, open(&self.client, self.directory, SHARED)).await;
        let (Some((own, inode)), Some(shared)) = (made, shared) else { return Vec::new() };
        self.held_inode = inode;
        let mut is_known = true;
        while !self.desk.done.load(Ordering::Relaxed) {
            let world = self.desk.cluster.world().clone();
            world.sleep(dice.span(PAUSE_MAX)).await;
            is_known &= match dice.below(100) {
                0..25 => self.create(&mut dice).await,
                25..50 => self.write(own, &mut dice).await,
                50..55 => self.truncate(own, &mut dice).await,
                55..70 => self.append(shared, &mut dice).await,
                70..85 => self.read(own, &mut dice).await,
                _ => self.read_other().await,
            };
        }
        if is_known {
            self.kept.push((held, std::mem::take(&mut self.held)));
        }
        self.kept
    }

    fn held_name(&self, number: usize) -> String {
        format!("held{number}")
    }

    /// Does it, and notes how long it took and how it ended.
    async fn record_operation<T>(&self, kind: OperationKind, operation: impl Future<Output = Result<T>>) -> Option<T> {
        let world = self.desk.cluster.world();
        let start = world.now();
        let done = operation.await;
        let end = world.now();
        let error = done.as_ref().err().map(ToString::to_string);
        self.desk.operations.lock().push(Operation { client: self.number, kind, start, end, error });
        done.ok()
    }

    fn bytes(&mut self, len: u64) -> Bytes {
        self.made += 1;
        let seed = self.made * 2 + self.number as u64;
        (0..len)
            .map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(0x9E37)) as u8)
            .collect::<Vec<_>>()
            .into()
    }

    async fn create(&mut self, dice: &mut Dice) -> bool {
        if self.kept.len() >= KEPT_MAX {
            let (name, _) = self.kept.remove(0);
            let gone = async { self.client.unlink(&Credentials::root(), self.directory, name.as_bytes()).await };
            self.record_operation(OperationKind::Unlink, gone).await;
        }
        let data = self.bytes(length(dice));
        let name = format!("c{}-{}", self.number, self.made);
        let made =
            self.record_operation(OperationKind::Create, make(&self.client, self.directory, &name, data.clone())).await;
        if let Some((handle, _)) = made {
            self.client.close(handle).await;
            self.kept.push((name, data.to_vec()));
        }
        true
    }

    async fn write(&mut self, own: Handle, dice: &mut Dice) -> bool {
        let data = self.bytes(length(dice));
        let offset = dice.below((self.held.len() as u64 + 1).min(HELD_MAX - WRITE_MAX));
        self.write_at(OperationKind::Write, own, None, offset, data).await
    }

    async fn truncate(&mut self, own: Handle, dice: &mut Dice) -> bool {
        let size = dice.below(self.held.len() as u64 + 1);
        let data = self.bytes(length(dice));
        self.write_at(OperationKind::Truncate, own, Some(size), size / 2, data).await
    }

    async fn write_at(
        &mut self,
        kind: OperationKind,
        own: Handle,
        size: Option<u64>,
        offset: u64,
        data: Bytes,
    ) -> bool {
        let written = async {
            if let Some(size) = size {
                let set = SetAttr { size: Some(size), by_handle: true, ..SetAttr::default() };
                self.client.set_attr(&Credentials::root(), self.held_inode, set).await?;
            }
            self.client.write(own, offset, data.clone()).await?;
            self.client.fsync(own).await
        };
        if self.record_operation(kind, written).await.is_none() {
            return false;
        }
        if let Some(size) = size {
            self.held.resize(size as usize, 0);
        }
        let (from, to) = (offset as usize, offset as usize + data.len());
        self.held.resize(self.held.len().max(to), 0);
        self.held[from..to].copy_from_slice(&data);
        true
    }

    async fn append(&mut self, shared: Handle, dice: &mut Dice) -> bool {
        let data = self.bytes(dice.between(1, 5_000));
        let appended = async {
            self.client.append(shared, data).await?;
            self.client.fsync(shared).await
        };
        self.record_operation(OperationKind::Append, appended).await;
        true
    }

    async fn read(&mut self, own: Handle, dice: &mut Dice) -> bool {
        let offset = dice.below(self.held.len() as u64 + 1) as usize;
        let wanted = self.held[offset..].to_vec();
        let read = async {
            let read = self.client.read(own, offset as u64, 60_000).await?;
            match wanted.starts_with(&read) {
                true => Ok(()),
                false => Err(err!(Internal, "the bytes at {offset} are not those that were written")),
            }
        };
        self.record_operation(OperationKind::Read, read).await;
        true
    }

    async fn read_other(&mut self) -> bool {
        let name = self.held_name(1 - self.number);
        // It may not be there yet.
        let (root, directory) = (Credentials::root(), self.directory);
        if self.client.lookup(&root, directory, name.as_bytes()).await.is_ok() {
            self.record_operation(OperationKind::ReadOther, read_some(&self.client, directory, &name)).await;
        }
        true
    }
}

/// Mostly little, now and then much.
fn length(dice: &mut Dice) -> u64 {
    if dice.chance(0.3) { dice.between(65 << 10, WRITE_MAX) } else { dice.between(1, 5_000) }
}

async fn make(client: &Client, directory: InodeId, name: &str, data: Bytes) -> Result<(Handle, InodeId)> {
    let (root, access) = (Credentials::root(), Access::ReadWrite);
    let Created { handle, attr, .. } =
        client.create(&root, NewFile::exclusive(directory, name.as_bytes(), access)).await?;
    if !data.is_empty() {
        client.write(handle, 0, data).await?;
    }
    client.fsync(handle).await?;
    Ok((handle, attr.inode))
}

async fn open(client: &Client, directory: InodeId, name: &str) -> Result<Handle> {
    let root = Credentials::root();
    let inode = client.lookup(&root, directory, name.as_bytes()).await?.inode;
    Ok(client.open(&root, inode, Access::ReadWrite).await?.0)
}

async fn read_some(client: &Client, directory: InodeId, name: &str) -> Result<()> {
    let root = Credentials::root();
    let inode = client.lookup(&root, directory, name.as_bytes()).await?.inode;
    let (handle, _) = client.open(&root, inode, Access::Read).await?;
    let read = client.read(handle, 0, 50_000).await;
    client.close(handle).await;
    read.map(drop)
}

/// All of a file.
pub(super) async fn read_whole(client: &Client, directory: InodeId, name: &str) -> Result<Vec<u8>> {
    let root = Credentials::root();
    let inode = client.lookup(&root, directory, name.as_bytes()).await?.inode;
    let (handle, _) = client.open(&root, inode, Access::Read).await?;
    let mut all = Vec::new();
    loop {
        let part = client.read(handle, all.len() as u64, 100_000).await?;
        if part.is_empty() {
            client.close(handle).await;
            return Ok(all);
        }
        all.extend_from_slice(&part);
    }
}
