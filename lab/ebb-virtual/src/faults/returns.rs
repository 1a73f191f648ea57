//! Hosts that come back one by one: after a power cut, and when an operator starts them again in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_runtime::virt::Dice;

use super::kind::Undo;
use crate::cluster::{Cluster, Member, Role};

/// How long the last host of a power cut takes to be back, at most, unless the fault ends before.
const LAST_MAX: Duration = Duration::from_secs(28);

/// Power fails everywhere. The master and one block server are back soon, the others at moments of their own.
pub(super) fn begin_staggered(cluster: &Cluster, first: &Member, dice: &mut Dice) -> Undo {
    for member in cluster.members() {
        member.process.power_off();
        cluster.on_death(member);
    }
    for member in cluster.members() {
        let is_early = member.role == Role::Master || member.process.name() == first.process.name();
        let longest = if is_early { Duration::from_secs(3) } else { LAST_MAX };
        restart_after(cluster, member, dice.span(longest));
    }
    Box::new(restart_all)
}

/// Block servers are stopped and started one after the other; a client dies at some moment of it.
pub(super) fn begin_rolling(cluster: &Cluster, dice: &mut Dice) -> Undo {
    let is_client = |member: &&Member| matches!(member.role, Role::Client(_));
    let clients: Vec<Member> = cluster.members().iter().filter(is_client).cloned().collect();
    let blocks = cluster.members().iter().filter(|member| member.role == Role::Block);
    let (mut at, over) = (Duration::ZERO, Arc::new(AtomicBool::new(false)));
    for member in blocks {
        let away = dice.span_between(Duration::from_millis(500), Duration::from_secs(6));
        stop_at(cluster, member, &over, at, Some(away));
        at += away;
    }
    if !clients.is_empty() {
        stop_at(cluster, dice.pick(&clients), &over, dice.span(at), None);
    }
    Box::new(move |cluster| {
        over.store(true, Ordering::Relaxed);
        restart_all(cluster);
    })
}

fn restart_all(cluster: &Cluster) {
    cluster.members().iter().for_each(|member| cluster.restart(member));
}

fn restart_after(cluster: &Cluster, member: &Member, span: Duration) {
    let (cluster, member) = (cluster.clone(), member.clone());
    let keeper = cluster.world().process("keeper").runtime();
    keeper.clone().spawn("a host comes back", async move {
        keeper.sleep(span).await;
        cluster.restart(&member);
    });
}

/// Stops a process at a moment from now on; it is back after so long, or when the fault ends.
fn stop_at(cluster: &Cluster, member: &Member, over: &Arc<AtomicBool>, at: Duration, away: Option<Duration>) {
    let (cluster, member, over) = (cluster.clone(), member.clone(), Arc::clone(over));
    let keeper = cluster.world().process("keeper").runtime();
    keeper.clone().spawn("a process is stopped", async move {
        keeper.sleep(at).await;
        // Faults that were healed meanwhile stay healed.
        if over.load(Ordering::Relaxed) || cluster.are_faults_over() {
            return;
        }
        member.process.kill();
        cluster.on_death(&member);
        if let Some(away) = away {
            keeper.sleep(away).await;
            cluster.restart(&member);
        }
    });
}
