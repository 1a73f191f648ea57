//! Open files.

use bytes::Bytes;
use ebb_client::{Access, Advice, Client, Handle, IfExists, NewFile, NewName};
use ebb_types::{Attr, Error, ErrorKind, FileKind, Result, bail};

use crate::caller::{Caller, NewMode};
use crate::explain::explain;
use crate::first::FirstCopies;
use crate::path::EbbPath;

/// How a file for writing is made or found.
#[derive(Clone, Debug)]
pub struct CreateFile {
    /// Permission bits of a new one.
    pub mode: NewMode,
    /// What happens if the name exists.
    pub if_exists: IfExists,
    /// Where the first copies of a new one go.
    pub first: FirstCopies,
}

/// When a file for writing counts as closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// Once every member has received all bytes: they survive the death of this process.
    Received,
    /// Once all bytes are on stable storage of every member.
    Synced,
}

/// An open file. Any number of tasks may use it at once. It must be closed: a dropped one stays open until its session ends.
#[derive(Debug)]
pub struct File {
    client: Client,
    handle: Handle,
    path: EbbPath,
    attr: Attr,
    access: Access,
}

impl Caller {
    /// Opens a file for reading.
    pub async fn open(&self, path: &EbbPath, advice: Advice) -> Result<File> {
        let attr = self.resolve(path).await?;
        check_is_file(path, &attr)?;
        let file = self.open_inode(path, attr, Access::Read).await?;
        if advice != Advice::Normal {
            self.client.advise(file.handle, advice)?;
        }
        Ok(file)
    }

    /// Makes a file, or opens the one that is there, for writing.
    pub async fn create(&self, path: &EbbPath, new: CreateFile) -> Result<File> {
        let (parent, name) = self.parent(path).await?;
        let NewMode { mode, umask } = new.mode;
        let name = NewName { parent, name, mode, umask };
        let hosts = new.first.hosts(path, || self.client.nodes(), self.client.host());
        let asked = NewFile { name, if_exists: new.if_exists, access: Access::Write, hosts: &hosts };
        match self.client.create(&self.credentials, asked).await {
            Ok(made) => Ok(self.file(path, made.handle, made.attr, Access::Write)),
            Err(error) => Err(self.explain(error, path)),
        }
    }

    /// Opens a file that exists for writing.
    pub async fn open_for_writing(&self, path: &EbbPath) -> Result<File> {
        let attr = self.resolve(path).await?;
        check_is_file(path, &attr)?;
        self.open_inode(path, attr, Access::Write).await
    }

    async fn open_inode(&self, path: &EbbPath, attr: Attr, access: Access) -> Result<File> {
        let opened = self.client.open(&self.credentials, attr.inode, access).await;
        let (handle, attr) = opened.map_err(|error| match error.kind() {
            // It was removed since its path was walked.
            ErrorKind::Stale => self.explain(Error::new(ErrorKind::NotFound, error.detail().to_owned()), path),
            _ => self.explain(error, path),
        })?;
        Ok(self.file(path, handle, attr, access))
    }

    fn file(&self, path: &EbbPath, handle: Handle, attr: Attr, access: Access) -> File {
        File { client: self.client.clone(), handle, path: path.clone(), attr, access }
    }
}

fn check_is_file(path: &EbbPath, attr: &Attr) -> Result<()> {
    match attr.kind {
        FileKind::File => Ok(()),
        FileKind::Directory => bail!(IsDirectory, "{} is a directory", path.shown()),
        _ => bail!(Invalid, "{path} is not a regular file"),
    }
}

impl File {
    /// Its attributes when it was opened.
    #[must_use]
    pub const fn attr(&self) -> &Attr {
        &self.attr
    }

    /// The path by which it was opened.
    #[must_use]
    pub const fn path(&self) -> &EbbPath {
        &self.path
    }

    fn told(&self, error: Error) -> Error {
        explain(error, &self.path, |inode| self.client.kept_path(inode))
    }

    /// How far reads through it go: little is read beyond `end`.
    pub fn expect_end(&self, end: u64) -> Result<()> {
        self.client.expect_end(self.handle, end)
    }

    /// How reads through it go on.
    pub fn advise(&self, advice: Advice) -> Result<()> {
        self.client.advise(self.handle, advice)
    }

    /// Takes the file over from whoever else has it open: what was written before stays, and handles that were opened before, but
    /// for this one, may write no more. It needs to be open for writing.
    pub async fn take_over(&self) -> Result<()> {
        self.client.take_over(self.handle).await.map_err(|error| self.told(error))
    }

    /// Its length as its writers have it now.
    pub async fn size(&self) -> Result<u64> {
        let attr = self.client.get_attr(self.client.own_user(), self.attr.inode).await;
        attr.map(|attr| attr.size).map_err(|error| self.told(error))
    }

    /// Reads from `offset` into `out`; returns the number of bytes, fewer than there is room for only at the end of the file.
    pub async fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.client.read_into(self.handle, offset, out).await.map_err(|error| self.told(error))
    }

    /// Bytes from `offset`, fewer only at the end of the file.
    pub async fn read(&self, offset: u64, len: u32) -> Result<Bytes> {
        self.client.read(self.handle, offset, len).await.map_err(|error| self.told(error))
    }

    /// CRC-32C of the first `length` bytes, by the checksums that are kept with them.
    pub async fn checksum(&self, length: u64) -> Result<u32> {
        self.client.checksum(self.handle, length).await.map_err(|error| self.told(error))
    }

    /// Writes behind the last byte; returns where. The bytes are in the writer's cache when it returns.
    pub async fn append(&self, data: Bytes) -> Result<u64> {
        self.client.append(self.handle, data).await.map_err(|error| self.told(error))
    }

    /// Returns when every member has received everything that was written. It survives the death of this process.
    pub async fn push(&self) -> Result<()> {
        self.client.push(self.handle).await.map_err(|error| self.told(error))
    }

    /// Returns when everything that was written is on stable storage of every member.
    pub async fn sync(&self) -> Result<()> {
        self.client.fsync(self.handle).await.map_err(|error| self.told(error))
    }

    /// Forgets the file; of one for writing, once what was written is as safe as asked for.
    ///
    /// # Errors
    /// Something that was written is lost, or may be. The file is closed all the same.
    pub async fn close(self, closing: Closing) -> Result<()> {
        self.finish(closing).await
    }

    /// The same for one that others may still use: their calls fail from now on.
    pub async fn finish(&self, closing: Closing) -> Result<()> {
        let synced = match closing {
            Closing::Synced if self.access.writes() => self.client.fsync(self.handle).await,
            _ => Ok(()),
        };
        let closed = self.client.push_and_close(self.handle).await;
        synced.and(closed).map_err(|error| self.told(error))
    }
}
