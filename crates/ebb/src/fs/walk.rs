//! Listing directories and trees.

use ebb_cli::path::EbbPath;
use ebb_client::EntryDetail;
use ebb_types::{FileKind, InodeId, Result};
use ebb_wire::pb;

use super::{Session, kind};

/// Entries asked for at a time.
const BATCH: u32 = 1000;

/// All entries of a directory, with attributes.
pub async fn entries(session: &Session, directory: InodeId) -> Result<Vec<pb::DirEntry>> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let (batch, end) =
            session.client.read_dir(&session.credentials, directory, after, BATCH, EntryDetail::Attributes).await?;
        after = batch.last().map(|entry| entry.cookie).or(after);
        all.extend(batch);
        if end {
            return Ok(all);
        }
    }
}

/// Visits a path and all below it, directories before their entries. Symbolic links are not followed.
pub async fn walk(session: &Session, path: &EbbPath, mut visit: impl FnMut(&EbbPath, &pb::Attr)) -> Result<()> {
    let top = session.resolve_link(path).await?;
    visit(path, &top);
    let mut pending = Vec::new();
    if kind(&top) == FileKind::Directory {
        pending.push((path.clone(), InodeId::new(top.inode)));
    }
    while let Some((directory, inode)) = pending.pop() {
        for entry in entries(session, inode).await? {
            let Some(attr) = &entry.attr else { continue };
            let path = directory.join(&entry.name);
            visit(&path, attr);
            if kind(attr) == FileKind::Directory {
                pending.push((path, InodeId::new(entry.inode)));
            }
        }
    }
    Ok(())
}
