//! Names in the trash of a dataset.
//!
//! The root directory of a dataset with a trash has [`DIRECTORY`]. In it each user has a directory, named by the number of
//! the user. It has one directory for each removal, with [`FORMER_PATH`] as an attribute and what was removed as its only
//! entry.

/// Name of the trash in the root directory of a dataset.
pub const DIRECTORY: &[u8] = b".trash";

/// Extended attribute of a removal: the path of what was removed. A directory without it does not expire.
pub const FORMER_PATH: &[u8] = b"user.ebb.trash";
