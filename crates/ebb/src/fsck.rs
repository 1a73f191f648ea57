//! `ebb fsck`.

use std::time::Duration;

use clap::Args;
use ebb_cli::{Context, admin};
use ebb_power::PowerPlan;
use ebb_rpc::Channel;
use ebb_types::{HostName, Result, bail};
use ebb_wire::pb;
use serde_json::json;

use crate::cluster::health::troubles;
use crate::cluster::status;

/// A scrub reads every byte of every volume.
const SCRUB_TIMEOUT: Duration = Duration::from_secs(6 * 3600);

/// Metablocks that the master has nodes describe in one go, at least.
const METABLOCKS_A_TIME: u64 = 5000;

/// As many as a person reads; the numbers cover the rest.
const FINDINGS_SHOWN: usize = 20;

#[derive(Debug, Args)]
pub struct FsckArgs {
    /// Also read every replica and compare it with its checksums.
    #[arg(long)]
    scrub: bool,
    /// List the files with metablocks that no replica serves, and ask for each file whether to remove it. All other
    /// damage is repaired automatically.
    #[arg(long)]
    repair: bool,
    /// With --repair: remove all these files without asking.
    #[arg(long, requires = "repair")]
    yes: bool,
}

/// Compares; false: not healthy.
pub async fn run(context: &Context, args: FsckArgs) -> Result<bool> {
    let master = admin::master(&context.cluster()?)?;
    let deadline = if args.scrub { SCRUB_TIMEOUT } else { patience(&master).await? };
    let reply = master.call(&pb::Fsck { scrub: args.scrub }, deadline).await?;
    let troubles = troubles(&status::ask(&context.cluster()?).await?);
    let healthy = troubles.is_empty()
        && reply.missing == 0
        && reply.under_replicated == 0
        && reply.over_replicated == 0
        && reply.corrupt == 0
        && reply.orphaned == 0
        && reply.unscrubbed.is_empty();
    if context.output.json() {
        context.output.print_json(&json!({
            "healthy": healthy, "metablocks": reply.metablocks, "missing": reply.missing,
            "under_replicated": reply.under_replicated, "over_replicated": reply.over_replicated,
            "corrupt": reply.corrupt, "orphaned": reply.orphaned, "unsettled": reply.unsettled,
            "unscrubbed": reply.unscrubbed, "asleep": reply.asleep, "unseen": reply.unseen,
            "findings": reply.findings, "troubles": troubles, "short": status::shortages_json(&reply.shortages),
            "lost": reply.lost.iter().map(|file| json!({
                "inode": file.inode, "path": file.path, "size": file.size, "metablocks": file.indexes,
            })).collect::<Vec<_>>(),
        }));
        if args.repair && args.yes {
            remove_lost(context, &reply.lost, true).await?;
        }
        return Ok(healthy);
    }
    for finding in reply.findings.iter().take(FINDINGS_SHOWN) {
        context.output.say(finding);
    }
    if reply.findings.len() > FINDINGS_SHOWN {
        context.output.say("... and more; --json prints up to a hundred of them");
    }
    troubles.iter().for_each(|trouble| context.output.say(trouble));
    context.output.say(&format!(
        "{}: {} metablocks, {} missing, {} under-replicated, {} over-replicated, {} corrupt, {} orphaned, {} unsettled",
        if healthy { "healthy" } else { "NOT healthy" },
        reply.metablocks,
        reply.missing,
        reply.under_replicated,
        reply.over_replicated,
        reply.corrupt,
        reply.orphaned,
        reply.unsettled,
    ));
    status::shortage_lines(&reply.shortages).iter().for_each(|line| context.output.say(line));
    if reply.unseen > 0 {
        context.output.say(&format!(
            "not looked at: {} replicas on nodes that the power plan keeps off; {} metablocks have no other",
            reply.unseen, reply.asleep
        ));
    }
    if !reply.unscrubbed.is_empty() {
        let nodes: Vec<String> = reply.unscrubbed.iter().map(|node| format!("n{node}")).collect();
        context.output.say(&format!("not scrubbed: {}", nodes.join(", ")));
    }
    if args.repair {
        remove_lost(context, &reply.lost, args.yes).await?;
    } else if !reply.lost.is_empty() {
        context.output.say("files with metablocks out of reach; `ebb fsck --repair` asks what to do about each:");
        for file in &reply.lost {
            context.output.say(&format!("  {}", describe(file)));
        }
    }
    Ok(healthy)
}

/// Nodes that blink are asked while they are awake: that is once in an interval, for so many metablocks at a time.
async fn patience(master: &Channel) -> Result<Duration> {
    let status = master.call(&pb::ClusterStatus {}, admin::ASK).await?;
    let power = master.call(&pb::DescribePower { nodes_only: true, ..Default::default() }, admin::ASK).await?;
    let plans = power.plans.iter().filter_map(|plan| PowerPlan::decode(plan).ok());
    let interval_ms = plans.map(|plan| plan.interval_ms).max().unwrap_or(0);
    let slices = u32::try_from(status.metablocks / METABLOCKS_A_TIME + 1).unwrap_or(u32::MAX);
    Ok(Duration::from_millis(interval_ms).saturating_mul(slices).saturating_add(admin::ASK))
}

fn describe(file: &pb::LostFile) -> String {
    let ranges = file.indexes.iter().take(5).map(|index| {
        let from = index * file.metablock_size;
        format!("{}-{}", from, (from + file.metablock_size).min(file.size))
    });
    let more = if file.indexes.len() > 5 { " and more" } else { "" };
    let path = if file.path.is_empty() { "(no name: removed and still open)" } else { &file.path };
    format!("{path}: {} bytes, of which {}{more} cannot be read", file.size, ranges.collect::<Vec<_>>().join(", "))
}

/// A person decides about a lost metablock: its node may come back, and then nothing is lost.
async fn remove_lost(context: &Context, lost: &[pb::LostFile], yes: bool) -> Result<()> {
    let named: Vec<_> = lost.iter().filter(|file| !file.path.is_empty()).collect();
    if named.is_empty() {
        context.output.say("nothing to decide: all else is repaired by itself");
        return Ok(());
    }
    // All is asked before anything is done: no session waits for a person.
    let mut chosen = Vec::new();
    for file in named {
        context.output.say(&describe(file));
        if yes || ask("remove this file? A node that comes back would bring it back whole [y/N] ")? {
            chosen.push(file);
        }
    }
    if chosen.is_empty() {
        return Ok(());
    }
    let client = admin::client(&context.cluster()?, &HostName::new("client"), "cli").await?;
    for file in chosen {
        remove(&client, file).await?;
        context.output.say(&format!("removed {}", file.path));
    }
    client.disconnect().await
}

async fn remove(client: &ebb_client::Client, file: &pb::LostFile) -> Result<()> {
    let credentials = admin::credentials();
    let (parent, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let parent = if parent.is_empty() { "/" } else { parent };
    let parent = client.resolve(&credentials, parent.as_bytes()).await?;
    let found = client.resolve_link(&credentials, file.path.as_bytes()).await?;
    if found.inode.raw() != file.inode {
        bail!(Stale, "{} is another file by now: run fsck again", file.path);
    }
    client.unlink(&credentials, parent.inode, name.as_bytes()).await
}

fn ask(question: &str) -> Result<bool> {
    let failed = |error: std::io::Error| ebb_types::Error::from_io(&error, "asking");
    eprint!("{question}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(failed)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
