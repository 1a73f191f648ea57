//! `ebb raid`.

pub mod lines;
mod work;

use clap::Subcommand;
use ebb_api::path::EbbPath;
use ebb_cli::output::{Table, counted, human_bytes};
use ebb_cli::{Context, admin};
use ebb_client::Client;
use ebb_types::{Result, bail};
use ebb_wire::pb;
use serde_json::json;

use self::lines::{lines, raid_json};

#[derive(Debug, Subcommand)]
pub enum RaidCommand {
    /// Show what each dataset has encoded, and what waits for what.
    Status,
    /// List RAID sets.
    List {
        /// Only those of this file, or of the files below this directory.
        path: Option<EbbPath>,
        /// Only those that have lost a part.
        #[arg(long)]
        troubled: bool,
    },
    /// Show one RAID set: slots and rows, with their nodes.
    Show {
        /// Its number, with or without `rs`.
        id: RaidSetNumber,
    },
    /// Encode files now, whatever their age.
    ///
    /// The command returns when they are encoded. Ctrl-C ends the waiting, and not the encoding.
    Encode {
        /// File, or directory of files.
        path: EbbPath,
    },
    /// Make RAID sets anew in which files have died, so that their room comes back.
    ///
    /// This happens by itself when half of a RAID set is dead. Ctrl-C ends the waiting, and not the repacking.
    Repack {
        /// File or directory beside which there should be nothing dead; all of a dataset's is its directory.
        path: EbbPath,
    },
}

/// The number of a RAID set.
#[derive(Clone, Copy, Debug)]
pub struct RaidSetNumber(u64);

impl std::str::FromStr for RaidSetNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("rs").unwrap_or(text).parse();
        number.map(Self).map_err(|_| format!("{text} is not the number of a RAID set, such as rs12"))
    }
}

/// Does it.
pub async fn run(context: &Context, command: RaidCommand) -> Result<()> {
    let cluster = context.cluster()?;
    let client = admin::operator(&cluster).await?;
    let done = match command {
        RaidCommand::Status => status(context).await,
        RaidCommand::List { path, troubled } => list(context, &client, path.as_ref(), troubled).await,
        RaidCommand::Show { id } => show(context, id).await,
        RaidCommand::Encode { path } => work::run(context, &client, &path, pb::raid_work::Kind::RaidEncode).await,
        RaidCommand::Repack { path } => work::run(context, &client, &path, pb::raid_work::Kind::RaidRepack).await,
    };
    client.disconnect().await?;
    done
}

async fn status(context: &Context) -> Result<()> {
    let reply = admin::master(&context.cluster()?)?.call(&pb::RaidStatus { dataset: 0 }, admin::ASK).await?;
    if context.output.json() {
        let encoding: Vec<String> = reply.encoding.iter().map(|node| format!("n{node}")).collect();
        let datasets: Vec<_> = reply.datasets.iter().map(raid_json).collect();
        context.output.print_json(&json!({ "datasets": datasets, "encoding": encoding }));
        return Ok(());
    }
    if reply.datasets.is_empty() {
        context.output.say("no dataset has RAID sets; `ebb dataset set PATH --redundancy 4+2` gives one some");
    }
    for dataset in &reply.datasets {
        context.output.say(&dataset.path);
        lines(dataset).iter().for_each(|line| context.output.say(&format!("  {line}")));
        lines::warning(dataset).iter().for_each(|warning| context.output.warn(warning));
    }
    if !reply.encoding.is_empty() {
        let nodes: Vec<String> = reply.encoding.iter().map(|node| format!("n{node}")).collect();
        context.output.say(&format!("encoding now: {}", nodes.join(", ")));
    }
    Ok(())
}

