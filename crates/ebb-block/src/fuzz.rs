//! What `ebb-fuzz` sees of this crate: the node's file as a function of bytes alone.

use std::path::Path;

use ebb_types::{ClusterId, NodeId};

use crate::identity;

const CLUSTER: ClusterId = ClusterId::new(7);

/// `node`.
#[must_use]
pub fn identity(bytes: &[u8]) -> bool {
    identity::decode(bytes, Path::new("node"), CLUSTER).is_ok()
}

/// Files of two clusters.
#[must_use]
pub fn identities() -> Vec<Vec<u8>> {
    [CLUSTER, ClusterId::new(u64::MAX)].map(|cluster| identity::text(cluster, NodeId::new(4)).into_bytes()).to_vec()
}
