//! Attributes of an inode across the edge between the message and the type.

use ebb_types::{
    Attr, DatasetId, Epoch, Error, FileKind, Geometry, InodeId, Prefetch, ReadRule, Result, Storage, WallTime, err,
    log_copies, min_copies,
};

use crate::convert::required;
use crate::pb;

impl TryFrom<pb::Attr> for Attr {
    type Error = Error;

    /// `Protocol`: the inode is of a kind that this build does not know.
    fn try_from(from: pb::Attr) -> Result<Self> {
        let kind = FileKind::from_raw(from.kind)
            .ok_or_else(|| err!(Protocol, "inode i{} is of kind {}, which is unknown here", from.inode, from.kind))?;
        Ok(Self {
            inode: InodeId::new(from.inode),
            kind,
            mode: from.mode & 0o7777,
            links: from.nlink,
            uid: from.uid,
            gid: from.gid,
            rdev: from.rdev,
            size: from.size,
            size_unknown: from.size_unknown,
            size_generation: from.size_generation,
            takeovers: from.takeovers,
            allocated_bytes: from.allocated_bytes,
            atime: WallTime(from.atime_ns),
            mtime: WallTime(from.mtime_ns),
            ctime: WallTime(from.ctime_ns),
            btime: WallTime(from.btime_ns),
            epoch: Epoch::new(from.epoch),
            has_xattrs: from.has_xattrs,
            storage: Storage {
                dataset: DatasetId::new(from.dataset),
                geometry: Geometry { block_size: from.block_size, metablock_size: from.metablock_size },
                replicas: from.replicas,
                min_copies: min_copies(from.min_copies, from.replicas),
                log_copies: log_copies(from.log_copies, from.min_copies),
                single_source: from.single_source,
                prefetch: Prefetch::from_raw(from.prefetch).unwrap_or_default(),
                read_rule: ReadRule::from_raw(from.read_rule).unwrap_or_default(),
            },
        })
    }
}

impl From<Attr> for pb::Attr {
    fn from(attr: Attr) -> Self {
        let Storage { dataset, geometry, replicas, min_copies, log_copies, single_source, prefetch, read_rule } =
            attr.storage;
        Self {
            inode: attr.inode.raw(),
            kind: attr.kind.raw(),
            mode: attr.mode,
            nlink: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size: attr.size,
            atime_ns: attr.atime.0,
            mtime_ns: attr.mtime.0,
            ctime_ns: attr.ctime.0,
            btime_ns: attr.btime.0,
            epoch: attr.epoch.raw(),
            size_generation: attr.size_generation,
            takeovers: attr.takeovers,
            dataset: dataset.raw(),
            block_size: geometry.block_size,
            metablock_size: geometry.metablock_size,
            allocated_bytes: attr.allocated_bytes,
            size_unknown: attr.size_unknown,
            replicas,
            has_xattrs: attr.has_xattrs,
            single_source,
            prefetch: prefetch.to_raw(),
            read_rule: read_rule.to_raw(),
            min_copies,
            log_copies,
        }
    }
}

/// The attributes in a field that `answer` may not leave out.
///
/// # Errors
/// `Protocol` if they are missing, or if this build does not know the inode's kind.
pub fn required_attr(field: Option<pb::Attr>, answer: &str) -> Result<Attr> {
    match field {
        Some(attr) => attr.try_into(),
        None => required(None, &format!("the attributes in {answer}")),
    }
}

/// The attributes in a field that may be absent.
///
/// # Errors
/// `Protocol` if this build does not know the inode's kind.
pub fn optional_attr(field: Option<pb::Attr>) -> Result<Option<Attr>> {
    field.map(Attr::try_from).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_as_they_were_sent() {
        let mut attr = Attr::empty(InodeId::new(7), FileKind::Symlink);
        (attr.mode, attr.links, attr.uid, attr.gid, attr.rdev) = (0o4755, 3, 1, 2, 5);
        (attr.size, attr.size_unknown, attr.size_generation, attr.allocated_bytes) = (11, true, 4, 12);
        (attr.atime, attr.mtime, attr.ctime, attr.btime) = (WallTime(1), WallTime(-2), WallTime(3), WallTime(4));
        (attr.epoch, attr.has_xattrs, attr.takeovers) = (Epoch::new(9), true, 6);
        attr.storage = Storage {
            dataset: DatasetId::new(2),
            geometry: Geometry { block_size: 1 << 16, metablock_size: 1 << 20 },
            replicas: 3,
            min_copies: 1,
            log_copies: 5,
            single_source: true,
            prefetch: Prefetch::Spare,
            read_rule: ReadRule::ALL[1],
        };
        assert_eq!(Attr::try_from(pb::Attr::from(attr)), Ok(attr));
    }

    #[test]
    fn a_kind_that_this_build_does_not_know_is_refused() {
        let attr = pb::Attr { kind: 99, ..pb::Attr::from(Attr::empty(InodeId::ROOT, FileKind::File)) };
        assert!(Attr::try_from(attr).is_err() && optional_attr(Some(attr)).is_err());
        assert!(required_attr(None, "a listing").is_err());
        assert_eq!(optional_attr(None), Ok(None));
    }
}
