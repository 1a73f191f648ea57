//! Room for writers: the places of new metablocks, and the reservations of their holders. The shell around
//! [`crate::reserve`].

use std::time::Duration;

use ebb_layout::LayoutKind;
use ebb_meta::{Effect, Machine};
use ebb_types::{Credentials, DatasetId, ErrorKind, HostName, InodeId, NodeId, Result, SessionId, bail};
use ebb_wire::pb;
use pb::command::Command;
use pb::meta_op::Op;

use crate::chains::PlacementReservation;
use crate::deletes::is_deleting;
use crate::leases::Mode;
use crate::placement::{Need, place_heir, place_new};
use crate::reserve::{Offer, Reservations, Short, choose_reserved};
use crate::shared::Shared;
use crate::soft::Soft;
use crate::upkeep::is_reaping;

/// Maximum number of files whose room is recalled at a time.
const ASKED_BACK_MAX: usize = 64;
/// Time that their holders have before the request for room is refused. It is less than one attempt of a client's call.
const RETURN_WAIT: Duration = Duration::from_secs(3);
/// Interval of the check for returned room.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Maximum number of metablocks in one Grant.
const GRANT_LEN_MAX: usize = 256;

/// Members for new metablocks. The reservations keep others from the same room until the placement is logged.
#[derive(Default)]
pub(crate) struct Placed {
    pub placements: Vec<pb::Placement>,
    reservations: Vec<PlacementReservation>,
}

impl Placed {
    fn add(&mut self, (placement, reservation): (pb::Placement, PlacementReservation)) {
        self.placements.push(placement);
        self.reservations.push(reservation);
    }
}

/// Places the first metablock of a new file.
///
/// The result is empty if the file exists. It is also empty if the dataset has no bytes left: the file is created
/// without room, and its first write is refused.
///
/// Errors: `NoSpace` if no volume has room, and the errors of [`place_new`].
pub(crate) fn for_create(
    shared: &Shared,
    session: SessionId,
    create: &pb::meta_op::Create,
    writer: HostName,
) -> Result<Placed> {
    let directory = InodeId::new(create.parent);
    let (dataset, left) = {
        let machine = shared.group.machine();
        let lookup = Op::Lookup(pb::meta_op::Lookup { parent: create.parent, name: create.name.clone() });
        // An existing file is opened, not placed. The query runs as the superuser, because permissions are checked when
        // the command is applied.
        if machine.query(session, &Credentials::root(), &lookup).is_ok() {
            return Ok(Placed::default());
        }
        let dataset = machine.dataset_of(directory)?;
        let left = quota_left(&shared.soft(), &machine, &dataset);
        (dataset, left)
    };
    if left == Some(0) {
        return Ok(Placed::default());
    }
    // Most files are small, so the first reservation is one block.
    let bytes = dataset.block_size;
    let mut placed = Placed::default();
    // Layouts whose disks take turns begin each file elsewhere. The others draw.
    let file = match dataset.layout.parse() {
        Ok(LayoutKind::Striped | LayoutKind::Lsn) => number_of_new(directory, &create.name),
        _ => directory,
    };
    placed.add(place_new(shared, &Need::fresh(file, dataset, 0, writer, bytes))?);
    Ok(placed)
}

/// A number in place of the inode that a new file will have. With the directory's, all small files of a directory would begin on
/// one disk.
fn number_of_new(directory: InodeId, name: &[u8]) -> InodeId {
    let part = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let parts: Vec<u64> = [directory.raw()].into_iter().chain(name.chunks(8).map(part)).collect();
    InodeId::new(ebb_layout::hash(&parts))
}

