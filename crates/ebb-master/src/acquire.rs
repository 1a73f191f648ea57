//! Leases and open handles at the request of sessions: the shell around [`crate::leases`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_meta::{METABLOCKS_PER_REPLY, Machine, Reply, WRITE};
use ebb_runtime::{Moment, Runtime, SeededBug};
use ebb_types::{Credentials, ErrorKind, FileKind, InodeId, MetablockId, Result, SessionId, bail, err};
use ebb_wire::pb;
use parking_lot::Mutex;
use pb::command::Command as Op;
use tokio::sync::Notify;

use crate::fence::Fence;
use crate::keep::may_keep;
use crate::leases::sharing::{Name, Proxy};
use crate::leases::{Decision, MASTER, Mode, Wish};
use crate::shared::Shared;
use crate::soft::Soft;

/// Interval at which waits check again. It covers changes without an announcement, such as the end of the time for
/// reclaiming.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A place in a file's queue. The place is given up when the value is dropped.
pub(crate) struct Turn {
    shared: Arc<Shared>,
    wish: Wish,
    /// Announces changes of the file's leases. `None` once the place is given up.
    changes: Mutex<Option<Arc<Notify>>>,
    /// Whether the conflict with other sessions has been counted as a turn.
    counted: AtomicBool,
}

impl Turn {
    /// Enters the queue of a file.
    pub(crate) fn queue(shared: &Arc<Shared>, session: SessionId, inode: InodeId, mode: Mode) -> Self {
        let mut soft = shared.soft();
        let wish = soft.leases.enter(session, inode, mode);
        let changes = Mutex::new(Some(soft.leases.changes(inode)));
        drop(soft);
        Self { shared: Arc::clone(shared), wish, changes, counted: AtomicBool::new(false) }
    }

    /// Decides whether the wish can be granted now, and sends the recalls that it needs.
    pub(crate) fn decide(&self) -> Result<Decision> {
        self.decide_with(|_, _| Ok(()), |_, _| {})
    }

    /// Decides like [`Turn::decide`], but only if `check` permits the wish. A refused wish leaves no trace. `then` runs
    /// atomically with a decision that grants the wish.
    fn decide_with(
        &self,
        check: impl FnOnce(&Machine, &Soft) -> Result<()>,
        then: impl FnOnce(&Machine, &mut Soft),
    ) -> Result<Decision> {
        let machine = self.shared.group.machine();
        let mut soft = self.shared.soft();
        check(&machine, &soft)?;
        let Wish { session, inode, .. } = self.wish;
        if proxy_of(&self.shared, &machine, &soft, session, inode)?.is_some() {
            bail!(Moved, "{inode} is shared: the proxy has its lease");
        }
        let view = self.shared.file_view(&machine, &soft, session, inode)?;
        let mut decision = soft.leases.decide(view, &self.wish);
        // Who is recalled stays so: a snapshot waits for it, too.
        if decision == Decision::Propose && machine.holder(inode) != Some(session) && soft.closed.has(&machine, inode) {
            decision = Decision::Wait { recalls: Vec::new() };
        }
        match &decision {
            Decision::Wait { recalls } => {
                if !recalls.is_empty() && session != MASTER && !self.counted.swap(true, Ordering::Relaxed) {
                    self.on_turn(&mut soft)?;
                }
                for (session, keep) in recalls {
                    soft.sessions.recall(*session, self.wish.inode, *keep);
                }
            }
            Decision::Granted | Decision::Propose => then(&machine, &mut soft),
        }
        Ok(decision)
    }

