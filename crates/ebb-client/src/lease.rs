//! Taking leases, and passing the gate under them.

pub(crate) mod after_close;
pub(crate) mod batch;
pub(crate) mod change;
pub(crate) mod hold;
pub(crate) mod idle;
pub(crate) mod recall;
pub(crate) mod returns;

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::SeededBug;
use ebb_types::{Credentials, Epoch, Error, ErrorKind, FileKind, InodeId, Result, err};
use ebb_wire::attributes::required_attr;
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{GetMap, Op};
use tokio::sync::RwLockReadGuard;

use crate::inode::{Inode, Registered};
use crate::lease::change::Granted;
use crate::lease::hold::Lease;

use crate::session::ATTEMPT;
use crate::session::masters::is_transient;
use crate::shared::Shared;
use crate::shared_file::sharing::Sharing;

/// Records in one piece of a map.
const MAP_PART: u32 = 4096;
/// Between questions for a file in recovery.
const RECOVERY_PAUSE: Duration = Duration::from_millis(100);

/// How an operation goes.
#[derive(Debug)]
pub(crate) enum Entry<'a> {
    /// Here, under a lease, which is kept while the guard lives.
    Lease(RwLockReadGuard<'a, ()>),
    /// By way of the proxy, which holds the file.
    Proxy(Sharing),
}

/// The master's answer to a request for a lease.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is held.
    Lease,
    /// The file is shared.
    Proxy(pb::ProxyAddress),
}

/// The same with everything else in the answer.
enum Acquired {
    Lease(Granted, Lease),
    Proxy(pb::ProxyAddress),
}

/// Who opens, and what for.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    /// On whose behalf.
    pub credentials: Credentials,
    /// Permission bits needed.
    pub mask: u32,
}

