//! `ebb node`.

mod add;
mod attach;
mod check;
mod drain;
mod join;
mod remove;
mod stop;
mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Subcommand;
use ebb_cli::output::{Table, counted, human_bytes};
use ebb_cli::{Context, admin, process};
use ebb_rpc::Channel;
use ebb_types::{Error, Result, bail, err};
use ebb_wire::pb;
use ebb_wire::pb::explain_copies::What;
use serde_json::json;

use crate::cluster::parts::NodeSpec;
use crate::cluster::{health, status, up};

#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Show nodes and their volumes.
    List {
        /// Also show the waiting work on each node's copies, and the reason why it waits.
        #[arg(long)]
        why: bool,
    },
    /// Add nodes on this machine.
    Add(add::AddArgs),
    /// Print a token, with which one other host joins the cluster.
    Token(token::TokenArgs),
    /// Make this host a part of a cluster, with a token.
    ///
    /// The host gets its certificates and settings, and the master tries its address. A join that was interrupted is repeated
    /// with the same token. Start its services afterwards: `systemctl enable --now ebb-block ebb-worker`.
    Join(join::JoinArgs),
    /// Check that the master reaches this host's block server at the address that others are told.
    Check,
    /// Let other programs sleep and wake with a node, with all that they start.
    ///
    /// For development clusters, whose nodes are processes of this machine: a YARN NodeManager and its containers stand for the
    /// same host as the block server. The programs are not ended with the cluster.
    Attach {
        /// Host of the node, such as h1.
        host: String,
        /// Process ids.
        #[arg(required = true)]
        pids: Vec<u32>,
    },
    /// Let programs run on while the node sleeps.
    Detach {
        /// Host of the node, such as h1.
        host: String,
        /// Process ids.
        #[arg(required = true)]
        pids: Vec<u32>,
    },
    /// Move all replicas off a node.
    ///
    /// The node gets no new data, and can be stopped when it is empty. While copies cannot be moved, the command says
    /// why.
    Drain {
        /// Node id, such as n3, or host.
        node: String,
        /// End the drain, and use the node again.
        #[arg(long)]
        undo: bool,
        /// Return before the node is empty.
        #[arg(long)]
        no_wait: bool,
    },
    /// End a drain, and use the node again.
    Undrain {
        /// Node id, such as n3, or host.
        node: String,
    },
    /// Remove a node from the cluster for good.
    ///
    /// Its data are moved to other nodes first. A node that is lost can be removed, too, once all its data have copies
    /// elsewhere; files that have none are named.
    Remove {
        /// Node id, such as n3, or host.
        node: String,
    },
    /// Take back a node whose directory went back in time.
    ///
    /// The node starts empty; its old volumes are renamed and kept.
    Readmit {
        /// Node id, such as n3, or host.
        node: String,
    },
    /// Start the block server of a node that is not running.
    Start {
        /// Node id, such as n3, or host.
        node: String,
    },
    /// Stop the block server of a node.
    ///
    /// A node whose data have no other copy that serves is not stopped. Drain it first.
    Stop {
        /// Node id, such as n3, or host.
        node: String,
        /// Stop it even if data are then out of reach.
        #[arg(long)]
        force: bool,
    },
}

/// Does it; false: a volume needs an operator.
pub async fn run(context: &Context, command: NodeCommand) -> Result<bool> {
    match command {
        NodeCommand::Add(args) => add::run(context, &args).await.map(|()| true),
        NodeCommand::Token(args) => token::run(context, args).await.map(|()| true),
        NodeCommand::Join(args) => join::run(context, args).await.map(|()| true),
        NodeCommand::Check => check::run(context).await.map(|()| true),
        NodeCommand::Attach { host, pids } => attach::attach(context, &host, &pids).await.map(|()| true),
        NodeCommand::Detach { host, pids } => attach::detach(context, &host, &pids).map(|()| true),
        NodeCommand::List { why } => list(context, why).await,
        NodeCommand::Undrain { node } | NodeCommand::Drain { node, undo: true, .. } => {
            drain::undo(context, &node).await.map(|()| true)
        }
        NodeCommand::Drain { node, undo: false, no_wait } => drain::run(context, &node, no_wait).await.map(|()| true),
        NodeCommand::Remove { node } => remove::run(context, &node).await.map(|()| true),
        NodeCommand::Readmit { node } => readmit(context, &node).await.map(|()| true),
        NodeCommand::Start { node } => start(context, &node).await.map(|started| {
            context.output.answer(&started.sentence(), &started.json());
            true
        }),
        NodeCommand::Stop { node, force } => stop::run(context, &node, force).await.map(|()| true),
    }
}

