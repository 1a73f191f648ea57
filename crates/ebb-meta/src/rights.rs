//! What one user may ask for, if nobody has checked it before.
//!
//! On a mount the kernel checks paths and modes, and speaks for all users of its host. A program speaks for one user, and is
//! believed nothing: it may have read the number of an inode anywhere. So each of its questions about an inode is checked here,
//! as far as that goes without the path that led there. [`meta_op::Resolve`] checks whole paths.

use ebb_types::{Credentials, InodeId, Result};
use ebb_wire::pb::meta_op;
use ebb_wire::pb::meta_op::Op;

use crate::machine::Machine;
use crate::permission::{self, EXECUTE, READ, WRITE};

impl Machine {
    /// Refuses with `AccessDenied` what the user may not ask for. `is_open`: files that the caller has open, which it may go
    /// on using whatever their modes become. Mutations check the user when they are applied, but for those that a mount
    /// makes for an open file.
    ///
    /// # Errors
    /// `AccessDenied`; `NotFound` for an unknown inode.
    pub fn check_request(&self, credentials: &Credentials, op: &Op, is_open: impl Fn(InodeId) -> bool) -> Result<()> {
        match op {
            Op::Lookup(op) => self.check_access(InodeId::new(op.parent), credentials, EXECUTE),
            Op::ReadDir(op) => {
                let access = if op.plus { READ | EXECUTE } else { READ };
                self.check_access(InodeId::new(op.inode), credentials, access)
            }
            Op::GetMap(meta_op::GetMap { inode, .. }) => self.check_contents(credentials, *inode, READ, is_open),
            Op::GetAttr(meta_op::GetAttr { inode, .. })
            | Op::ReadLink(meta_op::ReadLink { inode, .. })
            | Op::GetXattr(meta_op::GetXattr { inode, .. })
            | Op::ListXattr(meta_op::ListXattr { inode, .. })
            | Op::TestLock(meta_op::TestLock { inode, .. }) => self.check_sees(credentials, *inode, is_open),
            Op::SetLock(meta_op::SetLock { inode, .. }) => self.check_contents(credentials, *inode, READ, is_open),
            Op::SetAttr(op) if op.by_handle || op.kill_privileges => {
                if is_open(InodeId::new(op.inode)) {
                    return Ok(());
                }
                self.check_access(InodeId::new(op.inode), credentials, WRITE)
            }
            _ => Ok(()),
        }
    }

    /// Refuses with `AccessDenied` contents that are not the user's to read or write, and that it has not open.
    ///
    /// # Errors
    /// As [`Self::check_request`].
    pub fn check_contents(
        &self,
        credentials: &Credentials,
        inode: u64,
        access: u32,
        is_open: impl Fn(InodeId) -> bool,
    ) -> Result<()> {
        let id = InodeId::new(inode);
        let found = self.inode_at(id)?;
        // An owner may give itself any right, and a program may have made a file that it is to write with mode 0400.
        if permission::owns(&found, credentials) || access == READ && is_open(id) {
            return Ok(());
        }
        permission::check(id, &found, credentials, access)
    }

    /// Attributes of a file that the user can do nothing with are seen by those that come by its name.
    fn check_sees(&self, credentials: &Credentials, inode: u64, is_open: impl Fn(InodeId) -> bool) -> Result<()> {
        let id = InodeId::new(inode);
        let found = self.inode_at(id)?;
        let any = [READ, WRITE, EXECUTE].into_iter().any(|want| permission::allows(&found, credentials, want));
        if any || permission::owns(&found, credentials) || is_open(id) {
            return Ok(());
        }
        permission::check(id, &found, credentials, READ)
    }
}
