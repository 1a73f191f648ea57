//! Open files of a virtual disk.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use ebb_types::{Result, bail, err};

use super::inode::{Change, Inode};
use super::medium::Access;
use super::mount::Mount;
use super::names::InodeNumber;
use super::{Need, State, VirtualDisk, gone, prefix};
use crate::backend::Work;
use crate::disk::{ALIGNMENT, Compression, FileBackend};

/// An open file.
pub(super) struct VirtualFile {
    pub(super) disk: Arc<VirtualDisk>,
    pub(super) mount: Mount,
    pub(super) file: InodeNumber,
    pub(super) path: Arc<Path>,
    pub(super) is_read_only: bool,
}

impl VirtualFile {
    fn submit<T: Send + 'static>(
        &self,
        kind: &'static str,
        need: Need,
        change: Option<Change>,
        work: impl FnOnce(&VirtualDisk, &mut State, Option<Change>) -> Result<T> + Send + 'static,
    ) -> Work<'_, Result<T>> {
        let change = change.map(|change| (self.file, change));
        Box::pin(async move {
            // Cancel-safety: nothing waits between taking the hold and handing it to the operation that releases it.
            let hold = Hold::new(self);
            let (path, mount) = (self.path.clone(), self.mount);
            let work = move |disk: &VirtualDisk, state: &mut State, change: Option<(InodeNumber, Change)>| {
                let result = state.check_mount(mount, kind, &path).and_then(|()| {
                    // A sync that fails has effects of its own.
                    let planned = if kind == "sync" { None } else { state.planned_fault(kind, &path) };
                    match planned {
                        Some(error) => {
                            disk.fault("planned_fault", format!("{kind} {}", path.display()));
                            Err(error)
                        }
                        None => work(disk, state, change.map(|(_, change)| change)),
                    }
                });
                hold.release(state);
                result
            };
            self.disk.submit(kind, self.mount, need, change, work).await
        })
    }

    /// A range that a file can have: the kernel counts in 63 bits.
    fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= i64::MAX.unsigned_abs() => Ok(()),
            _ => Err(err!(Invalid, "{}: no file has {len} bytes from {offset}", self.path.display())),
        }
    }

    /// Whether the kernel takes a change to the disk at once. As in the real world, that needs length and alignment.
    fn is_direct(&self, change: &Change) -> bool {
        let least = self.disk.options(self.mount.spindle).direct_bytes_min;
        let is_aligned = |offset: u64, len: u64| (offset | len).is_multiple_of(ALIGNMENT as u64);
        matches!(change, Change::Write { offset, .. } if change.weight() >= least && is_aligned(*offset, change.weight()))
    }

    /// A change, by way of the page cache unless it is direct.
    fn change(&self, kind: &'static str, change: Change) -> Work<'_, Result<()>> {
        let (offset, len) = change.range();
        if let Err(error) = self.check_range(offset, len) {
            return Box::pin(async { Err(error) });
        }
        if self.is_read_only {
            return Box::pin(
                async move { Err(err!(Io, "cannot {kind} {}: it is open for reading", self.path.display())) },
            );
        }
        let (file, path) = (self.file, self.path.clone());
        let (latency, is_direct) = (self.disk.options(self.mount.spindle).write_latency, self.is_direct(&change));
        let access = Access { bytes: change.weight(), at: Some((self.file, offset)) };
        let need = if is_direct { Need::Medium(latency, access) } else { Need::Memory(latency) };
        self.submit(kind, need, Some(change), move |disk, state, change| {
            let change = change.expect("a change in flight stays until it has its effect");
            if state.is_drawn(state.faults.write_error) {
                disk.fault("write_error", path.display().to_string());
                if let Change::Write { offset, data } = change {
                    let len = data.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
                    let written = state.dice.between(0, len);
                    state.change(file, Change::Write { offset, data: prefix(&data, written) }, &path)?;
                }
                bail!(Io, "cannot write {}: input/output error", path.display());
            }
            let change = match state.misdirected {
                Some(_) => disk.go_astray(state, &path, file, change),
                None => change,
            };
            let result = state.change(file, change, &path);
            if is_direct && result.is_ok() {
                state.inode(file).mark_direct();
            }
            if result.is_err() {
                disk.fault("disk_full", path.display().to_string());
            }
            result
        })
    }

    /// Looks at the file without taking time: its inode is in memory.
    fn read_inode<T>(&self, read: impl FnOnce(&Inode) -> T) -> Result<T> {
        let mut state = self.disk.state.lock();
        if state.life != self.mount.life {
            return Err(gone());
        }
        state.check_mount(self.mount, "look at", &self.path)?;
        Ok(read(state.inode(self.file)))
    }
}

/// Keeps a file for as long as an operation on it is under way, also when its last handle is dropped.
struct Hold(InodeNumber);

