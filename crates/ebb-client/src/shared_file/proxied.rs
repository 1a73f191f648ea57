//! Operations on shared files, which the proxy carries out.
//!
//! ```text
//!  Acquire ──► "shared" ──► JoinShared ──► SharedOp ... SharedOp ──► moved ──► Acquire
//!                                             └── no answer ──► ask the master where the file is; again, or unknown
//! ```
//! An operation is sent, with one number, until it is answered or its deadline has passed. While the same process of
//! the proxy answers, it is carried out once. If that process is gone, an operation without an answer may have been
//! done or not, and there is no way to find out. A repeated write could overwrite a later write of another client,
//! although a reader has already seen that write. So it fails, with EIO. An operation that changes nothing is repeated.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ebb_runtime::Moment;
use ebb_types::deadlines::SHARED_ATTEMPT;
use ebb_types::{Attr, Credentials, ErrorKind, Result, err};
use ebb_wire::attributes::required_attr;
use ebb_wire::pb;
use ebb_wire::pb::shared_op::{self, Op};

use crate::handles::OpenFile;
use crate::inode::Inode;
use crate::lease::Taken;
use crate::lease::hold::Lease;
use crate::shared::Shared;
use crate::shared_file::put::Directly;
use crate::shared_file::sharing::{End, Fate, Request, Sharing, Stay, is_worth_repeating, unknown};
use crate::types::{Allocate, Privileges, Seek, WriteAt};

/// Most bytes of one operation: twice the most that a kernel asks for at a time. A longer operation is cut.
pub(crate) const SHARED_MAX: u64 = 2 << 20;
/// Most operations of one client on shared files under way at a time. Further ones wait.
pub(crate) const IN_FLIGHT_MAX: usize = 64;
/// Deadline of one attempt. An operation may take longer while a member is replaced: then the next attempt finds it
/// under way.
const ATTEMPT: Duration = SHARED_ATTEMPT;
/// Shortest and longest pause between attempts.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Deadline for a proxy to confirm to the new holder of a lease that it gave the file back. The file's other operations
/// wait meanwhile.
const END_ASKED: Duration = Duration::from_secs(1);

/// The proxy's reply, and the bytes beside it.
pub(crate) struct Answer {
    pub reply: pb::SharedOpReply,
    payload: Bytes,
}

/// Outcome of an operation.
pub(crate) enum Outcome {
    Done(Box<Answer>),
    /// The file is not shared any more, or is shared anew. Nothing was done.
    Gone,
}

