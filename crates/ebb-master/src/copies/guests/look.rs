//! Rounds of guests: which are examined, and when. A guest's copy at home is made, the set changes, and the guest
//! becomes excess and is deleted.

use std::sync::Arc;

use ebb_meta::Machine;
use ebb_types::{MetablockId, NodeId};
use ebb_wire::pb;

use super::{GuestView, Move, Prospect, choose_move};
use crate::copies::executor::begin_step;
use crate::copies::holders::Holders;
use crate::copies::{Kind, Outcome, Priority, Reason, Step, Target, Task};
use crate::shared::Shared;
use crate::view::ClusterView;

/// Maximum number of guests examined in one round.
const LOOKS_MAX: usize = 2000;
/// Maximum number of changes without a copy in one round. Each is an entry of the log.
const RECORDS_MAX: usize = 64;

/// State from round to round: the next guest, and when holders may be asked again.
#[derive(Default)]
pub(crate) struct Round {
    next: (NodeId, MetablockId),
    holders: Holders,
}

impl Round {
    /// Examines guests, and starts their moves home. Returns the number of steps.
    pub(crate) async fn look_around(&mut self, shared: &Arc<Shared>) -> usize {
        let machine = shared.group.snapshot();
        self.holders.forget_old(shared.runtime.now());
        let away: Vec<_> = machine.away_from(self.next.0, self.next.1).take(LOOKS_MAX).collect();
        self.next = match away.last() {
            Some((home, metablock)) if away.len() == LOOKS_MAX => (*home, MetablockId::new(metablock.raw() + 1)),
            _ => Default::default(),
        };
        let (mut records, mut begun) = (0, 0);
        for (home, metablock) in away {
            let Some(step) = shared.with_view(|view| step_for(view, &machine, home, metablock)) else { continue };
            if records >= RECORDS_MAX {
                break;
            }
            let is_urgent = step.priority == Priority::Leave;
            if !is_urgent && self.holders.is_waited_for(&machine, step.task.inode, shared.runtime.now()) {
                continue;
            }
            match begin_step(shared, step).await {
                Outcome::Not(_) => {}
                Outcome::Copying => begun += 1,
                Outcome::Recorded => records += 1,
            }
        }
        begun + records
    }
}

/// The step for a guest that should move now.
fn step_for(view: &ClusterView<'_>, machine: &Machine, home: NodeId, metablock: MetablockId) -> Option<Step> {
    let (task, guest) = find(view, machine, home, metablock)?;
    let choice = choose_move(&guest_view(view, &task, &guest))?;
    Some(to_step(task, &guest, choice))
}

/// The step for a move.
pub(super) fn to_step(task: Task, guest: &pb::Member, choice: Move) -> Step {
    let (priority, reason) = match choice {
        Move::Adopt => (Priority::Move, Reason::Adopted),
        Move::Home => (Priority::Move, Reason::GoesHome),
        Move::HomeNow => (Priority::Leave, Reason::HostLeaves),
    };
    let kind = if choice == Move::Adopt {
        let adopted =
            |member: &pb::Member| if member.is_at(guest) { pb::Member { home: 0, ..*guest } } else { *member };
        Kind::Change { members: task.record.members.iter().map(adopted).collect() }
    } else {
        Kind::Join { target: Target::Home(guest.home_id()), seats: task.seats_without(guest) }
    };
    Step { task, kind, priority, reason }
}

/// A guest with its task, unless the metablock is in recovery or being copied.
fn find(view: &ClusterView<'_>, machine: &Machine, home: NodeId, metablock: MetablockId) -> Option<(Task, pb::Member)> {
    let task = Task::find(machine, metablock)?;
    let guest = *task.record.members.iter().find(|member| member.is_guest() && member.home_id() == home)?;
    // A recovery makes the set equal first, and a metablock has one copy in progress at a time.
    let is_free = !task.is_in_recovery(machine)? && !view.soft.work.copies.contains_key(&metablock);
    is_free.then_some((task, guest))
}

fn guest_view(view: &ClusterView<'_>, task: &Task, guest: &pb::Member) -> GuestView {
    let home = guest.home_id();
    let prospect = |node| Prospect::of(&view.soft.plans, node, view.now_ms);
    GuestView {
        host: prospect(guest.node_id()),
        home: view.is_home(home).then(|| prospect(home)),
        need_ms: view.need_ms(task.record.length),
    }
}
