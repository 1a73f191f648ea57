//! The machine's tables, and which operation a command is.

use std::sync::Arc;

use ebb_types::{
    ClusterId, Credentials, DatasetId, InodeId, MetablockId, NodeId, RequestId, Result, SessionId, SnapshotId,
    VolumeId, bail,
};
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::Op;
use imbl::{OrdMap, OrdSet};

use crate::dataset::Datasets;
use crate::dir::Entries;
use crate::extras::Extras;
use crate::inode::{Body, COOKIE_FIRST, DirectoryBody, Inode};
use crate::lineage::{Lineage, SESSION_DRAWN_MIN};
use crate::outcome::{Applied, Effect, Reply};
use crate::raid::RaidSets;
use crate::registry::Registry;
use crate::replicas::Replicas;
use crate::session::{Session, Sessions};
use crate::snapshot::Snapshots;
use crate::trust::Trust;
use crate::version;
use crate::waits::Locks;

/// The state that all masters agree on. Cloning takes constant time.
#[derive(Clone)]
pub struct Machine {
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) version: u32,
    pub(crate) next: NextIds,
    pub(crate) inodes: OrdMap<InodeId, Arc<Inode>>,
    pub(crate) entries: Entries,
    pub(crate) replicas: Replicas,
    pub(crate) extras: Extras,
    pub(crate) raid: RaidSets,
    /// Inodes without a name.
    pub(crate) orphans: OrdSet<InodeId>,
    /// Directories that were removed with everything below them, until they are empty.
    pub(crate) felled: OrdSet<InodeId>,
    /// Write leases by session.
    pub(crate) held: OrdSet<(SessionId, InodeId)>,
    /// Files whose holder is gone.
    pub(crate) recovering: OrdSet<InodeId>,
    pub(crate) locks: Locks,
    pub(crate) sessions: Sessions,
    pub(crate) registry: Registry,
    pub(crate) datasets: Datasets,
    /// Power plans in force and announced, oldest first.
    pub(crate) plans: Vec<pb::PublishedPlan>,
    pub(crate) lineage: Lineage,
    pub(crate) snapshots: Snapshots,
    pub(crate) trust: Trust,
}

/// Bound of ids, epochs and generations. A number that a message names and that passes this bound is refused, so
/// counting on from it cannot overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// Durable counters. No id is assigned twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NextIds {
    pub(crate) inode: InodeId,
    pub(crate) metablock: MetablockId,
    pub(crate) session: SessionId,
    pub(crate) node: NodeId,
    pub(crate) volume: VolumeId,
    pub(crate) dataset: DatasetId,
    pub(crate) snapshot: SnapshotId,
}

impl Default for NextIds {
    fn default() -> Self {
        Self {
            inode: InodeId::new(InodeId::ROOT.raw() + 1),
            metablock: MetablockId::new(1),
            session: SessionId::new(1),
            node: NodeId::new(1),
            volume: VolumeId::new(1),
            dataset: DatasetId::new(1),
            snapshot: SnapshotId::new(1),
        }
    }
}

/// Assigns the next id of a counter.
macro_rules! take_id {
    ($counter:expr, $Id:ident) => {{
        let id = $counter;
        $counter = ebb_types::$Id::new(id.raw().saturating_add(1));
        // I-87: the counter alone decides which ids are free.
        assert!($counter > id, "the counter stays at {id}: the id would be assigned twice");
        id
    }};
}
pub(crate) use take_id;

/// One command while it is applied: its caller, its time and its effects.
pub(crate) struct Call<'a> {
    /// Nanoseconds since 1970 UTC, read by the leader when it proposed the command.
    pub(crate) now: i64,
    /// Session of the caller. 0 stands for the master.
    pub(crate) session: SessionId,
    pub(crate) credentials: Credentials,
    /// Members for new metablocks, in the order in which the operation uses them.
    pub(crate) placements: &'a [pb::Placement],
    pub(crate) effects: Vec<Effect>,
    /// Increment of an epoch, drawn by the leader. 0 means 1.
    pub(crate) step: u64,
}

