//! `ebb plan layout --datasets`: several datasets, and nodes shared out between the live ones.

use clap::Args;
use ebb_cli::Context;
use ebb_plan::datasets::{self, Overlay, Study};
use ebb_plan::{Cell, Table, plots};
use ebb_types::{Result, bail, err};
use serde_json::json;

use super::super::emit::{Answer, EmitArgs};
use super::super::number::{real, whole};
use super::super::parallel;
use super::LayoutArgs;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct SharingArgs {
    /// Numbers of stored datasets, comma-separated. The answer shows how the live ones share the nodes.
    #[arg(long, value_delimiter = ',', value_parser = whole::<u32>(1, 1000))]
    datasets: Vec<u32>,
    /// Numbers of live datasets, comma-separated [default: every possible number].
    #[arg(long, value_delimiter = ',', value_parser = whole::<u32>(1, 1000))]
    live: Vec<u32>,
    /// Live datasets, counted from 1, comma-separated. The answer shows which nodes serve each of them.
    #[arg(long, value_delimiter = ',', conflicts_with = "live", value_parser = whole::<u32>(1, 1000))]
    live_set: Vec<u32>,
    /// Shares of the live datasets, such as 1,3,5 [default: equal shares].
    #[arg(long, value_delimiter = ',', value_parser = real(1e-6, 1e6))]
    weights: Vec<f64>,
    /// Most combinations that are examined. If there are more, so many are drawn at random.
    #[arg(long, default_value_t = 10_000, value_parser = whole::<usize>(1, 1_000_000))]
    sample: usize,
}

impl SharingArgs {
    /// Whether datasets were asked for.
    pub fn asked(&self) -> bool {
        !self.datasets.is_empty()
    }
}

/// A number of stored and a number of live datasets.
struct Case {
    stored: u32,
    live: u32,
}

/// The results of a case.
struct Row {
    stored: u32,
    live: u32,
    of: u128,
    study: Study,
}

/// The study, or one set of live datasets node by node.
pub fn run(context: &Context, args: &SharingArgs, layout: &LayoutArgs, emit: &EmitArgs) -> Result<()> {
    if !args.live_set.is_empty() {
        return one(context, args, layout, emit);
    }
    let (nodes, primaries, replicas) = layout.shape();
    let fits = |stored: u32| stored.min(nodes / primaries.max(1)).max(1);
    let cases: Vec<Case> = args
        .datasets
        .iter()
        .flat_map(|stored| {
            let live = if args.live.is_empty() { (1..=fits(*stored)).collect() } else { args.live.clone() };
            live.into_iter().map(|live| Case { stored: *stored, live })
        })
        .collect();
    let rows = parallel::map(context.output, "combinations", &cases, |case| -> Result<Row> {
        let overlay = Overlay::new(nodes, primaries, replicas, case.stored)?;
        if case.live == 0 || case.live > case.stored {
            let nearest = case.live.clamp(1, case.stored);
            bail!(
                Invalid,
                "{} of {} datasets cannot be live; the nearest possible number is {nearest}",
                case.live,
                case.stored
            );
        }
        let weights = weights(args, case.live as usize)?;
        let sample = datasets::sample(case.stored as usize, case.live as usize, args.sample, layout.seed);
        let study = datasets::study(&overlay, &sample.combinations, &weights)?;
        Ok(Row { stored: case.stored, live: case.live, of: sample.of, study })
    })?;
    let table = table(&rows);
    let answer = Answer {
        notes: vec![format!("{nodes} nodes, {primaries} primaries and {replicas} copies for each dataset.")],
        json: table.json(),
        figure: emit
            .wants_figure()
            .then(|| plots::degrees(&format!("N = {nodes}, p = {primaries}, r = {replicas}"), &curves(&rows))),
        tables: vec![table],
    };
    emit.emit(context.output, &answer)
}

fn weights(args: &SharingArgs, live: usize) -> Result<Vec<f64>> {
    match args.weights.len() {
        0 => Ok(vec![1.0; live]),
        given if given == live => Ok(args.weights.clone()),
        given => {
            bail!(Invalid, "{given} weights for {live} live datasets; the nearest possible number of weights is {live}")
        }
    }
}

fn table(rows: &[Row]) -> Table {
    let columns = [
        ("datasets", "datasets"),
        ("live", "live"),
        ("combinations", "combinations"),
        ("of", "of"),
        ("average", "average degree"),
        ("worst", "worst"),
        ("without_primary", "without a primary"),
    ];
    let mut table = Table::new("Degree of power-proportionality (Rabbit, Fig. 8)", &columns);
    for row in rows {
        table.row(vec![
            Cell::Count(row.stored.into()),
            Cell::Count(row.live.into()),
            Cell::Count(row.study.combinations),
            Cell::Count(u64::try_from(row.of).unwrap_or(u64::MAX)),
            Cell::number(row.study.average, 3),
            Cell::number(row.study.worst, 3),
            Cell::Count(row.study.unreadable),
        ]);
    }
    table
}

fn curves(rows: &[Row]) -> Vec<plots::Degrees> {
    let mut curves: Vec<plots::Degrees> = Vec::new();
    for row in rows {
        let point = (row.live.into(), row.study.average.unwrap_or(f64::NAN), row.study.worst.unwrap_or(f64::NAN));
        match curves.last_mut() {
            Some((stored, points)) if *stored == row.stored => points.push(point),
            _ => curves.push((row.stored, vec![point])),
        }
    }
    curves
}

fn one(context: &Context, args: &SharingArgs, layout: &LayoutArgs, emit: &EmitArgs) -> Result<()> {
    let (nodes, primaries, replicas) = layout.shape();
    let [stored] = args.datasets.as_slice() else {
        bail!(Invalid, "--live-set goes with one number of --datasets; the nearest possible is the first of them");
    };
    let overlay = Overlay::new(nodes, primaries, replicas, *stored)?;
    let number = |one: &u32| {
        let index = one.checked_sub(1).filter(|index| index < stored);
        index.map(|index| index as usize).ok_or_else(|| {
            err!(Invalid, "there is no dataset {one}; the nearest possible is {}", (*one).clamp(1, *stored))
        })
    };
    let live: Vec<usize> = args.live_set.iter().map(number).collect::<Result<_>>()?;
    let given = overlay.allot(&live, &weights(args, live.len())?)?;
    let columns = [
        ("dataset", "dataset"),
        ("target", "target"),
        ("active", "nodes"),
        ("lost_primaries", "lost primaries"),
        ("degree", "degree"),
        ("last_index", "last in its chain"),
    ];
    let mut table = Table::new("Nodes of each live dataset (Rabbit, Fig. 3)", &columns);
    for one in &given {
        table.row(vec![
            Cell::count(one.dataset + 1),
            Cell::Count(one.target.into()),
            Cell::count(one.nodes.len()),
            Cell::Count(one.lost_primaries.into()),
            Cell::number(one.degree, 3),
            one.indexes.last().map_or(Cell::Missing, |index| Cell::Count(u64::from(*index) + 1)),
        ]);
    }
    let detail: Vec<_> = given
        .iter()
        .map(|one| {
            json!({ "dataset": one.dataset + 1, "target": one.target, "active": one.nodes.len(), "degree": one.degree,
                "lost_primaries": one.lost_primaries, "nodes": one.nodes, "chain": overlay.chain(one.dataset) })
        })
        .collect();
    emit.emit(context.output, &Answer { notes: Vec::new(), tables: vec![table], json: json!(detail), figure: None })
}
