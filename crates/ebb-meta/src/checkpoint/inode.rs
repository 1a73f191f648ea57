//! Decoding of an inode's record: its parts, and its refusals.

use std::sync::Arc;

use bytes::Bytes;
use ebb_types::{FileKind, InodeId, MetablockId, Result, SessionId, bail};
use ebb_wire::pb;

use crate::acl::Acl;
use crate::inode::{Body, DirectoryBody, FILE_SIZE_MAX, FileBody};
use crate::locks::{Lock, LockOwner, LockTable};
use crate::machine::NUMBER_MAX;
use crate::map::{LEFT_OUT_MAX, Map, Metablock};
use crate::ops::grant::check_members;
use crate::raid::thaw::Heir;
use crate::xattr::{ACL_ACCESS, ACL_DEFAULT, Xattrs};

pub(super) fn body(attr: &pb::Attr, record: &pb::InodeRecord) -> Result<Body> {
    Ok(match FileKind::from_raw(attr.kind) {
        Some(FileKind::File) => {
            let mut map = Map::default();
            for block in &record.metablocks {
                if !map.insert(Metablock::from_pb(block)) {
                    bail!(Corrupt, "i{} has two metablocks at index {}", attr.inode, block.index);
                }
            }
            Body::File(FileBody {
                map,
                holder: (record.holder != 0).then(|| SessionId::new(record.holder)),
                recovering: record.recovering,
                trim: record.pending_trim.map(Arc::new),
                linkable: record.linkable,
                emptied: record.emptied,
                heirs: record.heirs.iter().map(Heir::from_pb).collect(),
            })
        }
        Some(FileKind::Directory) => Body::Directory(DirectoryBody {
            parent: InodeId::new(record.parent),
            next_cookie: record.next_cookie,
            count: 0,
        }),
        Some(FileKind::Symlink) => Body::Symlink(record.target.as_slice().into()),
        Some(FileKind::Fifo) => Body::Fifo,
        Some(FileKind::Socket) => Body::Socket,
        Some(FileKind::CharDevice) => Body::CharDevice,
        Some(FileKind::BlockDevice) => Body::BlockDevice,
        None => bail!(Corrupt, "i{} is of unknown kind {}", attr.inode, attr.kind),
    })
}

pub(super) fn xattrs(records: Vec<pb::Xattr>) -> Result<Option<Arc<Xattrs>>> {
    if records.is_empty() {
        return Ok(None);
    }
    let mut xattrs = Xattrs::default();
    for record in records {
        match record.name.as_slice() {
            ACL_ACCESS => xattrs.access = Acl::parse(&record.value)?,
            ACL_DEFAULT => xattrs.default = Acl::parse(&record.value)?,
            name => xattrs.insert(name, Bytes::from(record.value)),
        }
    }
    Ok(Some(Arc::new(xattrs)))
}

pub(super) fn lock_table(record: &pb::InodeRecord) -> Result<LockTable> {
    let parse = |locks: &[pb::FileLock]| locks.iter().map(lock).collect::<Result<Vec<_>>>();
    Ok(LockTable::from_parts(parse(&record.locks)?, parse(&record.lock_queue)?))
}

fn lock(lock: &pb::FileLock) -> Result<Lock> {
    if !matches!(lock.kind, 1 | 2) || lock.start > lock.end {
        bail!(Corrupt, "a recorded lock is malformed: {lock:?}");
    }
    let owner = LockOwner { session: SessionId::new(lock.session), owner: lock.owner, flock: lock.flock };
    Ok(Lock { owner, exclusive: lock.kind == 2, start: lock.start, end: lock.end, pid: lock.pid })
}

/// Refuses numbers that no inode reaches.
pub(super) fn check_attr(attr: &pb::Attr) -> Result<()> {
    if attr.epoch.max(attr.size_generation).max(attr.takeovers) > NUMBER_MAX || attr.size > FILE_SIZE_MAX {
        bail!(
            Corrupt,
            "i{} of {} bytes at e{}, size generation {}, taken over {} times",
            attr.inode,
            attr.size,
            attr.epoch,
            attr.size_generation,
            attr.takeovers
        );
    }
    Ok(())
}

/// Refuses a metablock with a set that no master grants, or with numbers that none reaches.
pub(crate) fn check_block(block: &Metablock, next: MetablockId) -> Result<()> {
    if block.id >= next || block.generation > NUMBER_MAX || block.length > FILE_SIZE_MAX {
        bail!(Corrupt, "{} of {} bytes at generation {}; {next} is next", block.id, block.length, block.generation);
    }
    if block.frozen.is_some_and(|frozen| block.length > frozen.length || frozen.length > FILE_SIZE_MAX) {
        bail!(Corrupt, "{} shows {} bytes, more than it was frozen with", block.id, block.length);
    }
    let mut left_out = block.left_out().iter();
    if left_out.len() > LEFT_OUT_MAX || left_out.any(|one| one.member.is_none()) {
        bail!(Corrupt, "{}: {:?} were left out of it", block.id, block.left_out());
    }
    check_members(&block.members).map_err(|error| ebb_types::err!(Corrupt, "{}: {error}", block.id))
}
