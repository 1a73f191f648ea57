//! A power manager's knowledge of the cluster: the master's last answer, in the core's terms.

use std::collections::{BTreeMap, BTreeSet};

use ebb_layout::{LayoutKind, SubRacks};
use ebb_power::chain::set_strays;
use ebb_power::manager::{Cluster, Expected};
use ebb_power::popularity::choose_loads;
use ebb_power::reach::{Holding, at_stake};
use ebb_power::{ChainShape, DatasetChain, Hardware, PowerPlan};
use ebb_types::{DatasetId, NodeId, Result};
use ebb_wire::pb;

use crate::forecast::Foreseen;
use crate::settings::Settings;

/// The cluster as the manager last learned it.
#[derive(Debug)]
pub(crate) struct Known {
    pub hardware: Hardware,
    circle: Vec<NodeId>,
    chains: Vec<DatasetChain>,
    holdings: Vec<Holding>,
    pub silent: Silent,
    /// Reads that go to each node's data.
    loads: BTreeMap<NodeId, f64>,
    pub hosts: BTreeMap<NodeId, String>,
    /// Localized storage nodes.
    pub lsns: BTreeMap<NodeId, Lsn>,
    /// Copies away from home, by the master's last answer.
    pub away: Vec<pb::Away>,
}

impl Known {
    /// `before`: the knowledge until now.
    pub fn of(settings: &Settings, reply: &pb::DescribePowerReply, before: Option<&Self>) -> Result<Self> {
        let nodes: Vec<NodeId> = reply.nodes.iter().map(|node| NodeId::new(node.id)).collect();
        let sub_racks = SubRacks::new(reply.nodes.iter().map(pb::Node::declared));
        let power = |node: &pb::Node| match sub_racks.is_lsn(&node.host) {
            true => settings.lsn(node.volumes.len()),
            false => settings.node(),
        };
        let drawn = reply.nodes.iter().map(|node| (NodeId::new(node.id), power(node))).collect();
        let hardware = Hardware::new(settings.base_watts, drawn)?.with_lsns(lsns(&reply.nodes, &sub_racks));
        let mut chains: Vec<DatasetChain> = reply.datasets.iter().map(chain).collect::<Result<_>>()?;
        let holdings: Vec<Holding> = reply.holdings.iter().map(holding).collect();
        let silent = Silent::of(&reply.nodes);
        set_strays(&mut chains, &holdings, &silent.all);
        let loads = reply.reads.iter().map(|one| (NodeId::new(one.node), one.reads)).collect();
        Ok(Self {
            hardware,
            circle: nodes,
            chains,
            holdings,
            silent,
            away: reply.away.clone(),
            lsns: reply.nodes.iter().filter_map(Lsn::of).collect(),
            loads: choose_loads(before.map_or(&BTreeMap::new(), |before| &before.loads), &loads),
            hosts: reply.nodes.iter().map(|node| (NodeId::new(node.id), node.host.clone())).collect(),
        })
    }

    /// The parts that a decision rests on.
    pub fn ground(&self) -> impl PartialEq + '_ {
        (&self.hardware, &self.circle, &self.chains, &self.holdings, &self.silent, &self.loads)
    }

    /// The cluster with the coming supply, in the core's terms.
    pub fn core<'a>(&'a self, foreseen: Option<&'a Foreseen>) -> Cluster<'a> {
        Cluster {
            hardware: &self.hardware,
            circle: &self.circle,
            chains: &self.chains,
            holdings: &self.holdings,
            dead: &self.silent.all,
            late: &self.silent.late,
            popularity: &self.loads,
            expected: foreseen.map_or(Expected::default(), Foreseen::expected),
        }
    }

    /// Takes in the files that the master found for the holdings that it was asked for. Where it found none, none is known any
    /// more.
    pub fn name(&mut self, asked: &[Holding], messages: &[pb::PowerHolding]) {
        let is_asked = |found: &Holding| asked.iter().any(|asked| asked.lies_like(found));
        self.set_examples(messages.iter().map(holding).filter(is_asked));
    }

    /// Goes on naming the files that were named before.
    pub fn keep_names(&mut self, before: &Self) {
        self.set_examples(before.holdings.iter().filter(|held| !held.example.is_empty()).cloned());
    }

    fn set_examples(&mut self, found: impl Iterator<Item = Holding>) {
        for found in found {
            if let Some(known) = self.holdings.iter_mut().find(|known| known.lies_like(&found)) {
                known.example = found.example;
            }
        }
    }

    /// Why a plan is as it is. It names a file that is out of reach also where none was known when the plan was made.
    pub fn sentence(&self, plan: &PowerPlan) -> String {
        let mut plan = plan.clone();
        let lost = at_stake(&plan, &self.holdings, &self.silent.all);
        if let Some(named) = lost.iter().find(|lost| !lost.example.is_empty())
            && plan.out_of_reach.example.is_empty()
        {
            plan.out_of_reach.example.clone_from(&named.example);
        }
        plan.sentence()
    }
}

