//! Bytes of one metablock from whichever member has them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_power::read::queue::{Sent, cost};
use ebb_power::read::{Candidate, Order};
use ebb_rpc::Response;
use ebb_runtime::Moment;
use ebb_types::{
    CHUNK_SIZE, DatasetId, Error, ErrorKind, InodeId, NodeId, READ_COST_MIN, ReadRule, Result, Version, err,
};
use ebb_wire::{convert, pb};
use parking_lot::Mutex;

use crate::inode::{Fetch, Inode};
use crate::lease::hold::Lease;
use crate::plan::NEED_MS;
use crate::power::Way;
use crate::power::deliver::verify;
use crate::power::relay;
use crate::read::degraded;
use crate::read::hopeless::{Barren, Hopeless};
use crate::read::line::{Asking, Line};
use crate::shared::Shared;
use crate::write::members;

/// First attempt at a member; doubled with every round over the set.
const ATTEMPT: Duration = Duration::from_secs(2);
const ATTEMPT_MAX: Duration = Duration::from_secs(8);
/// An attempt at a member where much waits lasts for so many times the expected time of the answer, up to the maximum. A
/// read that is given up has been served for nothing, and is asked for again: under overload that makes queues longer.
const EXPECTED: u32 = 3;
/// How long after its time a node that falls asleep is still waited for.
const SLACK: Duration = Duration::from_millis(50);
/// A member that serves another dataset is asked as a second one after so many times the usual wait, and not before this.
const LONGER: u32 = 4;
const LONG_MIN: Duration = Duration::from_secs(1);
/// A read behind own ones is late after so many times its expected time: connections overtake each other.
const BEHIND_OWN: u32 = 2;
/// Pause after a round in which every member failed.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A range of a metablock to read.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The record to go by.
    pub record: pb::Metablock,
    /// Accept nothing below.
    pub min_version: Version,
    /// In the metablock, a multiple of the chunk size.
    pub offset: u64,
    /// A multiple of the chunk size, unless it ends the metablock.
    pub len: u64,
    /// The file whose lease says that the record is good; none: the caller goes by a map, and extra copies say nothing.
    pub lease: Option<Arc<Inode>>,
    /// The member to ask first.
    pub rule: ReadRule,
    /// The file's dataset, if it is known: members whose nodes serve it are asked before others.
    pub dataset: Option<DatasetId>,
}

impl Wanted {
    /// The read of a member's replica.
    fn to_message(&self, volume: u64) -> pb::ReadReplica {
        pb::ReadReplica {
            metablock: self.record.id,
            volume,
            min_version: Some(self.min_version.into()),
            offset: self.offset,
            length: self.len,
            queue_max: None,
            raid_set: 0,
            sums_only: false,
        }
    }

    /// Whether a replica at this version has what is wanted. What is frozen has one version.
    pub fn accepts(&self, served: Version) -> bool {
        served == self.min_version || (served > self.min_version && self.record.frozen.is_none())
    }

    /// Whether the lease, if there is one, still holds.
    pub fn is_believed(&self, shared: &Shared) -> bool {
        self.lease.as_ref().is_none_or(|inode| shared.is_believed(&inode.core.lock(), Lease::Read))
    }
}

