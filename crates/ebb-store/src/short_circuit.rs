//! Replicas' files shared with readers on this host, which read them directly.
//!
//! Each replica has a file of its own, so a descriptor never shows the bytes of another metablock. A copy that takes a
//! replica's place is another file.
//!
//! Invariant: a reader is notified before any byte below the length that it got changes. Every change in place was
//! received first, and `Live::receive` notifies the readers. Bytes that are written
//! directly go beyond the length, or to places that no chunk uses.

use std::sync::{Arc, Weak};

use ebb_runtime::File;
use ebb_types::{MetablockId, Result, Version, bail};

use crate::read::{Purpose, check_servable, open_existing};
use crate::record::chunks_of;
use crate::replica::Live;
use crate::volume::{Shared, Volume};

/// Number of attempts to open a replica that is being written, before the reader is refused.
const ATTEMPTS: usize = 3;

/// A reader of a replica's file.
pub trait Reader: Send + Sync {
    /// The bytes may change from now on. It is called with locks held, so it may not wait. It is called at most once
    /// for each [`Volume::open_short_circuit`].
    fn revoke(&self);
}

/// A replica's file at one version.
#[derive(Clone, Debug)]
pub struct ShortCircuitReplica {
    /// Its file. It may be cut when the replica is gone.
    pub file: File,
    /// Synced.
    pub version: Version,
    /// In bytes. Other bytes of the file mean nothing.
    pub length: u64,
    /// CRC-32C of each chunk, as the writer made it.
    pub checksums: Vec<u32>,
    /// The places of the bytes: offset in the replica, offset in the file, length. In order, without gaps.
    pub runs: Vec<(u64, u64, u64)>,
}

impl Volume {
    /// The replica's file, at `min_version` or later, with everything synced put in place. It stays as it is until
    /// `reader` is notified. A reader that is dropped is forgotten.
    ///
    /// Errors: those of [`Volume::read`]; `Busy` while it is being written, `Unsupported` if it has no file.
    pub async fn open_short_circuit(
        &self,
        metablock: MetablockId,
        min_version: Version,
        reader: Weak<dyn Reader>,
    ) -> Result<ShortCircuitReplica> {
        let shared = &*self.shared;
        shared.check_open()?;
        for _ in 0..ATTEMPTS {
            let Some(replica) = self.settled(Purpose::File, metablock, min_version).await? else { break };
            {
                // While this lock is held nothing is put in place.
                let _content = replica.content.read().await;
                if !replica.live.lock().file_made {
                    break;
                }
                let file = open_existing(shared, &replica).await?;
                let file_len = file.len().await?;
                let mut live = replica.live.lock();
                shared.check_open()?;
                check_servable(Purpose::File, metablock, &live, min_version)?;
                let length = live.state.head.length;
                if live.is_settled() && live.overlay.is_empty() && file_len >= length {
                    live.add_reader(reader);
                    let checksums = live.state.chunks.sums(chunks_of(0, length)).to_vec();
                    let places = live.state.chunks.places(0, length);
                    let runs = places.into_iter().map(|place| (place.offset, place.at, place.len)).collect();
                    return Ok(ShortCircuitReplica { file, version: live.state.head.version, length, checksums, runs });
                }
            }
            // Records in the journal are put in place while it is held.
            drop(shared.journal.lock().await);
        }
        match shared.get(metablock).is_some_and(|replica| replica.live.lock().file_made) {
            true => bail!(Busy, "the replica of {metablock} is being written"),
            false => bail!(Unsupported, "the replica of {metablock} has no file"),
        }
    }
}

/// Notifies all readers of a volume that serves nothing any more.
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

    /// Notifies the readers of the file that its bytes may change.
    pub(crate) fn revoke_readers(&mut self) {
        for reader in self.readers.drain(..).filter_map(|reader| Weak::<dyn Reader>::upgrade(&reader)) {
            Arc::as_ref(&reader).revoke();
        }
    }
}
