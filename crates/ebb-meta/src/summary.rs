//! Sums over whole trees, a bounded part with each call.

use ebb_types::{Credentials, InodeId, Result};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use crate::machine::Machine;
use crate::permission::{self, EXECUTE, READ};

/// Most entries that one call counts. The next one goes on where it stopped.
pub const COUNTED_MAX: usize = 50_000;

impl Machine {
    /// Sums over an inode and everything below it, as [`meta_op::Summarize`] has it. The caller must be permitted to list each
    /// directory. What changes between two calls may count or not; what stays counts once.
    pub(crate) fn summarize(&self, credentials: &Credentials, op: &meta_op::Summarize) -> Result<pb::MetaReply> {
        let mut sums = pb::Summary::default();
        let mut way: Vec<pb::SummaryPlace> = op.from.clone();
        if way.is_empty() {
            let top = InodeId::new(op.inode);
            self.count_into(&mut sums, top)?;
            if self.inode_at(top)?.is_directory() {
                way.push(pb::SummaryPlace { inode: op.inode, cookie: 0 });
            }
        }
        let mut counted = 0;
        while let Some(place) = way.last_mut() {
            if counted >= COUNTED_MAX {
                break;
            }
            let id = InodeId::new(place.inode);
            // It has been removed since the call before this one.
            let Ok(directory) = self.directory_at(id) else {
                way.pop();
                continue;
            };
            permission::check(id, &directory, credentials, READ | EXECUTE)?;
            let mut down = None;
            for (cookie, _, inode) in self.entries_at(id, place.cookie) {
                place.cookie = cookie;
                counted += 1;
                self.count_into(&mut sums, inode)?;
                if self.inode_at(inode)?.is_directory() {
                    down = Some(inode);
                }
                if down.is_some() || counted >= COUNTED_MAX {
                    break;
                }
            }
            match down {
                Some(inode) => way.push(pb::SummaryPlace { inode: inode.raw(), cookie: 0 }),
                None if counted < COUNTED_MAX => drop(way.pop()),
                None => {}
            }
        }
        sums.next = way;
        Ok(pb::MetaReply { summary: Some(sums), ..Default::default() })
    }

    fn count_into(&self, sums: &mut pb::Summary, id: InodeId) -> Result<()> {
        let inode = self.inode_at(id)?;
        if inode.is_directory() {
            sums.directories += 1;
            return Ok(());
        }
        sums.files += 1;
        if let Some(file) = inode.file() {
            sums.bytes = sums.bytes.saturating_add(inode.size);
            if self.may_have_uncommitted(id) {
                sums.unsettled.push(pb::Unsettled { inode: id.raw(), size: inode.size });
            }
            let copies = file.map.iter().map(|block| block.length.saturating_mul(block.members.len() as u64));
            sums.stored_bytes = copies.fold(sums.stored_bytes, u64::saturating_add);
        }
        Ok(())
    }
}
