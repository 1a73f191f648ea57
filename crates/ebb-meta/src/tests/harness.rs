//! A machine with a clock, sessions and users, checked after every step.

use ebb_types::{Credentials, Error, ErrorKind, InodeId, SessionId};
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};

use crate::{Applied, Effect, Machine, Reply};

/// What an operation answers, with the kind of a refusal only.
pub(crate) type Answer = Result<pb::MetaReply, ErrorKind>;

pub(crate) const ROOT: u64 = 1;
pub(crate) const MIB: u64 = 1 << 20;

pub(crate) struct World {
    pub(crate) machine: Machine,
    /// Every command so far, for replays.
    pub(crate) log: Vec<pb::Command>,
    pub(crate) now: i64,
    pub(crate) session: u64,
    pub(crate) request: u64,
    pub(crate) user: Credentials,
    /// Effects of the last command.
    pub(crate) effects: Vec<Effect>,
    /// Sentence of the last refusal.
    pub(crate) refusal: Option<Error>,
    /// Whether all invariants are checked after every command.
    pub(crate) checked: bool,
}

pub(crate) fn user(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
    Credentials { uid, gid, groups: groups.to_vec() }
}

pub(crate) fn member(volume: u64) -> pb::Member {
    pb::Member { node: volume, volume, incarnation: 1, home: 0 }
}

pub(crate) fn members(volumes: &[u64]) -> Vec<pb::Member> {
    volumes.iter().copied().map(member).collect()
}

pub(crate) fn placement(volumes: &[u64]) -> pb::Placement {
    pb::Placement { members: members(volumes) }
}

pub(crate) fn version(epoch: u64, seq: u64) -> Option<pb::Version> {
    Some(pb::Version { epoch, seq })
}

pub(crate) fn committed(id: u64, epoch: u64, seq: u64, length: u64) -> pb::CommitMetablock {
    pb::CommitMetablock { id, version: version(epoch, seq), length }
}

impl World {
    /// A cluster with one session. A mutation is the superuser's until the test changes the user.
    pub(crate) fn new() -> Self {
        let mut world = Self {
            machine: Machine::new(),
            log: Vec::new(),
            now: 1_000_000_000,
            session: 0,
            request: 0,
            user: Credentials::root(),
            effects: Vec::new(),
            refusal: None,
            checked: true,
        };
        world
            .apply(Change::InitCluster(pb::InitCluster {
                cluster: 7,
                default_replicas: 2,
                extra_share_percent: 0,
                version: crate::version::NEWEST,
            }))
            .reply
            .unwrap();
        world.session = world.open_session();
        world
    }

    /// Proposes a command at a later time than all before.
    pub(crate) fn apply(&mut self, command: Change) -> Applied {
        self.now += 1000;
        let command = pb::Command { now_ns: self.now, command: Some(command), ..Default::default() };
        let applied = self.machine.apply(&command);
        self.log.push(command);
        if self.checked {
            assert_eq!(self.machine.check(), Vec::<String>::new(), "after {:?}", self.log.last());
        }
        self.effects = applied.effects.clone();
        self.refusal = applied.reply.as_ref().err().cloned();
        applied
    }

    pub(crate) fn open_session(&mut self) -> u64 {
        let open = pb::OpenSessionCommand { host: "client".into(), role: "test".into(), ..Default::default() };
        match self.apply(Change::OpenSession(open)).reply.unwrap() {
            Reply::Session(session) => session.raw(),
            other => panic!("not a session: {other:?}"),
        }
    }

    pub(crate) fn close_session(&mut self, session: u64) {
        assert_eq!(self.apply(Change::CloseSession(session)).reply.unwrap(), Reply::None);
    }

    pub(crate) fn request(&mut self, op: Op) -> pb::MetaRequest {
        self.request += 1;
        pb::MetaRequest {
            session: self.session,
            request: self.request,
            acknowledged: self.request,
            credentials: Some((&self.user).into()),
            op: Some(pb::MetaOp { op: Some(op) }),
            lease: false,
        }
    }

    pub(crate) fn place(&mut self, op: Op, placements: Vec<pb::Placement>) -> Answer {
        let request = Some(self.request(op));
        match self.apply(Change::Client(pb::ClientCommand { request, placements })).reply {
            Ok(Reply::Meta(reply)) => Ok(reply),
            Ok(other) => panic!("not a reply to a client: {other:?}"),
            Err(error) => Err(error.kind()),
        }
    }