impl Shared {
    /// Joins a shared file. The file's state shows whether this succeeded: if not, the caller asks the master again.
    pub async fn join(self: &Arc<Self>, inode: &Inode, proxy: &pb::ProxyAddress) {
        let message = pb::JoinShared { session: self.session.name().id.raw(), inode: inode.id.raw() };
        match self.connector.channel(&proxy.address).call(&message, ATTEMPT).await {
            Ok(reply) => {
                let mut core = inode.core.lock();
                if core.hold.is_nothing() {
                    let stay = Stay { boot: reply.boot, epoch: reply.epoch };
                    core.hold.join(stay, proxy.address.clone(), reply.takeovers);
                }
            }
            Err(error) => {
                tracing::debug!(inode = %inode.id, %error, "joining a shared file");
                self.runtime.sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// Writes through the proxy, and returns the offset of the write. `None`: the file is not shared any more, and
    /// nothing was written.
    pub async fn write_shared(
        self: &Arc<Self>,
        file: &OpenFile,
        sharing: &Sharing,
        place: WriteAt,
        data: &Bytes,
        privileges: Privileges,
    ) -> Result<Option<u64>> {
        let take_privileges = privileges == Privileges::Taken || !file.privileged;
        let mut first = None;
        let mut at = 0;
        // An empty write is one operation, too.
        while at < data.len() || first.is_none() {
            let len = (data.len() - at).min(SHARED_MAX as usize);
            let offset = if let WriteAt::Offset(offset) = place { offset + at as u64 } else { 0 };
            if place != WriteAt::End && self.is_direct(len) {
                let part = data.slice(at..at + len);
                match self.write_direct(&file.inode, sharing, offset, &part, take_privileges).await? {
                    Directly::Done => {
                        first.get_or_insert(offset);
                        at += len;
                        continue;
                    }
                    Directly::Gone if first.is_none() => return Ok(None),
                    Directly::Gone => return Err(half_way(&file.inode, at, data.len())),
                    Directly::NotThis => {}
                }
            }
            let write = shared_op::Write { offset, at_end: place == WriteAt::End, take_privileges };
            let payload = vec![data.slice(at..at + len)];
            match self.change_shared(&file.inode, sharing, Op::Write(write), payload).await? {
                Outcome::Done(answer) => drop(first.get_or_insert(answer.reply.offset)),
                Outcome::Gone if first.is_none() => return Ok(None),
                Outcome::Gone => return Err(half_way(&file.inode, at, data.len())),
            }
            at += len;
        }
        Ok(first)
    }

    /// Reads through the proxy. `None`: the file is not shared any more.
    pub async fn read_shared(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        sharing: &Sharing,
        offset: u64,
        len: u64,
    ) -> Result<Option<Bytes>> {
        let mut parts = Vec::new();
        let mut done = 0;
        while done < len {
            let length = (len - done).min(SHARED_MAX);
            let read = shared_op::Read { offset: offset + done, length: length as u32 };
            let Outcome::Done(answer) = self.ask_shared(inode, sharing, Op::Read(read)).await? else {
                return Ok(None);
            };
            let count = answer.payload.len() as u64;
            if count > length {
                return Err(err!(Protocol, "a proxy answered {count} bytes to a read of {length}"));
            }
            done += count;
            parts.push(answer.payload);
            if count < length {
                break;
            }
        }
        if parts.len() == 1 {
            return Ok(parts.pop());
        }
        let mut out = BytesMut::with_capacity(done as usize);
        parts.iter().for_each(|part| out.extend_from_slice(part));
        Ok(Some(out.freeze()))
    }

    /// fallocate(2) through the proxy. False: the file is not shared any more.
    pub async fn allocate_shared(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        sharing: &Sharing,
        mode: Allocate,
        offset: u64,
        length: u64,
    ) -> Result<bool> {
        let mode = mode.kind() as u32;
        let allocate = Op::Allocate(shared_op::Allocate { what: mode, offset, length });
        Ok(matches!(self.change_shared(inode, sharing, allocate, Vec::new()).await?, Outcome::Done(_)))
    }

    /// The next data or hole, as the proxy knows it. `None`: the file is not shared any more.
    pub async fn seek_shared(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        sharing: &Sharing,
        offset: u64,
        whence: Seek,
    ) -> Result<Option<u64>> {
        let seek = Op::Seek(shared_op::Seek { offset, hole: whence == Seek::Hole });
        Ok(match self.ask_shared(inode, sharing, seek).await? {
            Outcome::Done(answer) => Some(answer.reply.offset),
            Outcome::Gone => None,
        })
    }

    /// Sets size or modification time through the proxy. `None`: the file is not shared any more.
    pub async fn set_shared(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        sharing: &Sharing,
        credentials: &Credentials,
        attributes: pb::meta_op::SetAttr,
    ) -> Result<Option<Attr>> {
        let set = shared_op::Set { credentials: Some(credentials.into()), attributes: Some(attributes) };
        match self.change_shared(inode, sharing, Op::Set(set), Vec::new()).await? {
            Outcome::Done(answer) => {
                self.known.forget(&[inode.id]);
                required_attr(answer.reply.attr, "a change by a proxy").map(Some)
            }
            Outcome::Gone => Ok(None),
        }
    }

    /// Returns when everything that was written to a shared file is synced by all members. An error is sticky: each
    /// handle reports it.
    pub async fn sync_shared(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        self.sync_shared_with(inode, false).await
    }

    /// Syncs a shared file, and returns when the master has recorded this.
    pub async fn commit_shared(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        self.sync_shared_with(inode, true).await
    }

    async fn sync_shared_with(self: &Arc<Self>, inode: &Arc<Inode>, commit: bool) -> Result<()> {
        loop {
            let Some(sharing) = inode.core.lock().hold.sharing().cloned() else { return Ok(()) };
            let sync = shared_op::Sync { commit, answered: Some(sharing.written) };
            match self.ask_shared(inode, &sharing, Op::Sync(sync)).await {
                Ok(Outcome::Done(_)) => {
                    let mut core = inode.core.lock();
                    if let Some(now) = core.hold.during(&sharing.stay) {
                        now.synced = now.synced.max(sharing.written);
                    }
                    return Ok(());
                }
                Ok(Outcome::Gone) => {}
                Err(error) => {
                    if error.kind() == ErrorKind::Io {
                        inode.core.lock().sticky.set(error.clone());
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Sends an operation that changes nothing, as often as needed, and under the next session if need be.
    async fn ask_shared(self: &Arc<Self>, inode: &Arc<Inode>, sharing: &Sharing, op: Op) -> Result<Outcome> {
        let session = self.session.name();
        let request = self.requests.repeatable(session.id);
        match self.carry_out(inode, sharing, &request, op, Vec::new()).await {
            Err(error) if error.kind() == ErrorKind::SessionExpired => {
                self.session.ensure_newer(session.generation).await?;
                // The end of the session was the end of the stay; see `end_stays`.
                Ok(self.on_gone(inode))
            }
            done => done.map(|(outcome, _)| outcome),
        }
    }

    /// Sends an operation that is carried out once, under the session in which it began. `SessionExpired` is final: the
    /// session's locks, which may protect the operation, are gone with it.
    pub(crate) async fn change_shared(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        sharing: &Sharing,
        op: Op,
        payload: Vec<Bytes>,
    ) -> Result<Outcome> {
        let request = self.requests.once(self.session.name().id);
        self.count_under_way(inode, sharing, |count| count + 1);
        let carried_out = self.carry_out(inode, sharing, &request, op, payload).await;
        self.count_under_way(inode, sharing, |count| count.saturating_sub(1));
        match carried_out? {
            (Outcome::Gone, Fate::Unknown) => {
                self.metrics.unknown_operations.add(1);
                Err(unknown(inode.id))
            }
            (Outcome::Gone, Fate::NotDone) => Ok(Outcome::Gone),
            // Nothing was done, because the direct bytes were given up.
            (Outcome::Done(answer), _) if answer.reply.expired => Ok(Outcome::Done(answer)),
            (done, _) => {
                let lost = inode.core.lock().on_changed(&sharing.stay, inode.id);
                if lost {
                    self.warn_of_loss(inode);
                }
                // The change is synced in the background within the interval, like a write under a lease.
                self.queue.mark(inode.id, self.runtime.now());
                Ok(done)
            }
        }
    }

    fn count_under_way(&self, inode: &Inode, sharing: &Sharing, change: impl FnOnce(u64) -> u64) {
        if let Some(now) = inode.core.lock().hold.during(&sharing.stay) {
            now.under_way = change(now.under_way);
        }
    }

    /// Sends an operation until it is answered.
    pub(crate) async fn carry_out(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        sharing: &Sharing,
        request: &Request<'_>,
        op: Op,
        payload: Vec<Bytes>,
    ) -> Result<(Outcome, Fate)> {
        let _place = self.in_flight.acquire().await.map_err(|_| err!(ShuttingDown, "this client is disconnecting"))?;
        let started = self.runtime.now();
        let (mut fate, mut pause) = (Fate::default(), PAUSE_MIN);
        let expected = if let Op::Read(read) = &op { read.length as usize } else { 0 };
        let mut message = pb::SharedOp {
            session: request.session.raw(),
            request: request.number,
            acknowledged: 0,
            boot: sharing.stay.boot,
            inode: inode.id.raw(),
            epoch: sharing.stay.epoch,
            op: Some(op),
        };
        // Set when the file has left the stay and the fate of an earlier attempt is unknown.
        let mut asked_until = None;
        loop {
            message.acknowledged = request.acknowledged();
            let left = self.session.deadline().saturating_sub(self.runtime.now().since(started));
            let channel = self.connector.channel(&sharing.address);
            let limit = asked_until.map_or(ATTEMPT, |until: Moment| until.since(self.runtime.now()));
            let sent = channel.call_sized(&message, payload.clone(), expected, limit.min(left)).await;
            let error = match sent {
                Ok(response) => match self.check_answer(inode, sharing, response.message) {
                    Ok(reply) => {
                        self.metrics.proxied_operations.add(1);
                        let answer = Answer { reply, payload: response.payload };
                        return Ok((Outcome::Done(Box::new(answer)), fate));
                    }
                    Err(Left::Refused(error)) => return Err(error),
                    Err(Left::Same) => return Ok((self.on_gone(inode), fate.after_refusal())),
                    Err(Left::Another) => return Ok((self.on_gone(inode), fate)),
                },
                Err(error) => error,
            };
            fate = fate.after(error.kind());
            if asked_until.is_some_and(|until| self.runtime.now() >= until) {
                return Ok((self.on_gone(inode), fate));
            }
            if !is_worth_repeating(error.kind()) || left.is_zero() {
                return Err(error.context(format_args!("{} at its proxy", inode.id)));
            }
            tracing::debug!(inode = %inode.id, %error, "an operation on a shared file is sent again");
            self.metrics.repeated_operations.add(1);
            self.check_open()?;
            if asked_until.is_none() && !self.is_still_there(inode, sharing).await? {
                if fate == Fate::NotDone || request.number == 0 {
                    return Ok((self.on_gone(inode), fate));
                }
                // The process that had the file may still live. It keeps the answer, or never got the operation.
                asked_until = Some(self.runtime.now().after(END_ASKED));
                continue;
            }
            self.runtime.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Drops the kernel's pages of a file that is not shared any more. The kernel keeps pages of a shared file only
    /// until it asks for the attributes again, and under a lease it does not ask. This is not waited for: the operation
    /// under way may have a page locked.
    fn on_gone(self: &Arc<Self>, inode: &Inode) -> Outcome {
        self.metrics.moved_operations.add(1);
        let (shared, id) = (self.clone(), inode.id);
        self.runtime.spawn("invalidate what was shared", async move { shared.invalidate(id).await });
        Outcome::Gone
    }

    /// Applies an answer to the file's stay at the proxy.
    fn check_answer(
        &self,
        inode: &Inode,
        sharing: &Sharing,
        reply: pb::SharedOpReply,
    ) -> Result<pb::SharedOpReply, Left> {
        if reply.boot != sharing.stay.boot {
            self.leave(inode, sharing, End::Lost);
            return Err(Left::Another);
        }
        if reply.moved {
            self.leave(inode, sharing, if reply.kept { End::Kept } else { End::Lost });
            return Err(Left::Same);
        }
        match ebb_wire::convert::failure(reply.failure.clone()) {
            Ok(()) => Ok(reply),
            Err(error) => Err(Left::Refused(error)),
        }
    }

    /// Whether the file is still at the same proxy, as the master knows it. If this client gets a lease on the file, it
    /// is not.
    async fn is_still_there(self: &Arc<Self>, inode: &Arc<Inode>, sharing: &Sharing) -> Result<bool> {
        let is_joined = || inode.core.lock().hold.during(&sharing.stay).is_some();
        if !is_joined() {
            return Ok(false);
        }
        self.session.ensure_trusted().await?;
        let _gate = inode.gate.write().await;
        if !is_joined() {
            return Ok(false);
        }
        match self.take_lease(inode, Lease::Read, None).await? {
            Taken::Proxy(proxy) if proxy.boot == sharing.stay.boot => Ok(true),
            Taken::Proxy(_) => {
                self.leave(inode, sharing, End::Lost);
                Ok(false)
            }
            // Installing the lease has ended the stay.
            Taken::Lease => Ok(false),
        }
    }

    /// Asks the proxy whether it gave a file back, for a second at most. The master gave this client a lease on the file, so the stay is
    /// over. Writes of the stay that are not known to be synced may be lost, unless the proxy confirms that it gave the
    /// file back.
    pub async fn ask_how_it_ended(&self, inode: &Inode, sharing: &Sharing) {
        let session = self.session.name().id;
        let message = pb::SharedOp {
            session: session.raw(),
            request: 0,
            acknowledged: self.requests.repeatable(session).acknowledged(),
            boot: sharing.stay.boot,
            inode: inode.id.raw(),
            epoch: sharing.stay.epoch,
            op: Some(Op::Sync(shared_op::Sync { commit: false, answered: None })),
        };
        let until = self.runtime.now().after(END_ASKED);
        loop {
            let left = until.since(self.runtime.now());
            match self.connector.channel(&sharing.address).call(&message, left).await {
                Ok(reply) => return drop(self.check_answer(inode, sharing, reply)),
                // The connection may have broken with the operation that led here.
                Err(error) if is_worth_repeating(error.kind()) && self.runtime.now() < until => {
                    self.runtime.sleep(PAUSE_MIN).await;
                }
                Err(error) => {
                    return tracing::debug!(inode = %inode.id, %error, "a proxy does not say how it lost a file");
                }
            }
        }
    }

    /// Ends a stay, if the file's state is still about this stay.
    fn leave(&self, inode: &Inode, sharing: &Sharing, end: End) {
        let mut core = inode.core.lock();
        if core.hold.during(&sharing.stay).is_none() {
            return;
        }
        let lost = core.end_sharing(end, inode.id);
        drop(core);
        if end == End::Lost {
            self.metrics.lost_stays.add(1);
        }
        if lost {
            self.warn_of_loss(inode);
        }
    }

    /// Ends this client's part in all shared files, because the session is over. The proxy still has the writes that it
    /// answered. But it would report a loss before the sync only to the old session's handles.
    pub fn end_stays(&self) {
        for inode in self.inodes() {
            let lost = inode.core.lock().end_sharing(End::Lost, inode.id);
            if lost {
                self.warn_of_loss(&inode);
            }
        }
    }

    fn warn_of_loss(&self, inode: &Inode) {
        self.metrics.lost_files.add(1);
        tracing::warn!(
            inode = %inode.id,
            "unsynced writes to this shared file may be lost with its proxy, or with the session; each open handle gets EIO once"
        );
    }

    /// Returns when all writes to a file, here or through the proxy, are synced.
    pub async fn sync_everywhere(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        self.flush(inode).await?;
        let unsynced = inode.core.lock().hold.is_unsynced();
        if unsynced { self.sync_shared(inode).await } else { Ok(()) }
    }
}

fn half_way(inode: &Inode, at: usize, len: usize) -> ebb_types::Error {
    err!(Io, "{}: {at} of {len} bytes were written, then another proxy took the file over", inode.id)
}

/// Why an answer is no result.
enum Left {
    /// The operation was refused, or failed.
    Refused(ebb_types::Error),
    /// The proxy's process that was asked does not have the file any more.
    Same,
    /// Another process answers.
    Another,
}
