//! Which of too many replicas to let go.

use ebb_types::{HostName, NodeId, RackName, VolumeId};

use crate::{View, VolumeView};

/// The members to remove from `present` so that at most `replicas` stay, in the order of removal.
///
/// Gone first: copies on no usable volume, then second copies on a node, then on a host; then from the rack that has
/// most, so that as many racks as possible keep one; and of those the one on the fullest volume.
#[must_use]
pub fn choose_excess(present: &[(NodeId, VolumeId)], view: &View, replicas: usize) -> Vec<(NodeId, VolumeId)> {
    let mut kept: Vec<Candidate<'_>> = present.iter().map(|member| Candidate::find(view, *member)).collect();
    let mut removed = Vec::new();
    while kept.len() > replicas {
        let worst = (0..kept.len()).max_by_key(|index| rank(&kept, *index)).expect("there are more than replicas");
        removed.push(kept.remove(worst).member);
    }
    removed
}

/// One replica, with its volume if the view has it usable.
struct Candidate<'a> {
    member: (NodeId, VolumeId),
    volume: Option<&'a VolumeView>,
}

impl<'a> Candidate<'a> {
    fn find(view: &'a View, member: (NodeId, VolumeId)) -> Self {
        let volume = view.volumes.iter().find(|volume| (volume.node, volume.volume) == member && volume.usable);
        Self { member, volume }
    }

    fn host(&self) -> Option<&'a HostName> {
        self.volume.map(|volume| &volume.host)
    }

    fn rack(&self) -> Option<&'a RackName> {
        self.volume.map(|volume| &volume.rack)
    }

    /// Used space in parts of a million.
    fn fullness(&self) -> u64 {
        self.volume.map_or(0, |volume| {
            let used = u128::from(volume.capacity_bytes.saturating_sub(volume.free_bytes));
            let part = used * 1_000_000 / u128::from(volume.capacity_bytes.max(1));
            u64::try_from(part).expect("a part of a whole is at most a million")
        })
    }
}

/// Greater: rather let go. The member itself comes last, so that the order of `present` does not matter.
fn rank(kept: &[Candidate<'_>], index: usize) -> (bool, usize, usize, usize, u64, (NodeId, VolumeId)) {
    let copy = &kept[index];
    let same = |test: &dyn Fn(&Candidate<'_>) -> bool| kept.iter().filter(|other| test(other)).count();
    (
        copy.volume.is_none(),
        same(&|other| other.member.0 == copy.member.0),
        same(&|other| other.host() == copy.host()),
        same(&|other| other.rack() == copy.rack()),
        copy.fullness(),
        copy.member,
    )
}
