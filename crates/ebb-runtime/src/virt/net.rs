//! The network of the virtual world: hosts, listeners, connections.
//!
//! The work of kernels happens here, in events at their virtual time; programs' tasks only touch the buffers. So a
//! frozen process goes on accepting connections and bytes until its buffers are full, as under Linux.
//!
//! A segment goes through the sender's port, over the wire, through the receiver's port, and arrives in order. If its
//! link is cut or the target host has no power, the sender's kernel tries again after 200 ms, 400 ms, ... and breaks
//! the connection when `retransmit_limit` has passed (RFC 6298, tcp(7)).

mod dial;
mod ends;
mod pipe;
mod port;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

pub(super) use self::dial::{connect, listen};
use self::pipe::{Item, Pipe, Segment, Stuck};
use self::port::Port;
use super::dice::{Dice, nanos};
use super::executor::{Executor, GroupId};
use super::local::Locals;
use super::options::{LinkOptions, WorldOptions};
use super::trace::Trace;

/// Number of a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct HostId(pub(super) usize);

/// One direction of a connection; the other is [`PipeId::back`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PipeId(u64);

impl PipeId {
    /// The other direction of the same connection.
    fn back(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// First pause before a segment that did not get through is tried again.
const RETRANSMIT_PAUSE_MIN: Duration = Duration::from_millis(200);

/// How a process ends, as its peers see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Its kernel lives and closes its connections and listeners.
    Killed,
    /// Its kernel went down and is up again at once: it answers each segment with a reset, and sends resets by itself.
    Crashed,
    /// Its host has no power: silence.
    PowerOff,
}

pub(super) struct Network {
    executor: Arc<Executor>,
    trace: Arc<Trace>,
    options: WorldOptions,
    seed: u64,
    state: Mutex<State>,
    locals: Locals,
}

#[derive(Default)]
struct State {
    hosts: Vec<Host>,
    links: BTreeMap<(HostId, HostId), Link>,
    listeners: BTreeMap<(HostId, u16), ListenSlot>,
    pipes: BTreeMap<PipeId, Pipe>,
    next_pipe: u64,
    next_listener: u64,
}

struct Host {
    name: String,
    /// No power: nothing arrives, nothing is answered.
    off: bool,
    /// Of its port in each direction; none: each link's.
    port_bytes_per_sec: Option<u64>,
    out_busy_ns: u64,
    receiving: Port,
    next_port: u16,
}

/// One direction between two hosts.
struct Link {
    options: LinkOptions,
    /// How many partitions cut it now.
    cuts: u32,
    dice: Dice,
}

struct ListenSlot {
    number: u64,
    group: GroupId,
    /// Connections that the listener has not accepted: the direction towards the listener, and the client's address.
    backlog: VecDeque<(PipeId, String)>,
    wakers: Vec<Waker>,
}

/// Wakers to be called when the lock is free again. Declare it before taking the lock.
#[derive(Default)]
struct Wakes(Vec<Waker>);

impl Wakes {
    fn add(&mut self, waker: &mut Option<Waker>) {
        self.0.extend(waker.take());
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        for waker in self.0.drain(..) {
            waker.wake();
        }
    }
}

impl Network {
    pub(super) fn new(seed: u64, options: WorldOptions, executor: Arc<Executor>, trace: Arc<Trace>) -> Arc<Self> {
        Arc::new(Self { executor, trace, options, seed, state: Mutex::default(), locals: Locals::default() })
    }

    /// Sockets within hosts.
    pub(super) fn locals(&self) -> &Locals {
        &self.locals
    }

    /// The host of this name; it is made if it is new.
    pub(super) fn host(&self, name: &str) -> HostId {
        let mut state = self.state.lock();
        if let Some(index) = state.hosts.iter().position(|host| host.name == name) {
            return HostId(index);
        }
        state.hosts.push(Host {
            name: name.to_owned(),
            off: false,
            port_bytes_per_sec: None,
            out_busy_ns: 0,
            receiving: Port::default(),
            next_port: 32_768,
        });
        HostId(state.hosts.len() - 1)
    }

