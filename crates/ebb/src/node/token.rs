//! `ebb node token`.

use std::time::Duration;

use clap::Args;
use ebb_cli::token::Token;
use ebb_cli::units::Span;
use ebb_cli::{Context, admin};
use ebb_identity::CertifiedKey;
use ebb_types::{Result, Role, WallTime};
use ebb_wire::pb;
use serde_json::json;

/// How long a token holds that is made without a time: an operator carries it to a host by hand.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Options of `ebb node token`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// What the host may run: block, worker, mount, proxy, power-manager, power-client; operator lets its superuser
    /// administer the cluster.
    #[arg(long = "role", value_delimiter = ',', value_name = "ROLES", default_value = "block,worker,mount")]
    roles: Vec<Role>,
    /// Host that may use it. Without this option the host names itself, with a name that the cluster does not know yet.
    #[arg(long)]
    host: Option<String>,
    /// How long it holds, at most 7d [default: 1h].
    #[arg(long, value_name = "TIME")]
    lifetime: Option<Span>,
}

/// Prints a token, with which one host joins the cluster once.
pub async fn run(context: &Context, args: TokenArgs) -> Result<()> {
    let cluster = context.cluster()?;
    let roles: Vec<String> = args.roles.iter().map(ToString::to_string).collect();
    let lifetime = args.lifetime.map_or(LIFETIME, |span| span.0);
    let invite = pb::InviteHost {
        roles: roles.clone(),
        host: args.host.clone().unwrap_or_default(),
        lifetime_s: u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX),
    };
    let reply = admin::master(&cluster)?.call(&invite, admin::ASK).await?;
    let key = CertifiedKey::from_pem(&reply.certified_key)?;
    let token = Token { masters: cluster.masters()?, wire: cluster.file.wire.clone(), roles, key };
    let (line, until) = (token.encode(), crate::identity::date(WallTime(reply.until_ns)));
    // Standard output has the token alone, so that it can go into a file.
    context.output.warn(&format!("the token admits one host, once, until {until}: whoever reads it can be that host"));
    context
        .output
        .answer(&line, &json!({ "token": line, "roles": invite.roles, "host": args.host, "until_ns": reply.until_ns }));
    Ok(())
}
