//! Creation of inodes: files, directories, symbolic links, devices.

use ebb_types::{FileKind, InodeId, Result, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use crate::dir;
use crate::inode::{Body, COOKIE_FIRST, DirectoryBody, FileBody};
use crate::machine::{Call, Machine};
use crate::permission::{self, WRITE};
use crate::tree::NewInode;

/// Longest target of a symbolic link in bytes (`PATH_MAX` without its NUL).
pub(crate) const TARGET_LEN_MAX: usize = 4095;

impl Machine {
    /// `open(O_CREAT)`. A new file comes with its write lease, and with its first metablock if there is a placement.
    /// For an existing file, the reply has its attributes only.
    pub(crate) fn create(&mut self, call: &mut Call<'_>, op: &meta_op::Create) -> Result<pb::MetaReply> {
        let parent = InodeId::new(op.parent);
        if op.unnamed {
            return self.create_unnamed(call, op);
        }
        let existing = self.find(parent, &op.name, &call.credentials)?;
        if let Some(entry) = existing
            && !op.exclusive
        {
            if self.inode(entry.inode)?.is_directory() {
                bail!(IsDirectory, "{} is a directory", dir::show(&op.name));
            }
            return if op.replace { self.create_over(call, op, entry.inode) } else { self.attr_reply(entry.inode) };
        }
        if dir::is_dots(&op.name) && !op.exclusive {
            bail!(IsDirectory, "{} is a directory", dir::show(&op.name));
        }
        self.check_new_name(call, parent, &op.name)?;
        first_placement(call, op).map_or(Ok(()), |placement| self.check_placement(&placement.members))?;
        let inode = self.make(call, parent, &op.name, new_file(op, FileBody::default()))?;
        self.created_reply(call, op, inode)
    }

    /// Makes a file that takes the place of another one. The name is never free in between (I-80).
    fn create_over(&mut self, call: &mut Call<'_>, op: &meta_op::Create, old: InodeId) -> Result<pb::MetaReply> {
        let parent = InodeId::new(op.parent);
        let victim = self.inode(old)?;
        self.check_may_remove(call, parent, victim)?;
        permission::check(old, victim, &call.credentials, WRITE)?;
        first_placement(call, op).map_or(Ok(()), |placement| self.check_placement(&placement.members))?;
        let inode = self.make_inode(call, parent, new_file(op, FileBody::default()), 1)?;
        self.redirect(parent, &op.name, inode);
        self.touch_directory(call, parent);
        let displaced_gone = self.lose_name(call, old);
        let made = self.created_reply(call, op, inode)?;
        Ok(pb::MetaReply { displaced_inode: old.raw(), displaced_gone, ..made })
    }

    /// `open(O_TMPFILE)`: makes a file without a name. It lives until all sessions have closed it, or gets a name by
    /// `link`. The directory gives its dataset and the inherited properties, and does not change.
    fn create_unnamed(&mut self, call: &mut Call<'_>, op: &meta_op::Create) -> Result<pb::MetaReply> {
        let parent = InodeId::new(op.parent);
        if !op.name.is_empty() {
            bail!(Invalid, "a file without a name was asked for under the name {}", dir::show(&op.name));
        }
        self.check_may_add(call, parent)?;
        first_placement(call, op).map_or(Ok(()), |placement| self.check_placement(&placement.members))?;
        let body = FileBody { linkable: op.linkable, ..FileBody::default() };
        let inode = self.make_orphan(call, parent, new_file(op, body))?;
        self.created_reply(call, op, inode)
    }

    /// Gives a new file its write lease and its first metablock.
    fn created_reply(&mut self, call: &mut Call<'_>, op: &meta_op::Create, inode: InodeId) -> Result<pb::MetaReply> {
        self.give_lease(call, inode, call.session);
        let first = first_placement(call, op);
        let granted = first.map(|placement| self.place(call, inode, 0, &placement.members).to_pb());
        Ok(pb::MetaReply {
            metablocks: granted.into_iter().collect(),
            created: true,
            lease: pb::LeaseMode::LeaseWrite.into(),
            ..self.attr_reply(inode)?
        })
    }

    /// `mkdir(2)`.
    pub(crate) fn make_dir(&mut self, call: &mut Call<'_>, op: &meta_op::MakeDir) -> Result<pb::MetaReply> {
        let parent = InodeId::new(op.parent);
        self.check_new_name(call, parent, &op.name)?;
        let inode = self.make(call, parent, &op.name, new_directory(parent, op.mode, op.umask))?;
        self.attr_reply(inode)
    }

    /// `mknod(2)`. Only the superuser makes device nodes, except the whiteout of overlay file systems. A regular file
    /// that is made here comes without a lease.
    pub(crate) fn make_node(&mut self, call: &mut Call<'_>, op: &meta_op::MakeNode) -> Result<pb::MetaReply> {
        let parent = InodeId::new(op.parent);
        let (body, is_device) = match FileKind::from_raw(op.kind) {
            Some(FileKind::File) => (Body::File(FileBody::default()), false),
            Some(FileKind::Fifo) => (Body::Fifo, false),
            Some(FileKind::Socket) => (Body::Socket, false),
            Some(FileKind::CharDevice) => (Body::CharDevice, true),
            Some(FileKind::BlockDevice) => (Body::BlockDevice, true),
            Some(FileKind::Directory) => bail!(NotPermitted, "directories are made by MakeDir"),
            Some(FileKind::Symlink) | None => bail!(Invalid, "no node of kind {} can be made", op.kind),
        };
        self.check_new_name(call, parent, &op.name)?;
        let is_whiteout = matches!(body, Body::CharDevice) && op.rdev == 0;
        if is_device && !is_whiteout && !call.credentials.is_root() {
            bail!(NotPermitted, "only the superuser makes devices, not uid {}", call.credentials.uid);
        }
        let rdev = if is_device { op.rdev } else { 0 };
        let inode =
            self.make(call, parent, &op.name, NewInode { body, mode: op.mode, umask: op.umask, rdev, size: 0 })?;
        self.attr_reply(inode)
    }

    /// `symlink(2)`.
    pub(crate) fn symlink(&mut self, call: &mut Call<'_>, op: &meta_op::Symlink) -> Result<pb::MetaReply> {
        let parent = InodeId::new(op.parent);
        if op.target.is_empty() {
            bail!(NotFound, "an empty target leads nowhere");
        }
        if op.target.len() > TARGET_LEN_MAX {
            bail!(NameTooLong, "a target of {} bytes is longer than {TARGET_LEN_MAX}", op.target.len());
        }
        if op.target.contains(&0) {
            bail!(Invalid, "a target must not contain NUL");
        }
        self.check_new_name(call, parent, &op.name)?;
        let new = NewInode {
            body: Body::Symlink(op.target.as_slice().into()),
            mode: 0o777,
            umask: 0,
            rdev: 0,
            size: op.target.len() as u64,
        };
        let inode = self.make(call, parent, &op.name, new)?;
        self.attr_reply(inode)
    }
}

fn first_placement<'a>(call: &Call<'a>, op: &meta_op::Create) -> Option<&'a pb::Placement> {
    if op.no_grant { None } else { call.placements.first() }
}

fn new_file(op: &meta_op::Create, body: FileBody) -> NewInode {
    NewInode { body: Body::File(body), mode: op.mode, umask: op.umask, rdev: 0, size: 0 }
}

/// An empty directory below `parent`.
pub(crate) fn new_directory(parent: InodeId, mode: u32, umask: u32) -> NewInode {
    let body = Body::Directory(DirectoryBody { parent, next_cookie: COOKIE_FIRST, count: 0 });
    NewInode { body, mode, umask, rdev: 0, size: 0 }
}