impl Shared {
    /// Passes the gate of a file with at least `lease` held and believed. While the guard lives, the lease is not
    /// given back and the size is not set. A file that is shared has no gate: its operations go to the proxy. With
    /// `pinned` no lease is taken: `Moved`, unless the file is held under that epoch.
    pub async fn enter<'a>(
        self: &Arc<Self>,
        inode: &'a Inode,
        lease: Lease,
        pinned: Option<Epoch>,
    ) -> Result<Entry<'a>> {
        let started = self.runtime.now();
        self.touch(inode);
        loop {
            self.check_open()?;
            self.session.ensure_trusted().await?;
            {
                let guard = inode.gate.read().await;
                let core = inode.core.lock();
                match (pinned, core.hold.sharing()) {
                    (Some(epoch), _) if !self.is_pinned(&core, epoch) => {
                        return Err(err!(Moved, "{} is not held under epoch {epoch}", inode.id));
                    }
                    (None, Some(sharing)) => return Ok(Entry::Proxy(sharing.clone())),
                    _ => {}
                }
                if self.is_believed(&core, lease) {
                    drop(core);
                    return Ok(Entry::Lease(guard));
                }
            }
            let guard = inode.gate.write().await;
            // Two that found neither lease nor proxy may have waited here one after the other.
            let is_shared = inode.core.lock().hold.sharing().is_some();
            if !is_shared {
                match self.take_lease(inode, lease, None).await? {
                    Taken::Lease => {
                        if self.is_believed(&inode.core.lock(), lease) {
                            return Ok(Entry::Lease(guard.downgrade()));
                        }
                    }
                    Taken::Proxy(proxy) => {
                        // Ordering: the gate opens first. The proxy waits for the lease, which may have to come from
                        // here.
                        drop(guard);
                        self.join(inode, &proxy).await;
                    }
                }
            }
            if self.runtime.now().since(started) > self.session.deadline() {
                return Err(err!(Timeout, "a lease on {} was lost as often as it was taken", inode.id));
            }
        }
    }

    /// Takes at least `lease`, if it is not held. The caller has the gate to itself.
    pub async fn take_lease(self: &Arc<Self>, inode: &Inode, lease: Lease, opening: Option<Opening>) -> Result<Taken> {
        let held = {
            let core = inode.core.lock();
            if opening.is_none() && self.is_believed(&core, lease) {
                return Ok(Taken::Lease);
            }
            core.hold.lease_of(self.session.name().generation)
        };
        let lease = lease.max(held);
        if held == Lease::Read && lease == Lease::Write {
            // Ordering: the read lease goes first. While this waits for the write lease it answers no recall, and
            // another client's write lease may be what it waits for.
            self.release_read(inode).await?;
        }
        if opening.is_some() {
            inode.core.lock().registered.raise(Registered::Maybe);
        }
        let asking = self.known.ask();
        let (acquired, generation) = self.acquire_fresh(inode, lease, opening.as_ref()).await?;
        if matches!(acquired, Acquired::Lease(..)) {
            let in_use = inode.core.lock().hold.sharing().filter(|sharing| sharing.is_in_use()).cloned();
            if let Some(stay) = in_use {
                self.ask_how_it_ended(inode, &stay).await;
            }
        }
        let mut core = inode.core.lock();
        if opening.is_some() {
            core.registered.raise(Registered::Yes);
        }
        let (mut grant, mode) = match acquired {
            Acquired::Lease(grant, mode) => (grant, mode),
            Acquired::Proxy(proxy) => return Ok(Taken::Proxy(proxy)),
        };
        // Ordering: read under the file's lock. A request of the master to forget marks the attributes stale under
        // it.
        grant.kept &= asking.is_undisturbed(inode.id);
        if core.hold.lease() == Lease::Write && held == Lease::Write {
            // Opened again under the write lease: this client's attributes are newer than the master's.
            core.note_attr(&grant.attr, grant.kept);
            return Ok(Taken::Lease);
        }
        if mode == Lease::Write && core.is_unrecovered(grant.attr.epoch) {
            return Err(err!(Unavailable, "the lease on {} was lost while it was asked for", inode.id));
        }
        if self.runtime.has_bug(SeededBug::StaleRead) {
            // With nothing to compare with, nothing that is cached is found outdated.
            core.map.clear();
        }
        if self.runtime.has_bug(SeededBug::WritesFrozen) {
            for record in &mut grant.metablocks {
                record.frozen = record.frozen.filter(|frozen| frozen.raid_set != 0);
            }
        }
        core.install(&self.cache, mode, generation, grant);
        self.known.on_unsure_attr(inode.id);
        Ok(Taken::Lease)
    }

    async fn release_read(&self, inode: &Inode) -> Result<()> {
        {
            let mut core = inode.core.lock();
            // It may have been lost just now.
            if core.hold.lease() != Lease::None {
                core.close_lease();
            }
        }
        let release = pb::Release { session: self.session.name().id.raw(), inodes: vec![inode.id.raw()] };
        self.session.masters.call(&release, ATTEMPT, self.session.deadline()).await.result?;
        Ok(())
    }

    /// Asks for a lease that is not one which this client has lost: that one has to be recovered first.
    async fn acquire_fresh(
        self: &Arc<Self>,
        inode: &Inode,
        lease: Lease,
        opening: Option<&Opening>,
    ) -> Result<(Acquired, u64)> {
        let started = self.runtime.now();
        loop {
            let generation = self.session.name().generation;
            let acquired = self.acquire(inode.id, lease, opening).await?;
            if generation != self.session.name().generation {
                continue;
            }
            let is_fresh = match &acquired {
                // A client that still counts as the holder learns of the loss, whatever it asks for: the lost lease
                // had gone back before.
                Acquired::Lease(_, Lease::Read) => true,
                Acquired::Lease(grant, _) => !inode.core.lock().is_unrecovered(grant.attr.epoch),
                // The proxy takes it after whatever this client lost.
                Acquired::Proxy(_) => true,
            };
            if is_fresh {
                return Ok((acquired, generation));
            }
            if self.runtime.now().since(started) > self.session.deadline() {
                return Err(err!(Unavailable, "{} waits for the recovery of a lost lease", inode.id));
            }
            self.report_lost(inode).await;
        }
    }

    /// Has the master recover a write lease that this client has lost, and lets it begin. The caller has passed the gate.
    async fn report_lost(self: &Arc<Self>, inode: &Inode) {
        let lost = inode.core.lock().hold.lost().map_or(0, Epoch::raw);
        self.report_held(vec![recall::lost(inode.id.raw(), lost)]).await;
        self.runtime.sleep(RECOVERY_PAUSE).await;
    }

    /// Asks for a lease until it is granted, with the whole map. A file in recovery is waited for.
    async fn acquire(&self, inode: InodeId, lease: Lease, opening: Option<&Opening>) -> Result<Acquired> {
        self.serving().await?;
        let deadline = self.session.deadline();
        let started = self.runtime.now();
        let credentials = opening.map_or_else(|| self.own.clone(), |opening| opening.credentials.clone());
        // Ordering: numbered after the handle is counted, so that no word of an earlier one's end undoes this open.
        let number = opening.map_or(0, |_| self.session.next_opening());
        loop {
            let session = self.session.name();
            let message = pb::Acquire {
                session: session.id.raw(),
                credentials: Some((&credentials).into()),
                inode: inode.raw(),
                mode: lease.mode() as i32,
                open: opening.is_some(),
                access: opening.map_or(0, |opening| opening.mask),
                keep: self.options.keep_names,
                opening: number,
                knows_frozen: true,
            };
            let left = deadline.saturating_sub(self.runtime.now().since(started));
            let reply = match self.session.masters.call(&message, left, left).await.result {
                Err(error) if error.kind() == ErrorKind::SessionExpired && !left.is_zero() => {
                    self.session.ensure_newer(session.generation).await?;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Busy && !left.is_zero() => {
                    self.runtime.sleep(RECOVERY_PAUSE).await;
                    continue;
                }
                reply => reply?,
            };
            if let Some(proxy) = reply.proxy {
                return Ok(Acquired::Proxy(proxy));
            }
            let mode = Lease::from_mode(reply.mode());
            let attr = required_attr(reply.attr, "a lease")?;
            if attr.kind == FileKind::File {
                attr.storage.geometry.check().map_err(|why| err!(Protocol, "{inode} has a bad geometry: {why}"))?;
            }
            if (attr.size_unknown || mode < lease) && !left.is_zero() {
                self.runtime.sleep(RECOVERY_PAUSE).await;
                continue;
            }
            if attr.size_unknown {
                return Err(err!(Unavailable, "{inode} is being recovered: its size is not known yet"));
            }
            if mode < lease {
                return Err(err!(LeaseHeld, "{inode} is held by another client"));
            }
            let metablocks = self.whole_map(inode, reply.metablocks, reply.map_complete).await?;
            return Ok(Acquired::Lease(Granted { attr, metablocks, kept: reply.leased }, mode));
        }
    }

    /// Gives back a write lease that this client does not know of: the answer that brought it got lost.
    pub async fn disclaim(self: &Arc<Self>, inode: &Inode) -> Result<()> {
        let message = pb::Acquire {
            session: self.session.name().id.raw(),
            credentials: Some((&self.own).into()),
            inode: inode.id.raw(),
            mode: pb::LeaseMode::LeaseNone as i32,
            ..Default::default()
        };
        let reply = self.session.masters.call(&message, ATTEMPT, self.session.deadline()).await.result?;
        let attr = required_attr(reply.attr, "the state of a file")?;
        let lost = inode.core.lock().hold.lost();
        if lost == Some(attr.epoch) {
            self.report_held(vec![recall::lost(inode.id.raw(), attr.epoch.raw())]).await;
            return Ok(());
        }
        // Nothing was written under it, or its bytes were thrown away with the file's last name and the next message
        // says so. If another client holds the lease, the master refuses this, and nothing changes.
        let files = vec![pb::CommitFile {
            inode: inode.id.raw(),
            epoch: attr.epoch.raw(),
            size: attr.size,
            release: true,
            gone: self.returns.is_thrown_away(inode.id),
            ..Default::default()
        }];
        let reply = self.own_meta(Op::Commit(pb::meta_op::Commit { files: files.clone() })).await?;
        self.returns.on_removed_committed(&files);
        if !reply.refusals.is_empty() {
            // It goes back all the same: what there is of the file is found out.
            self.report_held(vec![recall::lost(inode.id.raw(), attr.epoch.raw())]).await;
        }
        Ok(())
    }

    /// The rest of a map that did not fit into one answer.
    pub async fn whole_map(
        &self,
        inode: InodeId,
        mut metablocks: Vec<pb::Metablock>,
        mut complete: bool,
    ) -> Result<Vec<pb::Metablock>> {
        while !complete {
            let first_index = metablocks.last().map_or(0, |last| last.index + 1);
            let map = GetMap { inode: inode.raw(), first_index, limit: MAP_PART };
            let reply = self.own_meta(Op::GetMap(map)).await?;
            complete = reply.end || reply.metablocks.is_empty();
            metablocks.extend(reply.metablocks);
        }
        Ok(metablocks)
    }

    /// Handles the result of a call under a lease. Records that the lease is gone.
    pub fn note_lease_error(self: &Arc<Self>, inode: &Inode, error: &Error) {
        if matches!(error.kind(), ErrorKind::StaleEpoch | ErrorKind::SessionExpired) {
            self.lose_lease(inode, error);
        }
    }

    /// After a change of what a lease brings has failed. Without an answer it is not known whether it was made, so the lease is
    /// treated as lost: the next one brings what the master has.
    pub fn lose_if_unsure(self: &Arc<Self>, inode: &Inode, error: &Error) {
        // Whatever the answer to the last attempt, an earlier one may have been carried out.
        let unsure = is_transient(error.kind());
        if unsure || matches!(error.kind(), ErrorKind::StaleEpoch | ErrorKind::SessionExpired) {
            self.lose_lease(inode, error);
        }
    }
}
