//! `ebb dataset`.

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand, ValueEnum};
use ebb_api::explain::explain;
use ebb_api::path::EbbPath;
use ebb_cli::output::{Table, counted, human_bytes};
use ebb_cli::units::{ByteSize, Percent};
use ebb_cli::values::one_of;
use ebb_cli::{Context, admin};
use ebb_types::{
    Domain, Encode, Geometry, InodeId, METABLOCK_SIZE_DEFAULT, NodeClass, NodeId, Prefetch, ReadRule, Redundancy,
    Result, bail, log_copies, may_lose_by_one_failure, min_copies,
};
use ebb_wire::pb;
use serde_json::json;

use crate::fs::trash::KeptFor;

mod cold;
mod remove;
mod show;

use cold::{EncodingArgs, cold, delay_ms, warn_of_redundancy};

/// Metablocks of the layout lsn are small against what is read ahead, so that a stream keeps several disks busy.
const LSN_METABLOCK: u64 = 4 << 20;

#[derive(Debug, Subcommand)]
pub enum DatasetCommand {
    /// Create a dataset: a directory tree with its own layout, copies and sizes.
    ///
    /// The directory must be new or empty.
    Create(CreateArgs),
    /// Change a dataset's limits, minimum copies, extra copies, prefetch, read rule or share of the nodes.
    ///
    /// If a limit is below the present usage, existing data stay, but nothing can grow.
    Set(SetArgs),
    /// Set the number of active nodes of a dataset's chain.
    ///
    /// The dataset is then read from these nodes, even if there is power for more.
    SetActive(SetActiveArgs),
    /// Show a dataset's settings and how its data lie on its nodes.
    Show {
        /// Any path in the dataset.
        path: EbbPath,
    },
    /// List all datasets.
    List,
    /// Remove a dataset: its directory, and with -r all files in it.
    Rm {
        /// Directory of the dataset.
        path: EbbPath,
        /// Remove the files too.
        #[arg(short, long)]
        recursive: bool,
    },
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Directory of the dataset.
    path: EbbPath,
    /// Block size: the unit of transfer, caching and prefetch.
    #[arg(long, default_value = "1MiB")]
    block: ByteSize,
    /// Metablock size: the unit of placement, replication and location [default: 64MiB; with the layout lsn 4MiB, so that a
    /// stream keeps several disks busy].
    #[arg(long)]
    metablock: Option<ByteSize>,
    /// Number of copies, on distinct nodes [default: 3; with the layout lsn 2].
    #[arg(long)]
    replicas: Option<u32>,
    /// Copies that must take a write before it is acknowledged. If nodes are missing and no others can replace them,
    /// writes and new files continue with this many copies. Missing copies are made when nodes are available again
    /// [default: 2, or 1 for a dataset with one copy].
    #[arg(long, value_name = "N")]
    min_copies: Option<u32>,
    /// Rule that places the replicas.
    #[arg(long, value_enum, default_value_t = LayoutArg::Random)]
    layout: LayoutArg,
    /// Nodes that the data lie on: `lsn`, localized storage nodes; `compute`, the others, as for data that are made and read once; or
    /// `any` [default: any; with the layout lsn lsn].
    #[arg(long, value_parser = node_classes())]
    on: Option<NodeClass>,
    /// Nodes that share one copy of all data, and are on whenever the dataset is on. Only simple, equal-work and geared
    /// have primaries, and they require this option.
    #[arg(long)]
    primaries: Option<u32>,
    /// Nodes that are switched on together. Only geared has gears, and it requires this option. The size must divide
    /// both the primaries and the nodes behind them.
    #[arg(long)]
    gear_size: Option<u32>,
    /// Route of a write to the copies.
    #[arg(long, value_enum, default_value_t = ReplicationArg::Pipeline)]
    replication: ReplicationArg,
    /// Limit of the bytes in all files of the dataset, with one copy counted; 0 means no limit. A write beyond it fails
    /// with EDQUOT.
    #[arg(long, default_value = "0")]
    quota: ByteSize,
    /// Limit of inodes (files, directories and links); 0 means no limit.
    #[arg(long, default_value_t = 0)]
    inodes: u64,
    /// Share of the unused capacity that extra copies of frequently read data may take, in percent, at most 90; 0 means
    /// none.
    #[arg(long, value_name = "PERCENT", default_value = "10%")]
    extra_share: Percent,
    /// Amount of data that is fetched before a sequential reader asks for it: a percentage of the full window, or
    /// `spare`. `spare` leaves other traffic alone [default: as in the default dataset, where it is 100% unless set].
    #[arg(long)]
    prefetch: Option<Prefetch>,
    /// Rule that selects the awake node that is asked first [default: as in the default dataset, or balanced].
    #[arg(long, value_parser = read_rules())]
    read_rule: Option<ReadRule>,
    /// Logs that must have a synced write in place of copies on nodes that sleep [default: 2, or as many as --min-copies].
    #[arg(long, value_name = "N")]
    log_copies: Option<u32>,
    /// Time for which `ebb fs rm` keeps what it removes, such as 7d. Programs on a mount remove at once.
    #[arg(long, value_name = "TIME", default_value = "off")]
    trash: KeptFor,
    /// Weight of the dataset's share of the nodes. While several datasets with a share are read, each node serves only one
    /// of them, and the number of nodes follows the weights. 0 means none: the dataset is read from all nodes.
    #[arg(long, value_name = "WEIGHT", default_value_t = 0)]
    share: u32,
    /// Priority of the share: datasets with a higher one get all nodes that they can use. The others keep the nodes that
    /// hold one copy of their data.
    #[arg(long, value_name = "N", default_value_t = 0)]
    priority: u32,
    /// How cold data are kept: `copies`; `raid5`, two copies and a check metablock for eight; `raid6`, which is 8+2; or K+M,
    /// M check metablocks for K. Data are written in --replicas copies, which go when the data are encoded.
    #[arg(long, value_name = "SCHEME", default_value = "copies")]
    redundancy: Redundancy,
    #[command(flatten)]
    encoding: EncodingArgs,
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// Any path in the dataset.
    path: EbbPath,
    /// Limit of the bytes in all files of the dataset, with one copy counted; 0 means no limit.
    #[arg(long)]
    quota: Option<ByteSize>,
    /// Limit of inodes; 0 means no limit.
    #[arg(long)]
    inodes: Option<u64>,
    /// Rule that places the replicas. Only for a dataset without files: they keep the layout that they were made with.
    #[arg(long, value_enum)]
    layout: Option<LayoutArg>,
    /// Nodes that the data lie on: see `ebb dataset create`.
    #[arg(long, requires = "layout", value_parser = node_classes())]
    on: Option<NodeClass>,
    /// Primaries of the layout: see `ebb dataset create`.
    #[arg(long, requires = "layout")]
    primaries: Option<u32>,
    /// Nodes in a gear of the layout: see `ebb dataset create`.
    #[arg(long, requires = "layout")]
    gear_size: Option<u32>,
    /// Number of copies, on distinct nodes. Copies of existing files are made or removed in the background.
    #[arg(long, value_name = "N")]
    replicas: Option<u32>,
    /// Copies that must take a write before it is acknowledged, from 1 to the number of copies. Files that are being
    /// written keep the earlier value.
    #[arg(long, value_name = "N")]
    min_copies: Option<u32>,
    /// Share of the unused capacity that extra copies of frequently read data may take, in percent, at most 90. With 0,
    /// existing extra copies are removed.
    #[arg(long, value_name = "PERCENT")]
    extra_share: Option<Percent>,
    /// Amount of data that is fetched before a sequential reader asks for it: a percentage of the full window, or
    /// `spare`. Open files keep the earlier value.
    #[arg(long)]
    prefetch: Option<Prefetch>,
    /// Rule that selects the awake node that is asked first. Open files keep the earlier value.
    #[arg(long, value_parser = read_rules())]
    read_rule: Option<ReadRule>,
    /// Logs that must have a synced write in place of copies on nodes that sleep. With 2, data survive the loss of any one
    /// node before the sleepers have them.
    #[arg(long, value_name = "N")]
    log_copies: Option<u32>,
    /// Time for which `ebb fs rm` keeps what it removes, such as 7d, or `off`. With `off`, the present contents of the
    /// trash stay until it is emptied.
    #[arg(long, value_name = "TIME")]
    trash: Option<KeptFor>,
    /// Weight of the dataset's share of the nodes, while several datasets with a share are read: see `ebb dataset create`.
    /// 0 means none. Readers follow within seconds.
    #[arg(long, value_name = "WEIGHT")]
    share: Option<u32>,
    /// Priority of the share: see `ebb dataset create`. Without a share there is none.
    #[arg(long, value_name = "N")]
    priority: Option<u32>,
    /// How cold data are kept from now on: see `ebb dataset create`. With `copies`, what is encoded leads back to copies, in
    /// the background.
    #[arg(long, value_name = "SCHEME")]
    redundancy: Option<Redundancy>,
    #[command(flatten)]
    encoding: EncodingArgs,
}

