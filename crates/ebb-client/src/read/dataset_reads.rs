//! What members served this client of each dataset, for the master: it gives nodes to the datasets that are read
//! (docs/power/sharing.md).

use std::collections::BTreeMap;

use ebb_types::DatasetId;
use ebb_wire::pb;
use parking_lot::Mutex;

/// Datasets that are counted between two polls. Of more, those that come later are reported in a later poll.
const COUNTED_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DatasetReads(Mutex<BTreeMap<DatasetId, u64>>);

impl DatasetReads {
    /// A member served so many bytes.
    pub fn on_read(&self, dataset: DatasetId, bytes: u64) {
        let mut counted = self.0.lock();
        if counted.len() < COUNTED_MAX || counted.contains_key(&dataset) {
            let sum = counted.entry(dataset).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }

    /// What was read since the last call.
    pub fn take_counts(&self) -> Vec<pb::DatasetReads> {
        let counted = std::mem::take(&mut *self.0.lock());
        counted.into_iter().map(|(dataset, bytes)| pb::DatasetReads { dataset: dataset.raw(), bytes }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_summed_by_dataset_in_bounded_memory() {
        let reads = DatasetReads::default();
        (0..2 * COUNTED_MAX as u64).for_each(|dataset| reads.on_read(DatasetId::new(dataset), 10));
        reads.on_read(DatasetId::new(1), 5);
        let taken = reads.take_counts();
        assert_eq!(taken.len(), COUNTED_MAX);
        assert_eq!(taken[1], pb::DatasetReads { dataset: 1, bytes: 15 });
        assert_eq!(reads.take_counts(), []);
    }
}
