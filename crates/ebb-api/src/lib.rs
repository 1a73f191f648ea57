//! The file system by paths: the interface for programs that are no mount.
//!
//! | module | contents |
//! |---|---|
//! | [`caller`] | a session and the user on whose behalf it is used |
//! | [`path`] | paths: bytes from the root |
//! | [`explain`] | errors in the words of a user, who knows paths and no inode numbers |
//! | [`users`] | names of users and groups |
#![forbid(unsafe_code)]

pub mod caller;
pub mod explain;
pub mod path;
pub mod users;

pub use caller::Caller;
pub use path::EbbPath;
