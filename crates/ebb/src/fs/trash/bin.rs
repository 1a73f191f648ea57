//! Where removed things go, and what is there.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ebb_api::path::EbbPath;
use ebb_client::{NewName, Rename, RenameMode, XattrMode};
use ebb_types::trash::{DIRECTORY, FORMER_PATH};
use ebb_types::{Attr, ErrorKind, FileKind, InodeId, Result, WallTime, bail, err};
use ebb_wire::pb;

use super::super::Session;

/// Nobody else may look at what a user has removed.
const MODE: u32 = 0o700;

/// The datasets with a trash.
#[derive(Debug, Default)]
pub struct Bins {
    bins: BTreeMap<u64, Bin>,
    /// Root directories of all datasets.
    roots: Vec<EbbPath>,
}

/// The trash of a dataset.
#[derive(Clone, Debug)]
pub struct Bin {
    root: EbbPath,
    root_inode: InodeId,
    /// How long things are kept; none: until the trash is emptied.
    pub kept_for: Option<Duration>,
    /// The user's directory, once it is known.
    own: Option<InodeId>,
}

/// Something that was removed.
#[derive(Clone, Debug)]
pub struct Removal {
    /// Path before.
    pub former: EbbPath,
    /// Number of the user that removed it.
    pub user: String,
    /// When.
    pub removed: WallTime,
    /// Until when it is kept; none: until the trash is emptied.
    pub until: Option<WallTime>,
    /// Path in the trash.
    pub path: EbbPath,
    /// The removal's directory, its name, and the directory of the user that it is in.
    pub directory: InodeId,
    pub name: Vec<u8>,
    pub parent: InodeId,
}

impl Bin {
    fn new(dataset: &pb::Dataset) -> Result<Self> {
        Ok(Self {
            root: EbbPath::new(dataset.path.clone())?,
            root_inode: InodeId::new(dataset.root_inode),
            kept_for: Some(Duration::from_secs(dataset.trash_seconds.into())).filter(|kept| !kept.is_zero()),
            own: None,
        })
    }

    fn path(&self) -> EbbPath {
        self.root.join(DIRECTORY)
    }
}

impl Bins {
    /// The trash that a path is to be moved to; none: it is to be removed at once.
    ///
    /// Errors: `Invalid` for a dataset, or what contains one.
    pub fn of(&mut self, path: &EbbPath, attr: &Attr) -> Result<Option<&mut Bin>> {
        let Some(bin) = self.bins.get_mut(&attr.storage.dataset.raw()).filter(|bin| bin.kept_for.is_some()) else {
            return Ok(None);
        };
        if path.below(&bin.path()).is_some() {
            return Ok(None);
        }
        let inner = self.roots.iter().find(|root| root.below(path).is_some());
        if attr.inode == bin.root_inode || inner.is_some() {
            let dataset = inner.unwrap_or(&bin.root);
            bail!(
                Invalid,
                "{dataset} is a dataset, which does not go to the trash: `ebb dataset rm {dataset}` removes it; \
                 --skip-trash removes {path} at once"
            );
        }
        Ok(Some(bin))
    }
}

impl Session {
    /// The trash of each dataset.
    pub(in crate::fs) async fn bins(&self) -> Result<Bins> {
        let datasets = crate::dataset::datasets(&self.caller.client).await?;
        let (mut bins, mut roots) = (BTreeMap::new(), Vec::new());
        // One whose root directory is removed has no path.
        for dataset in datasets.iter().filter(|dataset| !dataset.path.is_empty()) {
            let bin = Bin::new(dataset)?;
            roots.push(bin.root.clone());
            bins.insert(dataset.id, bin);
        }
        Ok(Bins { bins, roots })
    }

    /// Moves a path to the trash.
    pub(in crate::fs) async fn throw(&self, bin: &mut Bin, path: &EbbPath) -> Result<()> {
        let (parent, name) = self.caller.parent(path).await?;
        let own = match bin.own {
            Some(own) => own,
            None => *bin.own.insert(self.own_directory(bin).await?),
        };
        let (removal, removal_name) = self.make_removal(own).await?;
        let moved = async {
            let former = Bytes::copy_from_slice(path.as_bytes());
            self.caller
                .client
                .set_xattr(&self.caller.credentials, removal, FORMER_PATH, former, XattrMode::Any)
                .await?;
            let rename = Rename {
                source_parent: parent,
                source_name: name,
                target_parent: removal,
                target_name: name,
                mode: RenameMode::NoReplace,
            };
            self.caller.client.rename(&self.caller.credentials, rename).await
        };
        let moved = moved.await;
        if moved.is_err() {
            let _ = self.caller.client.remove_dir(&self.caller.credentials, own, &removal_name).await;
        }
        moved.map_err(|error| self.caller.explain(error, path))
    }

