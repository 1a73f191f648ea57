//! `ebb plan gears`.

use clap::Args;
use ebb_cli::Context;
use ebb_plan::gears::GearChoice;
use ebb_plan::{Cell, Table, plots};
use ebb_types::Result;

use super::emit::{Answer, EmitArgs};
use super::number::whole;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct GearsArgs {
    /// Number of primaries: nodes that are always on.
    #[arg(long, default_value_t = 100, value_parser = whole::<u32>(1, 1_000_000))]
    primaries: u32,
    /// Nodes that are switched on together, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "1,5,10,20,50,100", value_parser = whole::<u32>(1, 1_000_000))]
    gear_size: Vec<u32>,
    #[command(flatten)]
    emit: EmitArgs,
}

/// The table and the trade-off as a curve.
pub fn run(context: &Context, args: &GearsArgs) -> Result<()> {
    let choices: Result<Vec<GearChoice>> =
        args.gear_size.iter().map(|size| GearChoice::new(args.primaries, *size)).collect();
    let table = table(&choices?);
    let answer = Answer {
        notes: vec![
            format!(
                "{} primaries. After one fails, without gears: {:.0} nodes must be on.",
                args.primaries,
                GearChoice::new(args.primaries, 1)?.min_active_ungeared()
            ),
            "The paper's formula takes an integral for a sum of whole gear groups: it is up to 2 above their number."
                .to_owned(),
        ],
        json: table.json(),
        tables: vec![table],
        figure: args.emit.wants_figure().then(|| plots::gears(args.primaries)).transpose()?,
    };
    args.emit.emit(context.output, &answer)
}

fn table(choices: &[GearChoice]) -> Table {
    let columns = [
        ("gear_size", "gear size"),
        ("recovery_group_size", "recovery group (paper)"),
        ("recovery_group_exact", "unrounded"),
        ("gear_groups", "whole gear groups"),
        ("min_active_after_failure", "on after a failure"),
        ("step_share", "step of power"),
    ];
    let mut table = Table::new("Gear size against recovery group (Rabbit, Table 1)", &columns);
    for choice in choices {
        let formula = choice.recovery_group_formula();
        table.row(vec![
            Cell::Count(choice.gear_size.into()),
            Cell::Count(formula.round() as u64),
            Cell::Number(formula, 2),
            Cell::Count(choice.gear_groups().into()),
            Cell::Count(choice.min_active_after_failure().into()),
            Cell::Share(f64::from(choice.gear_size) / f64::from(choice.primaries), 0),
        ]);
    }
    table
}
