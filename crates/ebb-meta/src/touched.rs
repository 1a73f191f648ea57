//! A check of what one command changed. Debug builds run it after each command.
//!
//! It covers the facts that tie an inode to the indexes. A checkpoint is loaded with these facts whatever it contains,
//! as the indexes are derived from the inodes. So a broken one is a mistake of an operation, never of the input.

use ebb_types::InodeId;

use crate::inode::{FileBody, Inode};
use crate::machine::Machine;
use crate::outcome::Effect;
use crate::replicas::Owner;

impl Machine {
    /// Broken facts of the inodes and metablocks that these effects name, a sentence each. Takes O(log n) for each
    /// effect.
    pub(crate) fn check_touched(&self, effects: &[Effect]) -> Vec<String> {
        let mut broken = Vec::new();
        for effect in effects {
            self.check_effect(effect, &mut broken);
            let Some(id) = inode_of(effect).filter(|id| id.raw() != 0) else { continue };
            // A command that frees an inode may have changed it before.
            match self.inodes.get(&id) {
                Some(inode) => self.check_tables_of(id, inode, &mut broken),
                None => self.check_traces_of(id, &mut broken),
            }
        }
        broken
    }

    fn check_effect(&self, effect: &Effect, broken: &mut Vec<String>) {
        match effect {
            Effect::SetChanged { inode, metablock, new, .. } if new.is_empty() => {
                // A file may have lost it to a RAID set or a snapshot, which needs its bytes.
                let owner = self.replicas.owner_of(*metablock);
                let is_gone = owner.is_none_or(|owner| matches!(owner, Owner::RaidSet(_) | Owner::Kept(_)));
                expect(broken, is_gone, *inode, "a freed metablock is still in the index");
            }
            Effect::SetChanged { inode, metablock, .. } => {
                let file = self.inodes.get(inode).and_then(|inode| inode.file());
                // The command may have freed the metablock after it changed the set.
                if let Some(block) = file.and_then(|file| file.map.get(*metablock)) {
                    expect(broken, self.replicas.knows(*inode, block), *inode, "a changed set is not in the index");
                    expect(broken, block.id < self.next.metablock, *inode, "a metablock is above the counter");
                }
            }
            Effect::Freed(inode) => {
                expect(broken, !self.inodes.contains_key(inode), *inode, "a freed inode is in the table");
            }
            _ => {}
        }
    }

    fn check_tables_of(&self, id: InodeId, inode: &Inode, broken: &mut Vec<String>) {
        expect(broken, id < self.next.inode, id, "it is above the counter of inodes");
        let is_nameless = self.orphans.contains(&id) != self.felled.contains(&id);
        expect(broken, (inode.nlink == 0) == is_nameless, id, "it is an orphan in one table only");
        if let Some(file) = inode.file() {
            self.check_lease_of(id, file, broken);
        }
    }

    fn check_lease_of(&self, id: InodeId, file: &FileBody, broken: &mut Vec<String>) {
        expect(broken, file.recovering == self.recovering.contains(&id), id, "its recovery is in one table only");
        if let Some(holder) = file.holder {
            expect(broken, self.held.contains(&(holder, id)), id, "its lease is not in the index");
        }
    }

    fn check_traces_of(&self, id: InodeId, broken: &mut Vec<String>) {
        expect(broken, !self.orphans.contains(&id), id, "it is gone and still an orphan");
        expect(broken, !self.felled.contains(&id), id, "it is gone and still felled");
        expect(broken, !self.recovering.contains(&id), id, "it is gone and still in recovery");
        expect(broken, self.locks.table(id).is_none(), id, "it is gone and still has locks");
    }
}

fn expect(broken: &mut Vec<String>, holds: bool, id: InodeId, rule: &str) {
    if !holds {
        broken.push(format!("{id}: {rule}"));
    }
}

/// The inode that an effect is about.
fn inode_of(effect: &Effect) -> Option<InodeId> {
    match effect {
        Effect::SetChanged { inode, .. }
        | Effect::ExtrasChanged { inode, .. }
        | Effect::Changed { inode, .. }
        | Effect::LockGranted { inode, .. }
        | Effect::LeaseEnded { inode, .. }
        | Effect::Orphaned(inode)
        | Effect::Freed(inode)
        | Effect::NeedsRecovery(inode) => Some(*inode),
        Effect::LeftOutChanged { .. }
        | Effect::BesideChanged { .. }
        | Effect::KeptChanged { .. }
        | Effect::RaidSetChanged(_) => None,
    }
}
