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
    let position = ebb_wire::pb::Position { lineage: 17, run: 3, mark: 99, index: 1234 };
    let identity = identity::Identity { node: Some(NodeId::new(4)), position };
    [CLUSTER, ClusterId::new(u64::MAX)].map(|cluster| identity::text(cluster, &identity).into_bytes()).to_vec()
}
