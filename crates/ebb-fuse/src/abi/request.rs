//! Parses requests of the kernel.

use bytes::Bytes;
use ebb_types::{InodeId, Result, WallTime, err};

use super::{IN_HEADER, fattr, opcode};
use crate::vfs::{EntryDetail, IfLocked, Lock, LockKind, LockSort, Privileges, SetAttr, SetTime};

/// Header of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of request (`opcode`).
    pub opcode: u32,
    /// Identifies the request in the reply and in INTERRUPT. Never reused within a mount.
    pub unique: u64,
    /// Inode of the request. 0: none.
    pub inode: InodeId,
    /// File-system user of the caller.
    pub uid: u32,
    /// File-system group of the caller.
    pub gid: u32,
    /// Thread of the caller. 0: the thread is not visible in our PID namespace.
    pub pid: u32,
}

/// A request, in the group of requests that one function serves.
///
/// The groups make it a compile error to send a request to the wrong function. Names and values are
/// slices of the message.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Request {
    Inode(InodeRequest),
    Names(NameRequest),
    Xattr(XattrRequest),
    File(FileRequest),
    Lock(LockRequest),
    Control(ControlRequest),
}

/// Request about an inode or a directory.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum InodeRequest {
    Lookup {
        name: Bytes,
    },
    GetAttr,
    Statx,
    /// `file`: the open file through which it is asked for.
    SetAttr {
        set: SetAttr,
        file: Option<u64>,
    },
    ReadLink,
    StatFs,
    OpenDir,
    ReadDir {
        offset: u64,
        size: u32,
        detail: EntryDetail,
    },
    ReleaseDir,
    FsyncDir,
}

/// A change of names in a directory.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum NameRequest {
    Symlink { name: Bytes, target: Bytes },
    MakeNode { name: Bytes, mode: u32, umask: u32, rdev: u32 },
    MakeDir { name: Bytes, mode: u32, umask: u32 },
    Unlink { name: Bytes },
    RemoveDir { name: Bytes },
    Rename { target_parent: InodeId, flags: u32, source: Bytes, target: Bytes },
    Link { inode: InodeId, name: Bytes },
}

/// Request about extended attributes.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum XattrRequest {
    SetXattr { name: Bytes, value: Bytes, flags: u32 },
    GetXattr { name: Bytes, size: u32 },
    ListXattr { size: u32 },
    RemoveXattr { name: Bytes },
}

/// Request about a file that a program opens or has open.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum FileRequest {
    Open { flags: u32, privileges: Privileges },
    Create { name: Bytes, flags: u32, mode: u32, umask: u32, privileges: Privileges },
    CreateUnnamed { flags: u32, mode: u32, umask: u32 },
    Read { file: u64, offset: u64, len: u32 },
    Write(Write),
    Flush { file: u64, owner: u64 },
    Release { file: u64, release_flags: u32, owner: u64 },
    Fsync { file: u64 },
    Allocate { file: u64, offset: u64, len: u64, mode: u32 },
    Seek { file: u64, offset: u64, whence: u32 },
    CopyRange { source: u64, source_offset: u64, target: u64, target_offset: u64, len: u64, flags: u64, wide: bool },
}

/// Bytes that a program writes, or the kernel writes back.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Write {
    pub file: u64,
    pub offset: u64,
    pub write_flags: u32,
    pub flags: u32,
    pub data: Bytes,
}

/// Request about locks.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum LockRequest {
    GetLock(Lock),
    SetLock { lock: Lock, if_locked: IfLocked },
}

/// Request from the kernel to the session, which handles it itself.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum ControlRequest {
    Forget,
    Interrupt {
        unique: u64,
    },
    Destroy,
    /// Not supported. After the refusal the kernel stops sending it.
    Unknown,
}

/// Reads a message from front to back.
struct Reader {
    rest: Bytes,
    opcode: u32,
}

impl Reader {
    fn short(&self) -> ebb_types::Error {
        err!(Protocol, "request {} of the kernel is shorter than its kind needs", self.opcode)
    }