    pub(crate) fn run(&mut self, op: Op) -> Answer {
        self.place(op, Vec::new())
    }

    pub(crate) fn ask(&self, op: Op) -> Answer {
        self.machine.query(SessionId::new(self.session), &self.user, &op).map_err(|error| error.kind())
    }

    pub(crate) fn as_user(&mut self, user: Credentials) -> &mut Self {
        self.user = user;
        self
    }

    pub(crate) fn as_root(&mut self) -> &mut Self {
        self.as_user(Credentials::root())
    }

    pub(crate) fn attr(&self, inode: u64) -> pb::Attr {
        self.machine.attr(InodeId::new(inode)).unwrap()
    }

    pub(crate) fn lookup(&self, parent: u64, name: &str) -> Result<pb::Attr, ErrorKind> {
        let op = Op::Lookup(meta_op::Lookup { parent, name: name.into() });
        self.ask(op).map(|reply| reply.attr.unwrap())
    }

    pub(crate) fn resolve(&self, path: &str) -> Result<u64, ErrorKind> {
        let op = Op::Resolve(meta_op::Resolve { path: path.into(), follow_last: true, access: 0 });
        self.ask(op).map(|reply| reply.attr.unwrap().inode)
    }

    pub(crate) fn mkdir(&mut self, parent: u64, name: &str, mode: u32) -> Result<u64, ErrorKind> {
        let op = Op::MakeDir(meta_op::MakeDir { parent, name: name.into(), mode, umask: 0o022 });
        self.run(op).map(|reply| reply.attr.unwrap().inode)
    }

    /// A file without metablocks or lease.
    pub(crate) fn mkfile(&mut self, parent: u64, name: &str, mode: u32) -> Result<u64, ErrorKind> {
        let op = meta_op::MakeNode { parent, name: name.into(), kind: 1, mode, umask: 0o022, rdev: 0 };
        self.run(Op::MakeNode(op)).map(|reply| reply.attr.unwrap().inode)
    }

    /// A file with a write lease and a first metablock on these volumes.
    pub(crate) fn create(&mut self, parent: u64, name: &str, volumes: &[u64]) -> pb::MetaReply {
        let name = name.into();
        let op = meta_op::Create { parent, name, mode: 0o644, umask: 0o022, exclusive: true, ..Default::default() };
        self.place(Op::Create(op), vec![placement(volumes)]).unwrap()
    }

    pub(crate) fn symlink(&mut self, parent: u64, name: &str, target: &str) -> Result<u64, ErrorKind> {
        let op = meta_op::Symlink { parent, name: name.into(), target: target.into() };
        self.run(Op::Symlink(op)).map(|reply| reply.attr.unwrap().inode)
    }

    pub(crate) fn link(&mut self, inode: u64, parent: u64, name: &str) -> Answer {
        self.run(Op::Link(meta_op::Link { inode, parent, name: name.into() }))
    }

    pub(crate) fn unlink(&mut self, parent: u64, name: &str) -> Answer {
        self.run(Op::Unlink(meta_op::Unlink { parent, name: name.into() }))
    }

    pub(crate) fn rmdir(&mut self, parent: u64, name: &str) -> Answer {
        self.run(Op::RemoveDir(meta_op::RemoveDir { parent, name: name.into(), whole: false }))
    }

    /// Removes a directory with everything below it.
    pub(crate) fn fell(&mut self, parent: u64, name: &str) -> Answer {
        self.run(Op::RemoveDir(meta_op::RemoveDir { parent, name: name.into(), whole: true }))
    }

    /// Removes what has expired, `max` names at a time. Returns the names in the order of their removal.
    pub(crate) fn expire(&mut self, max: usize) -> Vec<String> {
        let mut removed = Vec::new();
        loop {
            let expired = self.machine.expired_names(self.now, max);
            if expired.is_empty() {
                return removed;
            }
            removed.extend(expired.iter().map(|one| String::from_utf8(one.name.clone()).unwrap()));
            let names = expired.into_iter().map(|one| pb::expire_trash::Name {
                parent: one.parent.raw(),
                name: one.name,
                inode: one.inode.raw(),
            });
            self.apply(Change::ExpireTrash(pb::ExpireTrash { names: names.collect() })).reply.unwrap();
        }
    }

    pub(crate) fn rename(&mut self, source: (u64, &str), target: (u64, &str)) -> Answer {
        self.run(Op::Rename(rename_op(source, target)))
    }

