//! The file `node` in a node's data directory: which node this is, and the newest position of a master that it has noted.
//!
//! ```text
//! ebb-node 2
//! cluster 81985529216486895
//! node 4
//! position 17 3 99 1234
//! ```
//!
//! Format 1 has no position.

use std::path::Path;

use ebb_runtime::Disk;
use ebb_types::{ClusterId, NodeId, Result, bail, err};
use ebb_wire::pb;

const NODE_FILE: &str = "node";
/// Begins the file; a number, its format, follows.
const FIRST_WORD: &str = "ebb-node ";
const FORMAT: u64 = 2;
/// The one before, without a position, is read too.
const PLAIN: u64 = 1;

/// What the file says.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Identity {
    /// None before the first registration, which the file writes as 0.
    pub(crate) node: Option<NodeId>,
    /// Lineage 0: none yet.
    pub(crate) position: pb::Position,
}

/// What this directory's node knows of itself.
pub(crate) async fn read(disk: &Disk, directory: &Path, cluster: ClusterId) -> Result<Identity> {
    let path = directory.join(NODE_FILE);
    if !disk.exists(&path).await? {
        return Ok(Identity::default());
    }
    decode(&disk.read_replaced(&path).await?, &path, cluster)
}

/// What the file's bytes say; `path` is for messages.
pub(crate) fn decode(bytes: &[u8], path: &Path, cluster: ClusterId) -> Result<Identity> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let field = |line: Option<&str>, name: &str| -> Option<u64> { line?.strip_prefix(name)?.trim().parse().ok() };
    let mut lines = text.lines();
    let format = field(lines.next(), FIRST_WORD);
    if let Some(other) = format.filter(|format| !matches!(*format, PLAIN | FORMAT)) {
        bail!(
            Unsupported,
            "{} has format {other}, this release reads {PLAIN} and {FORMAT}: use the release that wrote it",
            path.display()
        );
    }
    let fields = field(lines.next(), "cluster ").zip(field(lines.next(), "node "));
    let position = match format {
        Some(FORMAT) => lines.next().and_then(position),
        _ => Some(pb::Position::default()),
    };
    let fields = fields.zip(position);
    let ((found, node), position) = fields.filter(|_| format.is_some()).ok_or_else(|| {
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
    Ok(Identity { node: (node != 0).then(|| NodeId::new(node)), position })
}

fn position(line: &str) -> Option<pb::Position> {
    let numbers = line.strip_prefix("position ")?.split(' ').map(|number| number.parse().ok());
    match numbers.collect::<Option<Vec<u64>>>()?[..] {
        [lineage, run, mark, index] => Some(pb::Position { lineage, run, mark, index }),
        _ => None,
    }
}

/// The file's contents.
pub(crate) fn text(cluster: ClusterId, identity: &Identity) -> String {
    let Identity { node, position: pb::Position { lineage, run, mark, index } } = identity;
    let position = format!("position {lineage} {run} {mark} {index}");
    format!("{FIRST_WORD}{FORMAT}\ncluster {}\nnode {}\n{position}\n", cluster.raw(), node.map_or(0, NodeId::raw))
}

/// Remembers it durably.
pub(crate) async fn write(disk: &Disk, directory: &Path, cluster: ClusterId, identity: &Identity) -> Result<()> {
    disk.replace(&directory.join(NODE_FILE), text(cluster, identity).into()).await
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    #[test]
    fn a_node_knows_itself_and_refuses_other_formats_by_name() {
        let (path, cluster) = (Path::new("/d/node"), ClusterId::new(5));
        let position = pb::Position { lineage: u64::MAX, run: 3, mark: 9, index: 1234 };
        let identity = Identity { node: Some(NodeId::new(4)), position };
        let written = text(cluster, &identity);
        assert_eq!(decode(written.as_bytes(), path, cluster).unwrap(), identity);
        let plain = Identity { position: pb::Position::default(), ..identity };
        assert_eq!(decode(b"ebb-node 1\ncluster 5\nnode 4\n", path, cluster).unwrap(), plain);
        for other in [0, 3] {
            let other = written.replace("ebb-node 2", &format!("ebb-node {other}"));
            let refused = decode(other.as_bytes(), path, cluster).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
            assert!(
                refused.to_string().contains("/d/node has format") && refused.to_string().contains("reads 1 and 2")
            );
        }
        let cut = written.replace(" 1234", "");
        assert_eq!(decode(cut.as_bytes(), path, cluster).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(decode(b"ebb-node 1\n", path, cluster).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(decode(written.as_bytes(), path, ClusterId::new(6)).unwrap_err().kind(), ErrorKind::Unauthorized);
    }
}
