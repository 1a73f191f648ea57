//! The end of a log's newest segment.

use bytes::Bytes;
use ebb_runtime::File;
use ebb_types::{ErrorKind, Result, err};

/// Whether a batch is synced before its append returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// Yes.
    Now,
    /// No: a seeded bug. An acknowledged record may then be lost in a crash.
    Skipped,
}

/// Appends batches to one segment, each with one write and one fdatasync.
///
/// Invariant: at most one batch, the last, has been written and not synced.
#[derive(Debug)]
pub struct Appender {
    file: File,
    at: u64,
    /// End of the segment's durable space. `None`: the file grows with each batch.
    end: Option<u64>,
    /// Every batch so far is synced, or left no trace.
    is_sound: bool,
}

impl Appender {
    /// Goes on at `at` in a segment with space up to `end`.
    #[must_use]
    pub fn within(file: File, at: u64, end: u64) -> Self {
        assert!(at <= end, "the next batch begins at {at}, the segment ends at {end}");
        Self { file, at, end: Some(end), is_sound: true }
    }

    /// Goes on at `at`, the end of a file that grows.
    #[must_use]
    pub const fn growing(file: File, at: u64) -> Self {
        Self { file, at, end: None, is_sound: true }
    }

    /// Offset of the next batch.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.at
    }

    /// Bytes that the segment still has space for.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.end.map_or(u64::MAX, |end| end - self.at)
    }

    /// Length of the segment's file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.end.unwrap_or(self.at)
    }

    /// Whether the contents on disk are known. They are unknown after a failed write or sync. Then nothing more may be
    /// appended here, because a torn batch must stay the last one.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.is_sound
    }

    /// Appends a batch of `len` bytes.
    ///
    /// In a segment with durable space, an error of kind `NoSpace` or `Overloaded` leaves the segment as it was: the
    /// next batch overwrites the bytes of this one. After every other error the segment is not sound any more. A failed
    /// sync is always of kind `Io`: the caller must not take a full disk for the reason and write on.
    ///
    /// Cancel-safety: dropped before it returned, the segment is not sound any more.
    pub async fn append(&mut self, batch: Vec<Bytes>, len: u64, sync: Sync) -> Result<()> {
        assert!(self.is_sound, "{}: an append behind a batch that may be torn", self.file.path().display());
        assert!(len <= self.room(), "{}: {len} bytes at {} do not fit", self.file.path().display(), self.at);
        debug_assert_eq!(batch.iter().map(|part| part.len() as u64).sum::<u64>(), len, "length of the batch");
        self.is_sound = false;
        if let Err(error) = self.file.write_at(self.at, batch).await {
            let left_no_trace = matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Overloaded);
            self.is_sound = left_no_trace && self.end.is_some();
            return Err(error);
        }
        if sync == Sync::Now {
            self.file.sync_data().await.map_err(|error| err!(Io, "{error}"))?;
        }
        self.at += len;
        self.is_sound = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ebb_runtime::OpenMode;
    use ebb_runtime::virt::{DiskWork, PlannedFault, Process, World, WorldOptions};

    use super::*;

    const PATH: &str = "/log-1";

    fn world<F: Future<Output = ()>>(test: impl FnOnce(Process, File) -> F) {
        World::run(5, WorldOptions::default(), |world| {
            let process = world.process("h1");
            async move {
                let file = process.runtime().disk().open(Path::new(PATH), OpenMode::Create).await.unwrap();
                test(process, file).await;
            }
        });
    }

    fn batch(byte: u8) -> Vec<Bytes> {
        vec![Bytes::from(vec![byte; 60]), Bytes::from(vec![byte; 40])]
    }

    #[test]
    fn batches_follow_each_other_and_are_there_after_a_crash() {
        world(|process, file| async move {
            crate::make::fill(&file, 300).await.unwrap();
            process.runtime().disk().sync_dir(Path::new("/")).await.unwrap();
            let mut appender = Appender::within(file, 0, 300);
            appender.append(batch(1), 100, Sync::Now).await.unwrap();
            appender.append(batch(2), 100, Sync::Now).await.unwrap();
            assert_eq!((appender.position(), appender.room(), appender.file_bytes()), (200, 100, 300));
            process.crash();
            process.restart();
            let bytes = process.runtime().disk().read(Path::new(PATH)).await.unwrap();
            assert_eq!(bytes, [vec![1; 100], vec![2; 100], vec![0; 100]].concat());
        });
    }

    #[test]
    fn a_full_disk_leaves_a_filled_segment_as_it_was_and_a_growing_one_in_doubt() {
        world(|process, file| async move {
            crate::make::fill(&file, 300).await.unwrap();
            let mut appender = Appender::within(file.clone(), 0, 300);
            process.plan_disk_fault(PlannedFault::no_space(DiskWork::Write, PATH));
            assert_eq!(appender.append(batch(1), 100, Sync::Now).await.unwrap_err().kind(), ErrorKind::NoSpace);
            assert!(appender.is_sound());
            appender.append(batch(2), 100, Sync::Now).await.unwrap();
            let mut appender = Appender::growing(file, 300);
            process.plan_disk_fault(PlannedFault::no_space(DiskWork::Write, PATH));
            appender.append(batch(3), 100, Sync::Now).await.unwrap_err();
            assert!(!appender.is_sound());
        });
    }

    #[test]
    fn after_a_failed_sync_nothing_is_known() {
        world(|process, file| async move {
            let mut appender = Appender::growing(file, 0);
            process.plan_disk_fault(PlannedFault::no_space(DiskWork::Sync, PATH));
            assert_eq!(appender.append(batch(1), 100, Sync::Now).await.unwrap_err().kind(), ErrorKind::Io);
            assert!(!appender.is_sound());
        });
    }

    #[test]
    #[should_panic(expected = "an append behind a batch that may be torn")]
    fn nothing_is_appended_behind_a_batch_that_may_be_torn() {
        world(|process, file| async move {
            let mut appender = Appender::growing(file, 0);
            process.plan_disk_fault(PlannedFault::next(DiskWork::Write, PATH));
            appender.append(batch(1), 100, Sync::Now).await.unwrap_err();
            let _ = appender.append(batch(1), 100, Sync::Now).await;
        });
    }
}