impl Hold {
    fn new(file: &VirtualFile) -> Self {
        let mut state = file.disk.state.lock();
        if state.life == file.mount.life {
            state.inode(file.file).open_count += 1;
        }
        Self(file.file)
    }

    /// Only operations of the current life come to their end, so the count is theirs to lower.
    fn release(self, state: &mut State) {
        let inode = state.inode(self.0);
        inode.open_count -= 1;
        if inode.open_count == 0 {
            state.collect_closed(self.0);
        }
    }
}

impl FileBackend for VirtualFile {
    fn read_at(&self, offset: u64, len: usize) -> Work<'_, Result<Bytes>> {
        if let Err(error) = self.check_range(offset, len as u64) {
            return Box::pin(async { Err(error) });
        }
        let (file, path) = (self.file, self.path.clone());
        let access = Access { bytes: len as u64, at: Some((self.file, offset)) };
        let arrives_ns = self.disk.state.lock().ahead.take_arrival_ns(self.file, offset, len as u64);
        let need = match arrives_ns {
            Some(arrives_ns) => Need::Arrival(arrives_ns),
            None => Need::Medium(self.disk.options(self.mount.spindle).read_latency, access),
        };
        self.submit("read", need, None, move |disk, state, _| {
            if state.is_drawn(state.faults.read_error) {
                disk.fault("read_error", path.display().to_string());
                bail!(Io, "cannot read {}: input/output error", path.display());
            }
            Ok(state.inode(file).current.read(offset, len))
        })
    }

    fn will_read(&self, offset: u64, len: u64) -> Work<'_, ()> {
        if self.check_range(offset, len).is_ok() {
            let mut state = self.disk.state.lock();
            if state.life == self.mount.life && state.is_mounted(self.mount) {
                state.read_ahead(self.disk.executor.now_ns(), self.file, offset, len);
            }
        }
        Box::pin(async {})
    }

    fn write_at(&self, offset: u64, data: Vec<Bytes>) -> Work<'_, Result<()>> {
        self.change("write", Change::Write { offset, data })
    }

    fn sync_data(&self) -> Work<'_, Result<()>> {
        let (file, path) = (self.file, self.path.clone());
        let (upto, need) = {
            let mut state = self.disk.state.lock();
            if state.life != self.mount.life {
                return Box::pin(async { Err(gone()) });
            }
            let bytes = state.inode(file).dirty_bytes();
            (state.number(), Need::Medium(state.spindles[self.mount.spindle].options.sync_latency, Access::sync(bytes)))
        };
        self.submit("sync", need, None, move |disk, state, _| {
            let planned = state.planned_fault("sync", &path);
            if planned.is_some() || state.is_drawn(state.faults.sync_error) {
                let State { inodes, dice, .. } = state;
                let inode = inodes.get_mut(&file).expect("an open file has its inode");
                let lost = inode.fail_sync(upto, dice);
                disk.fault("sync_error", format!("{}: {lost} writes", path.display()));
                if let Some(error) = planned {
                    return Err(error);
                }
                bail!(Io, "cannot sync {}: input/output error", path.display());
            }
            state.inode(file).sync(upto);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> Work<'_, Result<()>> {
        self.change("set_len", Change::SetLen(len))
    }

    fn len(&self) -> Work<'_, Result<u64>> {
        Box::pin(async move { self.read_inode(|inode| inode.current.len()) })
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Work<'_, Result<()>> {
        self.change("punch", Change::Punch { offset, len })
    }

    fn allocate(&self, offset: u64, len: u64) -> Work<'_, Result<()>> {
        self.change("allocate", Change::Allocate { offset, len })
    }

    fn allocated_bytes(&self) -> Work<'_, Result<u64>> {
        Box::pin(async move { self.read_inode(|inode| inode.current.allocated_bytes()) })
    }

    /// Reads and writes everything. A virtual disk stores no fewer bytes by it: contents are made of random numbers.
    fn compress(&self, _method: Compression) -> Work<'_, Result<()>> {
        let kept = match self.read_inode(|inode| inode.current.allocated_bytes()) {
            Ok(kept) => kept,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let path = self.path.clone();
        let (spindle, latency) = (self.mount.spindle, self.disk.options(self.mount.spindle).read_latency);
        let access = Access { bytes: 2 * kept, at: Some((self.file, 0)) };
        self.submit("compress", Need::Medium(latency, access), None, move |disk, state, _| {
            if state.is_drawn(state.faults.read_error) {
                disk.fault("read_error", path.display().to_string());
                bail!(Io, "cannot compress {}: input/output error", path.display());
            }
            if state.spindles[spindle].options.compression.is_none() {
                bail!(Unsupported, "cannot compress {}: its file system has no compression", path.display());
            }
            Ok(())
        })
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

impl Drop for VirtualFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.life == self.mount.life {
            Hold(self.file).release(&mut state);
        }
    }
}
