//! `ebb plan power`.

mod signal;

use clap::{Args, ValueEnum};
use ebb_cli::Context;
use ebb_cli::units::ByteSize;
use ebb_plan::layout::fluid::inaccessible;
use ebb_plan::power::blink::{self, Schedule, Stagger};
use ebb_plan::power::month::{Month, Plant, Policy, month};
use ebb_plan::power::{Machines, equal_work_capacity, migration};
use ebb_plan::raid::Scheme;
use ebb_plan::{Cell, Figure, Table, plots};
use ebb_types::{Result, bail, err};
use serde_json::json;

use super::emit::{Answer, EmitArgs};
use super::number::{real, whole};

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct PowerArgs {
    /// Number of nodes that may sleep.
    #[arg(long, value_parser = whole::<u32>(1, 100_000))]
    nodes: u32,
    /// Copies of each block, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "3", value_parser = whole::<u32>(1, 100_000))]
    replicas: Vec<u32>,
    /// Numbers of inactive nodes, comma-separated [default: from none to all nodes, in tenths].
    #[arg(long, value_delimiter = ',', value_parser = whole::<u32>(0, 100_000))]
    inactive: Vec<u32>,
    /// Power levels in percent of the draw with all nodes active, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "10,20,30,40,50,60,70,80,90,100", value_parser = real(0.0, 100.0))]
    percent: Vec<f64>,
    /// Draw of an active node in watts.
    #[arg(long, default_value_t = 25.0, value_parser = real(0.001, 1e6))]
    node_watts: f64,
    /// Draw of a sleeping node in watts.
    #[arg(long, default_value_t = 1.0, value_parser = real(0.0, 1e6))]
    sleep_watts: f64,
    /// Blink interval in seconds.
    #[arg(long, default_value_t = 60.0, value_parser = real(0.001, 86_400.0))]
    interval: f64,
    /// Times at which nodes wake: the paper's stagger, or around the circle.
    #[arg(long, value_enum, default_value_t = StaggerKind::Circular)]
    stagger: StaggerKind,
    /// Number of primaries of an equal-work chain.
    #[arg(long, default_value_t = 2, value_parser = whole::<u32>(1, 100_000))]
    primaries: u32,
    /// Capacity of a node.
    #[arg(long, default_value = "1TB")]
    node_bytes: ByteSize,
    /// Size of one copy of all data [default: half of what the nodes can hold].
    #[arg(long)]
    data_bytes: Option<ByteSize>,
    #[command(flatten)]
    signal: signal::SignalArgs,
    /// Figure that --svg draws.
    #[arg(long, value_enum, default_value_t = Drawing::Inaccessible)]
    figure: Drawing,
    #[command(flatten)]
    emit: EmitArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum StaggerKind {
    /// Starts from 0 to `t - t_active`, as in the paper; no node wraps around.
    Literal,
    /// Starts at equal distances around the interval.
    Circular,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Drawing {
    /// Blocks out of reach under random placement.
    Inaccessible,
    /// Copies that keep every block in reach.
    Replicas,
    /// Mean wait of a read.
    Latency,
    /// Work of each policy under the signal; needs --signal.
    Month,
}

/// All tables.
pub fn run(context: &Context, args: &PowerArgs) -> Result<()> {
    let machines = Machines::new(args.nodes, args.node_watts, args.sleep_watts)?;
    check(args)?;
    let inaccessible = inaccessible_table(args);
    let copies = copies_table(args, &machines);
    let latency = latency_table(args, &machines);
    let capacity = capacity_table(args);
    let months = months(args, &machines)?;
    let months_table = months.as_ref().map(|(name, months)| months_table(name, months));
    let moves = moves_table(args, &machines);
    let first = |value: &[u32]| value.first().copied().unwrap_or_default();
    let (copy, off) = (first(&args.replicas), args.inactive.first().copied());
    let mut json = json!({
        "nodes": args.nodes,
        "replicas": copy,
        "inactive": off,
        "inaccessible_fraction": off.map(|off| fraction(args, copy, off)),
        "inaccessible": inaccessible.json(),
        "replicas_needed": copies.json(),
        "latency": latency.json(),
        "capacity": capacity.json(),
        "migration": moves.json(),
    });
    let mut tables = vec![inaccessible, copies, latency, capacity, moves];
    if let Some(table) = months_table {
        json["month"] = table.json();
        tables.push(table);
    }
    let figure = args.emit.wants_figure().then(|| figure(args, &machines, months.as_ref())).transpose()?;
    args.emit.emit(context.output, &Answer { notes: Vec::new(), tables, json, figure })
}

fn check(args: &PowerArgs) -> Result<()> {
    args.signal.check(args.interval)?;
    for copies in &args.replicas {
        ebb_plan::layout::check_replicas(args.nodes, *copies)?;
    }
    if let Some(off) = args.inactive.iter().find(|off| **off > args.nodes) {
        bail!(
            Invalid,
            "{off} of {} nodes cannot be inactive; the nearest possible number is {}",
            args.nodes,
            args.nodes
        );
    }
    if let Some(percent) = args.percent.iter().find(|percent| !(0.0..=100.0).contains(*percent)) {
        let nearest = percent.clamp(0.0, 100.0);
        bail!(Invalid, "{percent} % is no share of the full power; the nearest possible value is {nearest}");
    }
    if args.primaries == 0 || args.primaries > args.nodes {
        let nearest = args.primaries.clamp(1, args.nodes);
        bail!(
            Invalid,
            "{} primaries of {} nodes; the nearest possible number is {nearest}",
            args.primaries,
            args.nodes
        );
    }
    if !(args.interval.is_finite() && args.interval > 0.0) {
        bail!(Invalid, "a blink interval of {} s; the nearest possible value is above 0", args.interval);
    }
    Ok(())
}

fn fraction(args: &PowerArgs, copies: u32, off: u32) -> f64 {
    inaccessible(args.nodes.into(), off.into(), copies.into())
}

fn inaccessible_table(args: &PowerArgs) -> Table {
    let columns = [
        ("replicas", "copies"),
        ("inactive", "inactive"),
        ("inactive_share", "of all"),
        ("inaccessible_fraction", "inaccessible"),
    ];
    let mut table = Table::new("Blocks out of reach under random placement (BlinkFS, Fig. 2)", &columns);
    let tenths = || (0..=10).map(|tenth| (u64::from(args.nodes) * tenth / 10) as u32).collect();
    let inactive: Vec<u32> = if args.inactive.is_empty() { tenths() } else { args.inactive.clone() };
    for copies in &args.replicas {
        for off in &inactive {
            table.row(vec![
                Cell::Count((*copies).into()),
                Cell::Count((*off).into()),
                Cell::Share(f64::from(*off) / f64::from(args.nodes), 0),
                Cell::Share(fraction(args, *copies, *off), 4),
            ]);
        }
    }
    table
}

fn watts(machines: &Machines, percent: f64) -> f64 {
    machines.full_watts() * percent / 100.0
}

fn copies_table(args: &PowerArgs, machines: &Machines) -> Table {
    let columns = [
        ("percent", "power %"),
        ("watts", "watts"),
        ("awake_share", "awake"),
        ("exact", "exact"),
        ("paper", "paper"),
        ("unavailable_fraction", "unavailable at best"),
    ];
    let mut table = Table::new("Copies that keep every block always in reach (BlinkFS, Sec. 4.2)", &columns);
    for percent in &args.percent {
        let watts = watts(machines, *percent);
        let show = |copies: Option<u64>| copies.map_or(Cell::Missing, Cell::Count);
        table.row(vec![
            Cell::Number(*percent, 0),
            Cell::Number(watts, 0),
            Cell::Share(machines.awake_share(watts), 1),
            show(blink::replicas_exact(machines, watts)),
            show(blink::replicas_paper(machines, watts)),
            Cell::Share(blink::least_unavailable(machines, watts), 1),
        ]);
    }
    table
}

fn latency_table(args: &PowerArgs, machines: &Machines) -> Table {
    let columns = [
        ("percent", "power %"),
        ("replicas", "copies"),
        ("unavailable_fraction", "asleep"),
        ("mean_s", "mean wait (s)"),
        ("p90_s", "90 % within (s)"),
    ];
    let mut table = Table::new("Wait of a read that comes at any moment (BlinkFS, Fig. 8a)", &columns);
    for percent in &args.percent {
        for copies in &args.replicas {
            let awake = machines.awake_share(watts(machines, *percent));
            let wait = blink::wait(&Schedule { nodes: args.nodes, awake, stagger: stagger(args) }, *copies);
            table.row(vec![
                Cell::Number(*percent, 0),
                Cell::Count((*copies).into()),
                Cell::Share(wait.unavailable_fraction, 1),
                Cell::Number(wait.mean * args.interval, 2),
                Cell::Number(wait.p90 * args.interval, 2),
            ]);
        }
    }
    table
}

const fn stagger(args: &PowerArgs) -> Stagger {
    match args.stagger {
        StaggerKind::Literal => Stagger::Literal,
        StaggerKind::Circular => Stagger::Circular,
    }
}

fn capacity_table(args: &PowerArgs) -> Table {
    let columns = [("layout", "layout"), ("bytes", "bytes"), ("share", "of all"), ("user_bytes", "user data")];
    let mut table = Table::new("What fits (BlinkFS, Sec. 2.3)", &columns);
    let node = args.node_bytes.0 as f64;
    let all = node * f64::from(args.nodes);
    let equal = equal_work_capacity(args.nodes, args.primaries, node);
    let rows = [("equal-work", equal, node * f64::from(args.primaries))];
    let copies = args
        .replicas
        .iter()
        .map(|copies| (format!("power-balanced, {}", Scheme::Copies(*copies)), all, all / f64::from(*copies)));
    for (name, bytes, user) in rows.map(|(name, bytes, user)| (name.to_owned(), bytes, user)).into_iter().chain(copies)
    {
        table.row(vec![Cell::text(name), Cell::Bytes(bytes), Cell::Share(bytes / all, 1), Cell::Bytes(user)]);
    }
    table
}

fn data_bytes(args: &PowerArgs) -> f64 {
    args.data_bytes.map_or_else(|| args.node_bytes.0 as f64 * f64::from(args.nodes) / 2.0, |bytes| bytes.0 as f64)
}

/// Bytes that a layout without spare copies moves from each of the power levels to the next.
fn moves_table(args: &PowerArgs, machines: &Machines) -> Table {
    let columns = [
        ("from_percent", "from %"),
        ("to_percent", "to %"),
        ("from", "nodes"),
        ("to", "nodes after"),
        ("bytes", "bytes to move"),
        ("hours", "hours"),
    ];
    let mut table = Table::new("What migration moves at a change of power (BlinkFS, Sec. 6.1)", &columns);
    for pair in args.percent.windows(2) {
        let on = |percent| machines.nodes_on(watts(machines, percent));
        let moved = migration(on(pair[0]), on(pair[1]), data_bytes(args));
        table.row(vec![
            Cell::Number(pair[0], 0),
            Cell::Number(pair[1], 0),
            Cell::Count(moved.from.into()),
            Cell::Count(moved.to.into()),
            Cell::Bytes(moved.bytes),
            Cell::Number(moved.bytes / args.signal.link_bytes_per_s() / 3_600.0, 2),
        ]);
    }
    table
}

fn months(args: &PowerArgs, machines: &Machines) -> Result<Option<(String, Vec<Month>)>> {
    let Some(signal) = args.signal.read(machines.full_watts())? else { return Ok(None) };
    let plant = Plant {
        machines: *machines,
        fixed_watts: args.signal.fixed_watts(),
        primaries: args.primaries,
        data_bytes: data_bytes(args),
        link_bytes_per_s: args.signal.link_bytes_per_s(),
        interval_s: args.interval,
        transition_s: args.signal.transition_s(),
        price: args.signal.price(),
        days: args.signal.days(),
    };
    let name = format!("{}, {:.0} W on average, {} days", signal.name, signal.mean_watts(), plant.days);
    let months = Policy::ALL.iter().map(|policy| month(&plant, &signal, *policy));
    Ok(Some((name, months.collect::<Result<_>>()?)))
}

fn months_table(name: &str, months: &[Month]) -> Table {
    let columns = [
        ("policy", "policy"),
        ("energy_kwh", "energy (kWh)"),
        ("cost", "cost"),
        ("work_share", "work"),
        ("stalled_fraction", "stalled"),
        ("moved_bytes", "to move"),
        ("moving_fraction", "time moving"),
        ("transitions", "transitions"),
        ("over_budget_fraction", "over budget"),
    ];
    let mut table = Table::new(name, &columns);
    for month in months {
        table.row(vec![
            Cell::text(month.policy.name()),
            Cell::Number(month.energy_kwh, 1),
            Cell::Number(month.cost, 2),
            Cell::Share(month.work_share, 1),
            Cell::Share(month.stalled_fraction, 1),
            Cell::Bytes(month.moved_bytes),
            Cell::Share(month.moving_fraction, 1),
            Cell::Number(month.transitions, 0),
            Cell::Share(month.over_budget_fraction, 1),
        ]);
    }
    table
}

fn figure(args: &PowerArgs, machines: &Machines, months: Option<&(String, Vec<Month>)>) -> Result<Figure> {
    match args.figure {
        Drawing::Inaccessible => Ok(plots::inaccessible(args.nodes, &args.replicas)),
        Drawing::Replicas => Ok(plots::replicas_needed(machines)),
        Drawing::Latency => Ok(plots::latency(machines, &args.replicas, args.interval, stagger(args))),
        Drawing::Month => {
            let (name, months) =
                months.ok_or_else(|| err!(Invalid, "a month needs --signal, such as --signal constant:50"))?;
            Ok(plots::months(name, months))
        }
    }
}