/// What a localized storage node does for its watts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lsn {
    /// Hosts that it serves.
    pub hosts: u32,
    /// Bytes on its volumes.
    pub stored_bytes: u64,
}

impl Lsn {
    fn of(node: &pb::Node) -> Option<(NodeId, Self)> {
        let hosts = u32::try_from(node.serves_hosts.len()).unwrap_or(u32::MAX);
        let stored_bytes = node.volumes.iter().map(|volume| volume.used_bytes).sum();
        (hosts > 0).then(|| (NodeId::new(node.id), Self { hosts, stored_bytes }))
    }
}

/// The localized storage nodes of each node on a host that is served.
fn lsns(nodes: &[pb::Node], sub_racks: &SubRacks) -> BTreeMap<NodeId, Vec<NodeId>> {
    let on = |host: &str| -> Vec<NodeId> {
        nodes.iter().filter(|node| node.host == host).map(|node| NodeId::new(node.id)).collect()
    };
    let served = nodes.iter().filter(|node| !sub_racks.is_lsn(&node.host));
    served.filter_map(|node| Some((NodeId::new(node.id), on(sub_racks.lsn_of(&node.host)?.as_str())))).collect()
}

/// A holding of the master's answer, in the core's terms.
#[must_use]
pub fn holding(message: &pb::PowerHolding) -> Holding {
    let nodes = |ids: &[u64]| ids.iter().copied().map(NodeId::new).collect::<Vec<_>>();
    // A master of an earlier release does not tell which nodes have slots.
    let slots = if message.decoded && message.slots.is_empty() { &message.nodes } else { &message.slots };
    Holding {
        nodes: nodes(&message.nodes),
        copies: if message.copies == 0 {
            message.nodes.len()
        } else {
            usize::try_from(message.copies).unwrap_or(usize::MAX)
        },
        metablocks: message.metablocks,
        example: message.example.clone(),
        slots: nodes(slots),
    }
}

/// A holding of the core, in the terms of a question to the master.
pub(crate) fn to_message(holding: &Holding) -> pb::PowerHolding {
    let raw = |nodes: &[NodeId]| nodes.iter().map(|node| node.raw()).collect();
    pb::PowerHolding {
        nodes: raw(&holding.nodes),
        copies: holding.copies as u64,
        metablocks: holding.metablocks,
        example: holding.example.clone(),
        decoded: holding.is_decoded(),
        slots: raw(&holding.slots),
    }
}

/// Nodes that do not answer though they should.
#[derive(PartialEq, Debug, Default)]
pub(crate) struct Silent {
    /// All of them. Whether they are dead shows later; their copies are out of reach now.
    all: BTreeSet<NodeId>,
    /// Those that the master still waits for: they keep their turns, so that they can speak.
    late: BTreeSet<NodeId>,
}

impl Silent {
    /// From the master's list of nodes.
    pub fn of(nodes: &[pb::Node]) -> Self {
        let mut silent = Self::default();
        for node in nodes {
            let (id, is_dead) = (NodeId::new(node.id), node.state() == pb::NodeState::NodeDead);
            if node.late && !is_dead {
                silent.late.insert(id);
            }
            if node.late || is_dead {
                silent.all.insert(id);
            }
        }
        silent
    }
}