    /// The address of a host: 10.0.0.1 for the first.
    pub(super) fn ip(host: HostId) -> String {
        let number = host.0 + 1;
        format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)
    }

    /// Sets how a direction behaves from now on.
    pub(super) fn set_link(&self, source: HostId, target: HostId, options: LinkOptions) {
        self.state.lock().link(self, source, target).options = options;
    }

    /// Sets the bandwidth of a host's port from now on, whatever its links have.
    pub(super) fn set_port(&self, host: HostId, bytes_per_sec: u64) {
        self.state.lock().hosts[host.0].port_bytes_per_sec = Some(bytes_per_sec);
    }

    /// Cuts a direction, perhaps once more; true if it was open.
    pub(super) fn cut(&self, source: HostId, target: HostId) -> bool {
        let mut state = self.state.lock();
        let link = state.link(self, source, target);
        link.cuts += 1;
        link.cuts == 1
    }

    /// Takes back one cut of a direction; true if it is open now and was not.
    pub(super) fn mend(&self, source: HostId, target: HostId) -> bool {
        let mut state = self.state.lock();
        let link = state.link(self, source, target);
        let was_cut = link.cuts > 0;
        link.cuts = link.cuts.saturating_sub(1);
        was_cut && link.cuts == 0
    }

    /// Mends every direction; returns how many were cut.
    pub(super) fn heal(&self) -> usize {
        let mut state = self.state.lock();
        state.links.values_mut().map(|link| usize::from(std::mem::take(&mut link.cuts) > 0)).sum()
    }

    /// Gives a host power, or takes it.
    pub(super) fn set_off(&self, host: HostId, off: bool) {
        self.state.lock().hosts[host.0].off = off;
    }

