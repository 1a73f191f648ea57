//! Trees, visited.

use ebb_api::path::EbbPath;
use ebb_types::{Attr, FileKind, Result};

use super::Session;

/// Visits a path and all below it, directories before their entries. Symbolic links are not followed.
pub async fn walk(session: &Session, path: &EbbPath, mut visit: impl FnMut(&EbbPath, &Attr)) -> Result<()> {
    let top = session.caller.resolve_link(path).await?;
    visit(path, &top);
    let mut pending = Vec::new();
    if top.kind == FileKind::Directory {
        pending.push((path.clone(), top.inode));
    }
    while let Some((directory, inode)) = pending.pop() {
        for entry in session.caller.entries(inode).await? {
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
