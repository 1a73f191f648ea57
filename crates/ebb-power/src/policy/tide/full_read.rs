//! The rate of a full read, limited by the nodes that hold the data.
//!
//! A plan gives each node a share of the time in which it serves. The data of a set of nodes can be read only by these
//! nodes. So a full read goes on at a rate of at most `serving(X) / demand(X)` nodes for every group `X`, where
//! `demand(X)` is the share of the data that lies on `X` alone. By Hall's theorem the least of these bounds is reached.
//! There are too many groups to try all of them. A maximum flow from the data to the nodes shows whether a rate is
//! possible, and its minimum cut is a group that forbids it.

use std::collections::BTreeSet;

use petgraph::algo::dinics;
use petgraph::graph::{DiGraph, EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;

/// Flow of one node that always serves. Flows are whole numbers, so that the algorithm ends.
const NODE_FLOW: f64 = 1e9;
/// Rates that differ by less are equal.
const RATE_SLACK: f64 = 1e-6;
/// Most groups that are remembered. One flow more is needed for each that is forgotten.
const BOUNDS_MAX: usize = 256;

/// A group of nodes, and the work of reading what lies on no other node, as a share of a read of all data.
#[derive(Clone, PartialEq, Debug)]
pub struct Bound {
    /// Places on the circle.
    pub nodes: Vec<usize>,
    /// Above 0. At most 1, unless some of it has to be decoded.
    pub demand: f64,
}

/// Demands: places of which any can do the work, and the work.
type Demand = (Vec<usize>, f64);

/// The rate of a full read, by the nodes that can answer each part of it.
#[derive(Debug)]
pub struct FullRead {
    demands: Vec<Demand>,
    bounds: Vec<Bound>,
    flow: Flow,
}

/// The network: source, sets, nodes, sink.
#[derive(Debug)]
struct Flow {
    graph: DiGraph<(), u64>,
    source: NodeIndex,
    sink: NodeIndex,
    of_sets: Vec<EdgeIndex>,
    of_nodes: Vec<EdgeIndex>,
}

impl FullRead {
    /// A read of all these on a circle of so many nodes.
    pub fn new(nodes: usize, demands: Vec<Demand>) -> Self {
        let all: BTreeSet<usize> = demands.iter().flat_map(|(nodes, _)| nodes).copied().collect();
        let flow = Flow::new(nodes, &demands);
        let mut read = Self { demands, bounds: Vec::new(), flow };
        read.add_bound(&all.into_iter().collect::<Vec<_>>());
        read
    }

    /// The groups that have bounded a rate so far.
    pub fn bounds(&self) -> &[Bound] {
        &self.bounds
    }

    /// Remembers the bound of a group, if it has any demand of its own.
    pub fn add_bound(&mut self, nodes: &[usize]) {
        let is_known = self.bounds.iter().any(|bound| bound.nodes == nodes);
        if !is_known && let Some(bound) = self.bound(nodes.to_vec()) {
            self.bounds.push(bound);
        }
    }

    /// Its rate, in nodes: as fast as so many nodes that always serve and hold everything. `serving` is each node's share
    /// of the time.
    pub fn rate(&mut self, serving: &[f64]) -> f64 {
        let of = |bound: &Bound| bound.nodes.iter().map(|place| serving[*place]).sum::<f64>() / bound.demand;
        let mut rate = self.bounds.iter().map(of).fold(f64::INFINITY, f64::min);
        while rate > RATE_SLACK {
            let Some(bound) = self.forbids(rate, serving) else { break };
            let lower = of(&bound);
            if lower >= rate - RATE_SLACK {
                break;
            }
            rate = lower;
            if self.bounds.len() < BOUNDS_MAX {
                self.bounds.push(bound);
            }
        }
        rate
    }

    /// A group of nodes that cannot serve its data at this rate, if there is one.
    fn forbids(&mut self, rate: f64, serving: &[f64]) -> Option<Bound> {
        let short = self.flow.run(rate, serving, &self.demands)?;
        let nodes: BTreeSet<usize> = short.iter().flat_map(|set| &self.demands[*set].0).copied().collect();
        self.bound(nodes.into_iter().collect())
    }

    fn bound(&self, nodes: Vec<usize>) -> Option<Bound> {
        let inside = self.demands.iter().filter(|(set, _)| set.iter().all(|place| nodes.contains(place)));
        let demand = inside.map(|(_, work)| work).sum();
        (demand > 0.0).then_some(Bound { nodes, demand })
    }
}

impl Flow {
    fn new(nodes: usize, sets: &[(Vec<usize>, f64)]) -> Self {
        let mut graph = DiGraph::new();
        let (source, sink) = (graph.add_node(()), graph.add_node(()));
        let servers: Vec<NodeIndex> = (0..nodes).map(|_| graph.add_node(())).collect();
        let of_nodes = servers.iter().map(|server| graph.add_edge(*server, sink, 0)).collect();
        let mut of_sets = Vec::new();
        for (holders, _) in sets {
            let set = graph.add_node(());
            of_sets.push(graph.add_edge(source, set, 0));
            for place in holders {
                graph.add_edge(set, servers[*place], u64::MAX / 4);
            }
        }
        Self { graph, source, sink, of_sets, of_nodes }
    }

    /// The sets on the source's side of a minimum cut. `None` if everything flows.
    fn run(&mut self, rate: f64, serving: &[f64], sets: &[(Vec<usize>, f64)]) -> Option<Vec<usize>> {
        for (edge, (_, share)) in self.of_sets.iter().zip(sets) {
            self.graph[*edge] = (rate * share * NODE_FLOW) as u64;
        }
        for (edge, share) in self.of_nodes.iter().zip(serving) {
            self.graph[*edge] = (share * NODE_FLOW) as u64;
        }
        let wanted: u64 = self.of_sets.iter().map(|edge| self.graph[*edge]).sum();
        let (flow, flows) = dinics(&self.graph, self.source, self.sink);
        // One unit may be lost by rounding at each edge.
        if flow + self.graph.edge_count() as u64 >= wanted {
            return None;
        }
        let reached = self.reach(&flows);
        let is_reached = |edge: &EdgeIndex| {
            let (_, set) = self.graph.edge_endpoints(*edge).expect("an edge of the graph");
            reached[set.index()]
        };
        Some((0..sets.len()).filter(|set| is_reached(&self.of_sets[*set])).collect())
    }

    /// Nodes that can be reached from the source with capacity left.
    fn reach(&self, flows: &[u64]) -> Vec<bool> {
        let mut reached = vec![false; self.graph.node_count()];
        let mut open = vec![self.source];
        reached[self.source.index()] = true;
        while let Some(at) = open.pop() {
            let onward = self.graph.edges(at).filter(|edge| flows[edge.id().index()] < *edge.weight());
            let back = self.graph.edges_directed(at, petgraph::Incoming).filter(|edge| flows[edge.id().index()] > 0);
            let next: Vec<NodeIndex> = onward.map(|edge| edge.target()).chain(back.map(|edge| edge.source())).collect();
            for node in next {
                if !std::mem::replace(&mut reached[node.index()], true) {
                    open.push(node);
                }
            }
        }
        reached
    }
}
