//! Log messages of failed requests. Programs get only an error number.

use bytes::Bytes;
use ebb_types::{Error, ErrorKind};

use super::Server;
use crate::abi::opcode as op;
use crate::abi::request::{FileRequest, Header, InodeRequest, NameRequest, Request};
use crate::vfs::Vfs;

impl<V: Vfs> Server<V> {
    /// Logs an error that only an operator can mend. `name`: name of the entry in the request,
    /// if it has one.
    pub(super) fn complain(&self, header: &Header, name: Option<&Bytes>, error: &Error) {
        if error.kind() < ErrorKind::StaleEpoch {
            return;
        }
        // The path of a file that was never looked up, or is forgotten, is unknown.
        let path = self.vfs.path_of(header.inode).unwrap_or_else(|| format!("the file of inode {}", header.inode));
        let at = match name {
            Some(name) => format!("{}/{}", path.trim_end_matches('/'), String::from_utf8_lossy(name)),
            None => path,
        };
        tracing::warn!(kind = ?error.kind(), "cannot {} {at}: {error}", verb(header.opcode));
    }
}

/// Name of an entry in the request's directory, if the request has one.
pub(super) fn name_of(request: &Request) -> Option<Bytes> {
    match request {
        Request::Inode(InodeRequest::Lookup { name })
        | Request::Names(NameRequest::Symlink { name, .. })
        | Request::Names(NameRequest::MakeNode { name, .. })
        | Request::Names(NameRequest::MakeDir { name, .. })
        | Request::Names(NameRequest::Unlink { name })
        | Request::Names(NameRequest::RemoveDir { name })
        | Request::Names(NameRequest::Link { name, .. })
        | Request::File(FileRequest::Create { name, .. }) => Some(name.clone()),
        Request::Names(NameRequest::Rename { source, .. }) => Some(source.clone()),
        _ => None,
    }
}

/// Operation of the program, as words that follow "cannot".
fn verb(opcode: u32) -> &'static str {
    match opcode {
        op::LOOKUP => "look up",
        op::GETATTR | op::STATX => "tell the attributes of",
        op::SETATTR => "set attributes of",
        op::READLINK => "read the link",
        op::SYMLINK => "make the symbolic link",
        op::MKNOD | op::CREATE => "make",
        op::TMPFILE => "make a file without a name in",
        op::MKDIR => "make the directory",
        op::UNLINK => "remove",
        op::RMDIR => "remove the directory",
        op::RENAME | op::RENAME2 => "rename",
        op::LINK => "make the hard link",
        op::OPEN | op::OPENDIR => "open",
        op::READ => "read",
        op::WRITE => "write",
        op::STATFS => "tell the space of",
        op::RELEASE | op::RELEASEDIR | op::FLUSH => "close",
        op::FSYNC | op::FSYNCDIR => "sync",
        op::SETXATTR | op::REMOVEXATTR => "change extended attributes of",
        op::GETXATTR | op::LISTXATTR => "read extended attributes of",
        op::READDIR | op::READDIRPLUS => "list",
        op::GETLK | op::SETLK | op::SETLKW => "lock",
        op::FALLOCATE => "allocate space of",
        op::LSEEK => "look for data or holes in",
        op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => "copy from",
        _ => "do what was asked with",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_has_the_name_that_its_request_had() {
        let name = Bytes::from_static(b"x");
        assert_eq!(name_of(&Request::Names(NameRequest::Unlink { name: name.clone() })), Some(name));
        assert_eq!(name_of(&Request::Inode(InodeRequest::GetAttr)), None);
        assert_eq!(verb(op::WRITE), "write");
    }
}
