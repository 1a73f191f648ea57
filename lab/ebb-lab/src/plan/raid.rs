//! `ebb plan raid`.

mod scan;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ebb_cli::Context;
use ebb_cli::units::ByteSize;
use ebb_plan::raid::Scheme;
use ebb_plan::raid::overhead::{Code, Grouping, overhead};
use ebb_plan::raid::reliability::{Inputs, loss};
use ebb_plan::raid::sizes::{Lognormal, Sizes};
use ebb_plan::{Cell, Figure, Table, plots};
use ebb_types::{Result, bail, err};
use serde_json::json;

use super::emit::{Answer, EmitArgs};
use super::number::{real, whole};
use super::parallel;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct RaidArgs {
    /// Amounts of user data, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "10PB")]
    user_bytes: Vec<ByteSize>,
    /// Times until a failure is noticed, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "10min", value_parser = humantime::parse_duration)]
    detection: Vec<Duration>,
    /// Schemes, comma-separated: 3 for three copies, 8+2 for a code.
    #[arg(long, value_delimiter = ',', default_value = "3,8+2")]
    scheme: Vec<Scheme>,
    /// Capacity of a disk.
    #[arg(long, default_value = "1TB")]
    disk_bytes: ByteSize,
    /// Part of that capacity in use, in percent.
    #[arg(long, default_value_t = 80.0, value_parser = real(0.001, 100.0))]
    disk_use: f64,
    /// Size of a block.
    #[arg(long, default_value = "64MB")]
    block_bytes: ByteSize,
    /// Bytes per second that each disk gives to repair.
    #[arg(long, default_value = "25MB")]
    repair_rate: ByteSize,
    /// Disks that fail in a year, in percent.
    #[arg(long, default_value_t = 2.0, value_parser = real(1e-6, 100_000.0))]
    failures_per_year: f64,
    /// Also compute the space overhead of the codes, for the file sizes of the paper's clusters.
    #[arg(long)]
    overhead: bool,
    /// Also compute the space overhead for a histogram of file sizes, with lines of bytes,count.
    #[arg(long, value_name = "FILE", group = "sizes")]
    histogram: Option<PathBuf>,
    /// Also compute the space overhead for the output of `find DIR -type f -printf '%s %p\n'`.
    #[arg(long, value_name = "FILE", group = "sizes")]
    find: Option<PathBuf>,
    /// Also compute the space overhead for the files in a directory as it is.
    #[arg(long, value_name = "DIR", group = "sizes")]
    scan: Option<PathBuf>,
    /// Files in a directory, used where only file sizes are known.
    #[arg(long, default_value_t = 30, value_parser = whole::<u32>(1, 1_000_000))]
    files_per_directory: u32,
    /// Figure that --svg draws.
    #[arg(long, value_enum, default_value_t = Drawing::Loss)]
    figure: Drawing,
    #[command(flatten)]
    emit: EmitArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Drawing {
    /// Bytes lost against user data.
    Loss,
    /// Check bytes by grouping.
    Overhead,
}

/// One line of the reliability table.
struct Case {
    inputs: Inputs,
    scheme: Scheme,
}

/// Reliability, and space if sizes were given.
pub fn run(context: &Context, args: &RaidArgs) -> Result<()> {
    let cases = cases(args)?;
    let reliability = reliability(&cases);
    let space = sizes(context, args)?.map(|sizes| space(context, args, &sizes)).transpose()?;
    let json = match &space {
        // Without sizes the answer is the array of schemes alone.
        None => reliability.json(),
        Some((table, _)) => json!({ "reliability": reliability.json(), "overhead": table.json() }),
    };
    let figure = args.emit.wants_figure().then(|| figure(args, space.as_ref())).transpose()?;
    let tables = space.map(|space| space.0).into_iter().chain([reliability]).collect();
    args.emit.emit(context.output, &Answer { notes: Vec::new(), tables, json, figure })
}

fn inputs(args: &RaidArgs, user: ByteSize, detection: Duration) -> Inputs {
    Inputs {
        user_bytes: user.0 as f64,
        detection_s: detection.as_secs_f64(),
        disk_bytes: args.disk_bytes.0 as f64,
        disk_use: args.disk_use / 100.0,
        block_bytes: args.block_bytes.0 as f64,
        repair_bytes_per_s: args.repair_rate.0 as f64,
        failures_per_year: args.failures_per_year / 100.0,
    }
}

fn cases(args: &RaidArgs) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for user in &args.user_bytes {
        for detection in &args.detection {
            let inputs = inputs(args, *user, *detection);
            inputs.check()?;
            for scheme in &args.scheme {
                let disks = loss(&inputs, *scheme).disks;
                if disks < f64::from(scheme.members()) {
                    let least = f64::from(scheme.data()) * inputs.disk_bytes * inputs.disk_use;
                    bail!(
                        Invalid,
                        "{} of user data fill {disks:.1} disks, and {scheme} needs {} for one set; the nearest possible user \
                         data is {}",
                        ebb_plan::table::human_bytes(inputs.user_bytes),
                        scheme.members(),
                        ebb_plan::table::human_bytes(least)
                    );
                }
                cases.push(Case { inputs, scheme: *scheme });
            }
        }
    }
    Ok(cases)
}

