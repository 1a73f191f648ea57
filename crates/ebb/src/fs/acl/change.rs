//! A change of access control lists, as setfacl(1) has it on its command line.

use std::str::FromStr;

use clap::Args;
use ebb_api::acl::{AclList, Subject, Which, parse_subject};
use ebb_types::{Result, bail};

/// The changes of one command. Entries are set before others are removed.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = true)]
pub struct AclChange {
    /// Set entries: `user:NAME:rwx`, `group:NAME:r-x`, `mask::rx`, `other::r`, with `default:` in front for entries that
    /// new files get; kinds have short forms such as `u`, `g` and `d`. `X` is x for directories alone.
    #[arg(short, long, value_name = "ENTRIES", value_delimiter = ',')]
    modify: Vec<Setting>,
    /// Remove entries: `user:NAME`, `group:NAME`, `default:user:NAME`.
    #[arg(short = 'x', long, value_name = "ENTRIES", value_delimiter = ',')]
    remove: Vec<Removal>,
    /// Remove everything but the permission bits.
    #[arg(short = 'b', long)]
    remove_all: bool,
    /// Remove the entries that new files get.
    #[arg(short = 'k', long)]
    remove_default: bool,
}

/// An entry to set.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Setting {
    which: Which,
    subject: Subject,
    permissions: Permissions,
}

/// An entry to remove.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Removal {
    which: Which,
    subject: Subject,
}

/// Permissions, some of them for directories alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Permissions {
    always: u8,
    if_directory: u8,
}

impl AclChange {
    /// The new list that grants access.
    ///
    /// # Errors
    /// `Invalid` if an entry that every list has is to be removed.
    pub(super) fn of_access(&self, old: &AclList, is_directory: bool) -> Result<AclList> {
        let mut list = old.clone();
        if self.remove_all {
            list.0.retain(|subject, _| matches!(subject, Subject::Owner | Subject::OwningGroup | Subject::Other));
        }
        self.apply(&mut list, Which::Access, is_directory)?;
        Ok(list)
    }

    /// The new list that new entries of a directory get; `access` is the directory's own.
    ///
    /// # Errors
    /// As [`Self::of_access`]; `Invalid` if something that is no directory is to get one.
    pub(super) fn of_default(
        &self,
        old: Option<&AclList>,
        access: &AclList,
        is_directory: bool,
    ) -> Result<Option<AclList>> {
        let kept = old.filter(|_| !self.remove_all && !self.remove_default);
        let is_set = self.modify.iter().any(|setting| setting.which == Which::Default);
        if is_set && !is_directory {
            bail!(Invalid, "only a directory has default entries");
        }
        if kept.is_none() && !is_set {
            return Ok(None);
        }
        // A new list begins with what the directory itself grants.
        let begin = || {
            let mut list = access.clone();
            list.0.retain(|subject, _| matches!(subject, Subject::Owner | Subject::OwningGroup | Subject::Other));
            list
        };
        let mut list = kept.cloned().unwrap_or_else(begin);
        self.apply(&mut list, Which::Default, is_directory)?;
        Ok(Some(list))
    }

    fn apply(&self, list: &mut AclList, which: Which, is_directory: bool) -> Result<()> {
        let before = list.clone();
        for setting in self.modify.iter().filter(|setting| setting.which == which) {
            let Permissions { always, if_directory } = setting.permissions;
            list.0.insert(setting.subject, if is_directory { always | if_directory } else { always });
        }
        for removal in self.remove.iter().filter(|removal| removal.which == which) {
            if matches!(removal.subject, Subject::Owner | Subject::OwningGroup | Subject::Other) {
                bail!(
                    Invalid,
                    "every list has entries for owner, owning group and others: they can be set, not removed"
                );
            }
            list.0.remove(&removal.subject);
        }
        let sets_mask = |setting: &Setting| setting.which == which && setting.subject == Subject::Mask;
        if *list != before && !self.modify.iter().any(sets_mask) {
            list.renew_mask();
        }
        Ok(())
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (which, subject, rest) = parse_subject(text)?;
        let permissions = rest.ok_or_else(|| format!("{text:?} has no permissions: write it as user:NAME:rw"))?;
        Ok(Self { which, subject, permissions: permissions.parse()? })
    }
}

impl FromStr for Removal {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (which, subject, rest) = parse_subject(text)?;
        if rest.is_some_and(|rest| !rest.is_empty()) {
            return Err(format!("{text:?} has permissions: to remove an entry, write it as user:NAME"));
        }
        Ok(Self { which, subject })
    }
}

impl FromStr for Permissions {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut permissions = Self { always: 0, if_directory: 0 };
        if let Ok(digit @ 0..=7) = text.parse::<u8>() {
            permissions.always = digit;
            return Ok(permissions);
        }
        for letter in text.chars() {
            match letter {
                'r' => permissions.always |= 4,
                'w' => permissions.always |= 2,
                'x' => permissions.always |= 1,
                'X' => permissions.if_directory |= 1,
                '-' => {}
                other => return Err(format!("{other:?} is no permission: use r, w, x and X")),
            }
        }
        Ok(permissions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(modify: &[&str], remove: &[&str]) -> AclChange {
        let modify = modify.iter().map(|text| text.parse().unwrap()).collect();
        let remove = remove.iter().map(|text| text.parse().unwrap()).collect();
        AclChange { modify, remove, remove_all: false, remove_default: false }
    }

    #[test]
    fn entries_are_set_and_removed_with_a_mask_for_them() {
        let mode = AclList::of_mode(0o640);
        let set = change(&["u:70007:rwX", "group::r"], &[]).of_access(&mode, false).unwrap();
        assert_eq!(set.lines(), ["user::rw-", "user:70007:rw-", "group::r--", "mask::rw-", "other::---"]);
        assert_eq!(change(&[], &["user:70007"]).of_access(&set, false).unwrap(), mode);
        let masked = change(&["m:r"], &[]).of_access(&set, false).unwrap();
        assert_eq!(masked.lines()[1], "user:70007:rw-\t#effective:r--");
        assert!(change(&[], &["other:"]).of_access(&set, false).is_err());
    }

    #[test]
    fn default_entries_begin_with_what_the_directory_grants() {
        let mode = AclList::of_mode(0o750);
        let set = change(&["d:user:70007:rX"], &[]);
        assert_eq!(set.of_access(&mode, true).unwrap(), mode);
        let default = set.of_default(None, &mode, true).unwrap().unwrap();
        assert_eq!(default.lines(), ["user::rwx", "user:70007:r-x", "group::r-x", "mask::r-x", "other::---"]);
        assert!(set.of_default(None, &mode, false).is_err());
        let none = AclChange { remove_default: true, ..change(&[], &[]) };
        assert_eq!(none.of_default(Some(&default), &mode, true).unwrap(), None);
    }

    #[test]
    fn wrong_entries_are_refused_with_an_example() {
        for text in ["", "user:7", "user:no such user:r", "x::r", "user:70007:rq", "mask:x:r"] {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
        assert!("user:70007:rw".parse::<Removal>().is_err());
        assert_eq!("o:r".parse::<Setting>().unwrap().subject, Subject::Other);
        assert_eq!("u::7".parse::<Setting>().unwrap().permissions.always, 7);
    }
}
