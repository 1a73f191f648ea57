//! Execution of one operation.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Allocate, Client, Handle, Privileges, Seek, SetAttr, SetTime, WriteAt};
use ebb_runtime::{Runtime, SeededBug};
use ebb_types::{Attr, Credentials, RequestId, Result, SessionId, WallTime, bail};
use ebb_wire::pb;
use ebb_wire::pb::shared_op::{self, Op};

use crate::file::SharedFile;
use crate::ranges::{Taken, Use, WHOLE};
use crate::requests::RequestName;
use crate::sessions::Sessions;
use crate::tickets::Ticket;

/// A client's operation on a file that the proxy holds.
pub(crate) struct Operation {
    pub runtime: Runtime,
    pub client: Client,
    pub sessions: Sessions,
    pub file: Arc<SharedFile>,
    pub session: SessionId,
    /// Number of the request in the session.
    pub request: RequestId,
    pub op: Op,
    pub payload: Bytes,
}

impl Operation {
    /// Executes the operation, and returns its reply and the bytes that were read.
    ///
    /// Errors: `Moved` if the lease is gone, and `SessionExpired` if the session is over. Nothing was done then.
    pub async fn run(self) -> Result<(pb::SharedOpReply, Bytes)> {
        self.sessions.check(self.session).await?;
        let in_use = self.file.begin_operation(self.session, &self.runtime)?;
        let handle = in_use.handle;
        let mut reply = pb::SharedOpReply::default();
        let mut data = Bytes::new();
        match &self.op {
            Op::Read(read) => data = self.read(handle, read).await?,
            Op::Write(write) => reply.offset = self.write(handle, write).await?,
            Op::Sync(sync) => {
                self.file.sync_for(self.session, handle, sync.answered).await?;
                if sync.commit {
                    self.client.commit(handle).await?;
                }
            }
            Op::Allocate(allocate) => {
                self.allocate(handle, allocate).await?;
                self.file.note_changed(self.session);
            }
            Op::Seek(seek) => reply.offset = self.seek(handle, seek).await?,
            Op::Set(set) => {
                reply.attr = Some(self.set(handle, set).await?.into());
                self.file.note_changed(self.session);
            }
            Op::Direct(ask) => reply.parts = self.direct(handle, ask).await?,
            Op::Apply(apply) => reply.expired = !self.apply(handle, apply).await?,
            Op::TakeOver(_) => reply.takeovers = self.take_over(handle).await?,
        }
        Ok((reply, data))
    }

    /// Waits for its turn on a range.
    ///
    /// Ordering: the session is checked when the operation has the range. If the session ends after that, the next
    /// owner of its locks finds the range in use, and comes after this operation.
    async fn turn(&self, range: Range<u64>, how: Use) -> Result<Taken> {
        // I-48: a session that ended while it waited has lost its locks, and another one may have them.
        let taken = self.file.ranges.wait_for_range(range, how).await;
        self.sessions.check(self.session).await?;
        Ok(taken)
    }

    async fn read(&self, handle: Handle, read: &shared_op::Read) -> Result<Bytes> {
        let range = read.offset..read.offset.saturating_add(read.length.into());
        let taken = self.turn(range.clone(), Use::Reads).await?;
        self.client.settle_direct(handle, read.offset, read.length.into()).await?;
        let data = self.client.read(handle, read.offset, read.length).await?;
        drop(taken);
        // Ordering: the sync comes after the read, so it covers all writes of others in the bytes read.
        self.file.settle_read(self.session, &range).await?;
        Ok(data)
    }

    async fn write(&self, handle: Handle, write: &shared_op::Write) -> Result<u64> {
        let len = self.payload.len() as u64;
        // I-29: where an append lands depends on every operation before it, so it excludes all of them.
        let (place, range) = match write.at_end {
            true => (WriteAt::End, WHOLE),
            false => (WriteAt::Offset(write.offset), write.offset..write.offset.saturating_add(len)),
        };
        let taken = self.turn(range.clone(), Use::Changes).await?;
        let size_before = self.client.size_now(handle)?;
        let privileges = privileges_of(write.take_privileges);
        let written = self.client.write_to(handle, place, self.payload.clone(), privileges).await;
        // Ordering: recorded before the range is free, so that the next reader knows of it. After an error, a part may
        // have been written. The bytes between the old end and the write are new as well.
        let changed = match &written {
            Ok(at) => *at..at.saturating_add(len),
            Err(_) => range,
        };
        self.file.note_written(self.session, grown(changed, size_before));
        drop(taken);
        let at = written?;
        // I-47: answered when every member has received it, so that it survives this process.
        self.client.pass_on(handle).await?;
        Ok(at)
    }

    /// Gives a direct write its place among the writes that overlap it. Returns where its bytes are to be put, or
    /// nothing if it cannot be direct now.
    async fn direct(&self, handle: Handle, ask: &shared_op::Direct) -> Result<Vec<pb::DirectPart>> {
        let range = ask.offset..ask.offset.saturating_add(ask.length);
        if !self.file.takes_tickets(self.session) {
            return Ok(Vec::new());
        }
        let place = self.file.ranges.intend(range.clone());
        let parts = self.client.prepare_direct(handle, ask.offset, ask.length).await?;
        if !parts.is_empty() {
            let name = RequestName { session: self.session, request: self.request };
            self.file.give_ticket(name, range, parts.clone(), place, self.runtime.now());
        }
        Ok(parts)
    }