/// Reads from one member after the other, until one has it, `refresh` has no newer record, or the deadline is over.
/// Fewer bytes than wanted: the rest is zero.
pub(crate) async fn fetch<R, F>(shared: &Arc<Shared>, mut wanted: Wanted, refresh: R) -> Result<Bytes>
where
    R: Fn(u64) -> F,
    F: Future<Output = Result<Option<(pb::Metablock, Version)>>>,
{
    let started = shared.runtime.now();
    let (mut attempt, mut pause) = (ATTEMPT, PAUSE);
    let mut hopeless = Hopeless::default();
    let waiting = shared.enter_wait("a replica that can be read");
    loop {
        let with_extras = shared.extras.readable(&wanted.record);
        let with_extras = with_extras.map(|record| Wanted { record, lease: wanted.lease.clone(), ..wanted });
        let asked = with_extras.as_ref().unwrap_or(&wanted);
        let barren = match one_round(shared, asked, attempt).await {
            Ok(data) => return Ok(data),
            Err(barren) => barren,
        };
        if hopeless.on_round(&asked.record.members, &barren, shared.runtime.now()) {
            return Err(no_good_copy(&asked.record, &barren.error));
        }
        let error = barren.error;
        if shared.runtime.now().since(started) + pause > shared.session.deadline() {
            return Err(Error::new(ErrorKind::Io, format!("no member could be read: {error}")));
        }
        waiting.set(format!("a replica that can be read: {error}"));
        shared.runtime.sleep(pause).await;
        match refresh(wanted.record.index).await? {
            Some((record, min_version)) => (wanted.record, wanted.min_version) = (record, min_version),
            // Cut off or punched meanwhile: nothing there, zero.
            None => return Ok(Bytes::new()),
        }
        (attempt, pause) = ((attempt * 2).min(ATTEMPT_MAX), (pause * 2).min(PAUSE_MAX));
    }
}

/// What a program cannot read, and why.
fn no_good_copy(record: &pb::Metablock, last: &Error) -> Error {
    let nodes: Vec<String> = record.members.iter().map(|member| format!("n{}", member.node)).collect();
    err!(
        Io,
        "none of {} has a good copy of m{} (index {}): {last}. `ebb fsck` tells what is lost, `ebb fsck --repair` what can be done",
        nodes.join(", "),
        record.id,
        record.index
    )
}

/// Asks every member once. Returns their answers if none has the bytes.
async fn one_round(shared: &Arc<Shared>, wanted: &Wanted, attempt: Duration) -> Result<Bytes, Barren> {
    let mut data = ask_or_decode(shared, wanted, attempt).await?;
    if wanted.record.frozen.is_some() {
        // A cut inside what is frozen changed no member: behind it are zeros.
        let shown = wanted.record.length.saturating_sub(wanted.offset);
        data.truncate(usize::try_from(shown).unwrap_or(usize::MAX));
    }
    Ok(data)
}

/// The same, of all that was frozen.
async fn ask_or_decode(shared: &Arc<Shared>, wanted: &Wanted, attempt: Duration) -> Result<Bytes, Barren> {
    // Members that sleep are not waited for if enough others are awake.
    let mut decoded = None;
    if degraded::is_due(shared, wanted) {
        match degraded::read(shared, wanted).await {
            Ok(data) => return Ok(data),
            Err(error) => decoded = Some(error),
        }
    }
    let heard = Mutex::new(Heard::default());
    let error = match ask_members(shared, wanted, attempt, &heard).await {
        Ok(data) => return Ok(data),
        Err(error) => error,
    };
    if degraded::is_possible(wanted) && decoded.is_none() {
        match degraded::read(shared, wanted).await {
            Ok(data) => return Ok(data),
            Err(error) => decoded = Some(error),
        }
    }
    if let Some(error) = decoded {
        tracing::debug!(metablock = wanted.record.id, %error, "cannot be decoded either");
    }
    Err(Barren { error, refusals: heard.into_inner().lacking })
}

/// What members said instead of giving bytes.
#[derive(Default)]
struct Heard {
    /// That they have no good copy.
    lacking: Vec<ErrorKind>,
    /// That so many bytes wait there: the member's place, and how many. These members are to be asked again.
    busy: Vec<(usize, u64)>,
}