#[derive(Debug, Args)]
pub struct SetActiveArgs {
    /// Any path in the dataset.
    path: EbbPath,
    /// Number of active nodes; 0 means as many as the power allows.
    nodes: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum LayoutArg {
    /// Rack-aware random placement, like the default of HDFS.
    Random,
    /// Round-robin over all disks.
    Striped,
    /// On a chain: one copy on the primaries, the others spread evenly over the other nodes.
    Simple,
    /// On a chain: node i of the chain, behind the primaries, stores 1/i. So any first nodes can do equal parts of a
    /// read.
    EqualWork,
    /// Equal work in gears that are switched on as a whole, with recovery groups.
    Geared,
    /// Copies far apart in the order in which nodes wake.
    PowerBalanced,
    /// On localized storage nodes: first copies on the writer's, over all its disks in turn, and second ones in the other half.
    Lsn,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReplicationArg {
    /// Each replica forwards the write to the next.
    Pipeline,
    /// The writer sends the write to all replicas.
    SingleSource,
}

fn node_classes() -> impl TypedValueParser<Value = NodeClass> {
    one_of(NodeClass::ALL.map(NodeClass::name))
}

fn read_rules() -> impl TypedValueParser<Value = ReadRule> {
    one_of(ReadRule::ALL.map(ReadRule::name))
}

/// Does it.
pub async fn run(context: &Context, command: DatasetCommand) -> Result<()> {
    let cluster = context.cluster()?;
    let client = admin::operator(&cluster).await?;
    let done = match command {
        DatasetCommand::Create(args) => create(context, &client, args).await,
        DatasetCommand::Set(args) => set(context, &client, args).await,
        DatasetCommand::SetActive(args) => set_active(context, &client, &args).await,
        DatasetCommand::Show { path } => show::show(context, &cluster, &client, &path).await,
        DatasetCommand::List => list(context, &client).await,
        DatasetCommand::Rm { path, recursive } => remove::remove(context, &client, &path, recursive).await,
    };
    client.disconnect().await?;
    done
}

async fn create(context: &Context, client: &ebb_client::Client, args: CreateArgs) -> Result<()> {
    let is_lsn = args.layout == LayoutArg::Lsn;
    let usual_metablock = if is_lsn { LSN_METABLOCK } else { METABLOCK_SIZE_DEFAULT };
    let metablock_size = args.metablock.map_or(usual_metablock, |size| size.0);
    let geometry = Geometry { block_size: args.block.0, metablock_size };
    if let Err(broken) = geometry.check() {
        bail!(Invalid, "{broken}");
    }
    let class = class_of(args.layout, args.on)?;
    let nodes = client.nodes().iter().filter(|node| is_of(node, class)).count();
    let replicas = args.replicas.unwrap_or(if is_lsn { 2 } else { 3 });
    if replicas == 0 || replicas as usize > nodes {
        let of_class = if class == NodeClass::Any { String::new() } else { format!(" of the class {class}") };
        bail!(Invalid, "--replicas {replicas}: between 1 and the number of nodes{of_class} ({nodes})");
    }
    check_min_copies(args.min_copies, replicas)?;
    let primaries = args.primaries.unwrap_or(0);
    check_chain((args.layout, args.primaries, args.gear_size), replicas, nodes)?;
    let Ok(path) = String::from_utf8(args.path.as_bytes().to_vec()) else {
        bail!(Invalid, "{}: the path of a dataset must be UTF-8, for it stands in lists and settings", args.path);
    };
    let code = args.encoding.by_domain(args.redundancy, Domain::Host);
    let dataset = pb::Dataset {
        id: 0,
        path,
        root_inode: 0,
        layout: value_name(args.layout),
        replicas,
        block_size: geometry.block_size,
        metablock_size: geometry.metablock_size,
        replication: value_name(args.replication),
        quota_bytes: args.quota.0,
        quota_inodes: args.inodes,
        primaries,
        gear_size: args.gear_size.unwrap_or(0),
        extra_share_percent: args.extra_share.0,
        prefetch: args.prefetch.map_or(0, Prefetch::to_raw),
        read_rule: args.read_rule.map_or(0, ReadRule::to_raw),
        node_class: args.on.map_or(0, NodeClass::to_raw),
        min_copies: args.min_copies.unwrap_or(0),
        trash_seconds: args.trash.0,
        log_copies: args.log_copies.unwrap_or(0),
        share: args.share,
        priority: args.priority,
        raid_copies: code.copies,
        raid_slots: code.slots,
        raid_rows: code.rows,
        raid_domain: code.domain.to_raw(),
        encode: args.encoding.encode.map_or(0, Encode::to_raw),
        delay_ms: args.encoding.delay.map(delay_ms).transpose()?.unwrap_or(0),
        ..Default::default()
    };
    let survive_rack = args.encoding.survive.is_some();
    let accept_node_loss = args.encoding.accept.is_some();
    let create = pb::meta_op::CreateDataset { dataset: Some(dataset), survive_rack, accept_node_loss };
    let op = pb::meta_op::Op::CreateDataset(create);
    let reply = client.meta(&admin::credentials(), op).await?;
    let dataset = reply.dataset.unwrap_or_default();
    context.output.answer(&format!("dataset {} made", dataset.path), &to_json(&dataset));
    warn_of_one(context, &dataset);
    warn_of_redundancy(context, client, &dataset);
    Ok(())
}

/// Refused here, where the option's name is known.
fn check_min_copies(min: Option<u32>, replicas: u32) -> Result<()> {
    if let Some(min) = min.filter(|min| *min == 0 || *min > replicas) {
        bail!(
            Invalid,
            "--min-copies {min}: a write is acknowledged when so many of the {replicas} copies have it, so give a number between 1 and \
             {replicas}"
        );
    }
    Ok(())
}

/// The operator may want it so, and has to know.
fn warn_of_one(context: &Context, dataset: &pb::Dataset) {
    if may_lose_by_one_failure(dataset.min_copies, dataset.replicas) {
        context.output.warn(&format!(
            "warning: with --min-copies 1, writes to {} go on with one copy while other nodes are missing: a single failure then loses \
             what fsync has acknowledged. `ebb dataset set {} --min-copies 2` ends that",
            dataset.path, dataset.path
        ));
    }
}

/// The nodes that the data lie on.
///
/// `Invalid` for the layout lsn on nodes that are no localized storage nodes.
fn class_of(layout: LayoutArg, on: Option<NodeClass>) -> Result<NodeClass> {
    match (layout, on) {
        (LayoutArg::Lsn, None | Some(NodeClass::Lsn)) => Ok(NodeClass::Lsn),
        (LayoutArg::Lsn, Some(class)) => bail!(
            Invalid,
            "--layout lsn places on localized storage nodes: leave --on {class} out, or give another layout, such as random"
        ),
        (_, on) => Ok(on.unwrap_or_default()),
    }
}

/// Whether a node has volumes, and is of this class.
fn is_of(node: &pb::Node, class: NodeClass) -> bool {
    !node.volumes.is_empty() && class.has(!node.serves_hosts.is_empty())
}

/// Missing arguments are asked for by name. The master, which knows the nodes, refuses impossible ones.
fn check_chain(
    (layout, primaries, gear_size): (LayoutArg, Option<u32>, Option<u32>),
    replicas: u32,
    nodes: usize,
) -> Result<()> {
    let has_primaries = matches!(layout, LayoutArg::Simple | LayoutArg::EqualWork | LayoutArg::Geared);
    let name = value_name(layout);
    if has_primaries && primaries.is_none() {
        let most = (nodes / replicas as usize).max(1);
        bail!(
            Invalid,
            "--layout {name} needs --primaries: 1 to {most} on {nodes} nodes with {}",
            counted(replicas.into(), "copy")
        );
    }
    if layout == LayoutArg::Geared && gear_size.is_none() {
        bail!(Invalid, "--layout geared needs --gear-size: a divisor of --primaries and of the nodes behind them");
    }
    Ok(())
}

fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The dataset that a path lies in.
/// The dataset of a path.
pub async fn find(client: &ebb_client::Client, path: &EbbPath) -> Result<pb::Dataset> {
    let attr = client.resolve(&admin::credentials(), path.as_bytes()).await;
    let attr = attr.map_err(|error| explain(error, path, |inode| client.kept_path(inode)))?;
    let all = datasets(client).await?;
    let Some(dataset) = all.into_iter().find(|dataset| dataset.id == attr.storage.dataset.raw()) else {
        bail!(Internal, "{path} names dataset {}, which is not listed", attr.storage.dataset.raw());
    };
    Ok(dataset)
}

async fn set(context: &Context, client: &ebb_client::Client, args: SetArgs) -> Result<()> {
    let placement = args.layout.map(|layout| pb::meta_op::Placement {
        layout: value_name(layout),
        primaries: args.primaries.unwrap_or(0),
        gear_size: args.gear_size.unwrap_or(0),
        chain: Vec::new(),
        node_class: args.on.map_or(0, NodeClass::to_raw),
    });
    if let Some(layout) = args.layout {
        class_of(layout, args.on)?;
    }
    let set = pb::meta_op::SetDataset {
        dataset: 0,
        quota_bytes: args.quota.map(|quota| quota.0),
        quota_inodes: args.inodes,
        active: None,
        extra_share_percent: args.extra_share.map(|share| share.0),
        prefetch: args.prefetch.map(Prefetch::to_raw),
        read_rule: args.read_rule.map(ReadRule::to_raw),
        min_copies: args.min_copies,
        replicas: args.replicas,
        trash_seconds: args.trash.map(|kept| kept.0),
        log_copies: args.log_copies,
        share: args.share,
        priority: args.priority,
        placement,
        raid: args.redundancy.map(|redundancy| redundancy.to_raw().into()),
        encode: args.encoding.encode.map(Encode::to_raw),
        delay_ms: args.encoding.delay.map(delay_ms).transpose()?,
        survive_rack: args.encoding.survive.is_some(),
        accept_node_loss: args.encoding.accept.is_some(),
    };
    if set == pb::meta_op::SetDataset::default() {
        bail!(
            Invalid,
            "nothing to set: give --quota, --inodes, --layout, --replicas, --min-copies, --log-copies, --extra-share, --prefetch, --read-rule, --share, --priority, --trash, --redundancy, --encode, --delay, or several of them"
        );
    }
    let dataset = find(client, &args.path).await?;
    let replicas = args.replicas.unwrap_or(dataset.replicas);
    check_min_copies(args.min_copies, replicas)?;
    if let Some(layout) = args.layout {
        check_chain((layout, args.primaries, args.gear_size), replicas, client.nodes().len())?;
    }
    let raid = args.redundancy.map(|redundancy| args.encoding.by_domain(redundancy, dataset.raid_code().domain).into());
    let set = pb::meta_op::SetDataset { dataset: dataset.id, raid, ..set };
    client.meta(&admin::credentials(), pb::meta_op::Op::SetDataset(set)).await?;
    let dataset = find(client, &args.path).await?;
    if context.output.json() {
        context.output.print_json(&to_json(&dataset));
    } else {
        context.output.table(&table(std::slice::from_ref(&dataset)));
        context.output.say(&settings(&dataset));
    }
    if args.min_copies.is_some() {
        warn_of_one(context, &dataset);
    }
    if args.redundancy.is_some() {
        warn_of_redundancy(context, client, &dataset);
    }
    Ok(())
}

async fn set_active(context: &Context, client: &ebb_client::Client, args: &SetActiveArgs) -> Result<()> {
    let dataset = find(client, &args.path).await?;
    let set = pb::meta_op::SetDataset { dataset: dataset.id, active: Some(args.nodes), ..Default::default() };
    let reply = client.meta(&admin::credentials(), pb::meta_op::Op::SetDataset(set)).await?;
    if context.output.json() {
        context.output.print_json(&to_json(&reply.dataset.unwrap_or_default()));
    } else if args.nodes == 0 {
        context.output.say(&format!("dataset {}: as many active nodes as the power allows", dataset.path));
    } else {
        context.output.say(&format!("dataset {}: {} active nodes", dataset.path, args.nodes));
    }
    Ok(())
}

async fn list(context: &Context, client: &ebb_client::Client) -> Result<()> {
    let all = datasets(client).await?;
    if context.output.json() {
        context.output.print_json(&json!(all.iter().map(to_json).collect::<Vec<_>>()));
    } else {
        context.output.table(&table(&all));
        shares(&all, &client.nodes()).iter().for_each(|line| context.output.say(line));
    }
    Ok(())
}

/// The settings and the use of all datasets.
pub async fn datasets(client: &ebb_client::Client) -> Result<Vec<pb::Dataset>> {
    let op = pb::meta_op::Op::ListDatasets(pb::meta_op::ListDatasets::default());
    Ok(client.meta(&admin::credentials(), op).await?.datasets)
}

/// The same keys as `create`'s options.
fn to_json(dataset: &pb::Dataset) -> serde_json::Value {
    json!({
        "path": dataset.path, "block": ByteSize(dataset.block_size).to_string(),
        "metablock": ByteSize(dataset.metablock_size).to_string(), "replicas": dataset.replicas,
        "layout": dataset.layout, "primaries": dataset.primaries, "gear_size": dataset.gear_size,
        "active": dataset.active, "replication": dataset.replication,
        "block_size": dataset.block_size, "metablock_size": dataset.metablock_size,
        "root_inode": InodeId::new(dataset.root_inode).raw(),
        "quota": dataset.quota_bytes, "inodes": dataset.quota_inodes,
        "extra_share": Percent(dataset.extra_share_percent).to_string(),
        "prefetch": Prefetch::from_raw(dataset.prefetch).unwrap_or_default().to_string(),
        "on": shown_class(dataset),
        "read_rule": ReadRule::from_raw(dataset.read_rule).unwrap_or_default().to_string(),
        "min_copies": min_copies(dataset.min_copies, dataset.replicas),
        "log_copies": log_copies(dataset.log_copies, dataset.min_copies),
        "share": dataset.share, "priority": dataset.priority,
        "redundancy": dataset.redundancy().to_string(), "domain": dataset.raid_code().domain.name(),
        "encode": Encode::from_raw(dataset.encode).unwrap_or_default().to_string(), "delay_ms": dataset.delay_ms,
        "trash_s": dataset.trash_seconds, "used_bytes": dataset.used_bytes, "used_inodes": dataset.used_inodes,
        "kept_bytes": dataset.kept_bytes, "past_inodes": dataset.past_inodes,
    })
}

/// The nodes that a dataset's data lie on, by name.
fn shown_class(dataset: &pb::Dataset) -> &'static str {
    let usual = if dataset.layout == "lsn" { NodeClass::Lsn } else { NodeClass::Any };
    Some(dataset.node_class).filter(|raw| *raw > 0).and_then(NodeClass::from_raw).unwrap_or(usual).name()
}

/// The settings that the table has no column for.
fn settings(dataset: &pb::Dataset) -> String {
    let active = match (dataset.primaries, dataset.active) {
        (0, _) => String::new(),
        (_, 0) => "; as many active nodes as the power allows".to_owned(),
        (_, active) => format!("; {} set by an operator", counted(active.into(), "active node")),
    };
    format!(
        "nodes {}; prefetch {}; read rule {}; writes need {} of {}, or {} logs while members sleep; extra copies may take {}; trash {}; {}; {}{active}",
        shown_class(dataset),
        Prefetch::from_raw(dataset.prefetch).unwrap_or_default(),
        ReadRule::from_raw(dataset.read_rule).unwrap_or_default(),
        min_copies(dataset.min_copies, dataset.replicas),
        if dataset.replicas == 1 { "1 copy".to_owned() } else { format!("{} copies", dataset.replicas) },
        log_copies(dataset.log_copies, dataset.min_copies),
        Percent(dataset.extra_share_percent),
        KeptFor(dataset.trash_seconds),
        share(dataset),
        cold(dataset),
    )
}

/// The datasets with a share, and the nodes that serve them alone.
fn shares(datasets: &[pb::Dataset], nodes: &[pb::Node]) -> Vec<String> {
    let line = |dataset: &pb::Dataset| {
        let own =
            nodes.iter().filter(|node| node.serves == Some(dataset.id)).map(|node| NodeId::new(node.id).to_string());
        let served_by = match own.collect::<Vec<_>>().join(" ") {
            nodes if nodes.is_empty() => "no nodes of its own now".to_owned(),
            nodes => format!("{nodes} serve it alone"),
        };
        format!("{}: {}; {served_by}", dataset.path, share(dataset))
    };
    datasets.iter().filter(|dataset| dataset.share > 0).map(line).collect()
}

/// Its claim to nodes of its own, in words.
fn share(dataset: &pb::Dataset) -> String {
    match (dataset.share, dataset.priority) {
        (0, _) => "no share of its own".to_owned(),
        (share, 0) => format!("share {share}"),
        (share, priority) => format!("share {share}, priority {priority}"),
    }
}

fn table(datasets: &[pb::Dataset]) -> Table {
    let mut table =
        Table::new(&["PATH", "LAYOUT", "REPLICAS", "BLOCK", "METABLOCK", "REPLICATION", "USED", "QUOTA", "INODES"]);
    let limit = |limit: u64, shown: String| if limit == 0 { "-".to_owned() } else { shown };
    for dataset in datasets {
        table.row(vec![
            dataset.path.clone(),
            dataset.layout.clone(),
            dataset.replicas.to_string(),
            ByteSize(dataset.block_size).to_string(),
            ByteSize(dataset.metablock_size).to_string(),
            dataset.replication.clone(),
            human_bytes(dataset.used_bytes),
            limit(dataset.quota_bytes, human_bytes(dataset.quota_bytes)),
            match dataset.quota_inodes {
                0 => dataset.used_inodes.to_string(),
                quota => format!("{} of {quota}", dataset.used_inodes),
            },
        ]);
    }
    table
}
