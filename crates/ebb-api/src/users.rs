//! Names of users and groups: of this machine's user database, then of the cluster's table.
//!
//! A name that neither knows is refused. It is never turned into a number: two names could become one user.

pub mod table;

use std::collections::BTreeMap;
use std::ffi::CString;

use ebb_types::Credentials;
use nix::unistd::{Group, User};

/// The name of a user, or the number of one without a name.
pub fn user_name(uid: u32) -> String {
    User::from_uid(uid.into()).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

/// The name of a group, or the number of one without a name.
pub fn group_name(gid: u32) -> String {
    Group::from_gid(gid.into()).ok().flatten().map_or_else(|| gid.to_string(), |group| group.name)
}

/// The number of a user; a number stands for itself.
///
/// # Errors
/// A sentence for a person if nobody is called so.
pub fn uid_of(name: &str) -> Result<u32, String> {
    let found = || User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    numbered(name).or_else(found).ok_or_else(|| format!("no user is called {name:?}"))
}

/// The number of a group; a number stands for itself.
///
/// # Errors
/// A sentence for a person if no group is called so.
pub fn gid_of(name: &str) -> Result<u32, String> {
    let found = || Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    numbered(name).or_else(found).ok_or_else(|| format!("no group is called {name:?}"))
}

fn numbered(name: &str) -> Option<u32> {
    name.parse().ok().filter(|number| *number != u32::MAX)
}

/// A user and its groups, as this machine knows them; none if nobody is called so.
pub fn system_user(name: &str) -> Option<Credentials> {
    let user = User::from_name(name).ok().flatten()?;
    let groups = nix::unistd::getgrouplist(&CString::new(name).ok()?, user.gid).unwrap_or_default();
    let groups = groups.into_iter().map(nix::unistd::Gid::as_raw).collect();
    Some(Credentials { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups })
}

/// Names that were looked up once: a directory has few owners and many files.
#[derive(Default)]
pub struct Names {
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
}

impl Names {
    /// As [`user_name`].
    pub fn user(&mut self, uid: u32) -> String {
        self.users.entry(uid).or_insert_with(|| user_name(uid)).clone()
    }

    /// As [`group_name`].
    pub fn group(&mut self, gid: u32) -> String {
        self.groups.entry(gid).or_insert_with(|| group_name(gid)).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_without_a_name_are_numbers() {
        assert_eq!((user_name(0).as_str(), group_name(0).as_str()), ("root", "root"));
        assert_eq!((user_name(4_000_000_000), group_name(4_000_000_000)), ("4000000000".into(), "4000000000".into()));
    }
}
