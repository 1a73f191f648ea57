//! Where the parts of a RAID set are read and written: replicas here and on other nodes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ebb_code::Trailer;
use ebb_rpc::Caller;
use ebb_store::{PullSource, Purpose, SourceChunks};
use ebb_types::{CHUNK_SIZE, Epoch, Error, MetablockId, RaidSetId, Result, Version, bail, err};
use ebb_wire::frame::crc32c;
use ebb_wire::{convert, pb};
use parking_lot::Mutex;

use super::{PIECE_BYTES, required_metablock, required_version};
use crate::node::Node;
use crate::pipeline;
use crate::source::RemoteReplica;
use crate::{damage, disks};

/// Deadline of one read or write.
const DEADLINE: Duration = Duration::from_secs(10);
/// Epoch of the encoder's writes. The metablock is new, and nobody else writes it.
const EPOCH: Epoch = Epoch::new(1);

/// A part of a metablock that matches its sums.
#[derive(Clone, Debug, Default)]
pub(crate) struct Piece {
    pub(crate) data: Bytes,
    /// CRC-32C of each chunk.
    pub(crate) sums: Vec<u32>,
}

/// The version that a source must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    /// Exactly this one: that of a slot, or of a row that was written here.
    Exactly(Version),
    /// Any of the encoder's: a row has one writer, and one length.
    AnyOfEncoder,
}

impl Expected {
    fn least(self) -> Version {
        match self {
            Self::Exactly(version) => version,
            Self::AnyOfEncoder => Version::new(EPOCH, 1),
        }
    }

    fn is(self, version: Version) -> bool {
        match self {
            Self::Exactly(expected) => version == expected,
            Self::AnyOfEncoder => version.epoch == EPOCH,
        }
    }
}

/// One version of a metablock, and its replicas.
#[derive(Debug)]
pub(crate) struct Source {
    raid_set: RaidSetId,
    metablock: MetablockId,
    version: Expected,
    length: u64,
    hops: Vec<pb::Hop>,
    /// The hop that answered last.
    best: AtomicUsize,
    /// Hops whose replica was reported as damaged.
    reported: Mutex<BTreeSet<usize>>,
}

impl Source {
    /// A slot. It may have no members that can be had.
    pub(super) fn slot(raid_set: RaidSetId, slot: pb::EncodeSlot) -> Result<Self> {
        let version = Expected::Exactly(required_version(slot.version)?);
        Self::new(raid_set, slot.metablock, version, slot.length, slot.sources)
    }

    /// A row that was sealed.
    pub(super) fn row(raid_set: RaidSetId, row: pb::RebuildRow) -> Result<Self> {
        Self::new(raid_set, row.metablock, Expected::AnyOfEncoder, row.length, row.sources)
    }

    fn new(raid_set: RaidSetId, metablock: u64, version: Expected, length: u64, hops: Vec<pb::Hop>) -> Result<Self> {
        let metablock = required_metablock(metablock)?;
        // A row is longer than the longest slot by its trailer.
        if length == 0 || length > 2 * ebb_types::RAID_METABLOCK_SIZE_MAX {
            bail!(Invalid, "{metablock} is no part of a RAID set: it has {length} bytes");
        }
        for hop in &hops {
            hop.required_member()?;
        }
        Ok(Self { raid_set, metablock, version, length, hops, best: AtomicUsize::new(0), reported: Mutex::default() })
    }

    /// Whether there is a member to read from.
    pub(super) fn has_members(&self) -> bool {
        !self.hops.is_empty()
    }

    pub(super) fn metablock(&self) -> MetablockId {
        self.metablock
    }

