//! Extended attributes and ACLs: `setxattr(2)`, `removexattr(2)`, and the right to read them.

use std::sync::Arc;

use bytes::Bytes;
use ebb_types::{Credentials, InodeId, Result, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use crate::acl::{Acl, ModeBits};
use crate::dir::show;
use crate::inode::{Body, Inode, S_ISGID, S_ISVTX};
use crate::machine::{Call, Machine};
use crate::permission::{self, WRITE};
use crate::xattr::{ACL_ACCESS, ACL_DEFAULT, NAME_LEN_MAX, VALUE_LEN_MAX, Xattrs};

/// Namespace of an attribute's name (`xattr(7)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    /// `user.`: like the contents of files and directories, under their permissions.
    User,
    /// `trusted.`: for the superuser only, and hidden from others.
    Trusted,
    /// `security.`: the superuser sets it, all users read it.
    Security,
    /// The access ACL.
    Access,
    /// The default ACL.
    Default,
}

impl Space {
    /// The namespace of a name. Refuses a name that is malformed, or in no namespace.
    pub(crate) fn of(name: &[u8]) -> Result<Self> {
        if name.is_empty() || name.len() > NAME_LEN_MAX {
            bail!(Range, "an attribute's name has 1 to {NAME_LEN_MAX} bytes, not {}", name.len());
        }
        if name.contains(&0) {
            bail!(Invalid, "an attribute's name must not contain NUL");
        }
        for (prefix, space) in
            [(&b"user."[..], Self::User), (b"trusted.", Self::Trusted), (b"security.", Self::Security)]
        {
            if let Some(rest) = name.strip_prefix(prefix) {
                if rest.is_empty() {
                    bail!(Invalid, "{} is no more than a prefix", show(name));
                }
                return Ok(space);
            }
        }
        match name {
            ACL_ACCESS => Ok(Self::Access),
            ACL_DEFAULT => Ok(Self::Default),
            _ => bail!(Unsupported, "no attributes are called {} here", show(name)),
        }
    }
}

impl Machine {
    /// Sets an attribute. The flags `create` and `replace` are ignored for an ACL, as on Linux.
    pub(crate) fn set_xattr(&mut self, call: &mut Call<'_>, op: &meta_op::SetXattr) -> Result<pb::MetaReply> {
        let id = InodeId::new(op.inode);
        let space = Space::of(&op.name)?;
        if op.value.len() > VALUE_LEN_MAX {
            bail!(TooBig, "a value of {} bytes is longer than {VALUE_LEN_MAX}", op.value.len());
        }
        let inode = self.inode(id)?;
        match space {
            Space::Access | Space::Default => {
                let acl = Acl::parse(&op.value)?;
                self.set_acl(call, id, space, acl)?;
            }
            _ => {
                check_writable(&call.credentials, id, inode, &op.name, space)?;
                let old = inode.xattrs.as_ref().and_then(|xattrs| xattrs.get(&op.name));
                match old {
                    Some(_) if op.create => bail!(Exists, "{id} has an attribute {}", show(&op.name)),
                    None if op.replace => bail!(NoAttribute, "{id} has no attribute {}", show(&op.name)),
                    _ => {}
                }
                inode.xattrs.as_deref().unwrap_or(&Xattrs::default()).check_room(&op.name, op.value.len())?;
                // The request's buffer holds the whole message: keep only the value of it.
                let value = Bytes::copy_from_slice(&op.value);
                self.edit_xattrs(call, id, |xattrs| xattrs.insert(&op.name, value));
            }
        }
        self.attr_reply(id)
    }

    /// Removes an attribute. Removing a missing ACL is no error, as on Linux.
    pub(crate) fn remove_xattr(&mut self, call: &mut Call<'_>, op: &meta_op::RemoveXattr) -> Result<pb::MetaReply> {
        let id = InodeId::new(op.inode);
        let space = Space::of(&op.name)?;
        let inode = self.inode(id)?;
        match space {
            Space::Access | Space::Default => self.set_acl(call, id, space, None)?,
            _ => {
                check_writable(&call.credentials, id, inode, &op.name, space)?;
                if inode.xattrs.as_ref().is_none_or(|xattrs| xattrs.get(&op.name).is_none()) {
                    bail!(NoAttribute, "{id} has no attribute {}", show(&op.name));
                }
                self.edit_xattrs(call, id, |xattrs| {
                    xattrs.remove(&op.name);
                });
            }
        }
        self.attr_reply(id)
    }

