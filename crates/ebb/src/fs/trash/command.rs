//! `ebb fs trash`.

use clap::Subcommand;
use ebb_api::path::EbbPath;
use ebb_cli::output::Table;
use ebb_client::{Rename, RenameMode};
use ebb_types::{ErrorKind, Result, counted, err};
use serde_json::json;

use super::super::Session;
use super::super::list::time;

/// `ebb dataset set --trash` says how long things are kept.
#[derive(Debug, Subcommand)]
pub enum TrashCommand {
    /// Show what was removed, when, and until when it is kept.
    List {
        /// Paths in the datasets whose trash is shown [default: all datasets].
        paths: Vec<EbbPath>,
        /// Also what other users have removed.
        #[arg(long)]
        all_users: bool,
    },
    /// Bring files and directories back to their former paths.
    Restore {
        /// Former paths. Of several removals of a path the newest comes back.
        #[arg(required = true)]
        paths: Vec<EbbPath>,
        /// Also what other users have removed.
        #[arg(long)]
        all_users: bool,
    },
    /// Remove for good what is in the trash.
    Empty {
        /// Paths in the datasets whose trash is emptied [default: all datasets].
        paths: Vec<EbbPath>,
        /// Also what other users have removed.
        #[arg(long)]
        all_users: bool,
    },
}

impl Session {
    pub(in crate::fs) async fn trash(&self, command: &TrashCommand) -> Result<()> {
        match command {
            TrashCommand::List { paths, all_users } => self.list_trash(paths, *all_users).await,
            TrashCommand::Restore { paths, all_users } => self.restore(paths, *all_users).await,
            TrashCommand::Empty { paths, all_users } => self.empty_trash(paths, *all_users).await,
        }
    }

    async fn list_trash(&self, paths: &[EbbPath], all_users: bool) -> Result<()> {
        let removals = self.removals(paths, all_users).await?;
        let mut table = Table::new(&["REMOVED", "KEPT UNTIL", "BY", "PATH"]);
        for removal in &removals {
            let until = removal.until.map_or_else(|| "emptied".to_owned(), |until| time(until.0));
            table.row(vec![time(removal.removed.0), until, removal.user.clone(), removal.former.to_string()]);
        }
        if self.output.json() {
            let shown = removals.iter().map(|removal| {
                json!({
                    "path": removal.former.to_string(), "user": removal.user, "removed_ns": removal.removed.0,
                    "until_ns": removal.until.map(|until| until.0), "in_trash": removal.path.to_string(),
                })
            });
            self.output.print_json(&shown.collect());
        } else if removals.is_empty() {
            self.output.say("the trash is empty");
        } else {
            self.output.table(&table);
        }
        Ok(())
    }

    async fn restore(&self, paths: &[EbbPath], all_users: bool) -> Result<()> {
        let removals = self.removals(&[], all_users).await?;
        let mut restored = Vec::new();
        for path in paths {
            let removal = removals.iter().find(|removal| removal.former.shown() == path.shown());
            let removal = removal
                .ok_or_else(|| err!(NotFound, "the trash has no {path}; `ebb fs trash list` shows what it has"))?;
            let (target_parent, target_name) = self.caller.parent(path).await?;
            let rename = Rename {
                source_parent: removal.directory,
                source_name: removal.former.last(),
                target_parent,
                target_name,
                mode: RenameMode::NoReplace,
            };
            self.caller.client.rename(&self.caller.credentials, rename).await.map_err(|error| match error.kind() {
                ErrorKind::Exists => {
                    err!(Exists, "{path} exists again: move it away, or take {} by hand", removal.path)
                }
                ErrorKind::NotFound => err!(NotFound, "{path} is not in the trash any more"),
                _ => self.caller.explain(error, path),
            })?;
            self.caller.client.remove_dir(&self.caller.credentials, removal.parent, &removal.name).await?;
            self.output.say(&format!("{path} is back"));
            restored.push(json!({ "path": path.to_string(), "removed_ns": removal.removed.0 }));
        }
        self.answer(|| json!({ "restored": restored }));
        Ok(())
    }

    async fn empty_trash(&self, paths: &[EbbPath], all_users: bool) -> Result<()> {
        let mut removed = self.counted_removal();
        let removals = self.removals(paths, all_users).await?;
        for removal in &removals {
            let whole = self.remove_directory(removal.parent, &removal.name, removal.directory, &mut removed).await;
            whole.map_err(|error| self.caller.explain(error, &removal.path))?;
        }
        removed.finish();
        // Each removal had a directory around it.
        let (files, directories) = (removed.files, removed.directories - removals.len() as u64);
        let sentence = format!("{} and {} removed for good", counted(files, "file"), counted(directories, "directory"));
        self.output.answer(&sentence, &json!({ "files": files, "directories": directories }));
        Ok(())
    }
}
