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
/// Begins the file; a number, its format, follows.
const FIRST_WORD: &str = "ebb-node ";
const FORMAT: u64 = 1;

/// The id that this directory's node has; 0 before its first registration.
pub(crate) async fn read(disk: &Disk, directory: &Path, cluster: ClusterId) -> Result<NodeId> {
    let path = directory.join(NODE_FILE);
    if !disk.exists(&path).await? {
        return Ok(NodeId::new(0));
    }
    decode(&disk.read_replaced(&path).await?, &path, cluster)
}

/// The id in the file's bytes; `path` is for messages.
pub(crate) fn decode(bytes: &[u8], path: &Path, cluster: ClusterId) -> Result<NodeId> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let field = |line: Option<&str>, name: &str| -> Option<u64> { line?.strip_prefix(name)?.trim().parse().ok() };
    let mut lines = text.lines();
    let format = field(lines.next(), FIRST_WORD);
    if let Some(other) = format.filter(|format| *format != FORMAT) {
        bail!(
            Unsupported,
            "{} has format {other}, this release reads {FORMAT}: use the release that wrote it",
            path.display()
        );
    }
    let fields = field(lines.next(), "cluster ").zip(field(lines.next(), "node "));
    let (found, node) = fields.filter(|_| format.is_some()).ok_or_else(|| {
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

/// The file's contents.
pub(crate) fn text(cluster: ClusterId, node: NodeId) -> String {
    format!("{FIRST_WORD}{FORMAT}\ncluster {}\nnode {}\n", cluster.raw(), node.raw())
}

/// Remembers the id durably.
pub(crate) async fn write(disk: &Disk, directory: &Path, cluster: ClusterId, node: NodeId) -> Result<()> {
    disk.replace(&directory.join(NODE_FILE), text(cluster, node).into()).await
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    #[test]
    fn a_node_knows_itself_and_refuses_other_formats_by_name() {
        let (path, cluster) = (Path::new("/d/node"), ClusterId::new(5));
        let written = text(cluster, NodeId::new(4));
        assert_eq!(decode(written.as_bytes(), path, cluster).unwrap(), NodeId::new(4));
        for other in [0, 2] {
            let other = written.replace("ebb-node 1", &format!("ebb-node {other}"));
            let refused = decode(other.as_bytes(), path, cluster).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
            assert!(refused.to_string().contains("/d/node has format") && refused.to_string().contains("reads 1"));
        }
        assert_eq!(decode(b"ebb-node 1\n", path, cluster).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(decode(written.as_bytes(), path, ClusterId::new(6)).unwrap_err().kind(), ErrorKind::Unauthorized);
    }
}
