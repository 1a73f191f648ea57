//! Versions of a cluster: what its log, its checkpoints and its nodes may use (`ebb_meta::version`).

/// The version of clusters from before there were versions.
pub const OLDEST: u32 = 1;
/// The newest version that this release knows. 2: tokens and revocations.
pub const NEWEST: u32 = 2;
