//! Queries: answered from the applied state, never logged.

use ebb_types::{Credentials, DatasetId, InodeId, Result, SessionId, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;
use ebb_wire::pb::meta_op::Op;

use crate::dir;
use crate::inode::Body;
use crate::locks::Wish;
use crate::machine::Machine;
use crate::ops::xattr;
use crate::permission::{self, EXECUTE, READ};
use crate::resolve::LastLink;

/// Most metablocks of one reply. `GetMap` continues where a reply stopped.
pub const METABLOCKS_PER_REPLY: usize = 4096;
/// Most entries of one listing.
pub const READ_DIR_LIMIT_MAX: u32 = 4096;
/// Entries of a listing whose request names no number.
const READ_DIR_LIMIT: u32 = 1024;
/// Most bytes of names and attributes of one listing. The reply stays below the cap of a message.
const READ_DIR_BYTES: usize = 2 << 20;
/// Most bytes of an entry's attributes in a message.
const ATTR_BYTES: usize = 160;
/// Bytes of a metablock in a message, for each of its members and for itself.
const MEMBER_BYTES: usize = 36;

impl Machine {
    /// Answers a query for a session. It does not check permission to read names, entries and attributes: on mounts the
    /// kernel does. Other clients use `Resolve`, which checks the path, and `check` of `ReadDir`.
    pub fn query(&self, session: SessionId, credentials: &Credentials, op: &Op) -> Result<pb::MetaReply> {
        match op {
            Op::Lookup(op) => self.lookup(InodeId::new(op.parent), &op.name),
            Op::GetAttr(op) => {
                let id = InodeId::new(op.inode);
                self.check_is_whole(id)?;
                self.attr_reply(id)
            }
            Op::ReadDir(op) => self.read_dir(credentials, op),
            Op::ReadLink(op) => self.read_link(InodeId::new(op.inode)),
            Op::GetXattr(op) => {
                let id = InodeId::new(op.inode);
                let value = xattr::read(credentials, id, &*self.inode_at(id)?, &op.name)?;
                Ok(pb::MetaReply { value: value.to_vec(), ..Default::default() })
            }
            Op::ListXattr(op) => {
                let names = xattr::list(credentials, &*self.inode_at(InodeId::new(op.inode))?);
                Ok(pb::MetaReply { names, ..Default::default() })
            }
            Op::StatFs(op) => self.stat_fs(InodeId::new(op.inode)),
            Op::GetMap(op) => self.get_map(op),
            Op::Resolve(op) => {
                let found = self.resolve(
                    credentials,
                    &op.path,
                    if op.follow_last { LastLink::Follow } else { LastLink::Stop },
                )?;
                permission::check(found.inode, &*self.inode_at(found.inode)?, credentials, op.access & 7)?;
                Ok(pb::MetaReply { parent: found.parent.raw(), ..self.attr_reply(found.inode)? })
            }
            Op::Summarize(op) => self.summarize(credentials, op),
            Op::TestLock(op) => self.test_lock(session, op),
            Op::ListDatasets(op) => {
                let shown = self.datasets.iter().filter(|dataset| !dataset.path.is_empty()).cloned();
                let datasets = shown.map(|dataset| {
                    let used = self.datasets.usage(DatasetId::new(dataset.id));
                    pb::Dataset {
                        used_inodes: used.inodes,
                        used_bytes: used.bytes,
                        kept_bytes: used.kept_bytes,
                        past_inodes: used.past_inodes,
                        ..dataset
                    }
                });
                let snapshots = op.snapshots_of.map(|dataset| self.snapshots_of(DatasetId::new(dataset)));
                Ok(pb::MetaReply {
                    datasets: datasets.collect(),
                    snapshots: snapshots.unwrap_or_default(),
                    ..Default::default()
                })
            }
            Op::GetRaidSets(op) => {
                Ok(pb::MetaReply { raid_sets: self.get_raid_sets(&op.metablocks)?, ..Default::default() })
            }
            _ => bail!(Invalid, "a mutation is a command, not a query"),
        }
    }

    /// Fails with kind `Stale` if the file's holder has discarded writes: the record has less than was written (I-81).
    pub fn check_is_whole(&self, id: InodeId) -> Result<()> {
        if self.is_emptied(id) {
            bail!(Stale, "{id} was removed");
        }
        Ok(())
    }

    /// Attributes of a name. `.` and `..` are names, too.
    fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<pb::MetaReply> {
        dir::check_name(name)?;
        self.directory_at(parent)?;
        match name {
            b"." => self.attr_reply(parent),
            b".." => self.attr_reply(self.parent_at(parent)?),
            _ => match self.entry_at(parent, name) {
                Some(inode) => self.attr_reply(inode),
                None => bail!(NotFound, "there is no {} in the directory {parent}", dir::show(name)),
            },
        }
    }

    /// Entries after a cookie. An entry that stays is listed exactly once, however the directory changes.
    fn read_dir(&self, credentials: &Credentials, op: &meta_op::ReadDir) -> Result<pb::MetaReply> {
        let id = InodeId::new(op.inode);
        let directory = self.directory_at(id)?;
        if op.check {
            permission::check(id, &directory, credentials, if op.plus { READ | EXECUTE } else { READ })?;
        }
        let limit = if op.limit == 0 { READ_DIR_LIMIT } else { op.limit.min(READ_DIR_LIMIT_MAX) } as usize;
        let mut reply = pb::MetaReply { end: true, ..Default::default() };
        let mut bytes = 0;
        for (cookie, name, inode_id) in self.entries_at(id, op.cookie) {
            if reply.entries.len() >= limit || bytes >= READ_DIR_BYTES {
                reply.end = false;
                break;
            }
            let inode = self.inode_at(inode_id)?;
            let mut metablocks = Vec::new();
            if op.map && inode.file().is_some() {
                metablocks = self.metablocks_at(inode_id, 0, METABLOCKS_PER_REPLY)?;
            }
            let entry = pb::DirEntry {
                name: name.to_vec(),
                inode: inode_id.raw(),
                kind: inode.kind().raw(),
                cookie,
                attr: op.plus.then(|| self.attr_of(inode_id, &inode)),
                metablocks,
                unsettled: false,
            };
            let members: usize = entry.metablocks.iter().map(|block| block.members.len() + block.extra.len() + 2).sum();
            bytes += name.len() + ATTR_BYTES + MEMBER_BYTES * members;
            reply.entries.push(entry);
        }
        Ok(reply)
    }

    fn read_link(&self, id: InodeId) -> Result<pb::MetaReply> {
        match &self.inode_at(id)?.body {
            Body::Symlink(target) => Ok(pb::MetaReply { value: target.to_vec(), ..Default::default() }),
            _ => bail!(Invalid, "{id} is not a symbolic link"),
        }
    }

    /// Space of the volumes at their registration. The leader knows newer numbers, and fills them in.
    fn stat_fs(&self, id: InodeId) -> Result<pb::MetaReply> {
        let settings = self.datasets.settings(self.inode_at(id)?.dataset);
        let mut stat =
            pb::StatFsReply { inodes: self.inodes.len() as u64, replicas: settings.replicas, ..Default::default() };
        let nodes = self.registry.nodes().filter_map(|record| record.node.as_ref());
        for volume in nodes.flat_map(|node| &node.volumes) {
            stat.capacity_bytes = stat.capacity_bytes.saturating_add(volume.capacity_bytes);
            stat.free_bytes = stat.free_bytes.saturating_add(volume.free_bytes);
            stat.used_bytes = stat.used_bytes.saturating_add(volume.used_bytes);
        }
        Ok(pb::MetaReply { stat_fs: Some(stat), ..Default::default() })
    }

    fn get_map(&self, op: &meta_op::GetMap) -> Result<pb::MetaReply> {
        let id = InodeId::new(op.inode);
        self.check_is_whole(id)?;
        if self.inode_at(id)?.file().is_none() {
            bail!(Invalid, "{id} is not a regular file: it has no map");
        }
        let limit = if op.limit == 0 { METABLOCKS_PER_REPLY } else { (op.limit as usize).min(METABLOCKS_PER_REPLY) };
        // One more than is asked for tells whether there are more.
        let mut metablocks = self.metablocks_at(id, op.first_index, limit + 1)?;
        let end = metablocks.len() <= limit;
        metablocks.truncate(limit);
        Ok(pb::MetaReply { metablocks, end, ..self.attr_reply(id)? })
    }

    /// The first held lock that conflicts with a requested one.
    fn test_lock(&self, session: SessionId, op: &meta_op::TestLock) -> Result<pb::MetaReply> {
        let id = InodeId::new(op.inode);
        self.inode_at(id)?;
        let Some(Wish::Lock(wish)) = op.lock.as_ref().map(|lock| Wish::parse(session, lock)).transpose()? else {
            bail!(Invalid, "a lock test for {id} without a lock");
        };
        let lock = self.locks.table(id).and_then(|table| table.conflicts(&wish).next().copied());
        Ok(pb::MetaReply { lock: lock.map(crate::locks::Lock::to_pb), ..Default::default() })
    }
}