    /// Ends a process's listeners and connections, as its end demands.
    pub(super) fn end(self: &Arc<Self>, group: GroupId, end: End, dice: &mut Dice) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let state = &mut *state;
        for slot in state.listeners.values_mut().filter(|slot| slot.group == group) {
            wakes.0.append(&mut slot.wakers);
        }
        state.listeners.retain(|_, slot| slot.group != group);
        let outgoing: Vec<PipeId> =
            state.pipes.iter().filter(|(_, pipe)| pipe.writer.group == group).map(|(id, _)| *id).collect();
        for id in outgoing {
            let unread = state.pipes.get(&id.back()).map_or(0, Pipe::unread_bytes);
            if let Some(back) = state.pipes.get_mut(&id.back()) {
                back.reader.gone = true;
            }
            let Some(pipe) = state.pipes.get_mut(&id) else { continue };
            let was_gone = std::mem::replace(&mut pipe.writer.gone, true);
            let was_closed = was_gone || pipe.closed;
            match end {
                // close(2) with unread bytes is a reset, without is an end (RFC 2525, 2.17).
                End::Killed if unread > 0 => state.push(self, id, Item::Reset),
                End::Killed if was_closed => {}
                End::Killed => state.push(self, id, Item::End),
                End::Crashed => {
                    pipe.truncate(dice.between(0, pipe.flight.len() as u64) as usize);
                    state.push(self, id, Item::Reset);
                }
                End::PowerOff => {
                    pipe.truncate(0);
                    pipe.closed = true;
                }
            }
            state.collect(id);
        }
    }

    /// Hands the reader the segments that have reached its kernel by now.
    fn deliver(self: &Arc<Self>, id: PipeId) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let now_ns = self.executor.now_ns();
        // While a segment is held, those behind it wait for its next try.
        if state.pipes.get(&id).is_none_or(|pipe| pipe.held.is_some_and(|held| now_ns < held.retry_ns)) {
            return;
        }
        while let Some((source, target)) = state.due(id, now_ns) {
            if !state.is_open(self, source, target) {
                self.hold(&mut state, id, &mut wakes, now_ns);
                return;
            }
            let Some(segment) = state.pipes.get_mut(&id).and_then(|pipe| pipe.flight.pop_front()) else { return };
            self.trace_segment(id, &segment, now_ns);
            state.arrive(self, id, segment.item, &mut wakes);
            state.collect(id);
        }
        let Some(pipe) = state.pipes.get_mut(&id) else { return };
        if pipe.held.take().is_some() {
            // Segments that were sent while the first was held have no event of their own.
            let rest: Vec<u64> = pipe.flight.iter().map(|segment| segment.ready_ns).collect();
            rest.into_iter().for_each(|at_ns| self.deliver_at(id, at_ns));
        }
    }

    /// The first segment does not get through: the sender's kernel tries again later, or gives up.
    fn hold(self: &Arc<Self>, state: &mut State, id: PipeId, wakes: &mut Wakes, now_ns: u64) {
        let Some(pipe) = state.pipes.get(&id) else { return };
        let (source, target) = (pipe.writer.host, pipe.reader.host);
        let before = pipe.held;
        if before.is_none() {
            let names = format!("{} to {}", state.hosts[source.0].name, state.hosts[target.0].name);
            self.trace.fault(now_ns, "held_segment", names);
        }
        let Stuck { since_ns, tries, .. } = before.unwrap_or(Stuck { since_ns: now_ns, tries: 0, retry_ns: now_ns });
        if now_ns - since_ns >= nanos(self.options.retransmit_limit) {
            let names = format!("{} to {}", state.hosts[source.0].name, state.hosts[target.0].name);
            self.trace.fault(now_ns, "connection_timed_out", names);
            state.give_up(id, wakes);
            return;
        }
        let pause = RETRANSMIT_PAUSE_MIN.saturating_mul(1 << tries.min(20)).min(self.options.retransmit_pause_max);
        let next_ns = now_ns + nanos(pause) + state.link(self, source, target).dice.below(nanos(pause) / 4 + 1);
        // The last attempt is made when the time is over.
        let retry_ns = next_ns.min(since_ns + nanos(self.options.retransmit_limit));
        if let Some(pipe) = state.pipes.get_mut(&id) {
            pipe.held = Some(Stuck { since_ns, tries: tries + 1, retry_ns });
        }
        self.deliver_at(id, retry_ns);
    }

    fn deliver_at(self: &Arc<Self>, id: PipeId, at_ns: u64) {
        // Weak, or the events of a finished world would keep it alive.
        let network = Arc::downgrade(self);
        self.executor.call_at(at_ns, move || {
            if let Some(network) = network.upgrade() {
                network.deliver(id);
            }
        });
    }

    fn trace_segment(&self, id: PipeId, segment: &Segment, now_ns: u64) {
        match &segment.item {
            Item::Data(data) => self.trace.event(now_ns, "data", &[id.0], data),
            Item::End => self.trace.event(now_ns, "end", &[id.0], &[]),
            Item::Reset => self.trace.event(now_ns, "reset", &[id.0], &[]),
        }
    }
}

impl State {
    fn link(&mut self, network: &Network, source: HostId, target: HostId) -> &mut Link {
        self.links.entry((source, target)).or_insert_with(|| Link {
            options: if source == target { network.options.local } else { network.options.link },
            cuts: 0,
            dice: Dice::new(network.seed, &format!("link {} {}", source.0, target.0)),
        })
    }

    /// Whether packets get from one host to another.
    fn is_open(&mut self, network: &Network, source: HostId, target: HostId) -> bool {
        self.link(network, source, target).cuts == 0 && !self.hosts[target.0].off && !self.hosts[source.0].off
    }

    /// Latency of a direction, drawn anew.
    fn latency_ns(&mut self, network: &Network, source: HostId, target: HostId) -> u64 {
        let link = self.link(network, source, target);
        nanos(link.options.latency) + nanos(link.dice.span(link.options.jitter))
    }

    /// The hosts of a pipe, if its first segment is due.
    fn due(&self, id: PipeId, now_ns: u64) -> Option<(HostId, HostId)> {
        let pipe = self.pipes.get(&id)?;
        let is_due = pipe.flight.front().is_some_and(|segment| segment.ready_ns <= now_ns);
        is_due.then_some((pipe.writer.host, pipe.reader.host))
    }

