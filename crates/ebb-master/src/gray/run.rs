//! Gray nodes in the log, in the node map and for the nodes themselves.

use std::collections::BTreeMap;

use ebb_runtime::{Moment, Runtime, SeededBug};
use ebb_types::NodeId;

use super::{Change, Gray, Habit, Standing};
use crate::registry::Sleep;
use crate::shared::Shared;
use crate::view::ClusterView;

impl Gray {
    /// The decider, with the bug that is seeded in this world.
    pub(crate) fn for_runtime(runtime: &Runtime) -> Self {
        let habits = [(SeededBug::NeverGray, Habit::NeverBegins), (SeededBug::GrayForGood, Habit::NeverEnds)];
        let seeded = habits.into_iter().find(|(bug, _)| runtime.has_bug(*bug));
        Self::new(seeded.map_or(Habit::Good, |(_, habit)| habit))
    }
}

/// Assesses all nodes at a moment, and publishes the changes.
pub(crate) fn judge_pace(shared: &Shared, now: Moment) {
    let standings = shared.with_view(standings);
    let changes = shared.soft().gray.on_tick(&standings, now, shared.wall_ms());
    for change in &changes {
        match change {
            Change::Began(node, verdict) => {
                let figure = verdict.figure();
                let (disk, answers) = (verdict.disk.is_some(), verdict.answers.map_or(0, |(_, clients)| clients));
                tracing::warn!(
                    %node, took = ?figure.took, peers = ?figure.peers, disk, clients = answers,
                    "a node is gray: slow beyond its peers. It is read last, and writers avoid it while other nodes are free"
                );
            }
            Change::Ended(node, lasted) => {
                tracing::info!(%node, seconds = lasted.as_secs(), "a node is not gray any more");
            }
        }
    }
    if !changes.is_empty() {
        shared.soft().registry.bump();
        shared.announce_node_map();
    }
}

fn standings(view: &ClusterView<'_>) -> BTreeMap<NodeId, Standing> {
    let registry = &view.soft.registry;
    let standing = |node: NodeId| match () {
        () if registry.is_dead(node) || view.sleep_of(node) != Sleep::None => Standing::Away,
        () if registry.is_live(node) && !registry.is_missed(node) => Standing::There,
        () => Standing::Silent,
    };
    view.nodes().map(|node| (node, standing(node))).collect()
}