/// The same; what members say is noted in `heard`.
async fn ask_members(shared: &Arc<Shared>, wanted: &Wanted, attempt: Duration, heard: &Mutex<Heard>) -> Result<Bytes> {
    let members = &wanted.record.members;
    let mut worst = err!(NoReplica, "m{} has no copies in the map", wanted.record.id);
    let mut line = match shared.way_to(wanted).await? {
        Way::Direct(order) => {
            let first = order.nodes.first().map(|place| members[*place].node);
            Line::new(&order, first.and_then(|first| shared.queues.lock().limit(first, wanted.len)))
        }
        Way::Relay => return by_relay(shared, wanted).await,
    };
    let foreign = shared.nodes.foreign_to(wanted.dataset, members.iter().map(|member| member.node));
    let is_foreign = |place: usize| foreign.contains(&members[place].node);
    while let Some(asking) = line.next() {
        let leaves_own = !is_foreign(asking.place) && line.peek().is_some_and(is_foreign);
        let behind_own = behind_own(shared, members[asking.place].node, wanted.len);
        let first = from_or_report(shared, wanted, asking, attempt, heard);
        tokio::pin!(first);
        // Cancel-safety: a later answer is forgotten with its call.
        let late = tokio::select! {
            biased;
            answer = &mut first => Err(answer),
            () = patience(shared, wanted.len, leaves_own, behind_own) => Ok(()),
        };
        let answer = match late {
            Err(answer) => answer,
            Ok(()) => match line.next() {
                Some(second) => {
                    shared.metrics.hedged_reads.add(1);
                    either(first, from_or_report(shared, wanted, second, attempt, heard)).await
                }
                None => first.await,
            },
        };
        match answer {
            Ok(data) => return Ok(data),
            Err(error) => worst = error,
        }
        let busy = std::mem::take(&mut heard.lock().busy);
        for (place, queued) in busy {
            let now = since_start(shared);
            line.on_refused(place, |rival, edge| {
                let rival = members[rival].node;
                shared.queues.lock().after_refusal(queued, rival, edge, wanted.len, now)
            });
        }
    }
    Err(worst)
}

/// From whichever member wakes first, none of which is ever awake when this client is.
async fn by_relay(shared: &Arc<Shared>, wanted: &Wanted) -> Result<Bytes> {
    let (members, message) = (&wanted.record.members, wanted.to_message(0));
    let expected = usize::try_from(wanted.len).unwrap_or(usize::MAX);
    let relay = relay::call(shared, members, &message, Vec::new(), expected).await?;
    let answer = check_reply(shared, wanted, relay.node, relay.response);
    if answer.is_ok() {
        on_read(shared, wanted, relay.node);
    }
    if let (Err(error), Some(member)) = (&answer, members.iter().find(|member| member.node == relay.node)) {
        shared.metrics.failed_reads.add(1);
        shared.extras.on_failed(&wanted.record, member, error);
        members::report(shared, wanted.record.metablock_id(), *member, error);
    }
    answer
}

/// Returns when another member should be asked as well; perhaps never. `leaves_own`: it serves another dataset, whose
/// reads would pay for queues that this one's readers have made. `behind_own`: it takes so long anyway.
async fn patience(shared: &Shared, bytes: u64, leaves_own: bool, behind_own: Duration) {
    if let Some(wait) = shared.hedge.wait(bytes) {
        let wait = wait.max(behind_own.saturating_mul(BEHIND_OWN));
        shared.runtime.sleep(if leaves_own { wait.saturating_mul(LONGER).max(LONG_MIN) } else { wait }).await;
        if shared.hedge.spend() {
            return;
        }
    }
    std::future::pending().await
}

/// Expected time of a read that is about to be sent to a node, if own reads are under way there. The time of earlier reads says
/// little of this one when more wait before it: those who read ahead over a slow link would ask for the same bytes twice.
fn behind_own(shared: &Shared, node: u64, bytes: u64) -> Duration {
    let queues = shared.queues.lock();
    if queues.own_reads(node) > 0 { queues.expected(node, bytes, since_start(shared)) } else { Duration::ZERO }
}

