//! `ebb identity`: certificates of a cluster, where its authority is.

mod trust;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use ebb_api::{secret, users};
use ebb_cli::output::Table;
use ebb_cli::units::Span;
use ebb_cli::{Context, private};
use ebb_identity::{CertifiedKey, Subject};
use ebb_rpc::LIFETIME;
use ebb_runtime::Runtime;
use ebb_types::trust::CERTIFICATE_MAX;
use ebb_types::{Credentials, HostName, Result, Role, WallTime, bail, err};
use serde_json::{Value, json};

#[derive(Debug, Subcommand)]
pub enum IdentityCommand {
    /// Certify a new key, for a process of another host or for a user's programs.
    ///
    /// The cluster's authority must be in this directory. Whoever reads the file that is written is that process to the
    /// whole cluster: bring it where it is used by a way that nobody else can read.
    Issue(IssueArgs),
    /// Show whom a file certifies, and until when.
    Show {
        /// File of certificate and key.
        file: PathBuf,
    },
    /// Show the identities in the cluster's directory.
    List {
        /// Show the tokens and the revocations of the whole cluster instead.
        #[arg(long)]
        trust: bool,
    },
    /// Withdraw certificates that were issued until now.
    ///
    /// The cluster believes no certificate with all of the given properties any more, within ten seconds. What is issued
    /// afterwards is believed again: a host joins anew with another token.
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct RevokeArgs {
    /// Role of the processes; joiner withdraws tokens.
    #[arg(long)]
    role: Option<Role>,
    /// Host of the processes.
    #[arg(long)]
    host: Option<String>,
    /// User for whom programs act, by name or number.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Serial number of one certificate, in hexadecimal digits, as `ebb identity show` prints it.
    #[arg(long, value_name = "HEX")]
    serial: Option<String>,
}

#[derive(Debug, Args)]
pub struct IssueArgs {
    /// Role of the process.
    #[arg(long)]
    role: Role,
    /// Host that the process runs on, as it declares it. Without one, an operator's command or a program may run anywhere.
    #[arg(long)]
    host: Option<String>,
    /// User for whom a program acts, by name or number. Its groups are those of this machine.
    #[arg(long, value_name = "USER", required_if_eq("role", "program"))]
    user: Option<String>,
    /// How long the certificate holds [default: 90d].
    #[arg(long, value_name = "TIME")]
    lifetime: Option<Span>,
    /// File to write. It must not exist.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Runs the command.
pub async fn run(context: &Context, command: IdentityCommand) -> Result<()> {
    match command {
        IdentityCommand::Issue(args) => issue(context, args),
        IdentityCommand::Show { file } => show(context, &file),
        IdentityCommand::List { trust: false } => list(context),
        IdentityCommand::List { trust: true } => trust::list(context).await,
        IdentityCommand::Revoke(args) => trust::revoke(context, args).await,
    }
}

fn issue(context: &Context, args: IssueArgs) -> Result<()> {
    let cluster = context.cluster()?;
    let Some(authority) = cluster.keys().authority()? else {
        bail!(NotFound, "{} has no authority: run this where the cluster was made", cluster.path.display());
    };
    let may_roam = matches!(args.role, Role::Operator | Role::Program);
    if args.host.is_none() && !may_roam {
        bail!(Invalid, "a {} is on one host: give --host HOST", args.role);
    }
    if args.user.is_some() && args.role != Role::Program {
        bail!(Invalid, "a {} speaks for every user: leave --user out", args.role);
    }
    let subject = Subject {
        cluster: cluster.keys().cluster(),
        role: args.role,
        host: args.host.map(HostName::new),
        user: args.user.as_deref().map(user).transpose()?,
    };
    let lifetime = args.lifetime.map_or(LIFETIME, |span| span.0);
    if lifetime > CERTIFICATE_MAX {
        bail!(Invalid, "--lifetime: at most 400d, because a revocation is kept for so long");
    }
    let key = authority.issue(&subject, Runtime::real().wall(), lifetime)?;
    private::create(&args.out, key.to_pem().as_bytes())?;
    let (file, until) = (args.out.display(), date(key.validity().until));
    context.output.answer(&format!("{file} certifies the {subject} until {until}"), &described(&args.out, &key));
    Ok(())
}

/// A user of this machine, with its groups.
fn user(name: &str) -> Result<Credentials> {
    let uid = users::uid_of(name).map_err(|sentence| err!(NotFound, "--user: {sentence}"))?;
    users::system_user(&users::user_name(uid))
        .ok_or_else(|| err!(NotFound, "--user: this machine has no user {name:?}"))
}

fn show(context: &Context, file: &Path) -> Result<()> {
    let key = read(file)?;
    let (subject, until) = (key.subject(), date(key.validity().until));
    let cluster = subject.cluster.raw();
    let serial = hex(key.serial());
    let sentence = format!("{subject} in cluster {cluster:016x}, until {until}, serial {serial}");
    context.output.answer(&sentence, &described(file, &key));
    Ok(())
}

fn list(context: &Context) -> Result<()> {
    let cluster = context.cluster()?;
    let mut all = Vec::new();
    for path in private::files(&cluster.path.join("identities"), "pem")? {
        all.push((read(&path)?, path));
    }
    all.sort_by_key(|(key, _)| (key.subject().role, key.subject().host.clone()));
    if context.output.json() {
        let rows: Vec<Value> = all.iter().map(|(key, path)| described(path, key)).collect();
        context.output.print_json(&json!(rows));
        return Ok(());
    }
    let mut table = Table::new(&["ROLE", "HOST", "UNTIL"]);
    for (key, _) in &all {
        let host = key.subject().host.as_ref().map_or("any", HostName::as_str);
        table.row(vec![key.subject().role.to_string(), host.to_owned(), date(key.validity().until)]);
    }
    context.output.table(&table);
    Ok(())
}

fn read(path: &Path) -> Result<CertifiedKey> {
    CertifiedKey::from_pem(&secret::read(path)?).map_err(|error| error.context(path.display()))
}

fn described(path: &Path, key: &CertifiedKey) -> Value {
    let subject = key.subject();
    json!({
        "file": path.display().to_string(),
        "cluster": format!("{:016x}", subject.cluster.raw()),
        "role": subject.role.name(),
        "host": subject.host.as_ref().map(HostName::as_str),
        "uid": subject.user.as_ref().map(|user| user.uid),
        "serial": hex(key.serial()),
        "until_ns": key.validity().until.0,
    })
}

/// A serial number as people write it.
fn hex(serial: &[u8]) -> String {
    serial.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A moment in UTC.
pub fn date(time: WallTime) -> String {
    let seconds = u64::try_from(time.0 / 1_000_000_000).unwrap_or(0);
    humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}
