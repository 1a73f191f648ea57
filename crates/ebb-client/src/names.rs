//! What becomes of a file that loses a name, and where files lie.

pub(crate) mod answer;
pub(crate) mod attributes;
pub(crate) mod kept;
pub(crate) mod known;
pub(crate) mod locks;
pub(crate) mod seen;
pub(crate) mod summary;

use std::sync::Arc;

use ebb_types::{Credentials, HostName, InodeId, Result};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{GetMap, Op};
use parking_lot::MutexGuard;

use crate::inode::{Core, Inode};
use crate::lease::Entry;
use crate::lease::batch::{RELEASE_BATCH, is_idle};
use crate::lease::hold::Lease;
use crate::lease::returns;
use crate::shared::Shared;
use crate::types::Location;

/// The extended attribute with the locations of a file.
pub(crate) const LOCATIONS_XATTR: &[u8] = b"user.ebb.locations";
/// Records in one piece of a map.
const MAP_PART: u32 = 4096;

/// What there is of an inode that lost a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Other names.
    Names,
    /// Other sessions that have it open.
    Readers,
    /// Handles of this client, if any.
    Nothing,
}

impl Shared {
    /// A request that takes a name from an inode, perhaps its last.
    pub async fn displacing(self: &Arc<Self>, credentials: &Credentials, op: Op) -> Result<()> {
        let reply = self.change(credentials, op).await?.rest;
        self.let_displaced_go(&reply);
        Ok(())
    }

    /// The answer says which inode lost a name, if one did.
    pub fn let_displaced_go(&self, reply: &pb::MetaReply) {
        if let Some(displaced) = reply.displaced() {
            let left = match (reply.displaced_gone, reply.displaced_open) {
                (false, _) => Left::Names,
                (true, true) => Left::Readers,
                (true, false) => Left::Nothing,
            };
            self.on_displaced(displaced, left);
        }
    }

    /// An inode lost a name. If it was the last and the file is closed, its bytes need not be written any more. They
    /// stay a moment for clients that looked the name up before. Then the lease goes back with many others, and the
    /// master need not ask for it.
    fn on_displaced(&self, id: InodeId, left: Left) {
        let Some(inode) = self.find(id) else { return };
        let mut core = inode.core.lock();
        core.attr_stale = true;
        if left == Left::Names {
            return;
        }
        if let Some(attr) = &mut core.attr {
            attr.links = 0;
        }
        if core.open_count > 0 {
            return;
        }
        let forget = core.registered.may_be();
        drop(core);
        if left == Left::Nothing {
            self.returns.leave(id, self.runtime.now());
            self.queue.wake();
        } else if forget {
            self.return_closed(id);
        }
    }

    /// The time of these files is over. Leases under which everything is committed go back together, like any others:
    /// there is nothing to throw away, and an open meanwhile waits at the file's gate.
    pub async fn let_all_go(self: &Arc<Self>, left: Vec<InodeId>) {
        let is_whole = |core: &Core| core.hold.lease() == Lease::Write && may_be_let_go(core) && is_idle(core);
        let found = left.iter().filter_map(|id| self.find(*id));
        let whole: Vec<Arc<Inode>> = found.filter(|inode| is_whole(&inode.core.lock())).collect();
        for batch in whole.chunks(RELEASE_BATCH) {
            self.release_batch(batch).await;
        }
        left.into_iter().for_each(|id| self.let_go(id));
    }

    /// The time of a nameless file is over: its uncommitted bytes are thrown away. If the file was opened meanwhile,
    /// it stays or is waited for; then it goes at its close, or by a recall.
    pub fn let_go(self: &Arc<Self>, id: InodeId) {
        let Some(inode) = self.find(id) else { return };
        let core = inode.core.lock();
        if !may_be_let_go(&core) {
            return;
        }
        if !self.recalls.lock().contains_key(&id) {
            self.throw_away(&inode, core);
        } else if core.registered.may_be() {
            self.return_closed(id);
        }
    }

    /// Throws away the uncommitted bytes of a nameless file, whose lock is `core`, unless it is open here.
    pub fn throw_away(self: &Arc<Self>, inode: &Arc<Inode>, core: MutexGuard<'_, Core>) {
        if core.open_count > 0 {
            return;
        }
        let id = inode.id;
        let forget = core.registered.may_be();
        if core.hold.lease() == Lease::Write && !core.unrecorded.any {
            // There is nothing to throw away: an open elsewhere finds the file as it is, and one here waits until the lease is back.
            drop(core);
            self.begin_to_give_back(inode, Lease::None);
            if forget {
                self.return_closed(id);
            }
            return;
        }
        let held = (core.hold.lease() == Lease::Write).then(|| returns::gone(id, &core));
        if held.is_some() {
            // Ordering: under the file's lock, where an open is counted. One that comes from here on is refused.
            self.returns.throw_away(id);
        }
        // The number is never given again, so no later lease can be mistaken for this one.
        self.drop_held(inode, core, |core, _| core.hold.forget_lost());
        if let Some(held) = held {
            self.return_gone(held);
        }
        if forget {
            self.return_closed(id);
        }
    }

    /// Where a file's metablocks lie, without those that were granted ahead of need and never written.
    pub async fn locations(self: &Arc<Self>, id: InodeId) -> Result<Vec<Location>> {
        // The holder commits its writes first; otherwise the map would be behind.
        let inode = self.inode(id);
        match self.enter(&inode, Lease::Read, None).await? {
            Entry::Lease(gate) => {
                drop(gate);
                self.flush(&inode).await?;
                self.commit_one(&inode, false).await?;
            }
            Entry::Proxy(_) => self.commit_shared(&inode).await?,
        }
        let map = GetMap { inode: id.raw(), first_index: 0, limit: MAP_PART };
        let reply = self.own_meta(Op::GetMap(map)).await?;
        let metablocks = self.whole_map(id, reply.metablocks, reply.end).await?;
        Ok(metablocks
            .into_iter()
            .filter(pb::Metablock::is_written)
            .map(|metablock| {
                let hosts = metablock.members.iter().map(|member| self.nodes.host(member.node)).collect();
                Location { metablock, hosts }
            })
            .collect())
    }

    /// The same as text: a line for each metablock, `index host,host,host`.
    pub async fn locations_text(self: &Arc<Self>, id: InodeId) -> Result<Vec<u8>> {
        let mut text = String::new();
        for location in self.locations(id).await? {
            let hosts: Vec<&str> = location.hosts.iter().map(HostName::as_str).collect();
            text += &format!("{} {}\n", location.metablock.index, hosts.join(","));
        }
        Ok(text.into_bytes())
    }
}

fn may_be_let_go(core: &Core) -> bool {
    core.open_count == 0 && core.attr.is_none_or(|attr| attr.links == 0)
}
