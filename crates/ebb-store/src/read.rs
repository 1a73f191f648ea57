//! Reads of synced bytes: whole chunks with their sums.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use ebb_runtime::{File, OpenMode};
use ebb_types::{CHUNK_SIZE, Epoch, ErrorKind, MetablockId, Result, Version, bail, err};

use crate::chunks::{self, Extent};
use crate::crc::crc32c;
use crate::extents::Extents;
use crate::files::replica_path;
use crate::flush::flush;
use crate::record::chunks_of;
use crate::replica::{Live, Replica};
use crate::volume::{Shared, Volume};

/// The most that one read may ask for.
const READ_LEN_MAX: u64 = ebb_wire::frame::PAYLOAD_LEN_MAX as u64;

/// Reads up to this size go through memory. Longer ones are sent by the kernel, straight from the file.
const BUFFERED_MAX: u64 = 64 << 10;

/// Bytes of a replica, with the checksums for a reader to verify them.
#[derive(Clone, Debug)]
pub struct ReadChunks {
    /// Of the replica.
    pub version: Version,
    /// Of the replica, in bytes.
    pub length: u64,
    /// CRC-32C of each chunk, as the writer made it.
    pub checksums: Vec<u32>,
    /// The bytes.
    pub data: ReadData,
}

/// Where the bytes are.
#[derive(Clone, Debug)]
pub enum ReadData {
    /// In memory.
    Buffer(Bytes),
    /// In a file: runs of offset and length, in order.
    File(File, Vec<(u64, u64)>),
}

impl ReadData {
    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Buffer(bytes) => bytes.len() as u64,
            Self::File(_, runs) => runs.iter().map(|(_, len)| len).sum(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, in memory.
    pub async fn into_bytes(self) -> Result<Bytes> {
        match self {
            Self::Buffer(bytes) => Ok(bytes),
            Self::File(file, runs) => match &runs[..] {
                [(offset, len)] => file.read_at(*offset, *len as usize).await,
                runs => {
                    let mut out = Vec::new();
                    for (offset, len) in runs {
                        out.extend_from_slice(&file.read_at(*offset, *len as usize).await?);
                    }
                    Ok(out.into())
                }
            },
        }
    }
}

/// Result of [`Volume::seek`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Offset of the data or hole. `None`: there is none before the replica's end.
    pub offset: Option<u64>,
    /// Of the replica, in bytes.
    pub length: u64,
}

/// Why a replica is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// For a reader of the file. A retired replica has what the file does not have any more.
    File,
    /// To decode another part of a RAID set.
    Decoding,
}

impl Volume {
    /// Whole chunks from `offset` on, short at the replica's end, at `min_version` or a later one. Received writes are
    /// synced first.
    ///
    /// Errors: `Invalid` if not aligned, `NoReplica`, `StaleVersion`, `Corrupt`, `VolumePoisoned`. A replica that was
    /// never written has version (0,0) and no bytes.
    pub async fn read(
        &self,
        metablock: MetablockId,
        min_version: Version,
        offset: u64,
        len: u64,
    ) -> Result<ReadChunks> {
        self.read_for(Purpose::File, metablock, min_version, offset, len).await
    }

    /// The same for any purpose.
    pub async fn read_for(
        &self,
        purpose: Purpose,
        metablock: MetablockId,
        min_version: Version,
        offset: u64,
        len: u64,
    ) -> Result<ReadChunks> {
        let shared = &*self.shared;
        if !offset.is_multiple_of(CHUNK_SIZE) || !len.is_multiple_of(CHUNK_SIZE) || len > READ_LEN_MAX {
            bail!(Invalid, "a read of {len} bytes at {offset}: reads take whole chunks, {READ_LEN_MAX} bytes at most");
        }
        let Some(replica) = self.settled(purpose, metablock, min_version).await? else {
            return Ok(ReadChunks { version: Version::ZERO, length: 0, checksums: Vec::new(), data: empty() });
        };
        loop {
            let content = replica.content.read().await;
            let view = {
                let live = replica.live.lock();
                check_servable(purpose, metablock, &live, min_version)?;
                // A write that came since is not synced. Under the gate no write can come.
                live.is_settled().then(|| View::capture(&live, offset, len))
            };
            match view {
                Some(view) if view.overlay.replaced_by().is_none() => {
                    return read_view(shared, &replica, view, offset).await;
                }
                Some(_) => {
                    drop(content);
                    // A finished copy is about to take the file's place. That happens while the journal is held.
                    drop(shared.journal.lock().await);
                }
                None => {
                    drop(content);
                    let _gate = replica.gate.lock().await;
                    flush(shared, &replica).await?;
                    let _content = replica.content.read().await;
                    let view = {
                        let live = replica.live.lock();
                        check_servable(purpose, metablock, &live, min_version)?;
                        View::capture(&live, offset, len)
                    };
                    if view.overlay.replaced_by().is_none() {
                        return read_view(shared, &replica, view, offset).await;
                    }
                }
            }
        }
    }

