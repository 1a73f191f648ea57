//! POSIX access control lists: the withdrawn POSIX 1003.1e draft 17 as Linux does it (`acl(5)`, `fs/posix_acl.c`).
//!
//! An ACL has the bytes of `struct posix_acl_xattr_header` (version 2, little-endian) followed by entries of
//! `{ tag: u16, perm: u16, id: u32 }`, as `getxattr("system.posix_acl_access")` shows them.

use ebb_types::{Credentials, Result, bail};

const VERSION: u32 = 2;
const HEADER_LEN: usize = 4;
const ENTRY_LEN: usize = 8;
/// The id of an entry that has none, in the attribute.
const ID_NONE: u32 = u32::MAX;

/// Users that an entry applies to, in the order of a valid ACL.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Tag {
    UserObj,
    User(u32),
    GroupObj,
    Group(u32),
    Mask,
    Other,
}

impl Tag {
    fn parse(tag: u16, id: u32) -> Option<Self> {
        Some(match tag {
            0x01 => Self::UserObj,
            0x02 => Self::User(id),
            0x04 => Self::GroupObj,
            0x08 => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }

    fn raw(self) -> (u16, u32) {
        match self {
            Self::UserObj => (0x01, ID_NONE),
            Self::User(id) => (0x02, id),
            Self::GroupObj => (0x04, ID_NONE),
            Self::Group(id) => (0x08, id),
            Self::Mask => (0x10, ID_NONE),
            Self::Other => (0x20, ID_NONE),
        }
    }
}

/// Permissions of one entry: the sum of read 4, write 2 and execute 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AclEntry {
    pub(crate) tag: Tag,
    pub(crate) perm: u32,
}

/// Permission bits of a mode that shows an ACL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ModeBits {
    /// Of 0o777.
    pub(crate) bits: u32,
    /// The bits say all that the ACL does: it names no users or groups, and has no mask.
    pub(crate) say_all: bool,
}