    /// Writes the bytes that the client has put on the members. False if it is too late, and nothing was done.
    async fn apply(&self, handle: Handle, apply: &shared_op::Apply) -> Result<bool> {
        let name = RequestName::new(self.session, apply.ticket);
        let Some(Ticket { range, parts, place, .. }) = self.file.take_ticket(name, self.runtime.now()) else {
            return Ok(false);
        };
        if apply.abandon {
            self.file.drop_put(name, &parts);
            return Ok(true);
        }
        place.act().await;
        // Ordering: as in `turn`.
        let lives = self.sessions.check(self.session).await;
        if let Err(error) = lives {
            self.file.drop_put(name, &parts);
            return Err(error);
        }
        let size_before = self.client.size_now(handle)?;
        let ticket = name.to_ticket();
        let privileges = privileges_of(apply.take_privileges);
        let at_once = if self.runtime.has_bug(SeededBug::DirectHalves) { 1 } else { parts.len() };
        let (mut place, mut applied, mut at) = (Some(place), Ok(true), range.start);
        for parts in parts.chunks(at_once) {
            applied = self.client.apply_direct(handle, at, ticket, parts, privileges).await;
            at += parts.iter().map(|part| part.length).sum::<u64>();
            if at < range.end {
                // Only in a world with the seeded bug.
                place = None;
                self.runtime.sleep(Duration::from_millis(200)).await;
            }
        }
        assert!(at == range.end, "the parts of a direct write end at {at}, and its range is {range:?}");
        if applied.as_ref().is_ok_and(|is_done| *is_done) {
            // Ordering: recorded before the range is free, so that the next reader knows of it.
            self.file.note_written(self.session, grown(range, size_before));
        } else {
            self.file.drop_put(name, &parts);
        }
        drop(place);
        if !applied? {
            return Ok(false);
        }
        // I-111: it is answered only when every member has received it.
        self.client.pass_on(handle).await?;
        Ok(true)
    }

    async fn allocate(&self, handle: Handle, allocate: &shared_op::Allocate) -> Result<()> {
        let Ok(kind) = pb::AllocateKind::try_from(allocate.what as i32) else {
            bail!(Invalid, "there is no allocation of kind {}", allocate.what)
        };
        let _taken = self.turn(WHOLE, Use::Changes).await?;
        self.client.allocate(handle, Allocate::of_kind(kind), allocate.offset, allocate.length).await
    }

    async fn seek(&self, handle: Handle, seek: &shared_op::Seek) -> Result<u64> {
        let _taken = self.turn(WHOLE, Use::Reads).await?;
        // It syncs earlier writes: members are asked.
        let whence = if seek.hole { Seek::Hole } else { Seek::Data };
        self.client.seek(handle, seek.offset, whence).await
    }

    /// Takes the file over, and returns how often this was done. The stay has to end before it is answered.
    async fn take_over(&self, handle: Handle) -> Result<u64> {
        let _taken = self.turn(WHOLE, Use::Changes).await?;
        self.client.take_over(handle).await?;
        self.client.takeovers(handle)
    }

    async fn set(&self, handle: Handle, set: &shared_op::Set) -> Result<Attr> {
        let (Some(credentials), Some(attributes)) = (set.credentials.clone(), &set.attributes) else {
            bail!(Protocol, "attributes are set on behalf of a user, and none is named")
        };
        let _taken = self.turn(WHOLE, Use::Changes).await?;
        self.client.set_attr_through(handle, &Credentials::from(credentials), attributes_of(attributes)).await
    }
}

/// A range, extended by what the write added to the file in front of it.
fn grown(range: Range<u64>, size_before: u64) -> Range<u64> {
    let grown = range.start.min(size_before)..range.end;
    assert!(
        grown.start <= range.start,
        "{range:?} does not lie in {grown:?}: a reader of it would not wait for the sync"
    );
    grown
}

fn privileges_of(takes: bool) -> Privileges {
    if takes { Privileges::Taken } else { Privileges::OfOpener }
}

fn attributes_of(from: &pb::meta_op::SetAttr) -> SetAttr {
    let time = |at: Option<i64>, now: bool| match (at, now) {
        (_, true) => Some(SetTime::Now),
        (at, false) => at.map(|at| SetTime::At(WallTime(at))),
    };
    SetAttr {
        mode: from.mode,
        uid: from.uid,
        gid: from.gid,
        size: from.size,
        atime: time(from.atime_ns, from.atime_now),
        mtime: time(from.mtime_ns, from.mtime_now),
        by_handle: from.by_handle,
        privileges: privileges_of(from.kill_privileges),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_between_the_old_end_and_a_write_are_new() {
        assert_eq!(grown(100..110, 40), 40..110);
        assert_eq!(grown(100..110, 500), 100..110);
        assert_eq!(grown(0..10, 0), 0..10);
    }
}