/// The first good answer of two, or the last bad one.
async fn either(
    mut first: std::pin::Pin<&mut impl Future<Output = Result<Bytes>>>,
    second: impl Future<Output = Result<Bytes>>,
) -> Result<Bytes> {
    tokio::pin!(second);
    tokio::select! {
        biased;
        answer = &mut first => match answer {
            Ok(data) => Ok(data),
            Err(_) => second.await,
        },
        answer = &mut second => match answer {
            Ok(data) => Ok(data),
            Err(_) => first.await,
        },
    }
}

async fn from_or_report(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    asking: Asking,
    attempt: Duration,
    heard: &Mutex<Heard>,
) -> Result<Bytes> {
    let member = wanted.record.members[asking.place];
    // A member that falls asleep meanwhile answers when it wakes, which may take long: others are asked before.
    let left = shared.awake_for(member.node_id()).left();
    let expected = shared.queues.lock().expected(member.node, wanted.len, since_start(shared));
    let attempt = attempt.max(expected.saturating_mul(EXPECTED).min(ATTEMPT_MAX));
    let attempt = left.map_or(attempt, |left| attempt.min(left + SLACK));
    let could = on_asked(shared, wanted, member.node);
    let answer = match from_member(shared, wanted, &member, asking.limit, attempt).await {
        Ok(Answered::Data(data)) => {
            on_read(shared, wanted, member.node);
            return Ok(data);
        }
        Ok(Answered::Busy(queued)) => {
            shared.balance.lock().take_back(could, member.node);
            shared.metrics.refused_reads.add(1);
            heard.lock().busy.push((asking.place, queued));
            return Err(err!(Busy, "{queued} bytes wait to be read at node n{}", member.node));
        }
        Err(error) => Err(error),
    };
    answer.inspect_err(|error| {
        shared.metrics.failed_reads.add(1);
        if error.kind().is_copy_lost() {
            heard.lock().lacking.push(error.kind());
        }
        shared.extras.on_failed(&wanted.record, &member, error);
        tracing::debug!(node = member.node, metablock = wanted.record.id, %error, "read from a member");
        members::report(shared, wanted.record.metablock_id(), member, error);
    })
}

/// A node is about to be asked. Its share is computed over all nodes that could have been asked: not over those that
/// serve another dataset, unless there is no other one.
fn on_asked(shared: &Shared, wanted: &Wanted, node: u64) -> Vec<u64> {
    let members = wanted.record.members.iter().map(|member| member.node);
    let foreign = shared.nodes.foreign_to(wanted.dataset, members.clone());
    let serves = |node: &u64| !shared.awake_for(NodeId::new(*node)).is_asleep() && !shared.nodes.is_lost(*node);
    let mut could: Vec<u64> = members.filter(serves).collect();
    if !foreign.contains(&node) {
        could.retain(|node| !foreign.contains(node));
    }
    shared.balance.lock().count(could.iter().copied(), node);
    could
}

/// A node has answered.
fn on_read(shared: &Shared, wanted: &Wanted, node: u64) {
    shared.extras.on_read(&wanted.record, wanted.len);
    if let Some(dataset) = wanted.dataset {
        shared.dataset_reads.on_read(dataset, wanted.len);
    }
    shared.metrics.extra_reads.add(u64::from(wanted.record.extra.iter().any(|extra| extra.node == node)));
}

/// What a read meets at one node: see [`Candidate`].
struct Wait {
    queue: f64,
    others: f64,
    needs_ms: u64,
}

