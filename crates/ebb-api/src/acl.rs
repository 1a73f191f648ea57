//! Access control lists as `acl(5)` has them: entries, their text (`user:alice:rw-`) and the attribute's bytes.

use std::collections::BTreeMap;
use std::fmt;

use ebb_types::{Result, bail, err};

use crate::users;

/// The attribute with the list that grants access.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory with the list that new entries get.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// `struct posix_acl_xattr_header`: the version, then entries of tag, permissions and id, all little-endian.
const VERSION: u32 = 2;
/// The id of an entry that names no user and no group.
const NO_ID: u32 = u32::MAX;

/// The users that an entry is for, in the order of a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// The owner.
    Owner,
    /// A user by its number.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// A group by its number.
    Group(u32),
    /// The most that anybody but the owner and others gets.
    Mask,
    /// Everybody else.
    Other,
}

/// The two lists of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The one that grants access.
    Access,
    /// The one that new entries get.
    Default,
}

/// The lists of a file or directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclLists {
    /// The list that grants access.
    pub access: AclList,
    /// The list that new entries of a directory get.
    pub default: Option<AclList>,
}

impl Subject {
    const fn tag(self) -> (u16, u32) {
        match self {
            Self::Owner => (0x01, NO_ID),
            Self::User(id) => (0x02, id),
            Self::OwningGroup => (0x04, NO_ID),
            Self::Group(id) => (0x08, id),
            Self::Mask => (0x10, NO_ID),
            Self::Other => (0x20, NO_ID),
        }
    }

    const fn of_tag(tag: u16, id: u32) -> Option<Self> {
        Some(match tag {
            0x01 => Self::Owner,
            0x02 => Self::User(id),
            0x04 => Self::OwningGroup,
            0x08 => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => f.write_str("user:"),
            Self::User(id) => write!(f, "user:{}", users::user_name(*id)),
            Self::OwningGroup => f.write_str("group:"),
            Self::Group(id) => write!(f, "group:{}", users::group_name(*id)),
            Self::Mask => f.write_str("mask:"),
            Self::Other => f.write_str("other:"),
        }
    }
}

/// Permissions of each subject: read 4, write 2, execute 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclList(pub BTreeMap<Subject, u8>);

impl AclList {
    /// The list that says the same as permission bits.
    pub fn of_mode(mode: u32) -> Self {
        let bits = |shift: u32| (mode >> shift & 7) as u8;
        Self([(Subject::Owner, bits(6)), (Subject::OwningGroup, bits(3)), (Subject::Other, bits(0))].into())
    }

    /// The list in an attribute's value.
    ///
    /// # Errors
    /// `Invalid` for bytes that are none.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let (version, rest) = value.split_first_chunk::<4>().map_or((0, &[][..]), |(v, r)| (u32::from_le_bytes(*v), r));
        let (entries, rest) = rest.as_chunks::<8>();
        if version != VERSION || !rest.is_empty() {
            bail!(Invalid, "the access control list is of an unknown form");
        }
        let mut list = BTreeMap::new();
        for [t0, t1, p0, _, i0, i1, i2, i3] in entries {
            let tag = u16::from_le_bytes([*t0, *t1]);
            let Some(subject) = Subject::of_tag(tag, u32::from_le_bytes([*i0, *i1, *i2, *i3])) else {
                bail!(Invalid, "an access control list with an entry of unknown kind {tag:#x}");
            };
            list.insert(subject, p0 & 7);
        }
        Ok(Self(list))
    }

    /// The attribute's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (subject, permissions) in &self.0 {
            let (tag, id) = subject.tag();
            value.extend(tag.to_le_bytes());
            value.extend(u16::from(*permissions).to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// One line for each entry. A comment says what is left of permissions that the mask takes away.
    pub fn lines(&self) -> Vec<String> {
        let mask = self.0.get(&Subject::Mask).copied().unwrap_or(7);
        let line = |(subject, permissions): (&Subject, &u8)| {
            let is_masked = matches!(subject, Subject::User(_) | Subject::OwningGroup | Subject::Group(_));
            match permissions & mask {
                left if is_masked && left != *permissions => {
                    format!("{subject}:{}\t#effective:{}", letters(*permissions), letters(left))
                }
                _ => format!("{subject}:{}", letters(*permissions)),
            }
        };
        self.0.iter().map(line).collect()
    }

    /// One line for each entry, without comments.
    fn entries(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(subject, permissions)| format!("{subject}:{}", letters(*permissions)))
    }

    /// Checks that the entries are there which every list has, and adds the mask that goes with named ones.
    fn complete(&mut self) -> Result<()> {
        for subject in [Subject::Owner, Subject::OwningGroup, Subject::Other] {
            if !self.0.contains_key(&subject) {
                bail!(Invalid, "an access control list needs an entry for {subject}");
            }
        }
        if self.names_somebody() && !self.0.contains_key(&Subject::Mask) {
            self.renew_mask();
        }
        Ok(())
    }

    /// Whether somebody is named, so that there must be a mask.
    pub fn names_somebody(&self) -> bool {
        self.0.keys().any(|subject| matches!(subject, Subject::User(_) | Subject::Group(_)))
    }

    /// Sets the mask to all permissions that it may limit, or drops it where nothing needs it.
    pub fn renew_mask(&mut self) {
        self.0.remove(&Subject::Mask);
        if self.names_somebody() {
            let limited = |subject: &Subject| !matches!(subject, Subject::Owner | Subject::Other);
            let union = self.0.iter().filter(|(subject, _)| limited(subject)).fold(0, |union, (_, one)| union | one);
            self.0.insert(Subject::Mask, union);
        }
    }
}

