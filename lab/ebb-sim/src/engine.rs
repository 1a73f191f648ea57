//! Time, events, and flows that share resources fairly.
//!
//! A *resource* (a disk, one direction of a link, the cores of a node) does a fixed number of units of work a second. A
//! *flow* is an amount of something (bytes, cycles) that uses several resources at once, each at its own cost for one
//! unit of the flow, and never runs faster than its own limit. Rates are max-min fair (`fill`). Between two changes of
//! the set of flows all rates are constant, so the next end of a flow is known exactly and time jumps to it.

use crate::fill::{Filler, Gathered};
use crate::queue::Lowest;

/// One resource of an engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ResourceId(pub(crate) u32);

/// One flow of an engine; never names another flow later on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowId {
    slot: u32,
    generation: u32,
}

/// Cost of one unit of a flow at a resource.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Use {
    /// The resource.
    pub resource: ResourceId,
    /// Units of the resource for one unit of the flow.
    pub cost: f64,
    /// Additional cost while other flows use the resource too: the seeks of a disk when its head goes from stream to
    /// stream. Zero for links and cores.
    pub crowd_cost: f64,
}

impl Use {
    /// One unit for one unit: a link, a core.
    #[must_use]
    pub const fn plain(resource: ResourceId) -> Self {
        Self { resource, cost: 1.0, crowd_cost: 0.0 }
    }
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The flow with this token has been carried in full.
    Done(u64),
    /// The alarm with this token rang.
    Alarm(u64),
}

#[derive(Debug)]
pub(crate) struct Resource {
    pub capacity: f64,
    /// Slots of the flows that use it. A flow that uses it twice is here twice, and makes a disk seek.
    pub users: Vec<u32>,
    carried: f64,
}

impl Resource {
    pub(crate) fn cost_of(&self, used: &Use) -> f64 {
        if self.users.len() > 1 { used.cost + used.crowd_cost } else { used.cost }
    }
}

#[derive(Debug)]
pub(crate) struct Flow {
    generation: u32,
    live: bool,
    token: u64,
    remaining: f64,
    pub rate: f64,
    pub limit: f64,
    updated: f64,
    /// Number of its valid entry in the queue.
    due: u64,
    pub uses: Vec<Use>,
}

/// An event in the queue, and the number of its entry. Of two events at one moment, the earlier entry comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry {
    number: u64,
    due: Due,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    Flow(u32),
    Alarm(u64),
}

/// Resources, flows and the clock.
#[derive(Debug)]
pub struct Engine {
    pub(crate) resources: Vec<Resource>,
    pub(crate) flows: Vec<Flow>,
    free: Vec<u32>,
    queue: Lowest<Entry>,
    now: f64,
    number: u64,
    live: usize,
    /// Resources with a set of flows that has changed since the rates were computed.
    dirty: Vec<ResourceId>,
    settled: f64,
    quantum: f64,
    filler: Filler,
}

impl Engine {
    /// An engine at time 0.
    ///
    /// `quantum` (seconds): time for which a change of the set of flows may wait before rates are computed anew. 0 is
    /// exact. With more, a new flow may stand still, and freed capacity may lie idle, for that time. No byte is lost,
    /// and no resource is ever overcommitted. Large clusters need it, because every end of a flow would otherwise
    /// change all rates.
    #[must_use]
    pub fn new(quantum: f64) -> Self {
        Self {
            resources: Vec::new(),
            flows: Vec::new(),
            free: Vec::new(),
            queue: Lowest::default(),
            now: 0.0,
            number: 0,
            live: 0,
            dirty: Vec::new(),
            settled: f64::NEG_INFINITY,
            quantum,
            filler: Filler::default(),
        }
    }

    /// A new resource of `capacity` units a second.
    pub fn add_resource(&mut self, capacity: f64) -> ResourceId {
        assert!(capacity.is_finite() && capacity > 0.0, "a resource that does nothing would stop the world");
        self.resources.push(Resource { capacity, users: Vec::new(), carried: 0.0 });
        ResourceId(u32::try_from(self.resources.len() - 1).expect("fewer than four billion resources"))
    }

    /// Seconds since the start.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Starts a flow of `amount` units, at most `limit` units a second; [`Event::Done`] will carry `token`.
    pub fn start(&mut self, amount: f64, limit: f64, uses: &[Use], token: u64) -> FlowId {
        assert!(amount >= 0.0 && amount.is_finite() && limit > 0.0, "a flow of {amount} at most {limit} a second");
        assert!(limit.is_finite() || !uses.is_empty(), "a flow without limit or resource would take no time");
        let slot = self.free.pop().unwrap_or_else(|| {
            self.flows.push(Flow {
                generation: 0,
                live: false,
                token: 0,
                remaining: 0.0,
                rate: 0.0,
                limit: 0.0,
                updated: 0.0,
                due: 0,
                uses: Vec::new(),
            });
            u32::try_from(self.flows.len() - 1).expect("fewer than four billion flows")
        });
        let now = self.now;
        let flow = &mut self.flows[slot as usize];
        (flow.live, flow.token, flow.remaining) = (true, token, amount);
        (flow.rate, flow.limit, flow.updated) = (0.0, limit, now);
        flow.uses.clear();
        self.live += 1;
        let id = FlowId { slot, generation: flow.generation };
        if amount == 0.0 {
            self.enter(now, Due::Flow(slot));
            return id;
        }
        flow.uses.extend_from_slice(uses);
        if uses.is_empty() {
            flow.rate = limit;
            self.enter(now + amount / limit, Due::Flow(slot));
        }
        for used in uses {
            self.resources[used.resource.0 as usize].users.push(slot);
            self.dirty.push(used.resource);
        }
        id
    }

