//! Requests about open files.

use std::collections::BTreeMap;

use bytes::Bytes;
use ebb_types::{InodeId, Result, err};
use parking_lot::Mutex;

use super::{Server, caller, empty};
use crate::abi::request::{FileRequest, Header, Write};
use crate::abi::{OPEN_EXEC, RELEASE_FLOCK_UNLOCK, WRITE_CACHE, WRITE_KILL_SUIDGID, fopen, privileges, reply};
use crate::pages::Way;
use crate::vfs::{
    Access, Allocate, CopyRange, Handle, IfExists, LockSort, NewFile, NewName, OpenMode, Privileges, Seek, UnnamedFile,
    Vfs, WriteAt,
};

/// Maximum number of bytes that one request copies, so that it ends well before its deadline. The
/// program makes another call for the rest.
const COPY_MAX: u64 = 64 << 20;

/// Files that programs have open. The kernel may unmount without a release of each of them.
#[derive(Debug, Default)]
pub struct OpenFiles {
    files: Mutex<BTreeMap<Handle, Opened>>,
}

/// State of an open file.
#[derive(Clone, Copy, Debug)]
struct Opened {
    inode: InodeId,
    access: Access,
    way: Way,
}

impl OpenFiles {
    fn add(&self, file: Handle, opened: Opened) {
        self.files.lock().insert(file, opened);
    }

    fn find(&self, file: Handle) -> Option<Opened> {
        self.files.lock().get(&file).copied()
    }

    /// Removes an open file. `None`: it was not open.
    fn remove(&self, file: Handle) -> Option<Opened> {
        self.files.lock().remove(&file)
    }

    /// Removes and returns all open files, at the end of the mount.
    pub fn take_all(&self) -> Vec<Handle> {
        std::mem::take(&mut *self.files.lock()).into_keys().collect()
    }
}

impl<V: Vfs> Server<V> {
    pub(super) async fn on_file(&self, header: &Header, request: FileRequest) -> Result<Bytes> {
        let (vfs, inode) = (&self.vfs, header.inode);
        Ok(match request {
            FileRequest::Open { flags, privileges } => {
                let mode = open_mode(flags, privileges);
                let caller = caller(header);
                let opening = vfs.open(&caller, inode, mode);
                let file = if mode.cut.is_some() { self.caches.change(inode, opening).await? } else { opening.await? };
                reply::open(file.0, self.note_open(file, inode, mode.access, flags))
            }
            FileRequest::Create { name, flags, mode, umask, privileges } => {
                let new_name = NewName { parent: inode, name: &name, mode: mode & 0o7777, umask };
                let if_exists = if has(flags, libc::O_EXCL) { IfExists::Fail } else { IfExists::Open };
                let OpenMode { access, cut, .. } = open_mode(flags, privileges);
                let new = NewFile { name: new_name, if_exists, access, hosts: &[] };
                let (file, attr) = vfs.create(&caller(header), new, cut).await?;
                // Another client may have made it, and this mount may have it open.
                self.caches.overwrite_size(attr.inode);
                let flags = self.note_open(file, attr.inode, access, flags);
                reply::created(&attr, self.validity(inode, &name, &attr), file.0, flags)
            }
            FileRequest::CreateUnnamed { flags, mode, umask } => {
                let (access, linkable) = (access(flags), !has(flags, libc::O_EXCL));
                let new = UnnamedFile { directory: inode, mode: mode & 0o7777, umask, linkable, access, hosts: &[] };
                let (file, attr) = vfs.create_unnamed(&caller(header), new).await?;
                let flags = self.note_open(file, attr.inode, access, flags);
                reply::created(&attr, self.attr_validity(&attr), file.0, flags)
            }
            FileRequest::Read { file, offset, len } => self.read(header, Handle(file), offset, len).await?,
            FileRequest::Write(write) => self.write(header, write).await?,
            FileRequest::Flush { file, owner } => {
                // Locks are released first, so that an error of earlier writes does not keep them.
                let unlocked = self.release_locks(inode, owner, LockSort::Fcntl).await;
                vfs.flush(Handle(file)).await?;
                empty(unlocked?)
            }
            FileRequest::Release { file, release_flags, owner } => {
                let file = Handle(file);
                let unlocked = if release_flags & RELEASE_FLOCK_UNLOCK != 0 {
                    self.release_locks(inode, owner, LockSort::Flock).await
                } else {
                    Ok(())
                };
                if let Some(opened) = self.files.remove(file) {
                    vfs.close(file).await;
                    self.caches.close(opened.inode, opened.access, opened.way);
                }
                empty(unlocked?)
            }
            FileRequest::Fsync { file } => empty(vfs.fsync(Handle(file)).await?),
            FileRequest::Allocate { file, offset, len, mode } => {
                let allocating = vfs.allocate(Handle(file), allocation(mode)?, offset, len);
                empty(self.caches.change(inode, allocating).await?)
            }
            FileRequest::Seek { file, offset, whence } => {
                reply::long(vfs.seek(Handle(file), offset, seek(whence)?).await?)
            }
            FileRequest::CopyRange { source, source_offset, target, target_offset, len, flags, wide } => {
                if flags != 0 {
                    return Err(err!(Invalid, "copy_file_range flags {flags:#x} are not supported"));
                }
                let (source, target) = (Handle(source), Handle(target));
                let changed = self.files.find(target).map_or(inode, |opened| opened.inode);
                let copy = CopyRange { source, source_offset, target, target_offset, len: len.min(COPY_MAX) };
                let copying = vfs.copy_range(copy);
                let copied = self.caches.change(changed, copying).await?;
                if wide { reply::long(copied) } else { reply::size(copied as u32) }
            }
        })
    }

