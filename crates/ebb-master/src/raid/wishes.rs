//! Whether the nodes can keep the redundancy that a dataset is to have.

use std::sync::Arc;

use ebb_layout::raid::{LayoutShape, Sites, Wish, explain_unfit};
use ebb_types::{DatasetId, Redundancy, Result, bail};
use ebb_wire::pb;
use pb::meta_op::Op;

use crate::chains;
use crate::placement::volumes;
use crate::registry::Patience;
use crate::shared::Shared;

/// Refuses settings of a dataset that its nodes cannot keep. The sentence names the nearest redundancy that they can.
///
/// Errors: `Invalid`.
pub(crate) fn check(shared: &Shared, op: &Op) -> Result<()> {
    match op {
        Op::CreateDataset(create) => match &create.dataset {
            Some(dataset) => check_dataset(shared, dataset, create.survive_rack),
            None => Ok(()),
        },
        Op::SetDataset(set) => {
            let known = shared.group.machine().dataset(DatasetId::new(set.dataset)).cloned();
            let Some(mut dataset) = known.filter(|_| set.raid.is_some() || set.survive_rack) else { return Ok(()) };
            if let Some(code) = set.raid {
                (dataset.raid_copies, dataset.raid_slots, dataset.raid_rows) = (code.copies, code.slots, code.rows);
            }
            dataset.replicas = set.replicas.unwrap_or(dataset.replicas);
            check_dataset(shared, &dataset, set.survive_rack)
        }
        _ => Ok(()),
    }
}

fn check_dataset(shared: &Shared, dataset: &pb::Dataset, survive_rack: bool) -> Result<()> {
    let raw = dataset.raid_code();
    if let (false, Err(why)) = (raw == Redundancy::Copies.to_raw(), raw.check()) {
        bail!(Invalid, "{why}");
    }
    let redundancy = dataset.redundancy();
    if redundancy == Redundancy::Copies && !survive_rack {
        return Ok(());
    }
    let default = shared.group.machine().dataset(DatasetId::new(0)).cloned().unwrap_or_default();
    let replicas = if dataset.replicas == 0 { default.replicas.max(1) } else { dataset.replicas };
    let layout = if dataset.layout.is_empty() { default.layout } else { dataset.layout.clone() };
    let chain = Arc::new(chains::view(&pb::Dataset { replicas, layout, ..dataset.clone() })?);
    let layout = chain.layout();
    let shape = LayoutShape { layout, chain: Some(chain).filter(|_| layout.has_chain()) };
    let view = shared.with_view(|view| volumes(view, Patience::UntilDead));
    let sites = Sites::of(&view);
    let wishes = if survive_rack { &[Wish::Hold, Wish::SurviveRack][..] } else { &[Wish::Hold] };
    for wish in wishes {
        if let Some(why) = explain_unfit(&sites, &shape, redundancy, replicas, *wish) {
            bail!(Invalid, "{}: {why}", dataset.path);
        }
    }
    Ok(())
}
