//! Brings guests home: a copy, a change of the set, and then the guest is in excess and is deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_runtime::{Moment, Plant};
use ebb_types::{InodeId, MetablockId, NodeId};
use ebb_wire::pb;

use super::{GuestView, Move, Prospect, choose_move};
use crate::copies::executor::{Copy, begin};
use crate::copies::repair::Reason;
use crate::copies::repair::look::{Task, change_set, is_free};
use crate::nodes::volumes_of;
use crate::placement::{Need, place};
use crate::shared::Shared;
use crate::view::ClusterView;

/// How often guests are looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// And after something was begun: there may be time for more.
const SOON: Duration = Duration::from_millis(200);
/// Guests looked at in one go.
const LOOKS_MAX: usize = 2000;
/// Of these, changes of sets that cost no copy: each is an entry of the log.
const RECORDS_MAX: usize = 64;
/// Requests in progress on a node that counts as idle.
const IDLE_LOAD_MAX: u32 = 4;
/// A file that somebody holds is asked back so often for its guests, and not before it has been held so long.
const HELD_PAUSE: Duration = Duration::from_secs(10);
/// Files whose holders are waited for; who comes then is not waited for.
const HELD_MAX: usize = 10_000;

/// Where the next look begins, and when holders may be asked again.
#[derive(Default)]
struct Round {
    next: (NodeId, MetablockId),
    held: BTreeMap<InodeId, Moment>,
}

/// Looks at what is away and brings it home. Runs as long as the master.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut round = Round::default();
    while !shared.is_stopped() {
        let mut begun = 0;
        // What homes have from before they were switched off is known when they have reported.
        if shared.is_safe_start() && !shared.runtime.has_plant(Plant::StaysAway) {
            begun = look_around(&shared, &mut round).await;
        }
        shared.runtime.sleep(if begun > 0 { SOON } else { PERIOD }).await;
    }
}

/// How much was begun.
async fn look_around(shared: &Arc<Shared>, round: &mut Round) -> usize {
    let machine = shared.group.snapshot();
    let now = shared.runtime.now();
    round.held.retain(|_, until| now < until.after(HELD_PAUSE));
    let away: Vec<_> = machine.away_from(round.next.0, round.next.1).take(LOOKS_MAX).collect();
    round.next = match away.last() {
        Some((home, metablock)) if away.len() == LOOKS_MAX => (*home, MetablockId::new(metablock.raw() + 1)),
        _ => Default::default(),
    };
    let (mut records, mut begun) = (0, 0);
    for (home, metablock) in away {
        let Some((task, guest)) = find(shared, &machine, home, metablock) else { continue };
        let guest_view = shared.look(|view| look_at(view, &task, &guest));
        let Some(choice) = choose_move(&guest_view) else { continue };
        if records >= RECORDS_MAX {
            break;
        }
        if choice != Move::HomeNow && waits_for_holder(shared, &mut round.held, &machine, task.inode) {
            continue;
        }
        match carry_out(shared, task, guest, choice).await {
            Begun::Nothing => {}
            Begun::Copy => begun += 1,
            Begun::Record => records += 1,
        }
    }
    begun + records
}

/// What a look at a guest came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begun {
    /// Not now.
    Nothing,
    /// It ends by itself.
    Copy,
    /// A change of the set without a copy was proposed.
    Record,
}

/// A guest that could be moved, as far as the map tells.
fn find(shared: &Shared, machine: &Machine, home: NodeId, metablock: MetablockId) -> Option<(Task, pb::Member)> {
    let (inode, record) = machine.find_metablock(metablock)?;
    let (attr, dataset) = (machine.attr(inode).ok()?, machine.dataset_of(inode).ok()?);
    let guest = *record.members.iter().find(|member| member.is_guest() && member.home_id() == home)?;
    // A recovery settles the set first, and one copy at a time is made of a metablock.
    if attr.size_unknown || shared.soft().work.copies.contains_key(&metablock) {
        return None;
    }
    Some((Task { metablock, inode, epoch: attr.epoch, record, dataset }, guest))
}

fn look_at(view: &ClusterView<'_>, task: &Task, guest: &pb::Member) -> GuestView {
    let home = guest.home_id();
    let prospect = |node| Prospect::of(&view.soft.plans, node, view.now_ms);
    GuestView {
        host: prospect(guest.node_id()),
        home: view.is_home(home).then(|| prospect(home)),
        need_ms: view.need_ms(task.record.length),
    }
}