    /// Records an open file, and returns the flags of the reply to the kernel. Cached pages stay
    /// valid from one open to the next.
    fn note_open(&self, file: Handle, inode: InodeId, access: Access, flags: u32) -> u32 {
        let asked = if has(flags, libc::O_DIRECT) { Way::Direct } else { Way::Cached };
        let way = self.caches.open(inode, access, asked, self.kernel.maps);
        self.files.add(file, Opened { inode, access, way });
        match way {
            Way::Cached => fopen::KEEP_CACHE,
            Way::Direct => fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES,
        }
    }

    async fn read(&self, header: &Header, file: Handle, offset: u64, len: u32) -> Result<Bytes> {
        if let Some(opened) = self.files.find(file) {
            self.caches.serve(header.inode, opened.way, offset, len.into());
        }
        self.vfs.read(file, offset, len).await
    }

    async fn write(&self, header: &Header, write: Write) -> Result<Bytes> {
        let Write { file, offset, write_flags, flags, data } = write;
        let (file, len) = (Handle(file), data.len() as u32);
        let privileges = privileges(write_flags, WRITE_KILL_SUIDGID);
        // Pages that the cache writes back go to their own offset. Any other write in append mode
        // goes to the end of the file. Another mount may have moved the end since the kernel's
        // last request.
        let appends = has(flags, libc::O_APPEND) && write_flags & WRITE_CACHE == 0;
        let place = if appends { WriteAt::End } else { WriteAt::Offset(offset) };
        let way = self.files.find(file).map_or(Way::Direct, |opened| opened.way);
        let writing = self.vfs.write(file, place, data, privileges);
        let written = if write_flags & WRITE_CACHE == 0 && way == Way::Direct {
            self.caches.change(header.inode, writing).await?
        } else {
            // The kernel has locked the pages that it writes. A drop of them would wait for this
            // request.
            writing.await?
        };
        // The kernel counts from the offset of its request, whatever the end of the file was.
        self.caches.on_written(header.inode, offset.saturating_add(len.into()));
        if written != offset {
            // The kernel has put the bytes into the page cache at the offset of the request.
            self.caches.misplaced(header.inode);
        }
        if privileges == Privileges::Taken {
            self.caches.attributes_changed(header.inode);
        }
        let synced = (libc::O_DSYNC | libc::O_SYNC) as u32;
        if way == Way::Direct && flags & synced != 0 && write_flags & WRITE_CACHE == 0 {
            // For writes around the page cache the kernel leaves the sync to us.
            self.vfs.fsync(file).await?;
        }
        Ok(reply::size(len))
    }
}

fn has(flags: u32, flag: i32) -> bool {
    flags & flag as u32 != 0
}

fn access(flags: u32) -> Access {
    match flags as i32 & libc::O_ACCMODE {
        libc::O_WRONLY => Access::Write,
        libc::O_RDWR => Access::ReadWrite,
        _ => Access::Read,
    }
}

fn open_mode(flags: u32, privileges: Privileges) -> OpenMode {
    let cut = has(flags, libc::O_TRUNC).then_some(privileges);
    OpenMode { access: access(flags), cut, execute: flags & OPEN_EXEC != 0 }
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