    /// The next data, or hole, at or after `offset` and before the replica's end. Chunks are the unit.
    pub async fn seek(&self, metablock: MetablockId, min_version: Version, offset: u64, hole: bool) -> Result<Found> {
        let Some(replica) = self.settled(Purpose::File, metablock, min_version).await? else {
            return Ok(Found { offset: None, length: 0 });
        };
        let live = replica.live.lock();
        check_servable(Purpose::File, metablock, &live, min_version)?;
        let length = live.state.head.length;
        if offset >= length {
            return Ok(Found { offset: None, length });
        }
        let found = live.state.chunks.find((offset / CHUNK_SIZE) as usize, hole);
        Ok(Found { offset: found.map(|chunk| offset.max(chunk as u64 * CHUNK_SIZE)), length })
    }

    /// The replica with everything received at the moment of the call synced; none if it was never written.
    pub(crate) async fn settled(
        &self,
        purpose: Purpose,
        metablock: MetablockId,
        min_version: Version,
    ) -> Result<Option<Arc<Replica>>> {
        let shared = &*self.shared;
        shared.check_sound()?;
        let replica = shared.get(metablock).filter(|replica| replica.live.lock().exists());
        let Some(replica) = replica else {
            if min_version == Version::ZERO {
                return Ok(None);
            }
            bail!(NoReplica, "volume {} has no replica of {metablock}", self.id());
        };
        check_servable(purpose, metablock, &replica.live.lock(), min_version)?;
        flush(shared, &replica).await?;
        Ok(Some(replica))
    }
}

fn empty() -> ReadData {
    ReadData::Buffer(Bytes::new())
}

pub(crate) fn check_servable(
    purpose: Purpose,
    metablock: MetablockId,
    live: &Live,
    min_version: Version,
) -> Result<()> {
    live.check_sound(metablock)?;
    if live.deleted {
        bail!(NoReplica, "the replica of {metablock} was deleted");
    }
    // I-68: no reader of the file gets what the file has lost.
    if purpose == Purpose::File && live.state.head.promised >= Epoch::RETIRED {
        bail!(NoReplica, "the replica of {metablock} is retired: it serves the decoding of its RAID set alone");
    }
    let version = live.state.head.version;
    if version < min_version {
        bail!(StaleVersion, "the replica of {metablock} is at {version}, {min_version} was asked for");
    }
    Ok(())
}

/// A replica's state around a range, at one moment.
struct View {
    version: Version,
    length: u64,
    /// Bytes of the range that the replica has.
    len: u64,
    sums: Vec<u32>,
    /// Contents of the range that are not in the file yet.
    overlay: Extents,
    /// Length of the file's front that the read needs.
    file_needed: u64,
    file_made: bool,
    places: Vec<Extent>,
}

impl View {
    fn capture(live: &Live, offset: u64, len: u64) -> Self {
        let length = live.state.head.length;
        let len = len.min(length.saturating_sub(offset));
        let sums = match len {
            0 => Vec::new(),
            len => live.state.chunks.sums(chunks_of(offset, len)).to_vec(),
        };
        assert_eq!(sums.len() as u64, len.div_ceil(CHUNK_SIZE), "each chunk of a read has one checksum");
        Self {
            version: live.state.head.version,
            length,
            len,
            sums,
            overlay: live.overlay.merged().within(offset, offset + len),
            file_needed: live.overlay.merged().file_needed(length, offset),
            file_made: live.file_made,
            places: live.state.chunks.places(offset, len),
        }
    }
}

