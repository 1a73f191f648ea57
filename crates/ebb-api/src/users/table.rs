//! The cluster's table of users: names that count on every host, also where the system does not know them.
//!
//! It lies in extended attributes of the root directory that only the superuser sees and sets, one for each name. So it is as
//! durable as the namespace, and every change is one step.

use std::collections::BTreeMap;

use ebb_client::{Client, XattrMode};
use ebb_types::{Credentials, ErrorKind, InodeId, Result, bail, err};

/// What the attributes' names begin with.
const PREFIX: &str = "trusted.ebb.user.";
/// Longest name of a user, in bytes: with the prefix it is the name of an attribute.
const NAME_LEN_MAX: usize = 200;

/// A row: the user's number and groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserRow {
    /// Number of the user.
    pub uid: u32,
    /// Number of its first group.
    pub gid: u32,
    /// Numbers of its other groups.
    pub groups: Vec<u32>,
}

impl UserRow {
    /// The user as calls name it.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        Credentials { uid: self.uid, gid: self.gid, groups: self.groups.clone() }
    }

    /// `UID GID GROUP ...`
    fn text(&self) -> String {
        let numbers = [self.uid, self.gid].into_iter().chain(self.groups.iter().copied());
        numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut numbers = text.split(' ').map(|number| number.parse().ok().filter(|number| *number != u32::MAX));
        let (uid, gid) = (numbers.next()??, numbers.next()??);
        Some(Self { uid, gid, groups: numbers.collect::<Option<_>>()? })
    }
}

/// All rows by name.
pub async fn read(client: &Client) -> Result<BTreeMap<String, UserRow>> {
    let root = Credentials::root();
    let mut rows = BTreeMap::new();
    for attribute in client.list_xattr(&root, InodeId::ROOT).await? {
        let Some(name) = std::str::from_utf8(&attribute).ok().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        if let Some(row) = find(client, name).await? {
            rows.insert(name.to_owned(), row);
        }
    }
    Ok(rows)
}

/// The row of a name.
pub async fn find(client: &Client, name: &str) -> Result<Option<UserRow>> {
    if check_name(name).is_err() {
        return Ok(None);
    }
    match client.get_xattr(&Credentials::root(), InodeId::ROOT, attribute(name).as_bytes()).await {
        Ok(value) => match UserRow::parse(&value) {
            Some(row) => Ok(Some(row)),
            None => {
                bail!(Invalid, "the cluster's table has no numbers for the user {name}: set them by `ebb user add`")
            }
        },
        Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sets a row.
///
/// # Errors
/// `Invalid` for a name that cannot be one, `Exists` if it is there and may not be replaced.
pub async fn add(client: &Client, name: &str, row: &UserRow, mode: XattrMode) -> Result<()> {
    check_name(name)?;
    let (root, attribute, value) = (Credentials::root(), attribute(name), row.text().into_bytes().into());
    let set = client.set_xattr(&root, InodeId::ROOT, attribute.as_bytes(), value, mode).await;
    set.map_err(|error| match error.kind() {
        ErrorKind::Exists => err!(Exists, "the cluster's table has a user {name} already"),
        _ => error,
    })
}

/// Removes a row.
///
/// # Errors
/// `NotFound` if there is none.
pub async fn remove(client: &Client, name: &str) -> Result<()> {
    check_name(name)?;
    let removed = client.remove_xattr(&Credentials::root(), InodeId::ROOT, attribute(name).as_bytes()).await;
    removed.map_err(|error| match error.kind() {
        ErrorKind::NoAttribute => err!(NotFound, "the cluster's table has no user {name}"),
        _ => error,
    })
}

fn attribute(name: &str) -> String {
    format!("{PREFIX}{name}")
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |letter: char| !letter.is_control() && !letter.is_whitespace() && !"/:,".contains(letter);
    if name.is_empty() || name.len() > NAME_LEN_MAX || !name.chars().all(is_plain) {
        bail!(
            Invalid,
            "{name:?} is no name for a user: use up to {NAME_LEN_MAX} bytes without blanks, `/`, `:` and `,`"
        );
    }
    if name.parse::<u32>().is_ok() {
        bail!(Invalid, "{name} is a number: a user needs a name");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_back() {
        for row in [UserRow { uid: 7, gid: 8, groups: vec![] }, UserRow { uid: 0, gid: 1, groups: vec![9, 10] }] {
            assert_eq!(UserRow::parse(row.text().as_bytes()), Some(row));
        }
        for text in ["", "7", "7 x", "7 8 ", "4294967295 1", "-1 2"] {
            assert_eq!(UserRow::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn names_that_could_be_taken_for_something_else_are_refused() {
        for name in ["", "a b", "a/b", "a:b", "a,b", "12", "a\n"] {
            assert_eq!(check_name(name).unwrap_err().kind(), ErrorKind::Invalid, "{name:?}");
        }
        for name in ["alice", "svc-spark@REALM", "übung"] {
            check_name(name).unwrap();
        }
    }
}
