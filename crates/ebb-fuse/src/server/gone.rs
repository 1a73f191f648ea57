//! Error numbers for an inode that no longer exists.
//!
//! The kernel carries out a system call on a path in steps. It looks the names up, from its cache
//! where possible, and then makes a request about the inode. In between the name may be replaced or
//! removed, here or by another mount. The inode stays for a while, so that such a call goes on with
//! the file that it found. A request that comes later still gets an error from here.
//!
//! - **An inode that a name led to: ESTALE.** The kernel then repeats a call on a path once,
//!   without its cached names. It does so for open, stat, access, chmod, chown, truncate, utimes,
//!   readlink, xattrs, link, rename and unlink (`retry_estale` and `LOOKUP_REVAL`, fs/namei.c).
//! - **A name: ENOENT.** For an inode the kernel would pass ENOENT on to the program, although
//!   the name existed all the time.
//! - **An open file: EIO.** There is no name to look up again, so the kernel would pass ESTALE on.
//!   Programs know EIO.

use ebb_types::{Error, ErrorKind};

use crate::abi::request::{FileRequest, InodeRequest, LockRequest, NameRequest, Request, XattrRequest};

/// Subject of a request that may no longer exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum About {
    /// An inode that a name led to.
    LookedUp,
    /// A file that a program has open.
    Open,
    /// A name in a directory.
    Name,
}

impl About {
    pub(super) fn of(request: &Request) -> Self {
        match request {
            Request::Inode(InodeRequest::GetAttr)
            | Request::Inode(InodeRequest::Statx)
            | Request::Inode(InodeRequest::SetAttr { .. })
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

    /// Converts an error to the one that the kernel gets.
    pub(super) fn for_program(self, error: Error) -> Error {
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
    fn a_vanished_inode_is_looked_up_again_and_programs_see_no_stale_handle() {
        let for_program = |about: About, kind: ErrorKind| about.for_program(Error::new(kind, "i7 was removed")).kind();
        assert_eq!(About::of(&Request::Inode(InodeRequest::GetAttr)), About::LookedUp);
        assert_eq!(About::of(&Request::File(FileRequest::Fsync { file: 1 })), About::Open);
        assert_eq!(About::of(&Request::Inode(InodeRequest::Lookup { name: b"a".as_slice().into() })), About::Name);
        for kind in [ErrorKind::NotFound, ErrorKind::Stale] {
            assert_eq!(for_program(About::LookedUp, kind), ErrorKind::Stale);
            assert_eq!(for_program(About::Open, kind), ErrorKind::Io);
            assert_eq!(for_program(About::Name, kind), kind);
        }
        let denied = About::LookedUp.for_program(err!(AccessDenied, "no"));
        assert_eq!((denied.kind(), denied.detail()), (ErrorKind::AccessDenied, "no"));
    }
}