/// Reads the range. The caller holds the content lock.
async fn read_view(shared: &Shared, replica: &Replica, view: View, offset: u64) -> Result<ReadChunks> {
    let in_file = view.overlay.is_empty() && view.len > BUFFERED_MAX;
    let data = if in_file && view.file_made {
        let file = open_existing(shared, replica).await?;
        // The kernel sends the bytes without a check, so the file's length is checked before.
        let file_len = file.len().await?;
        let end = view.places.iter().map(|place| place.at + place.len).max().unwrap_or(0);
        if file_len < end {
            return Err(shared.mark_damaged(replica, format!("its file has {file_len} bytes of {end}")));
        }
        ReadData::File(file, view.places.iter().map(|place| (place.at, place.len)).collect())
    } else {
        ReadData::Buffer(read_bytes(shared, replica, &view, offset).await?)
    };
    Ok(ReadChunks { version: view.version, length: view.length, checksums: view.sums, data })
}

pub(crate) async fn open_existing(shared: &Shared, replica: &Replica) -> Result<File> {
    match shared.files.get(replica.id, OpenMode::Existing).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(shared.mark_damaged(replica, "its file is missing".into()))
        }
        file => file,
    }
}

/// Bytes from the file, overwritten with those that are not in place yet. The caller holds the content lock.
async fn read_bytes(shared: &Shared, replica: &Replica, view: &View, offset: u64) -> Result<Bytes> {
    let needed = view.file_needed.clamp(offset, offset + view.len) - offset;
    let found = match view.file_made && view.len > 0 {
        true => {
            let file = open_existing(shared, replica).await?;
            let read = read_places(&file, &view.places).await;
            read.map_err(|error| shared.mark_damaged(replica, format!("it cannot be read: {error}")))?
        }
        false => Bytes::new(),
    };
    if (found.len() as u64) < needed {
        return Err(shared.mark_damaged(replica, format!("its file ends {} bytes early", needed - found.len() as u64)));
    }
    if view.overlay.is_empty() {
        return Ok(found);
    }
    let mut bytes = found.to_vec();
    bytes.resize(view.len as usize, 0);
    view.overlay.lay_over(offset, &mut bytes);
    Ok(bytes.into())
}

/// The bytes at these places, in order, as far as the file reaches.
async fn read_places(file: &File, places: &[Extent]) -> Result<Bytes> {
    if let [place] = places {
        return file.read_at(place.at, place.len as usize).await;
    }
    let mut found = Vec::new();
    for place in places {
        let bytes = file.read_at(place.at, place.len as usize).await?;
        found.extend_from_slice(&bytes);
        if (bytes.len() as u64) < place.len {
            break;
        }
    }
    Ok(found.into())
}

/// Chunks with all received writes, checked against their sums. A mismatch counts as damage only if it repeats.
pub(crate) async fn read_verified(shared: &Shared, replica: &Replica, range: Range<usize>) -> Result<Bytes> {
    let offset = range.start as u64 * CHUNK_SIZE;
    let mut bad = None;
    for _ in 0..2 {
        let _content = replica.content.read().await;
        let view = View::capture(&replica.live.lock(), offset, range.len() as u64 * CHUNK_SIZE);
        let bytes = read_bytes(shared, replica, &view, offset).await?;
        bad = view.sums.iter().enumerate().position(|(index, sum)| {
            let at = index * CHUNK_SIZE as usize;
            let len = chunks::valid(range.start + index, view.length) as usize;
            crc32c(&bytes[at..at + len]) != *sum
        });
        if bad.is_none() {
            return Ok(bytes);
        }
    }
    let chunk = range.start + bad.expect("a mismatch ends the loop");
    let (file, offset) = (replica_path(&shared.root, replica.id), chunk as u64 * CHUNK_SIZE);
    let why = format!("{} offset {offset}: the chunk there does not match its checksum", file.display());
    Err(shared.mark_damaged(replica, why))
}

impl Volume {
    /// Bytes of a whole replica at its synced version, checked: for tools and tests.
    pub async fn read_all(&self, metablock: MetablockId, min_version: Version) -> Result<(Version, Bytes)> {
        let mut out = Vec::new();
        loop {
            let part = self.read(metablock, min_version, out.len() as u64, 1 << 20).await?;
            let (version, length) = (part.version, part.length);
            let sums = part.checksums;
            let bytes = part.data.into_bytes().await?;
            for (chunk, sum) in bytes.chunks(CHUNK_SIZE as usize).zip(&sums) {
                if crc32c(chunk) != *sum {
                    return Err(err!(Corrupt, "{metablock}: bytes do not match their checksum at {}", out.len()));
                }
            }
            out.extend_from_slice(&bytes);
            if out.len() as u64 >= length {
                return Ok((version, out.into()));
            }
        }
    }
}
