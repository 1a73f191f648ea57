//! The energy account on the manager's disk, so that it survives the manager.
//!
//! Written now and then, not at each change: what was drawn and served since the last time, and while no manager ran, is in
//! no account. Both go missing together, so joules per GiB served stay true.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ebb_power::account::Account;
use ebb_runtime::Runtime;
use ebb_types::{ErrorKind, NodeId, Result, bail, err};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the file.
const FORMAT: u32 = 1;

/// Contents of `account.json` in the manager's directory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Books {
    format: u32,
    elapsed_ms: u64,
    joules: f64,
    offered_joules: f64,
    battery_joules: f64,
    missing_joules: f64,
    over_joules: f64,
    over_ms: u64,
    over_peak_watts: f64,
    served_bytes: u64,
    /// By node.
    nodes: BTreeMap<u64, NodeBooks>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeBooks {
    joules: f64,
    awake_ms: u64,
    asleep_ms: u64,
    transition_ms: u64,
    starts: u64,
}

impl From<&Account> for Books {
    fn from(account: &Account) -> Self {
        let nodes = account.nodes.iter().map(|(id, node)| {
            let books = NodeBooks {
                joules: node.joules,
                awake_ms: node.awake_ms,
                asleep_ms: node.asleep_ms,
                transition_ms: node.transition_ms,
                starts: node.starts,
            };
            (id.raw(), books)
        });
        Self {
            format: FORMAT,
            elapsed_ms: account.elapsed_ms,
            joules: account.joules,
            offered_joules: account.offered_joules,
            battery_joules: account.battery_joules,
            missing_joules: account.missing_joules,
            over_joules: account.over_joules,
            over_ms: account.over_ms,
            over_peak_watts: account.over_peak_watts,
            served_bytes: account.served_bytes,
            nodes: nodes.collect(),
        }
    }
}

impl From<Books> for Account {
    fn from(books: Books) -> Self {
        let mut account = Self {
            elapsed_ms: books.elapsed_ms,
            joules: books.joules,
            offered_joules: books.offered_joules,
            battery_joules: books.battery_joules,
            missing_joules: books.missing_joules,
            over_joules: books.over_joules,
            over_ms: books.over_ms,
            over_peak_watts: books.over_peak_watts,
            served_bytes: books.served_bytes,
            ..Self::default()
        };
        for (id, books) in books.nodes {
            let node = account.nodes.entry(NodeId::new(id)).or_default();
            (node.joules, node.starts) = (books.joules, books.starts);
            (node.awake_ms, node.asleep_ms, node.transition_ms) =
                (books.awake_ms, books.asleep_ms, books.transition_ms);
        }
        account
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("account.json")
}

/// The account as bytes of its file.
pub(crate) fn encode(account: &Account) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(&Books::from(account)).map_err(|error| err!(Internal, "{error}"))
}

/// The account that these bytes are.
pub(crate) fn decode(bytes: &[u8]) -> Result<Account> {
    // The format first: another one may have other fields.
    let told: Value = serde_json::from_slice(bytes).map_err(|error| err!(Corrupt, "{error}"))?;
    if let Some(format) = told["format"].as_u64().filter(|format| *format != u64::from(FORMAT)) {
        bail!(Unsupported, "format {format} of the energy account; this release reads {FORMAT}");
    }
    let books: Books = serde_json::from_value(told).map_err(|error| err!(Corrupt, "{error}"))?;
    let numbers = [books.joules, books.offered_joules, books.battery_joules, books.missing_joules, books.over_joules];
    let of_nodes = books.nodes.values().map(|node| node.joules);
    if numbers.into_iter().chain([books.over_peak_watts]).chain(of_nodes).any(|number| !(0.0..1e18).contains(&number)) {
        bail!(Corrupt, "an energy below zero, or more than all power plants give in a year");
    }
    Ok(books.into())
}

/// The account that there is; an empty one if there is none. One that cannot be read is set aside, which is said: the
/// power does not wait for its books, and what another release has counted is not written over.
pub(crate) async fn read(runtime: &Runtime, dir: &Path) -> Account {
    let path = path(dir);
    let read = match runtime.disk().read(&path).await {
        Ok(bytes) => decode(&bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Account::default()),
        Err(error) => Err(error),
    };
    let error = match read {
        Ok(account) => return account,
        Err(error) => error,
    };
    let aside = path.with_extension("json.unread");
    match runtime.disk().rename(&path, &aside).await {
        Ok(()) => {
            tracing::warn!(%error, aside = %aside.display(), "the energy account begins anew; the old one is kept")
        }
        Err(failed) => tracing::warn!(path = %path.display(), %error, %failed, "the energy account begins anew"),
    }
    Account::default()
}

/// Replaces the account's file in one step.
pub(crate) async fn write(runtime: &Runtime, dir: &Path, account: &Account) -> Result<()> {
    let path = path(dir);
    let bytes = encode(account).map_err(|error| error.context(path.display()))?;
    runtime.disk().replace(&path, bytes.into()).await
}

#[cfg(test)]
mod tests {
    use ebb_runtime::virt::{World, WorldOptions};

    use super::*;

    #[test]
    fn what_was_written_is_read_and_nonsense_is_refused() {
        let mut account = Account { joules: 12.5, served_bytes: 1 << 30, elapsed_ms: 7, ..Account::default() };
        let node = account.nodes.entry(NodeId::new(3)).or_default();
        (node.joules, node.starts, node.asleep_ms) = (0.1, 4, 9);
        let mut told = serde_json::to_value(Books::from(&account)).unwrap();
        assert_eq!(decode(told.to_string().as_bytes()).unwrap(), account);
        told["joules"] = (-1.0).into();
        assert_eq!(decode(told.to_string().as_bytes()).unwrap_err().kind(), ErrorKind::Corrupt);
        told["format"] = 2.into();
        told["of_a_later_release"] = 3.into();
        let refused = decode(told.to_string().as_bytes()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert_eq!(refused.to_string(), "format 2 of the energy account; this release reads 1");
        assert_eq!(decode(b"{").unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn an_account_that_cannot_be_read_is_kept_and_another_begun() {
        World::run(1, WorldOptions::default(), |world| async move {
            let runtime = world.process("m1").runtime();
            let (dir, disk) = (Path::new("/power"), runtime.disk());
            disk.create_dir_all(dir).await.unwrap();
            assert_eq!(read(&runtime, dir).await, Account::default());
            let later = b"{ \"format\": 2, \"joules\": 5.0 }";
            disk.replace(&path(dir), later.to_vec().into()).await.unwrap();
            assert_eq!(read(&runtime, dir).await, Account::default());
            write(&runtime, dir, &Account { joules: 1.0, ..Account::default() }).await.unwrap();
            assert_eq!(read(&runtime, dir).await.joules, 1.0);
            assert_eq!(&disk.read(&dir.join("account.json.unread")).await.unwrap()[..], later);
        });
    }
}
