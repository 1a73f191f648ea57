//! Permissions: mode bits, ACLs, ownership and the sticky bit, as in `fs/namei.c` and `fs/attr.c` of Linux.

use ebb_types::{Credentials, InodeId, Result, bail};

use crate::inode::{Inode, S_ISVTX};

/// Search a directory, execute a file.
pub const EXECUTE: u32 = 1;
/// Change contents or entries.
pub const WRITE: u32 = 2;
/// Read contents or entries.
pub const READ: u32 = 4;

/// Whether `credentials` have all of `want` (a sum of [`READ`], [`WRITE`], [`EXECUTE`]) on the inode.
pub(crate) fn allows(inode: &Inode, credentials: &Credentials, want: u32) -> bool {
    // The superuser searches every directory. It executes a file only if some user may execute it.
    if credentials.is_root() {
        return inode.is_directory() || want & EXECUTE == 0 || inode.mode & 0o111 != 0;
    }
    let perm = if inode.uid == credentials.uid {
        inode.mode >> 6
    } else {
        // As in Linux, the ACL is not consulted if the group class has no bits: it could grant nothing.
        if inode.mode & 0o070 != 0
            && let Some(acl) = inode.xattrs.as_ref().and_then(|xattrs| xattrs.access.as_ref())
        {
            return acl.permits(credentials, inode.uid, inode.gid, want);
        }
        if credentials.in_group(inode.gid) { inode.mode >> 3 } else { inode.mode }
    };
    perm & want == want
}

/// Refuses with `AccessDenied` unless [`allows`].
pub(crate) fn check(id: InodeId, inode: &Inode, credentials: &Credentials, want: u32) -> Result<()> {
    if allows(inode, credentials, want) {
        return Ok(());
    }
    let verb = match want {
        READ => "read",
        WRITE => "write",
        EXECUTE => "search or execute",
        _ if want == READ | EXECUTE => "list",
        _ if want == READ | WRITE => "read and write",
        _ if want & READ != 0 => "read, write and execute",
        _ => "change entries of",
    };
    bail!(AccessDenied, "uid {} may not {verb} {id} (mode {:04o}, uid {})", credentials.uid, inode.mode, inode.uid)
}

/// Whether the caller may administer the inode: as its owner or the superuser.
pub(crate) fn owns(inode: &Inode, credentials: &Credentials) -> bool {
    credentials.is_root() || inode.uid == credentials.uid
}

/// Refuses with `NotPermitted` unless [`owns`].
pub(crate) fn check_owner(id: InodeId, inode: &Inode, credentials: &Credentials) -> Result<()> {
    if owns(inode, credentials) {
        return Ok(());
    }
    bail!(NotPermitted, "uid {} is not the owner of {id} (uid {})", credentials.uid, inode.uid)
}

/// Refuses to remove the name of `victim` from a sticky directory, unless the caller owns one of them.
pub(crate) fn check_sticky(id: InodeId, directory: &Inode, victim: &Inode, credentials: &Credentials) -> Result<()> {
    if directory.mode & S_ISVTX == 0 || owns(victim, credentials) || directory.uid == credentials.uid {
        return Ok(());
    }
    bail!(NotPermitted, "{id} is sticky: uid {} owns neither it nor the entry", credentials.uid)
}