async fn list(context: &Context, why: bool) -> Result<bool> {
    let cluster = context.cluster()?;
    let reply = status::ask(&cluster).await?;
    let asleep = status::asleep(&cluster)?;
    let reasons = if why { explained(&admin::master(&cluster)?, &reply.nodes).await? } else { BTreeMap::new() };
    let troubles: Vec<String> = reply.nodes.iter().flat_map(health::of_node).collect();
    if context.output.json() {
        let nodes: Vec<_> = reply.nodes.iter().map(|node| node_json(node, &asleep, reasons.get(&node.id))).collect();
        context.output.print_json(&json!(nodes));
        return Ok(troubles.is_empty());
    }
    let mut table = Table::new(&["NODE", "HOST", "RACK", "PID", "STATE", "LOAD", "VOLUME", "REPLICAS", "USED", "FREE"]);
    for node in &reply.nodes {
        if node.volumes.is_empty() {
            let place = [format!("n{}", node.id), node.host.clone(), node.rack.clone(), node.pid.to_string()];
            let rest = [state(node, &asleep), &node.load.to_string(), "none", "", "", ""].map(str::to_owned);
            table.row([place.to_vec(), rest.to_vec()].concat());
        }
        for volume in &node.volumes {
            table.row(vec![
                format!("n{}", node.id),
                node.host.clone(),
                node.rack.clone(),
                node.pid.to_string(),
                match state(node, &asleep) {
                    _ if health::is_poisoned(volume) => "poisoned",
                    "live" if node.gray.is_some() => "gray",
                    state => state,
                }
                .to_owned(),
                node.load.to_string(),
                volume.path.clone(),
                volume.replicas.to_string(),
                human_bytes(volume.used_bytes),
                human_bytes(volume.free_bytes),
            ]);
        }
    }
    context.output.table(&table);
    for node in reply.nodes.iter().filter(|node| !node.serves_hosts.is_empty()) {
        context.output.say(&format!("n{} ({}) serves {}", node.id, node.host, node.serves_hosts.join(", ")));
    }
    for (node, work) in &reasons {
        for one in work {
            let (state, why) = (copy_state(one.state()), &one.why);
            context.output.say(&format!("n{node}: {} {state}: {why}", counted(one.sets, "set")));
        }
    }
    troubles
        .iter()
        .chain(&health::notices(&reply.nodes, status::now_ms()))
        .for_each(|sentence| context.output.say(sentence));
    Ok(troubles.is_empty())
}

/// The work that is left for the copies of each node.
async fn explained(master: &Channel, nodes: &[pb::Node]) -> Result<BTreeMap<u64, Vec<pb::ExplainedWork>>> {
    let mut explained = BTreeMap::new();
    for node in nodes {
        let call = pb::ExplainCopies { what: Some(What::Node(node.id)) };
        explained.insert(node.id, master.call(&call, admin::ASK).await?.work);
    }
    Ok(explained)
}

/// The state of a set's copies, in a word.
pub const fn copy_state(state: pb::CopyState) -> &'static str {
    match state {
        pb::CopyState::CopySettled => "settled",
        pb::CopyState::CopyUnderWay => "copying",
        pb::CopyState::CopyWaits => "waiting",
        pb::CopyState::CopyDue => "due",
    }
}