    /// Counts a conflict with other sessions. If conflicts are frequent, the file becomes shared, and all waiting
    /// sessions are sent to the proxy.
    ///
    /// Errors: `Moved` if the file has just become shared.
    fn on_turn(&self, soft: &mut Soft) -> Result<()> {
        let Wish { session, inode, .. } = self.wish;
        let sleep = longest_sleep(&self.shared, soft);
        if soft.sharing.on_turn(session, inode, self.shared.runtime.now(), sleep) {
            tracing::debug!(%inode, "several sessions use this file in turns: it goes to the proxy");
            soft.leases.touch(inode);
            bail!(Moved, "{inode} is shared from now on: the proxy takes its lease");
        }
        Ok(())
    }

    /// Waits until the wish is granted.
    ///
    /// Errors: `LeaseHeld` after `span`.
    pub(crate) async fn wait(&self, span: Duration) -> Result<Decision> {
        self.wait_with(span, |_, _| Ok(()), |_, _| Ok(())).await.map(|(decision, ())| decision)
    }

    async fn wait_with<T>(
        &self,
        span: Duration,
        check: impl Fn(&Machine, &Soft) -> Result<()>,
        mut then: impl FnMut(&Machine, &mut Soft) -> Result<T>,
    ) -> Result<(Decision, T)> {
        let until = self.shared.runtime.now().after(span);
        let Some(changes) = self.changes.lock().clone() else {
            bail!(Internal, "a turn that was given up is waited for")
        };
        let opened = self.shared.soft().closed.opened();
        loop {
            let (changed, opened) = (changes.notified(), opened.notified());
            tokio::pin!(changed, opened);
            changed.as_mut().enable();
            opened.as_mut().enable();
            let mut done = None;
            let decision = self.decide_with(&check, |machine, soft| done = Some(then(machine, soft)))?;
            if let Some(done) = done {
                return Ok((decision, done?));
            }
            let left = until.since(self.shared.runtime.now());
            if left.is_zero() {
                return Err(self.refusal());
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = opened => {}
                () = self.shared.runtime.sleep(left.min(LOOK_AGAIN)) => {}
            }
        }
    }

    /// The reason why the wish was not granted in time.
    fn refusal(&self) -> ebb_types::Error {
        let Wish { session, inode, .. } = self.wish;
        let machine = self.shared.group.machine();
        if let Some(holder) = machine.holder(inode) {
            return err!(LeaseHeld, "{inode} is held by session {holder}, which was asked to give it back");
        }
        let soft = self.shared.soft();
        let readers: Vec<String> =
            soft.leases.readers(inode).filter(|reader| *reader != session).map(|reader| reader.to_string()).collect();
        let why = match self.shared.file_view(&machine, &soft, session, inode) {
            Ok(view) if view.recovering => "it is being recovered".to_owned(),
            _ if !readers.is_empty() => format!("sessions {} cache it", readers.join(", ")),
            Ok(view) if view.unclaimed => {
                "sessions have not reported to the new master yet which leases they hold".to_owned()
            }
            _ => "other sessions wait for it, too".to_owned(),
        };
        err!(LeaseHeld, "{inode} is not free yet: {why}")
    }