/// Places the metablocks that the file lacks, and checks that existing ones can get more room.
///
/// Errors: `Invalid` for too many metablocks, `NoSpace`, `QuotaExceeded`.
pub(crate) fn for_grant(shared: &Shared, grant: &pb::meta_op::Grant, writer: &HostName) -> Result<Placed> {
    if grant.indexes.len() > GRANT_LEN_MAX {
        bail!(Invalid, "{} metablocks in one grant, at most {GRANT_LEN_MAX} are given", grant.indexes.len());
    }
    let inode = InodeId::new(grant.inode);
    let (dataset, existing, left) = {
        let machine = shared.group.machine();
        let dataset = machine.dataset_of(inode)?;
        let left = quota_left(&shared.soft(), &machine, &dataset);
        (dataset, machine.shown_metablocks(inode)?, left)
    };
    let mut placed = Placed::default();
    for index in &grant.indexes {
        let found = existing.binary_search_by_key(index, |metablock| metablock.index).ok();
        // A frozen one gets an heir. Its bytes count against the quota already, unless they go on to count for a snapshot.
        let is_thawed = found.is_some_and(|at| existing[at].frozen.is_some());
        if let Some(at) = found.filter(|_| !is_thawed) {
            let soft = shared.soft();
            if soft.room.is_guess(inode, existing[at].metablock_id()) {
                return Err(refusal(Short::Quota, &dataset));
            }
            let offer = offer(&soft, inode, &existing[at], &dataset, dataset.metablock_size, left);
            if let Err(short) = choose_reserved(&offer) {
                return Err(refusal(short, &dataset));
            }
            placed.placements.push(pb::Placement::default());
            continue;
        }
        let goes_on = |at: usize| shared.group.machine().is_in_snapshot(inode, existing[at].metablock_id());
        if left == Some(0) && (!is_thawed || found.is_some_and(goes_on)) {
            return Err(refusal(Short::Quota, &dataset));
        }
        let mut need = Need::fresh(inode, dataset.clone(), *index, writer.clone(), dataset.metablock_size);
        need.exclude = grant.exclude_nodes.iter().copied().map(NodeId::new).collect();
        if !grant.hosts.is_empty() {
            // The preferred hosts take turns over the whole file, whatever the size of one grant.
            let turn = usize::try_from(*index).unwrap_or(usize::MAX) % grant.hosts.len();
            need.preferred = vec![HostName::new(grant.hosts[turn].clone())];
        }
        let beside = found.filter(|_| is_thawed).and_then(|at| place_heir(shared, &need, &existing[at]));
        placed.add(beside.map_or_else(|| place_new(shared, &need), Ok)?);
    }
    Ok(placed)
}

/// Places metablocks, and retries for a bounded time while room is coming back.
///
/// Three kinds of room come back: unused reservations of other files, which are recalled; space of removed files, until
/// their volumes report it; and guessed reservations, until the holders have reclaimed them.
pub(crate) async fn find(shared: &Shared, op: &Op, place: impl Fn() -> Result<Placed>) -> Result<Placed> {
    let mut tried = place();
    let Some(mut short) = shortage(op, &tried) else { return tried };
    let asked = ask_back(shared, op);
    let until = shared.runtime.now().after(RETURN_WAIT);
    if shared.soft().nameless.hasten(shared.runtime.now()) {
        // The task that frees nameless files sleeps until their old end, so it has to be woken.
        shared.state.wake.reap.notify_one();
    }
    // Quota is freed with the file; space on a volume only after the deletion.
    let is_freed = |short| is_reaping(shared) || (short == Short::Room && is_deleting(shared));
    let is_guessed = |short| short == Short::Quota && shared.soft().room.has_guesses();
    let is_coming = |short| has_idle(shared, &asked) || is_freed(short) || is_guessed(short);
    let mut goes_on = is_coming(short);
    while goes_on {
        shared.runtime.sleep(LOOK_AGAIN).await;
        // Ordering: this check comes before the try, so that the last try sees all room that the check saw as coming.
        goes_on = is_coming(short) && shared.runtime.now() < until;
        tried = place();
        match shortage(op, &tried) {
            Some(still) => short = still,
            None => break,
        }
    }
    tracing::debug!(asked = asked.len(), found = tried.is_ok(), "room was searched again");
    tried
}