fn chain(dataset: &pb::Dataset) -> Result<DatasetChain> {
    let layout = dataset.layout.parse::<LayoutKind>()?;
    let nodes = dataset.chain.iter().copied().map(NodeId::new).collect();
    let shape = ChainShape::of(layout, dataset.gear_size);
    let mut chain = DatasetChain::new(DatasetId::new(dataset.id), nodes, shape, dataset.primaries, dataset.replicas)?;
    chain.wanted_active = Some(dataset.active).filter(|active| *active > 0);
    Ok(chain)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ebb_power::{Duty, NodePlan, NodePower, OutOfReach, PolicyKind};
    use ebb_types::PlanVersion;

    use super::*;

    fn message(nodes: &[u64], example: &str) -> pb::PowerHolding {
        pb::PowerHolding { nodes: nodes.to_vec(), metablocks: 3, example: example.into(), ..Default::default() }
    }

    /// A dataset whose number of copies was changed has blocks that lie elsewhere until they have moved.
    #[test]
    fn blocks_off_the_circle_s_places_are_in_the_cover() {
        let dataset = pb::Dataset {
            id: 1,
            layout: "power-balanced".into(),
            replicas: 3,
            chain: (1..=9).collect(),
            ..Default::default()
        };
        let cover = |holdings: Vec<pb::PowerHolding>| {
            let nodes = (1..=9).map(|id| pb::Node { id, ..Default::default() }).collect();
            let reply =
                pb::DescribePowerReply { nodes, datasets: vec![dataset.clone()], holdings, ..Default::default() };
            let settings = Settings::new(PolicyKind::Tide, Duration::from_secs(2));
            let known = Known::of(&settings, &reply, None).unwrap();
            known.chains[0].cover(&BTreeSet::new()).iter().map(|node| node.raw()).collect::<Vec<_>>()
        };
        assert_eq!(cover(vec![message(&[1, 4, 7], "")]), [1, 2, 3]);
        assert_eq!(cover(vec![message(&[1, 4, 7], ""), message(&[5, 9], "")]), [1, 2, 3, 5]);
    }

    #[test]
    fn a_sentence_names_a_file_that_was_found_after_its_plan_was_made() {
        let node = NodePower {
            active_watts: 1.0,
            idle_watts: 1.0,
            asleep_watts: 0.0,
            wake: Duration::ZERO,
            suspend: Duration::ZERO,
            rotational_disks: 0,
        };
        let known = |holdings: Vec<pb::PowerHolding>| Known {
            hardware: Hardware::new(0.0, BTreeMap::from([(NodeId::new(1), node)])).unwrap(),
            circle: Vec::new(),
            chains: Vec::new(),
            holdings: holdings.iter().map(holding).collect(),
            silent: Silent::default(),
            loads: BTreeMap::new(),
            hosts: BTreeMap::new(),
            lsns: BTreeMap::new(),
            away: Vec::new(),
        };
        let off = NodePlan { duty: Duty::Off, ready_ms: 0, wake_ms: 0, suspend_ms: 0 };
        let plan = PowerPlan {
            version: PlanVersion::new(1),
            policy: PolicyKind::Migration,
            start_ms: 0,
            interval_ms: 1000,
            guard_ms: 0,
            budget_mw: 0,
            nodes: [1, 2].map(|node| (NodeId::new(node), off)).into(),
            stalled: Vec::new(),
            out_of_reach: OutOfReach { metablocks: 3, example: String::new() },
            why: "why".into(),
        };
        let mut now = known(vec![message(&[3, 4], "/lit"), message(&[1, 2], "")]);
        assert_eq!(now.sentence(&plan), "why; 3 metablocks out of reach");
        let asked = [holding(&message(&[1, 2], ""))];
        now.name(&asked, &[message(&[1, 2], "/dark"), message(&[3, 4], ""), message(&[1], "/elsewhere")]);
        assert_eq!(now.sentence(&plan), "why; 3 metablocks out of reach, as of /dark");
        let mut later = known(vec![message(&[2, 5], ""), message(&[1, 2], "")]);
        later.keep_names(&now);
        assert_eq!(later.sentence(&plan), "why; 3 metablocks out of reach, as of /dark");
        later.name(&asked, &[message(&[1, 2], "")]);
        assert_eq!(later.sentence(&plan), "why; 3 metablocks out of reach", "it is not there any more");
    }
}
