//! The energy account on the manager's disk, and the charge of the battery, so that both survive the manager.
//!
//! Written at intervals, not at each change. So energy that was drawn and bytes that were served since the last time,
//! and while no manager ran, are in no account. Both go missing together, so joules per GiB served stay true.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ebb_power::account::Account;
use ebb_runtime::Runtime;
use ebb_types::{ErrorKind, NodeId, Result, bail, err};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the file. Version 1, which knew nothing of the battery, is read; others are refused by their number.
const FORMAT: u32 = 2;

/// State that a manager leaves to the next one.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Kept {
    /// The account.
    pub account: Account,
    /// Charge of the battery; none: not known, and assumed to be full.
    pub charge_joules: Option<f64>,
}

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
    charge_joules: Option<f64>,
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

impl From<&Kept> for Books {
    fn from(kept: &Kept) -> Self {
        let account = &kept.account;
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
            charge_joules: kept.charge_joules,
            nodes: nodes.collect(),
        }
    }
}

impl From<Books> for Kept {
    fn from(books: Books) -> Self {
        let charge_joules = books.charge_joules;
        let mut account = Account {
            elapsed_ms: books.elapsed_ms,
            joules: books.joules,
            offered_joules: books.offered_joules,
            battery_joules: books.battery_joules,
            missing_joules: books.missing_joules,
            over_joules: books.over_joules,
            over_ms: books.over_ms,
            over_peak_watts: books.over_peak_watts,
            served_bytes: books.served_bytes,
            ..Account::default()
        };
        for (id, books) in books.nodes {
            let node = account.nodes.entry(NodeId::new(id)).or_default();
            (node.joules, node.starts) = (books.joules, books.starts);
            (node.awake_ms, node.asleep_ms, node.transition_ms) =
                (books.awake_ms, books.asleep_ms, books.transition_ms);
        }
        Self { account, charge_joules }
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("account.json")
}

/// As bytes of the file.
pub(crate) fn encode(kept: &Kept) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(&Books::from(kept)).map_err(|error| err!(Internal, "{error}"))
}

/// Decodes the account's file. `Unsupported` for a later format; `Corrupt` otherwise.
pub(crate) fn decode(bytes: &[u8]) -> Result<Kept> {
    // The format first: another one may have other fields.
    let value: Value = serde_json::from_slice(bytes).map_err(|error| err!(Corrupt, "{error}"))?;
    if let Some(format) = value["format"].as_u64().filter(|format| !(1..=u64::from(FORMAT)).contains(format)) {
        bail!(Unsupported, "format {format} of the energy account; this release reads 1 to {FORMAT}");
    }
    let books: Books = serde_json::from_value(value).map_err(|error| err!(Corrupt, "{error}"))?;
    let numbers = [books.joules, books.offered_joules, books.battery_joules, books.missing_joules, books.over_joules];
    let of_nodes = books.nodes.values().map(|node| node.joules);
    let others = [books.over_peak_watts].into_iter().chain(books.charge_joules);
    if numbers.into_iter().chain(others).chain(of_nodes).any(|number| !(0.0..1e18).contains(&number)) {
        bail!(Corrupt, "an energy below zero, or more than all power plants give in a year");
    }
    Ok(books.into())
}

/// The account; an empty one if there is none. One that cannot be read is set aside, and the log says so: power plans
/// do not wait for the account, and the account of another release is not overwritten.
pub(crate) async fn read(runtime: &Runtime, dir: &Path) -> Kept {
    let path = path(dir);
    let read = match runtime.disk().read(&path).await {
        Ok(bytes) => decode(&bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Kept::default()),
        Err(error) => Err(error),
    };
    let error = match read {
        Ok(kept) => return kept,
        Err(error) => error,
    };
    let aside = path.with_extension("json.unread");
    match runtime.disk().rename(&path, &aside).await {
        Ok(()) => {
            tracing::warn!(%error, aside = %aside.display(), "the energy account begins anew; the old one is kept")
        }
        Err(failed) => tracing::warn!(path = %path.display(), %error, %failed, "the energy account begins anew"),
    }
    Kept::default()
}

/// Replaces the file in one step.
pub(crate) async fn write(runtime: &Runtime, dir: &Path, kept: &Kept) -> Result<()> {
    let path = path(dir);
    let bytes = encode(kept).map_err(|error| error.context(path.display()))?;
    runtime.disk().replace(&path, bytes.into()).await
}

#[cfg(test)]
mod tests {
    use ebb_runtime::virt::{World, WorldOptions};

    use super::*;

    #[test]
    fn books_are_read_as_written_and_nonsense_is_refused() {
        let mut account = Account { joules: 12.5, served_bytes: 1 << 30, elapsed_ms: 7, ..Account::default() };
        let node = account.nodes.entry(NodeId::new(3)).or_default();
        (node.joules, node.starts, node.asleep_ms) = (0.1, 4, 9);
        let kept = Kept { account, charge_joules: Some(80.5) };
        let mut value = serde_json::to_value(Books::from(&kept)).unwrap();
        assert_eq!(decode(value.to_string().as_bytes()).unwrap(), kept);
        let mut first = value.clone();
        first.as_object_mut().unwrap().remove("charge_joules");
        first["format"] = 1.into();
        assert_eq!(decode(first.to_string().as_bytes()).unwrap(), Kept { charge_joules: None, ..kept });
        for number in ["joules", "charge_joules"] {
            let mut wrong = value.clone();
            wrong[number] = (-1.0).into();
            assert_eq!(decode(wrong.to_string().as_bytes()).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        value["format"] = 3.into();
        value["of_a_later_release"] = 3.into();
        let refused = decode(value.to_string().as_bytes()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert_eq!(refused.to_string(), "format 3 of the energy account; this release reads 1 to 2");
        assert_eq!(decode(b"{").unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn an_account_that_cannot_be_read_is_kept_and_another_begun() {
        World::run(1, WorldOptions::default(), |world| async move {
            let runtime = world.process("m1").runtime();
            let (dir, disk) = (Path::new("/power"), runtime.disk());
            disk.create_dir_all(dir).await.unwrap();
            assert_eq!(read(&runtime, dir).await, Kept::default());
            let later = b"{ \"format\": 3, \"joules\": 5.0 }";
            disk.replace(&path(dir), later.to_vec().into()).await.unwrap();
            assert_eq!(read(&runtime, dir).await, Kept::default());
            let account = Account { joules: 1.0, ..Account::default() };
            write(&runtime, dir, &Kept { account, charge_joules: None }).await.unwrap();
            assert_eq!(read(&runtime, dir).await.account.joules, 1.0);
            assert_eq!(&disk.read(&dir.join("account.json.unread")).await.unwrap()[..], later);
        });
    }
}
