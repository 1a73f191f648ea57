//! An operator's view of RAID sets, and of the room that they may take.

use ebb_types::{NodeId, Result};
use ebb_wire::pb;

use super::PowerCluster;

impl PowerCluster {
    /// Bytes of each dataset, by what their metablocks are.
    pub async fn raid_status(&self) -> Result<Vec<pb::RaidDataset>> {
        Ok(self.ask(&self.master_address(), &pb::RaidStatus::default()).await?.datasets)
    }

    /// Bytes of files in RAID sets. `None` while copies are still to leave.
    pub async fn thin_bytes(&self) -> Result<Option<u64>> {
        let encoded = self.raid_status().await?.iter().map(|one| one.encoded_bytes).sum();
        let sets = self.raid_sets().await?;
        let mut slots = sets.iter().flat_map(|one| &one.set).flat_map(|set| &set.slots);
        Ok(slots.all(|slot| slot.leaving.is_empty()).then_some(encoded))
    }

    /// Every RAID set as it is recorded.
    pub async fn raid_sets(&self) -> Result<Vec<pb::DescribedRaidSet>> {
        let mut sets = Vec::new();
        let mut from = 0;
        loop {
            let call = pb::DescribeRaidSets { from, ..Default::default() };
            let reply = self.ask(&self.master_address(), &call).await?;
            sets.extend(reply.sets);
            if reply.next == 0 {
                return Ok(sets);
            }
            from = reply.next;
        }
    }

    /// Something else fills a node's disk, so that this many bytes are free; `None`: it is gone again.
    pub fn fill_disk(&self, node: NodeId, free_bytes: Option<u64>) -> Result<()> {
        self.nodes.blocks[self.nodes.place(node)?].fill_disk(free_bytes);
        Ok(())
    }
}
