//! Listing directories and trees.

use ebb_api::path::EbbPath;
use ebb_client::{DirEntry, EntryDetail};
use ebb_types::{Attr, FileKind, InodeId, Result};

use super::Session;

/// Entries asked for at a time.
const BATCH: u32 = 1000;

/// All entries of a directory, with attributes.
pub async fn entries(session: &Session, directory: InodeId) -> Result<Vec<DirEntry>> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = session
            .caller
            .client
            .read_dir(&session.caller.credentials, directory, after, BATCH, EntryDetail::Attributes)
            .await?;
        after = page.entries.last().map(|entry| entry.cookie).or(after);
        all.extend(page.entries);
        if page.is_last {
            return Ok(all);
        }
    }
}

/// Visits a path and all below it, directories before their entries. Symbolic links are not followed.
pub async fn walk(session: &Session, path: &EbbPath, mut visit: impl FnMut(&EbbPath, &Attr)) -> Result<()> {
    let top = session.caller.resolve_link(path).await?;
    visit(path, &top);
    let mut pending = Vec::new();
    if top.kind == FileKind::Directory {
        pending.push((path.clone(), top.inode));
    }
    while let Some((directory, inode)) = pending.pop() {
        for entry in entries(session, inode).await? {
            let Some(attr) = &entry.attr else { continue };
            let path = directory.join(&entry.name);
            visit(&path, attr);
            if attr.kind == FileKind::Directory {
                pending.push((path, entry.inode));
            }
        }
    }
    Ok(())
}
