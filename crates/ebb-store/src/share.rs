//! Replicas' files shown to readers of this host, who read them by themselves.
//!
//! Each replica has a file of its own, so a descriptor never shows the bytes of another metablock: a deleted file keeps
//! its bytes for whoever holds it, and a copy that takes a replica's place is another file.
//!
//! Invariant: a reader is told before any byte below the length that it was given changes. Everything that changes bytes
//! in place was received first, and receiving tells the readers; bytes that are written directly go beyond the length, or to
//! places that no chunk has.

use std::sync::{Arc, Weak};

use ebb_runtime::File;
use ebb_types::{MetablockId, Result, Version, bail};

use crate::read::{check_servable, open_existing};
use crate::record::chunks_of;
use crate::replica::Live;
use crate::volume::{Shared, Volume};

/// How often a replica that is being written is looked at before its reader is sent away.
const ATTEMPTS: usize = 3;

/// Somebody who reads a replica's file.
pub trait Reader: Send + Sync {
    /// The bytes may change from now on. Called with locks held: it may not wait. At most once for each [`Volume::share`].
    fn revoke(&self);
}

/// A replica at one version, as its file has it.
#[derive(Clone, Debug)]
pub struct SharedReplica {
    /// Its bytes. Kept by whoever has it, also after the replica is gone.
    pub file: File,
    /// Synced.
    pub version: Version,
    /// In bytes; what else the file has means nothing.
    pub length: u64,
    /// CRC-32C of each chunk, as the writer made it.
    pub checksums: Vec<u32>,
    /// Where the bytes lie: offset in the replica, offset in the file, how many. In order, without gaps.
    pub runs: Vec<(u64, u64, u64)>,
}

impl Volume {
    /// The replica's file, at `min_version` or later, with everything synced put in place. It stays as it is until
    /// `reader` is told; a reader that is dropped is forgotten.
    ///
    /// Errors: those of [`Volume::read`]; `Busy` while it is being written, `Unsupported` if it has no file.
    pub async fn share(
        &self,
        metablock: MetablockId,
        min_version: Version,
        reader: Weak<dyn Reader>,
    ) -> Result<SharedReplica> {
        let shared = &*self.shared;
        shared.check_open()?;
        for _ in 0..ATTEMPTS {
            let Some(replica) = self.settled(metablock, min_version).await? else { break };
            {
                // While this is held nothing is put in place.
                let _content = replica.content.read().await;
                if !replica.live.lock().file_made {
                    break;
                }
                let file = open_existing(shared, &replica).await?;
                let file_len = file.len().await?;
                let mut live = replica.live.lock();
                shared.check_open()?;
                check_servable(metablock, &live, min_version)?;
                let length = live.state.head.length;
                if live.is_settled() && live.overlay.is_empty() && file_len >= length {
                    live.add_reader(reader);
                    let checksums = live.state.chunks.sums(chunks_of(0, length)).to_vec();
                    let places = live.state.chunks.places(0, length);
                    let runs = places.into_iter().map(|place| (place.offset, place.at, place.len)).collect();
                    return Ok(SharedReplica { file, version: live.state.head.version, length, checksums, runs });
                }
            }
            // What is in the journal is put in place while it is held.
            drop(shared.journal.lock().await);
        }
        match shared.get(metablock).is_some_and(|replica| replica.live.lock().file_made) {
            true => bail!(Busy, "the replica of {metablock} is being written"),
            false => bail!(Unsupported, "the replica of {metablock} has no file"),
        }
    }
}

/// Tells all readers of a volume: it serves nothing any more.
pub(crate) fn revoke_all(shared: &Shared) {
    for replica in shared.replicas.read().values() {
        replica.live.lock().revoke_readers();
    }
}

impl Live {
    fn add_reader(&mut self, reader: Weak<dyn Reader>) {
        self.readers.retain(|reader| reader.strong_count() > 0);
        self.readers.push(reader);
    }

    /// Tells those who read the file that its bytes may change.
    pub(crate) fn revoke_readers(&mut self) {
        for reader in self.readers.drain(..).filter_map(|reader| Weak::<dyn Reader>::upgrade(&reader)) {
            Arc::as_ref(&reader).revoke();
        }
    }
}
