//! Names of users and groups, from this machine's user database.

use std::collections::BTreeMap;

use nix::unistd::{Group, User};

/// The name of a user, or the number of one without a name.
pub fn user_name(uid: u32) -> String {
    User::from_uid(uid.into()).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

/// The name of a group, or the number of one without a name.
pub fn group_name(gid: u32) -> String {
    Group::from_gid(gid.into()).ok().flatten().map_or_else(|| gid.to_string(), |group| group.name)
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
