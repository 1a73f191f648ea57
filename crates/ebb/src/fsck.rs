//! `ebb fsck`.

use std::time::Duration;

use clap::Args;
use ebb_types::Result;
use ebb_wire::pb;
use serde_json::json;

use crate::admin;
use crate::cli::Context;

/// A scrub reads every byte of every volume.
const SCRUB_TIMEOUT: Duration = Duration::from_secs(6 * 3600);

#[derive(Debug, Args)]
pub struct FsckArgs {
    /// Also read every replica and compare it with its checksums.
    #[arg(long)]
    scrub: bool,
}

/// Compares; false: not healthy.
pub async fn run(context: &Context, args: FsckArgs) -> Result<bool> {
    let master = admin::master(&context.cluster()?)?;
    let deadline = if args.scrub { SCRUB_TIMEOUT } else { admin::ASK };
    let reply = master.call(&pb::Fsck { scrub: args.scrub }, deadline).await?;
    let healthy = reply.missing == 0
        && reply.under_replicated == 0
        && reply.over_replicated == 0
        && reply.corrupt == 0
        && reply.orphaned == 0;
    if context.output.json() {
        context.output.print_json(&json!({
            "healthy": healthy, "metablocks": reply.metablocks, "missing": reply.missing,
            "under_replicated": reply.under_replicated, "over_replicated": reply.over_replicated,
            "corrupt": reply.corrupt, "orphaned": reply.orphaned, "unsettled": reply.unsettled,
            "findings": reply.findings,
        }));
        return Ok(healthy);
    }
    for finding in &reply.findings {
        context.output.say(finding);
    }
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
    Ok(healthy)
}