impl AclLists {
    /// The lists in a text with an entry a line, as [`AclLists::text`] writes it. Without a mask, a list gets the one that
    /// limits nothing.
    ///
    /// # Errors
    /// `Invalid` names the line that is none, the subject that comes twice, or the entry that every list has and this one not.
    pub fn parse(text: &str) -> Result<Self> {
        let (mut access, mut default) = (AclList(BTreeMap::new()), AclList(BTreeMap::new()));
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (which, subject, rest) = parse_subject(line).map_err(|why| err!(Invalid, "{why}"))?;
            let permissions = rest.and_then(bits);
            let permissions = permissions.ok_or_else(|| err!(Invalid, "{line:?} has no permissions such as r-x"))?;
            let list = if which == Which::Access { &mut access } else { &mut default };
            if list.0.insert(subject, permissions).is_some() {
                bail!(Invalid, "there are two entries for {subject}");
            }
        }
        access.complete()?;
        if !default.0.is_empty() {
            default.complete()?;
        }
        Ok(Self { access, default: Some(default).filter(|list| !list.0.is_empty()) })
    }

    /// One line for each entry, those of the default list with `default:` in front.
    #[must_use]
    pub fn text(&self) -> String {
        let default = self.default.iter().flat_map(AclList::entries).map(|line| format!("default:{line}"));
        let lines: Vec<String> = self.access.entries().chain(default).collect();
        lines.join("\n")
    }
}

/// The list and the subject of an entry such as `default:user:alice:rw-`, and the text behind the subject.
///
/// # Errors
/// A sentence for a person if the text is no entry, or nobody is called so.
pub fn parse_subject(text: &str) -> std::result::Result<(Which, Subject, Option<&str>), String> {
    let after_default = ["default:", "d:"].iter().find_map(|prefix| text.strip_prefix(prefix));
    let which = if after_default.is_some() { Which::Default } else { Which::Access };
    let mut parts = after_default.unwrap_or(text).splitn(3, ':');
    let kind = parts.next().unwrap_or_default();
    let name = parts.next().unwrap_or_default();
    let rest = parts.next();
    let subject = match (kind, name) {
        ("user" | "u", "") => Subject::Owner,
        ("user" | "u", name) => Subject::User(users::uid_of(name)?),
        ("group" | "g", "") => Subject::OwningGroup,
        ("group" | "g", name) => Subject::Group(users::gid_of(name)?),
        // setfacl takes one colon here too: `mask:rx`, `other:r`.
        ("mask" | "m", name) if rest.is_none() => return Ok((which, Subject::Mask, Some(name))),
        ("other" | "o", name) if rest.is_none() => return Ok((which, Subject::Other, Some(name))),
        ("mask" | "m", "") => Subject::Mask,
        ("other" | "o", "") => Subject::Other,
        _ => return Err(format!("{text:?} is no entry: write it as user:NAME:rw, group:NAME:r, mask::rx or other::r")),
    };
    Ok((which, subject, rest))
}

/// Bits of `rw-`.
fn bits(text: &str) -> Option<u8> {
    text.chars().try_fold(0, |bits, letter| match letter {
        'r' => Some(bits | 4),
        'w' => Some(bits | 2),
        'x' => Some(bits | 1),
        '-' => Some(bits),
        _ => None,
    })
}

fn letters(permissions: u8) -> String {
    [(4, 'r'), (2, 'w'), (1, 'x')]
        .iter()
        .map(|(bit, letter)| if permissions & bit != 0 { *letter } else { '-' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_from_its_bytes_and_written_as_getfacl_does() {
        let mut list = AclList::of_mode(0o640);
        list.0.insert(Subject::User(0), 7);
        list.0.insert(Subject::Mask, 4);
        let lines = ["user::rw-", "user:root:rwx\t#effective:r--", "group::r--", "mask::r--", "other::---"];
        assert_eq!(list.lines(), lines);
        assert_eq!(AclList::decode(&list.encode()).unwrap(), list);
        let value = list.encode();
        assert!(AclList::decode(&value[..9]).is_err() && AclList::decode(&[]).is_err());
    }

    #[test]
    fn the_mask_is_the_union_of_all_that_it_may_limit() {
        let mut list = AclList::of_mode(0o740);
        list.renew_mask();
        assert_eq!(list.0.get(&Subject::Mask), None);
        list.0.insert(Subject::Group(0), 2);
        list.renew_mask();
        assert_eq!(list.0.get(&Subject::Mask), Some(&6));
    }

    #[test]
    fn lists_are_read_from_their_text() {
        let text = "user::rwx\nuser:70007:r-x\ngroup::r--\nmask::r-x\nother::---\ndefault:user::rwx\ndefault:group::---\ndefault:other::---";
        let lists = AclLists::parse(text).unwrap();
        assert_eq!(lists.text(), text);
        assert_eq!(AclLists::parse("user::rw-\ngroup::r--\nother::---").unwrap().default, None);
        let masked = AclLists::parse("user::rw-\nuser:70007:rw-\ngroup::r--\nother::---").unwrap();
        assert_eq!(masked.access.0.get(&Subject::Mask), Some(&6));
        for wrong in ["user::rw-", "user::rw-\ngroup::r--\nother::q", "user::r\nuser::w\ngroup::r\nother::r", "moon::r"]
        {
            assert_eq!(AclLists::parse(wrong).unwrap_err().kind(), ebb_types::ErrorKind::Invalid, "{wrong}");
        }
    }
}
