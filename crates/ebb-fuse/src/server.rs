//! What is done with each request: the kernel's words in, calls of the [`Vfs`], the kernel's words out.

mod files;
mod locks;
mod names;

use std::sync::Arc;

use bytes::Bytes;
use ebb_types::{Error, ErrorKind, Result, err};

use crate::abi::reply::Validity;
use crate::abi::request::{Header, Request};
use crate::abi::{opcode, reply};
use crate::credentials;
use crate::interrupt::Interrupts;
use crate::invalidate::Invalidator;
use crate::vfs::Vfs;

use files::OpenFiles;
use locks::LockOwners;

/// Extended attribute of the root that tells which process serves the mount.
pub const PID_XATTR: &str = "user.ebb.mount.pid";

/// One mounted file system.
pub struct Server<V> {
    pub(crate) vfs: Arc<V>,
    validity: Validity,
    files: OpenFiles,
    lock_owners: LockOwners,
    pub(crate) interrupts: Interrupts,
    invalidator: Arc<Invalidator>,
}

impl<V: Vfs> Server<V> {
    /// A server of `vfs`, whose answers the kernel may keep for `validity`.
    pub fn new(vfs: Arc<V>, validity: Validity, invalidator: Arc<Invalidator>) -> Self {
        Self {
            vfs,
            validity,
            files: OpenFiles::default(),
            lock_owners: LockOwners::default(),
            interrupts: Interrupts::default(),
            invalidator,
        }
    }

    /// Does what is asked; the body of the reply.
    pub async fn perform(&self, header: &Header, request: Request) -> Result<Bytes> {
        match request {
            Request::Lookup { .. }
            | Request::GetAttr
            | Request::Statx
            | Request::SetAttr(_)
            | Request::ReadLink
            | Request::StatFs
            | Request::OpenDir
            | Request::ReadDir { .. }
            | Request::ReleaseDir
            | Request::FsyncDir => self.about_inode(header, request).await,
            Request::Symlink { .. }
            | Request::MakeNode { .. }
            | Request::MakeDir { .. }
            | Request::Unlink { .. }
            | Request::RemoveDir { .. }
            | Request::Rename { .. }
            | Request::Link { .. } => self.change_names(header, request).await,
            Request::SetXattr { .. }
            | Request::GetXattr { .. }
            | Request::ListXattr { .. }
            | Request::RemoveXattr { .. } => self.xattr(header, request).await,
            Request::Open { .. }
            | Request::Create { .. }
            | Request::Read { .. }
            | Request::Write { .. }
            | Request::Flush { .. }
            | Request::Release { .. }
            | Request::Fsync { .. }
            | Request::Allocate { .. }
            | Request::Seek { .. }
            | Request::CopyRange { .. } => self.on_file(header, request).await,
            Request::GetLock(lock) => self.test_lock(header, lock).await,
            Request::SetLock { lock, wait } => self.set_lock(header, lock, wait).await,
            Request::Forget | Request::Interrupt { .. } | Request::Destroy => Ok(Bytes::new()),
            Request::Unknown => Err(err!(Unsupported, "request {} is not offered", header.opcode)),
        }
    }

    /// The mount is gone: closes what programs had open, and gives everything back.
    pub async fn shut_down(&self) -> Result<()> {
        self.interrupts.close();
        for file in self.files.take_all() {
            self.vfs.close(file).await;
        }
        self.vfs.shut_down().await
    }
}

/// The error number for the kernel. What only an operator can mend is also logged, as programs see a number alone.
pub fn errno(header: &Header, error: &Error) -> i32 {
    if header.opcode != opcode::STATFS && error.kind().raw() >= ErrorKind::StaleEpoch.raw() {
        tracing::warn!(request = header.opcode, inode = %header.inode, kind = ?error.kind(), %error, "fail a request");
    }
    match error.kind() {
        // ENOSYS makes the kernel stop asking; EOPNOTSUPP would be told to the program each time.
        ErrorKind::Unsupported if is_unknown(header.opcode) => libc::ENOSYS,
        _ => error.errno(),
    }
}

fn is_unknown(number: u32) -> bool {
    !matches!(number, opcode::LOOKUP..=opcode::DESTROY | opcode::BATCH_FORGET..=opcode::COPY_FILE_RANGE)
        && !matches!(number, opcode::STATX | opcode::COPY_FILE_RANGE_64)
        || matches!(number, 34 | 37)
}

/// Credentials for a change, which is checked again behind the kernel.
fn caller(header: &Header) -> ebb_types::Credentials {
    credentials::with_groups(header)
}

fn empty<T>(_: T) -> Bytes {
    Bytes::new()
}

impl<V: Vfs> Server<V> {
    fn entry(&self, attr: &crate::vfs::Attr) -> Bytes {
        reply::entry(attr, self.validity)
    }
}