async fn list(context: &Context, client: &Client, path: Option<&EbbPath>, troubled: bool) -> Result<()> {
    let inode = match path {
        Some(path) => work::inode_of(client, path).await?,
        None => 0,
    };
    let master = admin::master(&context.cluster()?)?;
    let mut call = pb::DescribeRaidSets { inode, troubled, ..Default::default() };
    let mut table = Table::new(&["RAID SET", "DATASET", "CODE", "SLOTS", "DEAD", "BYTES", "STATE"]);
    let mut all = Vec::new();
    loop {
        let reply = master.call(&call, admin::ASK).await?;
        for described in &reply.sets {
            let Some(set) = &described.set else { continue };
            if context.output.json() {
                all.push(set_json(described));
                continue;
            }
            let dead = set.slots.iter().filter(|slot| slot.inode == 0).count();
            table.row(vec![
                format!("rs{}", set.id),
                described.path.clone(),
                set.raid_code().to_string(),
                set.slots.len().to_string(),
                dead.to_string(),
                human_bytes(set.slots.iter().map(|slot| slot.length).sum()),
                state_of(described),
            ]);
        }
        if reply.next == 0 {
            break;
        }
        call.from = reply.next;
    }
    match context.output.json() {
        true => context.output.print_json(&json!(all)),
        false => context.output.table(&table),
    }
    Ok(())
}

fn state_of(described: &pb::DescribedRaidSet) -> String {
    let rows = described.set.as_ref().map_or(0, |set| set.rows.len());
    let copies = described.set.as_ref().map_or(1, |set| set.raid_code().copies as usize);
    let is_sealed = described.set.iter().flat_map(|set| &set.slots).any(|slot| slot.members.len() > copies);
    match described.lost as usize {
        0 if is_sealed => "whole, copies are still there".to_owned(),
        0 => "whole".to_owned(),
        lost if lost <= rows => format!("{} lost, all can be read", counted(lost as u64, "part")),
        lost => format!("{} lost: some cannot be read now", counted(lost as u64, "part")),
    }
}

async fn show(context: &Context, RaidSetNumber(id): RaidSetNumber) -> Result<()> {
    let call = pb::DescribeRaidSets { from: id, limit: 1, ..Default::default() };
    let reply = admin::master(&context.cluster()?)?.call(&call, admin::ASK).await?;
    let found = reply.sets.into_iter().find(|one| one.set.as_ref().is_some_and(|set| set.id == id));
    let Some((set, described)) = found.and_then(|one| Some((one.set.clone()?, one))) else {
        bail!(
            NotFound,
            "there is no RAID set rs{id}: it has ended, or never was; `ebb raid list` has those that there are"
        );
    };
    if context.output.json() {
        context.output.print_json(&set_json(&described));
        return Ok(());
    }
    context.output.say(&format!("rs{id} of {}: {}, {}", described.path, set.raid_code(), state_of(&described)));
    let mut table = Table::new(&["PART", "METABLOCK", "FILE", "BYTES", "REPLICAS"]);
    let mut parts = described.parts.iter();
    for (number, slot) in set.slots.iter().enumerate() {
        let file = if slot.inode == 0 { "(dead)".to_owned() } else { format!("i{}", slot.inode) };
        table.row(vec![
            format!("slot {number}"),
            format!("m{}", slot.metablock),
            file,
            slot.length.to_string(),
            parts.next().cloned().unwrap_or_default(),
        ]);
    }
    for (number, row) in set.rows.iter().enumerate() {
        table.row(vec![
            format!("row {number}"),
            format!("m{}", row.metablock),
            "-".to_owned(),
            row.length.to_string(),
            parts.next().cloned().unwrap_or_default(),
        ]);
    }
    context.output.table(&table);
    Ok(())
}

fn set_json(described: &pb::DescribedRaidSet) -> serde_json::Value {
    let set = described.set.clone().unwrap_or_default();
    let state = |number: usize| described.parts.get(number).cloned().unwrap_or_default();
    let slots = set.slots.iter().enumerate().map(|(number, slot)| {
        json!({ "metablock": slot.metablock, "inode": slot.inode, "bytes": slot.length, "replicas": state(number) })
    });
    let rows = set.rows.iter().enumerate().map(|(number, row)| {
        json!({ "metablock": row.metablock, "bytes": row.length, "replicas": state(set.slots.len() + number) })
    });
    json!({
        "id": set.id, "dataset": described.path, "code": set.raid_code().to_string(), "lost": described.lost,
        "slots": slots.collect::<Vec<_>>(), "rows": rows.collect::<Vec<_>>(),
    })
}