    /// Leaves the queue. Later calls do nothing.
    pub(crate) fn give_up(&self) {
        if self.changes.lock().take().is_some() {
            self.shared.soft().leases.leave(&self.wish);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Answers `Acquire`.
///
/// Cancel-safety: dropped while it waits, it leaves the queue. Dropped while the lease is being logged, the session
/// holds the lease without knowing, as after a lost answer.
pub(crate) async fn acquire(shared: &Arc<Shared>, call: pb::Acquire, deadline: Duration) -> Result<pb::AcquireReply> {
    let (session, inode, mode) = (SessionId::new(call.session), InodeId::new(call.inode), Mode::from_raw(call.mode));
    shared.check_session(session)?;
    let until = shared.runtime.now().after(deadline);
    let credentials = call.credentials.clone().map(Credentials::from);
    let check = |machine: &Machine, soft: &Soft| {
        // The session is about to give back a lease that it does not know of. This is permitted for a removed file too,
        // which would otherwise stay for as long as it is held.
        if mode == Mode::None && !call.open && machine.holder(inode) == Some(session) {
            return Ok(());
        }
        check_file(
            &shared.runtime,
            machine,
            soft,
            session,
            inode,
            &call_access(call.open, call.access),
            credentials.as_ref(),
        )
    };
    if inode.shown().is_some() && (mode == Mode::Write || call.open && call.access & WRITE != 0) {
        bail!(ReadOnly, "{inode} is in a snapshot: nobody writes to it");
    }
    // S-17a: a writer that does not know what is frozen would write to members that refuse it.
    if mode == Mode::Write && !call.knows_frozen && may_be_frozen(&shared.group.machine(), inode) {
        bail!(
            Unsupported,
            "{inode} is in a dataset with RAID sets, and the client's release is from before these: use a newer one"
        );
    }
    {
        let machine = shared.group.machine();
        let mut soft = shared.soft();
        check(&machine, &soft)?;
        // Ordering: the handle counts before any wait. An open that arrives in time then stays in time, however long
        // its writer needs to flush, and the inode is not freed in between.
        if call.open {
            soft.leases.add_open(session, inode, call.opening);
        }
        if has_already(&machine, &soft, session, inode, mode)? {
            let mode = mode_shown(&machine, session, inode, mode);
            return answer(&machine, &mut soft, session, inode, mode, call.keep);
        }
    }
    match acquire_own(shared, &call, until, &check).await {
        Err(error) if error.kind() == ErrorKind::Moved => {
            let machine = shared.group.machine();
            let soft = shared.soft();
            check(&machine, &soft)?;
            let Some(proxy) = proxy_of(shared, &machine, &soft, session, inode)? else {
                bail!(LeaseHeld, "{inode} has just come back from the proxy")
            };
            let attr = machine.attr(inode)?;
            let reply = lease(attr, Mode::None, Vec::new(), Attributes::Uncached);
            Ok(pb::AcquireReply { proxy: Some(proxy), ..reply })
        }
        reply => reply,
    }
}

/// The proxy to which a session is sent for a lease on this file, if it is shared.
fn proxy_of(
    shared: &Shared,
    machine: &Machine,
    soft: &Soft,
    session: SessionId,
    inode: InodeId,
) -> Result<Option<pb::ProxyAddress>> {
    if session == MASTER {
        return Ok(None);
    }
    let name = if machine.attr(inode)?.nlink > 0 { Name::Present } else { Name::Gone };
    let (now, sleep) = (shared.runtime.now(), longest_sleep(shared, soft));
    let proxy = soft.sharing.leads(session, inode, machine.holder(inode), name, now, sleep);
    Ok(proxy.map(Proxy::to_message))
}

/// The longest time that a recall may wait for members that blink, by the plan in force.
fn longest_sleep(shared: &Shared, soft: &Soft) -> Duration {
    let plan = soft.plans.at(shared.wall_ms()).filter(|plan| plan.blinking().next().is_some());
    plan.map_or(Duration::ZERO, |plan| Duration::from_millis(plan.interval_ms))
}

/// Acquires a lease for the session itself.
///
/// Errors: `Moved` if the file is shared, `LeaseHeld` after `until`.
async fn acquire_own(
    shared: &Arc<Shared>,
    call: &pb::Acquire,
    until: Moment,
    check: &(impl Fn(&Machine, &Soft) -> Result<()> + Sync),
) -> Result<pb::AcquireReply> {
    let (session, inode, mode) = (SessionId::new(call.session), InodeId::new(call.inode), Mode::from_raw(call.mode));
    // A writer changes size and times without a message, so no session may cache them. They are forgotten while leases
    // are recalled.
    let fence = (mode == Mode::Write).then(|| Fence::raise(shared, session, vec![inode]));
    let turn = Turn::queue(shared, session, inode, mode);
    let (decision, reply) = turn
        .wait_with(until.since(shared.runtime.now()), check, |machine, soft| {
            answer(machine, soft, session, inode, mode, call.keep)
        })
        .await?;
    if decision == Decision::Granted {
        return Ok(reply);
    }
    if let Some(fence) = &fence {
        fence.wait_until_forgotten(until.since(shared.runtime.now())).await?;
    }
    let acquire = pb::AcquireWrite { session: session.raw(), inode: inode.raw() };
    match shared.group.propose(Op::AcquireWrite(acquire)).await? {
        Reply::Lease { attr, metablocks } => {
            let machine = shared.group.machine();
            let leased = if call.keep && may_keep(&machine, &mut shared.soft(), session, &attr) {
                Attributes::Leased
            } else {
                Attributes::Uncached
            };
            Ok(lease(attr, Mode::Write, metablocks, leased))
        }
        other => bail!(Internal, "AcquireWrite was answered with {other:?}"),
    }
}

/// Whether the session already has the lease, so that it needs no wait and no new epoch.
///
/// Such a session must not queue behind a writer that waits for this very lease. It gives nothing back before it gets
/// this answer, so both would wait.
fn has_already(machine: &Machine, soft: &Soft, session: SessionId, inode: InodeId, mode: Mode) -> Result<bool> {
    let is_holder = machine.holder(inode) == Some(session);
    Ok(match mode {
        Mode::None => true,
        Mode::Read => (is_holder || soft.leases.is_reader(session, inode)) && !machine.attr(inode)?.size_unknown,
        Mode::Write => is_holder,
    })
}

/// The mode that an answer shows to the session.
///
/// A holder that asks for less may not know that it is the holder, because the answer with its write lease was lost or
/// came too late. If the answer showed "read", the session would go on reading after its write lease has been
/// recovered.
fn mode_shown(machine: &Machine, session: SessionId, inode: InodeId, asked: Mode) -> Mode {
    let is_holder = machine.holder(inode) == Some(session);
    if asked > Mode::None && is_holder { Mode::Write } else { asked }
}

/// Access that an open asks for. A lease without an open is for a handle whose access was checked when it was opened.
fn call_access(open: bool, access: u32) -> u32 {
    if open { access & 7 } else { 0 }
}

fn check_file(
    runtime: &Runtime,
    machine: &Machine,
    soft: &Soft,
    session: SessionId,
    inode: InodeId,
    access: &u32,
    credentials: Option<&Credentials>,
) -> Result<()> {
    if !soft.sessions.contains(session) {
        bail!(SessionExpired, "session {session} is over");
    }
    let attr = machine.attr(inode)?;
    if attr.kind != FileKind::File.raw() {
        bail!(Invalid, "{inode} is not a regular file: there are no leases on it");
    }
    // Ordering: this check precedes that of open handles, because a session may reclaim an open that was never
    // answered.
    machine.check_is_whole(inode)?;
    if attr.nlink == 0 && !soft.leases.is_open_by(session, inode) {
        if runtime.has_bug(SeededBug::OpenDisplaced) {
            bail!(NotFound, "{inode} was removed");
        }
        if !soft.nameless.is_kept(inode, runtime.now()) {
            bail!(Stale, "{inode} was removed");
        }
    }
    match credentials {
        _ if *access == 0 => Ok(()),
        Some(credentials) => machine.check_access(inode, credentials, *access),
        None => bail!(Protocol, "an open for access {access} leaves out the credentials"),
    }
}

fn answer(
    machine: &Machine,
    soft: &mut Soft,
    session: SessionId,
    inode: InodeId,
    mode: Mode,
    keep: bool,
) -> Result<pb::AcquireReply> {
    let attr = machine.attr(inode)?;
    let is_leased = keep && mode > Mode::None && may_keep(machine, soft, session, &attr);
    let leased = if is_leased { Attributes::Leased } else { Attributes::Uncached };
    tracing::trace!(%inode, %session, ?mode, size = attr.size, names = attr.nlink, "granted");
    Ok(lease(attr, mode, machine.shown_metablocks(inode)?, leased))
}

/// Whether the session may cache the attributes of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attributes {
    Leased,
    Uncached,
}

fn lease(attr: pb::Attr, mode: Mode, mut metablocks: Vec<pb::Metablock>, attributes: Attributes) -> pb::AcquireReply {
    // A full page may or may not be the last one, so the caller has to ask.
    let map_complete = metablocks.len() < METABLOCKS_PER_REPLY;
    metablocks.truncate(METABLOCKS_PER_REPLY);
    let leased = attributes == Attributes::Leased;
    pb::AcquireReply { attr: Some(attr), mode: mode.raw(), metablocks, map_complete, leased, proxy: None }
}

/// Answers `Reclaim`: takes over the leases and open handles of a session from an earlier master process, unless they
/// conflict with later grants.
pub(crate) fn reclaim(shared: &Shared, call: &pb::Reclaim) -> Result<()> {
    let session = SessionId::new(call.session);
    shared.check_session(session)?;
    let machine = shared.group.machine();
    let mut soft = shared.soft();
    let mut refused = 0;
    for held in &call.leases {
        let inode = InodeId::new(held.inode);
        let holder = machine.holder(inode);
        let Ok(attr) = machine.attr(inode) else { continue };
        // Write leases are logged, so there is nothing to reclaim. A lost one is detected by its epoch.
        if Mode::from_raw(held.mode) != Mode::Read || holder == Some(session) {
            continue;
        }
        if holder.is_some() || attr.size_unknown {
            refused += 1;
            // A recall lets the session give up the lease in the usual way.
            soft.leases.add_reader(session, inode);
            soft.sessions.recall(session, inode, Mode::None);
            continue;
        }
        soft.leases.add_reader(session, inode);
    }
    for inode in &call.open {
        let inode = InodeId::new(*inode);
        if machine.attr(inode).is_ok() {
            soft.leases.add_open(session, inode, call.opening);
        }
    }
    soft.sessions.set_reclaimed(session);
    for held in call.leases.iter().filter(|held| machine.holder(InodeId::new(held.inode)) == Some(session)) {
        let reclaimed = held.reserved.iter().map(|room| (MetablockId::new(room.metablock), room.reserved)).collect();
        let reclaimed = call.tells_reserved.then_some(&reclaimed);
        soft.room.on_reclaimed(InodeId::new(held.inode), reclaimed);
    }
    tracing::debug!(%session, leases = call.leases.len(), open = call.open.len(), refused, "reclaimed");
    drop(soft);
    shared.state.wake.reap.notify_one();
    Ok(())
}

/// Answers `Forget`: the session has no open handle of these inodes left.
pub(crate) fn forget(shared: &Shared, call: &pb::Forget) {
    let session = SessionId::new(call.session);
    let last = (call.opening != 0).then_some(call.opening);
    let mut soft = shared.soft();
    for inode in &call.inodes {
        soft.leases.remove_open(session, InodeId::new(*inode), last);
    }
    drop(soft);
    shared.state.wake.reap.notify_one();
}

/// Answers `Release`: the session gives back read leases.
pub(crate) fn release(shared: &Shared, call: &pb::Release) {
    let session = SessionId::new(call.session);
    let mut soft = shared.soft();
    for inode in &call.inodes {
        soft.leases.remove_reader(session, InodeId::new(*inode));
    }
}

/// Whether a metablock of a file is frozen, or may be while a lease lasts.
fn may_be_frozen(machine: &Machine, inode: InodeId) -> bool {
    let is_encoded = machine.dataset_of(inode).is_ok_and(|dataset| dataset.raid_slots > 0);
    is_encoded || machine.shown_metablocks(inode).is_ok_and(|blocks| blocks.iter().any(|block| block.frozen.is_some()))
}
