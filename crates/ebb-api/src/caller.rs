//! A user of a session: paths are resolved, and calls are made, with the user's rights.

mod attributes;
mod list;
mod names;
mod snapshots;

use ebb_client::Client;
use ebb_types::{Attr, Credentials, Error, ErrorKind, FileKind, InodeId, Result, bail, err};

use crate::explain::explain;
use crate::path::{EbbPath, text};
use crate::users::{self, table};

pub use list::{Detail, Entry, Page};
pub use names::{Depth, NewMode, TreeRemoval};

/// A session, and the user on whose behalf it is used. Many callers may share a session: the master judges each call by its
/// credentials.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The session.
    pub client: Client,
    /// The user.
    pub credentials: Credentials,
}

impl Caller {
    /// The user of this name: the system's, else that of the cluster's table.
    ///
    /// # Errors
    /// `NotFound` if neither knows the name.
    pub async fn named(client: &Client, name: &str) -> Result<Self> {
        let known = match users::system_user(name) {
            Some(credentials) => Some(credentials),
            None => table::find(client, name).await?.map(|row| row.credentials()),
        };
        let Some(credentials) = known else {
            bail!(
                NotFound,
                "neither this host nor the cluster knows a user {name}: make it here, or tell its number by \
                 `ebb user add {name}=UID`"
            );
        };
        Ok(Self { client: client.clone(), credentials })
    }

    /// An error about `path`, for people.
    pub fn explain(&self, error: Error, path: &EbbPath) -> Error {
        explain(error, path, |inode| self.client.kept_path(inode))
    }

    /// The inode of an absolute path, links followed.
    pub async fn resolve(&self, path: &EbbPath) -> Result<Attr> {
        match self.client.resolve(&self.credentials, path.as_bytes()).await {
            Ok(attr) => Ok(attr),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.explain_missing(error, path).await),
            Err(error) if error.kind() == ErrorKind::NotDirectory => Err(self.explain_not_directory(error, path).await),
            Err(error) => Err(self.explain(error, path)),
        }
    }

    /// That nothing is at `path`: no such name, or a symbolic link that leads nowhere.
    async fn explain_missing(&self, error: Error, path: &EbbPath) -> Error {
        if let Ok(link) = self.client.resolve_link(&self.credentials, path.as_bytes()).await
            && link.kind == FileKind::Symlink
            && let Ok(target) = self.client.read_link(&self.credentials, link.inode).await
        {
            return err!(NotFound, "{path} points to {}, which does not exist", text(&target));
        }
        self.explain(error, path)
    }

    /// The name before the last one that is no directory.
    async fn explain_not_directory(&self, error: Error, path: &EbbPath) -> Error {
        let mut at = path.clone();
        while let Ok((parent, _)) = at.split() {
            match self.client.resolve(&self.credentials, parent.as_bytes()).await {
                // It was asked for as a directory because of the slash at its end.
                Err(error) if error.kind() == ErrorKind::NotDirectory => at = parent,
                _ => break,
            }
        }
        Error::new(error.kind(), format!("{} is not a directory", at.shown()))
    }

    /// The inode of an absolute path, the last link not followed.
    pub async fn resolve_link(&self, path: &EbbPath) -> Result<Attr> {
        self.client.resolve_link(&self.credentials, path.as_bytes()).await.map_err(|error| self.explain(error, path))
    }

    /// The attributes of an absolute path; none if there is no such name.
    pub async fn find(&self, path: &EbbPath) -> Result<Option<Attr>> {
        match self.resolve(path).await {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The directory that a name is or will be in, and the name.
    pub async fn parent<'a>(&self, path: &'a EbbPath) -> Result<(InodeId, &'a [u8])> {
        let (parent, last) = path.split()?;
        let attr = self.resolve(&parent).await?;
        if attr.kind != FileKind::Directory {
            bail!(NotDirectory, "{parent} is not a directory");
        }
        Ok((attr.inode, last))
    }
}
