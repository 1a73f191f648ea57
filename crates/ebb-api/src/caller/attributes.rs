//! Attributes, extended attributes, access control lists, datasets.

use bytes::Bytes;
use ebb_client::{SetAttr, SetTime, StatFs, XattrMode};
use ebb_types::{Attr, ErrorKind, FileKind, Result, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{ListDatasets, Op};

use super::Caller;
use crate::acl::{ACCESS, AclList, AclLists, DEFAULT};
use crate::path::EbbPath;

impl Caller {
    /// Sets attributes.
    pub async fn set_attr(&self, path: &EbbPath, set: SetAttr) -> Result<Attr> {
        let attr = self.resolve(path).await?;
        let done = self.client.set_attr(&self.credentials, attr.inode, set).await;
        done.map_err(|error| self.explain(error, path))
    }

    /// Sets the times of the last change and the last read.
    pub async fn set_times(&self, path: &EbbPath, modified: Option<SetTime>, read: Option<SetTime>) -> Result<Attr> {
        self.set_attr(path, SetAttr { mtime: modified, atime: read, ..SetAttr::default() }).await
    }

    /// Checks that the user is permitted to do this with what is at a path: a sum of 4 (read), 2 (write) and 1 (execute, search).
    ///
    /// # Errors
    /// `AccessDenied` if not.
    pub async fn access(&self, path: &EbbPath, access: u32) -> Result<Attr> {
        match self.client.resolve_for(&self.credentials, path.as_bytes(), access).await {
            // They explain what is missing.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotDirectory) => {
                self.resolve(path).await
            }
            found => found.map_err(|error| self.explain(error, path)),
        }
    }

    /// The value of an extended attribute.
    pub async fn get_xattr(&self, path: &EbbPath, name: &[u8]) -> Result<Vec<u8>> {
        let attr = self.resolve(path).await?;
        let found = self.client.get_xattr(&self.credentials, attr.inode, name).await;
        found.map_err(|error| self.explain(error, path))
    }

    /// The names of extended attributes.
    pub async fn list_xattrs(&self, path: &EbbPath) -> Result<Vec<Vec<u8>>> {
        let attr = self.resolve(path).await?;
        let found = self.client.list_xattr(&self.credentials, attr.inode).await;
        found.map_err(|error| self.explain(error, path))
    }

    /// Sets an extended attribute.
    pub async fn set_xattr(&self, path: &EbbPath, name: &[u8], value: Bytes, mode: XattrMode) -> Result<()> {
        let attr = self.resolve(path).await?;
        let done = self.client.set_xattr(&self.credentials, attr.inode, name, value, mode).await;
        done.map_err(|error| self.explain(error, path))
    }

    /// Removes an extended attribute.
    pub async fn remove_xattr(&self, path: &EbbPath, name: &[u8]) -> Result<()> {
        let attr = self.resolve(path).await?;
        let done = self.client.remove_xattr(&self.credentials, attr.inode, name).await;
        done.map_err(|error| self.explain(error, path))
    }

    /// The access control lists of a file or directory. Without a stored one, the permission bits say all.
    pub async fn acl(&self, attr: &Attr) -> Result<AclLists> {
        let access = self.stored_acl(attr, ACCESS).await?.unwrap_or_else(|| AclList::of_mode(attr.mode));
        let default = if attr.kind == FileKind::Directory { self.stored_acl(attr, DEFAULT).await? } else { None };
        Ok(AclLists { access, default })
    }

    async fn stored_acl(&self, attr: &Attr, name: &[u8]) -> Result<Option<AclList>> {
        match self.client.get_xattr(&self.credentials, attr.inode, name).await {
            Ok(value) => AclList::decode(&value).map(Some),
            Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the list that grants access.
    pub async fn set_access_acl(&self, attr: &Attr, list: &AclList) -> Result<()> {
        let value = list.encode().into();
        self.client.set_xattr(&self.credentials, attr.inode, ACCESS, value, XattrMode::Any).await
    }

    /// Sets the list that new entries of a directory get, or takes it away.
    pub async fn set_default_acl(&self, attr: &Attr, list: Option<&AclList>) -> Result<()> {
        let (client, credentials) = (&self.client, &self.credentials);
        match list {
            Some(list) => {
                client.set_xattr(credentials, attr.inode, DEFAULT, list.encode().into(), XattrMode::Any).await
            }
            None => match client.remove_xattr(credentials, attr.inode, DEFAULT).await {
                Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(()),
                done => done,
            },
        }
    }

    /// Space, as the dataset of a path divides it.
    pub async fn space(&self, path: &EbbPath) -> Result<StatFs> {
        let attr = self.resolve(path).await?;
        self.client.stat_fs(attr.inode).await.map_err(|error| self.explain(error, path))
    }

    /// The settings and the use of the dataset that a file or directory belongs to.
    pub async fn dataset(&self, attr: &Attr) -> Result<pb::Dataset> {
        let all = self.client.meta(&self.credentials, Op::ListDatasets(ListDatasets::default())).await?.datasets;
        let own = all.into_iter().find(|dataset| dataset.id == attr.storage.dataset.raw());
        own.ok_or_else(|| err!(Stale, "{} belongs to a dataset that is gone", attr.inode))
    }
}
