//! What the kernel is told of an inode that is there no more.
//!
//! A system call that takes a path asks in steps: the kernel looks names up, from its own memory where it may, and then
//! asks for the inode that it found. In between the name may be replaced or removed, here or by another mount. The inode
//! stays for a while for those who come late, so such a call goes on with the file that it found. What follows is for who
//! comes later still.
//!
//! ESTALE is the kernel's word for "what you looked up is gone". It is never for programs: every system call that takes a
//! path begins again when it meets it, once, and then believes none of the names that it has kept (`retry_estale` and
//! `LOOKUP_REVAL`, fs/namei.c: open, stat, access, chmod, chown, truncate, utimes, readlink, xattrs, link, rename, unlink).
//! ENOENT would be passed on: of a name that was there all the time. So it is kept for names.
//!
//! On an open file there is nothing to look up again, and the kernel passes ESTALE on. Programs know EIO.

use ebb_types::{Error, ErrorKind};

use crate::abi::request::{FileRequest, InodeRequest, LockRequest, NameRequest, Request, XattrRequest};

/// What a request is about, as far as something may be gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum About {
    /// An inode that a name led to.
    LookedUp,
    /// A file that a program has open.
    Open,
    /// A name of a directory.
    Name,
}

impl About {
    pub(super) fn of(request: &Request) -> Self {
        match request {
            Request::Inode(InodeRequest::GetAttr)
            | Request::Inode(InodeRequest::Statx)
            | Request::Inode(InodeRequest::SetAttr(_))
            | Request::Inode(InodeRequest::ReadLink)
            | Request::Inode(InodeRequest::StatFs)
            | Request::File(FileRequest::Open { .. })
            | Request::Names(NameRequest::Link { .. })
            | Request::Xattr(XattrRequest::SetXattr { .. })
            | Request::Xattr(XattrRequest::GetXattr { .. })
            | Request::Xattr(XattrRequest::ListXattr { .. })
            | Request::Xattr(XattrRequest::RemoveXattr { .. }) => Self::LookedUp,
            Request::File(FileRequest::Read { .. })
            | Request::File(FileRequest::Write { .. })
            | Request::File(FileRequest::Flush { .. })
            | Request::File(FileRequest::Fsync { .. })
            | Request::File(FileRequest::Allocate { .. })
            | Request::File(FileRequest::Seek { .. })
            | Request::File(FileRequest::CopyRange { .. })
            | Request::Lock(LockRequest::GetLock(_))
            | Request::Lock(LockRequest::SetLock { .. }) => Self::Open,
            _ => Self::Name,
        }
    }

    /// The error as the kernel is told it.
    pub(super) fn told(self, error: Error) -> Error {
        match (self, error.kind()) {
            (Self::LookedUp, ErrorKind::NotFound) => Error::new(ErrorKind::Stale, error.detail().to_owned()),
            (Self::Open, ErrorKind::Stale | ErrorKind::NotFound) => {
                Error::new(ErrorKind::Io, format!("an open file is gone: {}", error.detail()))
            }
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::err;

    use super::*;

    #[test]
    fn what_is_gone_is_looked_up_again_and_programs_never_hear_of_stale_handles() {
        let told = |about: About, kind: ErrorKind| about.told(Error::new(kind, "i7 was removed")).kind();
        assert_eq!(About::of(&Request::Inode(InodeRequest::GetAttr)), About::LookedUp);
        assert_eq!(About::of(&Request::File(FileRequest::Fsync { file: 1 })), About::Open);
        assert_eq!(About::of(&Request::Inode(InodeRequest::Lookup { name: b"a".as_slice().into() })), About::Name);
        for kind in [ErrorKind::NotFound, ErrorKind::Stale] {
            assert_eq!(told(About::LookedUp, kind), ErrorKind::Stale);
            assert_eq!(told(About::Open, kind), ErrorKind::Io);
            assert_eq!(told(About::Name, kind), kind);
        }
        let denied = About::LookedUp.told(err!(AccessDenied, "no"));
        assert_eq!((denied.kind(), denied.detail()), (ErrorKind::AccessDenied, "no"));
    }
}
