//! Periodic work: the end of sessions, the death of nodes, and the freeing of inodes without names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_types::{ErrorKind, HostName, InodeId, NodeId, SessionId};
use ebb_wire::pb;
use pb::command::Command as Op;

use crate::allotment;
use crate::describe::settle_doubts;
use crate::gray::run::judge_pace;
use crate::leases::Mode;
use crate::nodes::on_losses;
use crate::shared::Shared;
use crate::soft::Soft;
use crate::view::nodes;
use crate::vigil;
use crate::waker::{Silence, before, millis, owed_heartbeat};

const PERIOD: Duration = Duration::from_millis(500);
/// Maximum number of inodes freed by one command.
const REAP_MAX: usize = 500;
/// Time for which removals are gathered, so that one command frees them.
const GATHER: Duration = Duration::from_millis(20);
/// Time for which inodes are gathered whose time as nameless inodes ends.
const GATHER_KEPT: Duration = Duration::from_millis(100);

/// Ends sessions and declares nodes dead. Runs until the master stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.is_stopped() {
        end_reclaim(&shared);
        end_sessions(&shared).await;
        note_deaths(&shared);
        judge_pace(&shared, vigil::mark(&shared));
        allotment::update(&shared);
        shared.runtime.sleep(PERIOD).await;
    }
}

fn end_reclaim(shared: &Shared) {
    let now = vigil::mark(shared);
    let mut soft = shared.soft();
    let Some(until) = soft.reclaim_until else { return };
    let is_over = if now < until {
        !soft.sessions.any_unclaimed(crate::leases::MASTER)
    } else {
        // A session that has polled lives, and is about to reclaim. If it is cut off instead, it expires within that
        // time.
        !soft.sessions.any_about_to_reclaim() || now >= until.after(shared.options.session_ttl)
    };
    if is_over {
        soft.reclaim_until = None;
        soft.sessions.end_reclaim();
        drop(soft);
        shared.state.wake.reap.notify_one();
    }
}

async fn end_sessions(shared: &Shared) {
    let expired = {
        let now = vigil::mark(shared);
        let hosts = node_hosts(shared);
        let (now_ms, soft) = (shared.wall_ms(), shared.soft());
        let plans = &soft.plans;
        let owes_word = |host: &HostName, silent: Duration| {
            let Some(node) = hosts.get(host.as_str()) else { return true };
            // A host that is off without an end is not waited for, because others may want its leases.
            let wakes = plans.next_wake_ms(*node, now_ms).is_some();
            !wakes || plans.is_overdue(*node, before(now_ms, silent), now_ms, millis(shared.options.session_ttl))
        };
        let mut expired: BTreeSet<SessionId> = soft.sessions.expired(now, owes_word).into_iter().collect();
        expired.extend(overdue(&soft));
        expired.extend(soft.vouched.iter().flat_map(|vouched| vouched.due(now)));
        expired
    };
    for session in expired {
        let until = shared.soft().begin_end(session);
        // Proxies may still believe in the session. Others that expire earlier may be ended first, so this one waits
        // for another round.
        if until.is_some_and(|until| shared.runtime.now() < until) {
            continue;
        }
        tracing::info!(%session, "a session has expired");
        match shared.group.propose(Op::CloseSession(session.raw())).await {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::SessionExpired | ErrorKind::NotFound) => {
                shared.soft().sessions.remove(session);
            }
            Err(error) => tracing::warn!(%session, %error, "an expired session could not be closed; it is tried again"),
        }
    }
}

/// Sessions that poll, but have owed an action for too long.
// I-98: other sessions wait for these actions, so the wait needs a bound.
fn overdue(soft: &Soft) -> impl Iterator<Item = SessionId> + '_ {
    let leases = soft.sessions.overdue().map(|(session, inode)| (session, inode, "give a lease back"));
    let names = soft.watches.overdue().map(|(session, inode)| (session, inode, "forget"));
    leases.chain(names).map(|(session, inode, action)| {
        tracing::warn!(%session, %inode, "the session was asked long ago to {action} and has not done so: it ends");
        session
    })
}

/// Nodes by their hosts.
fn node_hosts(shared: &Shared) -> BTreeMap<String, NodeId> {
    let machine = shared.group.machine();
    nodes(&machine).map(|node| (node.host.clone(), NodeId::new(node.id))).collect()
}

