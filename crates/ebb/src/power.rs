//! `ebb power`: how much power there is, what is made of it, who sleeps.

use clap::{Args, Subcommand};
use ebb_cli::{Context, admin};
use ebb_power::PolicyKind;
use ebb_types::Result;
use ebb_wire::pb;

use follow::FollowArgs;

mod follow;
pub mod status;

#[derive(Debug, Subcommand)]
pub enum PowerCommand {
    /// Say how much power there is, whatever the source says.
    Set(SetArgs),
    /// Read the supply from a trace, prices, what others draw, an oscillation or a UPS, from now on.
    Follow(FollowArgs),
    /// Choose the policy.
    Policy(PolicyArgs),
    /// Show plan, watts and nodes.
    Status {
        /// Go on showing, until interrupted.
        #[arg(long)]
        follow: bool,
    },
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
#[group(required = true, multiple = false)]
pub struct SetArgs {
    /// For the whole cluster, what is always drawn included.
    #[arg(long)]
    watts: Option<f64>,
    /// Share of what the block servers draw with all of them active, from 0 to 1.
    #[arg(long)]
    fraction: Option<f64>,
    /// Take the word back: the source counts again.
    #[arg(long)]
    release: bool,
}

#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// Its name.
    policy: PolicyKind,
    /// Although it puts data out of reach, or wears rotational disks out.
    #[arg(long)]
    force: bool,
}

/// Does it.
pub async fn run(context: &Context, command: PowerCommand) -> Result<()> {
    let manager = admin::power_manager(&context.cluster()?)?;
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
