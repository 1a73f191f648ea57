//! Whether the nodes can keep the redundancy that a dataset is to have.

use std::sync::Arc;

use ebb_layout::raid::{LayoutShape, Sites, Wish, explain_unfit, explain_unfit_volumes};
use ebb_types::{DatasetId, Domain, Redundancy, Result, bail};
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
            Some(dataset) => {
                check_accepted(dataset, create.accept_node_loss)?;
                check_dataset(shared, dataset, create.survive_rack)
            }
            None => Ok(()),
        },
        Op::SetDataset(set) => {
            let known = shared.group.machine().dataset(DatasetId::new(set.dataset)).cloned();
            let Some(mut dataset) = known.filter(|_| set.raid.is_some() || set.survive_rack) else { return Ok(()) };
            if let Some(code) = set.raid {
                dataset.set_raid_code(&code);
                check_accepted(&dataset, set.accept_node_loss)?;
            }
            dataset.replicas = set.replicas.unwrap_or(dataset.replicas);
            check_dataset(shared, &dataset, set.survive_rack)
        }
        _ => Ok(()),
    }
}

/// N-3: that data go with one node is decided by somebody.
fn check_accepted(dataset: &pb::Dataset, accept_node_loss: bool) -> Result<()> {
    let is_on_one_node = dataset.redundancy().code().is_some_and(|code| code.domain == Domain::Volume);
    if is_on_one_node && !accept_node_loss {
        bail!(
            Invalid,
            "dataset {}: RAID sets on volumes of one node are out of reach while it is, and lost with it: give --accept node-loss, or \
             --domain host",
            dataset.path
        );
    }
    Ok(())
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
    let explain = |wish: Wish| match redundancy.code().filter(|code| code.domain == Domain::Volume) {
        Some(code) => explain_unfit_volumes(&view, code, wish),
        None => explain_unfit(&sites, &shape, redundancy, replicas, wish),
    };
    let wishes = if survive_rack { &[Wish::Hold, Wish::SurviveRack][..] } else { &[Wish::Hold] };
    for wish in wishes {
        if let Some(why) = explain(*wish) {
            bail!(Invalid, "{}: {why}", dataset.path);
        }
    }
    Ok(())
}
