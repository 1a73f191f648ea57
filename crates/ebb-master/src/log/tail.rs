//! The end of the log, made durable again at each start.
//!
//! A failed fdatasync leaves the bytes in the page cache, marked as clean, although the medium may not have them
//! (<https://lwn.net/Articles/752063/>). The next process reads them, finds them whole, and would acknowledge what a
//! power failure takes away. So the log believes no byte that it reads unless some process is known to have synced it:
//! the hint names a place up to which one has. What lies behind that place is written again, with the same bytes, and
//! synced, before any record of it is used.
//!
//! The zeros behind the last record are written again too. Of a torn write that an earlier start wanted to wipe out,
//! and could not sync, the cache shows zeros while the medium still has valid records.

use std::ops::Range;

use bytes::Bytes;
use ebb_log::make;
use ebb_runtime::{File, Runtime, SeededBug};
use ebb_types::Result;

use crate::log::hint::Synced;

/// Bytes of a segment that are not known to be synced, where records end at `end`.
pub(super) fn unproven(synced: Option<Synced>, sequence: u64, end: usize) -> Range<usize> {
    let from = match synced {
        Some(synced) if sequence < synced.sequence => end,
        Some(synced) if sequence == synced.sequence => usize::try_from(synced.offset).map_or(end, |at| at.min(end)),
        // Without a hint for it nothing of it is proven, its header included.
        _ => 0,
    };
    from..end
}

/// Syncs the records of a segment, up to `end`, that were read. `bytes` is the whole segment.
pub(super) async fn confirm_records(
    runtime: &Runtime,
    file: &File,
    bytes: &Bytes,
    synced: Option<Synced>,
    sequence: u64,
    end: usize,
) -> Result<()> {
    let unproven = unproven(synced, sequence, end);
    if unproven.is_empty() || runtime.has_bug(SeededBug::CacheTrusted) {
        return Ok(());
    }
    file.write_at(unproven.start as u64, vec![bytes.slice(unproven)]).await?;
    file.sync_data().await
}

/// Makes everything behind the last record zeros on the medium, torn writes included. `size` is the segment's.
pub(super) async fn confirm_zeros(runtime: &Runtime, file: &File, end: usize, size: usize, torn: bool) -> Result<()> {
    if !torn && runtime.has_bug(SeededBug::CacheTrusted) {
        return Ok(());
    }
    make::write_zeros(file, end as u64, size as u64).await?;
    file.sync_data().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_proves_its_own_range_and_nothing_else() {
        let hint = Some(Synced { batch: 9, sequence: 3, offset: 200 });
        assert!(unproven(hint, 2, 500).is_empty());
        assert_eq!(unproven(hint, 3, 500), 200..500);
        assert!(unproven(hint, 3, 200).is_empty());
        assert!(unproven(hint, 3, 64).is_empty(), "a log that ends before its hint is refused elsewhere");
        assert_eq!(unproven(hint, 4, 500), 0..500);
        assert_eq!(unproven(None, 1, 500), 0..500);
    }
}
