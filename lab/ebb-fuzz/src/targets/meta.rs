//! The master's state machine: commands that are well-formed and mean harm, and states that no master wrote.

use std::sync::OnceLock;

use bytes::Bytes;
use ebb_meta::{Machine, Reply};
use ebb_types::SessionId;
use ebb_wire::frame::crc32c;
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};
use ebb_wire::{Message, pb};

use crate::message::{join, split};
use crate::target::{Cap, Shape, Target, nothing};

/// A table is a tree of nodes of 64 places: a command of a few bytes may make one in each of several.
pub(super) const STATE: Cap = Cap { base: 2 << 20, times: 256 };

/// A list of `Command`, applied to an empty state. Whatever they are, no invariant of the state breaks.
pub(super) const COMMANDS: Target = Target {
    name: "meta/commands",
    source: "the master's log",
    cap: STATE,
    shape: Shape::Messages,
    cases: 2_500,
    decode: |bytes| {
        let mut machine = Machine::new();
        let mut is_done = false;
        for command in split(bytes) {
            if let Ok(command) = pb::Command::decode(&command[..]) {
                is_done |= machine.apply(&command).reply.is_ok();
            }
        }
        ask_everything(&machine);
        assert_eq!(machine.check(), Vec::<String>::new());
        is_done
    },
    samples: || vec![join(&history()), join(&history()[..12])],
    repair: |bytes| *bytes = join(&renumbered(&split(bytes))),
};

/// A `MetaRequest` that asks and changes nothing.
pub(super) const QUERIES: Target = Target {
    name: "meta/queries",
    source: "a client",
    cap: STATE,
    shape: Shape::Message(0),
    cases: 8_000,
    decode: |bytes| {
        let Ok(request) = pb::MetaRequest::decode(bytes) else { return false };
        let credentials = request.credentials.unwrap_or_default().into();
        let Some(op) = request.op.and_then(|op| op.op).filter(Op::is_query) else { return false };
        lived().query(SessionId::new(request.session), &credentials, &op).map(|reply| reply.encode_to_vec()).is_ok()
    },
    samples: || requests().iter().map(Message::encode_to_vec).collect(),
    repair: nothing,
};

/// A list of `CheckpointRecord`. A state that is taken can be gone on from: asked, changed and written again.
pub(super) const RECORDS: Target = Target {
    name: "meta/records",
    source: "checkpoint-N",
    cap: STATE,
    shape: Shape::Messages,
    cases: 2_500,
    decode: |bytes| {
        let records = split(bytes);
        let records = records.iter().map(|record| Ok(&record[..]));
        let Ok((mut machine, index, term)) = Machine::from_records(records) else { return false };
        ask_everything(&machine);
        let _ = machine.check();
        for command in &history() {
            machine.apply(&pb::Command::decode(&command[..]).expect("made by an encoder"));
        }
        machine.encode_records(index, term, |_| {});
        true
    },
    samples: streams,
    repair: |bytes| *bytes = closed(&split(bytes)),
};

/// An access control list, as an attribute has it.
pub(super) const BLOB: Target = Target {
    name: "meta/acl",
    source: "a client's attribute",
    cap: STATE,
    shape: Shape::Bytes,
    cases: 5_000,
    decode: |bytes| {
        let mut is_done = false;
        for (inode, name) in [(DIRECTORY, "access"), (DIRECTORY, "default"), (FILE, "access")] {
            let (name, value) = (format!("system.posix_acl_{name}").into_bytes(), Bytes::copy_from_slice(bytes));
            let mut writer = Writer { machine: lived().clone(), ..Writer::default() };
            let set = Op::SetXattr(meta_op::SetXattr { inode, name, value, ..Default::default() });
            writer.client(set, &[]);
            assert_eq!(writer.machine.check(), Vec::<String>::new());
            is_done |= writer.last.attr.is_some();
        }
        is_done
    },
    samples: || {
        let acl = |entries: &[(u16, u16, u32)]| {
            let fields = entries
                .iter()
                .flat_map(|(tag, perm, id)| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat());
            [2, 0, 0, 0].into_iter().chain(fields).collect::<Vec<u8>>()
        };
        let named = [(1, 7, u32::MAX), (2, 5, 1000), (4, 5, u32::MAX), (8, 4, 7), (16, 7, u32::MAX), (32, 4, u32::MAX)];
        vec![acl(&named), acl(&[named[0], named[2], named[5]]), acl(&[])]
    },
    repair: nothing,
};

const ROOT: u64 = 1;
/// The first directory and the first file of [`history`].
const DIRECTORY: u64 = 2;
const FILE: u64 = 3;