    pub(crate) fn exchange(&mut self, source: (u64, &str), target: (u64, &str)) -> Answer {
        self.run(Op::Rename(meta_op::Rename { exchange: true, ..rename_op(source, target) }))
    }

    pub(crate) fn set_attr(&mut self, op: meta_op::SetAttr) -> Answer {
        self.run(Op::SetAttr(op))
    }

    pub(crate) fn chmod(&mut self, inode: u64, mode: u32) -> Answer {
        self.set_attr(meta_op::SetAttr { inode, mode: Some(mode), ..Default::default() })
    }

    pub(crate) fn chown(&mut self, inode: u64, uid: Option<u32>, gid: Option<u32>) -> Answer {
        self.set_attr(meta_op::SetAttr { inode, uid, gid, ..Default::default() })
    }

    pub(crate) fn set_xattr(&mut self, inode: u64, name: &str, value: &[u8]) -> Answer {
        let value = bytes::Bytes::copy_from_slice(value);
        self.run(Op::SetXattr(meta_op::SetXattr { inode, name: name.into(), value, create: false, replace: false }))
    }

    pub(crate) fn get_xattr(&self, inode: u64, name: &str) -> Result<Vec<u8>, ErrorKind> {
        self.ask(Op::GetXattr(meta_op::GetXattr { inode, name: name.into() })).map(|reply| reply.value)
    }

    pub(crate) fn commit(&mut self, file: pb::CommitFile) -> Result<(), ErrorKind> {
        let reply = self.run(Op::Commit(meta_op::Commit { files: vec![file] }))?;
        match reply.refusals.first() {
            Some(refusal) => Err(ErrorKind::from_raw(refusal.failure.as_ref().unwrap().kind)),
            None => Ok(()),
        }
    }

    /// Gives the write lease back with nothing more to say.
    pub(crate) fn release(&mut self, inode: u64) {
        let epoch = self.attr(inode).epoch;
        self.commit(pb::CommitFile { inode, epoch, release: true, ..Default::default() }).unwrap();
    }

    pub(crate) fn acquire(&mut self, inode: u64) -> Result<pb::Attr, ErrorKind> {
        let session = self.session;
        match self.apply(Change::AcquireWrite(pb::AcquireWrite { session, inode })).reply {
            Ok(Reply::Lease { attr, .. }) => Ok(attr),
            Ok(other) => panic!("not a lease: {other:?}"),
            Err(error) => Err(error.kind()),
        }
    }

    /// Goes on from a checkpoint of the state.
    pub(crate) fn reload(&mut self) {
        let mut records = Vec::new();
        self.machine.encode_records(1, 1, |record| records.push(record.to_vec()));
        let (loaded, ..) = Machine::from_records(records.iter().map(|record| Ok(&record[..]))).unwrap();
        self.machine = loaded;
    }

    pub(crate) fn reap(&mut self, inodes: &[u64]) {
        self.apply(Change::Reap(pb::Reap { inodes: inodes.to_vec() })).reply.unwrap();
    }

    pub(crate) fn lock(&mut self, inode: u64, lock: pb::FileLock, wait: bool) -> Answer {
        self.run(Op::SetLock(meta_op::SetLock { inode, lock: Some(lock), wait, cancel: false }))
    }

    /// Names in a directory, in the order of listing.
    pub(crate) fn names(&self, inode: u64) -> Vec<String> {
        let op = Op::ReadDir(meta_op::ReadDir { inode, ..Default::default() });
        let entries = self.ask(op).unwrap().entries;
        entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
    }
}

pub(crate) fn rename_op(source: (u64, &str), target: (u64, &str)) -> meta_op::Rename {
    meta_op::Rename {
        source_parent: source.0,
        source_name: source.1.into(),
        target_parent: target.0,
        target_name: target.1.into(),
        no_replace: false,
        exchange: false,
    }
}

/// A byte-range lock; `kind` as in the protocol.
pub(crate) fn range(kind: u32, owner: u64, start: u64, end: u64) -> pb::FileLock {
    pb::FileLock { kind, flock: false, owner, start, end, pid: owner as u32, session: 0 }
}

/// A whole-file lock.
pub(crate) fn flock(kind: u32, owner: u64) -> pb::FileLock {
    pb::FileLock { flock: true, ..range(kind, owner, 0, u64::MAX) }
}
