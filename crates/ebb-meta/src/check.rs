//! Invariants of the whole state, for tests and for `fsck`.

use std::collections::BTreeMap;

use ebb_types::{InodeId, MetablockId, NodeId, VolumeId};
use ebb_wire::pb;

use crate::acl::ModeBits;
use crate::checkpoint::trim_version;
use crate::dataset::Usage;
use crate::dir::{check_name, is_dots};
use crate::inode::{COOKIE_FIRST, FILE_SIZE_MAX, FileBody, Inode, LINK_MAX, MODE_MASK};
use crate::machine::Machine;
use crate::ops::grant::check_members;

/// Facts about one inode that follow from the entries.
#[derive(Default)]
struct Named {
    /// Number of its names.
    names: u32,
    /// Number of entries in it.
    entries: u64,
    /// Number of directories in it.
    subdirectories: u32,
    /// The directory of its last name.
    parent: InodeId,
}

impl Machine {
    /// Broken invariants, a sentence each. A healthy state has none. It walks the whole state.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let named = self.check_entries(&mut broken);
        for (id, inode) in &self.inodes {
            self.check_inode(*id, inode, named.get(id), &mut broken);
        }
        self.check_indexes(&mut broken);
        broken.extend(self.locks.check());
        self.check_sessions(&mut broken);
        self.check_datasets_count(&mut broken);
        self.check_extras(&mut broken);
        self.check_raid_sets(&mut broken);
        self.check_snapshots(&mut broken);
        broken
    }

    fn check_entries(&self, broken: &mut Vec<String>) -> BTreeMap<InodeId, Named> {
        let mut named = BTreeMap::<InodeId, Named>::new();
        for (key, entry) in self.entries.iter() {
            if check_name(&key.name).is_err() || is_dots(&key.name) {
                broken.push(format!("{} has an entry with a forbidden name", key.parent));
            }
            let Some(inode) = self.inodes.get(&entry.inode) else {
                broken.push(format!("an entry of {} leads to {}, which is gone", key.parent, entry.inode));
                continue;
            };
            let directory = self.inodes.get(&key.parent).and_then(|parent| parent.directory());
            if directory.is_none_or(|body| entry.cookie >= body.next_cookie || entry.cookie < COOKIE_FIRST) {
                broken.push(format!("an entry of {} has cookie {}", key.parent, entry.cookie));
            }
            let parent = named.entry(key.parent).or_default();
            parent.entries += 1;
            parent.subdirectories += u32::from(inode.is_directory());
            let child = named.entry(entry.inode).or_default();
            child.names += 1;
            child.parent = key.parent;
        }
        if !self.entries.agree() {
            broken.push("entries by name and by cookie differ".into());
        }
        named
    }

    fn check_inode(&self, id: InodeId, inode: &Inode, named: Option<&Named>, broken: &mut Vec<String>) {
        let none = Named::default();
        let named = named.unwrap_or(&none);
        let mut expect = |holds: bool, rule: &str| {
            if !holds {
                broken.push(format!("{id}: {rule}"));
            }
        };
        expect(id < self.next.inode, "is above the counter of inodes");
        expect(inode.mode & !MODE_MASK == 0, "its mode has other bits than permissions");
        expect(inode.size <= FILE_SIZE_MAX, "its size is too large");
        expect(self.datasets.get(inode.dataset).is_some(), "its dataset is not recorded");
        let is_felled = self.felled.contains(&id);
        expect(!is_felled || inode.is_directory() && named.entries > 0, "it counts as felled and has no entries");
        let is_nameless = self.orphans.contains(&id) != is_felled;
        expect((inode.nlink == 0) == is_nameless, "it is an orphan in one table and not in another");
        if let Some(body) = inode.directory() {
            let is_root = id == InodeId::ROOT;
            let nlink = if is_root || named.names == 1 { 2 + named.subdirectories } else { 0 };
            expect(inode.nlink == nlink, "its link count does not follow from its subdirectories");
            expect(named.names <= u32::from(!is_root), "a directory has two names");
            expect(body.count == named.entries, "its count of entries is wrong");
            expect(inode.nlink > 0 || named.entries == 0 || is_felled, "a removed directory has entries");
            expect(is_root || named.names == 0 || body.parent == named.parent, "its parent is not where its name is");
            let is_reached = self.is_felled(id) || self.is_within(id, InodeId::ROOT);
            expect(named.names == 0 || is_reached, "it cannot be reached from the root");
        } else {
            expect(inode.nlink == named.names, "its link count is not the number of its names");
            expect(inode.nlink <= LINK_MAX, "it has too many names");
            expect(named.entries == 0, "it has entries and is not a directory");
            let is_linkable = inode.file().is_some_and(|file| file.linkable);
            expect(inode.nlink == 0 || !is_linkable, "it has a name and counts as one that never had");
            let is_emptied = inode.file().is_some_and(|file| file.emptied);
            expect(
                inode.nlink == 0 && !is_linkable || !is_emptied,
                "it can be opened, and what was written to it is gone",
            );
        }
        if let Some(xattrs) = &inode.xattrs {
            expect(!xattrs.is_empty(), "it keeps an empty table of attributes");
            let follows = xattrs
                .access
                .as_ref()
                .is_none_or(|acl| acl.to_mode() == ModeBits { bits: inode.mode & 0o777, say_all: false });
            expect(follows, "its mode and its access ACL differ");
            expect(xattrs.default.is_none() || inode.is_directory(), "it has a default ACL and is not a directory");
        }
        if let Some(file) = inode.file() {
            self.check_file(id, inode, file, broken);
        }
    }

    fn check_file(&self, id: InodeId, inode: &Inode, file: &FileBody, broken: &mut Vec<String>) {
        let settings = self.datasets.settings(inode.dataset);
        let mut expect = |holds: bool, rule: &str| {
            if !holds {
                broken.push(format!("{id}: {rule}"));
            }
        };
        expect(!(file.recovering && file.holder.is_some()), "it is held and being recovered at once");
        expect(file.recovering == self.recovering.contains(&id), "its recovery is in one table and not in another");
        if let Some(holder) = file.holder {
            expect(self.sessions.get(holder).is_ok(), "its holder is no session");
            expect(self.held.contains(&(holder, id)), "its lease is not in the index");
        }
        let mut last = None;
        for block in file.map.iter() {
            expect(last < Some(block.index), "its metablocks are out of order");
            last = Some(block.index);
            expect(block.id < self.next.metablock, "a metablock is above the counter");
            expect(block.version.epoch <= inode.epoch, "a metablock's version is ahead of the file's epoch");
            expect(block.length <= settings.metablock_size, "a metablock is longer than metablocks are");
            expect(check_members(&block.members).is_ok(), "a metablock's set is malformed");
            expect(self.replicas.knows(id, block), "a metablock is not in the index");
            let is_removed = |member: &pb::Member| self.registry.is_removed(member.node_id());
            expect(!block.members.iter().any(is_removed), "a metablock has a copy on a node that was removed");
            let is_member = |one: &pb::LeftOut| {
                block.members.iter().any(|member| Some(member.node) == one.member.map(|left| left.node))
            };
            expect(!block.left_out().iter().any(is_member), "a node is in a set and left out of it");
        }
        let lengths = file.map.iter().map(|block| block.length).sum::<u64>();
        expect(lengths == file.map.allocated_bytes(), "its allocated bytes are miscounted");
        if let Some(trim) = &file.trim {
            let block = file.map.get(MetablockId::new(trim.metablock));
            expect(block.is_some(), "its trim names a metablock that is not its own");
            expect(trim_version(trim).epoch <= inode.epoch, "its trim is ahead of its epoch");
        }
    }

    fn check_indexes(&self, broken: &mut Vec<String>) {
        let files = || self.inodes.values().filter_map(|inode| inode.file());
        let metablocks: usize = files().map(|file| file.map.len()).sum();
        let members: usize = files().flat_map(|file| file.map.iter()).map(|block| block.members.len()).sum();
        let mut expect = |holds: bool, rule: &str| {
            if !holds {
                broken.push(rule.to_owned());
            }
        };
        let beside = self.members_beside_maps();
        expect(self.replicas.count() == metablocks + beside.0, "the index of metablocks has another number of them");
        let kept = self.snapshots.kept.iter().map(|(_, kept)| &kept.block);
        let guests = files().flat_map(|file| file.map.iter()).chain(kept).flat_map(|block| block.members.iter());
        let guests = guests.filter(|member| member.is_guest()).count();
        expect(
            self.replicas.away_count() == guests,
            "the index of what is away from home has another number of members",
        );
        expect(self.replicas.placed_count() == members + beside.1, "the index by volume has another number of members");
        expect(self.held.len() == files().filter(|file| file.holder.is_some()).count(), "the index of leases is off");
        expect(self.recovering.len() == files().filter(|file| file.recovering).count(), "the recoveries are off");
        expect(self.orphans.iter().all(|id| self.inodes.contains_key(id)), "an orphan is gone");
        expect(self.felled.iter().all(|id| self.inodes.contains_key(id)), "a felled directory is gone");
        for (id, member) in self.replicas.deleted() {
            expect(self.replicas.owner_of(id).is_none(), "a deleted metablock is in use");
            expect(id < self.next.metablock && member.volume != 0, "a delete names what was never granted");
        }
    }

    fn check_sessions(&self, broken: &mut Vec<String>) {
        for (id, session) in self.sessions.iter() {
            if !self.is_session_id(id) {
                broken.push(format!("{id} is above the counter of sessions"));
            }
            if session.replies.keys().next().is_some_and(|request| *request < session.acknowledged) {
                broken.push(format!("{id} keeps replies that were acknowledged"));
            }
        }
        for (inode, table) in self.locks.tables() {
            for lock in table.held().iter().chain(table.queue()) {
                if self.sessions.get(lock.owner.session).is_err() {
                    broken.push(format!("{inode} is locked by {}, which is no session", lock.owner.session));
                }
            }
            if !self.inodes.contains_key(&inode) {
                broken.push(format!("{inode} is locked and gone"));
            }
        }
        let mut volumes = 0;
        for record in self.registry.nodes() {
            let Some(node) = &record.node else { continue };
            volumes += node.volumes.len();
            for volume in &node.volumes {
                if self.registry.owner(VolumeId::new(volume.id)) != Some(NodeId::new(node.id)) {
                    broken.push(format!("v{} of n{} is not in the index", volume.id, node.id));
                }
            }
        }
        if volumes != self.registry.volume_count() {
            broken.push("the index of volumes has another number of them".into());
        }
    }

    fn check_datasets_count(&self, broken: &mut Vec<String>) {
        let mut counted = BTreeMap::new();
        for inode in self.inodes.values() {
            let used: &mut Usage = counted.entry(inode.dataset).or_default();
            used.inodes += 1;
            used.bytes = used.bytes.saturating_add(inode.file().map_or(0, |file| file.map.allocated_bytes()));
        }
        self.count_snapshots(&mut counted);
        for (id, usage) in self.datasets.usages() {
            if counted.get(&id).copied().unwrap_or_default() != usage {
                broken.push(format!("{id} counts {} inodes with {} bytes", usage.inodes, usage.bytes));
            }
        }
    }
}
