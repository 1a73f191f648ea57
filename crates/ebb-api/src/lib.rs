//! The file system by paths: the interface for programs that are no mount.
//!
//! | module | contents |
//! |---|---|
//! | [`settings`], [`secret`] | where a cluster is; sessions inside other programs |
//! | [`caller`] | a session and the user on whose behalf it is used: names, attributes, listings |
//! | [`mod@file`] | open files |
//! | [`first`] | where the first copies of new files go |
//! | [`places`] | where a file's bytes lie, and whether they can be read there now |
//! | [`path`] | paths: bytes from the root |
//! | [`acl`] | access control lists |
//! | [`users`] | names of users and groups: the system's, then the cluster's |
//! | [`explain`] | errors in the words of a user, who knows paths and no inode numbers |
//!
//! No kernel has checked what a user may do. So every call resolves its path at the master, as the user, and listings are
//! checked there as well: two users of one process see what two mounts would show them.
#![forbid(unsafe_code)]

pub mod acl;
pub mod caller;
pub mod explain;
pub mod file;
pub mod first;
pub mod path;
pub mod places;
pub mod secret;
pub mod settings;
pub mod users;

pub use caller::Caller;
pub use file::File;
pub use path::EbbPath;
pub use settings::Settings;
