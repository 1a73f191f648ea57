//! Changes of attributes.

use ebb_types::WallTime;

use super::Privileges;

/// Attributes to set; `None` leaves a field alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits with suid, sgid and sticky.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// The caller has the file open for writing (ftruncate): its mode is not checked again.
    pub by_handle: bool,
    /// What a new size does to set-user-id and set-group-id.
    pub privileges: Privileges,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The master's now.
    Now,
    /// This.
    At(WallTime),
}
