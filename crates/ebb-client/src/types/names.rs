//! Operations on names, directories and extended attributes.

use ebb_types::{Attr, Error, FileKind, HostName, InodeId, Result, err};
use ebb_wire::attributes::optional_attr;
use ebb_wire::pb;

use super::{Access, Handle};

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
    /// Makes a new file that takes the place of the existing one, in one step. Whoever has that one open keeps it.
    Replace,
}

/// A file to be made without a name, and opened (O_TMPFILE of open(2)).
#[derive(Clone, Copy, Debug)]
pub struct UnnamedFile<'a> {
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
    /// Write affinity (G7): the hosts for its data. Empty: the layout decides.
    pub hosts: &'a [HostName],
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
    /// Attributes, and where files lie.
    Maps,
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

/// A file that was opened by its name, or made.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// The open file.
    pub handle: Handle,
    /// Its attributes.
    pub attr: Attr,
    /// A file of this name was there, and was opened.
    pub existed: bool,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode that it names.
    pub inode: InodeId,
    /// The inode's type.
    pub kind: FileKind,
    /// Where a listing goes on after this entry; never 0 and below 2^63 - 2.
    pub cookie: u64,
    /// Attributes, if they were asked for.
    pub attr: Option<Attr>,
    /// Where a file lies, if that was asked for and is known: without a question to a writer that holds more.
    pub map: Option<Vec<pb::Metablock>>,
}

impl TryFrom<pb::DirEntry> for DirEntry {
    type Error = Error;

    /// `Protocol`: the inode is of a kind that this build does not know.
    fn try_from(from: pb::DirEntry) -> Result<Self> {
        let kind = FileKind::from_raw(from.kind)
            .ok_or_else(|| err!(Protocol, "inode i{} is of kind {}, which is unknown here", from.inode, from.kind))?;
        let (inode, attr) = (InodeId::new(from.inode), optional_attr(from.attr)?);
        // A reply has a part of a long map. A file that is not written to its end looks like that, and is asked for as well.
        let is_whole = |attr: &Attr| {
            let unit = attr.storage.geometry.metablock_size;
            !attr.size_unknown && from.metablocks.len() as u64 >= attr.size.div_ceil(unit.max(1))
        };
        let is_known = kind == FileKind::File && !from.unsettled && attr.as_ref().is_some_and(is_whole);
        Ok(Self { name: from.name, inode, kind, cookie: from.cookie, attr, map: is_known.then_some(from.metablocks) })
    }
}

/// Sums over an inode and everything below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Bytes in files. A file with several names counts at each of them.
    pub bytes: u64,
    /// Bytes of all copies, as far as they are recorded.
    pub stored_bytes: u64,
    /// Names of everything but directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
}

/// A part of a directory's listing.
#[derive(Clone, Debug, Default)]
pub struct DirPage {
    /// Entries in the order of the listing.
    pub entries: Vec<DirEntry>,
    /// The directory ends with them.
    pub is_last: bool,
}

/// Space of the file system's live volumes, and its inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// All space, in bytes of replicas.
    pub capacity_bytes: u64,
    /// Space that is not used, in bytes of replicas.
    pub free_bytes: u64,
    /// Space that replicas take, in bytes.
    pub used_bytes: u64,
    /// Space for new data, in bytes of one copy: each of its copies needs room on another node.
    pub available_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Number of copies in the dataset that was asked for; 1 at least.
    pub copies: u32,
}

impl StatFs {
    /// Bytes of user data that so many bytes of replicas hold.
    #[must_use]
    pub fn of_one_copy(&self, replica_bytes: u64) -> u64 {
        replica_bytes / u64::from(self.copies.max(1))
    }
}

impl From<pb::StatFsReply> for StatFs {
    fn from(reply: pb::StatFsReply) -> Self {
        Self {
            capacity_bytes: reply.capacity_bytes,
            free_bytes: reply.free_bytes,
            used_bytes: reply.used_bytes,
            available_bytes: reply.available_bytes,
            inodes: reply.inodes,
            copies: reply.replicas.max(1),
        }
    }
}