/// Members that are awake, in the order in which a read's rule has them asked.
pub(crate) fn order(shared: &Shared, wanted: &Wanted) -> Order<usize> {
    let (record, len) = (&wanted.record, wanted.len);
    let balance = {
        let (plan, allotment) = (shared.plan_in_force(), shared.nodes.allotment());
        let mut balance = shared.balance.lock();
        balance.on_serving(plan, allotment);
        record.members.iter().map(|member| balance.below(member.node)).collect::<Vec<_>>()
    };
    let waits: Vec<Wait> = {
        let (queues, now) = (shared.queues.lock(), since_start(shared));
        let of = |member: &pb::Member| {
            let other_calls =
                (shared.nodes.outstanding(member.node) as u64).saturating_sub(queues.own_reads(member.node));
            let bytes = queues.bytes(member.node, now).saturating_add(other_calls.saturating_mul(READ_COST_MIN));
            let expected = queues.expected(member.node, len, now);
            let needs_ms = u64::try_from(expected.as_millis()).unwrap_or(u64::MAX);
            let reads = |bytes: u64| bytes as f64 / cost(len) as f64;
            Wait { queue: reads(bytes), others: queues.others(member.node, now), needs_ms: needs_ms.max(NEED_MS) }
        };
        record.members.iter().map(of).collect()
    };
    let slow = shared.nodes.gray_of(record.members.iter().map(|member| member.node));
    let foreign = shared.nodes.foreign_to(wanted.dataset, record.members.iter().map(|member| member.node));
    let candidates = record.members.iter().enumerate().map(|(place, member)| Candidate {
        node: place,
        awake: shared.awake_for(member.node_id()),
        needs_ms: waits[place].needs_ms,
        distance: shared.nodes.distance(&shared.options.host, member.node),
        is_dead: shared.nodes.is_lost(member.node),
        is_slow: slow == Some(member.node),
        is_foreign: foreign.contains(&member.node),
        queue: waits[place].queue,
        others: waits[place].others,
        below: balance[place],
        draw: shared.runtime.random_u64(),
    });
    ebb_power::read::order(wanted.rule, candidates.collect())
}

/// What a member says to a read.
enum Answered {
    Data(Bytes),
    /// More waits there than was allowed: so many bytes.
    Busy(u64),
}

/// An own read on its way to a node, counted until this is dropped.
struct OnItsWay<'a> {
    shared: &'a Shared,
    node: u64,
    sent: Sent,
}

impl<'a> OnItsWay<'a> {
    fn new(shared: &'a Shared, node: u64, len: u64) -> Self {
        let sent = shared.queues.lock().on_sent(node, len, since_start(shared));
        Self { shared, node, sent }
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.shared.queues.lock().on_end(self.node, self.sent);
    }
}

/// The time for [`ebb_power::read::queue`].
fn since_start(shared: &Shared) -> Duration {
    shared.runtime.now().since(Moment::default())
}

async fn from_member(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    member: &pb::Member,
    limit: Option<u64>,
    deadline: Duration,
) -> Result<Answered> {
    let (hop, node) = (shared.nodes.hop(member)?, member.node);
    if let Some(data) = shared.short_circuit.read(shared, wanted, &hop).await {
        return Ok(Answered::Data(data));
    }
    let message = pb::ReadReplica { queue_max: limit, ..wanted.to_message(member.volume) };
    let on_its_way = OnItsWay::new(shared, node, wanted.len);
    let reply = members::read(shared, &hop, &message, deadline).await?;
    let told = reply.message.queued_bytes;
    if reply.message.is_busy && limit.is_some() {
        shared.queues.lock().on_told(node, on_its_way.sent, told);
        return Ok(Answered::Busy(told.unwrap_or_default()));
    }
    let took = shared.queues.lock().on_answer(node, on_its_way.sent, told, since_start(shared));
    shared.hedge.on_answer(wanted.len, took);
    shared.spare.on_answer(wanted.len, took);
    check_reply(shared, wanted, node, reply).map(Answered::Data)
}

/// The bytes of an answer that is as new as it must be, and as the writer made it.
fn check_reply(shared: &Shared, wanted: &Wanted, node: u64, reply: Response<pb::ReadReplicaReply>) -> Result<Bytes> {
    let served = convert::version(reply.message.version);
    if served < wanted.min_version {
        return Err(err!(StaleVersion, "node n{node} served {served} for {}", wanted.min_version));
    }
    // I-74: a removed snapshot's metablock may be written in place again. The member's copy is good; the map is old.
    if !wanted.accepts(served) {
        return Err(err!(SetChanged, "node n{node} served {served} of what was frozen at {}", wanted.min_version));
    }
    let (id, data) = (wanted.record.id, &reply.payload);
    let verdict = verify(data, &reply.message.checksums, id, wanted.offset, wanted.len);
    if let Err(error) = &verdict
        && error.kind() == ErrorKind::Corrupt
    {
        shared.metrics.corrupt_reads.add(1);
    }
    verdict.map(|()| reply.payload)
}

