//! A new file in the file system, which gets its name when it is complete.
//!
//! Until then it has no name (O_TMPFILE): no other program sees a part of it, and it is gone with the session that
//! wrote it.

use ebb_client::{Access, Client, Handle, NewName, Rename, RenameMode, SetAttr, SetTime, UnnamedFile};
use ebb_types::{Attr, Credentials, ErrorKind, FileKind, HostName, InodeId, Result, err};

use super::{Attributes, Copied, Existing, Kept, Rules, Tools};
use crate::fs::umask;

/// Letters of a temporary name. The name is used only while one file takes the place of another.
const TEMPORARY: &str = ".ebb-copy-";

/// A place for a file: a directory and a name in it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub parent: InodeId,
    pub name: Vec<u8>,
}

/// The verdict on a target before anything is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Copy,
    Skip,
}

/// Judges a target that has these attributes, if it exists.
///
/// # Errors
/// `Exists` if it may not be replaced, `IsDirectory` if it is a directory.
pub(super) fn judge_target(found: Option<FileKind>, existing: Existing) -> Result<Verdict> {
    match (found, existing) {
        (None, _) => Ok(Verdict::Copy),
        (Some(FileKind::Directory), _) => Err(err!(IsDirectory, "a directory of this name is there")),
        (Some(_), Existing::Replace) => Ok(Verdict::Copy),
        (Some(_), Existing::Skip) => Ok(Verdict::Skip),
        (Some(_), Existing::Refuse) => Err(exists()),
    }
}

/// The refusal to replace a file.
pub(super) fn exists() -> ebb_types::Error {
    err!(Exists, "exists already; give -f to replace it, or -n to skip it")
}

impl Tools {
    /// Judges the file at a place, if there is one; see [`judge_target`].
    pub async fn judge_place(&self, place: &Place) -> Result<Verdict> {
        let found = match self.client.lookup(&self.credentials, place.parent, &place.name).await {
            Ok(attr) => Some(attr.kind),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        judge_target(found, self.rules.existing)
    }

    /// Makes a symbolic link.
    pub async fn link(&self, place: &Place, target: &[u8]) -> Result<Copied> {
        if self.judge_place(place).await? == Verdict::Skip {
            return Ok(Copied::Skipped);
        }
        let Place { parent, name } = place;
        let (client, credentials) = (&self.client, &self.credentials);
        if self.rules.existing == Existing::Replace {
            let temporary = temporary_name();
            client.symlink(credentials, *parent, &temporary, target).await?;
            replace(client, credentials, &temporary, place).await?;
        } else {
            client.symlink(credentials, *parent, name, target).await?;
        }
        Ok(Copied::Link)
    }
}

/// A file that is being written and has no name yet.
pub(super) struct Landing {
    client: Client,
    credentials: Credentials,
    rules: Rules,
    place: Place,
    inode: InodeId,
    pub handle: Handle,
}

impl Landing {
    /// A new file for this place, with these permission bits.
    pub async fn create(tools: &Tools, place: Place, mode: u32, hosts: &[HostName]) -> Result<Self> {
        let Tools { client, credentials, rules, .. } = tools.clone();
        let new = UnnamedFile {
            directory: place.parent,
            mode: mode & 0o777,
            umask: umask(),
            linkable: true,
            access: Access::Write,
            hosts,
        };
        let (handle, Attr { inode, .. }) = client.create_unnamed(&credentials, new).await?;
        Ok(Self { client, credentials, rules, place, inode, handle })
    }

    /// Syncs the file, sets the attributes that it keeps, and gives it its name. `done`: how its copying ended.
    ///
    /// # Errors
    /// That of `done`; `Exists` if a file has got the name meanwhile and may not be replaced.
    pub async fn finish(self, done: Result<u64>, kept: Option<Kept>) -> Result<Copied> {
        let named = match done {
            Ok(bytes) => self.give_name(kept).await.map(|was_named| match was_named {
                Verdict::Copy => Copied::File(bytes),
                Verdict::Skip => Copied::Skipped,
            }),
            Err(error) => Err(error),
        };
        // Without a name, the file is gone when it is closed.
        self.client.close(self.handle).await;
        named
    }

    async fn give_name(&self, kept: Option<Kept>) -> Result<Verdict> {
        self.client.fsync(self.handle).await?;
        if let Some(kept) = kept.filter(|_| self.rules.attributes == Attributes::All) {
            self.keep(kept).await?;
        }
        let Place { parent, name } = &self.place;
        if self.rules.existing == Existing::Replace {
            let temporary = temporary_name();
            self.client.link(&self.credentials, self.inode, *parent, &temporary).await?;
            replace(&self.client, &self.credentials, &temporary, &self.place).await?;
            return Ok(Verdict::Copy);
        }
        match self.client.link(&self.credentials, self.inode, *parent, name).await {
            Err(error) if error.kind() == ErrorKind::Exists && self.rules.existing == Existing::Skip => {
                Ok(Verdict::Skip)
            }
            Err(error) if error.kind() == ErrorKind::Exists => Err(exists()),
            linked => linked.map(|_| Verdict::Copy),
        }
    }

    async fn keep(&self, kept: Kept) -> Result<()> {
        let set = |set| self.client.set_attr(&self.credentials, self.inode, set);
        let mut mode = kept.mode;
        if self.credentials.is_root() {
            set(SetAttr { uid: Some(kept.uid), gid: Some(kept.gid), ..SetAttr::default() }).await?;
        } else {
            // Another owner's privileges are not this user's to give.
            mode &= 0o1777;
        }
        let (atime, mtime) = (Some(SetTime::At(kept.atime)), Some(SetTime::At(kept.mtime)));
        set(SetAttr { mode: Some(mode), atime, mtime, ..SetAttr::default() }).await.map(drop)
    }
}

/// Renames a temporary name over a place. The temporary name goes if that fails.
async fn replace(client: &Client, credentials: &Credentials, temporary: &[u8], place: &Place) -> Result<()> {
    let Place { parent, name } = place;
    let rename = Rename {
        source_parent: *parent,
        source_name: temporary,
        target_parent: *parent,
        target_name: name,
        mode: RenameMode::Replace,
    };
    let renamed = client.rename(credentials, rename).await;
    if renamed.is_err() {
        let _ = client.unlink(credentials, *parent, temporary).await;
    }
    renamed
}

fn temporary_name() -> Vec<u8> {
    format!("{TEMPORARY}{:016x}", ebb_runtime::Runtime::real().random_u64()).into_bytes()
}

/// A new directory's name and mode.
pub(super) fn new_directory(place: &Place, mode: u32) -> NewName<'_> {
    NewName { parent: place.parent, name: &place.name, mode, umask: umask() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_kept_replaced_or_skipped_by_the_rules() {
        let judge = |found, existing| judge_target(found, existing).map_err(|error| error.kind());
        for existing in [Existing::Refuse, Existing::Replace, Existing::Skip] {
            assert_eq!(judge(None, existing), Ok(Verdict::Copy));
            assert_eq!(judge(Some(FileKind::Directory), existing), Err(ErrorKind::IsDirectory));
        }
        assert_eq!(judge(Some(FileKind::File), Existing::Refuse), Err(ErrorKind::Exists));
        assert_eq!(judge(Some(FileKind::File), Existing::Replace), Ok(Verdict::Copy));
        assert_eq!(judge(Some(FileKind::Symlink), Existing::Skip), Ok(Verdict::Skip));
    }
}
