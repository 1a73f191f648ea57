//! Operations on names, directories and extended attributes.

use ebb_types::{HostName, InodeId};

use super::Access;

/// A name to be made, and the mode of the new inode.
#[derive(Clone, Copy, Debug)]
pub struct NewName<'a> {
    /// The directory.
    pub parent: InodeId,
    /// The name in it.
    pub name: &'a [u8],
    /// Permission bits as the program asked for them.
    pub mode: u32,
    /// The program's mask; a default ACL of the directory replaces it.
    pub umask: u32,
}

/// A file to be made, and opened.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    /// Its name and mode.
    pub name: NewName<'a>,
    /// What happens if the name exists.
    pub if_exists: IfExists,
    /// What it is opened for.
    pub access: Access,
    /// Write affinity (G7): the hosts for its data. Empty: the layout decides.
    pub hosts: &'a [HostName],
}

impl<'a> NewFile<'a> {
    /// A file of mode 0644 that must be new.
    #[must_use]
    pub const fn exclusive(parent: InodeId, name: &'a [u8], access: Access) -> Self {
        let name = NewName { parent, name, mode: 0o644, umask: 0 };
        Self { name, if_exists: IfExists::Fail, access, hosts: &[] }
    }

    /// A file of mode 0644, or the existing file of this name.
    #[must_use]
    pub const fn or_existing(parent: InodeId, name: &'a [u8], access: Access) -> Self {
        Self { if_exists: IfExists::Open, ..Self::exclusive(parent, name, access) }
    }
}

/// What creating a file does if the name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// Fails with `Exists` (O_EXCL).
    Fail,
    /// Opens the existing file.
    Open,
}

/// A file to be made without a name, and opened (O_TMPFILE of open(2)).
#[derive(Clone, Copy, Debug)]
pub struct UnnamedFile {
    /// The directory whose dataset it belongs to.
    pub directory: InodeId,
    /// Permission bits as the program asked for them.
    pub mode: u32,
    /// The program's mask; a default ACL of the directory replaces it.
    pub umask: u32,
    /// It may get a name before it is closed (no O_EXCL).
    pub linkable: bool,
    /// What it is opened for.
    pub access: Access,
}

/// A call of renameat2(2).
#[derive(Clone, Copy, Debug)]
pub struct Rename<'a> {
    /// Directory of the old name.
    pub source_parent: InodeId,
    /// Old name.
    pub source_name: &'a [u8],
    /// Directory of the new name.
    pub target_parent: InodeId,
    /// New name.
    pub target_name: &'a [u8],
    /// What happens to an existing target.
    pub mode: RenameMode,
}

/// What rename does with an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// Fails with `Exists`.
    NoReplace,
    /// Swaps the two names; both must exist.
    Exchange,
}

/// What a directory listing has of each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryDetail {
    /// Name, inode and kind.
    Names,
    /// Attributes too.
    Attributes,
}

/// How setxattr(2) treats an existing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Sets the value, whether it exists or not.
    Any,
    /// Fails with `Exists` if it exists.
    Create,
    /// Fails with `NoAttribute` if it does not exist.
    Replace,
}
