//! `ebb snapshot`.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use ebb_api::path::EbbPath;
use ebb_cli::output::{Table, counted, human_bytes};
use ebb_cli::units::Span;
use ebb_cli::{Context, admin};
use ebb_client::Client;
use ebb_types::snapshot::DIRECTORY;
use ebb_types::{ErrorKind, InodeId, Result, bail};
use ebb_wire::pb;
use pb::meta_op::{ListDatasets, Op, RemoveSnapshot, RenameSnapshot, Resolve, TakeSnapshot};
use serde_json::{Value, json};

use crate::dataset::find;
use crate::fs::list::time;

/// Between two attempts to take one, while files are being written.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Take a snapshot of a dataset: all files as they are now, to be read at DATASET/.snapshot/NAME.
    ///
    /// It has everything that was written before the command. Writers are asked for what they have in memory, and go on at once.
    /// Nothing is copied: it takes room as files change or go.
    Take(TakeArgs),
    /// List the snapshots of a dataset, the oldest first.
    List {
        /// Any path in the dataset.
        path: EbbPath,
    },
    /// Show a snapshot, and count its files.
    Show(Named),
    /// Remove a snapshot. The room that it alone takes is freed in the background.
    #[command(visible_alias = "rm")]
    Remove(Named),
    /// Give a snapshot another name.
    Rename {
        #[command(flatten)]
        snapshot: Named,
        /// Its new name.
        new_name: String,
    },
}

/// A snapshot of a dataset.
#[derive(Debug, Args)]
pub struct Named {
    /// Any path in the dataset.
    path: EbbPath,
    /// Name of the snapshot.
    name: String,
}

#[derive(Debug, Args)]
pub struct TakeArgs {
    #[command(flatten)]
    snapshot: Named,
    /// Time to wait for files that are being written or recovered. Then nothing is taken.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    wait: Span,
}

/// Does it.
pub async fn run(context: &Context, command: SnapshotCommand) -> Result<()> {
    let cluster = context.cluster()?;
    let client = admin::operator(&cluster).await?;
    let done = match command {
        SnapshotCommand::Take(args) => take_snapshot(context, &client, args).await,
        SnapshotCommand::List { path } => list(context, &client, &path).await,
        SnapshotCommand::Show(named) => show(context, &client, &named).await,
        SnapshotCommand::Remove(named) => remove(context, &client, &named).await,
        SnapshotCommand::Rename { snapshot, new_name } => rename(context, &client, &snapshot, new_name).await,
    };
    client.disconnect().await?;
    done
}

async fn take_snapshot(context: &Context, client: &Client, args: TakeArgs) -> Result<()> {
    let dataset = find(client, &args.snapshot.path).await?;
    let began = Instant::now();
    loop {
        let take = TakeSnapshot { dataset: dataset.id, name: args.snapshot.name.clone().into_bytes() };
        match client.meta(&admin::credentials(), Op::TakeSnapshot(take)).await {
            Ok(reply) => return told(context, &dataset, reply, "taken"),
            // Each attempt has recalled the writers' leases. What is in the way took its lease since, or is slow.
            Err(error) if error.kind() == ErrorKind::Busy && began.elapsed() < args.wait.0 => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) if error.kind() == ErrorKind::Busy => {
                bail!(Busy, "no snapshot was taken: {error}. Try again, or give --wait more than {:?}", args.wait.0)
            }
            Err(error) => return Err(error),
        }
    }
}

async fn list(context: &Context, client: &Client, path: &EbbPath) -> Result<()> {
    let dataset = find(client, path).await?;
    let snapshots = snapshots(client, &dataset).await?;
    if context.output.json() {
        let all: Vec<Value> = snapshots.iter().map(|snapshot| to_json(&dataset, snapshot)).collect();
        context.output.print_json(&json!(all));
        return Ok(());
    }
    let mut table = Table::new(&["NAME", "TAKEN", "PATH"]);
    for snapshot in &snapshots {
        table.row(vec![shown(&snapshot.name), when(snapshot), path_of(&dataset, snapshot)]);
    }
    context.output.table(&table);
    context.output.say(&format!(
        "{} and {} are gone from the files of {}, and kept for {}",
        human_bytes(dataset.kept_bytes),
        counted(dataset.past_inodes, "inode"),
        dataset.path,
        counted(snapshots.len() as u64, "snapshot"),
    ));
    Ok(())
}

