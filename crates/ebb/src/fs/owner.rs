//! Owners and groups by name or number. Names are those of this machine's user database.

use std::str::FromStr;

use ebb_api::users::{gid_of, uid_of};

/// An owner, a group or both, to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnerChange {
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
}

impl FromStr for OwnerChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let uid = (!user.is_empty()).then(|| uid_of(user)).transpose()?;
        let gid = group.filter(|group| !group.is_empty()).map(gid_of).transpose()?;
        if uid.is_none() && gid.is_none() {
            return Err("neither an owner nor a group is given".to_owned());
        }
        Ok(Self { uid, gid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_and_groups_are_names_or_numbers() {
        let parse = |text: &str| text.parse::<OwnerChange>();
        assert_eq!(parse("root:12"), Ok(OwnerChange { uid: Some(0), gid: Some(12) }));
        assert_eq!(parse("7"), Ok(OwnerChange { uid: Some(7), gid: None }));
        assert_eq!(parse("7:"), Ok(OwnerChange { uid: Some(7), gid: None }));
        assert_eq!(parse(":root"), Ok(OwnerChange { uid: None, gid: Some(0) }));
        for text in ["", ":", "no such user", "1:no such group", "4294967295"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