/// Proposes commands, each a little later than the one before.
#[derive(Default)]
struct Writer {
    machine: Machine,
    log: Vec<Vec<u8>>,
    now_ns: i64,
    last: pb::MetaReply,
}

impl Writer {
    fn apply(&mut self, change: Change) {
        self.now_ns += 1000;
        let command = pb::Command { now_ns: self.now_ns, command: Some(change), ..Default::default() };
        self.last = match self.machine.apply(&command).reply {
            Ok(Reply::Meta(reply)) => reply,
            _ => pb::MetaReply::default(),
        };
        self.log.push(command.encode_to_vec());
    }

    fn client(&mut self, op: Op, volumes: &[u64]) {
        let request = request(self.log.len() as u64 + 1, op);
        let placements = vec![pb::Placement { members: members(volumes) }; 2];
        let placements = if volumes.is_empty() { Vec::new() } else { placements };
        self.apply(Change::Client(pb::ClientCommand { request: Some(request), placements }));
    }

    fn epoch(&self, inode: u64) -> u64 {
        self.machine.attr(ebb_types::InodeId::new(inode)).map_or(0, |attr| attr.epoch)
    }

    fn block(&self, inode: u64) -> pb::Metablock {
        let blocks = self.machine.metablocks(ebb_types::InodeId::new(inode)).unwrap_or_default();
        blocks.first().cloned().unwrap_or_default()
    }
}

fn request(number: u64, op: Op) -> pb::MetaRequest {
    pb::MetaRequest {
        session: 1,
        request: number,
        credentials: Some(pb::Credentials { uid: 0, gid: 0, groups: vec![300] }),
        op: Some(pb::MetaOp { op: Some(op) }),
        ..Default::default()
    }
}

fn members(volumes: &[u64]) -> Vec<pb::Member> {
    volumes.iter().map(|volume| pb::Member { node: *volume, volume: *volume, incarnation: 1, home: 0 }).collect()
}

/// Commands that each do something, from an empty state on.
fn write_history() -> Writer {
    let mut writer = Writer { now_ns: 1_000_000_000, ..Writer::default() };
    writer.apply(Change::InitCluster(pb::InitCluster {
        cluster: 7,
        default_replicas: 2,
        extra_share_percent: 10,
        version: ebb_meta::version::NEWEST,
    }));
    for host in ["h1", "h2"] {
        writer.apply(Change::OpenSession(pb::OpenSessionCommand {
            host: host.into(),
            role: "mount".into(),
            ..Default::default()
        }));
    }
    for host in ["h1", "h2", "h3", "h4"] {
        let volumes = vec![pb::Volume { incarnation: 1, capacity_bytes: 1 << 40, ..Default::default() }];
        let (host, rack, address) = (host.to_owned(), "r1".to_owned(), "127.0.0.1:1".to_owned());
        writer.apply(Change::RegisterNode(pb::RegisterNodeCommand {
            node: 0,
            host,
            rack,
            address,
            volumes,
            ..Default::default()
        }));
    }
    write_names(&mut writer);
    write_file(&mut writer);
    let (volume, metablocks) = (2, vec![900, 901]);
    writer.apply(Change::Quarantine(pb::Quarantine { volume, metablocks: metablocks.clone(), release: false }));
    writer.apply(Change::DropDeleted(pb::DropDeleted { volume, metablocks }));
    writer.apply(Change::PublishPlan(pb::PublishedPlan { version: 1, start_ms: 5, plan: vec![1, 2, 3] }));
    writer.apply(Change::SetNodeState(pb::SetNodeState { node: 2, draining: true }));
    writer.apply(Change::ReplaceInChain(pb::ReplaceInChain { dataset: 1, gone: 1, by: 3 }));
    writer.apply(Change::SetNodeState(pb::SetNodeState { node: 4, draining: true }));
    writer.apply(Change::ForgetNode(pb::ForgetNode { node: 4, chains: Vec::new() }));
    writer.apply(Change::CloseSession(2));
    writer
}

