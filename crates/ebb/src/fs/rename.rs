//! `ebb fs mv`.

use ebb_api::path::EbbPath;
use ebb_client::RenameMode;
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
            let copied = match self.caller.rename(source, &target, RenameMode::Replace).await {
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
}
