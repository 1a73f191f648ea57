//! `ebb raid encode` and `ebb raid repack`: work that is asked for, with its progress.

use std::time::Duration;

use ebb_api::explain::explain;
use ebb_api::path::EbbPath;
use ebb_cli::output::human_bytes;
use ebb_cli::{Context, admin};
use ebb_client::Client;
use ebb_types::Result;
use ebb_wire::pb;
use pb::raid_work::Kind;
use serde_json::json;

/// Pause between two questions for what is left.
const LOOK: Duration = Duration::from_millis(500);
/// Nothing has changed for so long: what is left waits for something else.
const STUCK: Duration = Duration::from_secs(60);
/// The same where the master says what for.
const STUCK_FOR: Duration = Duration::from_secs(20);

/// The inode that a path leads to.
pub async fn inode_of(client: &Client, path: &EbbPath) -> Result<u64> {
    let found = client.resolve(&admin::credentials(), path.as_bytes()).await;
    Ok(found.map_err(|error| explain(error, path, |inode| client.kept_path(inode)))?.inode.raw())
}

/// Asks for it, and waits until it is done or nothing moves any more.
pub async fn run(context: &Context, client: &Client, path: &EbbPath, kind: Kind) -> Result<()> {
    let inode = inode_of(client, path).await?;
    let master = admin::master(&context.cluster()?)?;
    let call = pb::RaidWork { kind: kind.into(), inode, ask: false };
    let mut left = master.call(&call, admin::ASK).await?;
    let what = if kind == Kind::RaidEncode { "encoding" } else { "repacking" };
    let bar = context.output.byte_bar(left.left_bytes, what);
    let all = left.left_bytes;
    let mut moved = tokio::time::Instant::now();
    while left.left_bytes > 0 && moved.elapsed() < if left.waits.is_empty() { STUCK } else { STUCK_FOR } {
        tokio::time::sleep(LOOK).await;
        let now = master.call(&pb::RaidWork { ask: true, ..call }, admin::ASK).await?;
        if now.left_bytes != left.left_bytes {
            moved = tokio::time::Instant::now();
        }
        bar.set_position(all.saturating_sub(now.left_bytes));
        left = now;
    }
    bar.finish_and_clear();
    if context.output.json() {
        context.output.print_json(&json!({
            "done_bytes": left.done_bytes, "left_bytes": left.left_bytes, "short_bytes": left.short_bytes,
            "unready_bytes": left.waiting, "waits": left.waits,
        }));
        return Ok(());
    }
    match (kind, left.left_bytes) {
        (Kind::RaidEncode, 0) => context.output.say(&format!("{} encoded", human_bytes(left.done_bytes))),
        (Kind::RaidRepack, 0) => context.output.say("nothing dead is left"),
        (_, bytes) => {
            let why = match left.waits.as_str() {
                "" => "too few go together, files are in use, or nodes are missing",
                why => why,
            };
            let (bytes, waited) = (human_bytes(bytes), moved.elapsed().as_secs());
            context.output.say(&format!(
                "{bytes} are left, and nothing has moved for {waited} s: {why}; it goes on in the background"
            ));
        }
    }
    if left.short_bytes > 0 {
        let short = human_bytes(left.short_bytes);
        context
            .output
            .say(&format!("{short} in metablocks that are too short to be worth a check metablock stay in copies"));
    }
    if left.waiting > 0 {
        context.output.say(&format!("{} wait for their copies to be whole", human_bytes(left.waiting)));
    }
    Ok(())
}
