//! The layout of a new cluster's default dataset, by its sub-racks or its power policy.

use ebb_cli::admin;
use ebb_cli::directory::ClusterDir;
use ebb_power::PolicyKind;
use ebb_types::{Credentials, Result};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Op, Placement, SetDataset};

use super::up::UpOptions;

/// Nodes for each primary. Fewer primaries need less power, and more of them write faster.
const NODES_PER_PRIMARY: u32 = 5;

/// The layout that suits a policy. `None`: the usual one.
fn placement(policy: PolicyKind, nodes: u32, replicas: u32) -> Option<Placement> {
    // Whole nodes are switched on along a chain. On it a few nodes hold everything.
    if !matches!(policy, PolicyKind::Tide | PolicyKind::Activation) {
        return None;
    }
    let wanted = (nodes + NODES_PER_PRIMARY / 2) / NODES_PER_PRIMARY;
    let primaries = wanted.clamp(1, (nodes / replicas.max(1)).max(1));
    Some(Placement { layout: "equal-work".to_owned(), primaries, ..Placement::default() })
}

/// Gives the default dataset of a new cluster the layout for its sub-racks or its policy. Returns words for the operator.
pub(super) async fn place_default(cluster: &ClusterDir, options: &UpOptions) -> Result<Option<String>> {
    let of_policy = |policy| {
        let placement = placement(policy, options.storing_nodes()?, cluster.file.replicas)?;
        let primaries = placement.primaries;
        Some((placement, format!("with {primaries} primaries, for the policy {policy}")))
    };
    let of_sub_racks = |count| {
        let placement = Placement { layout: "lsn".to_owned(), ..Placement::default() };
        (placement, format!("for {count} sub-racks: first copies on the writer's localized storage node"))
    };
    let sub_racks = options.new.sub_racks.map(of_sub_racks);
    let Some((placement, why)) = sub_racks.or_else(|| options.power.policy.and_then(of_policy)) else {
        return Ok(None);
    };
    let said = format!("the default dataset has the layout {} {why}", placement.layout);
    let client = admin::operator(cluster).await?;
    let set = SetDataset { dataset: 0, placement: Some(placement), ..SetDataset::default() };
    let done: Result<pb::MetaReply> = client.meta(&Credentials::root(), Op::SetDataset(set)).await;
    client.disconnect().await?;
    done.map(|_| Some(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_nodes_are_primaries_as_far_as_the_copies_fit() {
        let primaries = |nodes, replicas| placement(PolicyKind::Tide, nodes, replicas).map(|place| place.primaries);
        let of_three: Vec<_> = [3, 4, 7, 8, 9, 12, 13, 35].map(|nodes| primaries(nodes, 3)).into();
        assert_eq!(of_three, [1, 1, 1, 2, 2, 2, 3, 7].map(Some));
        assert_eq!((primaries(1, 1), primaries(2, 2), primaries(12, 8)), (Some(1), Some(1), Some(1)));
        assert_eq!(placement(PolicyKind::BlinkCircular, 9, 3), None);
    }
}
