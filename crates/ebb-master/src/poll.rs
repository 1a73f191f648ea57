//! The long poll: it keeps sessions alive and brings them news.

use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{InodeId, MetablockId, NodeId, Result, SessionId, bail};
use ebb_wire::pb;

use crate::leases::Mode;
use crate::leases::sharing::Proxy;
use crate::popular::REPORTED_MAX;
use crate::sessions::HolderView;
use crate::shared::Shared;
use crate::soft::Soft;

/// Maximum number of nodes that a client can report as reachable again in one poll.
const REACHED_MAX: usize = 1000;

/// Answers `Poll`: at once if there is news, else within the caller's wait.
///
/// Errors: `SessionExpired` if the session is over, `WentBack` if the client has seen a newer master.
pub(crate) async fn poll(shared: &Shared, call: pb::Poll, deadline: Duration) -> Result<pb::PollReply> {
    let session = SessionId::new(call.session);
    // Ordering: the position is checked before the session. An out-of-date log does not know the session, and must not
    // end it.
    shared.hear(|| format!("the client with session {session}"), call.position.as_ref())?;
    let begun = {
        let mut soft = shared.soft();
        let begun = soft.sessions.begin_poll(session, &call.working, shared.runtime.now());
        begun.map(|(number, news, passed)| {
            soft.watches.on_poll(session, passed);
            (number, news)
        })
    };
    let Some((number, news)) = begun else {
        bail!(SessionExpired, "session {session} is over: open a new one");
    };
    shared.state.on_followed(call.plan_version);
    if let Some(served) = &call.served {
        shared.soft().served.on_report(served);
    }
    shared.soft().gray.on_poll(session, &call.slow, &call.well, shared.runtime.now());
    if !call.reached.is_empty() {
        let reached = call.reached.iter().take(REACHED_MAX).map(|node| NodeId::new(*node)).collect();
        shared.soft().work.parted.on_reached(session, &reached, shared.runtime.now());
    }
    if !call.reads.is_empty() {
        let machine = shared.group.machine();
        shared.soft().popular.on_reads(&machine, &call.reads);
    }
    if !call.dataset_reads.is_empty() {
        let machine = shared.group.machine();
        shared.soft().allotting.on_reads(&machine, &call.dataset_reads, shared.runtime.now());
    }
    for held in &call.recalled {
        on_held(shared, session, held);
    }
    if !call.forgotten.is_empty() || call.rest {
        let mut soft = shared.soft();
        call.forgotten.iter().for_each(|number| soft.watches.on_forgotten(session, *number));
        if call.rest {
            soft.watches.recall_all(session);
        }
    }
    // At most half the session's time to live, so that an answer always arrives before the session expires.
    let wait = Duration::from_millis(call.wait_ms.into()).min(shared.options.session_ttl / 2).min(deadline);
    let until = shared.runtime.now().after(wait);
    loop {
        let woken = news.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        let mut reply = pb::PollReply { master_boot: shared.boot, ..Default::default() };
        // An older poll has lost its caller, and must not consume news.
        if shared.soft().sessions.is_newest(session, number) == Some(false) {
            return Ok(reply);
        }
        let has_news = gather_news(shared, session, &call, &mut reply)?;
        let now = shared.runtime.now();
        shared.standing.check()?;
        if has_news || now >= until || shared.is_stopped() {
            reply.position = Some(shared.position());
            reply.extras = extras(shared, &call.reads);
            let slow = shared.soft().gray.slow_for(session, now);
            reply.slow = slow.into_iter().map(NodeId::raw).collect();
            finish(shared, session, now, &mut reply);
            return Ok(reply);
        }
        let next_repeat = {
            let soft = shared.soft();
            soft.sessions.next_repeat(session).into_iter().chain(soft.watches.next_repeat(session)).min()
        };
        let next = next_repeat.map_or(until, |repeat| repeat.min(until));
        tokio::select! {
            biased;
            () = woken => {}
            () = shared.runtime.sleep(next.since(now)) => {}
        }
    }
}