impl Call<'_> {
    /// A command of the master, with the superuser's rights.
    fn by_master(now: i64, step: u64) -> Self {
        let (session, credentials) = (SessionId::new(0), Credentials::root());
        Self { now, session, credentials, placements: &[], effects: Vec::new(), step }
    }

    /// Seconds since 1970 UTC; 0 before.
    pub(crate) fn now_s(&self) -> u64 {
        u64::try_from(self.now / 1_000_000_000).unwrap_or(0)
    }

    /// Records that attributes or entries of this inode changed. Several calls for one inode give one effect.
    pub(crate) fn changed(&mut self, inode: InodeId) {
        let effect = Effect::Changed { inode, by: self.session };
        if !self.effects.contains(&effect) {
            self.effects.push(effect);
        }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// An empty namespace: the root directory, owned by the superuser, in the default dataset.
    #[must_use]
    pub fn new() -> Self {
        let root = Inode {
            mode: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            btime: 0,
            epoch: ebb_types::Epoch::new(0),
            size_generation: 0,
            takeovers: 0,
            dataset: DatasetId::new(0),
            xattrs: None,
            body: Body::Directory(DirectoryBody { parent: InodeId::ROOT, next_cookie: COOKIE_FIRST, count: 0 }),
        };
        Self { inodes: OrdMap::unit(InodeId::ROOT, Arc::new(root)), datasets: Datasets::new(), ..Self::empty() }
    }

    /// A state without any inode. Loading a checkpoint starts from it.
    pub(crate) fn empty() -> Self {
        Self {
            cluster: None,
            version: version::OLDEST,
            next: NextIds::default(),
            inodes: OrdMap::new(),
            entries: Entries::default(),
            replicas: Replicas::default(),
            extras: Extras::default(),
            raid: RaidSets::default(),
            orphans: OrdSet::new(),
            felled: OrdSet::new(),
            held: OrdSet::new(),
            recovering: OrdSet::new(),
            locks: Locks::default(),
            sessions: Sessions::default(),
            registry: Registry::default(),
            datasets: Datasets::empty(),
            plans: Vec::new(),
            lineage: Lineage::default(),
            snapshots: Snapshots::default(),
            trust: Trust::default(),
        }
    }

    /// Applies one command of the log. The same commands give the same states and replies everywhere.
    pub fn apply(&mut self, command: &pb::Command) -> Applied {
        let Some(change) = &command.command else {
            return Applied::refused(ebb_types::err!(Invalid, "a command of a kind that this release does not know"));
        };
        if let Err(refusal) = self.check_version(change) {
            return Applied::refused(refusal);
        }
        let applied = match change {
            Change::Client(client) => self.apply_client(command, client),
            own => {
                let mut call = Call::by_master(command.now_ns, command.step);
                match self.apply_own(&mut call, own) {
                    Ok(reply) => Applied { reply: Ok(reply), effects: call.effects },
                    Err(error) => Applied::refused(error),
                }
            }
        };
        // A whole `check` for each command would make tests quadratic: only the inodes of the effects are checked.
        debug_assert_eq!(self.check_touched(&applied.effects), Vec::<String>::new(), "{change:?} broke an index");
        applied
    }

    /// Applies a command of the master.
    fn apply_own(&mut self, call: &mut Call<'_>, change: &Change) -> Result<Reply> {
        match change {
            Change::Client(_) => bail!(Internal, "a client's command is applied by apply_client"),
            Change::OpenSession(open) => self.open_session(open).map(Reply::Session),
            Change::CloseSession(session) => {
                self.close_session(call, SessionId::new(*session));
                Ok(Reply::None)
            }
            Change::RegisterNode(node) => self.registry.register(&mut self.next, node).map(Reply::Node),
            Change::SetNodeState(state) => {
                self.registry.set_draining(NodeId::new(state.node), state.draining)?;
                Ok(Reply::None)
            }
            Change::AcquireWrite(acquire) => self.acquire_write(call, acquire),
            Change::BeginRecovery(begin) => self.begin_recovery(call, begin),
            Change::FinishRecovery(finish) => self.finish_recovery(call, finish),
            Change::ChangeSet(change) => self.master_change_set(call, change),
            Change::ChangeExtras(change) => self.change_extras(call, change),
            Change::Reap(reap) => {
                self.reap(call, reap);
                Ok(Reply::None)
            }
            Change::DropDeleted(drop) => {
                for id in &drop.metablocks {
                    self.replicas.drop_deleted(VolumeId::new(drop.volume), MetablockId::new(*id));
                }
                Ok(Reply::None)
            }
            Change::Quarantine(op) => {
                self.quarantine(op);
                Ok(Reply::None)
            }
            Change::InitCluster(init) => self.init_cluster(call.now, init),
            Change::ReplaceInChain(replace) => {
                self.datasets.replace_in_chain(replace)?;
                Ok(Reply::None)
            }
            Change::JoinChain(join) => {
                if self.node(NodeId::new(join.node)).is_none() {
                    bail!(NotFound, "no node n{} is registered", join.node);
                }
                self.datasets.join_chain(join)?;
                Ok(Reply::None)
            }
            Change::ForgetNode(forget) => {
                self.forget_node(forget)?;
                Ok(Reply::None)
            }
            Change::ExpireTrash(expire) => {
                self.remove_expired(call, expire);
                Ok(Reply::None)
            }
            Change::PublishPlan(plan) => {
                self.publish_plan(call.now, plan)?;
                Ok(Reply::None)
            }
            Change::BeginRun(begin) => {
                self.begin_run(begin);
                self.raid.forget_taken();
                Ok(Reply::None)
            }
            Change::RaiseFloors(raise) => {
                self.raise_floors(raise)?;
                Ok(Reply::None)
            }
            Change::TakeIds(count) => self.take_ids(*count),
            Change::SealSets(seal) => self.seal_sets(call, seal),
            Change::ThinSet(thin) => self.thin_set(call, thin),
            Change::DropCopies(drop) => self.drop_copies(call, drop),
            Change::MoveFrozen(moved) => self.move_frozen(call, moved),
            Change::DissolveSet(dissolve) => self.dissolve_set(call, dissolve),
            Change::PruneSnapshot(prune) => self.prune_snapshot(call, prune),
            Change::ChangeKept(change) => self.change_kept(call, change),
            Change::RaiseVersion(version) => {
                self.raise_version(*version)?;
                Ok(Reply::None)
            }
            Change::Invite(invitation) => {
                self.invite(call.now, invitation)?;
                Ok(Reply::None)
            }
            Change::AdmitHost(admit) => {
                self.admit_host(call.now, admit)?;
                Ok(Reply::None)
            }
            Change::Revoke(revocation) => {
                self.revoke(call.now, revocation)?;
                Ok(Reply::None)
            }
            Change::ReleaseDeletions(_) => {
                self.release_deletions();
                Ok(Reply::None)
            }
        }
    }

    /// Applies a client's mutation once. A repeated request gets the recorded reply.
    fn apply_client(&mut self, command: &pb::Command, client: &pb::ClientCommand) -> Applied {
        let Some(request) = &client.request else {
            return Applied::refused(ebb_types::err!(Invalid, "a client's command without a request"));
        };
        let (session, id) = (SessionId::new(request.session), RequestId::new(request.request));
        match self.sessions.admit(session, id, RequestId::new(request.acknowledged)) {
            Err(error) => return Applied::refused(error),
            Ok(Some(outcome)) => return Applied { reply: (*outcome).clone().map(Reply::Meta), effects: Vec::new() },
            Ok(None) => {}
        }
        let mut call = Call {
            now: command.now_ns,
            step: command.step,
            session,
            credentials: Credentials::default(),
            placements: &client.placements,
            effects: Vec::new(),
        };
        let result = self.mutate(&mut call, request);
        // A refusal may have collected effects before it failed. It changed nothing, so no service may act on them.
        if result.is_err() {
            call.effects.clear();
        }
        let outcome = Arc::new(result);
        self.sessions.record(session, id, Arc::clone(&outcome));
        Applied { reply: (*outcome).clone().map(Reply::Meta), effects: call.effects }
    }

    fn mutate(&mut self, call: &mut Call<'_>, request: &pb::MetaRequest) -> Result<pb::MetaReply> {
        let Some(credentials) = &request.credentials else {
            bail!(Invalid, "a mutation without credentials");
        };
        call.credentials = credentials.clone().into();
        let Some(op) = request.op.as_ref().and_then(|op| op.op.as_ref()) else {
            bail!(Invalid, "a mutation of a kind that this release does not know");
        };
        match op {
            Op::Create(op) => self.create(call, op),
            Op::MakeDir(op) => self.make_dir(call, op),
            Op::MakeNode(op) => self.make_node(call, op),
            Op::Symlink(op) => self.symlink(call, op),
            Op::Link(op) => self.link(call, op),
            Op::Unlink(op) => self.unlink(call, op),
            Op::RemoveDir(op) => self.remove_dir(call, op),
            Op::Rename(op) => self.rename(call, op),
            Op::SetAttr(op) => self.set_attr(call, op),
            Op::SetXattr(op) => self.set_xattr(call, op),
            Op::RemoveXattr(op) => self.remove_xattr(call, op),
            Op::Grant(op) => self.grant(call, op),
            Op::Commit(op) => self.commit(call, op),
            Op::ChangeSet(op) => self.change_set(call, op),
            Op::SetLock(op) => self.set_lock(call, op),
            Op::CreateDataset(op) => self.create_dataset(call, op),
            Op::SetDataset(op) => self.set_dataset(call, op),
            Op::Swap(op) => self.swap(call, op),
            Op::TakeOver(op) => self.take_over(call, op),
            Op::TakeSnapshot(op) => self.take_snapshot(call, op),
            Op::RemoveSnapshot(op) => self.remove_snapshot(call, op),
            Op::RenameSnapshot(op) => self.rename_snapshot(call, op),
            Op::Lookup(_)
            | Op::GetAttr(_)
            | Op::ReadDir(_)
            | Op::ReadLink(_)
            | Op::GetXattr(_)
            | Op::ListXattr(_)
            | Op::StatFs(_)
            | Op::GetMap(_)
            | Op::Resolve(_)
            | Op::TestLock(_)
            | Op::ListDatasets(_)
            | Op::Summarize(_)
            | Op::GetRaidSets(_) => bail!(Invalid, "a query does not belong in the log"),
        }
    }

    /// Opens a session under the id that the leader drew, unless a session has it. A counter could assign ids of a lost
    /// history again.
    fn open_session(&mut self, open: &pb::OpenSessionCommand) -> Result<SessionId> {
        let drawn = SessionId::new(open.session);
        // I-87: a drawn id is not below the range of the counter, so the two kinds never meet.
        let id = match open.session {
            0 => take_id!(self.next.session, SessionId),
            raw if !(SESSION_DRAWN_MIN..=NUMBER_MAX).contains(&raw) => bail!(Invalid, "{drawn} cannot be drawn"),
            _ if self.sessions.get(drawn).is_ok() => bail!(Busy, "{drawn} is open already: draw another id"),
            _ => drawn,
        };
        let session = Session {
            host: ebb_types::HostName::new(open.host.clone()),
            role: open.role.as_str().into(),
            acknowledged: RequestId::new(0),
            replies: std::collections::BTreeMap::new(),
        };
        self.sessions.insert(id, session);
        Ok(id)
    }

    /// Ends a session, if it is open. Its locks are released. The files of its write leases need recovery.
    fn close_session(&mut self, call: &mut Call<'_>, session: SessionId) {
        if !self.sessions.remove(session) {
            return;
        }
        // Ordering: the session is gone first, so a lock that becomes free is never granted to it again.
        self.locks.end_session(session, &mut call.effects);
        let held: Vec<InodeId> = self.held_files(session).collect();
        for inode in held {
            self.lose_lease(call, inode);
        }
        assert!(self.held_files(session).next().is_none(), "{session} is closed and still holds a write lease");
    }

    /// Protects replicas of another history from deletion, and reserves their ids.
    fn quarantine(&mut self, op: &pb::Quarantine) {
        let volume = VolumeId::new(op.volume);
        for id in op.metablocks.iter().map(|id| MetablockId::new(*id)) {
            if op.release {
                self.replicas.release_quarantined(volume, id);
            } else if self.replicas.owner_of(id).is_none() {
                // I-37: the replica of another history is kept, and the counter passes over its id.
                self.replicas.quarantine(volume, id);
                // The counter never reaches higher ids. Following one of them would use the counter up.
                if id.raw() < NUMBER_MAX {
                    let next = self.next.metablock.max(MetablockId::new(id.raw() + 1));
                    self.lineage.pass_over(self.next.metablock, next);
                    self.next.metablock = next;
                }
            }
        }
    }

    /// Sets the cluster's id. Setting the same id again is no error.
    fn init_cluster(&mut self, now: i64, init: &pb::InitCluster) -> Result<Reply> {
        let cluster = ClusterId::new(init.cluster);
        match self.cluster {
            Some(other) if other == cluster => return Ok(Reply::None),
            Some(other) => bail!(Invalid, "this is cluster {other} already, not {cluster}"),
            None if init.cluster == 0 => bail!(Invalid, "0 is no cluster id"),
            None => {}
        }
        self.datasets.set_defaults(init.default_replicas, init.extra_share_percent)?;
        self.cluster = Some(cluster);
        self.version = init.version.max(version::OLDEST);
        let root = self.edit(InodeId::ROOT);
        (root.atime, root.mtime, root.ctime, root.btime) = (now, now, now, now);
        Ok(Reply::None)
    }
}