fn shortage<T>(op: &Op, placed: &Result<T>) -> Option<Short> {
    match placed.as_ref().err().filter(|_| matches!(op, Op::Grant(_) | Op::Create(_)))?.kind() {
        ErrorKind::NoSpace => Some(Short::Room),
        ErrorKind::QuotaExceeded => Some(Short::Quota),
        _ => None,
    }
}

/// Recalls write leases of idle files with unused room; the room comes back with the lease. The requesting file is left
/// out, because its holder gives nothing back while it waits for room.
fn ask_back(shared: &Shared, op: &Op) -> Vec<InodeId> {
    let asks = if let Op::Grant(grant) = op { InodeId::new(grant.inode) } else { InodeId::default() };
    let machine = shared.group.machine();
    let mut soft = shared.soft();
    let idle = soft.room.idle(ASKED_BACK_MAX + 1);
    let mut ask = |inode: &InodeId| {
        let holder = machine.holder(*inode).filter(|holder| soft.sessions.goes_on(*holder));
        holder.inspect(|holder| soft.sessions.recall(*holder, *inode, Mode::Read)).is_some()
    };
    idle.into_iter().filter(|inode| *inode != asks).take(ASKED_BACK_MAX).filter(|inode| ask(inode)).collect()
}

fn has_idle(shared: &Shared, asked: &[InodeId]) -> bool {
    let soft = shared.soft();
    asked.iter().any(|inode| soft.room.has_open(*inode))
}

fn refusal(short: Short, dataset: &pb::Dataset) -> ebb_types::Error {
    match short {
        Short::Quota => ebb_types::err!(
            QuotaExceeded,
            "{} has used up its quota of {}: remove files, or snapshots that have them (`ebb snapshot list`), or raise it",
            dataset.path,
            ebb_types::human_bytes(dataset.quota_bytes)
        ),
        Short::Room => ebb_types::err!(NoSpace, "the nodes of this file are full: remove files, or add nodes"),
    }
}

fn quota_left(soft: &Soft, machine: &Machine, dataset: &pb::Dataset) -> Option<u64> {
    let used = machine.dataset_usage(dataset.id).1 + machine.kept_bytes(DatasetId::new(dataset.id));
    let reserved = soft.room.in_dataset(DatasetId::new(dataset.id));
    (dataset.quota_bytes != 0).then(|| dataset.quota_bytes.saturating_sub(used + reserved))
}

fn offer(
    soft: &Soft,
    inode: InodeId,
    block: &pb::Metablock,
    dataset: &pb::Dataset,
    whole: u64,
    quota: Option<u64>,
) -> Offer {
    let have = soft.room.reserved(inode, block.metablock_id()).max(block.length);
    // A member that has not reported its space is left out. Its volume refuses a write that does not fit.
    let rooms = block.members.iter().filter_map(|member| soft.registry.room(member, &soft.room));
    Offer { have, step: dataset.block_size, whole, room: rooms.min(), quota }
}

/// Reserves room for a holder's new metablocks, and adds it to the reply.
pub(crate) fn reserve(shared: &Shared, op: &Op, mut reply: pb::MetaReply) -> pb::MetaReply {
    let Some(attr) = reply.attr.filter(|_| !reply.metablocks.is_empty()) else { return reply };
    for block in &mut reply.metablocks {
        let whole = match op {
            Op::Create(_) => attr.block_size,
            Op::Grant(_) => attr.metablock_size,
            _ => 0,
        };
        reserve_for_block(shared, &attr, block, whole);
    }
    reply
}