fn write_names(writer: &mut Writer) {
    let (mode, umask) = (0o755, 0o022);
    let name = |name: &str| name.as_bytes().to_vec();
    writer.client(Op::MakeDir(meta_op::MakeDir { parent: ROOT, name: name("d"), mode, umask }), &[]);
    let create = |parent, name| Op::Create(meta_op::Create { parent, name, mode, umask, ..Default::default() });
    writer.client(create(DIRECTORY, name("f")), &[1, 2]);
    writer.client(Op::Symlink(meta_op::Symlink { parent: ROOT, name: name("s"), target: name("/d/f") }), &[]);
    writer
        .client(Op::MakeNode(meta_op::MakeNode { parent: ROOT, name: name("p"), kind: 4, mode, umask, rdev: 3 }), &[]);
    writer.client(Op::Link(meta_op::Link { inode: FILE, parent: ROOT, name: name("l") }), &[]);
    let set = |name: Vec<u8>, value: &'static [u8]| {
        Op::SetXattr(meta_op::SetXattr { inode: DIRECTORY, name, value: value.into(), ..Default::default() })
    };
    writer.client(set(name("user.a"), b"value"), &[]);
    let acl: &[u8] = b"\x02\0\0\0\x01\0\x07\0\xff\xff\xff\xff\x02\0\x05\0\xe8\x03\0\0\x04\0\x05\0\xff\xff\xff\xff\x10\0\x07\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";
    writer.client(set(name("system.posix_acl_default"), acl), &[]);
    let rename = meta_op::Rename {
        source_parent: ROOT,
        source_name: name("l"),
        target_parent: DIRECTORY,
        target_name: name("m"),
        ..Default::default()
    };
    writer.client(Op::Rename(rename), &[]);
    writer.client(Op::MakeDir(meta_op::MakeDir { parent: ROOT, name: name("set"), mode, umask }), &[]);
    let dataset = pb::Dataset {
        path: "/set".into(),
        replicas: 2,
        block_size: 1 << 20,
        metablock_size: 4 << 20,
        quota_inodes: 100,
        chain: vec![1, 2],
        ..Default::default()
    };
    writer.client(Op::CreateDataset(meta_op::CreateDataset { dataset: Some(dataset), ..Default::default() }), &[]);
    let limits = meta_op::SetDataset { dataset: 1, quota_bytes: Some(1 << 30), ..Default::default() };
    writer.client(Op::SetDataset(limits), &[]);
    writer.client(create(DIRECTORY, name("gone")), &[2, 3]);
    writer.client(Op::Unlink(meta_op::Unlink { parent: DIRECTORY, name: name("gone") }), &[]);
}

/// The life of a file: written, locked, cut, lost by its holder, recovered, copied.
fn write_file(writer: &mut Writer) {
    let inode = FILE;
    let epoch = writer.epoch(inode);
    let grant =
        meta_op::Grant { inode, epoch, indexes: vec![0, 1], hosts: vec!["h1".to_owned()], ..Default::default() };
    writer.client(Op::Grant(grant), &[1, 3]);
    let version = |seq| Some(pb::Version { epoch, seq });
    let id = writer.block(inode).id;
    let committed = pb::CommitMetablock { id, version: version(2), length: 5000 };
    let file = pb::CommitFile { inode, epoch, size: 5000, metablocks: vec![committed], ..Default::default() };
    writer.client(Op::Commit(meta_op::Commit { files: vec![file] }), &[]);
    let lock = pb::FileLock { kind: 2, owner: 5, start: 10, end: u64::MAX, pid: 1, ..Default::default() };
    writer.client(Op::SetLock(meta_op::SetLock { inode, lock: Some(lock), wait: true, cancel: false }), &[]);
    let trim = Some(meta_op::Trim { metablock: id, version: version(3), length: 1000 });
    let cut = meta_op::SetAttr { inode, size: Some(1000), epoch, trim, mode: Some(0o600), ..Default::default() };
    writer.client(Op::SetAttr(cut), &[]);
    let block = writer.block(inode);
    let (metablock, generation) = (block.id, block.generation);
    let change =
        meta_op::ChangeSet { inode, epoch, metablock, generation, members: members(&[2, 3]), version: version(3) };
    writer.client(Op::ChangeSet(change), &[]);
    writer.apply(Change::BeginRecovery(pb::BeginRecovery { inode, expected_epoch: epoch }));
    let epoch = writer.epoch(inode);
    let mut block = writer.block(inode);
    block.version = Some(pb::Version { epoch, seq: 0 });
    let metablocks = vec![block];
    writer.apply(Change::FinishRecovery(pb::FinishRecovery { inode, epoch, size: 1000, metablocks, written: true }));
    let (epoch, block) = (writer.epoch(inode), writer.block(inode));
    let (metablock, generation) = (block.id, block.generation);
    let members_of = |volumes: &[u64]| members(volumes);
    let set = pb::MasterChangeSet { inode, epoch, metablock, generation, members: members_of(&[1, 2]) };
    writer.apply(Change::ChangeSet(set));
    let generation = writer.block(inode).generation;
    let (before, members) = (Vec::new(), members_of(&[3]));
    writer.apply(Change::ChangeExtras(pb::ChangeExtras { inode, epoch, metablock, generation, before, members }));
    writer.apply(Change::AcquireWrite(pb::AcquireWrite { session: 1, inode: 7 }));
    writer.apply(Change::Reap(pb::Reap { inodes: (2..12).collect() }));
}

