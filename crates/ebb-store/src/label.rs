//! The file `volume`: the identity of a volume's directory. See `docs/formats/volume.md`.

use std::fmt::Write as _;
use std::path::Path;

use bytes::Bytes;
use ebb_types::{ClusterId, Error, Incarnation, NodeId, Result, VolumeId, bail, err};

use crate::crc::crc32c;

/// Version of everything in a volume's directory.
const FORMAT_VERSION: u64 = 4;
/// The previous version, without a count of starts. It can be read too.
const UNCOUNTED_VERSION: u64 = 3;

/// Name of the file.
pub(crate) const LABEL_FILE: &str = "volume";

/// The cluster and node that a directory belongs to, and the volume's own ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node; none before the first registration, which the file writes as 0.
    pub node: Option<NodeId>,
    /// The volume; 0 before the first registration.
    pub volume: VolumeId,
    /// This life of the directory.
    pub incarnation: Incarnation,
    /// Number of times that the volume was opened. 0: the label is from a release that did not count.
    pub starts: u64,
}

impl Label {
    /// The file's contents.
    pub(crate) fn encode(&self) -> Bytes {
        self.encode_as(FORMAT_VERSION)
    }

    fn encode_as(&self, version: u64) -> Bytes {
        let mut text = format!(
            "ebb-volume {version}\ncluster {}\nnode {}\nvolume {}\nincarnation {}\n",
            self.cluster.raw(),
            self.node.map_or(0, NodeId::raw),
            self.volume.raw(),
            self.incarnation.raw()
        );
        if version != UNCOUNTED_VERSION {
            writeln!(text, "starts {}", self.starts).expect("writing to a string");
        }
        let crc = crc32c(text.as_bytes());
        writeln!(text, "crc {crc:08x}").expect("writing to a string");
        text.into()
    }

    /// Reads the file's contents; `path` is for messages.
    pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Self> {
        let damaged = || err!(Corrupt, "{} is damaged: it does not read as the label of a volume", path.display());
        let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
        let mut lines = text.lines();
        let mut field = |name: &str| -> Result<u64, Error> {
            let (found, value) = lines.next().and_then(|line| line.split_once(' ')).ok_or_else(damaged)?;
            if found != name {
                return Err(damaged());
            }
            value.parse().map_err(|_| damaged())
        };
        let version = field("ebb-volume")?;
        if !matches!(version, UNCOUNTED_VERSION | FORMAT_VERSION) {
            bail!(
                Unsupported,
                "{} says format {version}, this program knows {UNCOUNTED_VERSION} and {FORMAT_VERSION}: use the release that wrote it",
                path.display()
            );
        }
        let label = Self {
            cluster: ClusterId::new(field("cluster")?),
            node: Some(field("node")?).filter(|node| *node != 0).map(NodeId::new),
            volume: VolumeId::new(field("volume")?),
            incarnation: Incarnation::new(field("incarnation")?),
            starts: if version == UNCOUNTED_VERSION { 0 } else { field("starts")? },
        };
        if label.encode_as(version) != bytes {
            return Err(damaged());
        }
        Ok(label)
    }

    /// Refuses a volume of another cluster or node. A node without an id on either side is unknown yet, and matches
    /// every node.
    pub(crate) fn check_owner(&self, cluster: ClusterId, node: Option<NodeId>, directory: &Path) -> Result<()> {
        let shown = directory.display();
        if self.cluster != cluster {
            bail!(
                Unauthorized,
                "{shown} is a volume of cluster {}, not of {cluster}: give this node another directory, or that cluster this one",
                self.cluster
            );
        }
        if let (Some(owner), Some(node)) = (self.node, node)
            && owner != node
        {
            bail!(
                Unauthorized,
                "{shown} is a volume of node {owner}, not of {node}: start the node with its own directories"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> Label {
        Label {
            cluster: ClusterId::new(5),
            node: Some(NodeId::new(4)),
            volume: VolumeId::new(7),
            incarnation: Incarnation::new(u64::MAX),
            starts: 6,
        }
    }

    #[test]
    fn labels_survive_and_damage_is_noticed() {
        let bytes = label().encode();
        assert!(bytes.starts_with(
            b"ebb-volume 4\ncluster 5\nnode 4\nvolume 7\nincarnation 18446744073709551615\nstarts 6\ncrc "
        ));
        assert_eq!(Label::decode(&bytes, Path::new("x")).unwrap(), label());
        for at in 0..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[at] ^= 1;
            assert!(Label::decode(&bad, Path::new("x")).is_err(), "byte {at}");
        }
        let newer = String::from_utf8(bytes.to_vec()).unwrap().replace("ebb-volume 4", "ebb-volume 5");
        assert!(Label::decode(newer.as_bytes(), Path::new("x")).unwrap_err().to_string().contains("format 5"));
        let uncounted = Label { starts: 0, ..label() };
        assert_eq!(Label::decode(&uncounted.encode_as(3), Path::new("x")).unwrap(), uncounted);
    }

    #[test]
    fn another_owner_is_refused_with_a_sentence() {
        let error = label().check_owner(ClusterId::new(6), Some(NodeId::new(4)), Path::new("/d/v")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/d/v is a volume of cluster c5, not of c6: give this node another directory, or that cluster this one"
        );
        assert!(label().check_owner(ClusterId::new(5), Some(NodeId::new(3)), Path::new("/d/v")).is_err());
        assert!(label().check_owner(ClusterId::new(5), None, Path::new("/d/v")).is_ok());
    }
}