    /// Rings at `time` with `token`.
    pub fn alarm(&mut self, time: f64, token: u64) {
        self.enter(time.max(self.now), Due::Alarm(token));
    }

    /// Goes on to the next event. `None`: no flow or alarm is left.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            if !self.dirty.is_empty() {
                let at = self.now.max(self.settled + self.quantum);
                // Everything that happens at one moment happens before rates are computed for it.
                if self.queue.first().is_none_or(|time| time > at) {
                    self.now = at;
                    self.refresh_rates();
                    continue;
                }
            }
            let (time, entry) = self.queue.pop()?;
            match entry.due {
                Due::Alarm(token) => {
                    self.now = time;
                    return Some(Event::Alarm(token));
                }
                Due::Flow(slot) => {
                    let flow = &self.flows[slot as usize];
                    if flow.live && flow.due == entry.number {
                        self.now = time;
                        return Some(Event::Done(self.finish(slot)));
                    }
                }
            }
        }
    }

    /// Units a second that a flow gets now; 0 when it has ended.
    #[must_use]
    pub fn rate(&self, id: FlowId) -> f64 {
        let flow = &self.flows[id.slot as usize];
        if flow.live && flow.generation == id.generation { flow.rate } else { 0.0 }
    }

    /// Units a second that a resource is giving now.
    #[must_use]
    pub fn load(&self, id: ResourceId) -> f64 {
        let resource = &self.resources[id.0 as usize];
        // A flow without a rate yet takes nothing and causes no seeks.
        let moving = |slot: &u32| self.flows[*slot as usize].rate > 0.0;
        let mut slots: Vec<u32> = resource.users.iter().copied().filter(moving).collect();
        let crowded = slots.len() > 1;
        slots.sort_unstable();
        slots.dedup();
        let uses = slots.iter().flat_map(|slot| {
            let flow = &self.flows[*slot as usize];
            let cost = |used: &Use| if crowded { used.cost + used.crowd_cost } else { used.cost };
            flow.uses.iter().filter(|used| used.resource == id).map(move |used| cost(used) * flow.rate)
        });
        uses.sum()
    }

    /// Units a second that a resource can give.
    #[must_use]
    pub fn capacity(&self, id: ResourceId) -> f64 {
        self.resources[id.0 as usize].capacity
    }

    /// Units that a resource has given so far, seeks included.
    #[must_use]
    pub fn carried(&self, id: ResourceId) -> f64 {
        self.resources[id.0 as usize].carried
    }

    /// Flows under way.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live
    }

    /// Computes the rates now if they are out of date.
    pub fn refresh_rates(&mut self) {
        if self.dirty.is_empty() {
            return;
        }
        self.settled = self.now;
        let mut filler = std::mem::take(&mut self.filler);
        let dirty = std::mem::take(&mut self.dirty);
        filler.gather(&self.resources, &self.flows, &dirty);
        self.dirty = dirty;
        self.dirty.clear();
        // Units up to now were carried at the old rates and the old costs.
        for index in 0..filler.gathered().flows.len() {
            let slot = filler.gathered().flows[index];
            self.bring_up_to_date(slot);
        }
        filler.fill(&self.resources, &self.flows);
        let Gathered { flows, rates, .. } = filler.gathered();
        for (slot, rate) in flows.iter().zip(rates) {
            let flow = &mut self.flows[*slot as usize];
            // Invariant: an entry in the queue is right as long as the rate is the one that it was computed with.
            if flow.rate != *rate {
                flow.rate = *rate;
                let time = self.now + flow.remaining / rate;
                self.enter(time, Due::Flow(*slot));
            }
        }
        self.filler = filler;
        self.sweep_queue();
    }

    fn bring_up_to_date(&mut self, slot: u32) {
        let flow = &mut self.flows[slot as usize];
        let carried = (flow.rate * (self.now - flow.updated)).min(flow.remaining);
        flow.remaining -= carried;
        flow.updated = self.now;
        for used in &flow.uses {
            self.resources[used.resource.0 as usize].carried += carried * used.cost;
        }
    }

    fn finish(&mut self, slot: u32) -> u64 {
        let flow = &mut self.flows[slot as usize];
        // The remainder of rounding is carried here, so that bytes add up.
        for used in &flow.uses {
            let resource = &mut self.resources[used.resource.0 as usize];
            resource.carried += flow.remaining * used.cost;
            let place = resource.users.iter().position(|user| *user == slot).expect("a live flow is among the users");
            resource.users.swap_remove(place);
            self.dirty.push(used.resource);
        }
        flow.uses.clear();
        (flow.live, flow.rate, flow.remaining) = (false, 0.0, 0.0);
        flow.generation = flow.generation.wrapping_add(1);
        self.free.push(slot);
        self.live -= 1;
        flow.token
    }

    fn enter(&mut self, time: f64, due: Due) {
        self.number += 1;
        if let Due::Flow(slot) = due {
            self.flows[slot as usize].due = self.number;
        }
        self.queue.push(time, Entry { number: self.number, due });
    }

    /// Removes stale entries when they are most of the queue.
    fn sweep_queue(&mut self) {
        if self.queue.len() > 4 * self.live + 4096 {
            let flows = &self.flows;
            self.queue.retain(|entry| match entry.due {
                Due::Alarm(_) => true,
                Due::Flow(slot) => flows[slot as usize].live && flows[slot as usize].due == entry.number,
            });
        }
    }
}

#[cfg(test)]
mod tests;
