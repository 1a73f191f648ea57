//! A volume in a world, and shorthand for its calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::Runtime;
use ebb_runtime::virt::{Process, World, WorldOptions};
use ebb_types::{CHUNK_SIZE, ClusterId, Epoch, ErrorKind, MetablockId, NodeId, Result, Version};

use crate::crc::crc32c;
use crate::{Change, Progress, Volume, VolumeOptions, Write};

pub(super) fn options() -> VolumeOptions {
    VolumeOptions {
        segment_bytes: 256 << 10,
        checkpoint_bytes: 1 << 20,
        gap_wait: Duration::from_millis(200),
        ..VolumeOptions::new(ClusterId::new(7), Some(NodeId::new(3)))
    }
}

pub(super) fn version(epoch: u64, seq: u64) -> Version {
    Version::new(Epoch::new(epoch), seq)
}

pub(super) fn id(raw: u64) -> MetablockId {
    MetablockId::new(raw)
}

/// Bytes that differ by place and `seed`.
pub(super) fn bytes(len: usize, salt: u8) -> Bytes {
    (0..len).map(|at| (at / 7 + at * 13) as u8 ^ salt).collect::<Vec<_>>().into()
}

/// A write of bytes with their sums, cut where chunks are cut.
pub(super) fn data(offset: u64, bytes: &Bytes) -> Change {
    let mut checksums = Vec::new();
    let mut at = offset;
    let end = offset + bytes.len() as u64;
    while at < end {
        let stop = end.min((at / CHUNK_SIZE + 1) * CHUNK_SIZE);
        checksums.push(crc32c(&bytes[(at - offset) as usize..(stop - offset) as usize]));
        at = stop;
    }
    Change::Data { offset, bytes: bytes.clone(), checksums }
}

/// A change, done to a byte array.
pub(super) fn act(model: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Data { offset, bytes, .. } => {
            let end = *offset as usize + bytes.len();
            model.resize(model.len().max(end), 0);
            model[*offset as usize..end].copy_from_slice(bytes);
        }
        Change::Truncate { length } => model.resize(*length as usize, 0),
        Change::Punch { offset, len } | Change::Zero { offset, len } => {
            let end = model.len().min((offset + len) as usize);
            let start = end.min(*offset as usize);
            model[start..end].fill(0);
        }
        Change::Allocate { .. } => {}
    }
}

/// The place of a volume: a process of a virtual world, or a directory of the real one.
#[derive(Clone)]
pub(super) struct Rig {
    pub(super) runtime: Runtime,
    pub(super) process: Option<Process>,
    pub(super) root: PathBuf,
    pub(super) options: VolumeOptions,
}

impl Rig {
    pub(super) fn virt(world: &World) -> Self {
        let process = world.process("n1");
        Self { runtime: process.runtime(), process: Some(process), root: "/data/v1".into(), options: options() }
    }

    pub(super) fn real(root: &Path) -> Self {
        Self { runtime: Runtime::real(), process: None, root: root.join("v1"), options: options() }
    }

    /// Opens the volume; waits for the last user's lock to go.
    pub(super) async fn open(&self) -> Result<Volume> {
        let mut tries = 0;
        loop {
            match Volume::open(&self.runtime, &self.root, self.options.clone()).await {
                Err(error) if error.kind() == ErrorKind::Busy && tries < 500 => {
                    tries += 1;
                    self.runtime.sleep(Duration::from_millis(10)).await;
                }
                done => return done,
            }
        }
    }

    /// Power fails and comes back for a volume that others may still hold.
    pub(super) async fn open_again(&mut self, _dead: &Volume) -> Volume {
        self.crash();
        self.open().await.unwrap()
    }

    /// Power fails and comes back; in the real world, the process dies. The volume must have been dropped.
    pub(super) fn crash(&mut self) {
        if let Some(process) = &self.process {
            process.crash();
            self.runtime = process.restart();
        }
    }

    pub(super) fn virt_process(&self) -> &Process {
        self.process.as_ref().expect("a virtual rig")
    }
}

/// Runs a test in a virtual world.
pub(super) fn in_world<F: Future>(seed: u64, body: impl FnOnce(Rig) -> F) -> F::Output {
    World::run(seed, WorldOptions::default(), |world| body(Rig::virt(&world)))
}

/// Runs a test on a real disk.
pub(super) fn in_reality<F: Future>(body: impl FnOnce(Rig) -> F) -> F::Output {
    let directory = tempfile::tempdir().unwrap();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(body(Rig::real(directory.path())))
}

/// Sends changes to one replica, one version after the other.
pub(super) struct Writer<'a> {
    pub(super) volume: &'a Volume,
    pub(super) metablock: MetablockId,
    pub(super) at: Version,
}

impl<'a> Writer<'a> {
    pub(super) fn new(volume: &'a Volume, metablock: u64) -> Self {
        Self { volume, metablock: id(metablock), at: Version::ZERO }
    }

    pub(super) async fn send(&mut self, change: Change, sync: bool) -> Result<Progress> {
        let next = if self.at == Version::ZERO { version(1, 1) } else { self.at.successor(self.at.epoch) };
        let progress = self.volume.write(&self.write(next, self.at, change), sync).await?;
        self.at = next;
        Ok(progress)
    }

    pub(super) fn write(&self, version: Version, predecessor: Version, change: Change) -> Write {
        let incarnation = self.volume.label().incarnation;
        Write { metablock: self.metablock, incarnation, version, predecessor, change, authority: version.epoch }
    }
}