    /// Sends an item off.
    fn push(&mut self, network: &Arc<Network>, id: PipeId, item: Item) {
        let Some(pipe) = self.pipes.get(&id) else { return };
        let (source, target) = (pipe.writer.host, pipe.reader.host);
        let len = if let Item::Data(data) = &item { data.len() as u64 } else { 0 };
        let now_ns = network.executor.now_ns();
        let latency_ns = self.latency_ns(network, source, target);
        let link = self.link(network, source, target).options;
        let ready_ns = if source == target {
            now_ns + latency_ns + link.flow_ns(len)
        } else {
            let [sent_ns, received_ns] =
                [source, target].map(|host| link.by_port(self.hosts[host.0].port_bytes_per_sec).flow_ns(len));
            let out_ns = self.hosts[source.0].out_busy_ns.max(now_ns);
            self.hosts[source.0].out_busy_ns = out_ns + sent_ns;
            // A faster port is through with it when its last byte arrives, at the earliest.
            let from_ns = out_ns + latency_ns + sent_ns.saturating_sub(received_ns);
            let to = &mut self.hosts[target.0];
            match to.port_bytes_per_sec {
                Some(_) => to.receiving.reserve_parts(now_ns, from_ns, received_ns),
                None => to.receiving.reserve(now_ns, from_ns, received_ns),
            }
        };
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        let ready_ns = ready_ns.max(pipe.last_ready_ns);
        pipe.last_ready_ns = ready_ns;
        pipe.closed |= !matches!(item, Item::Data(_));
        pipe.bytes += len as usize;
        // While a segment is held, its own retries bring those behind it along.
        pipe.flight.push_back(Segment { ready_ns, item });
        if pipe.held.is_none() {
            network.deliver_at(id, ready_ns);
        }
    }

    /// An item has reached the reader's kernel.
    fn arrive(&mut self, network: &Arc<Network>, id: PipeId, item: Item, wakes: &mut Wakes) {
        let back_gone = self.pipes.get(&id.back()).is_none_or(|back| back.writer.gone);
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        let is_closed = pipe.reader.gone && back_gone;
        match item {
            Item::Data(data) if is_closed => {
                pipe.bytes -= data.len();
                self.push(network, id.back(), Item::Reset);
            }
            Item::Data(data) => {
                pipe.buffer.push_back(data);
                wakes.add(&mut pipe.reader.waker);
            }
            Item::End => {
                pipe.ended = true;
                wakes.add(&mut pipe.reader.waker);
            }
            Item::Reset => self.broken(id, io::ErrorKind::ConnectionReset, wakes),
        }
    }

    /// The reader's side of a pipe learns that the other side has no such connection any more.
    fn broken(&mut self, id: PipeId, error: io::ErrorKind, wakes: &mut Wakes) {
        if let Some(pipe) = self.pipes.get_mut(&id) {
            pipe.reader.error = Some(error);
            wakes.add(&mut pipe.reader.waker);
        }
        if let Some(back) = self.pipes.get_mut(&id.back()) {
            back.writer.error = Some(error);
            back.truncate(0);
            wakes.add(&mut back.writer.waker);
        }
        self.collect(id);
    }

    /// The writer's kernel gives a connection up that gets nothing through. Its peer does not learn of it, because
    /// nothing gets there.
    fn give_up(&mut self, id: PipeId, wakes: &mut Wakes) {
        if let Some(pipe) = self.pipes.get_mut(&id) {
            pipe.held = None;
        }
        self.broken(id.back(), io::ErrorKind::TimedOut, wakes);
    }

    /// Forgets a connection that both sides are done with.
    fn collect(&mut self, id: PipeId) {
        let is_over = |id| self.pipes.get(&id).is_none_or(Pipe::is_over);
        if is_over(id) && is_over(id.back()) {
            self.pipes.remove(&id);
            self.pipes.remove(&id.back());
        }
    }
}