/// A valid ACL.
///
/// Invariant: it has one owner entry, one owning group entry and one other entry. It has a mask if a user or group is
/// named. The entries are in the order of the tags.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Parses an attribute's value. None stands for an empty list, which removes the ACL.
    pub(crate) fn parse(value: &[u8]) -> Result<Option<Self>> {
        if value.is_empty() {
            return Ok(None);
        }
        let Some((header, rest)) = value.split_first_chunk::<HEADER_LEN>() else {
            bail!(Invalid, "an ACL of {} bytes is shorter than its header", value.len());
        };
        let version = u32::from_le_bytes(*header);
        if version != VERSION {
            bail!(Unsupported, "ACL version {version} is not {VERSION}");
        }
        let (chunks, rest) = rest.as_chunks::<ENTRY_LEN>();
        if !rest.is_empty() {
            bail!(Invalid, "an ACL's length of {} bytes is not whole entries", value.len());
        }
        let mut entries = Vec::with_capacity(chunks.len());
        for [t0, t1, p0, p1, i0, i1, i2, i3] in chunks {
            let tag = u16::from_le_bytes([*t0, *t1]);
            let perm = u32::from(u16::from_le_bytes([*p0, *p1]));
            let id = u32::from_le_bytes([*i0, *i1, *i2, *i3]);
            let Some(tag) = Tag::parse(tag, id) else { bail!(Invalid, "ACL tag {tag:#x} is unknown") };
            entries.push(AclEntry { tag, perm });
        }
        if entries.is_empty() {
            return Ok(None);
        }
        Self::new(entries).map(Some)
    }

    /// Checks the rules of `posix_acl_valid`.
    fn new(entries: Vec<AclEntry>) -> Result<Self> {
        let rank = |tag: Tag| match tag {
            Tag::UserObj => 0,
            Tag::User(_) => 1,
            Tag::GroupObj => 2,
            Tag::Group(_) => 3,
            Tag::Mask => 4,
            Tag::Other => 5,
        };
        let count = |rank_wanted: u32| entries.iter().filter(|entry| rank(entry.tag) == rank_wanted).count();
        let named = count(1) + count(3) > 0;
        if entries.iter().any(|entry| entry.perm > 7) {
            bail!(Invalid, "an ACL entry has bits beyond rwx");
        }
        if !entries.is_sorted_by_key(|entry| rank(entry.tag)) {
            bail!(Invalid, "ACL entries are out of order: owner, users, group, groups, mask, other");
        }
        if count(0) != 1 || count(2) != 1 || count(5) != 1 {
            bail!(Invalid, "an ACL needs one entry each for owner, owning group and others");
        }
        if count(4) > 1 || (named && count(4) == 0) {
            bail!(Invalid, "an ACL that names users or groups needs one mask");
        }
        if entries.iter().any(|entry| matches!(entry.tag, Tag::User(ID_NONE) | Tag::Group(ID_NONE))) {
            bail!(Invalid, "an ACL entry names an invalid user or group");
        }
        Ok(Self { entries })
    }

    /// The attribute's value.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN + ENTRY_LEN * self.entries.len());
        out.extend(VERSION.to_le_bytes());
        for entry in &self.entries {
            let (tag, id) = entry.tag.raw();
            out.extend(tag.to_le_bytes());
            out.extend((entry.perm as u16).to_le_bytes());
            out.extend(id.to_le_bytes());
        }
        out
    }

    fn find(&self, tag: Tag) -> Option<u32> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm)
    }

    fn set(&mut self, tag: Tag, perm: u32) {
        for entry in &mut self.entries {
            if entry.tag == tag {
                entry.perm = perm & 7;
            }
        }
    }

    /// The entry that the group bits of the mode show: the mask, or the owning group without a mask.
    fn group_class(&self) -> Tag {
        if self.find(Tag::Mask).is_some() { Tag::Mask } else { Tag::GroupObj }
    }

    /// How the mode shows this ACL.
    pub(crate) fn to_mode(&self) -> ModeBits {
        let perm = |tag| self.find(tag).unwrap_or(0);
        let bits = perm(Tag::UserObj) << 6 | perm(self.group_class()) << 3 | perm(Tag::Other);
        let is_class = |entry: &AclEntry| matches!(entry.tag, Tag::UserObj | Tag::GroupObj | Tag::Other);
        ModeBits { bits, say_all: self.entries.iter().all(is_class) }
    }

    /// Changes the access ACL as `chmod` on its file does: the group bits go to the mask (`posix_acl_chmod`).
    pub(crate) fn chmod(&mut self, mode: u32) {
        self.set(Tag::UserObj, mode >> 6);
        self.set(self.group_class(), mode >> 3);
        self.set(Tag::Other, mode);
    }

    /// The access ACL and permission bits of a new inode, in a directory with this default ACL. `mode` is the requested
    /// mode, without regard to the umask (`posix_acl_create_masq`). None if the bits say all of it.
    pub(crate) fn inherit(&self, mode: u32) -> (Option<Self>, u32) {
        let mut acl = self.clone();
        let group_class = acl.group_class();
        for (tag, shift) in [(Tag::UserObj, 6), (group_class, 3), (Tag::Other, 0)] {
            let perm = acl.find(tag).unwrap_or(0);
            acl.set(tag, perm & (mode >> shift));
        }
        let ModeBits { bits, say_all } = acl.to_mode();
        ((!say_all).then_some(acl), bits)
    }

    /// Whether these credentials get all of `want` (rwx bits) on an inode of this owner and group
    /// (`posix_acl_permission`). The caller handles the superuser.
    pub(crate) fn permits(&self, credentials: &Credentials, uid: u32, gid: u32, want: u32) -> bool {
        let mask = self.find(Tag::Mask).unwrap_or(7);
        let mut in_a_group = false;
        for entry in &self.entries {
            match entry.tag {
                Tag::UserObj if credentials.uid == uid => return entry.perm & want == want,
                Tag::User(id) if credentials.uid == id => return entry.perm & mask & want == want,
                Tag::GroupObj if credentials.in_group(gid) => {
                    in_a_group = true;
                    if entry.perm & want == want {
                        return entry.perm & mask & want == want;
                    }
                }
                Tag::Group(id) if credentials.in_group(id) => {
                    in_a_group = true;
                    if entry.perm & want == want {
                        return entry.perm & mask & want == want;
                    }
                }
                Tag::Other => return !in_a_group && entry.perm & want == want,
                _ => {}
            }
        }
        false
    }
}

#[cfg(test)]
#[path = "acl/tests.rs"]
mod tests;
