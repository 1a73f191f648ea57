//! Copies between two nodes that are never awake together, by way of the proxy's own disk.
//!
//! A copy is first made here, from the one node, through as many of its wakes as it takes; then the other node pulls it
//! from here as it would from the first. So it arrives however short either is awake, and with the checksums that its
//! writer made: the volume here keeps them, as every volume does, and whoever pulls compares.
//!
//! What is staged is worth nothing: after a crash it is dropped, and whoever wanted it begins anew.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::Client;
use ebb_rpc::{Answer, Payload};
use ebb_runtime::{Moment, Runtime};
use ebb_store::{
    Deletion, Found, Pull, PullFuture, PullSource, ReadData, ReplicaVersion, SourceChunks, Volume, VolumeOptions,
};
use ebb_types::{ClusterId, Epoch, MetablockId, NodeId, Result, Version, bail, err};
use ebb_wire::pb::relay_call::Call;
use ebb_wire::pb::relay_reply;
use ebb_wire::{convert, pb};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Copies at a time, being made or waiting to be pulled.
const STAGED_MAX: usize = 64;
/// One that nobody has asked for, or read, for so long is dropped.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// Longest that a source is waited for.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);
/// Smallest journal segments: there is little to write, and nothing to keep.
const SEGMENT_BYTES: u64 = 1 << 20;

/// The proxy's place for copies on their way.
pub(crate) struct Stage {
    runtime: Runtime,
    client: Client,
    cluster: ClusterId,
    dir: Option<PathBuf>,
    bytes_max: u64,
    /// Opened when it is first needed.
    volume: tokio::sync::Mutex<Option<Volume>>,
    staged: Arc<Mutex<BTreeMap<MetablockId, Arc<Staged>>>>,
}

/// One copy.
struct Staged {
    at: Version,
    used: Mutex<Moment>,
    done: Mutex<Option<Result<ReplicaVersion>>>,
    ended: Notify,
}

impl Staged {
    async fn wait(&self) -> Result<ReplicaVersion> {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if let Some(done) = self.done.lock().clone() {
                return done;
            }
            ended.await;
        }
    }

    fn end(&self, done: Result<ReplicaVersion>) {
        *self.done.lock() = Some(done);
        self.ended.notify_waiters();
    }

    fn is_under_way(&self) -> bool {
        self.done.lock().is_none()
    }
}

impl Stage {
    /// In a directory that may be lost at any time; none: nothing can be staged.
    pub fn new(runtime: Runtime, client: Client, cluster: ClusterId, dir: Option<PathBuf>, bytes_max: u64) -> Self {
        let (volume, staged) = (tokio::sync::Mutex::default(), Arc::default());
        Self { runtime, client, cluster, dir, bytes_max, volume, staged }
    }

    /// Answers `StageReplica`: when the copy is here, or `Timeout` before `deadline`; it goes on then.
    pub async fn stage(&self, call: pb::StageReplica, deadline: Duration) -> Result<Answer> {
        let (metablock, at) = (MetablockId::new(call.metablock), convert::version(call.at));
        let volume = self.open().await?;
        let staged = self.begin(&volume, metablock, at, call)?;
        let what = "the node to copy from has not been awake for long enough yet";
        let done = self.runtime.timeout(deadline, what, async { Ok(staged.wait().await) }).await?;
        if done.is_err() {
            // Whoever asks again has it begun again.
            self.staged.lock().remove(&metablock);
        }
        let done = done?;
        Ok(Answer::new(&pb::StageReplicaReply { version: Some(done.version.into()), length: done.length }))
    }