    fn bytes(&mut self, len: usize) -> Result<Bytes> {
        if self.rest.len() < len {
            return Err(self.short());
        }
        Ok(self.rest.split_to(len))
    }

    fn word(&mut self) -> Result<u32> {
        Ok(u32::from_ne_bytes(self.bytes(4)?[..].try_into().expect("4 bytes were taken")))
    }

    fn long(&mut self) -> Result<u64> {
        Ok(u64::from_ne_bytes(self.bytes(8)?[..].try_into().expect("8 bytes were taken")))
    }

    fn skip(&mut self, len: usize) -> Result<()> {
        self.bytes(len).map(drop)
    }

    /// Reads a string up to its terminating zero.
    fn name(&mut self) -> Result<Bytes> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or_else(|| self.short())?;
        let name = self.rest.split_to(end);
        self.skip(1)?;
        Ok(name)
    }
}

/// Parses the header.
pub fn header(message: &[u8]) -> Result<Header> {
    if message.len() < IN_HEADER {
        return Err(err!(Protocol, "the kernel sent a request of {} bytes, less than a header", message.len()));
    }
    let word = |at: usize| u32::from_ne_bytes(message[at..at + 4].try_into().expect("4 bytes"));
    let long = |at: usize| u64::from_ne_bytes(message[at..at + 8].try_into().expect("8 bytes"));
    Ok(Header {
        opcode: word(4),
        unique: long(8),
        inode: InodeId::new(long(16)),
        uid: word(24),
        gid: word(28),
        pid: word(32),
    })
}

