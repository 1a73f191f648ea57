//! Commands of all kinds, likely and unlikely: nothing may panic, and nothing may break an invariant.

use ebb_types::{Credentials, SessionId};
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};
use ebb_wire::{Message, pb};
use proptest::prelude::*;

use crate::Machine;

/// Small numbers that decide what a command is, so that a failing one shrinks.
pub(crate) type Throws = [u16; 14];

pub(crate) fn throws() -> impl Strategy<Value = Throws> {
    any::<Throws>()
}

struct Dice {
    throws: Throws,
    at: usize,
}

impl Dice {
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

    fn inode(&mut self) -> u64 {
        if self.one_in(3) { 1 } else { self.number(14) }
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

    fn version(&mut self) -> Option<pb::Version> {
        Some(pb::Version { epoch: self.number(4), seq: self.number(6) })
    }

    fn members(&mut self) -> Vec<pb::Member> {
        let first = 1 + self.below(4);
        let count = if self.one_in(12) { 0 } else { 1 + self.below(3) };
        (first..first + count).map(|volume| pb::Member { node: volume, volume, incarnation: 1 }).collect()
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

    fn committed(&mut self) -> Vec<pb::CommitMetablock> {
        let count = self.below(3);
        let one = |dice: &mut Self| pb::CommitMetablock {
            id: dice.number(9),
            version: dice.version(),
            length: dice.number(2000),
        };
        (0..count).map(|_| one(self)).collect()
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

    fn set_attr(&mut self) -> meta_op::SetAttr {
        meta_op::SetAttr {
            inode: self.inode(),
            mode: self.maybe(Self::mode),
            uid: self.maybe(|dice| dice.below(3) as u32 * 1000),
            gid: self.maybe(|dice| dice.below(3) as u32 * 100),
            size: self.maybe(|dice| dice.number(3000)),
            epoch: self.number(4),
            atime_now: self.one_in(5),
            mtime_ns: self.maybe(|dice| i64::from(dice.next())),
            trim: self.maybe(|dice| meta_op::Trim {
                metablock: dice.number(9),
                version: dice.version(),
                length: dice.number(2000),
            }),
            committed: self.committed(),
            by_handle: self.one_in(2),
            kill_privileges: self.one_in(9),
            ..Default::default()
        }
    }

    fn commit_file(&mut self) -> pb::CommitFile {
        pb::CommitFile {
            inode: self.inode(),
            epoch: self.number(4),
            size: self.number(3000),
            mtime_ns: i64::from(self.next()),
            metablocks: self.committed(),
            release: self.one_in(3),
            trimmed: self.one_in(2),
            kill_privileges: self.one_in(9),
            size_generation: self.maybe(|dice| dice.below(2)),
        }
    }

    fn op(&mut self) -> Op {
        let (parent, inode, name) = (self.inode(), self.inode(), self.name());
        let (mode, umask) = (self.mode(), 0o022);
        match self.below(19) {
            0..=2 => Op::Create(meta_op::Create {
                parent,
                name,
                mode,
                umask,
                exclusive: self.one_in(2),
                no_grant: self.one_in(3),
            }),
            3 | 4 => Op::MakeDir(meta_op::MakeDir { parent, name, mode, umask }),
            5 => Op::MakeNode(meta_op::MakeNode { parent, name, kind: self.number(8) as u32, mode, umask, rdev: 3 }),
            6 => Op::Symlink(meta_op::Symlink { parent, name, target: self.text() }),
            7 => Op::Link(meta_op::Link { inode, parent, name }),
            8 => Op::Unlink(meta_op::Unlink { parent, name }),
            9 => Op::RemoveDir(meta_op::RemoveDir { parent, name }),
            10 => Op::Rename(meta_op::Rename {
                source_parent: parent,
                source_name: name,
                target_parent: inode,
                target_name: self.name(),
                no_replace: self.one_in(5),
                exchange: self.one_in(3),
            }),
            11 | 12 => Op::SetAttr(self.set_attr()),
            13 => {
                let name = self.text();
                let value = if name.starts_with(b"system") { self.acl() } else { vec![7; self.below(300) as usize] };
                let (create, replace) = (self.one_in(5), self.one_in(5));
                Op::SetXattr(meta_op::SetXattr { inode, name, value: value.into(), create, replace })
            }
            14 => Op::RemoveXattr(meta_op::RemoveXattr { inode, name: self.text() }),
            15 => {
                let indexes = (0..self.below(3)).map(|_| self.number(4)).collect();
                Op::Grant(meta_op::Grant { inode, epoch: self.number(3), indexes, hosts: Vec::new() })
            }
            16 => {
                let files = (0..self.below(4)).map(|_| self.commit_file()).collect();
                Op::Commit(meta_op::Commit { files })
            }
            17 => Op::SetLock(meta_op::SetLock {
                inode,
                lock: Some(self.lock()),
                wait: self.one_in(2),
                cancel: self.one_in(5),
            }),
            _ if self.one_in(2) => Op::CreateDataset(meta_op::CreateDataset {
                dataset: Some(pb::Dataset { path: "/d".into(), replicas: self.below(4) as u32, ..Default::default() }),
            }),
            _ => Op::ChangeSet(meta_op::ChangeSet {
                inode,
                epoch: self.number(3),
                metablock: self.number(9),
                generation: self.number(3),
                members: self.members(),
                version: self.version(),
            }),
        }
    }

    fn client(&mut self) -> pb::ClientCommand {
        let placements = (0..3).map(|_| pb::Placement { members: self.members() }).collect();
        let uid = [0, 0, 1000, 2000][self.below(4) as usize];
        let request = pb::MetaRequest {
            session: self.number(2).saturating_add(1),
            request: self.number(200).saturating_add(1),
            acknowledged: if self.one_in(30) { self.below(50) } else { 0 },
            credentials: Some(pb::Credentials { uid, gid: uid / 10, groups: vec![300] }),
            op: Some(pb::MetaOp { op: Some(self.op()) }),
        };
        pb::ClientCommand { request: Some(request), placements }
    }

    fn found(&mut self) -> Vec<pb::Metablock> {
        let one = |dice: &mut Self| pb::Metablock {
            id: dice.number(9),
            version: dice.version(),
            length: dice.number(2000),
            members: dice.members(),
            ..Default::default()
        };
        (0..self.below(4)).map(|_| one(self)).collect()
    }

    fn change(&mut self) -> Change {
        match self.below(60) {
            0..=1 => Change::OpenSession(pb::OpenSessionCommand { host: "h".into(), role: "r".into() }),
            2 => Change::CloseSession(self.number(4)),
            3 => {
                let volumes =
                    (0..self.below(3)).map(|_| pb::Volume { id: self.below(4), ..Default::default() }).collect();
                Change::RegisterNode(pb::RegisterNodeCommand { node: self.below(3), volumes, ..Default::default() })
            }
            4 => Change::SetNodeState(pb::SetNodeState { node: self.number(3), draining: self.one_in(2) }),
            5..=7 => Change::AcquireWrite(pb::AcquireWrite { session: 1 + self.below(2), inode: self.inode() }),
            8..=9 => Change::BeginRecovery(pb::BeginRecovery { inode: self.inode(), expected_epoch: self.number(4) }),
            10..=11 => Change::FinishRecovery(pb::FinishRecovery {
                inode: self.inode(),
                epoch: self.number(5),
                size: self.number(3000),
                metablocks: self.found(),
                written: self.one_in(2),
            }),
            12..=13 => Change::ChangeSet(pb::MasterChangeSet {
                inode: self.inode(),
                epoch: self.number(3),
                metablock: self.number(9),
                generation: self.number(3),
                members: self.members(),
            }),
            14..=15 => Change::Reap(pb::Reap { inodes: (0..5).map(|_| self.number(14)).collect() }),
            16 => Change::DropDeleted(pb::DropDeleted {
                volume: self.below(5),
                metablocks: vec![self.below(9), self.below(9)],
            }),
            17 => {
                Change::InitCluster(pb::InitCluster { cluster: self.below(3), default_replicas: self.below(20) as u32 })
            }
            _ => Change::Client(self.client()),
        }
    }
}

/// A command that the throws decide about.
pub(crate) fn command(now: i64, throws: Throws) -> pb::Command {
    pb::Command { now_ns: now, command: Some(Dice { throws, at: 0 }.change()) }
}

/// A machine with two sessions.
pub(crate) fn started() -> Machine {
    let mut machine = Machine::new();
    for _ in 0..2 {
        let open = Change::OpenSession(pb::OpenSessionCommand::default());
        machine.apply(&pb::Command { now_ns: 1, command: Some(open) }).reply.unwrap();
    }
    machine
}

fn queries(machine: &Machine, throws: Throws) {
    let mut dice = Dice { throws, at: 0 };
    let (inode, name) = (dice.inode(), dice.name());
    let cookie = dice.number(20);
    let limit = dice.number(5) as u32;
    for op in [
        Op::Lookup(meta_op::Lookup { parent: inode, name }),
        Op::GetAttr(meta_op::GetAttr { inode }),
        Op::ReadDir(meta_op::ReadDir { inode, cookie, limit, plus: true, map: true }),
        Op::ReadLink(meta_op::ReadLink { inode }),
        Op::GetXattr(meta_op::GetXattr { inode, name: dice.text() }),
        Op::ListXattr(meta_op::ListXattr { inode }),
        Op::StatFs(meta_op::StatFs { inode }),
        Op::GetMap(meta_op::GetMap { inode, first_index: cookie, limit }),
        Op::Resolve(meta_op::Resolve { path: dice.text(), follow_last: true }),
        Op::TestLock(meta_op::TestLock { inode, lock: Some(dice.lock()) }),
        Op::ListDatasets(meta_op::ListDatasets {}),
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
            let command = command(now as i64, throws);
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
            let command = command(now as i64, throws);
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
            let mut bytes = command(now as i64, throws).encode_to_vec();
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
            if let Ok(command) = pb::Command::decode(bytes.as_slice()) {
                let _ = machine.apply(&command);
                prop_assert_eq!(machine.check(), Vec::<String>::new(), "after {:?}", command);
            }
        }
    }
}