fn node_json(node: &pb::Node, asleep: &BTreeSet<String>, work: Option<&Vec<pb::ExplainedWork>>) -> serde_json::Value {
    let volumes: Vec<_> = node
        .volumes
        .iter()
        .map(|volume| {
            json!({
                "id": format!("v{}", volume.id), "path": volume.path, "used_bytes": volume.used_bytes,
                "free_bytes": volume.free_bytes, "capacity_bytes": volume.capacity_bytes,
                "compressed_bytes": volume.compressed_bytes,
                "replicas": volume.replicas, "device": volume.device, "trouble": volume.trouble,
                "state": match volume.state() {
                    pb::VolumeState::VolumeLive => "live",
                    pb::VolumeState::VolumePoisoned => "poisoned",
                    pb::VolumeState::VolumeUnknown => "unknown",
                },
            })
        })
        .collect();
    let to_json = |one: &pb::ExplainedWork| json!({"state": copy_state(one.state()), "why": one.why, "sets": one.sets});
    let mut shown = json!({
        "id": format!("n{}", node.id), "host": node.host, "rack": node.rack, "pid": node.pid,
        "address": node.address, "state": state(node, asleep), "load": node.load, "volumes": volumes, "serves_hosts": node.serves_hosts,
        "gray": status::gray_json(node),
    });
    if let Some(work) = work {
        shown["copies"] = work.iter().map(to_json).collect();
    }
    shown
}

/// As people read it. A node that is registered and silent since the master started is not live yet; one that has missed its
/// heartbeats is not dead yet.
fn state(node: &pb::Node, asleep: &BTreeSet<String>) -> &'static str {
    match node.state() {
        pb::NodeState::NodeLive | pb::NodeState::NodeUnknown if asleep.contains(&node.host) => "asleep",
        pb::NodeState::NodeLive if node.late => "silent",
        pb::NodeState::NodeLive => "live",
        pb::NodeState::NodeDraining => "draining",
        pb::NodeState::NodeDead | pb::NodeState::NodeUnknown => "dead",
    }
}

/// A copy that went back denies that missing data were ever there. So nothing of it is believed: the node gets new
/// volumes, and repair makes their replicas again.
async fn readmit(context: &Context, name: &str) -> Result<()> {
    let cluster = context.cluster()?;
    let nodes = status::ask(&cluster).await?.nodes;
    let node = find(&nodes, name)?;
    let own = |process: &process::ProcessFile| process.role == "block" && process.host == node.host;
    if let Some(process) = process::running(&cluster, own)?.first() {
        bail!(Busy, "n{} runs (process {}): end it first", node.id, process.pid);
    }
    let volumes = &node.volumes;
    let mut kept = Vec::new();
    for path in volumes.iter().map(|volume| PathBuf::from(&volume.path)).filter(|path| path.is_dir()) {
        let aside = (1..).map(|number| path.with_extension(format!("aside-{number}"))).find(|aside| !aside.exists());
        let aside = aside.expect("numbers do not end");
        std::fs::rename(&path, &aside).map_err(|error| Error::from_io(&error, path.display()))?;
        context.output.say(&format!(
            "{} is kept as {}: remove it when `ebb fsck` misses nothing",
            path.display(),
            aside.display()
        ));
        kept.push(aside.display().to_string());
    }
    let started = start(context, name).await?;
    let mut value = started.json();
    value["kept"] = json!(kept);
    context.output.answer(&started.sentence(), &value);
    Ok(())
}

/// A node whose block server serves.
struct Started {
    node: u64,
    host: String,
}

impl Started {
    fn sentence(&self) -> String {
        format!("n{} ({}) serves", self.node, self.host)
    }

    fn json(&self) -> serde_json::Value {
        json!({ "node": format!("n{}", self.node), "host": self.host })
    }
}

async fn start(context: &Context, name: &str) -> Result<Started> {
    let cluster = context.cluster()?;
    let nodes = status::ask(&cluster).await?.nodes;
    let node = find(&nodes, name)?;
    let own = |process: &process::ProcessFile| process.role == "block" && process.host == node.host;
    if let Some(process) = process::running(&cluster, own)?.first() {
        return Err(err!(Exists, "n{} is already serving (pid {})", node.id, process.pid));
    }
    up::start_block(&cluster, &NodeSpec::of_record(node))?;
    Ok(Started { node: node.id, host: node.host.clone() })
}

/// A node by id (`n3` or `3`) or by host.
fn find<'a>(nodes: &'a [pb::Node], name: &str) -> Result<&'a pb::Node> {
    let id: Option<u64> = name.strip_prefix('n').unwrap_or(name).parse().ok();
    nodes.iter().find(|node| Some(node.id) == id || node.host == name).ok_or_else(|| {
        let known: Vec<String> = nodes.iter().map(|node| format!("n{} ({})", node.id, node.host)).collect();
        err!(NotFound, "no node {name:?}; there are {}", known.join(", "))
    })
}
