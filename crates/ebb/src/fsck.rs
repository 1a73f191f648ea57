//! `ebb fsck`.

mod scrub;

use std::time::Duration;

use clap::Args;
use ebb_api::explain::explain;
use ebb_api::path::EbbPath;
use ebb_cli::directory::ClusterDir;
use ebb_cli::output::counted;
use ebb_cli::verdict::Verdict;
use ebb_cli::{Context, admin};
use ebb_power::PowerPlan;
use ebb_rpc::Channel;
use ebb_types::{Result, bail};
use ebb_wire::pb;
use serde_json::json;

use crate::cluster::health::troubles;
use crate::cluster::status;
use crate::cluster::unreadable::Unreadable;

/// A scrub reads every byte of every volume.
const SCRUB_TIMEOUT: Duration = Duration::from_secs(6 * 3600);

/// Metablocks that the master has nodes describe in one go, at least.
const METABLOCKS_A_TIME: u64 = 5000;

/// As many as a person reads; the numbers cover the rest.
const FINDINGS_SHOWN: usize = 20;

#[derive(Debug, Args)]
pub struct FsckArgs {
    /// Check only this file, or the files below this directory.
    path: Option<EbbPath>,
    /// Also read every replica and compare it with its checksums.
    #[arg(long)]
    scrub: bool,
    /// Also compare every row of the RAID sets with what their slots give.
    #[arg(long)]
    parity: bool,
    /// List the files with bytes that cannot be read because of missing or damaged replicas or dead nodes, and ask for each file whether to remove it. All other
    /// damage is repaired automatically.
    #[arg(long)]
    repair: bool,
    /// With --repair: remove all these files without asking.
    #[arg(long, requires = "repair")]
    yes: bool,
}

/// Compares the recorded sets with the replicas on the nodes.
pub async fn run(context: &Context, args: FsckArgs) -> Result<Verdict> {
    let cluster = context.cluster()?;
    let master = admin::master(&cluster)?;
    let inode = match &args.path {
        None => 0,
        Some(path) => inode_of(&cluster, path).await?,
    };
    let deadline = if args.scrub || args.parity { SCRUB_TIMEOUT } else { patience(&master).await? };
    let question = pb::Fsck { scrub: args.scrub, inode, parity: args.parity };
    let answer = master.call(&question, deadline);
    // Of a part of the files it is not known how much there is to read.
    let reply = if args.scrub && inode == 0 {
        tokio::select! {
            biased;
            reply = answer => reply?,
            never = scrub::show_progress(context, &cluster) => match never {},
        }
    } else {
        answer.await?
    };
    let troubles = match args.path {
        None => troubles(&status::ask(&cluster).await?),
        Some(_) => Vec::new(),
    };
    let unreadable = Unreadable::of_fsck(&reply);
    let healthy = troubles.is_empty()
        && reply.under_replicated == 0
        && reply.over_replicated == 0
        && reply.corrupt == 0
        && reply.degraded + reply.lost_parts + reply.wrong_rows == 0
        && reply.orphaned == 0
        && reply.unscrubbed.is_empty();
    let verdict = unreadable.verdict(healthy);
    if context.output.json() {
        context.output.print_json(&json!({
            "healthy": verdict == Verdict::Good, "verdict": verdict.word(), "metablocks": reply.metablocks,
            "missing": reply.missing, "damaged": reply.damaged, "out_of_reach_by_failure": reply.unreachable,
            "out_of_reach_by_plan": reply.asleep,
            "under_replicated": reply.under_replicated, "over_replicated": reply.over_replicated,
            "corrupt": reply.corrupt, "orphaned": reply.orphaned, "unsettled": reply.unsettled,
            "unscrubbed": reply.unscrubbed, "unseen": reply.unseen,
            "degraded": reply.degraded, "raid_sets": reply.raid_sets, "lost_parts": reply.lost_parts,
            "rows_compared": reply.rows_compared, "wrong_rows": reply.wrong_rows,
            "findings": reply.findings, "troubles": troubles, "short": status::shortages_json(&reply.shortages),
            "lost": reply.lost.iter().map(|file| json!({
                "inode": file.inode, "path": file.path, "size": file.size, "metablocks": file.indexes,
            })).collect::<Vec<_>>(),
        }));
        if args.repair && args.yes {
            remove_lost(context, &reply.lost, true).await?;
        }
        return Ok(verdict);
    }
    for finding in reply.findings.iter().take(FINDINGS_SHOWN) {
        context.output.say(finding);
    }
    if reply.findings.len() > FINDINGS_SHOWN {
        context.output.say("... and more; --json prints up to a hundred of them");
    }
    troubles.iter().for_each(|trouble| context.output.say(trouble));
    context.output.say(&format!(
        "{}: {}; {} missing, {} damaged, {} out of reach by failure, {} out of reach by plan; \
         {} under-replicated, {} over-replicated, {} unsettled; {} replicas damaged, {} orphaned",
        if verdict == Verdict::Good { "healthy" } else { "NOT healthy" },
        counted(reply.metablocks, "metablock"),
        reply.missing,
        reply.damaged,
        reply.unreachable,
        reply.asleep,
        reply.under_replicated,
        reply.over_replicated,
        reply.unsettled,
        reply.corrupt,
        reply.orphaned,
    ));
    raid_lines(&reply, args.parity).iter().for_each(|line| context.output.say(line));
    unreadable.lines().iter().for_each(|line| context.output.say(line));
    status::shortage_lines(&reply.shortages).iter().for_each(|line| context.output.say(line));
    if reply.unseen > 0 {
        context.output.say(&format!("not checked: {} replicas on nodes that the power plan keeps off", reply.unseen));
    }
    if !reply.unscrubbed.is_empty() {
        let nodes: Vec<String> = reply.unscrubbed.iter().map(|node| format!("n{node}")).collect();
        context.output.say(&format!("not scrubbed: {}", nodes.join(", ")));
    }
    if args.repair {
        remove_lost(context, &reply.lost, args.yes).await?;
    } else if !reply.lost.is_empty() {
        context.output.say("files with bytes that cannot be read:");
        for file in &reply.lost {
            context.output.say(&format!("  {}", describe(file)));
        }
    }
    Ok(verdict)
}

/// What there is to say of RAID sets, if there are any.
fn raid_lines(reply: &pb::FsckReply, parity: bool) -> Vec<String> {
    if reply.raid_sets == 0 {
        return Vec::new();
    }
    let sets = counted(reply.raid_sets, "RAID set");
    let mut lines = vec![format!(
        "{sets}: {} metablocks are decoded until they are made again, {} rows and dead slots are lost",
        reply.degraded, reply.lost_parts
    )];
    if parity {
        lines.push(format!(
            "{} compared with their slots, {} wrong",
            counted(reply.rows_compared, "row"),
            reply.wrong_rows
        ));
    }
    lines
}

/// The inode that the path leads to.
async fn inode_of(cluster: &ClusterDir, path: &EbbPath) -> Result<u64> {
    let client = admin::operator(cluster).await?;
    let found = client.resolve(&admin::credentials(), path.as_bytes()).await;
    client.disconnect().await?;
    Ok(found.map_err(|error| explain(error, path, |_| None))?.inode.raw())
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
    let client = admin::operator(&context.cluster()?).await?;
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
