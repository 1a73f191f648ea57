//! Explanations for operators: why a copy moves, or does not.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::{InodeId, MetablockId, NodeId, Result, bail};
use ebb_wire::pb;
use ebb_wire::pb::explain_copies::What;

use super::Task;
use super::guests::Prospect;
use super::repair::look::{Look, look_at_set};
use crate::shared::Shared;
use crate::view::ClusterView;
use crate::work::CopyInProgress;

/// Answers `ExplainCopies`.
///
/// Errors: `Invalid` unless exactly one of file and node is given, `NotFound` for an unknown one.
pub(crate) fn explain(shared: &Shared, call: &pb::ExplainCopies) -> Result<pb::ExplainCopiesReply> {
    match call.what {
        Some(What::Inode(inode)) => of_file(shared, InodeId::new(inode)),
        Some(What::Node(node)) => of_node(shared, NodeId::new(node)),
        None => bail!(Invalid, "the copies of a file or of a node are explained, and the call names neither"),
    }
}

fn of_file(shared: &Shared, inode: InodeId) -> Result<pb::ExplainCopiesReply> {
    let metablocks = shared.group.machine().metablocks(inode)?;
    let explained = metablocks.iter().map(|record| {
        let metablock = record.metablock_id();
        let (state, why) = shared.with_view(|view| of_set(view, metablock));
        pb::ExplainedSet { metablock: metablock.raw(), state: state.into(), why }
    });
    Ok(pb::ExplainCopiesReply { sets: explained.collect(), work: Vec::new() })
}

/// What there is to do for sets with a copy on a node. A node may have very many: only those that something is known of are
/// looked at, each for itself.
fn of_node(shared: &Shared, node: NodeId) -> Result<pb::ExplainCopiesReply> {
    let machine = shared.group.snapshot();
    if machine.node(node).is_none() {
        bail!(NotFound, "there is no node {node}; `ebb node list` shows them");
    }
    let busy: BTreeSet<MetablockId> = shared.soft().work.busy_sets();
    let mut tally: BTreeMap<(pb::CopyState, String), u64> = BTreeMap::new();
    for metablock in busy {
        let Some(record) = machine.find_record(metablock) else { continue };
        if !record.members.iter().chain(&record.extra).any(|member| member.node_id() == node) {
            continue;
        }
        let found = shared.with_view(|view| of_set(view, metablock));
        if found.0 != pb::CopyState::CopySettled {
            *tally.entry(found).or_default() += 1;
        }
    }
    let explained = tally.into_iter().map(|((state, why), sets)| pb::ExplainedWork { state: state.into(), why, sets });
    let mut work: Vec<_> = explained.collect();
    work.sort_by_key(|work| std::cmp::Reverse(work.sets));
    Ok(pb::ExplainCopiesReply { sets: Vec::new(), work })
}

/// State of a set, with the reason.
fn of_set(view: &ClusterView<'_>, metablock: MetablockId) -> (pb::CopyState, String) {
    use pb::CopyState::{CopyDue, CopySettled, CopyUnderWay, CopyWaits};
    let work = &view.soft.work;
    let Some(task) = Task::find(view.machine, metablock) else { return (CopySettled, "it is gone".to_owned()) };
    if let Some(copy) = work.copies.get(&metablock) {
        return (CopyUnderWay, under_way(copy, ""));
    }
    if let Some((reason, obstacle)) = work.obstacle(metablock, view.now) {
        return (CopyWaits, format!("{reason}; {obstacle}"));
    }
    if let Some(copy) = work.extra_copies.get(&metablock) {
        return (CopyUnderWay, under_way(copy, "an extra copy "));
    }
    match look_at_set(view, metablock).look {
        Look::Settled => {}
        Look::Later(reason, obstacle) => return (CopyWaits, format!("{reason}; {obstacle}")),
        Look::Step(step) => return (CopyDue, format!("{}; it is looked at next", step.reason)),
    }
    let guests = task.record.members.iter().filter(|member| member.is_guest());
    let away: Vec<String> = guests.map(|guest| of_guest(view, &task, guest)).collect();
    if away.is_empty() { (CopySettled, "as it should be".to_owned()) } else { (CopyWaits, away.join("; ")) }
}

fn under_way(copy: &CopyInProgress, prefix: &str) -> String {
    format!("{prefix}{} -> {}: {}", copy.source, copy.target, copy.reason)
}

/// Reason why a guest is not at home.
fn of_guest(view: &ClusterView<'_>, task: &Task, guest: &pb::Member) -> String {
    let (host, home) = (guest.node_id(), guest.home_id());
    let prospect = Prospect::of(&view.soft.plans, home, view.now_ms);
    let need_ms = view.need_ms(task.record.length);
    let why = match () {
        () if prospect.is_off => format!("no power plan wakes {home}"),
        () if prospect.goes_off => format!("the next power plan switches {home} off"),
        () if !prospect.awake.serves_for(need_ms) => {
            format!("{home} never serves for the {need_ms} ms that the copy takes")
        }
        () => format!("it goes to {home} when both are idle"),
    };
    format!("{host} keeps it for {home}: {why}")
}