fn reliability(cases: &[Case]) -> Table {
    let columns = [
        ("scheme", "scheme"),
        ("user_bytes", "user data"),
        ("detection_s", "detection (s)"),
        ("overhead", "overhead"),
        ("disks", "disks"),
        ("repair_s", "detect and repair (s)"),
        ("losses_per_year", "losses a year"),
        ("bytes_per_loss", "lost at once"),
        ("bytes_lost_per_year", "lost a year"),
        ("bytes_lost_per_year_exact", "chain solved exactly"),
    ];
    let mut table = Table::new("Bytes lost per year (DiskReduce, Fig. 3)", &columns);
    for Case { inputs, scheme } in cases {
        let found = loss(inputs, *scheme);
        table.row(vec![
            Cell::text(scheme.to_string()),
            Cell::Bytes(inputs.user_bytes),
            Cell::Number(inputs.detection_s, 0),
            Cell::Share(scheme.ideal_overhead(), 1),
            Cell::Number(found.disks.ceil(), 0),
            Cell::Number(found.repair_s, 1),
            Cell::Scientific(found.losses_per_year),
            Cell::Bytes(found.bytes_per_loss),
            Cell::Bytes(found.bytes_lost_per_year),
            Cell::Bytes(found.bytes_lost_per_year_exact),
        ]);
    }
    table
}

/// The file sizes that were asked for.
fn sizes(context: &Context, args: &RaidArgs) -> Result<Option<Sizes>> {
    let text = |path: &PathBuf| {
        std::fs::read_to_string(path).map_err(|error| err!(Invalid, "reading {}: {error}", path.display()))
    };
    let name = |path: &PathBuf| path.display().to_string();
    match (&args.histogram, &args.find, &args.scan) {
        (Some(path), _, _) => Sizes::parse_histogram(&name(path), &text(path)?, args.files_per_directory).map(Some),
        (_, Some(path), _) => Sizes::parse_find(&name(path), &text(path)?).map(Some),
        (_, _, Some(path)) => scan::scan(context.output, path).map(Some),
        _ if args.overhead || args.figure == Drawing::Overhead => {
            let per_directory = args.files_per_directory;
            Lognormal { per_directory, ..Lognormal::DISKREDUCE }.files(200_000).map(Some)
        }
        _ => Ok(None),
    }
}

/// The table, and for the figure each code's name and overheads by grouping.
type Space = (Table, Vec<(String, Vec<f64>)>);

fn space(context: &Context, args: &RaidArgs, sizes: &Sizes) -> Result<Space> {
    let columns =
        [("scheme", "scheme"), ("grouping", "grouping"), ("overhead", "overhead"), ("saved", "saved against 3 copies")];
    let title = format!(
        "Space beyond the data: {} ({} files in {} directories, {})",
        sizes.name,
        sizes.files(),
        sizes.directories.len(),
        ebb_plan::table::human_bytes(sizes.bytes() as f64)
    );
    let mut table = Table::new(title, &columns);
    let codes: Vec<(Scheme, Code)> =
        args.scheme.iter().filter_map(|scheme| Some((*scheme, code(args, *scheme)?))).collect();
    let work: Vec<(Code, Grouping)> =
        codes.iter().flat_map(|(_, code)| Grouping::ALL.map(|grouping| (*code, grouping))).collect();
    let found =
        parallel::map(context.output, "groupings", &work, |(code, grouping)| Ok(overhead(sizes, *code, *grouping)))?;
    let mut bars = Vec::new();
    for ((scheme, _), shares) in codes.iter().zip(found.chunks(Grouping::ALL.len())) {
        for (grouping, share) in Grouping::ALL.iter().zip(shares) {
            table.row(vec![
                Cell::text(scheme.to_string()),
                Cell::text(grouping.to_string()),
                Cell::Share(*share, 1),
                Cell::Share(1.0 - (1.0 + share) / 3.0, 1),
            ]);
        }
        bars.push((scheme.to_string(), shares.to_vec()));
    }
    if bars.is_empty() {
        bail!(Invalid, "copies have no grouping; give a code, such as --scheme 8+2");
    }
    Ok((table, bars))
}

fn code(args: &RaidArgs, scheme: Scheme) -> Option<Code> {
    match scheme {
        Scheme::Code { data, check } => Some(Code { data, check, block_bytes: args.block_bytes.0 }),
        Scheme::Copies(_) => None,
    }
}

fn figure(args: &RaidArgs, space: Option<&Space>) -> Result<Figure> {
    if args.figure == Drawing::Overhead {
        let (table, bars) = space.ok_or_else(|| err!(Invalid, "there are no file sizes to draw"))?;
        let (names, shares): (Vec<String>, Vec<Vec<f64>>) = bars.iter().cloned().unzip();
        return Ok(plots::overheads(&table.title, &names, &shares));
    }
    let sizes = args.user_bytes.iter().map(|user| user.0 as f64);
    let (low, high) = sizes.fold((f64::INFINITY, 0.0_f64), |(low, high), size| (low.min(size), high.max(size)));
    let low = if low == high { low.min(80e12) } else { low };
    let Some((user, detection)) = args.user_bytes.first().zip(args.detection.first()) else {
        bail!(Invalid, "there is nothing to draw without user data and a detection time");
    };
    Ok(plots::loss_curves(&inputs(args, *user, *detection), &args.scheme, low, high.max(low * 2.0)))
}
