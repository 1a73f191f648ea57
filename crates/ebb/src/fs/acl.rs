//! `ebb fs getfacl` and `setfacl`: POSIX access control lists as `acl(5)` has them.

mod change;

use clap::Args;
use ebb_api::acl::AclLists;
use ebb_api::path::EbbPath;
use ebb_api::users;
use ebb_cli::output::{print_line, put_json};
use ebb_types::{Attr, FileKind, Result};
use serde_json::json;

use super::each::Change;
use super::{Session, walk};
pub use change::AclChange;

/// Options of `ebb fs setfacl`.
#[derive(Debug, Args)]
pub struct SetfaclArgs {
    #[command(flatten)]
    pub change: AclChange,
    #[arg(required = true)]
    pub paths: Vec<EbbPath>,
    /// Also everything below directories.
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

impl Change for SetfaclArgs {
    async fn apply(&self, session: &Session, path: &EbbPath, attr: &Attr) -> Result<bool> {
        // A symbolic link has no list of its own.
        if attr.kind == FileKind::Symlink {
            return Ok(false);
        }
        let changed = session.change_lists(attr, &self.change, self.recursive).await;
        changed.map(|()| true).map_err(|error| session.caller.explain(error, path))
    }
}

impl Session {
    /// Prints the lists of paths, as getfacl(1) does.
    pub(super) async fn getfacl(&self, paths: &[EbbPath], recursive: bool) -> Result<()> {
        let mut found = Vec::new();
        for path in paths {
            if recursive {
                walk::walk(self, path, |path, attr| found.push((path.clone(), *attr))).await?;
            } else {
                found.push((path.clone(), self.caller.resolve(path).await?));
            }
        }
        let mut shown = Vec::new();
        // A symbolic link has no list of its own.
        for (path, attr) in found.iter().filter(|(_, attr)| attr.kind != FileKind::Symlink) {
            let lists = self.caller.acl(attr).await.map_err(|error| self.caller.explain(error, path))?;
            let (access, default) = (lists.access, lists.default);
            if self.output.json() {
                let mut value = json!({
                    "owner": attr.uid, "group": attr.gid, "access": access.lines(),
                    "default": default.map(|list| list.lines()).unwrap_or_default(),
                });
                put_json(&mut value, "path", path.as_bytes());
                shown.push(value);
                continue;
            }
            print_line(&format!("# file: {path}"));
            print_line(&format!("# owner: {}", users::user_name(attr.uid)));
            print_line(&format!("# group: {}", users::group_name(attr.gid)));
            access.lines().iter().for_each(|line| print_line(line));
            let default = default.map(|list| list.lines()).unwrap_or_default();
            default.iter().for_each(|line| print_line(&format!("default:{line}")));
            print_line("");
        }
        self.answer(|| json!(shown));
        Ok(())
    }

    /// Changes the lists of paths; see [`Session::change_each`].
    pub(super) async fn setfacl(&self, args: &SetfaclArgs, paths: &[EbbPath]) -> Result<bool> {
        self.change_each(paths, args.recursive, args).await
    }

    async fn change_lists(&self, attr: &Attr, change: &AclChange, recursive: bool) -> Result<()> {
        let is_directory = attr.kind == FileKind::Directory;
        let AclLists { access, default } = self.caller.acl(attr).await?;
        let new = change.of_access(&access, is_directory)?;
        if new != access {
            self.caller.set_access_acl(attr, &new).await?;
        }
        // In a tree, files are passed over; a file that is named itself gets the file system's refusal.
        if !is_directory && recursive {
            return Ok(());
        }
        let new = change.of_default(default.as_ref(), &new, is_directory)?;
        if new == default { Ok(()) } else { self.caller.set_default_acl(attr, new.as_ref()).await }
    }
}
