//! `ebb fs locations`.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_api::path::EbbPath;
use ebb_cli::admin;
use ebb_cli::directory::ClusterDir;
use ebb_cli::output::Table;
use ebb_client::BlinkState;
use ebb_types::{DatasetId, FileKind, Geometry, NodeId, Result, bail};
use ebb_wire::pb::explain_copies::What;
use ebb_wire::{convert, pb};
use serde_json::{Map, Value, json};

use super::Session;
use crate::node::copy_state;

/// Why the copies of each metablock move, or do not.
async fn explained(cluster: &ClusterDir, inode: u64) -> Result<BTreeMap<u64, (&'static str, String)>> {
    let reply = admin::master(cluster)?.call(&pb::ExplainCopies { what: Some(What::Inode(inode)) }, admin::ASK).await?;
    let sets = reply.sets.into_iter().map(|set| (set.metablock, (copy_state(set.state()), set.why)));
    Ok(sets.collect())
}

/// The dataset that each node serves alone, seen from one of them.
struct Serving {
    own: u64,
    by_node: BTreeMap<u64, u64>,
}

impl Serving {
    /// `own`: the file's dataset.
    fn new(own: DatasetId, nodes: &[pb::Node]) -> Self {
        Self { own: own.raw(), by_node: convert::serving(nodes) }
    }

    fn word(&self, node: u64) -> &'static str {
        match self.by_node.get(&node) {
            None => "all",
            Some(dataset) if *dataset == self.own => "this",
            Some(_) => "other",
        }
    }
}

/// A copy's node: what it does now, for how long it serves, and when it serves. So a scheduler knows what can end. Also
/// which datasets it serves, so that a scheduler sends no work to a node of another dataset.
fn node_json(node: u64, host: &str, power: &BlinkState, serving: &Serving) -> Map<String, Value> {
    let seconds = |time: Option<Duration>| json!(time.map(|time| time.as_secs_f64()));
    let mut shown = Map::new();
    shown.insert("node".to_owned(), json!(format!("n{node}")));
    shown.insert("host".to_owned(), json!(host));
    shown.insert("power".to_owned(), json!(power.to_string()));
    shown.insert("awake_for_s".to_owned(), seconds(power.awake_left));
    shown.insert("wakes_in_s".to_owned(), seconds(power.wakes_in));
    shown.insert("serves".to_owned(), json!(serving.word(node)));
    shown
}

impl Session {
    pub(super) async fn locations(&self, cluster: &ClusterDir, path: &EbbPath, why: bool) -> Result<()> {
        let attr = self.caller.resolve(path).await?;
        if attr.kind != FileKind::File {
            bail!(Invalid, "{path} is not a regular file: only files have metablocks");
        }
        let Geometry { block_size, metablock_size } = attr.storage.geometry;
        let blocks = self.caller.client.file_info(attr.inode).await?;
        let serving = Serving::new(attr.storage.dataset, &self.caller.client.nodes());
        let files = admin::master(cluster)?.call(&pb::Locate { inode: attr.inode.raw() }, admin::ASK).await?.replicas;
        let reasons = if why { explained(cluster, attr.inode.raw()).await? } else { BTreeMap::new() };
        let files: BTreeMap<(u64, u64), pb::LocatedReplica> =
            files.into_iter().map(|replica| ((replica.metablock, replica.volume), replica)).collect();
        let (mut metablocks, mut encoded) = (Vec::new(), Vec::new());
        let columns = ["METABLOCK", "OFFSET", "LENGTH", "VERSION", "NODE", "HOST", "POWER", "VOLUME", "FILE"];
        let mut table = Table::new(&columns);
        for block in &blocks {
            let (location, metablock) = (&block.location, &block.location.metablock);
            let offset = metablock.index * metablock_size;
            let version = metablock.min_version().to_string();
            let mut replicas = Vec::new();
            for ((member, host), power) in metablock.members.iter().zip(&location.hosts).zip(&block.nodes) {
                // A replica whose node does not answer has a place all the same; its file is not known now.
                let place = files.get(&(metablock.id, member.volume)).filter(|place| !place.file.is_empty());
                let file = place.map(|place| place.file.clone());
                let mut replica = node_json(member.node, host.as_str(), power, &serving);
                replica.insert("volume".to_owned(), json!(format!("v{}", member.volume)));
                replica.insert("file".to_owned(), json!(file));
                replica.insert("file_offset".to_owned(), json!(place.map(|place| place.file_offset)));
                replicas.push(replica);
                table.row(vec![
                    format!("m{}", metablock.id),
                    offset.to_string(),
                    metablock.length.to_string(),
                    version.clone(),
                    format!("n{}", member.node),
                    host.to_string(),
                    power.to_string(),
                    format!("v{}", member.volume),
                    file.unwrap_or_else(|| "(node does not answer)".to_owned()),
                ]);
            }
            for extra in &metablock.extra {
                table.row(vec![
                    format!("m{}", metablock.id),
                    offset.to_string(),
                    metablock.length.to_string(),
                    version.clone(),
                    format!("n{}", extra.node),
                    self.caller.client.host_of(extra.node).to_string(),
                    "extra copy".to_owned(),
                    format!("v{}", extra.volume),
                    files.get(&(metablock.id, extra.volume)).map_or_else(String::new, |place| place.file.clone()),
                ]);
            }
            let extra = metablock.extra.iter().map(|extra| {
                let file = files.get(&(metablock.id, extra.volume)).map(|place| place.file.clone());
                let (host, power) =
                    (self.caller.client.host_of(extra.node), self.caller.client.blink_state(NodeId::new(extra.node)));
                let mut shown = node_json(extra.node, host.as_str(), &power, &serving);
                shown.insert("volume".to_owned(), json!(format!("v{}", extra.volume)));
                shown.insert("file".to_owned(), json!(file));
                shown
            });
            let extra: Vec<_> = extra.collect();
            let mut shown = json!({
                "id": format!("m{}", metablock.id), "offset": offset, "length": metablock.length,
                "version": version, "replicas": replicas, "extra": extra,
                "readable_in_s": block.readable_in().map(|wait| wait.as_secs_f64()),
            });
            if let Some(frozen) = metablock.frozen.filter(|frozen| frozen.raid_set != 0) {
                shown["raid_set"] = json!({"id": frozen.raid_set, "slot": frozen.slot});
                encoded.push((metablock.id, frozen));
            }
            if let Some((state, sentence)) = reasons.get(&metablock.id) {
                shown["copies"] = json!({"state": state, "why": sentence});
            }
            metablocks.push(shown);
        }
        if self.output.json() {
            self.output.print_json(&json!({
                "block_size": block_size, "metablock_size": metablock_size, "metablocks": metablocks,
            }));
        } else {
            self.output.table(&table);
            for (metablock, frozen) in &encoded {
                self.output.say(&format!(
                    "m{metablock} is slot {} of rs{}: without its replica a read reads the other slots and a row (`ebb raid show rs{}`)",
                    frozen.slot, frozen.raid_set, frozen.raid_set
                ));
            }
            for (metablock, (state, sentence)) in &reasons {
                self.output.say(&format!("m{metablock} {state}: {sentence}"));
            }
        }
        Ok(())
    }
}
