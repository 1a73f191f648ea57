//! Requests about open files.

use std::collections::BTreeSet;

use bytes::Bytes;
use ebb_types::{Result, err};
use parking_lot::Mutex;

use super::{Server, caller, empty};
use crate::abi::request::{Header, Request};
use crate::abi::{OPEN_EXEC, RELEASE_FLOCK_UNLOCK, WRITE_CACHE, WRITE_KILL_SUIDGID, fopen, reply};
use crate::vfs::{Allocate, FileId, NewName, OpenMode, Place, Privileges, Seek, Vfs};

/// Most bytes that one request copies: it must end well before its deadline, and the program asks again for the rest.
const COPY_MAX: u64 = 64 << 20;

/// What programs have open; the kernel does not promise a release of each before an unmount ends.
#[derive(Debug, Default)]
pub struct OpenFiles {
    files: Mutex<BTreeSet<FileId>>,
}

impl OpenFiles {
    fn add(&self, file: FileId) {
        self.files.lock().insert(file);
    }

    /// False: it was not open.
    fn remove(&self, file: FileId) -> bool {
        self.files.lock().remove(&file)
    }

    /// Everything, for the end of the mount.
    pub fn take_all(&self) -> BTreeSet<FileId> {
        std::mem::take(&mut self.files.lock())
    }
}

impl<V: Vfs> Server<V> {
    pub(super) async fn on_file(&self, header: &Header, request: Request) -> Result<Bytes> {
        let vfs = &self.vfs;
        Ok(match request {
            Request::Open { flags, kill_privileges } => {
                let file = vfs.open(&caller(header), header.inode, open_mode(flags, kill_privileges)).await?;
                self.files.add(file);
                reply::open(file.0, cache_flags(flags))
            }
            Request::Create { name, flags, mode, umask, kill_privileges } => {
                let new = NewName { parent: header.inode, name: &name, mode: mode & 0o7777, umask };
                let exclusive = flags & libc::O_EXCL as u32 != 0;
                let open = open_mode(flags, kill_privileges);
                let (file, attr) = vfs.create(&caller(header), new, exclusive, open).await?;
                self.files.add(file);
                reply::created(&attr, self.validity(header.inode, &name, &attr), file.0, cache_flags(flags))
            }
            Request::Read { file, offset, len } => vfs.read(FileId(file), offset, len).await?,
            Request::Write { .. } => self.write(header, request).await?,
            Request::Flush { file, owner } => {
                // Locks go first: an error of earlier writes must not keep them.
                let unlocked = self.release_locks(header.inode, owner, false).await;
                vfs.flush(FileId(file)).await?;
                empty(unlocked?)
            }
            Request::Release { file, release_flags, owner } => {
                let file = FileId(file);
                let unlocked = if release_flags & RELEASE_FLOCK_UNLOCK != 0 {
                    self.release_locks(header.inode, owner, true).await
                } else {
                    Ok(())
                };
                if self.files.remove(file) {
                    vfs.close(file).await;
                }
                empty(unlocked?)
            }
            Request::Fsync { file } => empty(vfs.fsync(FileId(file)).await?),
            Request::Allocate { file, offset, len, mode } => {
                empty(vfs.allocate(FileId(file), allocation(mode)?, offset, len).await?)
            }
            Request::Seek { file, offset, whence } => reply::long(vfs.seek(FileId(file), offset, seek(whence)?).await?),
            Request::CopyRange { source, source_offset, target, target_offset, len, flags, wide } => {
                if flags != 0 {
                    return Err(err!(Invalid, "copy_file_range flags {flags:#x} are not supported"));
                }
                let (source, target) = (FileId(source), FileId(target));
                let copied = vfs.copy_range(source, source_offset, target, target_offset, len.min(COPY_MAX)).await?;
                if wide { reply::long(copied) } else { reply::size(copied as u32) }
            }
            _ => Bytes::new(),
        })
    }

    async fn write(&self, header: &Header, request: Request) -> Result<Bytes> {
        let Request::Write { file, offset, write_flags, flags, data } = request else { return Ok(Bytes::new()) };
        let (file, len) = (FileId(file), data.len() as u32);
        let takes = write_flags & WRITE_KILL_SUIDGID != 0;
        let privileges = if takes { Privileges::Taken } else { Privileges::Kept };
        // Written pages of a mapping have their place; everything else in append mode goes to the end of the file,
        // which another mount may have moved since the kernel looked.
        let appends = flags & libc::O_APPEND as u32 != 0 && write_flags & WRITE_CACHE == 0;
        let place = if appends { Place::End } else { Place::At(offset) };
        let end = self.vfs.write(file, place, data, privileges).await?;
        if end != offset {
            // The kernel has put the bytes into the page cache at the place that it believed in.
            self.invalidator.submit(header.inode);
        }
        if takes {
            self.invalidator.submit_attributes(header.inode);
        }
        Ok(reply::size(len))
    }
}

fn open_mode(flags: u32, kill_privileges: bool) -> OpenMode {
    let access = flags as i32 & libc::O_ACCMODE;
    OpenMode {
        read: access != libc::O_WRONLY,
        write: access == libc::O_WRONLY || access == libc::O_RDWR,
        truncate: flags & libc::O_TRUNC as u32 != 0,
        execute: flags & OPEN_EXEC != 0,
        kill_privileges,
    }
}

/// Cached pages stay valid from one open to the next (the kernel compares size and time of change before it uses
/// them); a descriptor with `O_DIRECT`, and it alone, goes around them.
fn cache_flags(flags: u32) -> u32 {
    if flags & libc::O_DIRECT as u32 != 0 {
        fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES
    } else {
        fopen::KEEP_CACHE
    }
}

fn allocation(mode: u32) -> Result<Allocate> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | KEEP;
    match mode as i32 {
        0 => Ok(Allocate::Reserve),
        KEEP => Ok(Allocate::ReserveKeepSize),
        PUNCH => Ok(Allocate::PunchHole),
        ZERO => Ok(Allocate::Zero),
        ZERO_KEEP => Ok(Allocate::ZeroKeepSize),
        _ => Err(err!(Unsupported, "fallocate mode {mode:#x} is not supported")),
    }
}

fn seek(whence: u32) -> Result<Seek> {
    match whence as i32 {
        libc::SEEK_DATA => Ok(Seek::Data),
        libc::SEEK_HOLE => Ok(Seek::Hole),
        _ => Err(err!(Invalid, "lseek whence {whence} is not for a file system")),
    }
}
