//! Copies from another node's block server.

use std::time::Duration;

use ebb_rpc::Channel;
use ebb_store::{Found, PullFuture, PullSource, SourceChunks};
use ebb_types::Version;
use ebb_wire::{convert, pb};

/// For one piece of a copy.
const PIECE_DEADLINE: Duration = Duration::from_secs(10);

/// A replica on another node.
#[derive(Debug)]
pub(crate) struct RemoteReplica {
    pub(crate) channel: Channel,
    pub(crate) metablock: u64,
    pub(crate) volume: u64,
    /// To be decoded for this RAID set. 0: to be copied.
    pub(crate) raid_set: u64,
}

impl PullSource for RemoteReplica {
    fn read(&self, min_version: Version, offset: u64, len: u64) -> PullFuture<'_, SourceChunks> {
        Box::pin(async move {
            let (metablock, volume) = (self.metablock, self.volume);
            let read = pb::ReadReplica {
                metablock,
                volume,
                min_version: Some(min_version.into()),
                offset,
                length: len,
                queue_max: None,
                raid_set: self.raid_set,
            };
            let reply = self.channel.call_sized(&read, Vec::new(), len as usize, PIECE_DEADLINE).await?;
            Ok(SourceChunks {
                version: convert::version(reply.message.version),
                length: reply.message.length,
                checksums: reply.message.checksums,
                data: reply.payload,
            })
        })
    }

    fn seek(&self, min_version: Version, offset: u64, hole: bool) -> PullFuture<'_, Found> {
        Box::pin(async move {
            let (metablock, volume) = (self.metablock, self.volume);
            let seek = pb::SeekReplica { metablock, volume, min_version: Some(min_version.into()), offset, hole };
            let reply = self.channel.call(&seek, PIECE_DEADLINE).await?;
            Ok(Found { offset: reply.found.then_some(reply.offset), length: reply.length })
        })
    }
}