fn note_deaths(shared: &Shared) {
    let now = vigil::mark(shared);
    let machine = shared.group.machine();
    let now_ms = shared.wall_ms();
    let (losses, changed) = {
        let mut soft = shared.soft();
        let Soft { registry, plans, waker, work, .. } = &mut *soft;
        let heartbeat =
            |node, silent, patience| owed_heartbeat(plans, *waker, Silence { node, silent, patience }, now, now_ms);
        let before = registry.version();
        let losses = registry.on_tick(nodes(&machine).map(|node| NodeId::new(node.id)), now, heartbeat);
        registry.missed(now).for_each(|(node, _)| work.parted.on_away(node, now));
        (losses, registry.version() != before)
    };
    if !changed {
        return;
    }
    let snapshot = machine.clone();
    drop(machine);
    if !losses.is_empty() {
        on_losses(shared, &snapshot, &losses);
    }
    shared.announce_node_map();
}

/// Resolves doubts about replicas. Runs until the master stops.
pub(crate) async fn run_doubts(shared: Arc<Shared>) {
    while !shared.is_stopped() {
        settle_doubts(&shared).await;
        shared.runtime.sleep(PERIOD).await;
    }
}

/// Frees inodes without a name that no session has open. Runs until the master stops.
pub(crate) async fn run_reaper(shared: Arc<Shared>) {
    while !shared.is_stopped() {
        let Ready { inodes, more, next } = ready_to_reap(&shared);
        if !inodes.is_empty() {
            let inodes = inodes.iter().map(|inode| inode.raw()).collect();
            if let Err(error) = shared.group.propose(Op::Reap(pb::Reap { inodes })).await {
                tracing::warn!(%error, "removed files could not be freed; it is tried again");
                shared.runtime.sleep(PERIOD).await;
            } else if more {
                continue;
            }
        }
        tokio::select! {
            biased;
            () = shared.state.wake.reap.notified() => shared.runtime.sleep(GATHER).await,
            () = shared.runtime.sleep(next.map_or(PERIOD * 4, |next| next + GATHER_KEPT)) => {}
        }
    }
}

/// Whether some inode without a name and without an open handle is not freed yet.
pub(crate) fn is_reaping(shared: &Shared) -> bool {
    let machine = shared.group.machine();
    let soft = shared.soft();
    machine.orphans().any(|inode| !soft.leases.is_open(inode))
}

/// Inodes that can be freed now.
#[derive(Default)]
struct Ready {
    inodes: Vec<InodeId>,
    /// Whether there are more.
    more: bool,
    /// Time until the next one can be freed, if only time keeps it.
    next: Option<Duration>,
}

fn ready_to_reap(shared: &Shared) -> Ready {
    let machine = shared.group.machine();
    let (mut soft, now) = (shared.soft(), shared.runtime.now());
    // I-60: sessions that have not reclaimed yet may have any of them open.
    if soft.reclaim_until.is_some() {
        return Ready::default();
    }
    let next = soft.nameless.next_end(now);
    let mut inodes = Vec::new();
    for inode in machine.orphans() {
        if soft.nameless.is_kept(inode, now) {
            continue;
        }
        if soft.leases.is_open(inode) {
            tracing::trace!(%inode, "a removed file stays: a session has it open");
            for session in soft.leases.openers(inode).collect::<Vec<_>>() {
                soft.sessions.on_nameless(session, inode, now);
            }
            continue;
        }
        if let Some(holder) = machine.holder(inode).filter(|holder| soft.sessions.contains(*holder)) {
            tracing::trace!(%inode, %holder, "a removed file stays: its lease is asked for");
            // A holder without an open handle still flushes. It may stop, unless a link in progress is about to give
            // the file its first name.
            if machine.is_linkable(inode) {
                soft.sessions.recall(holder, inode, Mode::None);
            } else {
                soft.sessions.recall_unwanted(holder, inode);
            }
            continue;
        }
        inodes.push(inode);
        if inodes.len() == REAP_MAX {
            return Ready { inodes, more: true, next };
        }
    }
    Ready { inodes, more: false, next }
}