    fn begin(
        &self,
        volume: &Volume,
        metablock: MetablockId,
        at: Version,
        call: pb::StageReplica,
    ) -> Result<Arc<Staged>> {
        let now = self.runtime.now();
        let mut all = self.staged.lock();
        if let Some(known) = all.get(&metablock).filter(|known| known.at == at || known.is_under_way()) {
            *known.used.lock() = now;
            if known.at != at {
                bail!(Busy, "{metablock} is being staged at {}", known.at);
            }
            return Ok(Arc::clone(known));
        }
        if all.len() >= STAGED_MAX {
            bail!(Overloaded, "{STAGED_MAX} copies are on their way already");
        }
        let Some(source) = call.source else { bail!(Protocol, "a copy of {metablock} from nowhere") };
        let staged = Arc::new(Staged { at, used: Mutex::new(now), done: Mutex::default(), ended: Notify::new() });
        all.insert(metablock, Arc::clone(&staged));
        let patience = Duration::from_millis(call.patience_ms.into()).min(PATIENCE_MAX);
        let source = Sleeper {
            runtime: self.runtime.clone(),
            client: self.client.clone(),
            member: source,
            metablock: call.metablock,
            until: now.after(patience),
        };
        let pull = Pull {
            metablock,
            incarnation: volume.label().incarnation,
            epoch: Epoch::new(call.epoch),
            at,
            rate_bytes_per_sec: call.rate_bytes_per_sec,
        };
        let (volume, own) = (volume.clone(), Arc::clone(&staged));
        // A task of its own: it may not stop half-way, and takes longer than its caller waits.
        self.runtime.spawn("stage a copy", async move {
            let done = volume.pull(pull, &source).await;
            if let Err(error) = &done {
                tracing::info!(%metablock, %error, "a copy could not be staged");
            }
            own.end(done);
        });
        Ok(staged)
    }

    /// The volume for what is on its way, empty.
    async fn open(&self) -> Result<Volume> {
        let mut open = self.volume.lock().await;
        if let Some(volume) = open.as_ref().filter(|volume| volume.poisoned().is_none()) {
            return Ok(volume.clone());
        }
        let Some(dir) = &self.dir else { bail!(Unsupported, "this proxy has no directory for copies on their way") };
        // The old one has its directory locked.
        *open = None;
        let defaults = VolumeOptions::new(self.cluster, NodeId::default());
        let options = VolumeOptions {
            segment_bytes: SEGMENT_BYTES,
            checkpoint_bytes: 4 * SEGMENT_BYTES,
            limit_bytes: Some(self.bytes_max),
            ..defaults
        };
        let volume = Volume::open(&self.runtime, dir, options).await?;
        let left: Vec<MetablockId> = volume.report(None, usize::MAX).iter().map(|one| one.metablock).collect();
        delete(&volume, &left).await?;
        *open = Some(volume.clone());
        Ok(volume)
    }

    /// Answers `UnstageReplica`.
    pub async fn unstage(&self, metablock: MetablockId) -> Result<Answer> {
        let over = {
            let mut all = self.staged.lock();
            match all.get(&metablock) {
                Some(staged) if !staged.is_under_way() => all.remove(&metablock),
                _ => None,
            }
        };
        if over.is_some() {
            delete(&self.open().await?, &[metablock]).await?;
        }
        Ok(Answer::new(&pb::Empty {}))
    }

    /// Drops what nobody has used for long. To be called every now and then.
    pub async fn sweep(&self) {
        let now = self.runtime.now();
        let is_over = |staged: &Staged| !staged.is_under_way() && now.since(*staged.used.lock()) >= IDLE_MAX;
        let over: Vec<MetablockId> =
            self.staged.lock().iter().filter(|(_, staged)| is_over(staged)).map(|(id, _)| *id).collect();
        for metablock in over {
            if let Err(error) = self.unstage(metablock).await {
                tracing::warn!(%metablock, %error, "a staged copy is not dropped");
            }
        }
    }

    /// The volume, if this copy is whole in it.
    async fn find(&self, metablock: MetablockId) -> Result<Volume> {
        let staged = self.staged.lock().get(&metablock).cloned();
        let Some(staged) = staged.filter(|staged| matches!(*staged.done.lock(), Some(Ok(_)))) else {
            bail!(NoReplica, "no copy of {metablock} is staged here");
        };
        *staged.used.lock() = self.runtime.now();
        self.open().await
    }