    /// The version that it has, or has at least.
    pub(super) fn version(&self) -> Version {
        self.version.least()
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// All bytes of a range of whole chunks.
    pub(super) async fn read_range(&self, node: &Arc<Node>, start: u64, end: u64) -> Result<Bytes> {
        let mut found = BytesMut::new();
        let mut at = start;
        while at < end {
            let piece = self.read(node, at, PIECE_BYTES.min(end - at)).await?;
            if piece.data.is_empty() {
                bail!(Protocol, "{} ends before {end}", self.metablock);
            }
            at += piece.data.len() as u64;
            found.extend_from_slice(&piece.data);
        }
        Ok(found.freeze())
    }

    /// Reads whole chunks from `at` on, fewer at the end. Each hop is tried, the last good one first.
    pub(super) async fn read(&self, node: &Arc<Node>, at: u64, len: u64) -> Result<Piece> {
        if at >= self.length {
            return Ok(Piece::default());
        }
        let first = self.best.load(Ordering::Relaxed);
        let mut last = None;
        for index in (first..self.hops.len()).chain(0..first) {
            match self.read_from(node, &self.hops[index], at, len).await {
                Ok(piece) => {
                    self.best.store(index, Ordering::Relaxed);
                    return Ok(piece);
                }
                Err(error) => {
                    self.report(node, index, &error);
                    last = Some(error.context(format_args!("{} at {}", self.metablock, self.hops[index].address)))
                }
            }
        }
        Err(last.unwrap_or_else(|| err!(Internal, "{} has no members", self.metablock)))
    }

    /// The trailer of a row, which lies behind `row_len` bytes.
    ///
    /// Errors: those of a read; `Corrupt` or `Unsupported` if it cannot be used.
    pub(super) async fn read_trailer(&self, node: &Arc<Node>, row_len: u64) -> Result<Trailer> {
        Trailer::decode(&self.read_range(node, row_len, self.length).await?, self.length)
    }

    /// Reports the replica that answered last as damaged, though its checksums are right. One whose checksums are wrong has been
    /// reported already.
    pub(super) fn condemn(&self, node: &Arc<Node>, why: &str) {
        let index = self.best.load(Ordering::Relaxed);
        if !self.reported.lock().contains(&index) {
            tracing::error!(metablock = %self.metablock, raid_set = %self.raid_set, why, "a part has right checksums, and wrong bytes");
            self.report(node, index, &err!(Corrupt, "{why}"));
        }
    }

    /// Reports a hop's replica as damaged, once, if the error says so.
    fn report(&self, node: &Arc<Node>, index: usize, error: &Error) {
        let member = self.hops.get(index).and_then(|hop| hop.member);
        let report = member.and_then(|member| pb::ReportReplica::of(self.metablock, member, error));
        if let Some(report) = report
            && self.reported.lock().insert(index)
        {
            damage::report(node, report);
        }
    }

    async fn read_from(&self, node: &Arc<Node>, hop: &pb::Hop, at: u64, len: u64) -> Result<Piece> {
        let member = hop.required_member()?;
        let found = if member.node == node.raw_id() {
            let volume = node.volume(member.volume)?;
            let read = volume.read_for(Purpose::Decoding, self.metablock, self.version.least(), at, len).await;
            let read = read.inspect_err(|error| disks::try_after(node, &volume, error))?;
            let (version, length, checksums) = (read.version, read.length, read.checksums);
            SourceChunks { version, length, checksums, data: read.data.into_bytes().await? }
        } else {
            let replica = RemoteReplica {
                channel: node.connector.channel(&hop.address),
                metablock: self.metablock.raw(),
                volume: member.volume,
                raid_set: self.raid_set.raw(),
            };
            replica.read(self.version.least(), at, len).await?
        };
        self.check(at, len, found)
    }

    /// S-1: exactly this version and length, and bytes that match their sums.
    fn check(&self, at: u64, len: u64, found: SourceChunks) -> Result<Piece> {
        let SourceChunks { version, length, checksums: sums, data } = found;
        if !self.version.is(version) || length != self.length {
            let expected = self.version.least();
            bail!(
                StaleVersion,
                "it is at {version} with {length} bytes, {expected} with {} was asked for",
                self.length
            );
        }
        let wanted = len.min(self.length - at);
        if data.len() as u64 != wanted || sums.len() as u64 != wanted.div_ceil(CHUNK_SIZE) {
            bail!(Protocol, "{} bytes with {} sums answer a read of {wanted} bytes", data.len(), sums.len());
        }
        let bad = data.chunks(CHUNK_SIZE as usize).zip(&sums).position(|(chunk, sum)| crc32c(chunk) != *sum);
        if let Some(bad) = bad {
            bail!(Corrupt, "chunk {} does not match its checksum", at / CHUNK_SIZE + bad as u64);
        }
        Ok(Piece { data, sums })
    }
}

/// A check metablock that is being written.
#[derive(Debug)]
pub(crate) struct Target {
    metablock: MetablockId,
    hop: pb::Hop,
    member: pb::Member,
    /// Number of writes so far.
    seq: u64,
}

impl Target {
    pub(super) fn new(row: pb::EncodeRow) -> Result<Self> {
        let metablock = required_metablock(row.metablock)?;
        let hop = convert::required(row.target, "the node of a row")?;
        let member = hop.required_member()?;
        Ok(Self { metablock, hop, member, seq: 0 })
    }

    /// The version that the row has now.
    pub(super) fn version(&self) -> Version {
        if self.seq == 0 { Version::ZERO } else { Version::new(EPOCH, self.seq) }
    }

    /// Writes whole chunks behind what was written before.
    pub(super) async fn write(&mut self, node: &Arc<Node>, at: u64, bytes: Bytes, sync: bool) -> Result<()> {
        let predecessor = self.version();
        self.seq += 1;
        let message = pb::WriteReplica {
            metablock: self.metablock.raw(),
            volume: self.member.volume,
            incarnation: self.member.incarnation,
            version: Some(self.version().into()),
            predecessor: Some(predecessor.into()),
            kind: pb::WriteKind::WriteData as i32,
            offset: at,
            length: bytes.len() as u64,
            checksums: bytes.chunks(CHUNK_SIZE as usize).map(crc32c).collect(),
            sync,
            ..Default::default()
        };
        let reply = if self.member.node == node.raw_id() {
            pipeline::write(node, message, bytes, DEADLINE, &Caller::default()).await?
        } else {
            let channel = node.connector.channel(&self.hop.address);
            channel.call_with(&message, vec![bytes], DEADLINE).await?.message
        };
        let result = reply.results.into_iter().next();
        let result = result.ok_or_else(|| err!(Protocol, "a write of {} without a result", self.metablock))?;
        convert::failure(result.failure)
            .map_err(|error: Error| error.context(format_args!("{} at {}", self.metablock, self.hop.address)))
    }

    /// The row as it was written, to be read back.
    pub(super) fn written(&self, raid_set: RaidSetId, length: u64) -> Source {
        let (metablock, version, hops) = (self.metablock, Expected::Exactly(self.version()), vec![self.hop.clone()]);
        Source { raid_set, metablock, version, length, hops, best: AtomicUsize::new(0), reported: Mutex::default() }
    }
}