/// Reserves room for a new holder, and adds it to the reply. The last metablock gets some room to grow.
pub(crate) fn on_acquired(shared: &Shared, mut reply: pb::AcquireReply) -> pb::AcquireReply {
    if reply.mode() != pb::LeaseMode::LeaseWrite {
        return reply;
    }
    let Some(attr) = reply.attr else { return reply };
    let last = if reply.map_complete { reply.metablocks.len().checked_sub(1) } else { None };
    for (at, block) in reply.metablocks.iter_mut().enumerate() {
        let ahead = block.length.next_multiple_of(attr.block_size.max(1)) + attr.block_size;
        let whole = if Some(at) == last { ahead.min(attr.metablock_size) } else { 0 };
        reserve_for_block(shared, &attr, block, whole);
    }
    reply
}

fn reserve_for_block(shared: &Shared, attr: &pb::Attr, block: &mut pb::Metablock, whole: u64) {
    let inode = InodeId::new(attr.inode);
    let machine = shared.group.machine();
    let Ok(dataset) = machine.dataset_of(inode) else { return };
    let mut soft = shared.soft();
    if soft.room.is_guess(inode, block.metablock_id()) {
        return;
    }
    let quota = quota_left(&soft, &machine, &dataset);
    let offer = offer(&soft, inode, block, &dataset, whole, quota);
    let room = &mut soft.room;
    // A refusal has no effect here. The holder gets its error when it asks for more.
    if let Ok(reserved) = choose_reserved(&offer)
        && reserved > offer.have
        && machine.holder(inode).is_some()
    {
        room.reserve(inode, DatasetId::new(dataset.id), block, reserved);
    }
    block.reserved = room.reserved(inode, block.metablock_id());
}

/// Space for `statfs`: raw bytes over live volumes, without reservations, and within the dataset's quota.
pub(crate) fn space(shared: &Shared, op: &Op, stat: pb::StatFsReply) -> pb::StatFsReply {
    let machine = shared.group.machine();
    let soft = shared.soft();
    let space = soft.registry.space(&soft.room);
    let mut stat = pb::StatFsReply {
        capacity_bytes: space.capacity_bytes,
        free_bytes: space.free_bytes,
        used_bytes: space.used_bytes,
        available_bytes: space.available_bytes(stat.replicas.into()),
        ..stat
    };
    if let Op::StatFs(asked) = op
        && let Ok(dataset) = machine.dataset_of(InodeId::new(asked.inode))
        && let Some(left) = quota_left(&soft, &machine, &dataset)
    {
        let raw = |bytes: u64| bytes.saturating_mul(u64::from(dataset.replicas));
        stat.capacity_bytes = stat.capacity_bytes.min(raw(dataset.quota_bytes));
        stat.free_bytes = stat.free_bytes.min(raw(left));
        stat.available_bytes = stat.available_bytes.min(left);
        let kept = machine.kept_bytes(DatasetId::new(dataset.id));
        stat.used_bytes = raw(machine.dataset_usage(dataset.id).1 + kept);
    }
    stat
}

/// Updates reservations after a command was applied.
pub(crate) fn on_applied(room: &mut Reservations, machine: &Machine, command: &pb::Command, effects: &[Effect]) {
    for effect in effects {
        match effect {
            Effect::SetChanged { inode, .. } | Effect::LeaseEnded { inode, .. } | Effect::Freed(inode) => {
                room.refresh(machine, *inode)
            }
            _ => {}
        }
    }
    let client = match &command.command {
        Some(Command::Client(client)) => client,
        Some(Command::FinishRecovery(finish)) => return room.refresh(machine, InodeId::new(finish.inode)),
        _ => return,
    };
    match client.request.as_ref().and_then(|request| request.op.as_ref()?.op.as_ref()) {
        Some(Op::Commit(commit)) => {
            for file in &commit.files {
                room.refresh(machine, InodeId::new(file.inode));
            }
        }
        Some(Op::SetAttr(set)) if set.size.is_some() => room.refresh(machine, InodeId::new(set.inode)),
        _ => {}
    }
}