    /// Answers `ReadReplica` of what is staged.
    pub async fn read(&self, call: pb::ReadReplica) -> Result<Answer> {
        let metablock = MetablockId::new(call.metablock);
        let volume = self.find(metablock).await?;
        let read = volume.read(metablock, convert::version(call.min_version), call.offset, call.length).await?;
        let payload = match read.data {
            ReadData::Buffer(bytes) if bytes.is_empty() => Payload::Empty,
            ReadData::Buffer(bytes) => Payload::Buffers(vec![bytes]),
            ReadData::File(file, runs) => {
                Payload::Files(runs.into_iter().map(|(offset, len)| (file.clone(), offset, len)).collect())
            }
        };
        let reply =
            pb::ReadReplicaReply { version: Some(read.version.into()), length: read.length, checksums: read.checksums };
        Ok(Answer::with(&reply, payload))
    }

    /// Answers `SeekReplica` of what is staged.
    pub async fn seek(&self, call: pb::SeekReplica) -> Result<Answer> {
        let metablock = MetablockId::new(call.metablock);
        let volume = self.find(metablock).await?;
        let found = volume.seek(metablock, convert::version(call.min_version), call.offset, call.hole).await?;
        Ok(Answer::new(&pb::SeekReplicaReply {
            offset: found.offset.unwrap_or(0),
            found: found.offset.is_some(),
            length: found.length,
        }))
    }
}

async fn delete(volume: &Volume, metablocks: &[MetablockId]) -> Result<()> {
    // A later copy of the same is welcome, of any epoch.
    let deletion = |metablock: &MetablockId| Deletion { metablock: *metablock, epoch: Some(Epoch::new(0)), life: None };
    volume.delete(&metablocks.iter().map(deletion).collect::<Vec<_>>()).await
}

/// A replica on a node that blinks: read when it is awake.
struct Sleeper {
    runtime: Runtime,
    client: Client,
    member: pb::Member,
    metablock: u64,
    until: Moment,
}

impl Sleeper {
    async fn ask(&self, call: Call) -> Result<(relay_reply::Answer, Bytes)> {
        let may = || match self.runtime.now() < self.until {
            true => Ok(()),
            // No kind that is tried again: patience is over for the whole copy.
            false => Err(err!(Unavailable, "n{} was not awake for long enough in time", self.member.node)),
        };
        let done = self.client.deliver(&[self.member], &call, &Bytes::new(), may).await?;
        Ok((done.answer, done.payload))
    }
}

impl PullSource for Sleeper {
    fn read(&self, min_version: Version, offset: u64, len: u64) -> PullFuture<'_, SourceChunks> {
        Box::pin(async move {
            let (metablock, min_version) = (self.metablock, Some(min_version.into()));
            let read = pb::ReadReplica { metablock, volume: 0, min_version, offset, length: len };
            match self.ask(Call::Read(read)).await? {
                (relay_reply::Answer::Read(reply), data) => Ok(SourceChunks {
                    version: convert::version(reply.version),
                    length: reply.length,
                    checksums: reply.checksums,
                    data,
                }),
                _ => bail!(Internal, "a read was answered as something else"),
            }
        })
    }

    fn seek(&self, min_version: Version, offset: u64, hole: bool) -> PullFuture<'_, Found> {
        Box::pin(async move {
            let (metablock, min_version) = (self.metablock, Some(min_version.into()));
            let seek = pb::SeekReplica { metablock, volume: 0, min_version, offset, hole };
            match self.ask(Call::Seek(seek)).await? {
                (relay_reply::Answer::Seek(reply), _) => {
                    Ok(Found { offset: reply.found.then_some(reply.offset), length: reply.length })
                }
                _ => bail!(Internal, "a seek was answered as something else"),
            }
        })
    }
}
