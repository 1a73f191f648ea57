//! Max-min fair rates by progressive filling.
//!
//! All flows are raised together until a resource is full or a flow is at its own limit; the flows concerned are fixed
//! there, and the others are raised on (Bertsekas and Gallager, Data Networks, section 6.5.2). Every flow then runs at
//! its limit, or has a full resource on which no flow is faster.

use crate::engine::{Flow, Resource, ResourceId};
use crate::queue::Lowest;

/// The part of the network that a change can reach: flows, and the resources that they share.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub resources: Vec<u32>,
    pub flows: Vec<u32>,
    /// In the order of `flows`.
    pub rates: Vec<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Open {
    left: f64,
    weight: f64,
    uses: u32,
}

/// The limit that stops the raising of all flows at some rate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Limit {
    Resource(u32),
    /// Index into the gathered flows.
    Flow(u32),
}

/// Computes rates; kept for its buffers.
#[derive(Debug, Default)]
pub(crate) struct Filler {
    gathered: Gathered,
    round: u32,
    seen_resource: Vec<u32>,
    seen_flow: Vec<u32>,
    /// State of each resource, valid only for gathered ones.
    open: Vec<Open>,
    /// Place of each flow among the gathered ones.
    place: Vec<u32>,
    fixed: Vec<bool>,
    levels: Lowest<Limit>,
}

impl Filler {
    pub(crate) const fn gathered(&self) -> &Gathered {
        &self.gathered
    }

    /// Finds all flows and resources that are connected with the `dirty` resources.
    pub(crate) fn gather(&mut self, resources: &[Resource], flows: &[Flow], dirty: &[ResourceId]) {
        self.round = self.round.wrapping_add(1);
        self.seen_resource.resize(resources.len(), self.round.wrapping_sub(1));
        self.seen_flow.resize(flows.len(), self.round.wrapping_sub(1));
        self.place.resize(flows.len(), 0);
        self.open.resize(resources.len(), Open::default());
        let Gathered { resources: found, flows: streams, .. } = &mut self.gathered;
        found.clear();
        streams.clear();
        for id in dirty {
            if std::mem::replace(&mut self.seen_resource[id.0 as usize], self.round) != self.round {
                found.push(id.0);
            }
        }
        let mut next = 0;
        while let Some(resource) = found.get(next).copied() {
            next += 1;
            for slot in &resources[resource as usize].users {
                if std::mem::replace(&mut self.seen_flow[*slot as usize], self.round) == self.round {
                    continue;
                }
                self.place[*slot as usize] = u32::try_from(streams.len()).expect("as many as there are slots");
                streams.push(*slot);
                for used in &flows[*slot as usize].uses {
                    if std::mem::replace(&mut self.seen_resource[used.resource.0 as usize], self.round) != self.round {
                        found.push(used.resource.0);
                    }
                }
            }
        }
    }

    /// Sets the rates of the gathered flows.
    pub(crate) fn fill(&mut self, resources: &[Resource], flows: &[Flow]) {
        let count = self.gathered.flows.len();
        self.gathered.rates.clear();
        self.gathered.rates.resize(count, 0.0);
        self.fixed.clear();
        self.fixed.resize(count, false);
        self.levels.clear();
        for id in &self.gathered.resources {
            self.open[*id as usize] = Open { left: resources[*id as usize].capacity, weight: 0.0, uses: 0 };
        }
        for (index, slot) in self.gathered.flows.iter().enumerate() {
            let flow = &flows[*slot as usize];
            for used in &flow.uses {
                let open = &mut self.open[used.resource.0 as usize];
                open.weight += resources[used.resource.0 as usize].cost_of(used);
                open.uses += 1;
            }
            if flow.limit.is_finite() {
                let index = u32::try_from(index).expect("as many as there are slots");
                self.levels.push(flow.limit, Limit::Flow(index));
            }
        }
        for id in &self.gathered.resources {
            let open = self.open[*id as usize];
            if open.uses > 0 {
                self.levels.push(open.left / open.weight, Limit::Resource(*id));
            }
        }
        while let Some((rate, level)) = self.levels.pop() {
            match level {
                Limit::Flow(index) => self.fix(index, rate, resources, flows),
                Limit::Resource(id) => self.close(id, rate, resources, flows),
            }
        }
        for id in &self.gathered.resources {
            let (left, capacity) = (self.open[*id as usize].left, resources[*id as usize].capacity);
            assert!(left >= -1e-6 * capacity, "resource {id} gives {left} more than its {capacity}");
        }
    }

    /// Handles the next resource. If flows that were fixed elsewhere have left it room, it goes back into the queue.
    /// Otherwise its flows are fixed at `rate`.
    fn close(&mut self, id: u32, rate: f64, resources: &[Resource], flows: &[Flow]) {
        let open = self.open[id as usize];
        if open.uses == 0 {
            return;
        }
        let now = (open.left / open.weight).max(rate);
        if now > rate * (1.0 + 1e-12) {
            self.levels.push(now, Limit::Resource(id));
            return;
        }
        for slot in &resources[id as usize].users {
            let index = self.place[*slot as usize];
            self.fix(index, rate, resources, flows);
        }
    }

    fn fix(&mut self, index: u32, rate: f64, resources: &[Resource], flows: &[Flow]) {
        if std::mem::replace(&mut self.fixed[index as usize], true) {
            return;
        }
        self.gathered.rates[index as usize] = rate;
        for used in &flows[self.gathered.flows[index as usize] as usize].uses {
            let cost = resources[used.resource.0 as usize].cost_of(used);
            let open = &mut self.open[used.resource.0 as usize];
            open.left -= cost * rate;
            open.weight -= cost;
            open.uses -= 1;
        }
    }
}