fn history() -> Vec<Vec<u8>> {
    static LOG: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    LOG.get_or_init(|| write_history().log).clone()
}

/// The state behind [`history`].
fn lived() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| write_history().machine)
}

/// Checkpoints: of an empty state, and of one with something of everything.
pub(super) fn streams() -> Vec<Vec<u8>> {
    [&Machine::new(), lived()]
        .map(|machine| {
            let mut records = Vec::new();
            machine.encode_records(9, 2, |record| records.push(record.to_vec()));
            join(&records)
        })
        .to_vec()
}

/// The same records with a trailer that fits them.
fn closed(records: &[Vec<u8>]) -> Vec<u8> {
    let is_trailer = |record: &[u8]| record.first() == Some(&(8 << 3 | 2));
    let mut kept: Vec<Vec<u8>> = records.iter().filter(|record| !is_trailer(record)).cloned().collect();
    let checksum = kept.iter().fold(0, |sum: u32, record| crc32c(&[&sum.to_le_bytes()[..], record].concat()));
    let trailer = pb::CheckpointTrailer { records: kept.len() as u64, checksum };
    let record = Some(pb::checkpoint_record::Record::Trailer(trailer));
    kept.push(pb::CheckpointRecord { record }.encode_to_vec());
    join(&kept)
}

/// Commands of clients with request numbers of their own, of sessions that there are.
fn renumbered(commands: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut out = Vec::with_capacity(commands.len());
    for (number, bytes) in (1..).zip(commands) {
        let Ok(mut command) = pb::Command::decode(&bytes[..]) else {
            out.push(bytes.clone());
            continue;
        };
        if let Some(Change::Client(client)) = &mut command.command
            && let Some(request) = &mut client.request
        {
            request.session = request.session.clamp(1, 2);
            (request.request, request.acknowledged) = (number, request.acknowledged.min(number));
            request.credentials.get_or_insert_default();
        }
        out.push(command.encode_to_vec());
    }
    out
}

/// Requests of each kind that ask.
pub(super) fn requests() -> Vec<pb::MetaRequest> {
    let (inode, name) = (DIRECTORY, b"f".to_vec());
    let lock = pb::FileLock { kind: 2, owner: 9, start: 0, end: u64::MAX, ..Default::default() };
    let ops = vec![
        Op::Lookup(meta_op::Lookup { parent: inode, name: name.clone() }),
        Op::GetAttr(meta_op::GetAttr { inode }),
        Op::ReadDir(meta_op::ReadDir { inode, cookie: 0, limit: 100, plus: true, map: true, ..Default::default() }),
        Op::ReadLink(meta_op::ReadLink { inode: 4 }),
        Op::GetXattr(meta_op::GetXattr { inode, name: b"user.a".to_vec() }),
        Op::ListXattr(meta_op::ListXattr { inode }),
        Op::StatFs(meta_op::StatFs { inode }),
        Op::GetMap(meta_op::GetMap { inode: FILE, first_index: 0, limit: 100 }),
        Op::Resolve(meta_op::Resolve { path: b"/s".to_vec(), follow_last: true, access: 0 }),
        Op::TestLock(meta_op::TestLock { inode: FILE, lock: Some(lock) }),
        Op::ListDatasets(meta_op::ListDatasets::default()),
    ];
    ops.into_iter().map(|op| request(7, op)).collect()
}

/// Everything that is looked up without a client: what the master's own services ask.
fn ask_everything(machine: &Machine) {
    for request in requests() {
        if let (Some(op), Some(user)) = (request.op.and_then(|op| op.op), request.credentials) {
            let _ = machine.query(SessionId::new(1), &user.into(), &op);
        }
    }
    let _ = machine.digest();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples that were refused would have nothing behind them changed.
    #[test]
    fn every_sample_command_is_done() {
        let mut machine = Machine::new();
        for command in history() {
            let command = pb::Command::decode(&command[..]).unwrap();
            let applied = machine.apply(&command);
            assert!(applied.reply.is_ok(), "{:?} for {command:?}", applied.reply);
        }
        assert_eq!(machine.check(), Vec::<String>::new());
        for request in requests() {
            let op = request.op.unwrap().op.unwrap();
            let answer = machine.query(SessionId::new(1), &request.credentials.unwrap().into(), &op);
            assert!(answer.is_ok(), "{answer:?} for {op:?}");
        }
    }
}