/// Whether somebody holds the file who is not to be asked for it now: a file that is being written is disturbed seldom.
pub(crate) fn waits_for_holder(
    shared: &Shared,
    held: &mut BTreeMap<InodeId, Moment>,
    machine: &Machine,
    inode: InodeId,
) -> bool {
    if machine.holder(inode).is_none() {
        held.remove(&inode);
        return false;
    }
    let now = shared.runtime.now();
    match held.get(&inode) {
        Some(until) if now < *until => return true,
        None if held.len() < HELD_MAX => {
            held.insert(inode, now.after(HELD_PAUSE));
            return true;
        }
        _ => {}
    }
    held.insert(inode, now.after(HELD_PAUSE));
    false
}

/// Begins what was chosen.
async fn carry_out(shared: &Arc<Shared>, task: Task, guest: pb::Member, choice: Move) -> Begun {
    let joins = match choice {
        Move::Adopt => pb::Member { home: 0, ..guest },
        Move::Home | Move::HomeNow => {
            let Some(joins) = place_at_home(shared, &task, &guest, choice) else { return Begun::Nothing };
            joins
        }
    };
    // The record's order is the pipeline's.
    let set: Vec<_> =
        task.record.members.iter().map(|member| if member.is_at(&guest) { joins } else { *member }).collect();
    if choice != Move::Adopt && task.record.is_written() {
        let Some(source) = source_in_time(shared, &task, joins.node_id()) else { return Begun::Nothing };
        begin(shared, task, Copy { source, target: joins, set: Some(set), rejoins: None }, Reason::GoesHome);
        return Begun::Copy;
    }
    // Nobody has anything of what was granted and never written, so there is nothing to copy.
    if !is_free(shared, task.inode) {
        return Begun::Nothing;
    }
    match change_set(shared, &task, set).await {
        Ok(()) => tracing::info!(metablock = %task.metablock, node = joins.node, %choice, "guest settled"),
        Err(error) => tracing::debug!(metablock = %task.metablock, %error, "guest not settled"),
    }
    Begun::Record
}

/// The member to copy from to a node, if the copy may begin now: it can wait.
pub(crate) fn source_in_time(shared: &Shared, task: &Task, target: NodeId) -> Option<pb::Member> {
    let bytes = task.record.length;
    shared.look(|view| {
        let sources = view.sources(task.metablock, &task.record);
        let source = view.choose_source(&sources, target, bytes)?;
        view.is_time(source.node_id(), target, bytes).then_some(source)
    })
}

/// A volume at home. `None`: it has no room, is busy, or still has what it had before it was switched off, and that is about to be
/// deleted. Of a set that lacks copies nothing is deleted, so it would keep guests from their homes, and the copy that lacks from
/// the place that a guest has.
fn place_at_home(shared: &Shared, task: &Task, guest: &pb::Member, choice: Move) -> Option<pb::Member> {
    let home = guest.home_id();
    let has_time = shared.look(|view| {
        let is_whole = || view.sources(task.metablock, &task.record).len() >= task.dataset.replicas as usize;
        let waits_for_delete = view.nodes_with_strays(task.metablock).contains(&home) && is_whole();
        !waits_for_delete && has_time(view, task, home, choice)
    });
    if !has_time {
        return None;
    }
    let present: Vec<_> = task.record.members.iter().filter(|member| !member.is_at(guest)).copied().collect();
    let need = Need { home: Some(home), exclude: vec![guest.node_id()], ..Need::beside(task, present) };
    let found = place(shared, &need).ok()?.first().copied();
    found.filter(|member| member.node_id() == home)
}

/// Whether the home may take part in a copy more: repair has the larger part of what a node may do, and programs go first.
pub(crate) fn has_time(view: &ClusterView<'_>, task: &Task, home: NodeId, choice: Move) -> bool {
    let load = view.soft.registry.load(home);
    let is_idle = choice == Move::HomeNow || (load <= IDLE_LOAD_MAX && has_little_to_write(view, home));
    let weight_max = match choice {
        Move::HomeNow => view.options.copies_per_node_max,
        _ => view.options.copies_per_node_max / 2,
    };
    is_idle && view.soft.work.takes(home, task.record.length, weight_max)
}

/// What comes back to a home does not overload it again.
fn has_little_to_write(view: &ClusterView<'_>, home: NodeId) -> bool {
    let volumes = volumes_of(view.machine, home);
    let room = &view.soft.room;
    view.options.overload_rule.lets_home(volumes.iter().map(|volume| room.waiting(*volume)).sum())
}