    /// The user's directory in the trash, made if it is missing.
    async fn own_directory(&self, bin: &Bin) -> Result<InodeId> {
        let (trash, root) = (bin.path(), &bin.root);
        let Some(top) = self.caller.find(&trash).await? else {
            bail!(
                NotFound,
                "{trash} does not exist: `ebb dataset set {root} --trash` makes it again; --skip-trash removes at once"
            );
        };
        let name = self.caller.credentials.uid.to_string();
        let new = NewName { parent: top.inode, name: name.as_bytes(), mode: MODE, umask: 0 };
        match self.caller.client.make_dir(&self.caller.credentials, new).await {
            Ok(made) => Ok(made.inode),
            Err(error) if error.kind() == ErrorKind::Exists => {
                self.caller.resolve(&trash.join(name.as_bytes())).await.map(|attr| attr.inode)
            }
            Err(error) => Err(self.caller.explain(error, &trash)),
        }
    }

    /// A directory for one removal, with its name.
    async fn make_removal(&self, own: InodeId) -> Result<(InodeId, Vec<u8>)> {
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        for number in 1_u32.. {
            let name = format!("{now}.{number}").into_bytes();
            let new = NewName { parent: own, name: &name, mode: MODE, umask: 0 };
            match self.caller.client.make_dir(&self.caller.credentials, new).await {
                Ok(made) => return Ok((made.inode, name)),
                Err(error) if error.kind() == ErrorKind::Exists => {}
                Err(error) => return Err(error.context("making a directory in the trash")),
            }
        }
        Err(err!(Exists, "the trash has too many removals of this second"))
    }

    /// What is in the trash of datasets, newest first: of those that the paths are in; of all, without a path.
    pub(super) async fn removals(&self, paths: &[EbbPath], all_users: bool) -> Result<Vec<Removal>> {
        let bins = self.bins().await?.bins;
        let mut asked = Vec::new();
        for path in paths {
            asked.push(self.caller.resolve(path).await?.storage.dataset.raw());
        }
        let mut found = Vec::new();
        for (_, bin) in bins.iter().filter(|(dataset, _)| paths.is_empty() || asked.contains(dataset)) {
            let trash = bin.path();
            let Some(top) = self.caller.find(&trash).await? else { continue };
            for user in self.caller.entries(top.inode).await? {
                let is_own = user.name == self.caller.credentials.uid.to_string().as_bytes();
                if user.kind == FileKind::Directory && (is_own || all_users) {
                    self.removals_of(bin, &trash.join(&user.name), &user, &mut found).await?;
                }
            }
        }
        found.sort_by_key(|removal| std::cmp::Reverse(removal.removed));
        Ok(found)
    }

    async fn removals_of(
        &self,
        bin: &Bin,
        path: &EbbPath,
        user: &ebb_client::DirEntry,
        found: &mut Vec<Removal>,
    ) -> Result<()> {
        let entries = self.caller.entries(user.inode).await.map_err(|error| self.caller.explain(error, path))?;
        for entry in entries {
            let Some(attr) = entry.attr.filter(|attr| attr.kind == FileKind::Directory && attr.has_xattrs) else {
                continue;
            };
            let former = match self.caller.client.get_xattr(&self.caller.credentials, entry.inode, FORMER_PATH).await {
                Ok(former) => EbbPath::new(former)?,
                // Made by hand, or brought back meanwhile.
                Err(error) if matches!(error.kind(), ErrorKind::NoAttribute | ErrorKind::NotFound) => continue,
                Err(error) => return Err(error),
            };
            let kept_ns = bin.kept_for.map(|kept| i64::try_from(kept.as_nanos()).unwrap_or(i64::MAX));
            found.push(Removal {
                path: path.join(&entry.name).join(former.last()),
                former,
                user: String::from_utf8_lossy(&user.name).into_owned(),
                removed: attr.btime,
                until: kept_ns.map(|kept| WallTime(attr.btime.0.saturating_add(kept))),
                directory: entry.inode,
                name: entry.name,
                parent: user.inode,
            });
        }
        Ok(())
    }
}