/// Reads a range by a map that the caller has, block by block; holes are zero. `dataset`: the file's, if it is known.
pub(crate) async fn by_map(
    shared: &Arc<Shared>,
    record: Option<&pb::Metablock>,
    dataset: Option<DatasetId>,
    offset: u64,
    len: u64,
) -> Result<Bytes> {
    let zeros = |len: u64| Bytes::from(vec![0; len as usize]);
    let Some(record) = record.filter(|record| record.min_version() != Version::ZERO) else { return Ok(zeros(len)) };
    let start = offset - offset % CHUNK_SIZE;
    let end = (offset + len).next_multiple_of(CHUNK_SIZE);
    let wanted = Wanted {
        record: record.clone(),
        min_version: record.min_version(),
        offset: start,
        len: end - start,
        lease: None,
        // A map does not tell of the rule of its file's dataset.
        rule: ReadRule::default(),
        dataset,
    };
    let mut attempt = ATTEMPT;
    let mut hopeless = Hopeless::default();
    let started = shared.runtime.now();
    let data = loop {
        let barren = match one_round(shared, &wanted, attempt).await {
            Ok(data) => break data,
            Err(barren) => barren,
        };
        let now = shared.runtime.now();
        // The map is out of date: the caller fetches another.
        let is_other = matches!(barren.error.kind(), ErrorKind::StaleVersion | ErrorKind::NoReplica);
        if is_other || now.since(started) > shared.session.deadline() {
            return Err(barren.error);
        }
        if hopeless.on_round(&wanted.record.members, &barren, now) {
            return Err(no_good_copy(&wanted.record, &barren.error));
        }
        shared.runtime.sleep(PAUSE_MAX).await;
        attempt = (attempt * 2).min(ATTEMPT_MAX);
    };
    let skip = (offset - start) as usize;
    let have = data.len().saturating_sub(skip).min(len as usize);
    let head = if have == 0 { Bytes::new() } else { data.slice(skip..skip + have) };
    if have as u64 == len {
        return Ok(head);
    }
    let mut out = bytes::BytesMut::from(&head[..]);
    out.resize(len as usize, 0);
    Ok(out.freeze())
}

/// A record of a file as the master has it now: for a caller that keeps the gate, or for `range`, whose lease must
/// still be the one under which it began.
pub(crate) async fn refresh(
    shared: &Arc<Shared>,
    inode: &Inode,
    index: u64,
    range: Option<&Fetch>,
) -> Result<Option<(pb::Metablock, Version)>> {
    use pb::meta_op::{GetMap, Op};
    if inode.core.lock().channels.contains_key(&index) {
        return Ok(inode.core.lock().source(index));
    }
    let reply = shared.own_meta(Op::GetMap(GetMap { inode: inode.id.raw(), first_index: index, limit: 1 })).await?;
    let record = reply.metablocks.into_iter().find(|record| record.index == index);
    let mut core = inode.core.lock();
    if range.is_some_and(Fetch::is_stale) {
        // Another lease may have brought a newer map meanwhile.
        return Err(err!(StaleVersion, "the lease on {} ended during the read", inode.id));
    }
    if core.channels.contains_key(&index) || core.hold.lease() == Lease::None {
        return Ok(core.source(index));
    }
    match record {
        Some(record) => {
            core.map.insert(index, record);
            Ok(core.source(index))
        }
        None => Ok(None),
    }
}

/// Says which file an error is about.
pub(crate) fn of_file(inode: InodeId) -> impl Fn(Error) -> Error {
    move |error| error.context(format_args!("reading {inode}"))
}
