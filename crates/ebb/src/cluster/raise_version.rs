//! `ebb cluster raise-version`.

use clap::Args;
use ebb_cli::{Context, admin};
use ebb_types::Result;
use ebb_wire::pb;
use serde_json::json;

use super::status;

/// Options of `ebb cluster raise-version`.
#[derive(Debug, Args)]
pub struct RaiseVersionArgs {
    /// Version to raise the cluster to [default: the newest that its master knows].
    #[arg(long, value_name = "VERSION")]
    to: Option<u32>,
    /// Do not wait for nodes that are away. One whose release turns out to be older is refused until it is upgraded.
    #[arg(long)]
    force: bool,
}

/// Raises the version of the cluster. There is no way back.
pub async fn run(context: &Context, args: &RaiseVersionArgs) -> Result<()> {
    let cluster = context.cluster()?;
    let before = status::ask(&cluster).await?;
    let version = args.to.unwrap_or(before.version_newest);
    let call = pb::RaiseVersion { version, force: args.force };
    admin::master(&cluster)?.call(&call, admin::ASK).await?;
    let sentence = if version == before.version {
        format!("the cluster is at version {version} already")
    } else {
        format!("the cluster is at version {version}, and was at {}", before.version)
    };
    context.output.answer(&sentence, &json!({ "version": version, "before": before.version }));
    Ok(())
}
