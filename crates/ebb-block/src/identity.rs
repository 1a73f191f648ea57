//! The file `node` in a node's data directory: which node this is.
//!
//! ```text
//! ebb-node 1
//! cluster 81985529216486895
//! node 4
//! ```

use std::path::Path;

use ebb_runtime::Disk;
use ebb_types::{ClusterId, NodeId, Result, bail, err};

const NODE_FILE: &str = "node";
const FIRST_LINE: &str = "ebb-node 1";

/// The id that this directory's node has; 0 before its first registration.
pub(crate) async fn read(disk: &Disk, directory: &Path, cluster: ClusterId) -> Result<NodeId> {
    let path = directory.join(NODE_FILE);
    if !disk.exists(&path).await? {
        return Ok(NodeId::new(0));
    }
    let bytes = disk.read(&path).await?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let field = |line: Option<&str>, name: &str| -> Option<u64> { line?.strip_prefix(name)?.trim().parse().ok() };
    let mut lines = text.lines();
    let known = lines.next() == Some(FIRST_LINE);
    let fields = field(lines.next(), "cluster ").zip(field(lines.next(), "node "));
    let (found, node) = fields.filter(|_| known).ok_or_else(|| {
        err!(Corrupt, "{} does not say which node this is: restore it, or give an empty directory", path.display())
    })?;
    if found != cluster.raw() {
        bail!(
            Unauthorized,
            "{} belongs to cluster {}, not to {cluster}: give this node another directory",
            path.display(),
            ClusterId::new(found)
        );
    }
    Ok(NodeId::new(node))
}

/// Remembers the id durably.
pub(crate) async fn write(disk: &Disk, directory: &Path, cluster: ClusterId, node: NodeId) -> Result<()> {
    let text = format!("{FIRST_LINE}\ncluster {}\nnode {}\n", cluster.raw(), node.raw());
    disk.replace(&directory.join(NODE_FILE), text.into()).await
}
