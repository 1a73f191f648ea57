//! `ebb node add`.

use std::collections::BTreeMap;

use clap::Args;
use ebb_cli::Context;
use ebb_cli::output::counted;
use ebb_types::{Result, bail};
use ebb_wire::pb;
use serde_json::json;

use crate::cluster::{status, up};

/// Options of `ebb node add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Number of nodes to add.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    count: u32,
    /// Volumes of each new node.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    volumes: u32,
    /// Make sub-racks: each new node is a localized storage node, and so many new hosts without volumes come with it, which it
    /// serves.
    #[arg(long, value_name = "HOSTS", value_parser = clap::value_parser!(u32).range(1..=64))]
    serving: Option<u32>,
    /// Rack of the new nodes [default: for each the rack with the fewest nodes].
    #[arg(long)]
    rack: Option<String>,
}

/// Starts new nodes on this machine, each with a block server and a worker.
pub async fn run(context: &Context, args: &AddArgs) -> Result<()> {
    let cluster = context.cluster()?;
    let mut nodes = status::ask(&cluster).await?.nodes;
    let mut added = Vec::new();
    for _ in 0..args.count {
        let rack = args.rack.clone().unwrap_or_else(|| emptiest_rack(&nodes));
        let hosts = match args.serving {
            Some(hosts) => up::add_sub_rack(&cluster, &rack, args.volumes, hosts)?,
            None => vec![up::add_node(&cluster, &rack, args.volumes)?],
        };
        nodes = status::ask(&cluster).await?.nodes;
        for host in hosts {
            let Some(node) = nodes.iter().find(|node| node.host == host) else {
                bail!(Unavailable, "{host} has started and is not registered yet: `ebb node list` shows it when it is");
            };
            let name = format!("n{}", node.id);
            context.output.say(&format!("{name} ({host}) serves in rack {rack}"));
            added.push(json!({ "node": name, "host": host, "rack": rack }));
        }
    }
    if context.output.json() {
        context.output.print_json(&json!({ "added": added }));
    } else {
        context.output.say(&format!(
            "{} in all; new data go there too, and layouts on a chain are restored by themselves",
            counted(nodes.len() as u64, "node")
        ));
    }
    Ok(())
}

/// The rack with the fewest nodes; of several the first by name.
fn emptiest_rack(nodes: &[pb::Node]) -> String {
    let mut racks: BTreeMap<&str, usize> = BTreeMap::new();
    for node in nodes {
        *racks.entry(&node.rack).or_default() += 1;
    }
    let fewest = racks.iter().min_by_key(|(_, count)| **count);
    fewest.map_or_else(|| "r1".to_owned(), |(rack, _)| (*rack).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_nodes_go_to_the_rack_with_the_fewest() {
        let node = |rack: &str| pb::Node { rack: rack.to_owned(), ..Default::default() };
        assert_eq!(emptiest_rack(&[node("r1"), node("r2"), node("r1")]), "r2");
        assert_eq!(emptiest_rack(&[node("r2"), node("r1")]), "r1");
        assert_eq!(emptiest_rack(&[]), "r1");
    }
}