/// Parses a whole message, which includes the header.
pub fn parse(header: &Header, message: Bytes) -> Result<Request> {
    let mut reader = Reader { rest: message, opcode: header.opcode };
    reader.skip(IN_HEADER)?;
    let reader = &mut reader;
    Ok(match header.opcode {
        opcode::LOOKUP => Request::Inode(InodeRequest::Lookup { name: reader.name()? }),
        opcode::FORGET | opcode::BATCH_FORGET => Request::Control(ControlRequest::Forget),
        opcode::GETATTR => Request::Inode(InodeRequest::GetAttr),
        opcode::STATX => Request::Inode(InodeRequest::Statx),
        opcode::SETATTR => Request::Inode(set_attr(reader)?),
        opcode::READLINK => Request::Inode(InodeRequest::ReadLink),
        opcode::SYMLINK => Request::Names(NameRequest::Symlink { name: reader.name()?, target: reader.name()? }),
        opcode::MKNOD => make_node(reader)?,
        opcode::MKDIR => {
            let (mode, umask) = (reader.word()?, reader.word()?);
            Request::Names(NameRequest::MakeDir { mode, umask, name: reader.name()? })
        }
        opcode::UNLINK => Request::Names(NameRequest::Unlink { name: reader.name()? }),
        opcode::RMDIR => Request::Names(NameRequest::RemoveDir { name: reader.name()? }),
        opcode::RENAME | opcode::RENAME2 => rename(reader, header.opcode == opcode::RENAME2)?,
        opcode::LINK => Request::Names(NameRequest::Link { inode: InodeId::new(reader.long()?), name: reader.name()? }),
        opcode::OPEN => {
            Request::File(FileRequest::Open { flags: reader.word()?, privileges: privileges_on_open(reader)? })
        }
        opcode::CREATE => create(reader)?,
        // The same arguments; the name behind them is one that the kernel made up for itself.
        opcode::TMPFILE => Request::File(FileRequest::CreateUnnamed {
            flags: reader.word()?,
            mode: reader.word()?,
            umask: reader.word()?,
        }),
        opcode::READ => {
            Request::File(FileRequest::Read { file: reader.long()?, offset: reader.long()?, len: reader.word()? })
        }
        opcode::WRITE => write(reader)?,
        opcode::FLUSH => {
            let file = reader.long()?;
            reader.skip(8)?;
            Request::File(FileRequest::Flush { file, owner: reader.long()? })
        }
        opcode::RELEASE => {
            let file = reader.long()?;
            reader.skip(4)?;
            Request::File(FileRequest::Release { file, release_flags: reader.word()?, owner: reader.long()? })
        }
        opcode::FSYNC => Request::File(FileRequest::Fsync { file: reader.long()? }),
        opcode::OPENDIR => Request::Inode(InodeRequest::OpenDir),
        opcode::READDIR | opcode::READDIRPLUS => {
            reader.skip(8)?;
            let is_plus = header.opcode == opcode::READDIRPLUS;
            let detail = if is_plus { EntryDetail::Attributes } else { EntryDetail::Names };
            Request::Inode(InodeRequest::ReadDir { offset: reader.long()?, size: reader.word()?, detail })
        }
        opcode::RELEASEDIR => Request::Inode(InodeRequest::ReleaseDir),
        opcode::FSYNCDIR => Request::Inode(InodeRequest::FsyncDir),
        opcode::STATFS => Request::Inode(InodeRequest::StatFs),
        opcode::SETXATTR => set_xattr(reader)?,
        opcode::GETXATTR => {
            let size = reader.word()?;
            reader.skip(4)?;
            Request::Xattr(XattrRequest::GetXattr { size, name: reader.name()? })
        }
        opcode::LISTXATTR => Request::Xattr(XattrRequest::ListXattr { size: reader.word()? }),
        opcode::REMOVEXATTR => Request::Xattr(XattrRequest::RemoveXattr { name: reader.name()? }),
        opcode::GETLK => Request::Lock(LockRequest::GetLock(lock(reader)?)),
        opcode::SETLK => Request::Lock(LockRequest::SetLock { lock: lock(reader)?, if_locked: IfLocked::Fail }),
        opcode::SETLKW => Request::Lock(LockRequest::SetLock { lock: lock(reader)?, if_locked: IfLocked::Wait }),
        opcode::FALLOCATE => Request::File(FileRequest::Allocate {
            file: reader.long()?,
            offset: reader.long()?,
            len: reader.long()?,
            mode: reader.word()?,
        }),
        opcode::LSEEK => {
            Request::File(FileRequest::Seek { file: reader.long()?, offset: reader.long()?, whence: reader.word()? })
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => copy_range(reader, header.opcode)?,
        opcode::INTERRUPT => Request::Control(ControlRequest::Interrupt { unique: reader.long()? }),
        opcode::DESTROY => Request::Control(ControlRequest::Destroy),
        _ => Request::Control(ControlRequest::Unknown),
    })
}

fn privileges_on_open(reader: &mut Reader) -> Result<Privileges> {
    Ok(super::privileges(reader.word()?, super::OPEN_KILL_SUIDGID))
}

fn set_attr(reader: &mut Reader) -> Result<InodeRequest> {
    let valid = reader.word()?;
    reader.skip(4)?;
    let (file, size) = (reader.long()?, reader.long()?);
    reader.skip(8)?;
    let [atime, mtime, _ctime] = [reader.long()?, reader.long()?, reader.long()?];
    let [atime_ns, mtime_ns, _ctime_ns] = [reader.word()?, reader.word()?, reader.word()?];
    let mode = reader.word()?;
    reader.skip(4)?;
    let (uid, gid) = (reader.word()?, reader.word()?);
    let has = |bit: u32| valid & bit != 0;
    let at = |bit: u32, now: u32, seconds: u64, nanos: u32| match (has(bit), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(time(seconds, nanos))),
        (false, false) => None,
    };
    let set = SetAttr {
        mode: has(fattr::MODE).then_some(mode & 0o7777),
        uid: has(fattr::UID).then_some(uid),
        gid: has(fattr::GID).then_some(gid),
        size: has(fattr::SIZE).then_some(size),
        atime: at(fattr::ATIME, fattr::ATIME_NOW, atime, atime_ns),
        mtime: at(fattr::MTIME, fattr::MTIME_NOW, mtime, mtime_ns),
        by_handle: has(fattr::FH),
        privileges: super::privileges(valid, fattr::KILL_SUIDGID),
    };
    Ok(InodeRequest::SetAttr { set, file: has(fattr::FH).then_some(file) })
}

