//! `ebb fs mv`.

use ebb_api::path::EbbPath;
use ebb_client::{Rename, RenameMode};
use ebb_types::{ErrorKind, FileKind, Result, bail};
use serde_json::json;

use super::Session;

impl Session {
    /// Renames files and directories. In another dataset they are copied, compared and removed.
    pub(super) async fn mv(&self, sources: &[EbbPath], target: &EbbPath) -> Result<()> {
        let into = self.caller.find(target).await?.is_some_and(|attr| attr.kind == FileKind::Directory);
        if sources.len() > 1 && !into {
            bail!(NotDirectory, "{target} is not a directory: several files go only into one");
        }
        let mut moved = Vec::new();
        for source in sources {
            let target = if into { target.join(source.last()) } else { target.clone() };
            let copied = match self.rename(source, &target).await {
                Err(error) if error.kind() == ErrorKind::CrossDevice => {
                    self.move_across(source, &target).await?;
                    true
                }
                renamed => renamed.map(|()| false)?,
            };
            moved.push(json!({ "from": source.to_string(), "to": target.to_string(), "copied": copied }));
        }
        self.answer(|| json!({ "moved": moved }));
        Ok(())
    }

    /// Gives a file or directory another name in its dataset; what has this name is replaced.
    pub(super) async fn rename(&self, source: &EbbPath, target: &EbbPath) -> Result<()> {
        let (source_parent, source_name) = self.caller.parent(source).await?;
        let (target_parent, target_name) = self.caller.parent(target).await?;
        let rename = Rename { source_parent, source_name, target_parent, target_name, mode: RenameMode::Replace };
        match self.caller.client.rename(&self.caller.credentials, rename).await {
            // These are about the new name, the others about the old one.
            Err(error) if matches!(error.kind(), ErrorKind::NotEmpty | ErrorKind::IsDirectory | ErrorKind::Exists) => {
                Err(self.caller.explain(error, target))
            }
            renamed => renamed.map_err(|error| self.caller.explain(error, source)),
        }
    }
}
