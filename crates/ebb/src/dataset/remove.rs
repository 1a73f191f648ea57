//! `ebb dataset rm`.

use ebb_api::{Caller, EbbPath};
use ebb_cli::{Context, admin};
use ebb_client::Client;
use ebb_types::{Result, bail, counted};
use serde_json::json;

use super::datasets;
use crate::fs::Session;

/// Removes a dataset: its directory, and with `recursive` all files in it. Its settings go with its last file.
pub async fn remove(context: &Context, client: &Client, path: &EbbPath, recursive: bool) -> Result<()> {
    let dataset = super::find(client, path).await?;
    let root = EbbPath::new(dataset.path.clone())?;
    if root.last().is_empty() {
        bail!(Invalid, "{path} is in the default dataset, which stays");
    }
    if path.below(&root) != Some(&[]) {
        bail!(Invalid, "{path} is a part of dataset {root}: name {root} to remove all of it, or use `ebb fs rm`");
    }
    let within = |other: &EbbPath| other.below(&root).is_some_and(|below| !below.is_empty());
    let mut others = datasets(client).await?.into_iter().filter_map(|other| EbbPath::new(other.path).ok());
    if let Some(inner) = others.find(within) {
        bail!(NotEmpty, "{inner} is a dataset of its own within {root}: remove it first");
    }
    // The root counts as one of them.
    let inside = dataset.used_inodes.saturating_sub(1);
    if inside > 0 && !recursive {
        bail!(NotEmpty, "{root} has {}: give -r to remove them too", counted(inside, "entry"));
    }
    let caller = Caller { client: client.clone(), credentials: admin::credentials() };
    let session = Session { caller, output: context.output };
    let removed = session.remove(&root).await?;
    let sentence = format!("{root} is removed, with {}", counted(removed.files, "file"));
    let value = json!({
        "removed": root.to_string(), "files": removed.files, "directories": removed.directories,
    });
    context.output.answer(&sentence, &value);
    Ok(())
}