async fn show(context: &Context, client: &Client, named: &Named) -> Result<()> {
    let (dataset, snapshot) = one(client, named).await?;
    let path = path_of(&dataset, &snapshot).into_bytes();
    let resolve = Resolve { path, follow_last: true, access: 0 };
    let top = client.meta(&admin::credentials(), Op::Resolve(resolve)).await?.attr.unwrap_or_default().inode;
    let total = client.summarize(&admin::credentials(), InodeId::new(top)).await?;
    if context.output.json() {
        let mut shown = to_json(&dataset, &snapshot);
        shown["files"] = json!(total.files);
        shown["directories"] = json!(total.directories);
        shown["bytes"] = json!(total.bytes);
        context.output.print_json(&shown);
        return Ok(());
    }
    context.output.say(&format!("{}, taken {}", path_of(&dataset, &snapshot), when(&snapshot)));
    context.output.say(&format!(
        "{} with {} in {}",
        counted(total.files, "file"),
        human_bytes(total.bytes),
        counted(total.directories, "directory"),
    ));
    Ok(())
}

async fn remove(context: &Context, client: &Client, named: &Named) -> Result<()> {
    let (dataset, snapshot) = one(client, named).await?;
    let remove = RemoveSnapshot { dataset: dataset.id, snapshot: snapshot.number };
    client.meta(&admin::credentials(), Op::RemoveSnapshot(remove)).await?;
    if context.output.json() {
        context.output.print_json(&to_json(&dataset, &snapshot));
    } else {
        context.output.say(&format!("removed {}", path_of(&dataset, &snapshot)));
    }
    Ok(())
}

async fn rename(context: &Context, client: &Client, named: &Named, new_name: String) -> Result<()> {
    let (dataset, snapshot) = one(client, named).await?;
    let rename = RenameSnapshot { dataset: dataset.id, snapshot: snapshot.number, name: new_name.into_bytes() };
    let reply = client.meta(&admin::credentials(), Op::RenameSnapshot(rename)).await?;
    told(context, &dataset, reply, "renamed to")
}

fn told(context: &Context, dataset: &pb::Dataset, reply: pb::MetaReply, what: &str) -> Result<()> {
    let Some(snapshot) = reply.snapshots.into_iter().next() else {
        bail!(Protocol, "the master's answer has no snapshot");
    };
    if context.output.json() {
        context.output.print_json(&to_json(dataset, &snapshot));
    } else {
        context.output.say(&format!("{what} {}", path_of(dataset, &snapshot)));
    }
    Ok(())
}

/// Those of a dataset, in the order in which they were taken.
async fn snapshots(client: &Client, dataset: &pb::Dataset) -> Result<Vec<pb::Snapshot>> {
    let op = Op::ListDatasets(ListDatasets { snapshots_of: Some(dataset.id) });
    Ok(client.meta(&admin::credentials(), op).await?.snapshots)
}

/// Errors: `NotFound` without a snapshot of this name.
async fn one(client: &Client, named: &Named) -> Result<(pb::Dataset, pb::Snapshot)> {
    let dataset = find(client, &named.path).await?;
    let all = snapshots(client, &dataset).await?;
    match all.into_iter().find(|snapshot| snapshot.name == named.name.as_bytes()) {
        Some(snapshot) => Ok((dataset, snapshot)),
        None => bail!(NotFound, "{} has no snapshot {}: see `ebb snapshot list`", dataset.path, named.name),
    }
}

fn to_json(dataset: &pb::Dataset, snapshot: &pb::Snapshot) -> Value {
    json!({
        "dataset": dataset.path, "name": shown(&snapshot.name), "number": snapshot.number,
        "taken_ns": snapshot.taken_ns, "path": path_of(dataset, snapshot),
        "root_inode": InodeId::new(dataset.root_inode).raw(),
    })
}

fn path_of(dataset: &pb::Dataset, snapshot: &pb::Snapshot) -> String {
    let root = dataset.path.trim_end_matches('/');
    format!("{root}/{}/{}", String::from_utf8_lossy(DIRECTORY), shown(&snapshot.name))
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn when(snapshot: &pb::Snapshot) -> String {
    time(snapshot.taken_ns)
}
