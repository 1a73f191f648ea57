//! `ebb plan layout`.

mod sharing;

use clap::{Args, ValueEnum};
use ebb_cli::Context;
use ebb_plan::layout::placement::{MAX_COPIES, Placement};
use ebb_plan::layout::sweep::{self, Greedy, Placed, Point};
use ebb_plan::layout::{Ask, Layout, Setting};
use ebb_plan::{Cell, Table, plots};
use ebb_types::{Result, bail};
use serde_json::{Value, json};

use super::emit::{Answer, EmitArgs};
use super::number::whole;
use super::parallel;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct LayoutArgs {
    /// Number of nodes.
    #[arg(long, value_parser = whole::<u32>(1, 100_000))]
    nodes: u32,
    /// Nodes that hold the first copy and are always on.
    #[arg(long, default_value_t = 1, value_parser = whole::<u32>(1, 100_000))]
    primaries: u32,
    /// Copies of each block.
    #[arg(long, default_value_t = 3, value_parser = whole::<u32>(1, 100_000))]
    replicas: u32,
    /// Number of blocks in the dataset.
    #[arg(long, default_value_t = 10_000, value_parser = whole::<u64>(1, 1_000_000_000_000_000))]
    blocks: u64,
    /// Layouts to compare, comma-separated: simple, equal-work, geared, random or power-balanced.
    #[arg(long, value_delimiter = ',', default_value = "equal-work")]
    layout: Vec<Layout>,
    /// Nodes in a gear, for the geared layout.
    #[arg(long, default_value_t = 1, value_parser = whole::<u32>(1, 100_000))]
    gear_size: u32,
    /// Place real blocks, and assign every block of a full read both optimally and greedily.
    #[arg(long)]
    placed: bool,
    /// Number of primaries that have failed; implies --placed.
    #[arg(long, default_value_t = 0, value_parser = whole::<u32>(0, 100_000))]
    failed: u32,
    /// Seed of the random choices of a layout.
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>(0, u64::MAX))]
    seed: u64,
    /// Figure that --svg draws.
    #[arg(long, value_enum, default_value_t = Drawing::Throughput)]
    figure: Drawing,
    #[command(flatten)]
    sharing: sharing::SharingArgs,
    #[command(flatten)]
    emit: EmitArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Drawing {
    /// Speed of a full read against active nodes.
    Throughput,
    /// Increase of the read time over that with equal parts.
    ReadTime,
    /// Blocks that each node stores.
    Blocks,
}

/// All results for one layout.
struct Found {
    setting: Setting,
    fluid: Vec<Point>,
    /// The optimal assignment, for the requested failures.
    placed: Option<Vec<Placed>>,
}

/// Answers for each layout. With `--datasets` it shows the sharing of nodes.
pub fn run(context: &Context, args: &LayoutArgs) -> Result<()> {
    if args.sharing.asked() {
        return sharing::run(context, &args.sharing, args, &args.emit);
    }
    let settings: Result<Vec<Setting>> = args.layout.iter().map(|layout| setting(args, *layout)).collect();
    let found = parallel::map(context.output, "layouts", &settings?, |setting| find(args, *setting))?;
    let answer = Answer {
        notes: found.iter().map(|one| summary(args, one)).collect(),
        tables: found.iter().map(|one| table(args, one)).collect(),
        json: match found.as_slice() {
            [one] => json(args, one),
            several => Value::Array(several.iter().map(|one| json(args, one)).collect()),
        },
        figure: args.emit.wants_figure().then(|| figure(args, &found)),
    };
    args.emit.emit(context.output, &answer)
}

fn setting(args: &LayoutArgs, layout: Layout) -> Result<Setting> {
    let setting = Setting::new(Ask {
        layout,
        nodes: args.nodes,
        primaries: args.primaries,
        replicas: args.replicas,
        blocks: args.blocks,
        gear_size: args.gear_size,
    })?;
    let copies = args.blocks.saturating_mul(args.replicas.into());
    if wants_placed(args) && copies > MAX_COPIES {
        bail!(
            Invalid,
            "{copies} copies are more than can be laid one by one; the nearest possible number of blocks is {}",
            MAX_COPIES / u64::from(args.replicas)
        );
    }
    if wants_placed(args) && args.nodes > MAX_PLACED_NODES {
        bail!(
            Invalid,
            "an assignment on {} nodes takes too long; the nearest possible number of nodes is {MAX_PLACED_NODES}",
            args.nodes
        );
    }
    let most = setting.primaries().saturating_sub(1);
    if args.failed > most {
        bail!(
            Invalid,
            "{} of {} primaries of the {layout} layout cannot fail and leave one; the nearest possible number is {most}",
            args.failed,
            setting.primaries()
        );
    }
    Ok(setting)
}

/// The assignment keeps a square of numbers, one for each pair of nodes.
const MAX_PLACED_NODES: u32 = 2_000;

const fn wants_placed(args: &LayoutArgs) -> bool {
    args.placed || args.failed > 0
}

