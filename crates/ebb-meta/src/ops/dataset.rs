//! Creation of datasets, their settings, and their paths.

use std::sync::Arc;

use ebb_types::{DatasetId, InodeId, Result, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use super::create::new_directory;
use crate::dataset::{
    check_extra_share, check_log_copies, check_min_copies, check_prefetch, check_raid, check_read_rule, check_replicas,
    check_share,
};
use crate::dir;
use crate::machine::{Call, Machine, take_id};
use crate::permission;
use crate::resolve::LastLink;

/// Mode of a new directory for a dataset.
const MODE: u32 = 0o755;

impl Machine {
    /// Makes a dataset of a new directory, or of an empty one that the caller owns. Everything that is made below
    /// belongs to it.
    pub(crate) fn create_dataset(&mut self, call: &mut Call<'_>, op: &meta_op::CreateDataset) -> Result<pb::MetaReply> {
        let Some(asked) = &op.dataset else { bail!(Invalid, "a dataset without settings") };
        let mut settings = self.datasets.complete(asked)?;
        if settings.trash_seconds > 0 && settings.quota_inodes == 1 {
            bail!(Invalid, "{}: the trash needs an inode, and the root directory is the only one", settings.path);
        }
        let (parent, name) = self.dataset_place(call, &settings.path)?;
        let root = match self.find(parent, name, &call.credentials)? {
            Some(entry) => {
                self.check_dataset_root(call, entry.inode, &settings.path)?;
                if settings.trash_seconds > 0 {
                    self.check_may_add(call, entry.inode)?;
                }
                entry.inode
            }
            None => {
                self.check_new_name(call, parent, name)?;
                self.make(call, parent, name, new_directory(parent, MODE, 0))?
            }
        };
        let id = take_id!(self.next.dataset, DatasetId);
        settings.id = id.raw();
        settings.root_inode = root.raw();
        settings.path = self.path_of(root);
        self.datasets.insert(settings.clone());
        self.datasets.count_inode(id);
        let inode = self.edit(root);
        let before = std::mem::replace(&mut inode.dataset, id);
        inode.changed(call.now);
        self.count_as_past(root, before);
        self.datasets.forget_inode(before);
        call.changed(root);
        if settings.trash_seconds > 0 {
            self.make_trash(call, root)?;
        }
        Ok(pb::MetaReply { dataset: Some(settings), ..self.attr_reply(root)? })
    }

    /// Changes the settings of a dataset. A quota below the present use only stops growth.
    pub(crate) fn set_dataset(&mut self, call: &mut Call<'_>, op: &meta_op::SetDataset) -> Result<pb::MetaReply> {
        let id = DatasetId::new(op.dataset);
        let Some(settings) = self.datasets.get(id) else { bail!(NotFound, "there is no dataset {id}") };
        let root = InodeId::new(settings.root_inode);
        let mut settings = settings.clone();
        match self.inodes.get(&root) {
            Some(inode) => permission::check_owner(root, inode, &call.credentials)?,
            None if !call.credentials.is_root() => {
                bail!(NotPermitted, "the directory of this dataset is removed: only root may set it")
            }
            None => {}
        }
        settings.quota_bytes = op.quota_bytes.unwrap_or(settings.quota_bytes);
        settings.quota_inodes = op.quota_inodes.unwrap_or(settings.quota_inodes);
        settings.active = op.active.unwrap_or(settings.active);
        settings.extra_share_percent = op.extra_share_percent.unwrap_or(settings.extra_share_percent);
        check_extra_share(settings.extra_share_percent)?;
        settings.prefetch = op.prefetch.unwrap_or(settings.prefetch);
        check_prefetch(settings.prefetch)?;
        settings.read_rule = op.read_rule.unwrap_or(settings.read_rule);
        check_read_rule(settings.read_rule)?;
        settings.replicas = op.replicas.unwrap_or(settings.replicas);
        check_replicas(settings.replicas)?;
        settings.min_copies = op.min_copies.unwrap_or(settings.min_copies);
        check_min_copies(&settings)?;
        settings.log_copies = op.log_copies.unwrap_or(settings.log_copies);
        check_log_copies(settings.log_copies)?;
        settings.share = op.share.unwrap_or(settings.share);
        // Without a share there is nothing that a priority could order.
        let kept = if settings.share == 0 { 0 } else { settings.priority };
        settings.priority = op.priority.unwrap_or(kept);
        check_share(&settings)?;
        if let Some(code) = &op.raid {
            settings.set_raid_code(code);
        }
        settings.encode = op.encode.unwrap_or(settings.encode);
        settings.delay_ms = op.delay_ms.unwrap_or(settings.delay_ms);
        check_raid(&settings)?;
        settings.trash_seconds = op.trash_seconds.unwrap_or(settings.trash_seconds);
        if settings.trash_seconds > 0 && op.trash_seconds.is_some() {
            self.make_trash(call, root)?;
        }
        if let Some(placement) = &op.placement {
            self.datasets.place(&mut settings, placement)?;
        }
        self.datasets.insert(settings.clone());
        Ok(pb::MetaReply { dataset: Some(settings), ..Default::default() })
    }

    /// Parent directory and name of a dataset's root.
    fn dataset_place<'a>(&self, call: &Call<'_>, path: &'a str) -> Result<(InodeId, &'a [u8])> {
        let trimmed = path.trim_end_matches('/');
        let Some((parent, name)) = trimmed.rsplit_once('/').filter(|_| path.starts_with('/')) else {
            if path.starts_with('/') {
                bail!(Exists, "/ is a dataset already, the default one");
            }
            bail!(Invalid, "a dataset's path begins with /; \"{}\" does not", path.escape_default());
        };
        if dir::is_dots(name.as_bytes()) {
            bail!(Invalid, "a dataset's path must end with a name");
        }
        let parent = if parent.is_empty() { "/" } else { parent };
        let found = self.resolve(&call.credentials, parent.as_bytes(), LastLink::Follow)?;
        Ok((found.inode, name.as_bytes()))
    }

    fn check_dataset_root(&self, call: &Call<'_>, id: InodeId, path: &str) -> Result<()> {
        let inode = self.directory(id)?;
        permission::check_owner(id, inode, &call.credentials)?;
        if self.datasets.rooted_at(id).is_some() {
            bail!(Exists, "{path} is a dataset already");
        }
        if inode.directory().is_some_and(|body| body.count != 0) {
            bail!(
                NotEmpty,
                "{path} is not empty: a dataset begins empty, for files keep the layout that they were made with"
            );
        }
        Ok(())
    }

    /// Updates the paths of datasets below a directory that has moved.
    pub(crate) fn refresh_dataset_paths(&mut self, moved: InodeId) {
        if self.datasets.len() <= 1 {
            return;
        }
        let stale: Vec<pb::Dataset> = self
            .datasets
            .iter()
            .filter(|dataset| self.is_within(InodeId::new(dataset.root_inode), moved))
            .filter(|dataset| !self.orphans.contains(&InodeId::new(dataset.root_inode)))
            .filter(|dataset| !self.is_felled(InodeId::new(dataset.root_inode)))
            .cloned()
            .collect();
        for dataset in stale {
            let path = self.path_of(InodeId::new(dataset.root_inode));
            self.datasets.insert(pb::Dataset { path, ..dataset });
        }
    }

    /// Path of a directory that has a name. It walks the entries of each directory above it.
    pub(crate) fn path_of(&self, directory: InodeId) -> String {
        let mut names: Vec<Arc<[u8]>> = Vec::new();
        let mut at = directory;
        while at != InodeId::ROOT
            && names.len() <= self.inodes.len()
            && let Some(parent) = self.inodes.get(&at).and_then(|inode| inode.directory()).map(|body| body.parent)
            && let Some((_, name, _)) = self.entries.after(parent, 0).find(|(_, _, inode)| *inode == at)
        {
            names.push(Arc::clone(name));
            at = parent;
        }
        let path: Vec<u8> = names.iter().rev().flat_map(|name| [b"/", &name[..]].concat()).collect();
        if path.is_empty() { "/".into() } else { String::from_utf8_lossy(&path).into_owned() }
    }
}
