//! What becomes of a file that loses a name, and where files lie.

use std::sync::Arc;

use ebb_types::{Credentials, HostName, InodeId, Result};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{GetMap, Op};

use crate::inode::Lease;
use crate::lease::Entry;
use crate::shared::Shared;
use crate::types::Location;

/// The extended attribute that tells where a file lies.
pub(crate) const LOCATIONS_XATTR: &[u8] = b"user.ebb.locations";
/// Records in one piece of a map.
const MAP_PART: u32 = 4096;

impl Shared {
    /// A request that takes a name from an inode, perhaps its last.
    pub async fn displacing(self: &Arc<Self>, credentials: &Credentials, op: Op) -> Result<()> {
        let reply = self.change(credentials, op).await?;
        if reply.displaced_inode != 0 {
            self.on_displaced(InodeId::new(reply.displaced_inode), reply.displaced_gone);
        }
        Ok(())
    }

    /// An inode lost a name. If it was the last and no handle is open, nothing of it needs to be written any more.
    fn on_displaced(&self, id: InodeId, gone: bool) {
        let Some(inode) = self.find(id) else { return };
        let mut core = inode.core.lock();
        core.attr_stale = true;
        if !gone {
            return;
        }
        if let Some(attr) = &mut core.attr {
            attr.nlink = 0;
        }
        if core.open_count > 0 {
            return;
        }
        let (weight, _) = core.lose(&self.cache, id);
        let forget = core.registered || core.maybe_registered;
        drop(core);
        self.budget.give(weight);
        inode.progress.notify_waiters();
        if forget {
            self.queue.forget(id);
        }
    }

    /// Where a file's metablocks lie, without those that were granted ahead of need and never written.
    pub async fn locations(self: &Arc<Self>, id: InodeId) -> Result<Vec<Location>> {
        // What is written is committed first, by whoever holds the file; else its map would be behind.
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
