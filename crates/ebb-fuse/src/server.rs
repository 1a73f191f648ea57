//! Carries out each request: it turns the request into calls of the [`Vfs`], and their results into
//! the body of the reply.

mod complaint;
mod files;
mod gone;
mod locks;
mod names;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::{Error, ErrorKind, InodeId, Result};

use crate::abi::init::KernelAbilities;
use crate::abi::reply;
use crate::abi::reply::Validity;
use crate::abi::request::{Header, LockRequest, Request};
use crate::credentials;
use crate::interrupt::Interrupts;
use crate::kernel_cache::KernelCache;
use crate::vfs::{Attr, Vfs};

use files::OpenFiles;
use locks::LockOwners;

/// Extended attribute of the root with the id of the process that serves the mount, in decimal.
///
/// It distinguishes a served mount from a stale one, even if the cluster does not answer:
/// - The process answers it without a request to the cluster.
/// - For names that begin with `system.` the kernel checks no permission (`xattr_permission`), and
///   so requests no attributes.
pub const PID_XATTR: &str = "system.ebb.mount.pid";

/// One mounted file system.
pub struct Server<V> {
    pub(crate) vfs: Arc<V>,
    least: Validity,
    kernel: KernelAbilities,
    files: OpenFiles,
    lock_owners: LockOwners,
    pub(crate) interrupts: Interrupts,
    caches: KernelCache,
}

impl<V: Vfs> Server<V> {
    /// A server of `vfs`.
    ///
    /// The kernel may keep its answers for at least `least`. It may keep them longer if the file
    /// system allows it, and if the kernel can be made to drop them.
    pub fn new(vfs: Arc<V>, least: Validity, kernel: KernelAbilities, caches: KernelCache) -> Self {
        Self {
            vfs,
            least,
            kernel,
            files: OpenFiles::default(),
            lock_owners: LockOwners::default(),
            interrupts: Interrupts::default(),
            caches,
        }
    }

    /// Carries out a request, and returns the body of the reply.
    pub async fn perform(&self, header: &Header, request: Request) -> Result<Bytes> {
        let (name, about) = (complaint::name_of(&request), gone::About::of(&request));
        let done = self.dispatch(header, request).await.map_err(|error| about.for_program(error));
        done.inspect_err(|error| self.complain(header, name.as_ref(), error))
    }

    async fn dispatch(&self, header: &Header, request: Request) -> Result<Bytes> {
        match request {
            Request::Inode(request) => self.about_inode(header, request).await,
            Request::Names(request) => self.change_names(header, request).await,
            Request::Xattr(request) => self.xattr(header, request).await,
            Request::File(request) => self.on_file(header, request).await,
            Request::Lock(LockRequest::GetLock(lock)) => self.test_lock(header, lock).await,
            Request::Lock(LockRequest::SetLock { lock, if_locked }) => self.set_lock(header, lock, if_locked).await,
            // The session handles these itself, except DESTROY, which needs only an empty reply.
            Request::Control(_) => Ok(Bytes::new()),
        }
    }

    /// Closes all open files and shuts the file system down, at the end of the mount.
    pub async fn shut_down(&self) -> Result<()> {
        self.interrupts.close();
        for file in self.files.take_all() {
            self.vfs.close(file).await;
        }
        self.vfs.shut_down().await
    }
}

/// The error number that the kernel gets for `error`.
pub fn errno(error: &Error) -> i32 {
    match error.kind() {
        kind if kind < ErrorKind::StaleEpoch => error.errno(),
        ErrorKind::Timeout => libc::ETIMEDOUT,
        // Not the kind's own number. ENOTCONN would mean that the mount is dead, and EAGAIN that a
        // retry is enough.
        _ => libc::EIO,
    }
}

/// Credentials for a change. The file system checks a change again after the kernel.
fn caller(header: &Header) -> ebb_types::Credentials {
    credentials::with_groups(header)
}

fn empty<T>(_: T) -> Bytes {
    Bytes::new()
}

impl<V: Vfs> Server<V> {
    fn entry(&self, parent: InodeId, name: &[u8], attr: &Attr) -> Bytes {
        reply::entry(attr, self.validity(parent, name, attr))
    }

    fn attr_validity(&self, attr: &Attr) -> Validity {
        let kept = if self.caches.is_guarded(attr.inode) { Duration::ZERO } else { self.vfs.attr_validity(attr) };
        Validity { attr: self.least.attr.max(kept), ..self.least }
    }

    fn validity(&self, parent: InodeId, name: &[u8], attr: &Attr) -> Validity {
        Validity { entry: self.name_validity(parent, name, Some(attr.inode)), ..self.attr_validity(attr) }
    }

    fn name_validity(&self, parent: InodeId, name: &[u8], leads: Option<InodeId>) -> Duration {
        let kept = if self.kernel.keeps_names { self.vfs.name_validity(parent, name, leads) } else { Duration::ZERO };
        self.least.entry.max(kept)
    }
}
