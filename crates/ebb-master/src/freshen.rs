//! Sizes and times of files with a writer. `stat` needs the present ones, so the holder is asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{FileKind, InodeId, Result, SessionId, err};
use ebb_wire::pb;
use pb::meta_op::Op;
use tokio::sync::Notify;

use crate::sessions::HolderView;
use crate::shared::Shared;

/// Interval at which waits check again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Part of the caller's deadline that is kept for the way of the answer.
const MARGIN: Duration = Duration::from_millis(300);

/// Replaces sizes and times in a reply by the holders' own, for files that a session other than the caller writes.
///
/// A holder is asked until its session expires. Then its file is in recovery, and the size is unknown until that is
/// done. A query waits for that too, and fails rather than show a wrong size.
///
/// Some mutations pass their attributes on to a kernel. With a size that is too small, the kernel would drop pages that
/// programs have mapped. Such mutations wait as well. But they are already applied, so at the deadline they get the
/// committed attributes.
///
/// Errors: `Unavailable` for a query whose file is still in recovery at the deadline.
pub(crate) async fn freshen(
    shared: &Arc<Shared>,
    session: SessionId,
    op: &Op,
    reply: &mut pb::MetaReply,
    deadline: Duration,
) -> Result<()> {
    let asked: Vec<InodeId> = match op {
        Op::Lookup(_) | Op::GetAttr(_) | Op::Resolve(_) => {
            reply.attr.iter().filter_map(|attr| unsure(shared, session, attr)).collect()
        }
        // The lease holder itself decides about a new size.
        Op::SetAttr(set) if set.size.is_some() => return Ok(()),
        Op::Link(_) | Op::SetAttr(_) => reply.attr.iter().filter_map(|attr| unsure(shared, session, attr)).collect(),
        // With `hint`, entries of files that other sessions write get no attributes, so no holder is asked.
        Op::ReadDir(read) if read.plus && !read.hint => {
            let attrs = reply.entries.iter().filter_map(|entry| entry.attr.as_ref());
            attrs.filter_map(|attr| unsure(shared, session, attr)).collect()
        }
        _ => return Ok(()),
    };
    if asked.is_empty() {
        return Ok(());
    }
    let until = shared
        .runtime
        .now()
        .after(deadline.saturating_sub(MARGIN).min(shared.options.session_ttl + Duration::from_secs(5)));
    let mut fresh = BTreeMap::new();
    // All questions go out at once, so that one answer of a holder covers all its files.
    let inquiries: Vec<_> = asked.into_iter().map(|inode| Inquiry::ask(shared, session, inode)).collect();
    for inquiry in &inquiries {
        match inquiry.wait(until).await {
            Ok(Some(attr)) => drop(fresh.insert(attr.inode, attr)),
            Ok(None) => {}
            Err(_) if !op.is_query() => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(attr) = &mut reply.attr {
        match fresh.get(&attr.inode) {
            // A time that this mutation has set is shown as it was set.
            Some(fresh) if !op.is_query() => attr.size = fresh.size,
            _ => drop(refresh(attr, &fresh)),
        }
    }
    for entry in &mut reply.entries {
        if let Some(attr) = &mut entry.attr {
            // The holder has uncommitted writes, which readers by the recorded map would miss.
            entry.unsettled |= refresh(attr, &fresh);
        }
    }
    Ok(())
}

/// Replaces committed attributes by fresh ones. Returns whether size or modification time differ.
fn refresh(attr: &mut pb::Attr, fresh: &BTreeMap<u64, pb::Attr>) -> bool {
    let Some(fresh) = fresh.get(&attr.inode) else { return false };
    let differs = (attr.size, attr.mtime_ns) != (fresh.size, fresh.mtime_ns);
    *attr = *fresh;
    differs
}

/// The inode of these attributes, if they may be out of date for `stat`.
fn unsure(shared: &Shared, session: SessionId, attr: &pb::Attr) -> Option<InodeId> {
    let inode = InodeId::new(attr.inode);
    if attr.kind != FileKind::File.raw() {
        return None;
    }
    let machine = shared.group.machine();
    let held_elsewhere = machine.holder(inode).is_some_and(|holder| holder != session);
    // A holder may have committed and given up the lease since the reply was made, which then lacks its writes.
    let overtaken = machine.attr(inode).is_ok_and(|now| now != *attr);
    (held_elsewhere || attr.size_unknown || overtaken || is_abandoned(shared, inode)).then_some(inode)
}

/// Whether the holder has lost the lease and a recovery is about to start. The record may then lack synced writes.
fn is_abandoned(shared: &Shared, inode: InodeId) -> bool {
    shared.soft().work.abandoned.contains(&inode)
}

/// A question to the holder of one file. It is released when dropped.
struct Inquiry {
    shared: Arc<Shared>,
    session: SessionId,
    inode: InodeId,
    question: Option<(SessionId, u64)>,
    changes: Option<Arc<Notify>>,
}

impl Inquiry {
    fn ask(shared: &Arc<Shared>, session: SessionId, inode: InodeId) -> Self {
        let holder = shared.group.machine().holder(inode).filter(|holder| *holder != session);
        let mut soft = shared.soft();
        let question = holder.and_then(|holder| soft.sessions.ask(holder, inode).map(|number| (holder, number)));
        let changes = Some(soft.leases.changes(inode));
        drop(soft);
        Self { shared: Arc::clone(shared), session, inode, question, changes }
    }

    /// The attributes as every session should see them now. `None` means that the file is gone.
    ///
    /// Errors: `Unavailable` if the size is still unknown at `until`.
    async fn wait(&self, until: Moment) -> Result<Option<pb::Attr>> {
        let changes = self.changes.as_ref().expect("taken only when dropped");
        loop {
            let changed = changes.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            // Ordering: attributes and holder are of one moment. A holder that is gone by then has committed.
            let (committed, holder) = {
                let machine = self.shared.group.machine();
                let Ok(committed) = machine.attr(self.inode) else { return Ok(None) };
                (committed, machine.holder(self.inode).filter(|holder| *holder != self.session))
            };
            if let Some(attr) = self.answer(&committed, holder) {
                return Ok(Some(attr));
            }
            let left = until.since(self.shared.runtime.now());
            if left.is_zero() {
                // A live holder that does not answer must not keep others from listing a directory.
                let is_unknown = committed.size_unknown || is_abandoned(&self.shared, self.inode);
                return if is_unknown { Err(unknown(self.inode)) } else { Ok(Some(committed)) };
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = self.shared.runtime.sleep(left.min(LOOK_AGAIN)) => {}
            }
        }
    }

    fn answer(&self, committed: &pb::Attr, holder: Option<SessionId>) -> Option<pb::Attr> {
        // Ordering: `poll` records, under one hold of this lock, that a holder gave the file up and that the file is
        // abandoned. So the two checks below never see one without the other.
        let soft = self.shared.soft();
        if committed.size_unknown || soft.work.abandoned.contains(&self.inode) {
            return None;
        }
        let Some(holder) = holder else { return Some(*committed) };
        if !soft.sessions.contains(holder) {
            // The holder's recovery is about to start.
            return None;
        }
        match self.question {
            Some((asked, number)) if asked == holder => {
                soft.sessions.answer(holder, self.inode, number).map(|view| with(committed, view))
            }
            // The lease changed hands since the question, so everything written before it is committed.
            _ => Some(*committed),
        }
    }
}

fn with(committed: &pb::Attr, view: Option<HolderView>) -> pb::Attr {
    let mut attr = *committed;
    if let Some(view) = view {
        attr.size = view.size;
        attr.mtime_ns = view.mtime_ns;
        attr.ctime_ns = attr.ctime_ns.max(view.mtime_ns);
    }
    attr
}

fn unknown(inode: InodeId) -> ebb_types::Error {
    err!(Unavailable, "{inode} is being recovered from a writer that died: its size is not known yet; try again")
}

impl Drop for Inquiry {
    fn drop(&mut self) {
        let mut soft = self.shared.soft();
        if let Some((holder, _)) = self.question {
            soft.sessions.end_question(holder, self.inode);
        }
        self.changes = None;
        soft.leases.touch(self.inode);
    }
}
