//! Commands of all kinds, likely and unlikely: nothing may panic, and nothing may break an invariant.

use ebb_types::{Credentials, InodeId, SessionId};
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};
use ebb_wire::{Message, pb};
use proptest::prelude::*;

use crate::Machine;

mod raid;
mod trust;

/// Small numbers that decide what a command is, so that a failing one shrinks.
pub(crate) type Throws = [u16; 20];

pub(crate) fn throws() -> impl Strategy<Value = Throws> {
    any::<Throws>()
}

/// Turns throws into what mostly fits the machine as it is.
struct Dice<'a> {
    machine: &'a Machine,
    throws: Throws,
    at: usize,
}

impl Dice<'_> {
    fn next(&mut self) -> u16 {
        let throw = self.throws[self.at % self.throws.len()];
        self.at += 1;
        // The second time round the same throws say something else.
        throw.wrapping_mul(1 + 2 * (self.at / self.throws.len()) as u16)
    }

    fn below(&mut self, end: u64) -> u64 {
        u64::from(self.next()) % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == n - 1
    }

    /// Mostly a small number, seldom one at the edge of what fits.
    fn number(&mut self, end: u64) -> u64 {
        match self.below(40) {
            0 => u64::MAX,
            1 => i64::MAX as u64,
            2 => 1 << 40,
            _ => self.below(end),
        }
    }

    fn pick(&mut self, all: Vec<u64>) -> Option<u64> {
        if all.is_empty() { None } else { Some(all[self.below(all.len() as u64) as usize]) }
    }

    /// Mostly an inode that passes, seldom any.
    fn inode_where(&mut self, fits: impl Fn(&crate::inode::Inode) -> bool) -> u64 {
        let all = self.machine.inodes.iter().filter(|(_, inode)| fits(inode)).map(|(id, _)| id.raw()).collect();
        match self.pick(all) {
            Some(inode) if !self.one_in(12) => inode,
            _ => self.number(14),
        }
    }

    fn inode(&mut self) -> u64 {
        self.inode_where(|_| true)
    }

    fn directory(&mut self) -> u64 {
        self.inode_where(|inode| inode.is_directory())
    }

    fn file(&mut self) -> u64 {
        self.inode_where(|inode| inode.file().is_some())
    }

    fn recovering(&mut self) -> u64 {
        self.inode_where(|inode| inode.recovering())
    }

    fn held(&mut self) -> u64 {
        self.inode_where(|inode| inode.holder().is_some())
    }

    fn epoch(&mut self, inode: u64) -> u64 {
        match self.machine.attr(InodeId::new(inode)) {
            Ok(attr) if !self.one_in(8) => attr.epoch,
            _ => self.number(4),
        }
    }

    /// One of the file's metablocks, as it is recorded, or one of no file.
    fn block(&mut self, inode: u64) -> pb::Metablock {
        let blocks = self.machine.metablocks(InodeId::new(inode)).unwrap_or_default();
        let at = self.below(blocks.len().max(1) as u64) as usize;
        match blocks.into_iter().nth(at) {
            Some(block) if !self.one_in(10) => block,
            _ => pb::Metablock { id: self.number(9), generation: self.number(3), ..Default::default() },
        }
    }

    fn session(&mut self) -> u64 {
        let open = self.machine.sessions().map(|(id, _, _)| id.raw()).collect();
        match self.pick(open) {
            Some(session) if !self.one_in(30) => session,
            _ => self.number(4),
        }
    }

    /// The holder of a file, if it has one.
    fn holder(&mut self, inode: u64) -> u64 {
        match self.machine.holder(InodeId::new(inode)) {
            Some(session) if !self.one_in(8) => session.raw(),
            _ => self.session(),
        }
    }

    fn name(&mut self) -> Vec<u8> {
        const NAMES: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"a", b"b", b"..", b"x/y"];
        NAMES[self.below(8) as usize].to_vec()
    }

    fn text(&mut self) -> Vec<u8> {
        const TEXTS: [&[u8]; 10] = [
            b"user.a",
            b"user.b",
            b"trusted.t",
            b"system.posix_acl_access",
            b"system.posix_acl_default",
            b"user.a",
            b"security.s",
            b"/a/b",
            b"",
            b"a/../b",
        ];
        TEXTS[self.below(10) as usize].to_vec()
    }

    fn mode(&mut self) -> u32 {
        if self.one_in(3) { u32::from(self.next()) } else { 0o777 }
    }

    /// Of a write under this epoch, mostly.
    fn version(&mut self, epoch: u64) -> Option<pb::Version> {
        let epoch = if self.one_in(8) { self.number(4) } else { epoch };
        Some(pb::Version { epoch, seq: self.number(6) })
    }

    fn members(&mut self) -> Vec<pb::Member> {
        let first = 1 + self.below(4);
        let count = if self.one_in(12) { 0 } else { 1 + self.below(3) };
        (first..first + count).map(|volume| pb::Member { node: volume, volume, incarnation: 1, home: 0 }).collect()
    }

    fn lock(&mut self) -> pb::FileLock {
        pb::FileLock {
            kind: self.number(3) as u32,
            flock: self.one_in(4),
            owner: self.below(3),
            start: self.number(8),
            end: self.number(10),
            pid: 1,
            session: 0,
        }
    }

    fn committed(&mut self, inode: u64, epoch: u64) -> Vec<pb::CommitMetablock> {
        let one = |dice: &mut Self| pb::CommitMetablock {
            id: dice.block(inode).id,
            version: dice.version(epoch),
            length: dice.number(2000),
        };
        (0..self.below(3)).map(|_| one(self)).collect()
    }

    fn acl(&mut self) -> Vec<u8> {
        let mut out = vec![2, 0, 0, 0];
        for tag in [1u16, 2, 4, 16, 32] {
            out.extend(tag.to_le_bytes());
            out.extend((self.next() % 8).to_le_bytes());
            out.extend(if tag == 2 { 1000u32 } else { u32::MAX }.to_le_bytes());
        }
        out
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.one_in(3).then(|| value(self))
    }

    fn set_attr(&mut self, inode: u64) -> meta_op::SetAttr {
        let epoch = self.epoch(inode);
        let size = self.maybe(|dice| dice.number(3000));
        let trim = self.maybe(|dice| meta_op::Trim {
            metablock: dice.block(inode).id,
            version: Some(pb::Version { epoch, seq: 3 + dice.below(5) }),
            length: size.unwrap_or(0),
        });
        meta_op::SetAttr {
            inode,
            mode: self.maybe(Self::mode),
            uid: self.maybe(|dice| dice.below(3) as u32 * 1000),
            gid: self.maybe(|dice| dice.below(3) as u32 * 100),
            size,
            epoch,
            atime_now: self.one_in(5),
            mtime_ns: self.maybe(|dice| i64::from(dice.next())),
            trim,
            committed: self.committed(inode, epoch),
            by_handle: self.one_in(2),
            kill_privileges: self.one_in(9),
            ..Default::default()
        }
    }

    fn commit_file(&mut self, inode: u64) -> pb::CommitFile {
        let epoch = self.epoch(inode);
        pb::CommitFile {
            inode,
            epoch,
            size: self.number(3000),
            mtime_ns: i64::from(self.next()),
            metablocks: self.committed(inode, epoch),
            release: self.one_in(3),
            trimmed: self.one_in(2),
            kill_privileges: self.one_in(9),
            gone: self.one_in(9),
            size_generation: self.maybe(|dice| dice.below(2)),
        }
    }

    /// A change of names or attributes.
    fn namespace_op(&mut self) -> Op {
        let (parent, name, inode) = (self.directory(), self.name(), self.inode());
        let (mode, umask) = (self.mode(), 0o022);
        match self.below(18) {
            16 | 17 => self.snapshot_op(),
            0..=2 => {
                let (exclusive, no_grant) = (self.one_in(2), self.one_in(3));
                let (unnamed, linkable) = (self.one_in(4), self.one_in(2));
                let name = if unnamed && !self.one_in(8) { Vec::new() } else { name };
                let replace = self.one_in(3);
                let flags = meta_op::Create { exclusive, no_grant, unnamed, linkable, replace, ..Default::default() };
                Op::Create(meta_op::Create { parent, name, mode, umask, ..flags })
            }
            3 | 4 => Op::MakeDir(meta_op::MakeDir { parent, name, mode, umask }),
            5 => Op::MakeNode(meta_op::MakeNode { parent, name, kind: self.number(8) as u32, mode, umask, rdev: 3 }),
            6 => Op::Symlink(meta_op::Symlink { parent, name, target: self.text() }),
            7 => Op::Link(meta_op::Link { inode, parent, name }),
            8 => Op::Unlink(meta_op::Unlink { parent, name }),
            9 => Op::RemoveDir(meta_op::RemoveDir { parent, name, whole: self.below(2) == 0 }),
            10..=12 => Op::Rename(meta_op::Rename {
                source_parent: parent,
                source_name: name,
                target_parent: self.directory(),
                target_name: self.name(),
                no_replace: self.one_in(6),
                exchange: self.one_in(4),
            }),
            13 => {
                let name = self.text();
                let value = if name.starts_with(b"system") { self.acl() } else { vec![7; self.below(300) as usize] };
                let (create, replace) = (self.one_in(5), self.one_in(5));
                Op::SetXattr(meta_op::SetXattr { inode, name, value: value.into(), create, replace })
            }
            14 => Op::RemoveXattr(meta_op::RemoveXattr { inode, name: self.text() }),
            _ => {
                let path = ["/a", "/b", "/c/a", "/d"][self.below(4) as usize].into();
                let quota_inodes = if self.one_in(4) { self.below(5) } else { 0 };
                let dataset = pb::Dataset { path, replicas: self.below(4) as u32, quota_inodes, ..Default::default() };
                Op::CreateDataset(meta_op::CreateDataset { dataset: Some(dataset), ..Default::default() })
            }
        }
    }

    fn snapshot(&mut self) -> pb::Snapshot {
        let all: Vec<pb::Snapshot> = self.machine.snapshots().collect();
        let at = self.below(all.len().max(1) as u64) as usize;
        match all.into_iter().nth(at) {
            Some(snapshot) if !self.one_in(10) => snapshot,
            _ => pb::Snapshot { number: self.number(4), dataset: self.below(3), ..Default::default() },
        }
    }

    fn snapshot_op(&mut self) -> Op {
        let pb::Snapshot { number: snapshot, dataset, .. } = self.snapshot();
        match self.below(5) {
            0..=2 => {
                let dataset = if self.one_in(3) { self.below(3) } else { 0 };
                Op::TakeSnapshot(meta_op::TakeSnapshot { dataset, name: self.name() })
            }
            3 => Op::RemoveSnapshot(meta_op::RemoveSnapshot { dataset, snapshot }),
            _ => Op::RenameSnapshot(meta_op::RenameSnapshot { dataset, snapshot, name: self.name() }),
        }
    }

    /// The master's work on what snapshots keep.
    fn upkeep_of_snapshots(&mut self) -> Change {
        if self.one_in(2) {
            return Change::PruneSnapshot(pb::PruneSnapshot {
                snapshot: self.snapshot().number,
                max: self.below(4) as u32,
            });
        }
        let kept: Vec<pb::Metablock> = self.machine.kept_metablocks().map(|(_, block)| block).collect();
        let at = self.below(kept.len().max(1) as u64) as usize;
        let block = kept.into_iter().nth(at).unwrap_or_else(|| self.block(1));
        let (metablock, generation, version) = (block.id, block.generation, block.version);
        Change::ChangeKept(pb::ChangeKept { metablock, generation, version, members: self.members() })
    }

    /// A change of a file by the session that mostly holds it.
    fn file_op(&mut self) -> (u64, Op) {
        let inode = if self.one_in(5) { self.file() } else { self.held() };
        let session = self.holder(inode);
        let epoch = self.epoch(inode);
        let op = match self.below(10) {
            9 => Op::TakeOver(meta_op::TakeOver { inode, epoch }),
            8 => self.swap(inode, epoch),
            0 | 1 => Op::SetAttr(self.set_attr(inode)),
            2 | 3 => {
                let indexes = (0..self.below(3)).map(|_| self.number(4)).collect();
                Op::Grant(meta_op::Grant { inode, epoch, indexes, ..Default::default() })
            }
            4 | 5 => {
                let more = self.file();
                Op::Commit(meta_op::Commit { files: vec![self.commit_file(inode), self.commit_file(more)] })
            }
            6 => {
                let (wait, cancel) = (self.one_in(2), self.one_in(6));
                Op::SetLock(meta_op::SetLock { inode, lock: Some(self.lock()), wait, cancel })
            }
            _ => {
                let block = self.block(inode);
                let (metablock, generation, version) = (block.id, block.generation, self.version(epoch));
                let members = self.members();
                Op::ChangeSet(meta_op::ChangeSet { inode, epoch, metablock, generation, members, version })
            }
        };
        (session, op)
    }

    fn client(&mut self, now: i64) -> pb::ClientCommand {
        let placements = (0..3).map(|_| pb::Placement { members: self.members() }).collect();
        let uid = [0, 0, 0, 0, 1000, 2000][self.below(6) as usize];
        let (session, op) = if self.one_in(2) { self.file_op() } else { (self.session(), self.namespace_op()) };
        let request = pb::MetaRequest {
            session,
            request: if self.one_in(15) { self.number(200) } else { now.unsigned_abs() + 1 },
            acknowledged: if self.one_in(10) { now.unsigned_abs() / 2 } else { 0 },
            credentials: Some(pb::Credentials { uid, gid: uid / 10, groups: vec![300] }),
            op: Some(pb::MetaOp { op: Some(op) }),
            lease: false,
        };
        pb::ClientCommand { request: Some(request), placements }
    }

    /// What a recovery found: the committed metablocks, stamped, and sometimes not quite.
    fn found(&mut self, inode: u64, epoch: u64) -> Vec<pb::Metablock> {
        let mut blocks = self.machine.shown_metablocks(InodeId::new(inode)).unwrap_or_default();
        if !self.one_in(10) {
            blocks.retain(|block| block.frozen.is_none());
        }
        for block in &mut blocks {
            if self.one_in(3) {
                block.members = self.members();
            }
            if block.version == Some(pb::Version::default()) && self.one_in(2) {
                continue;
            }
            block.version = if self.one_in(15) { self.version(1) } else { Some(pb::Version { epoch, seq: 0 }) };
            block.length = self.number(3000);
        }
        if self.one_in(10) {
            blocks.pop();
        }
        blocks
    }

    fn change(&mut self, now: i64) -> Change {
        match self.below(102) {
            96..=99 => self.upkeep_of_snapshots(),
            100..=101 => self.trust(now),
            0 => {
                Change::OpenSession(pb::OpenSessionCommand { host: "h".into(), role: "r".into(), ..Default::default() })
            }
            1 => Change::CloseSession(self.session()),
            2 => {
                let volumes = (0..self.below(3)).map(|_| pb::Volume { id: self.below(4), ..Default::default() });
                let volumes = volumes.collect();
                Change::RegisterNode(pb::RegisterNodeCommand { node: self.below(3), volumes, ..Default::default() })
            }
            3 => Change::SetNodeState(pb::SetNodeState { node: self.number(3), draining: self.one_in(2) }),
            4..=9 => Change::AcquireWrite(pb::AcquireWrite { session: self.session(), inode: self.file() }),
            10..=11 => {
                let inode = if self.one_in(3) { self.file() } else { self.recovering() };
                let expected_epoch = self.epoch(inode);
                Change::BeginRecovery(pb::BeginRecovery { inode, expected_epoch })
            }
            12..=15 => {
                let inode = self.recovering();
                let epoch = self.epoch(inode);
                let (metablocks, size) = (self.found(inode, epoch), self.number(3000));
                Change::FinishRecovery(pb::FinishRecovery { inode, epoch, size, metablocks, written: self.one_in(2) })
            }
            16..=17 => {
                let inode = self.file();
                let (epoch, block, members) = (self.epoch(inode), self.block(inode), self.members());
                let (metablock, generation) = (block.id, block.generation);
                Change::ChangeSet(pb::MasterChangeSet { inode, epoch, metablock, generation, members })
            }
            18..=19 => {
                let mut inodes: Vec<u64> = self.machine.orphans().map(InodeId::raw).collect();
                inodes.push(self.number(14));
                Change::Reap(pb::Reap { inodes })
            }
            20 => {
                let (volume, metablocks) = (self.below(5), vec![self.below(9), self.below(9)]);
                Change::DropDeleted(pb::DropDeleted { volume, metablocks })
            }
            21 => {
                let (cluster, default_replicas) = (self.below(3), self.below(20) as u32);
                let extra_share_percent = self.below(120) as u32;
                Change::InitCluster(pb::InitCluster {
                    cluster,
                    default_replicas,
                    extra_share_percent,
                    version: crate::version::NEWEST,
                })
            }
            22..=25 => {
                let inode = self.file();
                let (epoch, block) = (self.epoch(inode), self.block(inode));
                let (metablock, generation) = (block.id, block.generation);
                let before = if self.one_in(5) { self.members() } else { block.extra };
                let members = if self.one_in(3) { Vec::new() } else { self.members() };
                Change::ChangeExtras(pb::ChangeExtras { inode, epoch, metablock, generation, before, members })
            }
            26 => {
                let (dataset, gone, by) = (self.below(3), self.below(4), self.below(4));
                match self.one_in(2) {
                    true => Change::JoinChain(pb::JoinChain { dataset, node: by, first: gone > 1 }),
                    false => Change::ReplaceInChain(pb::ReplaceInChain { dataset, gone, by }),
                }
            }
            27 => {
                let node = self.below(4);
                let named = (0..self.below(3)).map(|_| {
                    let (dataset, by) = (self.below(3), self.below(4));
                    pb::ReplaceInChain { dataset, gone: node, by }
                });
                let chains = named.collect();
                Change::ForgetNode(pb::ForgetNode { node, chains })
            }
            28 => {
                let expired = self.machine.expired_names(now, self.below(5) as usize);
                let name = |one: crate::ExpiredName| pb::expire_trash::Name {
                    parent: one.parent.raw(),
                    name: one.name,
                    inode: one.inode.raw(),
                };
                let mut names: Vec<_> = expired.into_iter().map(name).collect();
                let (parent, name, inode) = (self.inode(), self.name(), self.inode());
                names.push(pb::expire_trash::Name { parent, name, inode });
                Change::ExpireTrash(pb::ExpireTrash { names })
            }
            29..=44 => self.raid_change(),
            _ => Change::Client(self.client(now)),
        }
    }
}