fn find(args: &LayoutArgs, setting: Setting) -> Result<Found> {
    let placed = wants_placed(args).then(|| {
        let placement = Placement::of(&setting, args.seed);
        sweep::placed(&placement, &sweep::order(&setting, args.failed), Greedy::Too, |_| {})
    });
    Ok(Found { setting, fluid: sweep::fluid(&setting), placed })
}

fn summary(args: &LayoutArgs, found: &Found) -> String {
    let setting = &found.setting;
    let after = setting.min_active_after_failure();
    let after = after.map_or_else(String::new, |nodes| format!(", {nodes} after a primary has failed"));
    let after = if setting.primaries() > 0 { after } else { String::new() };
    format!(
        "{}: {} nodes, {} copies of {} blocks; spread {}; everything is readable from {} active nodes on{after}.",
        setting.layout(),
        setting.nodes(),
        setting.replicas(),
        args.blocks,
        setting.spread(),
        setting.min_active(),
    )
}

fn table(args: &LayoutArgs, found: &Found) -> Table {
    let columns = [
        ("active", "active"),
        ("blocks", "blocks on it"),
        ("accessible_fraction", "accessible"),
        ("throughput", "throughput"),
        ("read_time_increase", "read time"),
        ("busiest", "busiest"),
        ("greedy_busiest", "busiest, greedy"),
    ];
    let title = match args.failed {
        0 => format!("{}: reading with the first nodes active (throughput in servers' worth)", found.setting.layout()),
        1 => format!("{}: one primary failed", found.setting.layout()),
        failed => format!("{}: {failed} primaries failed", found.setting.layout()),
    };
    let mut table = Table::new(title, &columns);
    let stored = found.setting.blocks_per_node();
    for (index, point) in found.fluid.iter().enumerate() {
        let placed = found.placed.as_ref().and_then(|points| points.get(index));
        if found.placed.is_some() && placed.is_none() {
            continue;
        }
        // With failures only the laid-out blocks show the readable share.
        let (accessible, speed) = match placed {
            Some(placed) => (1.0 - placed.unreadable as f64 / args.blocks as f64, placed.throughput),
            None => (point.accessible_fraction, point.throughput),
        };
        table.row(vec![
            Cell::Count(point.active.into()),
            if args.failed == 0 { Cell::Count(stored[index]) } else { Cell::Missing },
            Cell::Share(accessible, 1),
            Cell::number(speed, 2),
            Cell::share(speed.map(|speed| f64::from(point.active) / speed - 1.0).map(rounded), 1),
            placed.map_or(Cell::Missing, |placed| Cell::Count(placed.busiest)),
            placed.and_then(|placed| placed.greedy_busiest).map_or(Cell::Missing, Cell::Count),
        ]);
    }
    table
}

/// Rounds, without a minus before a zero.
fn rounded(share: f64) -> f64 {
    (share * 1e9).round() / 1e9 + 0.0
}

fn json(args: &LayoutArgs, found: &Found) -> Value {
    let setting = &found.setting;
    json!({
        "layout": setting.layout().name(),
        "nodes": setting.nodes(),
        "primaries": if setting.primaries() > 0 { Some(setting.primaries()) } else { None },
        "replicas": setting.replicas(),
        "blocks": setting.blocks(),
        "gear_size": setting.grid().map(|grid| grid.gear_size()),
        "gears": setting.grid().map(|grid| grid.gears()),
        "recovery_group": setting.grid().map(|grid| grid.recovery_group()),
        "failed": args.failed,
        "spread": setting.spread(),
        "min_active": setting.min_active(),
        "min_active_after_failure": setting.min_active_after_failure(),
        "blocks_per_node": setting.blocks_per_node(),
        "active": table(args, found).json(),
    })
}

fn figure(args: &LayoutArgs, found: &[Found]) -> ebb_plan::Figure {
    let settings: Vec<Setting> = found.iter().map(|one| one.setting).collect();
    let curves: Vec<(Setting, Vec<Point>)> = found.iter().map(|one| (one.setting, one.fluid.clone())).collect();
    match (args.figure, found) {
        (Drawing::Blocks, _) => plots::blocks_per_node(&settings),
        (Drawing::ReadTime, _) => plots::read_time(&curves),
        (Drawing::Throughput, [Found { setting, placed: Some(placed), .. }]) => {
            let mut failures = vec![(args.failed, placed.clone())];
            if args.failed > 0 {
                let placement = Placement::of(setting, args.seed);
                failures.insert(0, (0, sweep::placed(&placement, &sweep::order(setting, 0), Greedy::No, |_| {})));
            }
            plots::failures(setting, &failures)
        }
        (Drawing::Throughput, _) => plots::throughput(&curves),
    }
}

impl LayoutArgs {
    /// Nodes, primaries and copies, for sharing.
    const fn shape(&self) -> (u32, u32, u32) {
        (self.nodes, self.primaries, self.replicas)
    }
}