/// Converts signed seconds and nanoseconds to one count. Values out of range are clamped.
fn time(seconds: u64, nanos: u32) -> WallTime {
    WallTime((seconds as i64).saturating_mul(1_000_000_000).saturating_add(i64::from(nanos)))
}

fn make_node(reader: &mut Reader) -> Result<Request> {
    let (mode, rdev, umask) = (reader.word()?, reader.word()?, reader.word()?);
    reader.skip(4)?;
    Ok(Request::Names(NameRequest::MakeNode { mode, rdev, umask, name: reader.name()? }))
}

fn rename(reader: &mut Reader, with_flags: bool) -> Result<Request> {
    let target_parent = InodeId::new(reader.long()?);
    let flags = if with_flags { reader.word()? } else { 0 };
    if with_flags {
        reader.skip(4)?;
    }
    Ok(Request::Names(NameRequest::Rename { target_parent, flags, source: reader.name()?, target: reader.name()? }))
}

fn create(reader: &mut Reader) -> Result<Request> {
    let (flags, mode, umask) = (reader.word()?, reader.word()?, reader.word()?);
    let privileges = privileges_on_open(reader)?;
    Ok(Request::File(FileRequest::Create { flags, mode, umask, privileges, name: reader.name()? }))
}

fn write(reader: &mut Reader) -> Result<Request> {
    let (file, offset) = (reader.long()?, reader.long()?);
    let (size, write_flags) = (reader.word()?, reader.word()?);
    reader.skip(8)?;
    let flags = reader.word()?;
    reader.skip(4)?;
    Ok(Request::File(FileRequest::Write(Write {
        file,
        offset,
        write_flags,
        flags,
        data: reader.bytes(size as usize)?,
    })))
}

fn set_xattr(reader: &mut Reader) -> Result<Request> {
    let (size, flags) = (reader.word()?, reader.word()?);
    let name = reader.name()?;
    Ok(Request::Xattr(XattrRequest::SetXattr { name, flags, value: reader.bytes(size as usize)? }))
}

fn lock(reader: &mut Reader) -> Result<Lock> {
    reader.skip(8)?;
    let owner = reader.long()?;
    let (start, end) = (reader.long()?, reader.long()?);
    let (kind, pid, lock_flags) = (reader.word()?, reader.word()?, reader.word()?);
    let kind = match kind as i32 {
        libc::F_RDLCK => LockKind::Shared,
        libc::F_WRLCK => LockKind::Exclusive,
        libc::F_UNLCK => LockKind::Unlock,
        other => return Err(err!(Invalid, "no lock has type {other}")),
    };
    // The kernel's offsets are signed. The largest one stands for the end of the file.
    let end = Some(end).filter(|end| *end < i64::MAX as u64);
    let sort = if lock_flags & super::LK_FLOCK != 0 { LockSort::Flock } else { LockSort::Fcntl };
    // A process outside our PID namespace has the number 0.
    Ok(Lock { kind, sort, owner, start, end, pid: Some(pid).filter(|pid| *pid != 0) })
}

fn copy_range(reader: &mut Reader, number: u32) -> Result<Request> {
    let (source, source_offset) = (reader.long()?, reader.long()?);
    let _target_inode = reader.long()?;
    let (target, target_offset) = (reader.long()?, reader.long()?);
    let (len, flags) = (reader.long()?, reader.long()?);
    let wide = number == opcode::COPY_FILE_RANGE_64;
    Ok(Request::File(FileRequest::CopyRange { source, source_offset, target, target_offset, len, flags, wide }))
}

#[cfg(test)]
mod tests;