/// A command that the throws decide about, mostly one that fits the machine.
pub(crate) fn command(machine: &Machine, now: i64, throws: Throws) -> pb::Command {
    pb::Command { now_ns: now, command: Some(Dice { machine, throws, at: 0 }.change(now)), ..Default::default() }
}

/// A machine with two sessions.
pub(crate) fn started() -> Machine {
    let mut machine = Machine::new();
    let init = Change::InitCluster(pb::InitCluster {
        cluster: 1,
        default_replicas: 2,
        extra_share_percent: 0,
        version: crate::version::NEWEST,
    });
    machine.apply(&pb::Command { now_ns: 1, command: Some(init), ..Default::default() }).reply.unwrap();
    for _ in 0..2 {
        let open = Change::OpenSession(pb::OpenSessionCommand::default());
        machine.apply(&pb::Command { now_ns: 1, command: Some(open), ..Default::default() }).reply.unwrap();
    }
    machine
}

fn queries(machine: &Machine, throws: Throws) {
    let mut dice = Dice { machine, throws, at: 0 };
    let (inode, name) = (dice.inode(), dice.name());
    let cookie = dice.number(20);
    let limit = dice.number(5) as u32;
    for op in [
        Op::Lookup(meta_op::Lookup { parent: inode, name }),
        Op::GetAttr(meta_op::GetAttr { inode }),
        Op::ReadDir(meta_op::ReadDir {
            inode,
            cookie,
            limit,
            plus: true,
            map: true,
            hint: false,
            check: dice.below(2) == 0,
        }),
        Op::ReadLink(meta_op::ReadLink { inode }),
        Op::GetXattr(meta_op::GetXattr { inode, name: dice.text() }),
        Op::ListXattr(meta_op::ListXattr { inode }),
        Op::StatFs(meta_op::StatFs { inode }),
        Op::GetMap(meta_op::GetMap { inode, first_index: cookie, limit }),
        Op::Resolve(meta_op::Resolve { path: dice.text(), follow_last: true, access: dice.below(9) as u32 }),
        Op::TestLock(meta_op::TestLock { inode, lock: Some(dice.lock()) }),
        Op::ListDatasets(meta_op::ListDatasets::default()),
        Op::Summarize(meta_op::Summarize { inode, from: vec![pb::SummaryPlace { inode: dice.inode(), cookie }] }),
        Op::Summarize(meta_op::Summarize { inode, from: Vec::new() }),
    ] {
        let user = Credentials { uid: 1000, gid: 100, groups: Vec::new() };
        let _ = machine.query(SessionId::new(cookie), &user, &op);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_command_breaks_an_invariant(all in proptest::collection::vec(throws(), 1..150)) {
        let mut machine = started();
        for (now, throws) in all.into_iter().enumerate() {
            let command = command(&machine, now as i64, throws);
            let before = machine.digest();
            let applied = machine.apply(&command);
            prop_assert_eq!(machine.check(), Vec::<String>::new(), "after {:?}", command);
            if applied.reply.is_err() {
                prop_assert!(applied.effects.is_empty());
                // A refused command of the master's own leaves no trace at all.
                if !matches!(command.command, Some(Change::Client(_))) {
                    prop_assert_eq!(before, machine.digest(), "refused and changed: {:?}", command);
                }
            }
            queries(&machine, throws);
        }
    }

    #[test]
    fn a_refused_mutation_changes_nothing_but_the_kept_reply(all in proptest::collection::vec(throws(), 1..80)) {
        let mut machine = started();
        for (now, throws) in all.into_iter().enumerate() {
            let command = command(&machine, now as i64, throws);
            let mut before = machine.clone();
            if machine.apply(&command).reply.is_err() {
                // Sessions apart, both are the same.
                before.sessions = machine.sessions.clone();
                prop_assert_eq!(before.digest(), machine.digest(), "refused and changed: {:?}", command);
            }
        }
    }

    #[test]
    fn any_bytes_that_decode_can_be_applied(all in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..20)) {
        let mut machine = started();
        for bytes in all {
            if let Ok(command) = pb::Command::decode(bytes.as_slice()) {
                let _ = machine.apply(&command);
                prop_assert_eq!(machine.check(), Vec::<String>::new());
            }
        }
    }

    #[test]
    fn a_damaged_command_can_be_applied(
        all in proptest::collection::vec((throws(), any::<u16>(), any::<u8>()), 1..60),
    ) {
        let mut machine = started();
        for (now, (throws, at, byte)) in all.into_iter().enumerate() {
            let mut bytes = command(&machine, now as i64, throws).encode_to_vec();
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
            if let Ok(command) = pb::Command::decode(bytes.as_slice()) {
                let _ = machine.apply(&command);
                prop_assert_eq!(machine.check(), Vec::<String>::new(), "after {:?}", command);
            }
        }
    }
}
