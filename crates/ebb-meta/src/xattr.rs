//! The extended attributes of one inode, with its ACLs in parsed form.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ebb_types::{Result, bail};

use crate::acl::Acl;

/// Name of the access ACL as an attribute.
pub(crate) const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the default ACL as an attribute.
pub(crate) const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// Longest name in bytes (Linux `XATTR_NAME_MAX`).
pub(crate) const NAME_LEN_MAX: usize = 255;
/// Longest value in bytes (Linux `XATTR_SIZE_MAX`).
pub(crate) const VALUE_LEN_MAX: usize = 64 << 10;
/// Most bytes of all names together, with a NUL each (Linux `XATTR_LIST_MAX`).
const LIST_LEN_MAX: usize = 64 << 10;
/// Most bytes of all names and values of an inode.
const TOTAL_LEN_MAX: usize = 128 << 10;

/// The attributes of one inode.
#[derive(Clone, Default, Debug)]
pub(crate) struct Xattrs {
    named: BTreeMap<Arc<[u8]>, Bytes>,
    /// The access ACL. None if the mode bits say all of it.
    pub(crate) access: Option<Acl>,
    /// The default ACL, which new entries of this directory inherit.
    pub(crate) default: Option<Acl>,
}

impl Xattrs {
    /// Value of an attribute that is not an ACL.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Bytes> {
        self.named.get(name)
    }

    /// Sets an attribute that is not an ACL. The caller has checked the room ([`Self::check_room`]).
    pub(crate) fn insert(&mut self, name: &[u8], value: Bytes) {
        self.named.insert(name.into(), value);
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        self.named.remove(name).is_some()
    }

    /// Refuses a value for which the inode has no room.
    pub(crate) fn check_room(&self, name: &[u8], value_len: usize) -> Result<()> {
        let others = || self.named.iter().filter(|(other, _)| other.as_ref() != name);
        let list: usize = others().map(|(name, _)| name.len() + 1).sum::<usize>() + name.len() + 1;
        let total: usize = others().map(|(_, value)| value.len()).sum::<usize>() + value_len + list;
        if list > LIST_LEN_MAX || total > TOTAL_LEN_MAX {
            bail!(NoSpace, "no room for {value_len} more bytes of extended attributes: {total} bytes in all");
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.access.is_none() && self.default.is_none()
    }

    /// Every attribute with its value, with the ACLs, in order of name.
    pub(crate) fn all(&self) -> Vec<(Vec<u8>, Bytes)> {
        let acls = [(ACL_ACCESS, &self.access), (ACL_DEFAULT, &self.default)];
        let acls =
            acls.into_iter().filter_map(|(name, acl)| Some((name.to_vec(), Bytes::from(acl.as_ref()?.encode()))));
        let named = self.named.iter().map(|(name, value)| (name.to_vec(), value.clone()));
        let mut all: Vec<_> = named.chain(acls).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Names of all attributes, with the ACLs, in order.
    pub(crate) fn names(&self) -> Vec<Vec<u8>> {
        self.all().into_iter().map(|(name, _)| name).collect()
    }
}