    /// Sets or removes an ACL (Linux `set_posix_acl`, `posix_acl_update_mode`). The mode follows an access ACL. An
    /// access ACL that the mode bits say all of is not kept.
    fn set_acl(&mut self, call: &mut Call<'_>, id: InodeId, space: Space, acl: Option<Acl>) -> Result<()> {
        let inode = self.inode(id)?;
        if matches!(inode.body, Body::Symlink(_)) {
            bail!(Unsupported, "{id} is a symbolic link: it has no ACL");
        }
        if space == Space::Default && !inode.is_directory() {
            if acl.is_some() {
                bail!(AccessDenied, "{id} is not a directory: it has no default ACL");
            }
            return Ok(());
        }
        permission::check_owner(id, inode, &call.credentials)?;
        if space == Space::Default {
            self.edit_xattrs(call, id, |xattrs| xattrs.default = acl);
            return Ok(());
        }
        let may_keep_sgid = call.credentials.is_root() || call.credentials.in_group(inode.gid);
        let from_acl = acl.as_ref().map(Acl::to_mode);
        let kept = acl.filter(|acl| !acl.to_mode().say_all);
        self.edit_xattrs(call, id, |xattrs| xattrs.access = kept);
        if let Some(ModeBits { bits, .. }) = from_acl {
            let inode = self.edit(id);
            inode.mode = inode.mode & !0o777 | bits;
            if !may_keep_sgid {
                inode.mode &= !S_ISGID;
            }
        }
        Ok(())
    }

    fn edit_xattrs(&mut self, call: &mut Call<'_>, id: InodeId, change: impl FnOnce(&mut Xattrs)) {
        let inode = self.edit(id);
        let xattrs = inode.xattrs.get_or_insert_default();
        change(Arc::make_mut(xattrs));
        if xattrs.is_empty() {
            inode.xattrs = None;
        }
        inode.changed(call.now);
        call.changed(id);
    }
}

/// Refuses unless the caller may set or remove this attribute, which is not an ACL (Linux `xattr_permission`,
/// `cap_inode_setxattr`).
fn check_writable(credentials: &Credentials, id: InodeId, inode: &Inode, name: &[u8], space: Space) -> Result<()> {
    match space {
        Space::Trusted | Space::Security if !credentials.is_root() => {
            bail!(NotPermitted, "only the superuser sets {}", show(name))
        }
        Space::User => {
            if !matches!(inode.body, Body::File(_) | Body::Directory(_)) {
                bail!(NotPermitted, "{id} is neither file nor directory: it has no user attributes");
            }
            if inode.is_directory() && inode.mode & S_ISVTX != 0 {
                permission::check_owner(id, inode, credentials)?;
            }
            permission::check(id, inode, credentials, WRITE)
        }
        _ => Ok(()),
    }
}

/// Value of an attribute. Hidden attributes do not exist for the caller.
pub(crate) fn read(credentials: &Credentials, id: InodeId, inode: &Inode, name: &[u8]) -> Result<Bytes> {
    let xattrs = inode.xattrs.as_deref();
    let value = match Space::of(name)? {
        Space::Trusted if !credentials.is_root() => None,
        Space::Access | Space::Default if matches!(inode.body, Body::Symlink(_)) => {
            bail!(Unsupported, "{id} is a symbolic link: it has no ACL")
        }
        Space::Access => xattrs.and_then(|xattrs| xattrs.access.as_ref()).map(|acl| Bytes::from(acl.encode())),
        Space::Default => xattrs.and_then(|xattrs| xattrs.default.as_ref()).map(|acl| Bytes::from(acl.encode())),
        _ => xattrs.and_then(|xattrs| xattrs.get(name)).cloned(),
    };
    match value {
        Some(value) => Ok(value),
        None => bail!(NoAttribute, "{id} has no attribute {}", show(name)),
    }
}

/// Names of the attributes that are not hidden from the caller.
pub(crate) fn list(credentials: &Credentials, inode: &Inode) -> Vec<Vec<u8>> {
    let mut names = inode.xattrs.as_ref().map(|xattrs| xattrs.names()).unwrap_or_default();
    names.retain(|name| credentials.is_root() || !name.starts_with(b"trusted."));
    names
}
