//! Mode, owner and times: `chmod(2)`, `chown(2)`, `utimensat(2)`. The size is in `truncate.rs`.

use std::sync::Arc;

use ebb_types::{InodeId, Result, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use crate::inode::{Body, Inode, MODE_MASK, S_ISGID};
use crate::machine::{Call, Machine};
use crate::permission::{self, WRITE};

impl Machine {
    /// Sets the attributes that the request names, whole or not at all (Linux `setattr_prepare`, `setattr_copy`).
    pub(crate) fn set_attr(&mut self, call: &mut Call<'_>, op: &meta_op::SetAttr) -> Result<pb::MetaReply> {
        let id = InodeId::new(op.inode);
        let inode = self.inode(id)?;
        if !sets_something(op) {
            return self.attr_reply(id);
        }
        check_owner_change(call, op, id, inode)?;
        if op.mode.is_some() {
            if matches!(inode.body, Body::Symlink(_)) {
                bail!(Unsupported, "{id} is a symbolic link: it has no mode");
            }
            permission::check_owner(id, inode, &call.credentials)?;
        }
        check_times(call, op, id, inode)?;
        if op.size.is_some() {
            self.check_size(call, op, id, inode)?;
        }

        // Ordering: everything is checked by now, so the request is carried out whole.
        if let Some(size) = op.size {
            self.counted(id, |machine| machine.cut(call, op, id, size));
        }
        let now = call.now;
        let inode = self.edit(id);
        set_owner(call, op, inode);
        set_mode(call, op, inode);
        set_times(now, op, inode);
        if op.kill_privileges {
            inode.kill_privileges();
        }
        inode.changed(now);
        call.changed(id);
        self.attr_reply(id)
    }
}

fn sets_something(op: &meta_op::SetAttr) -> bool {
    op.mode.is_some()
        || op.uid.is_some()
        || op.gid.is_some()
        || op.size.is_some()
        || sets_atime(op)
        || sets_mtime(op)
        || op.kill_privileges
}

fn sets_atime(op: &meta_op::SetAttr) -> bool {
    op.atime_ns.is_some() || op.atime_now
}

fn sets_mtime(op: &meta_op::SetAttr) -> bool {
    op.mtime_ns.is_some() || op.mtime_now
}

/// Only the superuser changes an owner. An owner may choose one of its own groups.
fn check_owner_change(call: &Call<'_>, op: &meta_op::SetAttr, id: InodeId, inode: &Inode) -> Result<()> {
    let credentials = &call.credentials;
    let is_owner = credentials.uid == inode.uid;
    let uid_fits = op.uid.is_none_or(|uid| is_owner && uid == inode.uid);
    let gid_fits = op.gid.is_none_or(|gid| is_owner && (gid == inode.gid || credentials.in_group(gid)));
    let allowed = credentials.is_root() || (uid_fits && gid_fits);
    if !allowed {
        bail!(NotPermitted, "uid {} may not change owner or group of {id} so", credentials.uid);
    }
    if op.uid == Some(u32::MAX) || op.gid == Some(u32::MAX) {
        bail!(Invalid, "{} is no user or group", u32::MAX);
    }
    Ok(())
}

/// Only the owner sets chosen times. A caller with write permission may set the present time: both times at once, as
/// `touch` does, or with a size. While a file is held, its modification time is the holder's.
fn check_times(call: &Call<'_>, op: &meta_op::SetAttr, id: InodeId, inode: &Inode) -> Result<()> {
    if op.atime_ns.is_some() || op.mtime_ns.is_some() {
        permission::check_owner(id, inode, &call.credentials)?;
    } else if (op.atime_now || op.mtime_now)
        && !op.by_handle
        && op.size.is_none()
        && !permission::owns(inode, &call.credentials)
    {
        if op.atime_now != op.mtime_now {
            permission::check_owner(id, inode, &call.credentials)?;
        }
        permission::check(id, inode, &call.credentials, WRITE)?;
    }
    if sets_mtime(op) {
        if inode.recovering() {
            bail!(Busy, "{id} is being recovered: its modification time is not known yet");
        }
        if let Some(holder) = inode.holder()
            && holder != call.session
        {
            bail!(LeaseHeld, "{id} is being written by {holder}, which sets its modification time");
        }
    }
    Ok(())
}

/// A change of owner clears suid and sgid, even if the superuser makes it (Linux `chown_common`). Directories keep
/// them.
fn set_owner(call: &Call<'_>, op: &meta_op::SetAttr, inode: &mut Inode) {
    if op.uid.is_none() && op.gid.is_none() {
        return;
    }
    if !inode.is_directory() {
        inode.kill_privileges();
        if !call.credentials.is_root() && !call.credentials.in_group(inode.gid) {
            inode.mode &= !S_ISGID;
        }
    }
    inode.uid = op.uid.unwrap_or(inode.uid);
    inode.gid = op.gid.unwrap_or(inode.gid);
}

/// A caller outside the file's group cannot set its set-group-id bit. An access ACL follows the mode.
fn set_mode(call: &Call<'_>, op: &meta_op::SetAttr, inode: &mut Inode) {
    let Some(mode) = op.mode else { return };
    inode.mode = mode & MODE_MASK;
    if !call.credentials.is_root() && !call.credentials.in_group(inode.gid) {
        inode.mode &= !S_ISGID;
    }
    if inode.xattrs.as_ref().is_some_and(|xattrs| xattrs.access.is_some())
        && let Some(xattrs) = &mut inode.xattrs
        && let Some(acl) = &mut Arc::make_mut(xattrs).access
    {
        acl.chmod(inode.mode);
        assert!(acl.to_mode().bits == inode.mode & 0o777, "the access ACL does not follow the mode {:o}", inode.mode);
    }
}

fn set_times(now: i64, op: &meta_op::SetAttr, inode: &mut Inode) {
    if sets_atime(op) {
        inode.atime = op.atime_ns.filter(|_| !op.atime_now).unwrap_or(now);
    }
    if sets_mtime(op) {
        inode.mtime = op.mtime_ns.filter(|_| !op.mtime_now).unwrap_or(now);
    }
}
