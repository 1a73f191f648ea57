//! The caller's request for places.

use std::sync::Arc;

use ebb_types::{HostName, InodeId, NodeClass, NodeId, VolumeId};

use crate::LayoutKind;
use crate::chain::ChainView;

/// Copies of one metablock, some of which may exist already.
#[derive(Clone, PartialEq, Debug)]
pub struct Ask {
    /// The dataset's layout.
    pub layout: LayoutKind,
    /// The dataset's chain and the copies on it; for layouts that have one.
    pub chain: Option<Arc<ChainView>>,
    /// Copies in all, `present` included.
    pub replicas: usize,
    /// Nodes that may take a copy.
    pub on: NodeClass,
    /// Host of the writer: the first copy goes there if it has a usable node, else to the localized storage node that serves it.
    pub writer: HostName,
    /// Write affinity (metablocks paper, G7): `preferred[index % len]` names the host of the first copy and takes
    /// precedence over the writer's. Empty: no wish.
    pub preferred: Vec<HostName>,
    /// Which metablock of the file.
    pub index: u64,
    /// The file.
    pub inode: InodeId,
    /// Members that stay; a repair or a replacement asks for the rest.
    pub present: Vec<(NodeId, VolumeId)>,
    /// Nodes that take no new copy, besides those of `present`.
    pub exclude: Vec<NodeId>,
    /// Room that each copy needs, in bytes.
    pub bytes: u64,
    /// Source of all randomness; the file and the index are mixed in, so that one seed serves many metablocks.
    pub seed: u64,
}

impl Ask {
    /// Copies still to be placed.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.replicas.saturating_sub(self.present.len())
    }

    /// The host that write affinity names for this metablock.
    #[must_use]
    pub fn preferred_host(&self) -> Option<&HostName> {
        let len = u64::try_from(self.preferred.len()).expect("a length fits in 64 bits");
        let turn = self.index.checked_rem(len)?;
        self.preferred.get(usize::try_from(turn).expect("below a length that is a usize"))
    }
}