fn finish(shared: &Shared, session: SessionId, now: Moment, reply: &mut pb::PollReply) {
    let machine = shared.group.machine();
    let mut soft = shared.soft();
    let Soft { sessions, leases, .. } = &mut *soft;
    let is_nameless = |inode| machine.attr(inode).is_ok_and(|attr| attr.nlink == 0);
    sessions.ask_nameless(session, now, |inode| leases.is_open_by(session, inode) && is_nameless(inode), reply);
    sessions.finish_poll(session, now, reply);
}

/// Extra copies of a client's metablocks, where the client knows a different number of them.
fn extras(shared: &Shared, reads: &[pb::BlockReads]) -> Vec<pb::ExtraCopies> {
    if reads.is_empty() {
        return Vec::new();
    }
    let machine = shared.group.machine();
    let changed = |read: &pb::BlockReads| {
        let members = machine.extras(MetablockId::new(read.metablock));
        let is_news = members.len() != read.extras as usize;
        is_news.then(|| pb::ExtraCopies { metablock: read.metablock, members: members.to_vec() })
    };
    reads.iter().take(REPORTED_MAX).filter_map(changed).collect()
}

fn gather_news(shared: &Shared, session: SessionId, call: &pb::Poll, reply: &mut pb::PollReply) -> Result<bool> {
    reply.node_map_version = shared.soft().registry.version();
    let is_new_map = reply.node_map_version != call.node_map_version;
    if is_new_map {
        (reply.node_map_version, reply.nodes) = shared.node_map();
    }
    let machine = shared.group.machine();
    let is_new_plan = machine.plans().last().is_some_and(|plan| plan.version > call.plan_version);
    if is_new_plan {
        reply.plans = crate::power::encoded(&machine);
    }
    let mut soft = shared.soft();
    if is_new_map {
        reply.proxies = soft.sharing.proxies().map(Proxy::to_message).collect();
    }
    if !soft.sessions.goes_on(session) {
        bail!(SessionExpired, "session {session} is over: open a new one");
    }
    // A recall of a lease that is already gone would be repeated for ever.
    for inode in soft.sessions.recalls(session) {
        if machine.holder(inode) != Some(session) && !soft.leases.is_reader(session, inode) {
            soft.sessions.cancel_recall(session, inode);
        }
    }
    let now = shared.runtime.now();
    let must_forget = soft.watches.take_news(session, now, reply);
    Ok(soft.sessions.take_news(session, now, reply) || must_forget || is_new_map || is_new_plan)
}

/// Records the lease that a session says it now holds.
fn on_held(shared: &Shared, session: SessionId, held: &pb::Held) {
    let (inode, mode) = (InodeId::new(held.inode), Mode::from_raw(held.mode));
    let machine = shared.group.machine();
    let mut soft = shared.soft();
    soft.sessions.on_held(session, inode, mode, HolderView { size: held.size, mtime_ns: held.mtime_ns }, held.question);
    let holder = machine.holder(inode);
    match mode {
        // A lease that is granted meanwhile may overtake the answer to a question, so such an answer removes no lease.
        Mode::None if held.question == 0 => soft.leases.remove_reader(session, inode),
        // A late message of a session that has lost the file since changes nothing.
        Mode::Read if holder.is_none() => soft.leases.add_reader(session, inode),
        Mode::None | Mode::Read | Mode::Write => {}
    }
    // The session gave up the write lease without a commit, so its writes are recovered from the members.
    let epoch = machine.attr(inode).map(|attr| attr.epoch);
    if holder == Some(session) && mode < Mode::Write && epoch == Ok(held.epoch) {
        soft.work.abandoned.insert(inode);
        soft.work.recoveries.insert(inode);
        shared.state.wake.recovery.notify_one();
    }
    soft.leases.touch(inode);
}
