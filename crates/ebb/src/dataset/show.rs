//! `ebb dataset show`: settings, and how the dataset lies on its nodes.

use ebb_api::path::EbbPath;
use ebb_cli::directory::ClusterDir;
use ebb_cli::output::{Table, counted, human_bytes};
use ebb_cli::units::Percent;
use ebb_cli::{Context, admin};
use ebb_types::{NodeId, Result, min_copies};
use ebb_wire::pb;
use serde_json::json;

use super::{find, settings, table, to_json};
use crate::power::status::{away_json, away_line};
use crate::raid::lines::{has_any, lines, raid_json, warning};

/// Does it.
pub async fn show(context: &Context, cluster: &ClusterDir, client: &ebb_client::Client, path: &EbbPath) -> Result<()> {
    let dataset = find(client, path).await?;
    let asked = pb::DescribeDataset { dataset: dataset.id };
    let lies = admin::master(cluster)?.call(&asked, admin::ASK).await?;
    let status = admin::master(cluster)?.call(&pb::RaidStatus { dataset: dataset.id }, admin::ASK).await?;
    let raid = status.datasets.into_iter().next().unwrap_or_default();
    if context.output.json() {
        context.output.print_json(&merged(to_json(&dataset), &lies, &raid));
        return Ok(());
    }
    let share = dataset.extra_share_percent;
    let min = min_copies(dataset.min_copies, dataset.replicas);
    let goes_on = match dataset.replicas {
        0 | 1 => "there is one copy of everything".to_owned(),
        replicas if min == replicas => {
            format!("writes wait until all {replicas} copies have them, even while nodes are missing")
        }
        replicas => format!("while nodes are missing, writes go on with {min} of {replicas} copies"),
    };
    let has_chain = !dataset.chain.is_empty();
    let settings = settings(&dataset);
    context.output.table(&table(&[dataset]));
    context.output.say(&settings);
    context.output.say(&goes_on);
    context.output.say(&format!(
        "{} on {}; at least {} must be on to hold everything",
        counted(lies.blocks, "metablock"),
        counted(lies.spread as u64, "node"),
        counted(lies.min_active as u64, "node")
    ));
    if has_any(&raid) {
        lines(&raid).iter().for_each(|line| context.output.say(line));
        warning(&raid).iter().for_each(|warning| context.output.warn(warning));
    }
    if let Some(line) = sharing_line(&lies) {
        context.output.say(&line);
    }
    context.output.table(&chain_table(&lies, has_chain));
    if lies.elsewhere > 0 {
        context.output.say(&format!("{} outside the chain", counted(lies.elsewhere, "copy")));
    }
    if let Some(line) = away_line(&lies.away) {
        context.output.say(&line);
    }
    if share > 0 || lies.extra_copies > 0 {
        context.output.say(&format!(
            "{} of often read data: {}; they may take {} of the unused capacity",
            counted(lies.extra_copies, "extra copy"),
            human_bytes(lies.extra_bytes),
            Percent(share)
        ));
    }
    Ok(())
}

fn merged(
    mut settings: serde_json::Value,
    lies: &pb::DescribeDatasetReply,
    raid: &pb::RaidDataset,
) -> serde_json::Value {
    let more = json!({
        "chain": lies.chain.iter().map(|node| NodeId::new(*node).to_string()).collect::<Vec<_>>(),
        "spread": lies.spread, "min_active": lies.min_active, "metablocks": lies.blocks,
        "target": lies.target, "actual": lies.actual, "elsewhere": lies.elsewhere,
        "away": away_json(&lies.away), "guests": lies.guests,
        "extra_copies": lies.extra_copies, "extra_bytes": lies.extra_bytes,
        "raid": raid_json(raid),
        "live": lies.live, "sharing": lies.sharing,
        "serving": lies.serving.iter().map(|node| NodeId::new(*node).to_string()).collect::<Vec<_>>(),
    });
    if let (Some(all), serde_json::Value::Object(more)) = (settings.as_object_mut(), more) {
        all.extend(more);
    }
    settings
}

/// The nodes that serve it alone, and why; none while it is not read.
fn sharing_line(lies: &pb::DescribeDatasetReply) -> Option<String> {
    match (lies.live, lies.sharing.as_str()) {
        (false, _) => None,
        (true, "") => Some("it is read, from all nodes".to_owned()),
        (true, sharing) => Some(format!("it is read, and has nodes of its own: {sharing}")),
    }
}

/// One line for each node, in the order of the chain.
fn chain_table(lies: &pb::DescribeDatasetReply, has_chain: bool) -> Table {
    let mut table = Table::new(&[if has_chain { "CHAIN" } else { "NODE" }, "TARGET", "ACTUAL", "AWAY", "GUESTS"]);
    for (place, (node, actual)) in lies.chain.iter().zip(&lies.actual).enumerate() {
        let away = lies.away.iter().find(|away| away.home == *node).map_or(0, |away| away.metablocks);
        let guests = lies.guests.get(place).copied().unwrap_or(0);
        let target = lies.target.get(place).map_or_else(|| "-".to_owned(), ToString::to_string);
        let cells = [*actual, away, guests].map(|count| count.to_string());
        table.row([NodeId::new(*node).to_string(), target].into_iter().chain(cells).collect());
    }
    table
}
