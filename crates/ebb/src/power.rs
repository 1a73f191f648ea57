//! `ebb power`: the supply, the power plan, the sleeping nodes.

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use ebb_cli::values::one_of;
use ebb_cli::{Context, admin};
use ebb_power::PolicyKind;
use ebb_types::Result;
use ebb_wire::pb;

use follow::FollowArgs;

pub mod follow;
pub mod status;

#[derive(Debug, Subcommand)]
pub enum PowerCommand {
    /// Set the available power, whatever the power source says.
    ///
    /// This override lasts until `--release` or `ebb power follow`.
    Set(SetArgs),
    /// Read the supply from a trace, prices, carbon intensities, OpenADR events, the draw of other loads, an oscillation
    /// or a UPS.
    ///
    /// The new source counts at once, and an override by `ebb power set` ends.
    Follow(Box<FollowArgs>),
    /// Choose the power policy.
    Policy(PolicyArgs),
    /// Show the power plan, the power draw and the nodes.
    Status {
        /// Update the output until interrupted.
        #[arg(long)]
        follow: bool,
    },
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
#[group(required = true, multiple = false)]
pub struct SetArgs {
    /// Power for the whole cluster in watts, including the constant part.
    #[arg(long)]
    watts: Option<f64>,
    /// Fraction, from 0 to 1, of the power that the block servers draw when all of them are active.
    #[arg(long)]
    fraction: Option<f64>,
    /// End the override, so that the power source counts again.
    #[arg(long)]
    release: bool,
}

#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// Policy, by which nodes sleep when the supply is low.
    #[arg(value_parser = policies())]
    policy: PolicyKind,
    /// Choose the policy even if it puts data out of reach or wears out rotational disks.
    #[arg(long)]
    force: bool,
}

/// The policies by name.
pub fn policies() -> impl TypedValueParser<Value = PolicyKind> {
    one_of(PolicyKind::ALL.iter().map(|policy| policy.name()))
}

/// Does it.
pub async fn run(context: &Context, command: PowerCommand) -> Result<()> {
    let manager = admin::power_manager(&context.cluster()?).await?;
    match command {
        PowerCommand::Set(args) => {
            let call = pb::SetPower { watts: args.watts, fraction: args.fraction };
            manager.call(&call, admin::ASK).await?;
            status::print_taken(context, &manager).await
        }
        PowerCommand::Follow(args) => {
            manager.call(&args.call()?, admin::ASK).await?;
            status::print_taken(context, &manager).await
        }
        PowerCommand::Policy(args) => {
            let call = pb::SetPolicy { policy: args.policy.name().to_owned(), force: args.force };
            manager.call(&call, admin::ASK).await?;
            status::print_taken(context, &manager).await
        }
        PowerCommand::Status { follow: false } => status::print_once(context, &manager).await,
        PowerCommand::Status { follow: true } => status::follow(context).await,
    }
}
